//! The kernel's FUSE protocol, version 7.31 and later, as include/uapi/linux/fuse.h of Linux states it: opcodes, flags
//! and the fixed-size bodies. All integers are in the host's byte order. Names follow the header's, without `fuse_`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version; a kernel of another one is refused.
pub const MAJOR: u32 = 7;
/// The newest minor version whose bodies these are.
pub const MINOR: u32 = 41;
/// The oldest kernel that is spoken to: Linux 5.4, which has requests of 1 MiB and copy_file_range.
pub const MINOR_MIN: u32 = 31;
/// The root's node.
pub const ROOT: u64 = 1;

/// What is asked for.
pub mod op {
    macro_rules! opcodes {
        ($($name:ident = $value:literal),* $(,)?) => { $(pub const $name: u32 = $value;)* };
    }
    opcodes! {
        LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8, MKDIR = 9,
        UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16, STATFS = 17, RELEASE = 18,
        FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23, REMOVEXATTR = 24, FLUSH = 25, INIT = 26,
        OPENDIR = 27, READDIR = 28, RELEASEDIR = 29, FSYNCDIR = 30, GETLK = 31, SETLK = 32, SETLKW = 33, ACCESS = 34,
        CREATE = 35, INTERRUPT = 36, DESTROY = 38, IOCTL = 39, BATCH_FORGET = 42, FALLOCATE = 43,
        READDIRPLUS = 44, RENAME2 = 45, LSEEK = 46, COPY_FILE_RANGE = 47, TMPFILE = 51, STATX = 52,
    }
}

/// What is agreed on at the start; the upper half travels in `flags2`.
pub mod init {
    /// Reads of one file may be under way together.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Byte-range locks are kept here.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    /// Writes of more than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// flock(2) is kept here.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// Cached pages of a file go when its size or time of change is found changed.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    /// Listings with attributes,
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// where the kernel thinks that they pay.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Direct reads and writes of more than one request are under way together.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Look-ups and listings of one directory may be under way together.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// `max_pages` counts.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// Targets of symbolic links are cached.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// Set-user-ID bits are cleared here, at writes, truncations and changes of owner.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// `flags2` counts.
    pub const INIT_EXT: u64 = 1 << 30;
    /// A file that is opened for direct I/O may be mapped shared.
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// How the kernel is to treat an open file.
pub mod fopen {
    /// Past the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// What is cached of it stays.
    pub const KEEP_CACHE: u32 = 1 << 1;
}

/// Which attributes a SETATTR sets.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    /// `fh` counts.
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// `Write::write_flags`: pages of the cache are written back.
pub const WRITE_CACHE: u32 = 1 << 0;
/// `Lock::lk_flags`: flock(2).
pub const LK_FLOCK: u32 = 1 << 0;
/// `Fsync::flags`: fdatasync(2).
pub const FDATASYNC: u32 = 1 << 0;
/// `Getattr::flags`: `fh` counts.
pub const GETATTR_FH: u32 = 1 << 0;

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? } = $bytes:literal)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $bytes);
    )* };
}

bodies! {
    /// Before every request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    } = 40
    /// Before every answer; `error` is 0 or a negative errno.
    OutHeader { len: u32, error: i32, unique: u64 } = 16
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 } = 16
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    } = 64
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    } = 88
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: Attr,
    } = 128
    AttrOut { valid: u64, valid_nsec: u32, dummy: u32, attr: Attr } = 104
    Forget { nlookup: u64 } = 8
    BatchForget { count: u32, dummy: u32 } = 8
    ForgetOne { nodeid: u64, nlookup: u64 } = 16
    Getattr { flags: u32, dummy: u32, fh: u64 } = 16
    Setattr {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    } = 88
    Mknod { mode: u32, rdev: u32, umask: u32, padding: u32 } = 16
    Mkdir { mode: u32, umask: u32 } = 8
    Rename { newdir: u64 } = 8
    Rename2 { newdir: u64, flags: u32, padding: u32 } = 16
    Link { oldnodeid: u64 } = 8
    Open { flags: u32, open_flags: u32 } = 8
    Create { flags: u32, mode: u32, umask: u32, open_flags: u32 } = 16
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 } = 16
    Release { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 } = 24
    Flush { fh: u64, unused: u32, padding: u32, lock_owner: u64 } = 24
    Read {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    } = 40
    Write {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    } = 40
    WriteOut { size: u32, padding: u32 } = 8
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    } = 80
    Fsync { fh: u64, flags: u32, padding: u32 } = 16
    Setxattr { size: u32, flags: u32 } = 8
    Getxattr { size: u32, padding: u32 } = 8
    Lock { fh: u64, owner: u64, start: u64, end: u64, kind: u32, pid: u32, lk_flags: u32, padding: u32 } = 48
    LockOut { start: u64, end: u64, kind: u32, pid: u32 } = 24
    Access { mask: u32, padding: u32 } = 8
    Interrupt { unique: u64 } = 8
    Fallocate { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 } = 32
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 } = 24
    Lseek { fh: u64, offset: u64, whence: u32, padding: u32 } = 24
    LseekOut { offset: u64 } = 8
    Ioctl { fh: u64, flags: u32, command: u32, argument: u64, in_size: u32, out_size: u32 } = 32
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 } = 16
    CopyFileRange {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    } = 56
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 } = 24
    SxTime { sec: i64, nsec: u32, reserved: i32 } = 16
    StatxOut {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    } = 288
}

/// A record in a listing ends at a multiple of so many bytes.
pub const DIRENT_ALIGN: usize = 8;
