//! The records of the file system (inode, directory entry, extended attribute, reclaim entry) and how each stands as a
//! value in the checkpoint tree. Every value begins with a version byte; decoding is total: any bytes give a record or
//! an error, never a panic.

use crate::codec::{DecodeError, Reader, Writer};
use std::sync::Arc;
use weldfs_ciscops::InodeNo;
use weldfs_ciscops::limits::FILE_OFFSET_MAX;
use weldfs_journal::Lsn;

/// Version byte of every value written today.
pub(crate) const VALUE_VERSION: u8 = 1;
/// Blocks that one file holds, at most: block numbers of a medium have 48 bits.
const BLOCKS_MAX: u64 = 1 << 48;

/// Flag of an inode: it is a virtual file, and has a spec.
pub const FLAG_VIRTUAL: u32 = 2;
/// The extended attribute that holds the spec. No client has this namespace: it is refused to all of them.
pub const SPEC_NAME: &[u8] = b"weldfs.virtual";

/// A point in time, nanosecond resolution, any year.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

/// Everything the file system knows about an inode, except what its name entries, windows and attributes hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeRec {
    /// Inode number, never reused.
    pub ino: InodeNo,
    /// Generation, random at creation.
    pub generation: u32,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u32,
    /// Size, bytes.
    pub size: u64,
    /// 4 KiB blocks held (a block that so far lives only in the log counts: its space is reserved). Kept by `apply`.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
    /// Device number of a special file.
    pub rdev: u64,
    /// A directory's parent (what `..` names); 0 for everything else.
    pub parent: InodeNo,
    /// Project id.
    pub project: u32,
    /// Tenant id.
    pub tenant: u32,
    /// Inode flags.
    pub flags: u32,
    /// Log position of its creation; set by `apply`.
    pub birth: Lsn,
    /// Target of a symbolic link; empty for everything else.
    pub target: Option<Arc<[u8]>>,
}

impl InodeRec {
    /// A record with everything zero but its number: a start for constructors and tests.
    pub fn empty(ino: InodeNo) -> InodeRec {
        let t = Time::default();
        InodeRec {
            ino,
            generation: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 0,
            size: 0,
            blocks: 0,
            atime: t,
            mtime: t,
            ctime: t,
            btime: t,
            rdev: 0,
            parent: InodeNo(0),
            project: 0,
            tenant: 0,
            flags: 0,
            birth: Lsn(0),
            target: None,
        }
    }

    /// Becomes what `other` is, in place.
    #[inline]
    pub(crate) fn set(&mut self, other: &InodeRec) {
        let target = other.target.clone();
        *self = InodeRec { target, ..*other };
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170000 == 0o040000
    }

    /// Whether reading it gives what a kernel makes of other files: a regular file with the flag.
    pub fn is_virtual(&self) -> bool {
        self.flags & FLAG_VIRTUAL != 0 && self.mode & 0o170000 == 0o100000
    }

    /// Appends the fields (all but the number) to `w`: the one encoding of an inode, in effects and in the tree.
    pub(crate) fn encode_fields(&self, w: &mut Writer) {
        for v in [self.generation, self.mode, self.uid, self.gid, self.nlink, self.project, self.tenant, self.flags] {
            w.var(v.into());
        }
        for v in [self.size, self.blocks, self.rdev, self.parent.0, self.birth.0] {
            w.var(v);
        }
        for t in [self.atime, self.mtime, self.ctime, self.btime] {
            w.time(t);
        }
        w.bytes(self.target.as_deref().unwrap_or(&[]));
        // Reserved words, so that a later minor version can add fields that this one keeps.
        w.var(0);
    }

    /// Reads what `InodeRec::encode_fields` wrote.
    ///
    /// # Errors
    /// Bytes that no writer produces.
    pub(crate) fn decode_fields(ino: InodeNo, r: &mut Reader<'_>) -> Result<InodeRec, DecodeError> {
        let mut a = [0u32; 8];
        for v in &mut a {
            *v = r.var32()?;
        }
        let mut b = [0u64; 5];
        for v in &mut b {
            *v = r.var()?;
        }
        let (atime, mtime, ctime, btime) = (r.time()?, r.time()?, r.time()?, r.time()?);
        let target = r.bytes(crate::effect::TARGET_MAX)?;
        let target = if target.is_empty() { None } else { Some(Arc::from(target)) };
        if r.var()? != 0 {
            return Err(DecodeError("inode: reserved words"));
        }
        let [generation, mode, uid, gid, nlink, project, tenant, flags] = a;
        let [size, blocks, rdev, parent, birth] = b;
        InodeRec::bounded(size, blocks, nlink)?;
        Ok(InodeRec {
            ino,
            generation,
            mode,
            uid,
            gid,
            nlink,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            btime,
            rdev,
            parent: InodeNo(parent),
            project,
            tenant,
            flags,
            birth: Lsn(birth),
            target,
        })
    }

    /// Refuses what no file can have, so that sums of these need no second look: a size beyond 2^63-1, more blocks
    /// than there are addresses, as many links as one cannot count beyond.
    ///
    /// # Errors
    /// Which of them it is.
    pub(crate) fn bounded(size: u64, blocks: u64, nlink: u32) -> Result<(), DecodeError> {
        match () {
            () if size > FILE_OFFSET_MAX => Err(DecodeError("inode: size")),
            () if blocks > BLOCKS_MAX => Err(DecodeError("inode: blocks")),
            () if nlink == u32::MAX => Err(DecodeError("inode: links")),
            () => Ok(()),
        }
    }

