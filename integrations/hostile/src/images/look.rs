//! What a mounted image shows: every name, its attributes, its bytes block by block, each part with its own errno, so
//! that one damaged block does not hide that another one is wrong.

use std::collections::{BTreeMap, BTreeSet};
use weldfs_ciscops::dirent::{Dirents, dtype};
use weldfs_ciscops::{Handle, Op, OpenFlags, PoolRange, StatBody};
use weldfs_crash_harness::hand::Hand;
use zerocopy::FromBytes;

/// Bytes read at a time.
const PIECE: u32 = 4096;
/// Pieces looked at of one file: more than any file of a pristine image has.
const PIECES_MAX: usize = 16;
/// Names looked at in one image, and the depth of its directories: a forged image may have circles.
const NAMES_MAX: usize = 150;
const DEPTH_MAX: usize = 6;
/// Where results lie in the pool of a `Hand`.
const OUT: u32 = 256 << 10;
/// Inode number of the root directory.
const ROOT: u64 = 1;
/// EIO, as most damage reads.
pub const EIO: i32 = libc::EIO;

/// Names and values of extended attributes.
type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As in the directory.
    pub dtype: u8,
    /// Mode, links, size and inode number.
    pub stat: Result<(u32, u32, u64, u64), i32>,
    /// Content of a file in pieces, the last one shorter than a piece; target of a symbolic link.
    pub pieces: Vec<Result<Vec<u8>, i32>>,
    pub xattrs: Result<Xattrs, i32>,
}

/// See the module. Paths have no leading slash; the root's is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    pub entries: BTreeMap<Vec<u8>, Entry>,
    /// Names of each directory, or why they could not be listed.
    pub listed: BTreeMap<Vec<u8>, Result<BTreeSet<Vec<u8>>, i32>>,
    /// There was more than is looked at.
    pub cut: bool,
}

/// Everything that a mounted image shows.
pub fn look(hand: &mut Hand) -> Look {
    let (mut all, mut todo) = (Look::default(), vec![(Vec::new(), 0)]);
    while let Some((dir, depth)) = todo.pop() {
        let names = list(hand, &dir);
        let set = names.as_ref().map(|names| names.iter().map(|n| n.0.clone()).collect());
        all.listed.insert(dir.clone(), set.map_err(|e| *e));
        for (name, kind) in names.unwrap_or_default() {
            let path = if dir.is_empty() { name } else { [&dir[..], b"/", &name].concat() };
            if all.entries.len() >= NAMES_MAX || (kind == dtype::DIR && depth >= DEPTH_MAX) {
                all.cut = true;
                continue;
            }
            all.entries.insert(path.clone(), entry(hand, &path, kind));
            if kind == dtype::DIR {
                todo.push((path, depth + 1));
            }
        }
    }
    all
}

fn run(hand: &mut Hand, op: Op) -> Result<(u64, u64), i32> {
    let outcome = hand.direct().run(op);
    if outcome.is_ok() { Ok((outcome.result, outcome.result2)) } else { Err(outcome.status) }
}

fn list(hand: &mut Hand, dir: &[u8]) -> Result<Vec<(Vec<u8>, u8)>, i32> {
    let path = hand.direct().put(0, if dir.is_empty() { b"/" } else { dir });
    let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
    let (opened, _) = run(hand, Op::open(Handle::ROOT, path, flags, 0))?;
    let h = Handle::from_wire(opened);
    let names = pages(hand, h);
    run(hand, Op::Close { h })?;
    names
}

fn pages(hand: &mut Hand, h: Handle) -> Result<Vec<(Vec<u8>, u8)>, i32> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let (len, next) = run(hand, Op::ReadDir { h, cookie, out: PoolRange::new(OUT, 16 << 10) })?;
        let bytes = hand.direct().take(PoolRange::new(OUT, len as u32));
        let some = Dirents(&bytes).filter(|d| d.name != b"." && d.name != b"..");
        names.extend(some.map(|d| (d.name.to_vec(), d.dtype)));
        if bytes.is_empty() || names.len() > 4 * NAMES_MAX {
            return Ok(names);
        }
        cookie = next;
    }
}

fn entry(hand: &mut Hand, path: &[u8], dtype: u8) -> Entry {
    let (at, out) = (hand.direct().put(0, path), PoolRange::new(OUT, size_of::<StatBody>() as u32));
    let stat = run(hand, Op::StatPath { base: Handle::ROOT, path: at, nofollow: true, out });
    let body = |hand: &mut Hand| StatBody::read_from_bytes(&hand.direct().take(out)).map_err(|_| EIO);
    let size = |s: &StatBody| if dtype == dtype::DIR { 0 } else { s.size };
    let stat = stat.and_then(|_| body(hand)).map(|s| (s.mode, s.nlink, size(&s), s.ino));
    let pieces = match dtype {
        dtype::REG => content(hand, path),
        dtype::LNK => vec![target(hand, path)],
        _ => Vec::new(),
    };
    Entry { dtype, stat, pieces, xattrs: xattrs(hand, path) }
}

