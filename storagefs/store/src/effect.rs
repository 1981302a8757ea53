//! Typed effects: the only way file-system state changes. An operation plans a list of them, the journal commits the
//! list as one record, and the same `apply` puts it in the overlay at run time and at replay.
//!
//! Each effect has a *stamp*: its record's LSN plus its index in the list. Records are longer than the number of their
//! effects, so stamps are unique and ordered like the log; birth marks of mappings and cuts are stamps.

use crate::error::FsResult;
use crate::outcomes::OutcomeRec;
use crate::record::{InodeRec, Time};
use smallvec::SmallVec;
use std::sync::Arc;
use weldfs_ciscops::{Errno, InodeNo};
use weldfs_journal::BlockNo;

mod codec;
#[cfg(test)]
mod tests;

pub use codec::encoded_len_max;
pub use codec::{decode, decode_commit, encode};
pub(crate) use codec::{encode_into, encode_over};

/// Bytes of a symbolic link's target, at most.
pub(crate) const TARGET_MAX: usize = 4095;
/// Bytes of an extended attribute's value, at most.
pub const XATTR_VALUE_MAX: usize = 4096;
/// Blocks one `Map` or `Unmap` names, at most (128 MiB: one piece of a fallocate).
pub const MAP_BLOCKS_MAX: u32 = 32_768;
/// Windows an `Unmap` or `ReclaimStep` touches, at most.
pub const UNMAP_WINDOWS_MAX: u64 = 16;
/// Effects in one record, at most.
pub const EFFECTS_MAX: usize = 8192;
/// First block number no file has (64-bit byte offsets stay below 2^63).
pub(crate) const FILE_BLOCKS_MAX: u64 = 1 << 51;

/// The effects of one record.
pub type Effects = Vec<Effect>;

/// Refuses what no mount would read back.
///
/// # Errors
/// E2BIG for more effects than a record may have.
pub(crate) fn bounded(effects: &[Effect]) -> FsResult<()> {
    if effects.len() > EFFECTS_MAX { Err(Errno::TOOBIG.into()) } else { Ok(()) }
}

/// Which fields an [`AttrDelta`] sets.
pub mod attr {
    /// `size`.
    pub const SIZE: u16 = 1;
    /// `mode`.
    pub const MODE: u16 = 1 << 1;
    /// `uid`.
    pub const UID: u16 = 1 << 2;
    /// `gid`.
    pub const GID: u16 = 1 << 3;
    /// `nlink`.
    pub const NLINK: u16 = 1 << 4;
    /// `atime`.
    pub const ATIME: u16 = 1 << 5;
    /// `mtime`.
    pub const MTIME: u16 = 1 << 6;
    /// `ctime`.
    pub const CTIME: u16 = 1 << 7;
    /// `flags`.
    pub const FLAGS: u16 = 1 << 8;
    /// `parent`.
    pub const PARENT: u16 = 1 << 9;
    /// All of them.
    pub const ALL: u16 = (1 << 10) - 1;
}

/// New values of some of an inode's attributes; a field counts only if its bit is in `mask` (see [`attr`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttrDelta {
    /// The inode.
    pub ino: InodeNo,
    /// Fields that count.
    pub mask: u16,
    /// Size, bytes.
    pub size: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u32,
    /// Inode flags.
    pub flags: u32,
    /// Parent directory.
    pub parent: InodeNo,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

impl AttrDelta {
    /// A delta that sets nothing.
    pub fn new(ino: InodeNo) -> AttrDelta {
        let t = Time::default();
        AttrDelta {
            ino,
            mask: 0,
            size: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 0,
            flags: 0,
            parent: InodeNo(0),
            atime: t,
            mtime: t,
            ctime: t,
        }
    }

    /// Also sets the size.
    pub fn size(mut self, v: u64) -> AttrDelta {
        (self.size, self.mask) = (v, self.mask | attr::SIZE);
        self
    }

    /// Also sets type and permission bits.
    pub fn mode(mut self, v: u32) -> AttrDelta {
        (self.mode, self.mask) = (v, self.mask | attr::MODE);
        self
    }

