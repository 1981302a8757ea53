//! No source file that the compiler does not see.

use crate::modules::Crate;
use cargo_metadata::Metadata;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files among `all` that no module of any of these roots names.
///
/// # Panics
/// When a file is gone meanwhile.
#[must_use]
pub(crate) fn unreached(roots: &[PathBuf], all: &[PathBuf]) -> Vec<PathBuf> {
    let full = |p: &Path| p.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", p.display()));
    let seen = roots.iter().flat_map(|root| Crate::read(root).files);
    let seen: BTreeSet<PathBuf> = seen.map(|p| full(&p)).collect();
    all.iter().filter(|f| !seen.contains(&full(f))).cloned().collect()
}

/// Dead files of the tree, which may hold several workspaces.
#[must_use]
pub fn complaints(workspaces: &[Metadata], sources: &[PathBuf]) -> Vec<String> {
    let targets = workspaces.iter().flat_map(|w| &w.packages).flat_map(|p| &p.targets);
    let roots: Vec<PathBuf> = targets.map(|t| t.src_path.clone().into()).collect();
    unreached(&roots, sources).iter().map(|f| crate::tree::shown(f)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_module_names_is_found_and_a_test_module_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let root = file("lib.rs", "mod a;\n#[cfg(test)]\nmod tests;\n#[path = \"odd.rs\"]\nmod b;");
        let all = [file("a.rs", ""), file("tests.rs", "mod more {}"), file("odd.rs", ""), file("dead.rs", "")];
        assert_eq!(unreached(&[root], &all), [dir.path().join("dead.rs")]);
    }
}
