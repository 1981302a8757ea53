# needs: cargo cc
# A procedural macro: a shared library that the compiler loads from where cargo has built it.
cd "$D" || exit 1
export CARGO_HOME="$T/cargo" CARGO_NET_OFFLINE=true CARGO_TERM_QUIET=true CARGO_TERM_COLOR=never
unset CARGO_TARGET_DIR CARGO_BUILD_TARGET_DIR CARGO_INCREMENTAL RUSTFLAGS CARGO_MANIFEST_DIR RUSTC_WRAPPER
mkdir -p app/src shape/src
package() { printf '[package]\nname = "%s"\nversion = "0.1.0"\nedition = "2021"\n' "$1"; }
(package shape; printf '[lib]\nproc-macro = true\n') > shape/Cargo.toml
cat > shape/src/lib.rs <<'END'
use proc_macro::TokenStream;
#[proc_macro]
pub fn five(_: TokenStream) -> TokenStream { "5u32".parse().unwrap() }
END
(package app; printf '[dependencies]\nshape = { path = "../shape" }\n') > app/Cargo.toml
echo 'fn main() { println!("{}", shape::five!()); }' > app/src/main.rs
cd app && cargo run 2> "$T/errors"; echo "run: $?"
