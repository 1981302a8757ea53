//! An in-memory POSIX model: what a correct file system answers, in plain maps.
//!
//! It knows nothing of blocks on media, logs or devices, so it can be wrong only about POSIX itself. The property tests
//! run the real file system beside it; the crash oracle clones it at every acknowledged operation and compares trees.
//!
//! * `mod.rs`: the vocabulary (operations, replies, nodes) and the one entry point, [`Model::apply`].
//! * `walk.rs`: path walk and permission bits. `names.rs`: operations on names. `data.rs`: bytes; `attrs.rs`:
//!   attributes.
//! * `tree.rs`: a logical picture of the whole tree, for comparison and hashing.
//!
//! Not thread-safe; cloning is cheap in file content (blocks are shared until written).

mod attrs;
mod data;
mod names;
mod tree;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use tree::{Block, Content, TreeEntry, TreeImage, Xattrs};

/// Bytes per block: the granularity of holes, as in the real file system.
pub const BLOCK: u64 = 4096;
/// Largest payload of one command, in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = 1 << 20;
/// Largest file, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 44;
/// Inode number of the root directory.
pub const ROOT: u64 = 1;

/// The answer of the model: a reply or a positive errno.
pub type Res<T> = Result<T, i32>;
/// Seconds and nanoseconds.
pub type Time = (i64, u32);

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// Effective user id; 0 bypasses permission bits.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Cred {
    /// The superuser.
    pub fn root() -> Cred {
        Cred { uid: 0, gid: 0, groups: Vec::new() }
    }
    /// Whether the caller belongs to `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Where a read or write starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// An absolute offset in bytes.
    Offset(u64),
    /// The open file description's own offset.
    Current,
    /// The end of the file.
    End,
}

/// What `fallocate` does to its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Falloc {
    /// Reserve and grow.
    Reserve,
    /// Reserve, leave the size.
    KeepSize,
    /// Deallocate.
    Punch,
    /// Zero and grow.
    Zero,
    /// Zero, leave the size.
    ZeroKeepSize,
}

/// Change of a byte range in `read_modify_write`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modify {
    /// Replace the range.
    Patch(Vec<u8>),
    /// Add to a little-endian integer of the range's width.
    Add(u64),
    /// Exclusive-or with bytes of the range's length.
    Xor(Vec<u8>),
    /// Store `new` if the range holds `expect`.
    CompareSwap {
        /// What must be there.
        expect: Vec<u8>,
        /// What replaces it.
        new: Vec<u8>,
    },
}

/// How a time is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it.
    Omit,
    /// The clock's.
    Now,
    /// A given one.
    To(Time),
}

/// Attributes to set; `None` leaves one alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits, `07777`.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

impl SetAttr {
    /// Nothing to set.
    pub const NONE: SetAttr =
        SetAttr { mode: None, uid: None, gid: None, size: None, atime: SetTime::Omit, mtime: SetTime::Omit };
}

/// A file named by an open slot, or by a path from the root or from an open directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// An open slot.
    Slot(u32),
    /// A path, and whether its last symbolic link is left alone.
    Path(Name, bool),
}

/// A path and where it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// An open slot, or the root directory.
    pub base: Option<u32>,
    /// The bytes.
    pub path: Vec<u8>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Open { name: Name, flags: i32, mode: u32, slot: u32 },
    Close { slot: u32 },
    Read { slot: u32, at: At, len: u64 },
    Write { slot: u32, at: At, data: Vec<u8> },
    Truncate { slot: u32, size: u64 },
    Fallocate { slot: u32, mode: Falloc, off: u64, len: u64 },
    Seek { slot: u32, whence: i32, off: i64 },
    Stat { who: Who },
    SetAttr { who: Who, set: SetAttr },
    ReadDir { slot: u32 },
    Mkdir { name: Name, mode: u32 },
    Rmdir { name: Name },
    Unlink { name: Name },
    Rename { from: Name, to: Name, noreplace: bool, exchange: bool },
    Link { from: Who, to: Name },
    Symlink { target: Vec<u8>, name: Name },
    Readlink { name: Name },
    Access { name: Name, mask: u32 },
    GetXattr { who: Who, key: Vec<u8>, room: u64 },
    SetXattr { who: Who, key: Vec<u8>, value: Vec<u8>, create: bool, replace: bool },
    ListXattr { who: Who, room: u64 },
    RemoveXattr { who: Who, key: Vec<u8> },
    OpenWriteClose { name: Name, flags: i32, mode: u32, at: At, data: Vec<u8> },
    OpenReadClose { name: Name, flags: i32, off: u64, len: u64 },
    OpenReadWriteClose { name: Name, flags: i32, mode: u32, off: u64, len: u64, at: At, data: Vec<u8> },
    AppendChecksumWrite { slot: u32, data: Vec<u8> },
    ReadChecksumVerify { slot: u32, off: u64, len: u64 },
    ReadModifyWrite { slot: u32, off: u64, len: u64, modify: Modify },
}

