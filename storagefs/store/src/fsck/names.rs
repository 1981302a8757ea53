//! fsck of names: entries against inodes, link counts, directory tree, attributes, reclaim entries.

use super::FsckReport;
use crate::record::{COLLISION_BITS, Dirent, FLAG_VIRTUAL, InodeRec, ReclaimRec, SPEC_NAME, Xattr};
use crate::store::{NameHash, Store};
use crate::tree::Key;
use hashbrown::{HashMap, HashSet};
use weldfs_ciscops::{InodeNo, VirtSpec};

#[derive(Debug, Default)]
struct Seen {
    mode: u32,
    nlink: u32,
    blocks: u64,
    parent: u64,
    entries: u32,
    subdirs: u32,
    held: u64,
    orphan: bool,
    /// It has the flag of a virtual file; it has a spec.
    is_virtual: bool,
    has_spec: bool,
    /// The directory an entry of which names this directory.
    named_in: u64,
}

impl Seen {
    fn is_dir(&self) -> bool {
        self.mode & 0o170000 == 0o040000
    }
}

/// Collects names and inodes. Keys come in order: all inodes first.
pub(super) struct Names {
    inodes: HashMap<u64, Seen>,
    hash: NameHash,
    /// Names seen in the bucket at hand.
    bucket: Key,
    names: HashSet<Vec<u8>>,
    counted: u64,
}

impl Names {
    pub(super) fn new(store: &Store) -> Names {
        let counted = store.ledger.inodes.load(std::sync::atomic::Ordering::Relaxed).max(0) as u64;
        Names { inodes: HashMap::new(), hash: store.hash, bucket: Key::MIN, names: HashSet::new(), counted }
    }

    pub(super) fn inode(&mut self, ino: u64, value: &[u8], report: &mut FsckReport) {
        let rec = match InodeRec::from_value(InodeNo(ino), value) {
            Ok(rec) => rec,
            Err(e) => return report.problem(format!("inode {ino}: {e}")),
        };
        report.inodes += 1;
        report.directories += u64::from(rec.is_dir());
        if ino == 0 {
            report.problem("inode number 0 is in use".to_owned());
        }
        // The seven types of POSIX: fifo, character device, directory, block device, file, symbolic link, socket.
        if !matches!(rec.mode >> 12, 0o1 | 0o2 | 0o4 | 0o6 | 0o10 | 0o12 | 0o14) {
            report.problem(format!("inode {ino}: its mode {:o} is of no type of file", rec.mode));
        }
        let target = rec.target.as_ref().map_or(0, |t| t.len() as u64);
        match rec.mode >> 12 {
            0o12 if target == 0 => report.problem(format!("inode {ino}: a symbolic link to nothing")),
            0o12 if target != rec.size => {
                let size = rec.size;
                report.problem(format!("inode {ino}: a symbolic link of size {size}, its target has {target} bytes"));
            }
            0o12 => {}
            _ if target != 0 => report.problem(format!("inode {ino}: has a target and is no symbolic link")),
            _ => {}
        }
        let (parent, is_virtual) = (rec.parent.0, rec.flags & FLAG_VIRTUAL != 0);
        if is_virtual && (!rec.is_virtual() || rec.size != 0 || rec.blocks != 0) {
            report.problem(format!("inode {ino}: a virtual file that is no regular file, or has bytes of its own"));
        }
        let (mode, nlink, blocks) = (rec.mode, rec.nlink, rec.blocks);
        let seen = Seen { mode, nlink, blocks, parent, is_virtual, ..Seen::default() };
        self.inodes.insert(ino, seen);
    }

    /// Whether a name is the first such one in its bucket.
    fn is_new(&mut self, key: Key, name: &[u8]) -> bool {
        let bucket = Key { b: key.b >> COLLISION_BITS, ..key };
        if self.bucket != bucket {
            self.bucket = bucket;
            self.names.clear();
        }
        self.names.insert(name.to_vec())
    }

    pub(super) fn dirent(&mut self, key: Key, value: &[u8], report: &mut FsckReport) {
        let d = match Dirent::from_value(InodeNo(key.a), key.b, value) {
            Ok(d) => d,
            Err(e) => return report.problem(format!("{key}: {e}")),
        };
        report.entries += 1;
        let name = String::from_utf8_lossy(&d.name).into_owned();
        if !d.is_reachable() {
            report.problem(format!("directory {}: no path leads to an entry named {name:?}", key.a));
        }
        if !self.is_new(key, &d.name) {
            report.problem(format!("directory {}: two entries named {name:?}", key.a));
        }
        if self.hash.bucket(&d.name) >> COLLISION_BITS != key.b >> COLLISION_BITS {
            report.problem(format!("directory {}: entry {name:?} stands under the hash of another name", key.a));
        }
        match self.inodes.get(&key.a) {
            Some(dir) if dir.is_dir() => {}
            Some(_) => report.problem(format!("entry {name:?} in inode {}, which is no directory", key.a)),
            None => report.problem(format!("entry {name:?} in directory {}, which does not exist", key.a)),
        }
        let Some(target) = self.inodes.get_mut(&d.ino.0) else {
            return report.problem(format!("directory {}: entry {name:?} names no inode ({})", key.a, d.ino));
        };
        target.entries += 1;
        target.named_in = key.a;
        if u32::from(d.ftype) != target.mode >> 12 & 0o17 {
            report.problem(format!("directory {}: entry {name:?} has another type than inode {}", key.a, d.ino));
        }
        if target.is_dir() {
            let parent = target.parent;
            if parent != key.a {
                report.problem(format!("directory {}: its parent is {}, not {parent}", d.ino, key.a));
            }
            if let Some(dir) = self.inodes.get_mut(&key.a) {
                dir.subdirs += 1;
            }
        }
    }

