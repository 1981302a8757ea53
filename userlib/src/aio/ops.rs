//! The operations of an asynchronous queue, in their own terms: the calls of [`crate::Raw`], submitted.

use super::{AsyncQueue, Completed, Input, Pending, QueueBuf, Refused, Space};
use crate::file::File;
use crate::fused::{Done, Exchanged, Sealed, Summed};
use crate::meta::Metadata;
use crate::raw::{Opened, Written};
use crate::txn::Transaction;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weldfs_ciscops::flags::{ChecksumKind, OpenFlags, RenameFlags};
use weldfs_ciscops::interp::CREATED;
use weldfs_ciscops::{At, Errno, Handle, Modify, Op, PoolRange, StatBody};
use zerocopy::FromBytes;

/// What a command works on: an open file or a transaction (checked to belong to the queue's session, else EBADF), or a
/// bare handle, unchecked. Closing the file while commands on it are in flight may overtake them.
#[derive(Debug, Clone, Copy)]
pub struct On {
    handle: Handle,
    /// 0: not checked.
    epoch: u64,
}

impl From<&File> for On {
    fn from(file: &File) -> On {
        On { handle: file.handle(), epoch: file.epoch() }
    }
}

impl From<&Transaction> for On {
    fn from(txn: &Transaction) -> On {
        let (handle, epoch) = txn.of();
        On { handle, epoch }
    }
}

impl From<Handle> for On {
    fn from(handle: Handle) -> On {
        On { handle, epoch: 0 }
    }
}

/// What `read_checksum_verify` found.
#[derive(Debug)]
pub struct Checked {
    /// The checksum of the payload.
    pub checksum: u32,
    /// Whether the trailer says the same.
    pub matches: bool,
    /// The payload, if it was asked for.
    pub payload: QueueBuf,
}

/// What `read_modify_write` did.
#[derive(Debug)]
pub struct Changed {
    /// False when a compare-and-swap found something else.
    pub changed: bool,
    /// What was there before, if it was asked for.
    pub old: QueueBuf,
}