    /// Also sets the owner.
    pub fn uid(mut self, v: u32) -> AttrDelta {
        (self.uid, self.mask) = (v, self.mask | attr::UID);
        self
    }

    /// Also sets the group.
    pub fn gid(mut self, v: u32) -> AttrDelta {
        (self.gid, self.mask) = (v, self.mask | attr::GID);
        self
    }

    /// Also sets the link count.
    pub fn nlink(mut self, v: u32) -> AttrDelta {
        (self.nlink, self.mask) = (v, self.mask | attr::NLINK);
        self
    }

    /// Also sets the inode flags.
    pub fn flags(mut self, v: u32) -> AttrDelta {
        (self.flags, self.mask) = (v, self.mask | attr::FLAGS);
        self
    }

    /// Also sets the parent directory.
    pub fn parent(mut self, v: InodeNo) -> AttrDelta {
        (self.parent, self.mask) = (v, self.mask | attr::PARENT);
        self
    }

    /// Also sets the access time.
    pub fn atime(mut self, v: Time) -> AttrDelta {
        (self.atime, self.mask) = (v, self.mask | attr::ATIME);
        self
    }

    /// Also sets the modification time.
    pub fn mtime(mut self, v: Time) -> AttrDelta {
        (self.mtime, self.mask) = (v, self.mask | attr::MTIME);
        self
    }

    /// Also sets the change time.
    pub fn ctime(mut self, v: Time) -> AttrDelta {
        (self.ctime, self.mask) = (v, self.mask | attr::CTIME);
        self
    }

    /// Puts the fields that count into `rec`.
    pub(crate) fn apply_to(&self, rec: &mut InodeRec) {
        let has = |bit: u16| self.mask & bit != 0;
        if has(attr::SIZE) {
            rec.size = self.size;
        }
        if has(attr::MTIME) {
            rec.mtime = self.mtime;
        }
        if has(attr::CTIME) {
            rec.ctime = self.ctime;
        }
        if self.mask & !(attr::SIZE | attr::MTIME | attr::CTIME) == 0 {
            return;
        }
        if has(attr::MODE) {
            rec.mode = self.mode;
        }
        if has(attr::UID) {
            rec.uid = self.uid;
        }
        if has(attr::GID) {
            rec.gid = self.gid;
        }
        if has(attr::NLINK) {
            rec.nlink = self.nlink;
        }
        if has(attr::FLAGS) {
            rec.flags = self.flags;
        }
        if has(attr::PARENT) {
            rec.parent = self.parent;
        }
        if has(attr::ATIME) {
            rec.atime = self.atime;
        }
    }
}

/// What a mapped block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockState {
    /// Data with a CRC32C.
    Written = 1,
    /// Reserved by fallocate; reads as zeros.
    Unwritten = 2,
    /// Merged over a base that failed verification; reads give EIO until it is overwritten whole.
    Bad = 3,
}