impl Op {
    /// Whether it stands for several micro-ops.
    pub fn is_fused(&self) -> bool {
        matches!(
            self,
            Op::OpenWriteClose { .. }
                | Op::OpenReadClose { .. }
                | Op::OpenReadWriteClose { .. }
                | Op::AppendChecksumWrite { .. }
                | Op::ReadChecksumVerify { .. }
                | Op::ReadModifyWrite { .. }
        )
    }

    /// The paths it carries.
    fn names(&self) -> [Option<&Name>; 2] {
        fn of(who: &Who) -> Option<&Name> {
            match who {
                Who::Path(name, _) => Some(name),
                Who::Slot(_) => None,
            }
        }
        match self {
            Op::Open { name, .. }
            | Op::Mkdir { name, .. }
            | Op::Rmdir { name }
            | Op::Unlink { name }
            | Op::Symlink { name, .. }
            | Op::Readlink { name }
            | Op::Access { name, .. }
            | Op::OpenWriteClose { name, .. }
            | Op::OpenReadClose { name, .. }
            | Op::OpenReadWriteClose { name, .. } => [Some(name), None],
            Op::Rename { from, to, .. } => [Some(from), Some(to)],
            Op::Link { from, to } => [of(from), Some(to)],
            Op::Stat { who }
            | Op::SetAttr { who, .. }
            | Op::GetXattr { who, .. }
            | Op::SetXattr { who, .. }
            | Op::ListXattr { who, .. }
            | Op::RemoveXattr { who, .. } => [of(who), None],
            _ => [None, None],
        }
    }
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done, nothing to tell.
    Unit,
    /// A number: an offset or a length.
    Number(u64),
    /// Bytes read.
    Bytes(Vec<u8>),
    /// Offset and length written.
    Wrote(u64, u64),
    /// Bytes read, then offset and length written.
    ReadWrote(Vec<u8>, u64, u64),
    /// Attributes.
    Stat(Stat),
    /// Every entry, `.` and `..` included, with its type (`S_IFMT` bits).
    Names(BTreeSet<(Vec<u8>, u32)>),
}

/// The attributes that can be compared (access time is volatile and left out).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub struct Stat {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
}

/// One block of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blk {
    /// Reserved, reads as zeros.
    Unwritten,
    /// Bytes.
    Data(Arc<[u8; BLOCK as usize]>),
}

/// What a node is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    File { size: u64, blocks: BTreeMap<u64, Blk> },
    Dir { parent: u64, entries: BTreeMap<Vec<u8>, u64> },
    Symlink { target: Vec<u8> },
}

/// An inode.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub kind: Kind,
    pub perm: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// An unnamed temporary file that may still get a name.
    pub linkable: bool,
}

impl Node {
    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Dir { .. })
    }
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }
    pub(crate) fn file_type(&self) -> u32 {
        match self.kind {
            Kind::File { .. } => libc::S_IFREG,
            Kind::Dir { .. } => libc::S_IFDIR,
            Kind::Symlink { .. } => libc::S_IFLNK,
        }
    }
}

/// An open file description.
#[derive(Clone, Debug)]
pub(crate) struct Ofd {
    pub ino: u64,
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub offset: u64,
}

/// The model. Set [`Model::now`] before an operation; it is the clock.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) next_ino: u64,
    pub(crate) open: BTreeMap<u32, Ofd>,
    /// The trees that the micro-ops of the fused operation under way left behind, when they were asked for.
    trail: Option<Vec<TreeImage>>,
    /// The time that the next operation sees.
    pub now: Time,
}

impl Model {
    /// A fresh file system: a root directory with the given owner, mode and time.
    pub fn new(perm: u32, uid: u32, gid: u32, now: Time) -> Model {
        let root = Node {
            kind: Kind::Dir { parent: ROOT, entries: BTreeMap::new() },
            perm,
            uid,
            gid,
            nlink: 2,
            mtime: now,
            ctime: now,
            btime: now,
            xattrs: BTreeMap::new(),
            linkable: false,
        };
        Model { nodes: BTreeMap::from([(ROOT, root)]), next_ino: ROOT + 1, open: BTreeMap::new(), trail: None, now }
    }

    fn names_are_sound(&self, op: &Op) -> Res<()> {
        let long = |n: &&Name| n.path.split(|b| *b == b'/').any(|c| c.len() > 255);
        if op.names().iter().flatten().any(long) {
            return Err(libc::ENAMETOOLONG);
        }
        // A handle that was never given is noticed before anything else is looked at.
        let stale = |n: &&Name| !n.path.starts_with(b"/") && n.base.is_some_and(|b| !self.open.contains_key(&b));
        if op.names().iter().flatten().any(stale) {
            return Err(libc::EBADF);
        }
        Ok(())
    }

    /// Runs one operation for `cred`: all of it, or an errno and nothing.
    pub fn apply(&mut self, cred: &Cred, op: &Op) -> Res<Reply> {
        self.names_are_sound(op)?;
        if op.is_fused() {
            let before = self.clone();
            let result = self.dispatch(cred, op);
            if result.is_err() {
                *self = before;
            }
            return result;
        }
        self.dispatch(cred, op)
    }

