//! Fused operations: several steps, one command. Each call here is exactly one SQE, one CQE and one copy of the
//! payload by the device, atomic as a whole: others see all of it or nothing, and so does recovery after a crash.
//!
//! Operands may be ordinary memory or [`PoolBuf`](crate::PoolBuf)s; with the latter this library copies no payload at
//! all. No operand is longer than the session's payload limit (1 MiB): E2BIG.

use crate::buf::{Payload, Room};
use crate::raw::{Raw, Written};
use weldfs_ciscops::flags::{ChecksumKind, OpenFlags};
use weldfs_ciscops::interp::CREATED;
use weldfs_ciscops::{At, Cqe, Errno, Handle, Modify, Op, PoolRange};

/// Bytes of the checksum that `append_checksum_write` puts behind the payload.
pub const TRAILER_BYTES: u64 = weldfs_ciscops::catalogue::SUM_BYTES as u64;

/// What a fused write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Bytes written.
    pub len: usize,
    /// Where the first of them went in the file, bytes.
    pub offset: u64,
    /// Whether the call made the file.
    pub created: bool,
}

/// What `open_read_write_close` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchanged {
    /// Bytes of the old content read; fewer than the room only at its end.
    pub read: usize,
    /// Where the first written byte went, bytes.
    pub offset: u64,
    /// Whether the call made the file.
    pub created: bool,
}

/// A payload with its checksum in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Where the payload starts in the file, bytes.
    pub offset: u64,
    /// CRC-32C of the payload.
    pub checksum: u32,
}

/// A range summed up by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summed {
    /// Bytes that there were.
    pub len: u64,
    /// Their checksum; 0 of none.
    pub checksum: u64,
}

/// How `read_modify_write` changes a field.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// Replaces it.
    Patch(&'a [u8]),
    /// Adds to it as a little-endian number, wrapping.
    Add {
        /// What to add.
        by: u64,
        /// Bytes of the field: 1, 2, 4 or 8.
        width: u32,
    },
    /// Xors it with these bytes.
    Xor(&'a [u8]),
    /// Replaces it if it holds `expect`, else fails with ECANCELED. Both have the field's length.
    CompareSwap {
        /// What it must hold.
        expect: &'a [u8],
        /// What it shall hold.
        new: &'a [u8],
    },
}

impl Change<'_> {
    /// Bytes of the field.
    pub(crate) fn width(&self) -> usize {
        match self {
            Change::Patch(bytes) | Change::Xor(bytes) => bytes.len(),
            Change::Add { width, .. } => *width as usize,
            Change::CompareSwap { expect, .. } => expect.len(),
        }
    }
}

