//! One version: of the workspace, the C header, the Python package, the change log and the release notes.

use std::path::Path;
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn one_version_stands_everywhere() {
    let header = file("userlib/include/weldfs.h");
    let number = |part: &str| {
        let name = format!("#define WELDFS_VERSION_{part} ");
        let line = header.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name}")).to_owned()
    };
    assert_eq!(["MAJOR", "MINOR", "PATCH"].map(number).join("."), VERSION, "weldfs.h");
    let notes = format!("docs/releases/{VERSION}.md");
    for (name, line) in [
        ("bindings/python/pyproject.toml", format!("version = \"{VERSION}\"")),
        ("bindings/python/weldfs/__init__.py", format!("__version__ = \"{VERSION}\"")),
        (notes.as_str(), format!("# WeldFS {VERSION}")),
    ] {
        assert!(file(name).lines().any(|l| l == line), "{name} has no line: {line}");
    }
    let entry = format!("## {VERSION}");
    assert!(file("CHANGELOG.md").lines().any(|l| l.starts_with(&entry)), "CHANGELOG.md has no entry {VERSION}");
}

#[test]
fn the_program_prints_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_weldfs")).arg("--version").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with(&format!("weldfs {VERSION}")), "{said}");
    // A release build has its commit there (packaging/test-install.sh).
    assert!(!cfg!(debug_assertions) || said.ends_with("(development build)\n"), "{said}");
}
