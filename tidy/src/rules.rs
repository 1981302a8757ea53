//! `tidy.toml`: what the rules are told.

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Lines of a source file, at most.
    pub file_lines_max: usize,
    /// Lines of a function's body, at most.
    pub function_lines_max: usize,
    /// Characters of a line, at most, in sources and Markdown.
    pub line_chars_max: usize,
    /// The files that may contain `unsafe`.
    pub unsafe_files: Vec<String>,
    /// The allowed order of the modules of a crate, or of the modules inside one of its modules.
    pub layers: Vec<Layers>,
    /// Words that are not used in documents and comments.
    #[serde(default)]
    pub word: Vec<Word>,
    /// Public items that nothing in the tree uses and that are public all the same.
    #[serde(default)]
    pub public: Vec<Public>,
    /// Crates that show something for the tests of others.
    #[serde(default)]
    pub hooks: Vec<Hooks>,
}

/// The order of the modules directly inside of one module.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// The crate's package, then modules: `weldfs-media`, `weldfs-device::thread`.
    pub of: String,
    /// From the lowest to the highest. A module may use those of its own line and of lines before it. `self` is what
    /// the outer module defines itself, apart from re-exports.
    pub order: Vec<Vec<String>>,
    /// Arrows that point up or close a circle.
    #[serde(default)]
    pub except: Vec<Except>,
}

/// An arrow that the order does not allow.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Except {
    /// The module that uses.
    pub from: String,
    /// The module that is used.
    pub to: String,
    /// Why that is better than the alternatives.
    pub why: String,
}

/// A word that has a better one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Word {
    /// Words or phrases in lower case; found as whole words in any case.
    pub not: Vec<String>,
    /// What to write in its place.
    pub say: String,
    /// What is wrong with it.
    pub why: String,
}

/// Public items that may be unused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Public {
    /// The package.
    pub package: String,
    /// Names of items; `*` for all of the package.
    pub items: Vec<String>,
    /// Who uses them outside of the tree.
    pub why: String,
}

/// A crate whose public and hidden methods are for tests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hooks {
    /// The package.
    pub package: String,
    /// What goes wrong where others do.
    pub why: String,
}

/// The rules as they stand in the tree.
///
/// # Panics
/// When `tidy.toml` cannot be read, or says something that no rule knows.
#[must_use]
pub fn read() -> Rules {
    let text = std::fs::read_to_string(crate::tree::root().join("tidy.toml")).expect("tidy.toml is readable");
    toml::from_str(&text).expect("tidy.toml is valid")
}
