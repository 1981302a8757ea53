//! An open file.

use crate::buf::{Payload, Room};
use crate::client::Client;
use crate::fused::{Change, Sealed, Summed};
use crate::meta::Metadata;
use crate::raw::{Opened, Raw, Written};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use weldfs_ciscops::flags::{
    ChecksumKind, FallocMode, LockKind, LockSpace, OpenFlags, SetAttrMask, Whence, XattrFlags,
};
use weldfs_ciscops::limits::FILE_OFFSET_MAX;
use weldfs_ciscops::{At, Durability, Errno, Handle, Hints, SetAttrBody};

/// An open file (or directory) in the device: a handle on an open file description. `Send` and `Sync`; reads and
/// writes without an offset share the description's, which lives in the device and moves atomically.
///
/// Dropping it closes it (errors unseen; use [`File::close`] to see them). Every call may fail with EIO or ENODEV
/// when the device dies, EBADF when the file was opened without the access needed, or before a fork or reconnect.
#[derive(Debug)]
pub struct File {
    client: Client,
    epoch: u64,
    opened: Opened,
    durability: Durability,
    /// As [`Hints::to_wire`] has them.
    hints: AtomicU16,
}

impl File {
    pub(crate) fn new(client: Client, epoch: u64, opened: Opened) -> File {
        let durability = client.default_durability();
        File { client, epoch, opened, durability, hints: AtomicU16::new(0) }
    }