    /// The value of key `Inode(ino, 0)`.
    pub fn to_value(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(96);
        w.u8(VALUE_VERSION);
        self.encode_fields(&mut w);
        w.into_vec()
    }

    /// Reads the value of key `Inode(ino, 0)`.
    ///
    /// # Errors
    /// Bytes that no writer produces.
    pub fn from_value(ino: InodeNo, v: &[u8]) -> Result<InodeRec, DecodeError> {
        let mut r = Reader::new(v);
        r.version(VALUE_VERSION)?;
        let rec = InodeRec::decode_fields(ino, &mut r)?;
        r.end()?;
        Ok(rec)
    }
}

/// One directory entry. Its cookie is the name's keyed hash and a collision index (see `cookie_parts`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirent {
    /// The directory.
    pub dir: InodeNo,
    /// Position in the directory's order; the key.
    pub cookie: u64,
    /// What it names.
    pub ino: InodeNo,
    /// File type, as `d_type`.
    pub ftype: u8,
    /// One above the highest collision index its bucket is known to have used while not empty.
    pub mark: u16,
    /// The name.
    pub name: Arc<[u8]>,
}

/// Bits of the collision index in a cookie.
pub(crate) const COLLISION_BITS: u32 = 12;
/// Entries a bucket of equal hashes can ever number while not empty.
pub(crate) const BUCKET_MAX: u64 = 1 << COLLISION_BITS;

/// Splits a cookie into the 51-bit name hash and the collision index.
pub(crate) fn cookie_parts(cookie: u64) -> (u64, u64) {
    (cookie >> COLLISION_BITS, cookie & (BUCKET_MAX - 1))
}

impl Dirent {
    /// Whether a path can lead to it: no writer makes an entry whose name is `.` or `..`, or holds a slash. (Names that
    /// are empty, too long, or hold a NUL are not read at all.)
    pub fn is_reachable(&self) -> bool {
        !matches!(&*self.name, b"." | b"..") && !self.name.contains(&b'/')
    }

    /// The value of key `Dirent(dir, cookie)`.
    pub fn to_value(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(self.name.len() + 16);
        w.u8(VALUE_VERSION);
        w.var(self.ino.0);
        w.u8(self.ftype);
        w.var(self.mark.into());
        w.bytes(&self.name);
        w.into_vec()
    }

    /// Reads the value of key `Dirent(dir, cookie)`.
    ///
    /// # Errors
    /// Bytes that no writer produces.
    pub fn from_value(dir: InodeNo, cookie: u64, v: &[u8]) -> Result<Dirent, DecodeError> {
        let mut r = Reader::new(v);
        r.version(VALUE_VERSION)?;
        let ino = InodeNo(r.var()?);
        let ftype = r.u8()?;
        let mark = u16::try_from(r.var()?).map_err(|_| DecodeError("dirent: mark"))?;
        let name = Arc::from(r.name()?);
        r.end()?;
        Ok(Dirent { dir, cookie, ino, ftype, mark, name })
    }
}

/// One extended attribute; its slot is the name's keyed hash and a collision index, like a directory entry's cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// The inode.
    pub ino: InodeNo,
    /// The key.
    pub slot: u64,
    /// Full name, namespace prefix included.
    pub name: Arc<[u8]>,
    /// Value.
    pub value: Arc<[u8]>,
}

impl Xattr {
    /// The value of key `Xattr(ino, slot)`.
    pub fn to_value(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(self.name.len() + self.value.len() + 8);
        w.u8(VALUE_VERSION);
        w.bytes(&self.name);
        w.bytes(&self.value);
        w.into_vec()
    }

    /// Reads the value of key `Xattr(ino, slot)`.
    ///
    /// # Errors
    /// Bytes that no writer produces.
    pub fn from_value(ino: InodeNo, slot: u64, v: &[u8]) -> Result<Xattr, DecodeError> {
        let mut r = Reader::new(v);
        r.version(VALUE_VERSION)?;
        let name = Arc::from(r.name()?);
        let value = Arc::from(r.bytes(crate::effect::XATTR_VALUE_MAX)?);
        r.end()?;
        Ok(Xattr { ino, slot, name, value })
    }
}

/// Something freed lazily. An orphan stands under `Reclaim(ino, 0)`, a cut under `Reclaim(ino, its birth)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimRec {
    /// An inode without a name; it goes when it is not open.
    Orphan,
    /// Blocks `blk..end` born at or before the entry are holes.
    Cut {
        /// First block.
        blk: u64,
        /// One past the last block.
        end: u64,
    },
}

impl ReclaimRec {
    /// The value of key `Reclaim(ino, lsn)`.
    pub fn to_value(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(24);
        w.u8(VALUE_VERSION);
        match self {
            ReclaimRec::Orphan => w.u8(0),
            ReclaimRec::Cut { blk, end } => {
                w.u8(1);
                w.var(*blk);
                w.var(*end);
            }
        }
        w.into_vec()
    }

    /// Reads the value of key `Reclaim(ino, lsn)`.
    ///
    /// # Errors
    /// Bytes that no writer produces.
    pub fn from_value(v: &[u8]) -> Result<ReclaimRec, DecodeError> {
        let mut r = Reader::new(v);
        r.version(VALUE_VERSION)?;
        let rec = match r.u8()? {
            0 => ReclaimRec::Orphan,
            1 => ReclaimRec::Cut { blk: r.var()?, end: r.var()? },
            _ => return Err(DecodeError("reclaim: kind")),
        };
        r.end()?;
        Ok(rec)
    }
}