impl Raw<'_> {
    /// Opens or creates a file, writes one payload, closes. `flags` must hold WRITE; `at` is an offset or the end.
    /// `mode` is what a new file gets, after the caller's umask. Errors: those of open and write.
    pub fn open_write_close<'p>(
        &self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
        at: At,
        data: impl Into<Payload<'p>>,
    ) -> Result<Done, Errno> {
        let mode = mode & 0o7777;
        let build = |[path, src]: [_; 2], []: [PoolRange; 0]| Op::OpenWriteClose { base, path, flags, mode, at, src };
        let cqe = self.call([path.into(), data.into()], [], build, |_| [])?;
        let (len, place) = cqe.ok()?;
        Ok(Done { len: len as usize, offset: place & !CREATED, created: place & CREATED != 0 })
    }

    /// Opens a file, reads from `offset`, closes. Returns the bytes read. `flags` must hold READ, and none that
    /// creates or truncates. Errors: those of open and read.
    pub fn open_read_close<'r>(
        &self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
        offset: u64,
        room: impl Into<Room<'r>>,
    ) -> Result<usize, Errno> {
        let build = |[path]: [_; 1], [out]: [_; 1]| Op::OpenReadClose { base, path, flags, offset, out };
        let cqe = self.call([path.into()], [room.into()], build, read_bytes)?;
        cqe.ok().map(|(n, _)| n as usize)
    }

    /// Opens or creates a file, reads its old content from `read_off`, writes one payload, closes; no other gets in
    /// between. `flags` must hold READ and WRITE; with TRUNC the old content is gone before the read. Errors: those
    /// of open, read and write.
    pub fn open_read_write_close<'r, 'p>(
        &self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
        read_off: u64,
        room: impl Into<Room<'r>>,
        at: At,
        data: impl Into<Payload<'p>>,
    ) -> Result<Exchanged, Errno> {
        let mode = mode & 0o7777;
        let build = |[path, src]: [_; 2], [out]: [_; 1]| Op::OpenReadWriteClose {
            base,
            path,
            flags,
            mode,
            read_off,
            out,
            at,
            src,
        };
        let cqe = self.call([path.into(), data.into()], [room.into()], build, read_bytes)?;
        let (read, place) = cqe.ok()?;
        Ok(Exchanged { read: read as usize, offset: place & !CREATED, created: place & CREATED != 0 })
    }

    /// Appends a payload and, right behind it, the CRC-32C (4 bytes, little-endian) of the bytes that were stored.
    /// EBADF when the handle was not opened for writing, E2BIG above the payload limit less four bytes.
    pub fn append_checksum_write<'p>(&self, h: Handle, data: impl Into<Payload<'p>>) -> Result<Sealed, Errno> {
        let kind = ChecksumKind::Crc32c;
        let build = |[src]: [_; 1], []: [PoolRange; 0]| Op::AppendChecksumWrite { h, kind, src };
        let (offset, sum) = self.call([data.into()], [], build, |_| [])?.ok()?;
        Ok(Sealed { offset, checksum: sum as u32 })
    }

    /// [`Raw::write`] of one payload, if its CRC-32C is `checksum`: else EBADMSG, and nothing has happened. The device
    /// sums up the bytes that it stores, so what is changed on the way is noticed. E2BIG above the payload limit,
    /// EBADF when the handle was not opened for writing, EOPNOTSUPP on a virtual file.
    pub fn write_verified<'p>(
        &self,
        h: Handle,
        at: At,
        data: impl Into<Payload<'p>>,
        checksum: u32,
    ) -> Result<Written, Errno> {
        let (kind, sum) = (ChecksumKind::Crc32c, checksum);
        let build = |[src]: [_; 1], []: [PoolRange; 0]| Op::WriteVerified { h, at, src, kind, sum };
        let (len, offset) = self.call([data.into()], [], build, |_| [])?.ok()?;
        Ok(Written { len: len as usize, offset })
    }

    /// Reads `len` payload bytes at `offset` and the trailer behind them, and compares. Returns the checksum. With a
    /// room (of `len` bytes) the payload comes along; without, only the verdict crosses the link. EBADMSG when the
    /// bytes do not match (the room holds them all the same), ENODATA when the file ends too early.
    pub fn read_checksum_verify<'r>(
        &self,
        h: Handle,
        offset: u64,
        len: u32,
        room: Option<Room<'r>>,
    ) -> Result<u32, Errno> {
        let kind = ChecksumKind::Crc32c;
        let room = room.unwrap_or(Room::Bytes(&mut []));
        let build = |[]: [PoolRange; 0], [out]: [_; 1]| Op::ReadChecksumVerify { h, kind, offset, len, out };
        let whole = |cqe: &Cqe| [if cqe.status == 0 || cqe.status == Errno::BADMSG.0 { len as usize } else { 0 }];
        let (_, sum) = self.call([], [room], build, whole)?.ok()?;
        Ok(sum as u32)
    }

    /// The checksum of `len` bytes from `offset`, and how many there were: fewer only at the end of the file; holes are
    /// zeros. Not a byte of them crosses the link. Up to 8 MiB are of one moment; a longer range is summed up in pieces
    /// of 8 MiB, each of one moment, and writers may come in between. EBADF when the handle was not opened for reading.
    pub fn checksum_range(&self, h: Handle, offset: u64, len: u64, kind: ChecksumKind) -> Result<Summed, Errno> {
        let build = |[]: [PoolRange; 0], []: [PoolRange; 0]| Op::ChecksumRange { h, kind, offset, len };
        let (len, checksum) = self.call([], [], build, |_| [])?.ok()?;
        Ok(Summed { len, checksum })
    }

    /// Reads a field at `offset`, changes it, writes it back; the file grows if the field lies past its end (missing
    /// bytes count as zero). With `old` (of the field's length) the bytes that were there come back, also when a
    /// compare-and-swap finds them different (ECANCELED). At most 64 KiB: E2BIG.
    pub fn read_modify_write(
        &self,
        h: Handle,
        offset: u64,
        change: Change<'_>,
        old: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let width = change.width();
        let len = u32::try_from(width).map_err(|_| Errno::TOOBIG)?;
        let room = Room::Bytes(old.unwrap_or(&mut []));
        let shown = |cqe: &Cqe| [if cqe.status == 0 || cqe.status == Errno::CANCELED.0 { width } else { 0 }];
        let op = |modify: Modify, out: PoolRange| Op::ReadModifyWrite { h, offset, len, modify, out };
        let cqe = match change {
            Change::Add { by, .. } => self.call([], [room], |[], [out]| op(Modify::Add(by), out), shown),
            Change::Patch(bytes) => {
                self.call([bytes.into()], [room], |[src], [out]| op(Modify::Patch(src), out), shown)
            }
            Change::Xor(bytes) if width <= 16 => {
                let mut imm = [0; 16];
                imm[..width].copy_from_slice(bytes);
                self.call([], [room], |[], [out]| op(Modify::XorImm(imm), out), shown)
            }
            Change::Xor(bytes) => self.call([bytes.into()], [room], |[src], [out]| op(Modify::Xor(src), out), shown),
            Change::CompareSwap { expect, new } => {
                let build = |[expect, new]: [_; 2], [out]: [_; 1]| op(Modify::CompareSwap { expect, new }, out);
                self.call([expect.into(), new.into()], [room], build, shown)
            }
        };
        cqe?.ok().map(drop)
    }
}

/// The one room is filled to the bytes read.
fn read_bytes(cqe: &Cqe) -> [usize; 1] {
    [if cqe.status == 0 { cqe.result as usize } else { 0 }]
}

impl From<Done> for Written {
    fn from(done: Done) -> Written {
        Written { len: done.len, offset: done.offset }
    }
}
