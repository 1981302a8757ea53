//! Whether a recovered tree can still be worked with: everything in it removed, the tiny tree made anew.

use super::Tree;
use super::perform::read_tree;
use std::sync::Arc;
use weldfs_ciscops::{At, Handle, Op, OpenFlags};
use weldfs_fs::driver::Direct;
use weldfs_store::Store;

/// Bytes of the pool: a path, then data.
const POOL: usize = 16 << 10;
/// Where data lies in it.
const DATA: u32 = 4096;
/// Bytes of each new file: a whole block and a piece.
const FILE: usize = 5000;

/// Removes everything that `tree` says is there, then makes two directories and four files. The tree that stands then.
///
/// # Errors
/// What could not be done.
pub fn remove_and_make_again(store: &Arc<Store>, tree: &Tree) -> Result<Tree, String> {
    let mut device = Direct::new(store.clone(), POOL);
    // Children come after their parents in the order of paths.
    for (path, entry) in tree.entries.iter().rev().filter(|(p, _)| !p.is_empty()) {
        let at = device.put(0, &path[1..]);
        let directory = entry.stat.mode & 0o170_000 == 0o040_000;
        let op = match directory {
            true => Op::Rmdir { base: Handle::ROOT, path: at },
            false => Op::Unlink { base: Handle::ROOT, path: at },
        };
        run(&mut device, op, "remove", path)?;
    }
    let left = read_tree(store)?;
    if left.entries.len() != 1 {
        let names: Vec<_> = left.entries.keys().map(|p| String::from_utf8_lossy(p)).collect();
        return Err(format!("after everything was removed there is still {}", names.join(" ")));
    }
    for name in ["A", "B"] {
        let path = device.put(0, name.as_bytes());
        run(&mut device, Op::Mkdir { base: Handle::ROOT, path, mode: 0o755 }, "mkdir", name.as_bytes())?;
    }
    for (i, name) in ["foo", "bar", "A/foo", "B/foo"].into_iter().enumerate() {
        let (path, src) = (device.put(0, name.as_bytes()), device.put(DATA, &[0x41 + i as u8; FILE]));
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
        let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at: At::Offset(0), src };
        run(&mut device, op, "write", name.as_bytes())?;
    }
    let made = read_tree(store)?;
    if made.entries.len() != 7 {
        return Err(format!("of seven new entries {} are there", made.entries.len()));
    }
    Ok(made)
}

fn run(device: &mut Direct, op: Op, what: &str, path: &[u8]) -> Result<(), String> {
    let outcome = device.run(op);
    match outcome.is_ok() {
        true => Ok(()),
        false => Err(format!("{what} {}: {outcome:?}", String::from_utf8_lossy(path))),
    }
}
