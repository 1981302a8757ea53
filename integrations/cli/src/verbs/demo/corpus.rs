//! The tree that the demo loads: every file of the checkout and of the sources of its dependencies, topped up by
//! generated files where there are too few.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files larger than one atomic write are left out: the demo stores each file with one fused operation.
const FILE_MAX: u64 = 1 << 20;

/// One file of the tree, in memory.
pub struct Entry {
    /// Folder and name below the target folder, with `/` between the parts.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The tree, and how it came about.
pub struct Corpus {
    /// The files, in an order that is the same at each run over the same sources.
    pub files: Vec<Entry>,
    /// How many of them were generated.
    pub generated: usize,
}

impl Corpus {
    /// Collects at least `least` and at most `most` files.
    pub fn collect(least: usize, most: usize) -> Corpus {
        let mut files = Vec::new();
        for (label, root) in source_roots() {
            walk(&root, &label, most, &mut files);
        }
        let real = files.len();
        files.extend((real..least).map(generate));
        Corpus { generated: files.len() - real, files }
    }

    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes.len() as u64).sum()
    }

    /// Every folder that the files need, parents first.
    pub fn folders(&self) -> Vec<String> {
        let mut all = BTreeSet::new();
        for file in &self.files {
            let mut at = file.name.as_str();
            while let Some((parent, _)) = at.rsplit_once('/') {
                all.insert(parent.to_owned());
                at = parent;
            }
        }
        all.into_iter().collect()
    }
}

/// The checkout and its dependencies, as `cargo metadata` names them; empty where there is no checkout to ask about.
fn source_roots() -> Vec<(String, PathBuf)> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let Ok(metadata) = cargo_metadata::MetadataCommand::new().manifest_path(manifest).exec() else { return Vec::new() };
    let mut roots = vec![("checkout".to_owned(), metadata.workspace_root.clone().into_std_path_buf())];
    for package in metadata.packages.iter().filter(|p| p.source.is_some()) {
        let Some(folder) = package.manifest_path.parent() else { continue };
        roots.push((format!("deps/{}-{}", package.name, package.version), folder.to_owned().into_std_path_buf()));
    }
    roots[1..].sort();
    roots
}

fn walk(dir: &Path, label: &str, most: usize, into: &mut Vec<Entry>) {
    let Ok(listing) = fs::read_dir(dir) else { return };
    let mut paths: Vec<PathBuf> = listing.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        if into.len() == most {
            return;
        }
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let inner = format!("{label}/{name}");
        if meta.is_dir() && name != "target" && name != ".git" {
            walk(&path, &inner, most, into);
        } else if meta.is_file() && meta.len() <= FILE_MAX && into.len() < most {
            // A file that vanished or cannot be read is simply not part of the tree.
            if let Ok(bytes) = fs::read(&path) {
                into.push(Entry { name: inner, bytes });
            }
        }
    }
}

/// A file of a size like source code's (0 to 32 KiB) with content that depends on its number only.
fn generate(number: usize) -> Entry {
    let mut state = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let len = (next() % 32768) as usize;
    let bytes = std::iter::repeat_with(|| next().to_le_bytes()).flatten().take(len).collect();
    Entry { name: format!("generated/{:02x}/{number:06}.bin", number % 256), bytes }
}
