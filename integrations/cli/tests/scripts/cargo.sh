# needs: cargo cc
# A workspace with a library, a build script and a vendored crate: built, run, built again.
cd "$D" || exit 1
export CARGO_HOME="$T/cargo" CARGO_NET_OFFLINE=true CARGO_TERM_QUIET=true CARGO_TERM_COLOR=never
unset CARGO_TARGET_DIR CARGO_BUILD_TARGET_DIR CARGO_INCREMENTAL RUSTFLAGS CARGO_MANIFEST_DIR RUSTC_WRAPPER
mkdir -p app/src lib/src vendor/tiny/src .cargo
printf '[workspace]\nmembers = ["app", "lib"]\nresolver = "2"\n' > Cargo.toml
printf '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "%s/vendor"\n' "$D" > .cargo/config.toml
package() { printf '[package]\nname = "%s"\nversion = "0.1.0"\nedition = "2021"\n' "$1"; }
(package tiny) > vendor/tiny/Cargo.toml; echo 'pub fn tiny() -> u32 { 7 }' > vendor/tiny/src/lib.rs
sums=$(cd vendor/tiny && for f in Cargo.toml src/lib.rs; do printf '"%s":"%s",' $f "$(sha256sum < $f | cut -d' ' -f1)"; done)
printf '{"files":{%s},"package":null}' "${sums%,}" > vendor/tiny/.cargo-checksum.json
(package lib; printf 'build = "build.rs"\n[dependencies]\ntiny = "0.1"\n') > lib/Cargo.toml
cat > lib/build.rs <<'END'
fn main() {
    let out = std::path::Path::new(&std::env::var("OUT_DIR").unwrap()).join("made.rs");
    std::fs::write(out, "pub const MADE: u32 = 35;").unwrap();
    println!("cargo:rerun-if-changed=build.rs");
}
END
cat > lib/src/lib.rs <<'END'
include!(concat!(env!("OUT_DIR"), "/made.rs"));
pub fn sum() -> u32 { MADE + tiny::tiny() }
END
(package app; printf '[dependencies]\nlib = { path = "../lib" }\n') > app/Cargo.toml
printf 'fn main() { println!("{} {:?}", lib::sum(), std::env::args().nth(1)); }\n' > app/src/main.rs
cargo build; echo "build: $?"; cargo run -- word; echo "run: $?"; target/debug/app direct
echo 'pub fn more() {}' >> lib/src/lib.rs; cargo build --release; target/release/app; echo "release: $?"
cargo metadata --no-deps --format-version 1 | grep -o '"name":"app"' | head -n 1; cargo clean; ls