/// One change of file-system state. Effects on one inode are ordered by the inode sets their planners hold; reclaim
/// steps need none, they commute with everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A new inode (`blocks` and `birth` of the record are ignored: apply sets them).
    PutInode(Box<InodeRec>),
    /// New attribute values.
    SetAttr(AttrDelta),
    /// The inode is gone. Its blocks and attributes went with earlier effects (see `Store::removal`).
    DropInode(InodeNo),
    /// A directory entry is added, or names something else from now on.
    PutDirent {
        /// The directory.
        dir: InodeNo,
        /// From `Store::dirent_slot`, or of the entry replaced.
        cookie: u64,
        /// What it names.
        ino: InodeNo,
        /// File type, as `d_type`.
        ftype: u8,
        /// Collision mark, see [`crate::record::Dirent::mark`].
        mark: u16,
        /// The name.
        name: Arc<[u8]>,
    },
    /// A directory entry goes.
    DelDirent {
        /// The directory.
        dir: InodeNo,
        /// The entry.
        cookie: u64,
    },
    /// An extended attribute is set.
    PutXattr {
        /// The inode.
        ino: InodeNo,
        /// From `Store::xattr_slot`, or of the attribute replaced.
        slot: u64,
        /// Full name.
        name: Arc<[u8]>,
        /// Value.
        value: Arc<[u8]>,
    },
    /// An extended attribute goes.
    DelXattr {
        /// The inode.
        ino: InodeNo,
        /// The attribute.
        slot: u64,
    },
    /// File blocks `blk..blk+count` are now the medium's `addr..addr+count`.
    Map {
        /// The inode.
        ino: InodeNo,
        /// First block of the file.
        blk: u64,
        /// First block on the medium.
        addr: BlockNo,
        /// How many.
        count: u32,
        /// Written or Unwritten.
        state: BlockState,
        /// One CRC32C per block if Written, else empty.
        crcs: SmallVec<[u32; 4]>,
    },
    /// Bytes changed inside one block; they live in the log and the overlay until the next checkpoint.
    Patch {
        /// The inode.
        ino: InodeNo,
        /// Byte offset in the file.
        off: u64,
        /// The bytes; none crosses a block boundary.
        bytes: SmallVec<[u8; 24]>,
    },
    /// Bytes inside one block become zero; on a hole nothing changes.
    Zero {
        /// The inode.
        ino: InodeNo,
        /// Byte offset in the file.
        off: u64,
        /// How many, within the block.
        len: u32,
    },
    /// File blocks become holes now (at most `UNMAP_WINDOWS_MAX` windows).
    Unmap {
        /// The inode.
        ino: InodeNo,
        /// First block.
        blk: u64,
        /// How many.
        count: u32,
    },
    /// File blocks read as holes now and are freed later, in steps.
    Cut {
        /// The inode.
        ino: InodeNo,
        /// First block.
        blk: u64,
        /// One past the last block.
        end: u64,
    },
    /// The inode has no name any more; it goes when it is not open.
    Orphan {
        /// The inode.
        ino: InodeNo,
    },
    /// An orphan got a name (linkat of an O_TMPFILE).
    Adopt {
        /// The inode.
        ino: InodeNo,
    },
    /// Stands, in a commit of a transaction, for the effects of one of the begin record's inputs. It is replaced by
    /// them before anything is applied (see `micro::expand`).
    Input {
        /// The file.
        ino: InodeNo,
        /// Which input.
        input: u16,
    },
    /// Blocks `blk..blk+count` born at or before `cut` are freed.
    ReclaimStep {
        /// The inode.
        ino: InodeNo,
        /// Stamp of the cut.
        cut: u64,
        /// First block.
        blk: u64,
        /// How many (at most `UNMAP_WINDOWS_MAX` windows).
        count: u32,
    },
    /// A cut is drained (`cut` is its stamp), or an orphan is gone, record and all (`cut` is 0).
    ReclaimDone {
        /// The inode.
        ino: InodeNo,
        /// Stamp of the cut, or 0.
        cut: u64,
    },
    /// What became of a detectable command, beside its own effects.
    Outcome(Box<OutcomeRec>),
}

impl Effect {
    /// The inode that an entry of a directory names from now on.
    pub fn target(&self) -> Option<InodeNo> {
        if let Effect::PutDirent { ino, .. } = self { Some(*ino) } else { None }
    }

    /// The inode whose shard holds what the effect changes; the root for an outcome, which no shard holds.
    pub fn ino(&self) -> InodeNo {
        match self {
            Effect::PutInode(r) => r.ino,
            Effect::SetAttr(d) => d.ino,
            Effect::DropInode(ino) => *ino,
            Effect::Outcome(_) => InodeNo::ROOT,
            Effect::PutDirent { dir, .. } | Effect::DelDirent { dir, .. } => *dir,
            Effect::PutXattr { ino, .. }
            | Effect::DelXattr { ino, .. }
            | Effect::Map { ino, .. }
            | Effect::Patch { ino, .. }
            | Effect::Zero { ino, .. }
            | Effect::Unmap { ino, .. }
            | Effect::Cut { ino, .. }
            | Effect::Orphan { ino }
            | Effect::Adopt { ino }
            | Effect::Input { ino, .. }
            | Effect::ReclaimStep { ino, .. }
            | Effect::ReclaimDone { ino, .. } => *ino,
        }
    }
}