fn content(hand: &mut Hand, path: &[u8]) -> Vec<Result<Vec<u8>, i32>> {
    let mut pieces = Vec::new();
    while pieces.len() < PIECES_MAX {
        let (offset, out) = (pieces.len() as u64 * u64::from(PIECE), PoolRange::new(OUT, PIECE));
        let at = hand.direct().put(0, path);
        // Links on the way are followed, but none at its end.
        let flags = OpenFlags::READ | OpenFlags::NOFOLLOW;
        let read = run(hand, Op::OpenReadClose { base: Handle::ROOT, path: at, flags, offset, out });
        let last = read.is_ok_and(|(len, _)| len < u64::from(PIECE));
        pieces.push(read.map(|(len, _)| hand.direct().take(PoolRange::new(OUT, len as u32))));
        if last {
            break;
        }
    }
    pieces
}

fn target(hand: &mut Hand, path: &[u8]) -> Result<Vec<u8>, i32> {
    let (at, out) = (hand.direct().put(0, path), PoolRange::new(OUT, PIECE));
    let (len, _) = run(hand, Op::Readlink { base: Handle::ROOT, path: at, out })?;
    Ok(hand.direct().take(PoolRange::new(OUT, len as u32)))
}

fn xattrs(hand: &mut Hand, path: &[u8]) -> Result<Xattrs, i32> {
    let (base, nofollow, out) = (Handle::ROOT, true, PoolRange::new(OUT, 64 << 10));
    let at = hand.direct().put(0, path);
    let (len, _) = run(hand, Op::ListXattr { base, path: at, nofollow, out })?;
    let names = hand.direct().take(PoolRange::new(OUT, len as u32));
    let mut all = Xattrs::new();
    for key in names.split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let (at, name) = (hand.direct().put(0, path), hand.direct().put(8192, key));
        let (len, _) = run(hand, Op::GetXattr { base, path: at, nofollow, name, out })?;
        all.insert(key.to_vec(), hand.direct().take(PoolRange::new(OUT, len as u32)));
    }
    Ok(all)
}

impl Look {
    /// Every errno that anything gave.
    pub fn errors(&self) -> impl Iterator<Item = i32> + '_ {
        let of = |e: &Entry| {
            let parts = [e.stat.as_ref().err(), e.xattrs.as_ref().err()];
            parts.into_iter().flatten().chain(e.pieces.iter().filter_map(|p| p.as_ref().err())).copied().collect()
        };
        let entries = self.entries.values().flat_map(move |e| -> Vec<i32> { of(e) });
        self.listed.values().filter_map(|l| l.as_ref().err().copied()).chain(entries)
    }

    /// The inode number of a directory, if it is one.
    pub fn inode_of(&self, path: &[u8]) -> Option<u64> {
        if path.is_empty() {
            return Some(ROOT);
        }
        let (mode, .., ino) = self.entries.get(path)?.stat.ok()?;
        (mode & libc::S_IFMT == libc::S_IFDIR).then_some(ino)
    }

    /// The first name that is listed and leads nowhere.
    pub fn leads_nowhere(&self) -> Option<&[u8]> {
        self.entries.iter().find(|(_, entry)| entry.stat == Err(libc::ENOENT)).map(|(path, _)| &path[..])
    }

    /// Whether what could be read is part of `truth`: every listing whole, every part equal.
    ///
    /// # Errors
    /// The first difference.
    pub fn fits(&self, truth: &Look) -> Result<(), String> {
        for (dir, names) in &self.listed {
            let (dir, Ok(names)) = (String::from_utf8_lossy(dir), names) else { continue };
            match truth.listed.get(dir.as_bytes()) {
                Some(Ok(known)) if known == names => {}
                Some(Ok(known)) => {
                    let missing = known.difference(names).count();
                    return Err(format!("/{dir}: {missing} names are missing, {} there are", names.len()));
                }
                _ => return Err(format!("/{dir} is no directory in the tree that was made")),
            }
        }
        for (path, entry) in &self.entries {
            let Some(known) = truth.entries.get(path) else { continue };
            entry.fits(known).map_err(|why| format!("/{}: {why}", String::from_utf8_lossy(path)))?;
        }
        Ok(())
    }

    /// Without one name.
    pub fn without(mut self, name: &[u8]) -> Look {
        self.entries.remove(name);
        if let Some(Ok(root)) = self.listed.get_mut(&b""[..]) {
            root.remove(name);
        }
        self
    }
}

impl Entry {
    fn fits(&self, known: &Entry) -> Result<(), String> {
        let same = |what: &str, right: bool| if right { Ok(()) } else { Err(format!("another {what}")) };
        same("type", self.dtype == known.dtype)?;
        same("attribute", self.stat.is_err() || self.stat == known.stat)?;
        same("extended attribute", self.xattrs.is_err() || self.xattrs == known.xattrs)?;
        for (i, piece) in self.pieces.iter().enumerate() {
            let Ok(piece) = piece else { continue };
            let right = match known.pieces.get(i) {
                Some(known) => known.as_ref() == Ok(piece),
                None => piece.is_empty(),
            };
            same(&format!("content in block {i}"), right)?;
        }
        Ok(())
    }
}