fn name(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn done(completed: Completed) -> Result<(), Errno> {
    completed.ok().map(drop)
}

/// The room, cut to the first result.
fn filled(completed: Completed) -> Result<QueueBuf, Errno> {
    let Completed { cqe, mut room } = completed.ok()?;
    let len = room.capacity().min(cqe.result as usize);
    room.resize(len)?;
    Ok(room)
}

fn written(completed: Completed) -> Result<Written, Errno> {
    let cqe = completed.ok()?.cqe;
    Ok(Written { len: cqe.result as usize, offset: cqe.result2 })
}

fn stat(completed: Completed) -> Result<Metadata, Errno> {
    let body = StatBody::read_from_prefix(completed.ok()?.room.bytes()).map_err(|_| Errno::PROTO)?.0;
    Ok(body.into())
}

impl Completed {
    /// The file that a command of [`AsyncQueue::open`] opened, for callbacks and reaping; of another command's
    /// completion it makes nonsense. It is to be called once: whoever drops the file closes it.
    pub fn into_file(self) -> Result<File, Errno> {
        let Completed { cqe, room } = self.ok()?;
        let (mode, created) = (cqe.result2 as u32, cqe.result2 & CREATED != 0);
        let opened = Opened { handle: Handle::from_wire(cqe.result), mode, created };
        let shared = room.shared();
        Ok(File::new(shared.client.clone(), shared.session.epoch(), opened))
    }
}

fn placed(completed: Completed) -> Result<Done, Errno> {
    let cqe = completed.ok()?.cqe;
    Ok(Done { len: cqe.result as usize, offset: cqe.result2 & !CREATED, created: cqe.result2 & CREATED != 0 })
}

fn exchanged(completed: Completed) -> Result<(Exchanged, QueueBuf), Errno> {
    let cqe = completed.cqe;
    let (offset, created) = (cqe.result2 & !CREATED, cqe.result2 & CREATED != 0);
    Ok((Exchanged { read: cqe.result as usize, offset, created }, filled(completed)?))
}

fn sealed(completed: Completed) -> Result<Sealed, Errno> {
    let cqe = completed.ok()?.cqe;
    Ok(Sealed { offset: cqe.result, checksum: cqe.result2 as u32 })
}

fn checked(completed: Completed) -> Result<Checked, Errno> {
    let Completed { cqe, room } = completed;
    let matches = cqe.status != Errno::BADMSG.0;
    if matches {
        cqe.ok()?;
    }
    Ok(Checked { checksum: cqe.result2 as u32, matches, payload: room })
}

fn changed(completed: Completed) -> Result<Changed, Errno> {
    let Completed { cqe, room } = completed;
    let changed = cqe.status != Errno::CANCELED.0;
    if changed {
        cqe.ok()?;
    }
    Ok(Changed { changed, old: room })
}

fn summed(completed: Completed) -> Result<Summed, Errno> {
    let (len, checksum) = completed.ok()?.cqe.ok()?;
    Ok(Summed { len, checksum })
}

/// Every call submits one command and returns at once; EAGAIN when the ring or the pool is full, E2BIG and kin come
/// with the completion. Results and errors are those of the call of the same name in [`crate::Raw`]. Paths are resolved
/// from the device's root.
impl AsyncQueue {
    /// The handle to name in a command of this queue. EBADF when the file is not of its session.
    pub fn on(&self, on: impl Into<On>) -> Result<Handle, Errno> {
        let On { handle, epoch } = on.into();
        if epoch == 0 || epoch == self.shared.session.epoch() { Ok(handle) } else { Err(Errno::BADF) }
    }

    /// Does nothing, through the whole device.
    pub fn nop(&self) -> Result<Pending<()>, Errno> {
        Ok(self.start([], Space::Fresh(0), false, |[], _| Op::Nop, done)?)
    }

    /// Reads up to `len` bytes at `at`; the buffer holds what was read, fewer only at the end of the file.
    pub fn read(&self, on: impl Into<On>, at: At, len: usize) -> Result<Pending<QueueBuf>, Errno> {
        Ok(self.read_into(on, at, len)?)
    }

    /// The same into a buffer of one's own (all its capacity), which comes back with the result, or with the refusal.
    /// When the command fails it goes back to the pool.
    pub fn read_into(&self, on: impl Into<On>, at: At, space: impl Into<Space>) -> Result<Pending<QueueBuf>, Refused> {
        let space = space.into();
        match self.on(on) {
            Ok(h) => self.start([], space, false, |[], out| Op::Read { h, at, out, watch: 0 }, filled),
            Err(errno) => Err(refused(errno, space)),
        }
    }

    /// Writes at `at`, as one atomic command.
    pub fn write<'i>(&self, on: impl Into<On>, at: At, data: impl Into<Input<'i>>) -> Result<Pending<Written>, Errno> {
        let h = self.on(on)?;
        Ok(self.start([data.into()], Space::Fresh(0), false, |[src], _| Op::Write { h, at, src }, written)?)
    }

    /// Writes at `at`, as one atomic command, if the CRC-32C of the bytes is `checksum`: else EBADMSG, and nothing has
    /// happened.
    pub fn write_verified<'i>(
        &self,
        on: impl Into<On>,
        at: At,
        data: impl Into<Input<'i>>,
        checksum: u32,
    ) -> Result<Pending<Written>, Errno> {
        let (h, kind, sum) = (self.on(on)?, ChecksumKind::Crc32c, checksum);
        let build = |[src]: [_; 1], _| Op::WriteVerified { h, at, src, kind, sum };
        Ok(self.start([data.into()], Space::Fresh(0), false, build, written)?)
    }

    /// Content and metadata are durable at completion.
    pub fn fsync(&self, on: impl Into<On>) -> Result<Pending<()>, Errno> {
        let h = self.on(on)?;
        Ok(self.start([], Space::Fresh(0), false, |[], _| Op::Fsync { h }, done)?)
    }

    /// Content and size are durable at completion.
    pub fn fdatasync(&self, on: impl Into<On>) -> Result<Pending<()>, Errno> {
        let h = self.on(on)?;
        Ok(self.start([], Space::Fresh(0), false, |[], _| Op::Fdatasync { h }, done)?)
    }

    /// Everything completed before, by any client, is durable at completion.
    pub fn syncfs(&self) -> Result<Pending<()>, Errno> {
        Ok(self.start([], Space::Fresh(0), false, |[], _| Op::Syncfs, done)?)
    }

    /// Sets the size in bytes.
    pub fn truncate(&self, on: impl Into<On>, size: u64) -> Result<Pending<()>, Errno> {
        let h = self.on(on)?;
        Ok(self.start([], Space::Fresh(0), false, |[], _| Op::Truncate { h, size }, done)?)
    }

    /// Attributes of an open file.
    pub fn stat(&self, on: impl Into<On>) -> Result<Pending<Metadata>, Errno> {
        let h = self.on(on)?;
        Ok(self.start([], size_of::<StatBody>().into(), false, |[], out| Op::Stat { h, out }, stat)?)
    }

    /// Attributes by name; `nofollow`: of a final symbolic link itself.
    pub fn metadata(&self, path: impl AsRef<Path>, nofollow: bool) -> Result<Pending<Metadata>, Errno> {
        let build = |[path]: [_; 1], out| Op::StatPath { base: Handle::ROOT, path, nofollow, out };
        Ok(self.start([name(path.as_ref()).into()], size_of::<StatBody>().into(), false, build, stat)?)
    }

    /// Opens a file; `mode` is what a new one gets, less the client's umask. If the answer is dropped, it is closed.
    pub fn open(&self, path: impl AsRef<Path>, flags: OpenFlags, mode: u32) -> Result<Pending<File>, Errno> {
        let mode = self.masked(mode);
        let build = |[path]: [_; 1], _| Op::open(Handle::ROOT, path, flags, mode);
        Ok(self.start([name(path.as_ref()).into()], Space::Fresh(0), true, build, Completed::into_file)?)
    }

    /// Closes a file. EBADF when it is not of this queue's session; it is closed then all the same. Refused with
    /// EAGAIN, it comes back open.
    pub fn close(&self, file: File) -> Result<Pending<()>, (Errno, Option<File>)> {
        let h = self.on(&file).map_err(|e| (e, None))?;
        match self.start([], Space::Fresh(0), false, |[], _| Op::Close { h }, done) {
            Ok(pending) => {
                file.into_handle();
                Ok(pending)
            }
            Err(refused) => Err((refused.errno, Some(file))),
        }
    }

    /// Removes a name that is not a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<Pending<()>, Errno> {
        let build = |[path]: [_; 1], _| Op::Unlink { base: Handle::ROOT, path };
        Ok(self.start([name(path.as_ref()).into()], Space::Fresh(0), false, build, done)?)
    }

    /// Renames, replacing what the new name was (atomically) unless the flags say otherwise.
    pub fn rename(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<Pending<()>, Errno> {
        let (from_base, to_base) = (Handle::ROOT, Handle::ROOT);
        let build = |[from, to]: [_; 2], _| Op::Rename { from_base, from, to_base, to, flags };
        let names = [name(from.as_ref()).into(), name(to.as_ref()).into()];
        Ok(self.start(names, Space::Fresh(0), false, build, done)?)
    }

    /// Makes a directory; `mode` less the client's umask.
    pub fn create_dir(&self, path: impl AsRef<Path>, mode: u32) -> Result<Pending<()>, Errno> {
        let mode = self.masked(mode);
        let build = |[path]: [_; 1], _| Op::Mkdir { base: Handle::ROOT, path, mode };
        Ok(self.start([name(path.as_ref()).into()], Space::Fresh(0), false, build, done)?)
    }

    /// Permission bits of a new file: `mode` less the client's umask.
    pub fn masked(&self, mode: u32) -> u32 {
        self.shared.client.masked(mode)
    }

    /// Fused: see [`crate::Raw::open_write_close`]. `mode` is taken less the umask.
    pub fn open_write_close<'i>(
        &self,
        path: impl AsRef<Path>,
        flags: OpenFlags,
        mode: u32,
        at: At,
        data: impl Into<Input<'i>>,
    ) -> Result<Pending<Done>, Errno> {
        let (base, mode) = (Handle::ROOT, self.masked(mode));
        let build = |[path, src]: [_; 2], _| Op::OpenWriteClose { base, path, flags, mode, at, src };
        let inputs = [name(path.as_ref()).into(), data.into()];
        Ok(self.start(inputs, Space::Fresh(0), false, build, placed)?)
    }

    /// Fused: see [`crate::Raw::open_read_close`]. The buffer holds what was read.
    pub fn open_read_close(
        &self,
        path: impl AsRef<Path>,
        flags: OpenFlags,
        offset: u64,
        space: impl Into<Space>,
    ) -> Result<Pending<QueueBuf>, Refused> {
        let base = Handle::ROOT;
        let build = |[path]: [_; 1], out| Op::OpenReadClose { base, path, flags, offset, out };
        self.start([name(path.as_ref()).into()], space.into(), false, build, filled)
    }

    /// Fused: see [`crate::Raw::open_read_write_close`]. The buffer holds the old content that was read.
    pub fn open_read_write_close<'i>(
        &self,
        path: impl AsRef<Path>,
        flags: OpenFlags,
        mode: u32,
        read_off: u64,
        space: impl Into<Space>,
        at: At,
        data: impl Into<Input<'i>>,
    ) -> Result<Pending<(Exchanged, QueueBuf)>, Refused> {
        let (base, mode) = (Handle::ROOT, self.masked(mode));
        let build =
            |[path, src]: [_; 2], out| Op::OpenReadWriteClose { base, path, flags, mode, read_off, out, at, src };
        self.start([name(path.as_ref()).into(), data.into()], space.into(), false, build, exchanged)
    }

    /// Fused: see [`crate::Raw::append_checksum_write`].
    pub fn append_checksum_write<'i>(
        &self,
        on: impl Into<On>,
        data: impl Into<Input<'i>>,
    ) -> Result<Pending<Sealed>, Errno> {
        let (h, kind) = (self.on(on)?, ChecksumKind::Crc32c);
        let build = |[src]: [_; 1], _| Op::AppendChecksumWrite { h, kind, src };
        Ok(self.start([data.into()], Space::Fresh(0), false, build, sealed)?)
    }

    /// Fused: see [`crate::Raw::read_checksum_verify`]. With `wants_payload` the payload comes along.
    pub fn read_checksum_verify(
        &self,
        on: impl Into<On>,
        offset: u64,
        len: u32,
        wants_payload: bool,
    ) -> Result<Pending<Checked>, Errno> {
        let (h, kind) = (self.on(on)?, ChecksumKind::Crc32c);
        let space = Space::Fresh(if wants_payload { len as usize } else { 0 });
        let build = |[]: [PoolRange; 0], out| Op::ReadChecksumVerify { h, kind, offset, len, out };
        Ok(self.start([], space, false, build, checked)?)
    }

    /// Fused: see [`crate::Raw::read_modify_write`]. With `wants_old` the bytes that were there come along.
    pub fn read_modify_write(
        &self,
        on: impl Into<On>,
        offset: u64,
        change: crate::Change<'_>,
        wants_old: bool,
    ) -> Result<Pending<Changed>, Errno> {
        use crate::Change::*;
        let h = self.on(on)?;
        let width = change.width();
        let len = u32::try_from(width).map_err(|_| Errno::TOOBIG)?;
        let space = Space::Fresh(if wants_old { width } else { 0 });
        let op = |modify: Modify, out: PoolRange| Op::ReadModifyWrite { h, offset, len, modify, out };
        let refusal = match change {
            Add { by, .. } => self.start([], space, false, |[], out| op(Modify::Add(by), out), changed),
            Patch(bytes) => self.start([bytes.into()], space, false, |[src], out| op(Modify::Patch(src), out), changed),
            Xor(bytes) => self.start([bytes.into()], space, false, |[src], out| op(Modify::Xor(src), out), changed),
            CompareSwap { expect, new } => {
                let build = |[expect, new]: [_; 2], out| op(Modify::CompareSwap { expect, new }, out);
                self.start([expect.into(), new.into()], space, false, build, changed)
            }
        };
        Ok(refusal?)
    }

    /// The checksum of a range, see [`crate::Raw::checksum_range`].
    pub fn checksum_range(
        &self,
        on: impl Into<On>,
        offset: u64,
        len: u64,
        kind: ChecksumKind,
    ) -> Result<Pending<Summed>, Errno> {
        let h = self.on(on)?;
        Ok(self.start([], Space::Fresh(0), false, |[], _| Op::ChecksumRange { h, kind, offset, len }, summed)?)
    }
}

fn refused(errno: Errno, space: Space) -> Refused {
    match space {
        Space::Fresh(_) | Space::Place(_) => Refused { errno, buf: None },
        Space::Buf(buf) => Refused { errno, buf: Some(buf) },
    }
}
