//! The raw layer: one method per operation, handles and byte paths in, errno out. Everything else in this crate is
//! written on top of it, and the preload library uses nothing else.
//!
//! * A path is bytes without NUL, resolved by the device from `base` ([`Handle::ROOT`] for absolute names). An empty
//!   path means the object `base` itself where POSIX has a call of that form (stat, set_attr, xattrs, access, link).
//! * `mode` arguments are permission bits after the caller's umask; this layer applies none.
//! * Nothing here panics or prints. No call is safe in a signal handler (a first call on a thread allocates and takes
//!   locks); one that interrupts a call of its thread all the same finds that one's queue pair busy and takes another.
//! * Every call may also fail with EIO (the device died while it ran; the outcome is unknown), ENODEV (the device
//!   was already gone), ENOMEM (the pool cannot hold the operands), EBADF (unknown handle).

use crate::buf::{Payload, Room};
use crate::call::{How, run};
use crate::catalogue::Placement;
use crate::client::Client;
use crate::connector::{Claimed, Placeholder};
use crate::outcome::Tag;
use std::os::fd::BorrowedFd;
use weldfs_ciscops::flags::{
    AccessMask, FallocMode, LockAction, LockKind, LockSpace, OpenFlags, RenameFlags, Whence, XattrFlags,
};
use weldfs_ciscops::interp::CREATED;
use weldfs_ciscops::{
    At, Cqe, Durability, Errno, Handle, Hints, LockBody, Op, PoolRange, SetAttrBody, StatBody, StatfsBody, TxnMode,
};
use zerocopy::{FromZeros, IntoBytes};

/// Longest range that one fallocate command reserves or zeroes, bytes.
const FALLOCATE_PIECE_BYTES: u64 = 128 << 20;

/// What an open gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The handle; close it with [`Raw::close`].
    pub handle: Handle,
    /// Type and permission bits of what was opened, as st_mode.
    pub mode: u32,
    /// Whether this call made the file.
    pub created: bool,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes written.
    pub len: usize,
    /// Where the first of them went in the file, bytes.
    pub offset: u64,
}

/// A client seen through the raw layer. Copy it freely; thread-safe as the client is.
#[derive(Clone, Copy)]
pub struct Raw<'c> {
    client: &'c Client,
    /// The session the handles belong to; 0 = whichever is current.
    epoch: u64,
    how: How<'c>,
}

/// Nothing is copied out by a call without rooms.
fn none(_: &Cqe) -> [usize; 0] {
    []
}

/// The one room is filled to the first result.
fn by_result(cqe: &Cqe) -> [usize; 1] {
    [if cqe.status == 0 { cqe.result as usize } else { 0 }]
}

impl<'c> Raw<'c> {
    pub(crate) fn new(client: &'c Client, epoch: u64, durability: Durability) -> Raw<'c> {
        Raw { client, epoch, how: How { durability, ..How::default() } }
    }

    /// The same with another durability for every call that changes something.
    pub fn durability(mut self, durability: Durability) -> Raw<'c> {
        self.how.durability = durability;
        self
    }

