//! The house rules, held by a test instead of by reviewers: lengths, where `unsafe` may stand, which crate may know
//! which, and no source file that no module names. The limits and the list of files with `unsafe` stand in `tidy.toml`.

mod deps;
mod sources;

use std::path::PathBuf;

/// The limits of `tidy.toml`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    file_lines_max: usize,
    function_lines_max: usize,
    line_chars_max: usize,
    unsafe_files: Vec<String>,
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace root exists")
}

/// The rules as they stand in the tree.
pub fn rules() -> Rules {
    let text = std::fs::read_to_string(root().join("tidy.toml")).expect("tidy.toml is readable");
    toml::from_str(&text).expect("tidy.toml is valid")
}

/// Fails with all complaints at once, so that one run shows the whole list.
pub fn check(what: &str, complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{what}:\n  {}", complaints.join("\n  "));
}
