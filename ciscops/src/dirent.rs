//! The directory entry streams: what ReadDir puts in the pool (20-byte head, name, padding to a multiple of 8), and
//! ReadDirPlus (24-byte head, attributes, name, padding).

use crate::bodies::StatBody;
use crate::limits::NAME_MAX;
use crate::{Errno, SharedBytes};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Head of one entry, 20 bytes, followed by the name and zero padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed(4))]
pub struct DirentHead {
    /// Inode number.
    pub ino: u64,
    /// Cookie to continue *after* this entry.
    pub next_cookie: u64,
    /// Bytes of the whole entry, a multiple of 8.
    pub reclen: u16,
    /// `FileType`.
    pub dtype: u8,
    /// Bytes of the name.
    pub namelen: u8,
}

/// Bytes of `DirentHead`.
pub const DIRENT_HEAD: usize = 20;
/// Bytes of the longest entry.
pub const DIRENT_MAX: usize = dirent_len(NAME_MAX);

/// Bytes of an entry with a name of `namelen` bytes.
pub(crate) const fn dirent_len(namelen: usize) -> usize {
    (DIRENT_HEAD + namelen + 7) & !7
}

/// Directory cursors: the three fixed values; others are (hash << 12 | index), 63 bits.
pub mod cookie {
    /// Start of the directory.
    pub const START: u64 = 0;
    /// After `.`.
    pub const AFTER_DOT: u64 = 1;
    /// After `..`.
    pub const AFTER_DOTDOT: u64 = 2;
}

/// File types, with the values of DT_*.
pub mod dtype {
    /// Not known.
    pub const UNKNOWN: u8 = 0;
    /// FIFO.
    pub const FIFO: u8 = 1;
    /// Character device.
    pub const CHR: u8 = 2;
    /// Directory.
    pub const DIR: u8 = 4;
    /// Block device.
    pub const BLK: u8 = 6;
    /// Regular file.
    pub const REG: u8 = 8;
    /// Symbolic link.
    pub const LNK: u8 = 10;
    /// Socket.
    pub const SOCK: u8 = 12;

    /// From st_mode.
    pub const fn from_mode(mode: u32) -> u8 {
        ((mode & 0o170000) >> 12) as u8
    }
}

/// Puts the name of an entry, and zeros behind it.
fn put_name(room: SharedBytes<'_>, name: &[u8]) {
    room.sub(0, name.len()).copy_from(name);
    room.sub(name.len(), room.len() - name.len()).zero();
}

/// Writes entries straight into the client's pool, one after the other.
pub struct DirentWriter<'a> {
    out: SharedBytes<'a>,
    used: usize,
    entries: u64,
}

impl<'a> DirentWriter<'a> {
    /// Over the room given.
    pub fn new(out: SharedBytes<'a>) -> Self {
        DirentWriter { out, used: 0, entries: 0 }
    }

    /// Appends one entry; false (and no effect) when it does not fit. Names longer than 255 bytes do not fit.
    pub fn push(&mut self, ino: u64, next_cookie: u64, dtype: u8, name: &[u8]) -> bool {
        let reclen = dirent_len(name.len());
        if name.len() > NAME_MAX || self.used + reclen > self.out.len() {
            return false;
        }
        let head = DirentHead { ino, next_cookie, reclen: reclen as u16, dtype, namelen: name.len() as u8 };
        let room = self.out.sub(self.used, reclen);
        room.sub(0, DIRENT_HEAD).copy_from(head.as_bytes());
        put_name(room.sub(DIRENT_HEAD, reclen - DIRENT_HEAD), name);
        self.used += reclen;
        self.entries += 1;
        true
    }

    /// Forgets what was pushed (a cold block was missed and the walk starts over).
    pub fn reset(&mut self) {
        (self.used, self.entries) = (0, 0);
    }

    /// Bytes written.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Entries written.
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

/// One entry as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirent<'a> {
    /// Inode number.
    pub ino: u64,
    /// Cookie to continue after this entry.
    pub next_cookie: u64,
    /// `dtype`.
    pub dtype: u8,
    /// Name, without NUL.
    pub name: &'a [u8],
}

