//! Where inputs are kept: `fuzz/corpus/TARGET/` (what runs found) and `fuzz/regressions/TARGET/` (what once
//! was a bug, named after it). Seeds are made by their targets, and are nowhere but in `fuzz/target` while it fuzzes.

use crate::{TARGETS, Target};
use std::io;
use std::path::{Path, PathBuf};

/// The folder `fuzz` of the source tree.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Writes the seeds of all targets into `TARGET/seed-NAME` below `into`.
///
/// # Errors
/// Those of the operating system.
pub fn write_seeds(into: &Path) -> io::Result<()> {
    for target in TARGETS {
        let folder = into.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in (target.seeds)() {
            std::fs::write(folder.join(format!("seed-{name}")), bytes)?;
        }
    }
    Ok(())
}

/// Every kept input of a target, in the order of names.
///
/// # Errors
/// Those of the operating system; a folder that is not there holds nothing.
pub fn kept(target: &Target) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut all = Vec::new();
    for kind in ["regressions", "corpus"] {
        let entries = match std::fs::read_dir(home().join(kind).join(target.name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in entries {
            let path = entry?.path();
            let bytes = std::fs::read(&path)?;
            all.push((path, bytes));
        }
    }
    all.sort();
    Ok(all)
}