    /// Runs one operation for `cred` in micro-transactions: each micro-op of a fused operation counts by itself, so
    /// that those before a failing one stay. Also gives the trees that the micro-ops but the last left behind.
    pub fn apply_micro(&mut self, cred: &Cred, op: &Op) -> (Res<Reply>, Vec<TreeImage>) {
        if !op.is_fused() {
            return (self.apply(cred, op), Vec::new());
        }
        if let Err(e) = self.names_are_sound(op) {
            return (Err(e), Vec::new());
        }
        self.trail = Some(Vec::new());
        let result = self.dispatch(cred, op);
        (result, self.trail.take().unwrap_or_default())
    }

    /// A micro-op of a fused operation is complete, and another one follows.
    pub(crate) fn micro_done(&mut self) {
        if self.trail.is_some() {
            let tree = self.tree();
            self.trail.iter_mut().for_each(|t| t.push(tree.clone()));
        }
    }

    /// Forgets every open slot, as a restart of the device does; unnamed files vanish.
    pub fn close_all(&mut self) {
        self.open.clear();
        self.nodes.retain(|_, n| n.nlink > 0);
    }

    /// The slots that are open, with whether each is a directory.
    pub fn slots(&self) -> Vec<(u32, bool)> {
        self.open.iter().map(|(s, o)| (*s, self.nodes[&o.ino].is_dir())).collect()
    }

    fn dispatch(&mut self, cred: &Cred, op: &Op) -> Res<Reply> {
        match op {
            Op::Open { name, flags, mode, slot } => self.open_slot(cred, name, *flags, *mode, *slot),
            Op::Close { slot } => self.close(*slot),
            Op::Read { slot, at, len } => self.read_slot(*slot, *at, *len),
            Op::Write { slot, at, data } => self.write_slot(cred, *slot, *at, data),
            Op::Truncate { slot, size } => self.truncate_slot(cred, *slot, *size),
            Op::Fallocate { slot, mode, off, len } => self.fallocate(cred, *slot, *mode, *off, *len),
            Op::Seek { slot, whence, off } => self.seek(*slot, *whence, *off),
            Op::Stat { who } => self.stat(cred, who),
            Op::SetAttr { who, set } => self.set_attr(cred, who, set),
            Op::ReadDir { slot } => self.readdir(*slot),
            Op::Mkdir { name, mode } => self.mkdir(cred, name, *mode),
            Op::Rmdir { name } => self.rmdir(cred, name),
            Op::Unlink { name } => self.unlink(cred, name),
            Op::Rename { from, to, noreplace, exchange } => self.rename(cred, from, to, *noreplace, *exchange),
            Op::Link { from, to } => self.link(cred, from, to),
            Op::Symlink { target, name } => self.symlink(cred, target, name),
            Op::Readlink { name } => self.readlink(cred, name),
            Op::Access { name, mask } => self.access(cred, name, *mask),
            Op::GetXattr { who, key, room } => self.get_xattr(cred, who, key, *room),
            Op::SetXattr { who, key, value, create, replace } => {
                self.set_xattr(cred, who, key, value, *create, *replace)
            }
            Op::ListXattr { who, room } => self.list_xattr(cred, who, *room),
            Op::RemoveXattr { who, key } => self.remove_xattr(cred, who, key),
            Op::OpenWriteClose { name, flags, mode, at, data } => {
                self.open_write_close(cred, name, *flags, *mode, *at, data)
            }
            Op::OpenReadClose { name, flags, off, len } => self.open_read_close(cred, name, *flags, *off, *len),
            Op::OpenReadWriteClose { name, flags, mode, off, len, at, data } => {
                self.open_read_write_close(cred, name, (*flags, *mode), (*off, *len), *at, data)
            }
            Op::AppendChecksumWrite { slot, data } => self.append_checksum_write(cred, *slot, data),
            Op::ReadChecksumVerify { slot, off, len } => self.read_checksum_verify(*slot, *off, *len),
            Op::ReadModifyWrite { slot, off, len, modify } => self.read_modify_write(cred, *slot, *off, *len, modify),
        }
    }

    pub(crate) fn node(&self, ino: u64) -> &Node {
        &self.nodes[&ino]
    }

    pub(crate) fn node_mut(&mut self, ino: u64) -> &mut Node {
        self.nodes.get_mut(&ino).expect("callers hold a live inode number")
    }

    pub(crate) fn ofd(&self, slot: u32) -> Res<Ofd> {
        self.open.get(&slot).cloned().ok_or(libc::EBADF)
    }

    /// Drops an inode that nothing names and no handle holds open.
    pub(crate) fn reap(&mut self, ino: u64) {
        let dead = self.nodes.get(&ino).is_some_and(|n| n.nlink == 0);
        if dead && !self.open.values().any(|o| o.ino == ino) {
            self.nodes.remove(&ino);
        }
    }
}