/// Iterates over a stream; ends at the first malformed entry.
pub struct Dirents<'a>(pub &'a [u8]);

impl<'a> Iterator for Dirents<'a> {
    type Item = Dirent<'a>;

    fn next(&mut self) -> Option<Dirent<'a>> {
        let (head, rest) = DirentHead::read_from_prefix(self.0).ok()?;
        let (reclen, namelen) = (head.reclen as usize, head.namelen as usize);
        if reclen != dirent_len(namelen) || reclen > self.0.len() {
            return None;
        }
        let name = &rest[..namelen];
        self.0 = &self.0[reclen..];
        Some(Dirent { ino: head.ino, next_cookie: head.next_cookie, dtype: head.dtype, name })
    }
}

/// Head of one entry of a ReadDirPlus stream, 24 bytes, followed by a `StatBody`, the name and zero padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DirentPlusHead {
    /// Inode number, as the directory said.
    pub ino: u64,
    /// Cookie to continue *after* this entry.
    pub next_cookie: u64,
    /// Bytes of the whole entry, a multiple of 8.
    pub reclen: u16,
    /// `FileType`.
    pub dtype: u8,
    /// Bytes of the name.
    pub namelen: u8,
    /// 0, or the errno of the stat of this entry: then its `StatBody` is zero.
    pub status: i32,
}

/// Bytes of an entry of a ReadDirPlus stream before its name.
pub(crate) const DIRENT_PLUS_HEAD: usize = size_of::<DirentPlusHead>() + size_of::<StatBody>();
/// Bytes of the longest entry of a ReadDirPlus stream.
pub const DIRENT_PLUS_MAX: usize = dirent_plus_len(NAME_MAX);

/// Bytes of an entry of a ReadDirPlus stream with a name of `namelen` bytes.
pub const fn dirent_plus_len(namelen: usize) -> usize {
    (DIRENT_PLUS_HEAD + namelen + 7) & !7
}

/// Puts the head and the name of an entry of a ReadDirPlus stream in `room`, which is as long as the entry; its
/// `StatBody` lies between the two. `status`: 0, or the errno of the stat.
///
/// # Panics
/// `room` is shorter.
pub fn put_entry_plus(room: &SharedBytes<'_>, entry: &Dirent<'_>, status: i32) {
    let Dirent { ino, next_cookie, dtype, name } = *entry;
    let (reclen, namelen) = (dirent_plus_len(name.len()), name.len() as u8);
    let head = DirentPlusHead { ino, next_cookie, reclen: reclen as u16, dtype, namelen, status };
    room.sub(0, size_of::<DirentPlusHead>()).copy_from(head.as_bytes());
    put_name(room.sub(DIRENT_PLUS_HEAD, reclen - DIRENT_PLUS_HEAD), name);
}

/// One entry with what stat says of it, as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirentPlus<'a> {
    /// The entry.
    pub entry: Dirent<'a>,
    /// What stat said, or its errno.
    pub stat: Result<StatBody, Errno>,
}

/// Iterates over a ReadDirPlus stream; ends at the first malformed entry.
pub struct DirentsPlus<'a>(pub &'a [u8]);

impl<'a> Iterator for DirentsPlus<'a> {
    type Item = DirentPlus<'a>;

    fn next(&mut self) -> Option<DirentPlus<'a>> {
        let (head, rest) = DirentPlusHead::read_from_prefix(self.0).ok()?;
        let (stat, rest) = StatBody::read_from_prefix(rest).ok()?;
        let (reclen, namelen) = (head.reclen as usize, head.namelen as usize);
        if reclen != dirent_plus_len(namelen) || reclen > self.0.len() {
            return None;
        }
        let name = &rest[..namelen];
        self.0 = &self.0[reclen..];
        let entry = Dirent { ino: head.ino, next_cookie: head.next_cookie, dtype: head.dtype, name };
        Some(DirentPlus { entry, stat: if head.status == 0 { Ok(stat) } else { Err(Errno(head.status)) } })
    }
}
