//! Fixed-size bodies that travel in the pool.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A point in time: seconds since 1970 (may be negative), nanoseconds 0..1_000_000_000.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WireTime {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds.
    pub nsec: u32,
    /// Zero.
    pub reserved: u32,
}

impl WireTime {
    /// From its two parts.
    pub const fn new(sec: i64, nsec: u32) -> WireTime {
        WireTime { sec, nsec, reserved: 0 }
    }
}

/// What stat reports, 256 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StatBody {
    /// Inode number.
    pub ino: u64,
    /// Generation of the inode number.
    pub generation: u64,
    /// Device number that identifies this file system (from its UUID), as st_dev.
    pub dev: u64,
    /// Device number of a device node, as st_rdev.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// 512-byte units allocated.
    pub blocks512: u64,
    /// Type and permission bits, as st_mode.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
    /// statx attributes (append-only, immutable, ...); none defined yet.
    pub flags: u32,
    /// Project id.
    pub project: u32,
    /// Tenant id.
    pub tenant: u32,
    /// Last access.
    pub atime: WireTime,
    /// Last change of content.
    pub mtime: WireTime,
    /// Last change of the inode.
    pub ctime: WireTime,
    /// Birth.
    pub btime: WireTime,
    /// Monotonic change counter (LSN of the last change), for caches.
    pub version: u64,
    /// Zero.
    pub reserved: [u64; 13],
}

/// Operands of SetAttr, 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetAttrBody {
    /// `SetAttrMask`; unknown bits are EINVAL.
    pub mask: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Access time.
    pub atime: WireTime,
    /// Modification time.
    pub mtime: WireTime,
    /// Zero.
    pub reserved: u64,
}

/// What statfs reports, 128 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StatfsBody {
    /// Block size in bytes.
    pub bsize: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks, reserves excluded.
    pub bfree: u64,
    /// Free blocks for an unprivileged user.
    pub bavail: u64,
    /// Inodes in use plus those still possible.
    pub files: u64,
    /// Inodes still possible.
    pub ffree: u64,
    /// Identifies the file system (from its UUID).
    pub fsid: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// ST_* mount flags.
    pub flags: u32,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// Zero.
    pub reserved: [u64; 6],
}

/// A conflicting lock, as Lock/Get reports it, 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LockBody {
    /// First byte.
    pub start: u64,
    /// Bytes; 0 = to the end of the file.
    pub len: u64,
    /// The owner number its holder gave (a process id by custom).
    pub owner: u64,
    /// `LockKind`; `Unlock` when nothing conflicts.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 7],
}

/// What became of a detectable command, 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OutcomeBody {
    /// `OutcomeState`.
    pub state: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// As in the CQE, if done: 0 or a positive errno.
    pub status: i32,
    /// Micro-ops whose effects stand: all there will be if done, so far if in progress.
    pub micro_done: u16,
    /// As in the CQE, if done.
    pub micro_failed: u16,
    /// Micro-ops of the command, if in progress.
    pub micro_ops: u16,
    /// Zero.
    pub reserved2: u16,
    /// First result, as in the CQE, if done.
    pub result: u64,
    /// Second result, as in the CQE, if done.
    pub result2: u64,
    /// Zero.
    pub reserved3: [u64; 4],
}