    /// The same where fused calls run in a transaction mode: all or nothing, or each micro-op by itself. Single calls
    /// are one step in either.
    pub fn mode(mut self, mode: TxnMode) -> Raw<'c> {
        self.how.mode = mode;
        self
    }

    /// The same where calls complete only when everything they read is durable.
    pub fn after_durable(mut self) -> Raw<'c> {
        self.how.after_durable = true;
        self
    }

    /// The same with another place for the compute part of the calls of the [`catalogue`](crate::catalogue).
    pub fn placement(mut self, placement: Placement) -> Raw<'c> {
        self.how.placement = placement;
        self
    }

    /// The same with hints: how urgent calls are, and how long what they write will stay. They change no result.
    pub fn hints(mut self, hints: Hints) -> Raw<'c> {
        self.how.hints = hints;
        self
    }

    /// The same where each command leaves its outcome, for [`Client::outcome`]; `tag` learns which command it is, just
    /// before it is sent. EINVAL for calls without a transaction: nop, close, fsync and kin, locks, set_flags.
    pub fn detectable(mut self, tag: &'c Tag) -> Raw<'c> {
        self.how.tag = Some(tag);
        self
    }

    /// The same for handles of one session, see [`File::session`](crate::File::session): EBADF when it is over.
    pub fn of_session(mut self, session: u64) -> Raw<'c> {
        self.epoch = session;
        self
    }

    /// Whose calls they are, for which session, and how they run.
    pub(crate) fn parts(&self) -> (&'c Client, u64, How<'c>) {
        (self.client, self.epoch, self.how)
    }

    pub(crate) fn call<const I: usize, const O: usize>(
        &self,
        inputs: [Payload<'_>; I],
        rooms: [Room<'_>; O],
        build: impl Fn([PoolRange; I], [PoolRange; O]) -> Op,
        filled: impl Fn(&Cqe) -> [usize; O],
    ) -> Result<Cqe, Errno> {
        run(self.client, self.epoch, self.how, inputs, rooms, build, filled)
    }

    /// A call of which only success counts.
    pub(crate) fn act<const I: usize>(
        &self,
        inputs: [Payload<'_>; I],
        build: impl Fn([PoolRange; I]) -> Op,
    ) -> Result<Cqe, Errno> {
        let cqe = self.call(inputs, [], |ins, []| build(ins), none)?;
        cqe.ok().map(|_| cqe)
    }

    /// Does nothing, through the whole device.
    pub fn nop(&self) -> Result<(), Errno> {
        self.act([], |[]| Op::Nop).map(drop)
    }

    /// openat(2). `placeholder` is the id of an unbound placeholder descriptor of this session that shall stand for the
    /// new open file description, or 0. One can also be had later ([`Raw::share`]).
    pub fn openat(
        &self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
        placeholder: u32,
    ) -> Result<Opened, Errno> {
        let cqe = self.act([path.into()], |[path]| Op::Open {
            base,
            path,
            flags,
            mode: mode & 0o7777,
            placeholder,
            look: PoolRange::EMPTY,
            watch: 0,
        })?;
        let (mode, created) = (cqe.result2 as u32, cqe.result2 & CREATED != 0);
        Ok(Opened { handle: Handle::from_wire(cqe.result), mode, created })
    }

    /// close(2) of this session's handle. The open file description lives on while others hold it.
    pub fn close(&self, h: Handle) -> Result<(), Errno> {
        self.act([], |[]| Op::Close { h }).map(drop)
    }

    /// read(2) / pread(2): one command when `room` holds at most the session's payload limit, else several in order.
    /// Returns the bytes read; fewer than asked for only at the end of the file. When a later piece fails that is the
    /// call's error: `room` then holds anything, and an offset that moves is where it was.
    pub fn read<'r>(&self, h: Handle, at: At, room: impl Into<Room<'r>>) -> Result<usize, Errno> {
        let room = room.into();
        if room.len() <= self.client.payload_max() {
            return self.read_one(h, at, room);
        }
        let piece = self.client.payload_max();
        match room {
            Room::Bytes(bytes) => self.read_pieces(h, at, &mut bytes.chunks_mut(piece)),
            Room::Scatter(parts) => {
                self.read_pieces(h, at, &mut parts.iter_mut().flat_map(|part| part.chunks_mut(piece)))
            }
            Room::Pool(_) => Err(Errno::TOOBIG),
        }
    }

    fn read_pieces(&self, h: Handle, at: At, pieces: &mut dyn Iterator<Item = &mut [u8]>) -> Result<usize, Errno> {
        let mut done = 0;
        for piece in pieces {
            let asked = piece.len();
            let n =
                self.read_one(h, forward(at, done), Room::Bytes(piece)).inspect_err(|_| self.unread(h, at, done))?;
            done += n;
            if n < asked {
                break;
            }
        }
        Ok(done)
    }

    /// Takes an offset back that moved with the first pieces of a read: what they gave does not reach the caller.
    fn unread(&self, h: Handle, at: At, done: usize) {
        if at == At::Current && done > 0 {
            // Where this fails as well the session is over, and the offset with it.
            let _ = self.seek(h, Whence::Cur, -(done as i64));
        }
    }

    fn read_one(&self, h: Handle, at: At, room: Room<'_>) -> Result<usize, Errno> {
        let cqe = self.call([], [room], |[], [out]| Op::Read { h, at, out, watch: 0 }, by_result)?;
        cqe.ok().map(|(n, _)| n as usize)
    }

    /// write(2) / pwrite(2) / append ([`At::End`]): one atomic command up to the session's payload limit, else such
    /// pieces in order. Returns where the first byte went and how many were written; fewer than given only when a
    /// later piece failed (its error comes back at the next call).
    pub fn write<'p>(&self, h: Handle, at: At, data: impl Into<Payload<'p>>) -> Result<Written, Errno> {
        let data = data.into();
        if data.len() <= self.client.payload_max() {
            return self.write_one(h, at, data);
        }
        match data {
            Payload::Bytes(bytes) => self.write_pieces(h, at, &mut bytes.chunks(self.client.payload_max())),
            Payload::Gather(parts) => {
                let piece = self.client.payload_max();
                self.write_pieces(h, at, &mut parts.iter().flat_map(|part| part.chunks(piece)))
            }
            Payload::Pool(..) => Err(Errno::TOOBIG),
        }
    }

    fn write_pieces(&self, h: Handle, at: At, pieces: &mut dyn Iterator<Item = &[u8]>) -> Result<Written, Errno> {
        let mut total: Option<Written> = None;
        for piece in pieces {
            let done = total.map_or(0, |t| t.len);
            match (self.write_one(h, forward(at, done), piece.into()), &mut total) {
                (Ok(w), None) => total = Some(w),
                (Ok(w), Some(t)) => t.len += w.len,
                (Err(e), None) => return Err(e),
                (Err(_), Some(t)) => return Ok(*t),
            }
        }
        Ok(total.unwrap_or(Written { len: 0, offset: 0 }))
    }

    fn write_one(&self, h: Handle, at: At, data: Payload<'_>) -> Result<Written, Errno> {
        let cqe = self.act([data], |[src]| Op::Write { h, at, src })?;
        Ok(Written { len: cqe.result as usize, offset: cqe.result2 })
    }

    /// ftruncate(2).
    pub fn truncate(&self, h: Handle, size: u64) -> Result<(), Errno> {
        self.act([], |[]| Op::Truncate { h, size }).map(drop)
    }

    /// fallocate(2): atomic up to 128 MiB, in such pieces, in order, above (a hole is one command of any length).
    /// ENOSPC leaves the piece that met it without effect, and the pieces before it reserved.
    pub fn fallocate(&self, h: Handle, mode: FallocMode, off: u64, len: u64) -> Result<(), Errno> {
        let piece_max = if mode == FallocMode::Punch { u64::MAX } else { FALLOCATE_PIECE_BYTES };
        let (mut off, mut left) = (off, len);
        loop {
            let len = left.min(piece_max);
            self.act([], |[]| Op::Fallocate { h, mode, off, len })?;
            left -= len;
            if left == 0 {
                return Ok(());
            }
            off = off.checked_add(len).ok_or(Errno::FBIG)?;
        }
    }

    /// lseek(2); returns the new offset, bytes.
    pub fn seek(&self, h: Handle, whence: Whence, off: i64) -> Result<u64, Errno> {
        self.act([], |[]| Op::Seek { h, whence, off }).map(|cqe| cqe.result)
    }

    /// fsync(2): everything of this file is durable on return.
    pub fn fsync(&self, h: Handle) -> Result<(), Errno> {
        self.act([], |[]| Op::Fsync { h }).map(drop)
    }

    /// fdatasync(2): content and size are durable on return.
    pub fn fdatasync(&self, h: Handle) -> Result<(), Errno> {
        self.act([], |[]| Op::Fdatasync { h }).map(drop)
    }

    /// syncfs(2): everything completed before this call, by any client, is durable on return.
    pub fn syncfs(&self) -> Result<(), Errno> {
        self.act([], |[]| Op::Syncfs).map(drop)
    }

    /// fstat(2).
    pub fn stat(&self, h: Handle) -> Result<StatBody, Errno> {
        let mut body = StatBody::new_zeroed();
        let room = Room::Bytes(body.as_mut_bytes());
        self.call([], [room], |[], [out]| Op::Stat { h, out }, |_| [usize::MAX])?.ok()?;
        Ok(body)
    }

    /// fstatat(2) / statx(2). `nofollow`: report on a final symbolic link itself.
    pub fn statat(&self, base: Handle, path: &[u8], nofollow: bool) -> Result<StatBody, Errno> {
        let mut body = StatBody::new_zeroed();
        let room = Room::Bytes(body.as_mut_bytes());
        let build = |[path]: [_; 1], [out]: [_; 1]| Op::StatPath { base, path, nofollow, out };
        self.call([path.into()], [room], build, |_| [usize::MAX])?.ok()?;
        Ok(body)
    }

    /// fchmod(2), fchown(2), ftruncate(2), futimens(2), in one command, whichever fields the mask names.
    pub fn set_attr(&self, h: Handle, set: &SetAttrBody) -> Result<(), Errno> {
        self.act([set.as_bytes().into()], |[set]| Op::SetAttr { h, set }).map(drop)
    }

    /// The same by name.
    pub fn set_attr_at(&self, base: Handle, path: &[u8], nofollow: bool, set: &SetAttrBody) -> Result<(), Errno> {
        let build = |[path, set]: [_; 2]| Op::SetAttrPath { base, path, nofollow, set };
        self.act([path.into(), set.as_bytes().into()], build).map(drop)
    }

    /// Entries of a directory from `cookie` on (0 = start) as a stream for `weldfs_ciscops::Dirents`; returns its
    /// bytes, 0 at the end. EINVAL when the room holds not even one entry.
    pub fn read_dir<'r>(&self, h: Handle, cookie: u64, room: impl Into<Room<'r>>) -> Result<usize, Errno> {
        let cqe = self.call([], [room.into()], |[], [out]| Op::ReadDir { h, cookie, out }, by_result)?;
        cqe.ok().map(|(n, _)| n as usize)
    }

    /// Tests for a lock: the first one in the way of `kind` on the range (`len` 0 = to the end), if any.
    pub fn lock_get(
        &self,
        h: Handle,
        space: LockSpace,
        kind: LockKind,
        start: u64,
        len: u64,
        owner: u64,
    ) -> Result<Option<LockBody>, Errno> {
        let mut body = LockBody::new_zeroed();
        let room = Room::Bytes(body.as_mut_bytes());
        let action = LockAction::Get;
        let build = |[]: [PoolRange; 0], [out]: [_; 1]| Op::Lock { h, action, kind, space, start, len, owner, out };
        self.call([], [room], build, |_| [usize::MAX])?.ok()?;
        Ok((body.kind != LockKind::Unlock as u8).then_some(body))
    }

    /// Sets or removes a lock. Never waits: EAGAIN when another owner is in the way.
    pub fn lock_set(
        &self,
        h: Handle,
        space: LockSpace,
        kind: LockKind,
        start: u64,
        len: u64,
        owner: u64,
    ) -> Result<(), Errno> {
        let (action, out) = (LockAction::Set, PoolRange::EMPTY);
        self.act([], |[]| Op::Lock { h, action, kind, space, start, len, owner, out }).map(drop)
    }

    /// fcntl(F_SETFL): the settable flags of the open file description become those of `flags`.
    pub fn set_flags(&self, h: Handle, flags: OpenFlags) -> Result<(), Errno> {
        self.act([], |[]| Op::SetFlags { h, flags }).map(drop)
    }

    /// statfs(2).
    pub fn statfs(&self) -> Result<StatfsBody, Errno> {
        let mut body = StatfsBody::new_zeroed();
        let room = Room::Bytes(body.as_mut_bytes());
        self.call([], [room], |[], [out]| Op::Statfs { out }, |_| [usize::MAX])?.ok()?;
        Ok(body)
    }

    /// mkdirat(2).
    pub fn mkdirat(&self, base: Handle, path: &[u8], mode: u32) -> Result<(), Errno> {
        self.act([path.into()], |[path]| Op::Mkdir { base, path, mode: mode & 0o7777 }).map(drop)
    }

    /// unlinkat(2) with AT_REMOVEDIR.
    pub fn rmdirat(&self, base: Handle, path: &[u8]) -> Result<(), Errno> {
        self.act([path.into()], |[path]| Op::Rmdir { base, path }).map(drop)
    }

    /// unlinkat(2).
    pub fn unlinkat(&self, base: Handle, path: &[u8]) -> Result<(), Errno> {
        self.act([path.into()], |[path]| Op::Unlink { base, path }).map(drop)
    }

    /// renameat2(2).
    pub fn renameat(
        &self,
        from_base: Handle,
        from: &[u8],
        to_base: Handle,
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let build = |[from, to]: [_; 2]| Op::Rename { from_base, from, to_base, to, flags };
        self.act([from.into(), to.into()], build).map(drop)
    }

    /// linkat(2). `follow`: link to what a final symbolic link names.
    pub fn linkat(
        &self,
        from_base: Handle,
        from: &[u8],
        to_base: Handle,
        to: &[u8],
        follow: bool,
    ) -> Result<(), Errno> {
        let build = |[from, to]: [_; 2]| Op::Link { from_base, from, to_base, to, follow };
        self.act([from.into(), to.into()], build).map(drop)
    }

    /// symlinkat(2).
    pub fn symlinkat(&self, target: &[u8], base: Handle, path: &[u8]) -> Result<(), Errno> {
        self.act([target.into(), path.into()], |[target, path]| Op::Symlink { base, path, target }).map(drop)
    }

    /// readlinkat(2): bytes of the target put into `room`, cut to its length.
    pub fn readlinkat(&self, base: Handle, path: &[u8], room: &mut [u8]) -> Result<usize, Errno> {
        let build = |[path]: [_; 1], [out]: [_; 1]| Op::Readlink { base, path, out };
        let cqe = self.call([path.into()], [clip(room, self.client.payload_max()).into()], build, by_result)?;
        cqe.ok().map(|(n, _)| n as usize)
    }

    /// faccessat2(2).
    pub fn accessat(&self, base: Handle, path: &[u8], mask: AccessMask, nofollow: bool) -> Result<(), Errno> {
        self.act([path.into()], |[path]| Op::Access { base, path, mask, nofollow }).map(drop)
    }

    /// getxattr(2) and kin (empty `path`: of `base`). Returns the value's length; with an empty `room` nothing is
    /// copied. ERANGE when the room is too small, ENODATA when there is none.
    pub fn get_xattr(
        &self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        room: &mut [u8],
    ) -> Result<usize, Errno> {
        let build = |[path, name]: [_; 2], [out]: [_; 1]| Op::GetXattr { base, path, nofollow, name, out };
        let room = clip(room, self.client.payload_max());
        let cqe = self.call([path.into(), name.into()], [room.into()], build, by_result)?;
        cqe.ok().map(|(n, _)| n as usize)
    }

    /// setxattr(2) and kin.
    pub fn set_xattr(
        &self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let build = |[path, name, value]: [_; 3]| Op::SetXattr { base, path, nofollow, name, value, flags };
        self.act([path.into(), name.into(), value.into()], build).map(drop)
    }

    /// listxattr(2) and kin: names, each ended by NUL. As [`Raw::get_xattr`] for an empty or too small room.
    pub fn list_xattr(&self, base: Handle, path: &[u8], nofollow: bool, room: &mut [u8]) -> Result<usize, Errno> {
        let build = |[path]: [_; 1], [out]: [_; 1]| Op::ListXattr { base, path, nofollow, out };
        let room = clip(room, self.client.payload_max());
        let cqe = self.call([path.into()], [room.into()], build, by_result)?;
        cqe.ok().map(|(n, _)| n as usize)
    }

    /// removexattr(2) and kin.
    pub fn remove_xattr(&self, base: Handle, path: &[u8], nofollow: bool, name: &[u8]) -> Result<(), Errno> {
        let build = |[path, name]: [_; 2]| Op::RemoveXattr { base, path, nofollow, name };
        self.act([path.into(), name.into()], build).map(drop)
    }

    /// Placeholder descriptors of files that are open in this session, 1 to 16: by them another process may claim what
    /// they stand for. EBADF, EEXIST (one was claimed, or has a placeholder already), EMFILE, EOPNOTSUPP where the
    /// device makes none.
    pub fn share(&self, open: &[Handle]) -> Result<Vec<Placeholder>, Errno> {
        self.client.share(open)
    }

    /// Takes over the open file description that a placeholder descriptor (inherited, or received over a socket)
    /// stands for: a handle in this session on the same offset, flags and grant. EBADF when it stands for nothing.
    pub fn claim(&self, fd: BorrowedFd<'_>) -> Result<Claimed, Errno> {
        self.client.claim(fd, false)
    }

    /// Opens the file behind another process's placeholder: a description of its own, at offset 0, with the access of
    /// that one and without O_APPEND. Also of a file without a name; permission is not asked for again. EBADF as for
    /// [`Raw::claim`], ENFILE, EOPNOTSUPP (a virtual file; a directory of a host).
    pub fn claim_anew(&self, fd: BorrowedFd<'_>) -> Result<Claimed, Errno> {
        self.client.claim(fd, true)
    }
}

/// `at`, `done` bytes further on. `Current` and `End` move by themselves.
fn forward(at: At, done: usize) -> At {
    match at {
        At::Offset(off) => At::Offset(off.saturating_add(done as u64)),
        moving => moving,
    }
}

fn clip(room: &mut [u8], max: usize) -> &mut [u8] {
    let len = room.len().min(max);
    &mut room[..len]
}
