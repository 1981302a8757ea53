//! Trees of files as plain maps: what effects make of one, and what a machine shows.

use super::*;
use std::collections::BTreeMap;
use weldfs_ciscops::Command;
use weldfs_ciscops::dirent::{Dirents, dtype};

/// What stands behind a path.
#[derive(Clone, PartialEq, Eq)]
pub enum Thing {
    /// A file and its bytes.
    File(Vec<u8>),
    /// A directory.
    Directory,
    /// A symbolic link and its target.
    Link(String),
}

impl std::fmt::Debug for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Thing::File(bytes) => {
                let sum = weldfs_ciscops::functions::crc32c(bytes);
                write!(f, "{} bytes ({sum:08x}) {:02x?}", bytes.len(), &bytes[..bytes.len().min(24)])
            }
            Thing::Directory => f.write_str("directory"),
            Thing::Link(target) => write!(f, "-> {target}"),
        }
    }
}

/// Paths without a leading slash, and what stands behind them.
pub type World = BTreeMap<String, Thing>;

/// What an effect makes of a world. A sealed record is as `seen` has it, if it opens to what it must.
///
/// # Errors
/// In words: an effect that cannot be, a record that does not open.
pub fn apply(world: &mut World, effect: &Effect, seen: &World) -> Result<(), String> {
    match effect {
        Effect::Write { path, how, at, data } => {
            if *how == How::New && world.insert(path.clone(), Thing::File(Vec::new())).is_some() {
                return Err(format!("{path} is there already"));
            }
            let Some(Thing::File(bytes)) = world.get_mut(path) else { return Err(format!("{path} is no file")) };
            if *how == How::Trunc {
                bytes.clear();
            }
            let at = at.map_or(bytes.len(), |at| at as usize);
            if !data.is_empty() {
                bytes.resize(bytes.len().max(at + data.len()), 0);
                bytes[at..at + data.len()].copy_from_slice(data);
            }
        }
        Effect::Sealed { path, plain } => {
            let (Some(Thing::File(bytes)), Some(Thing::File(seen))) = (world.get_mut(path), seen.get(path)) else {
                return Err(format!("{path} is no file"));
            };
            let record = seen.get(bytes.len()..).unwrap_or_default();
            let mut opened = Vec::new();
            let sound = record_key().open(b"", record, &mut opened).is_ok() && opened == *plain;
            if !sound || record[12..].starts_with(plain) && plain.len() >= 16 {
                return Err(format!("{path} ends in no record of the plaintext"));
            }
            bytes.extend_from_slice(record);
        }
        Effect::Rename { from, to } => {
            let moved = world.remove(from).ok_or(format!("{from} is not there"))?;
            world.insert(to.clone(), moved);
        }
        Effect::Mkdir { path } => drop(world.insert(path.clone(), Thing::Directory)),
        Effect::Symlink { target, path } => drop(world.insert(path.clone(), Thing::Link(target.clone()))),
    }
    Ok(())
}

/// Everything below a directory (the root: an empty path).
///
/// # Errors
/// What cannot be read.
pub fn picture(m: &mut dyn Machine, below: &str) -> Result<World, Errno> {
    let (mut world, mut todo) = (World::new(), vec![below.to_owned()]);
    while let Some(dir) = todo.pop() {
        for (name, kind) in list(m, if dir.is_empty() { "/" } else { &dir })? {
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let thing = match kind {
                dtype::DIR => {
                    todo.push(path.clone());
                    Thing::Directory
                }
                dtype::LNK => Thing::Link(link(m, &path)?),
                _ => Thing::File(file(m, &path)?),
            };
            world.insert(path, thing);
        }
    }
    Ok(world)
}

fn run(m: &mut dyn Machine, op: Op) -> Result<(u64, u64), Errno> {
    m.run(&Command::new(0, op)).ok()
}

fn list(m: &mut dyn Machine, dir: &str) -> Result<Vec<(String, u8)>, Errno> {
    let h = open_all(m, &[(dir.to_owned(), OpenFlags::READ | OpenFlags::DIRECTORY)])?[0];
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let out = PoolRange::new(0, 16 << 10);
        let (n, next) = run(m, Op::ReadDir { h, cookie, out })?;
        if n == 0 {
            break;
        }
        let bytes = m.take(PoolRange::new(0, n as u32));
        let names = Dirents(&bytes).filter(|d| d.name != b"." && d.name != b"..");
        all.extend(names.map(|d| (String::from_utf8_lossy(d.name).into_owned(), d.dtype)));
        cookie = next;
    }
    run(m, Op::Close { h }).map(|_| all)
}

fn link(m: &mut dyn Machine, path: &str) -> Result<String, Errno> {
    let (base, path) = (Handle::ROOT, m.put(0, path.as_bytes()));
    let (n, _) = run(m, Op::Readlink { base, path, out: PoolRange::new(4096, 4096) })?;
    Ok(String::from_utf8_lossy(&m.take(PoolRange::new(4096, n as u32))).into_owned())
}

/// Content of a file.
///
/// # Errors
/// Those of open_read_close.
pub fn file(m: &mut dyn Machine, path: &str) -> Result<Vec<u8>, Errno> {
    let (mut all, piece) = (Vec::new(), (m.pool() - 4096).min(1 << 20));
    loop {
        let (base, range) = (Handle::ROOT, m.put(0, path.as_bytes()));
        let (offset, out) = (all.len() as u64, PoolRange::new(4096, piece));
        let (n, _) = run(m, Op::OpenReadClose { base, path: range, flags: OpenFlags::READ, offset, out })?;
        all.extend(m.take(PoolRange::new(4096, n as u32)));
        if n < u64::from(piece) {
            return Ok(all);
        }
    }
}
