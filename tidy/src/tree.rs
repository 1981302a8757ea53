//! The tree as text and syntax.

use std::path::{Path, PathBuf};

/// A text file of the tree.
#[derive(Debug)]
pub struct Text {
    /// Its path below the root, with `/`.
    pub name: String,
    /// What it holds.
    pub text: String,
}

/// The root of the workspace.
///
/// # Panics
/// When this crate does not lie in it.
#[must_use]
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace root exists")
}

/// Every file below `dir` with one of these endings, sorted; build output and hidden folders left out.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn files(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    gather(dir, endings, &mut found);
    found.sort();
    found
}

fn gather(dir: &Path, endings: &[&str], into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("folder is readable") {
        let path = entry.expect("entry is readable").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if name == "target" || name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            gather(&path, endings, into);
        } else if endings.iter().any(|e| name.ends_with(e)) {
            into.push(path);
        }
    }
}

/// A file's path below the root.
#[must_use]
pub fn shown(path: &Path) -> String {
    let full = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    full.strip_prefix(root()).unwrap_or(&full).display().to_string()
}

/// The files of the whole tree with these endings.
///
/// # Panics
/// When one cannot be read, or is not UTF-8.
#[must_use]
pub fn texts(endings: &[&str]) -> Vec<Text> {
    let top = root();
    let read = |p: PathBuf| Text {
        name: shown(&p),
        text: std::fs::read_to_string(&p).unwrap_or_else(|e| panic!("{}: {e}", p.display())),
    };
    files(&top, endings).into_iter().map(read).collect()
}

/// The syntax of a source file.
///
/// # Panics
/// When it is not Rust.
#[must_use]
pub fn parse(name: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|e| panic!("{name}: {e}"))
}