    /// The file through the raw layer.
    pub fn raw(&self) -> Raw<'_> {
        Raw::new(&self.client, self.epoch, self.durability).hints(self.hints())
    }

    /// Its handle, for raw calls. Valid while the file lives.
    pub fn handle(&self) -> Handle {
        self.opened.handle
    }

    /// The client it was opened through.
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Which session of this process it belongs to. Files of different ones must not meet in one command: their handles
    /// mean nothing to each other's.
    pub fn session(&self) -> u64 {
        self.epoch
    }

    /// Whether the open made the file.
    pub fn was_created(&self) -> bool {
        self.opened.created
    }

    /// Chooses the durability of later changes through this `File`; the default is the client's.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// Chooses the hints of later calls through this `File`, on any thread; at first there are none. They belong to it
    /// and not to what it has open, and change no result.
    pub fn set_hints(&self, hints: Hints) {
        self.hints.store(hints.to_wire(), Ordering::Relaxed);
    }

    /// The hints of its calls.
    pub fn hints(&self) -> Hints {
        Hints::from_wire(self.hints.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Reads from `offset` (bytes); returns the bytes read, fewer than the room only at the end of the file.
    pub fn read_at<'r>(&self, room: impl Into<Room<'r>>, offset: u64) -> io::Result<usize> {
        Ok(self.raw().read(self.handle(), At::Offset(offset), room)?)
    }

    /// Fills the whole room from `offset`; `UnexpectedEof` when the file ends first.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let wanted = buf.len();
        match self.read_at(buf, offset)? {
            n if n == wanted => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes at `offset` (bytes); atomic up to 1 MiB, longer data in such pieces. Returns the bytes written, fewer
    /// than given only when a later piece failed. A file opened with `append` writes at its end all the same.
    pub fn write_at<'p>(&self, data: impl Into<Payload<'p>>, offset: u64) -> io::Result<usize> {
        Ok(self.raw().write(self.handle(), At::Offset(offset), data)?.len)
    }

    /// Writes all of `data` at `offset`.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_with(data, offset, self.durability)
    }

    /// The same with a durability of its own: `Durability::Durable` returns when the data is persistent.
    pub fn write_all_with(&self, data: &[u8], offset: u64, durability: Durability) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = At::Offset(offset.saturating_add(done as u64));
            done += self.raw().durability(durability).write(self.handle(), at, &data[done..])?.len;
        }
        Ok(())
    }

    /// Appends at the end, atomically against every other writer (up to 1 MiB; longer data in such pieces). Says
    /// where the first byte went.
    pub fn append<'p>(&self, data: impl Into<Payload<'p>>) -> io::Result<Written> {
        Ok(self.raw().write(self.handle(), At::End, data)?)
    }

    /// Appends with a durability of its own.
    pub fn append_with<'p>(&self, data: impl Into<Payload<'p>>, durability: Durability) -> io::Result<Written> {
        Ok(self.raw().durability(durability).write(self.handle(), At::End, data)?)
    }

    /// Sets the size in bytes; a hole where it grows (reads as zeros).
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        Ok(self.raw().truncate(self.handle(), size)?)
    }

    /// fallocate(2): reserves, punches or zeroes `len` bytes from `offset`.
    pub fn allocate(&self, mode: FallocMode, offset: u64, len: u64) -> io::Result<()> {
        Ok(self.raw().fallocate(self.handle(), mode, offset, len)?)
    }

    /// Content and metadata are durable on return (fsync).
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(self.raw().fsync(self.handle())?)
    }

    /// Content and size are durable on return (fdatasync).
    pub fn sync_data(&self) -> io::Result<()> {
        Ok(self.raw().fdatasync(self.handle())?)
    }

    /// Attributes.
    pub fn metadata(&self) -> io::Result<Metadata> {
        Ok(self.raw().stat(self.handle())?.into())
    }

    /// Changes the attributes that the body's mask names, in one step.
    pub fn set_attributes(&self, set: &SetAttrBody) -> io::Result<()> {
        Ok(self.raw().set_attr(self.handle(), set)?)
    }

    /// Sets the permission bits (fchmod).
    pub fn set_permissions(&self, mode: u32) -> io::Result<()> {
        let mask = SetAttrMask::MODE.bits();
        self.set_attributes(&SetAttrBody { mask, mode: mode & 0o7777, ..SetAttrBody::default() })
    }

    /// The next data (or hole) at or after `offset`, bytes; ENXIO past the end. Moves the description's offset there.
    pub fn seek_to(&self, whence: Whence, offset: i64) -> io::Result<u64> {
        Ok(self.raw().seek(self.handle(), whence, offset)?)
    }

    /// Takes a lock on the whole file for this open file description (as flock(2)), waiting for it as long as it
    /// takes; `LockKind::Unlock` gives it back.
    pub fn lock(&self, kind: LockKind) -> io::Result<()> {
        let mut pause = Duration::from_micros(50);
        loop {
            match self.try_lock(kind) {
                Err(e) if e.raw_os_error() == Some(Errno::AGAIN.0) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                done => return done,
            }
        }
    }

    /// The same without waiting: EAGAIN when another description is in the way.
    pub fn try_lock(&self, kind: LockKind) -> io::Result<()> {
        Ok(self.raw().lock_set(self.handle(), LockSpace::Flock, kind, 0, 0, 0)?)
    }

    /// Replaces the settable status flags (append, no-atime, non-blocking, direct).
    pub fn set_flags(&self, flags: OpenFlags) -> io::Result<()> {
        Ok(self.raw().set_flags(self.handle(), flags)?)
    }

    /// An extended attribute's value; ENODATA when there is none.
    pub fn xattr(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut value = vec![0; weldfs_ciscops::limits::XATTR_VALUE_MAX];
        let n = self.raw().get_xattr(self.handle(), b"", false, name.as_bytes(), &mut value)?;
        value.truncate(n);
        Ok(value)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, name: &str, value: &[u8]) -> io::Result<()> {
        let flags = XattrFlags::empty();
        Ok(self.raw().set_xattr(self.handle(), b"", false, name.as_bytes(), value, flags)?)
    }

    /// Fused: see [`Raw::append_checksum_write`].
    pub fn append_checksum_write<'p>(&self, data: impl Into<Payload<'p>>) -> Result<Sealed, Errno> {
        self.raw().append_checksum_write(self.handle(), data)
    }

    /// See [`Raw::write_verified`].
    pub fn write_verified<'p>(&self, at: At, data: impl Into<Payload<'p>>, checksum: u32) -> Result<Written, Errno> {
        self.raw().write_verified(self.handle(), at, data, checksum)
    }

    /// Fused: see [`Raw::read_checksum_verify`]. The room's length is the payload's.
    pub fn read_checksum_verify<'r>(&self, offset: u64, room: impl Into<Room<'r>>) -> Result<u32, Errno> {
        let room = room.into();
        let len = u32::try_from(room.len()).map_err(|_| Errno::TOOBIG)?;
        self.raw().read_checksum_verify(self.handle(), offset, len, Some(room))
    }

    /// Fused: the same without the payload crossing the link; only the verdict comes back.
    pub fn checksum_verify(&self, offset: u64, len: u32) -> Result<u32, Errno> {
        self.raw().read_checksum_verify(self.handle(), offset, len, None)
    }

    /// See [`Raw::checksum_range`]. A range without an end goes to the end of the file.
    pub fn checksum(&self, range: impl RangeBounds<u64>, kind: ChecksumKind) -> Result<Summed, Errno> {
        let start = match range.start_bound() {
            Bound::Included(at) => *at,
            Bound::Excluded(at) => at.checked_add(1).ok_or(Errno::INVAL)?,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(at) => at.checked_add(1).ok_or(Errno::FBIG)?,
            Bound::Excluded(at) => *at,
            Bound::Unbounded => FILE_OFFSET_MAX.max(start),
        };
        let len = end.checked_sub(start).ok_or(Errno::INVAL)?;
        self.raw().checksum_range(self.handle(), start, len, kind)
    }

    /// Fused: see [`Raw::read_modify_write`].
    pub fn read_modify_write(&self, offset: u64, change: Change<'_>, old: Option<&mut [u8]>) -> Result<(), Errno> {
        self.raw().read_modify_write(self.handle(), offset, change, old)
    }

    /// Closes and says how that went.
    pub fn close(self) -> io::Result<()> {
        let closed = self.raw().close(self.handle());
        // The handle is gone whatever the device said; the drop must not close another one's.
        self.dissolve();
        Ok(closed?)
    }

    /// Gives the handle up without closing it: the caller will, through the raw layer.
    pub fn into_handle(self) -> Handle {
        let handle = self.handle();
        self.dissolve();
        handle
    }

    /// Drops everything but the handle.
    fn dissolve(mut self) {
        self.epoch = u64::MAX;
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.epoch != u64::MAX {
            // Nothing is left to report a failure to; a dead device has closed it already.
            let _ = self.raw().close(self.handle());
        }
    }
}

fn read(file: &File, buf: &mut [u8]) -> io::Result<usize> {
    Ok(file.raw().read(file.handle(), At::Current, buf)?)
}

fn write<'p>(file: &File, data: impl Into<Payload<'p>>) -> io::Result<usize> {
    Ok(file.raw().write(file.handle(), At::Current, data)?.len)
}

fn seek(file: &File, to: SeekFrom) -> io::Result<u64> {
    let (whence, off) = match to {
        SeekFrom::Start(off) => (Whence::Set, i64::try_from(off).map_err(|_| Errno::INVAL)?),
        SeekFrom::Current(off) => (Whence::Cur, off),
        SeekFrom::End(off) => (Whence::End, off),
    };
    file.seek_to(whence, off)
}

macro_rules! stream {
    ($($ty:ty),*) => { $(
        impl Read for $ty {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                read(self, buf)
            }
        }

        impl Write for $ty {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                write(self, buf)
            }

            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                write(self, Payload::Gather(parts))
            }

            /// Nothing is held back: a write that returned is in the device. For durability see `sync_all`.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Seek for $ty {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                seek(self, to)
            }
        }
    )* };
}
stream!(File, &File);
