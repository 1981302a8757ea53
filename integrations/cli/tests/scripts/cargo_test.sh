# needs: cargo cc
# Tests, which cargo starts in the folder of their package by posix_spawn, and a test that is a program of its own.
cd "$D" || exit 1
export CARGO_HOME="$T/cargo" CARGO_NET_OFFLINE=true CARGO_TERM_QUIET=true CARGO_TERM_COLOR=never
unset CARGO_TARGET_DIR CARGO_BUILD_TARGET_DIR CARGO_INCREMENTAL RUSTFLAGS CARGO_MANIFEST_DIR RUSTC_WRAPPER
mkdir -p p/src p/tests
printf '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n[lib]\ndoctest = false\n' > p/Cargo.toml
cat > p/src/lib.rs <<'END'
pub fn sum() -> u32 { 42 }
#[test]
fn sums() { assert_eq!(sum(), 42); std::fs::write("tested", "yes").unwrap(); }
END
cat > p/tests/whole.rs <<'END'
#[test]
fn program() {
    let out = std::process::Command::new("cat").arg("lib.rs").current_dir("src").output().unwrap();
    assert!(String::from_utf8(out.stdout).unwrap().contains(&format!("{}", p::sum())));
    assert!(std::env::current_dir().unwrap().ends_with("p"));
}
END
cargo test --manifest-path p/Cargo.toml > tests 2> "$T/errors"; echo "test: $?"
grep -c '^test .* ok' tests; cat p/tested; echo