    pub(super) fn xattr(&mut self, key: Key, value: &[u8], report: &mut FsckReport) {
        report.xattrs += 1;
        match Xattr::from_value(InodeNo(key.a), key.b, value) {
            Ok(x) if self.hash.bucket(&x.name) >> COLLISION_BITS != key.b >> COLLISION_BITS => {
                report.problem(format!("{key}: an attribute under the hash of another name"));
            }
            Ok(x) if !self.is_new(key, &x.name) => report.problem(format!("{key}: an attribute that is there twice")),
            Ok(x) => self.spec(&x, report),
            Err(e) => report.problem(format!("{key}: {e}")),
        }
        if !self.inodes.contains_key(&key.a) {
            report.problem(format!("{key}: its inode does not exist"));
        }
    }

    /// The attribute that makes a file a virtual one.
    fn spec(&mut self, x: &Xattr, report: &mut FsckReport) {
        if *x.name != *SPEC_NAME {
            return;
        }
        if let Some(seen) = self.inodes.get_mut(&x.ino.0) {
            seen.has_spec = true;
        }
        if let Err(e) = VirtSpec::decode(&x.value) {
            report.problem(format!("inode {}: the spec of a virtual file is none: {e}", x.ino));
        }
    }

    pub(super) fn reclaim(&mut self, key: Key, value: &[u8], report: &mut FsckReport) {
        report.reclaim += 1;
        let Some(seen) = self.inodes.get_mut(&key.a) else {
            return report.problem(format!("{key}: its inode does not exist"));
        };
        match ReclaimRec::from_value(value) {
            Ok(ReclaimRec::Orphan) if key.b == 0 => seen.orphan = true,
            Ok(ReclaimRec::Cut { blk, end }) if key.b != 0 && blk < end => {}
            Ok(_) => report.problem(format!("{key}: impossible reclaim entry")),
            Err(e) => report.problem(format!("{key}: {e}")),
        }
    }

    /// Counts blocks a window of `ino` holds; false if there is no such inode.
    pub(super) fn hold(&mut self, ino: u64, blocks: u64) -> bool {
        match self.inodes.get_mut(&ino) {
            Some(seen) => {
                seen.held += blocks;
                true
            }
            None => false,
        }
    }

    pub(super) fn finish(&mut self, report: &mut FsckReport) {
        if self.counted != report.inodes {
            report.problem(format!("{} inodes are counted, {} exist", self.counted, report.inodes));
        }
        match self.inodes.get(&InodeNo::ROOT.0) {
            Some(root) if root.is_dir() && root.parent == InodeNo::ROOT.0 => {}
            Some(_) => report.problem("the root is no directory, or not its own parent".to_owned()),
            None => report.problem("there is no root directory".to_owned()),
        }
        let mut all: Vec<u64> = self.inodes.keys().copied().collect();
        all.sort_unstable();
        let mut reached: HashSet<u64> = HashSet::from([InodeNo::ROOT.0]);
        for ino in all {
            self.check_links(ino, report);
            self.check_reach(ino, &mut reached, report);
        }
    }

    fn check_links(&self, ino: u64, report: &mut FsckReport) {
        let s = &self.inodes[&ino];
        if s.blocks != s.held {
            report.problem(format!("inode {ino}: counts {} blocks, holds {}", s.blocks, s.held));
        }
        // Both come with the record that made it. Of an inode that goes, attributes may be gone already.
        if s.is_virtual != s.has_spec && !s.orphan {
            let (has, lacks) = if s.has_spec { ("a spec", "the flag") } else { ("the flag", "a spec") };
            report.problem(format!("inode {ino}: has {has} of a virtual file, and lacks {lacks}"));
        }
        if s.orphan {
            if s.entries != 0 || s.nlink != 0 {
                report.problem(format!("inode {ino}: an orphan with {} names, link count {}", s.entries, s.nlink));
            }
            return;
        }
        let root = ino == InodeNo::ROOT.0;
        if s.entries == 0 && !root {
            return report.problem(format!("inode {ino}: has no name and is no orphan"));
        }
        let expected = if s.is_dir() { 2 + s.subdirs } else { s.entries };
        if s.nlink != expected {
            report.problem(format!("inode {ino}: link count is {}, should be {expected}", s.nlink));
        }
        if s.is_dir() && s.entries != u32::from(!root) {
            report.problem(format!("directory {ino}: has {} names", s.entries));
        }
    }

    /// Follows a directory's parents up to one that is known to be reachable.
    fn check_reach(&self, ino: u64, reached: &mut HashSet<u64>, report: &mut FsckReport) {
        let s = &self.inodes[&ino];
        if !s.is_dir() || s.orphan {
            return;
        }
        let mut path = Vec::new();
        let mut on_path = HashSet::new();
        let mut at = ino;
        while !reached.contains(&at) {
            if !on_path.insert(at) {
                reached.extend(path); // reported once
                return report.problem(format!("directory {ino}: cannot be reached from the root"));
            }
            path.push(at);
            at = match self.inodes.get(&at) {
                Some(s) if s.named_in != 0 => s.named_in,
                _ => {
                    reached.extend(path);
                    return report.problem(format!("directory {ino}: cannot be reached from the root"));
                }
            };
        }
        reached.extend(path);
    }
}
