//! Submissions: the calls that wait, without waiting.

use crate::boundary::{Fault, HINTS, call, durability, given, hinted, misuse, path, put, sized};
use crate::file::{place, weldfs_file};
use crate::fused::{change, payload};
use crate::jobs::{Form, Job, Tell};
use crate::queue::weldfs_queue;
use crate::types::*;
use libc::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use weldfs::aio::{Completed, Input, Refused, Space};
use weldfs::{AsyncQueue, Change, ChecksumKind, Errno, Handle, Hints, Op, OpenFlags, Pending, PoolRange};
use weldfs_ciscops::flags::RenameFlags;
use weldfs_ciscops::limits::ATOMIC_WRITE_MAX;
use weldfs_ciscops::{Modify, StatBody};

/// One submission in the making.
pub(crate) struct Start<'q> {
    queue: &'q weldfs_queue,
    pub(crate) with: AsyncQueue,
    job: weldfs_job,
}

impl<'q> Start<'q> {
    pub(crate) fn new(queue: Option<&'q weldfs_queue>, job: *const weldfs_job) -> Result<Start<'q>, Fault> {
        let queue = given(queue)?;
        let job: weldfs_job = sized(job, size_of::<usize>())?;
        if job.reserved != [0; 3] || job.flags & !(WELDFS_MORE | HINTS) != 0 {
            return Err(misuse("weldfs_job: a reserved field or an unknown flag is set"));
        }
        let with = match durability(job.durability)? {
            weldfs::Durability::Default => queue.queue.clone(),
            chosen => queue.queue.durability(chosen),
        };
        let with = match hinted(job.flags & HINTS)? {
            Hints::NONE => with,
            hints => with.hints(hints),
        };
        Ok(Start { queue, with, job })
    }

    /// The handle of a file, whose hints the command has, unless it has its own.
    pub(crate) fn on(&mut self, file: Option<&weldfs_file>) -> Result<Handle, Fault> {
        let file = &given(file)?.file;
        let hints = file.hints();
        if !hints.is_none() && self.job.flags & HINTS == 0 {
            self.with = self.with.hints(hints);
        }
        Ok(self.with.on(file)?)
    }

    /// Bytes to send: in place if they are in the queue's pool, else copied.
    pub(crate) fn input<'a>(&self, from: *const c_void, len: usize) -> Result<Input<'a>, Fault> {
        let data = payload(from, len)?;
        // SAFETY: by the header, memory in a buffer is the command's until it completes.
        match unsafe { self.with.place(data.as_ptr(), data.len()) } {
            Some(place) if len > 0 => Ok(Input::Place(place)),
            _ => Ok(Input::Bytes(data)),
        }
    }

    /// What the library itself fills later must stay the program's, which memory in a buffer may cease to be.
    pub(crate) fn not_in_the_pool(&self, at: *const c_void, len: usize) -> Result<(), Fault> {
        // SAFETY: nothing is done with the place.
        match unsafe { self.with.place(at.cast(), len) } {
            Some(_) => Err(misuse("this memory must not be in a weldfs_buf")),
            None => Ok(()),
        }
    }

    /// Room for `len` bytes, and where to copy them to afterwards.
    fn room(&self, into: *mut c_void, len: usize) -> Result<(Space, usize), Fault> {
        if len > ATOMIC_WRITE_MAX as usize {
            return Err(Errno::TOOBIG.into());
        }
        if into.is_null() && len > 0 {
            return Err(misuse("a buffer is NULL and its length is not 0"));
        }
        // SAFETY: as in `input`.
        match unsafe { self.with.place(into.cast_const().cast(), len) } {
            Some(place) if len > 0 => Ok((Space::Place(place), 0)),
            _ => Ok((Space::Fresh(len), into as usize)),
        }
    }

    fn send<const I: usize>(
        self,
        inputs: [Input<'_>; I],
        (space, into, len): (Space, usize, usize),
        form: Form,
        build: impl FnOnce([PoolRange; I], PoolRange) -> Op,
    ) -> Result<(), Fault> {
        // SAFETY: the operations built here name the ranges they are given and no others.
        let pending: Result<Pending<Completed>, Refused> = unsafe { self.with.command(inputs, space, build) };
        self.watch(pending.map_err(|refused| refused.errno)?, (into, len), form)
    }

    /// Says how the end of a command is reported, and sends it.
    fn watch<T>(self, pending: Pending<T>, to: (usize, usize), form: Form) -> Result<(), Fault> {
        self.follow(pending, to, form, None)
    }

    /// The same; and what else is told then.
    pub(crate) fn follow<T>(
        self,
        pending: Pending<T>,
        (into, len): (usize, usize),
        form: Form,
        also: Option<Box<dyn Tell>>,
    ) -> Result<(), Fault> {
        let (ticket, job) = (pending.sequence(), &self.job);
        put(job.ticket, ticket);
        let (done, data) = (job.done, job.data as usize);
        let number = self.queue.jobs.enter(Job { done, data, ticket, into, len, form, also, forgotten: false });
        match self.queue.reaper {
            true => pending.on_done(self.queue.jobs.clone(), number),
            false => pending.listed(number),
        }
        if job.flags & WELDFS_MORE == 0
            && let Err(e) = self.queue.queue.flush()
        {
            self.queue.jobs.leave(number);
            return Err(e.into());
        }
        Ok(())
    }

    /// A command without room.
    pub(crate) fn plain<const I: usize>(
        self,
        inputs: [Input<'_>; I],
        build: impl FnOnce([PoolRange; I]) -> Op,
    ) -> Result<(), Fault> {
        self.send(inputs, (Space::Fresh(0), 0, 0), Form::Plain, |ranges, _| build(ranges))
    }
}

/// Submits a command that does nothing.
///
/// All weldfs_submit_ functions return 0 when the command is on its way, and its result comes with the completion; or
/// at once -EAGAIN (the ring or the pool is full: reap, then try again), -EINVAL, -EBADF (also in a forked child),
/// -ENOMEM (it never fits the queue's pool), -ENODEV (the device is gone); then nothing was sent and nothing is called.
/// `job` may be NULL. Memory to read from is copied at once, unless it lies in a weldfs_buf of the same queue; memory
/// to read into, and any memory in a weldfs_buf, is the command's until it completes or is forgotten. Strings are
/// copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_nop(queue: Option<&weldfs_queue>, job: *const weldfs_job) -> c_int {
    call("weldfs_submit_nop", || Start::new(queue, job)?.plain([], |[]| Op::Nop))
}

/// Submits weldfs_pread: result is the bytes read. At most weldfs_info.payload_max bytes, else -E2BIG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_pread(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    into: *mut c_void,
    len: usize,
    offset: u64,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_pread", || {
        let mut start = Start::new(queue, job)?;
        let (h, (space, into)) = (start.on(file)?, start.room(into, len)?);
        let at = weldfs::At::Offset(offset);
        start.send([], (space, into, len), Form::Plain, |[], out| Op::Read { h, at, out, watch: 0 })
    })
}

/// Submits weldfs_pwrite (WELDFS_END: an append): result is the bytes written, value where the first went. At most
/// weldfs_info.payload_max bytes, else -E2BIG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_pwrite(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    offset: u64,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_pwrite", || {
        let mut start = Start::new(queue, job)?;
        let (h, data, at) = (start.on(file)?, start.input(from, len)?, place(offset));
        start.plain([data], |[src]| Op::Write { h, at, src })
    })
}

/// Submits weldfs_pwrite_verified: result and value as of weldfs_submit_pwrite, -EBADMSG when the checksum is another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_pwrite_verified(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    offset: u64,
    checksum: u32,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_pwrite_verified", || {
        let mut start = Start::new(queue, job)?;
        let (h, data, at) = (start.on(file)?, start.input(from, len)?, place(offset));
        let (kind, sum) = (ChecksumKind::Crc32c, checksum);
        start.plain([data], |[src]| Op::WriteVerified { h, at, src, kind, sum })
    })
}

/// Submits weldfs_open: result 0, created says whether the file is new. *file is NULL at once, and the open file when
/// the completion is delivered (not before: not in a callback of another job); it is to be given back as ever. `file`
/// must stay until then. When the job is forgotten, the file is closed again and *file stays NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_open(
    queue: Option<&weldfs_queue>,
    name: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut weldfs_file,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_open", || {
        if file.is_null() {
            return Err(misuse("where to put the file is NULL"));
        }
        let (start, flags) = (Start::new(queue, job)?, OpenFlags::from_linux(flags));
        put(file, std::ptr::null_mut());
        let pending = start.with.open(path(name)?, flags, mode)?;
        start.watch(pending, (file as usize, 0), Form::Opened)
    })
}

/// Submits weldfs_close: result 0. When this returns 0 the object is gone, and no other call may use it at the same
/// time or later; else it is the program's still. Commands on it that are in flight on other queues may be overtaken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_close(
    queue: Option<&weldfs_queue>,
    file: *mut weldfs_file,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_close", || {
        let mut start = Start::new(queue, job)?;
        // SAFETY: NULL, or by the header an open file that nothing else uses.
        let h = start.on(unsafe { file.as_ref() })?;
        start.plain([], |[]| Op::Close { h })?;
        // SAFETY: not NULL, and made by `Box` as every object; the caller has given it up. The command closes the
        // handle.
        unsafe { Box::from_raw(file) }.file.into_handle();
        Ok(())
    })
}

/// Submits weldfs_fsync: result 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_fsync(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_fsync", || {
        let mut start = Start::new(queue, job)?;
        let h = start.on(file)?;
        start.plain([], |[]| Op::Fsync { h })
    })
}

/// Submits weldfs_fdatasync: result 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_fdatasync(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_fdatasync", || {
        let mut start = Start::new(queue, job)?;
        let h = start.on(file)?;
        start.plain([], |[]| Op::Fdatasync { h })
    })
}

/// Submits weldfs_sync: result 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_sync(queue: Option<&weldfs_queue>, job: *const weldfs_job) -> c_int {
    call("weldfs_submit_sync", || Start::new(queue, job)?.plain([], |[]| Op::Syncfs))
}

/// Submits weldfs_ftruncate: result 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_ftruncate(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    bytes: u64,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_ftruncate", || {
        let mut start = Start::new(queue, job)?;
        let h = start.on(file)?;
        start.plain([], |[]| Op::Truncate { h, size: bytes })
    })
}

fn name<'a>(from: *const c_char) -> Result<Input<'a>, Fault> {
    Ok(Input::Bytes(path(from)?.as_os_str().as_bytes()))
}

/// Submits weldfs_unlink: result 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_unlink(
    queue: Option<&weldfs_queue>,
    path: *const c_char,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_unlink", || {
        Start::new(queue, job)?.plain([name(path)?], |[path]| Op::Unlink { base: Handle::ROOT, path })
    })
}

/// Submits weldfs_mkdir: result 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_mkdir(
    queue: Option<&weldfs_queue>,
    path: *const c_char,
    mode: u32,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_mkdir", || {
        let start = Start::new(queue, job)?;
        let mode = start.with.masked(mode);
        start.plain([name(path)?], |[path]| Op::Mkdir { base: Handle::ROOT, path, mode })
    })
}

impl Start<'_> {
    /// A command whose room is what stat says.
    fn stat<const I: usize>(
        self,
        inputs: [Input<'_>; I],
        stat: *mut weldfs_stat,
        build: impl FnOnce([PoolRange; I], PoolRange) -> Op,
    ) -> Result<(), Fault> {
        if stat.is_null() {
            return Err(misuse("where to put the attributes is NULL"));
        }
        self.not_in_the_pool(stat.cast(), size_of::<weldfs_stat>())?;
        self.send(inputs, (Space::Fresh(size_of::<StatBody>()), stat as usize, 0), Form::Stat, build)
    }
}

/// Submits weldfs_stat_path: result 0, and then *stat is filled when the completion is delivered. It may not lie in a
/// weldfs_buf.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_stat_path(
    queue: Option<&weldfs_queue>,
    path: *const c_char,
    stat: *mut weldfs_stat,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_stat_path", || {
        let build = |[path]: [_; 1], out| Op::StatPath { base: Handle::ROOT, path, nofollow: false, out };
        Start::new(queue, job)?.stat([name(path)?], stat, build)
    })
}

/// Submits weldfs_lstat_path: as weldfs_submit_stat_path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_lstat_path(
    queue: Option<&weldfs_queue>,
    path: *const c_char,
    stat: *mut weldfs_stat,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_lstat_path", || {
        let build = |[path]: [_; 1], out| Op::StatPath { base: Handle::ROOT, path, nofollow: true, out };
        Start::new(queue, job)?.stat([name(path)?], stat, build)
    })
}

/// Submits weldfs_fstat: as weldfs_submit_stat_path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_fstat(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    stat: *mut weldfs_stat,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_fstat", || {
        let mut start = Start::new(queue, job)?;
        let h = start.on(file)?;
        start.stat([], stat, |[], out| Op::Stat { h, out })
    })
}

/// Submits weldfs_rename: result 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_rename(
    queue: Option<&weldfs_queue>,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_rename", || {
        let flags = u8::try_from(flags).ok().and_then(RenameFlags::from_bits).ok_or(misuse("no such flags"))?;
        let (from_base, to_base) = (Handle::ROOT, Handle::ROOT);
        let build = |[from, to]: [_; 2]| Op::Rename { from_base, from, to_base, to, flags };
        Start::new(queue, job)?.plain([name(from)?, name(to)?], build)
    })
}

/// Submits weldfs_open_write_close: result is the bytes written, value where the first went, `created` whether the file
/// is new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_open_write_close(
    queue: Option<&weldfs_queue>,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    from: *const c_void,
    len: usize,
    offset: u64,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_open_write_close", || {
        let start = Start::new(queue, job)?;
        let (base, flags, at) = (Handle::ROOT, OpenFlags::from_linux(flags), place(offset));
        let mode = start.with.masked(mode);
        let inputs = [name(path)?, start.input(from, len)?];
        let build = |[path, src]: [_; 2], _| Op::OpenWriteClose { base, path, flags, mode, at, src };
        start.send(inputs, (Space::Fresh(0), 0, 0), Form::Placed, build)
    })
}

/// Submits weldfs_open_read_close: result is the bytes read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_open_read_close(
    queue: Option<&weldfs_queue>,
    path: *const c_char,
    flags: c_int,
    into: *mut c_void,
    len: usize,
    offset: u64,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_open_read_close", || {
        let start = Start::new(queue, job)?;
        let (base, flags) = (Handle::ROOT, OpenFlags::from_linux(flags));
        let (space, into) = start.room(into, len)?;
        let build = |[path]: [_; 1], out| Op::OpenReadClose { base, path, flags, offset, out };
        start.send([name(path)?], (space, into, len), Form::Plain, build)
    })
}

/// Submits weldfs_open_read_write_close: result is the bytes read, value where the write went, `created` whether the
/// file is new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_open_read_write_close(
    queue: Option<&weldfs_queue>,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    old: *mut c_void,
    old_len: usize,
    old_offset: u64,
    from: *const c_void,
    len: usize,
    offset: u64,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_open_read_write_close", || {
        let start = Start::new(queue, job)?;
        let (base, flags, at) = (Handle::ROOT, OpenFlags::from_linux(flags), place(offset));
        let (mode, read_off) = (start.with.masked(mode), old_offset);
        let (space, into) = start.room(old, old_len)?;
        let inputs = [name(path)?, start.input(from, len)?];
        let build =
            |[path, src]: [_; 2], out| Op::OpenReadWriteClose { base, path, flags, mode, read_off, out, at, src };
        start.send(inputs, (space, into, old_len), Form::Placed, build)
    })
}

/// Submits weldfs_append_checksum_write: result is where the first byte went, value the checksum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_append_checksum_write(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_append_checksum_write", || {
        let mut start = Start::new(queue, job)?;
        let (h, kind, data) = (start.on(file)?, ChecksumKind::Crc32c, start.input(from, len)?);
        start.plain([data], |[src]| Op::AppendChecksumWrite { h, kind, src })
    })
}

/// Submits weldfs_read_checksum_verify: result is not negative when the bytes match, -EBADMSG when they do not; value
/// is the checksum of those that are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_read_checksum_verify(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    into: *mut c_void,
    len: u32,
    offset: u64,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_read_checksum_verify", || {
        let mut start = Start::new(queue, job)?;
        let (h, kind) = (start.on(file)?, ChecksumKind::Crc32c);
        let wanted = if into.is_null() { 0 } else { len as usize };
        let (space, into) = start.room(into, wanted)?;
        let build = |[]: [_; 0], out| Op::ReadChecksumVerify { h, kind, offset, len, out };
        start.send([], (space, into, wanted), Form::FilledAlsoWith(Errno::BADMSG), build)
    })
}

/// Submits weldfs_read_modify_write: result is not negative when the field was changed, -ECANCELED when a
/// compare-and-swap found something else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_read_modify_write(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    offset: u64,
    kind: c_int,
    operand: *const c_void,
    expect: *const c_void,
    len: usize,
    old: *mut c_void,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_read_modify_write", || {
        let mut start = Start::new(queue, job)?;
        let (h, change) = (start.on(file)?, change(kind, operand, expect, len)?);
        let wanted = if old.is_null() { 0 } else { len };
        let (space, into) = start.room(old, wanted)?;
        let (room, form) = ((space, into, wanted), Form::FilledAlsoWith(Errno::CANCELED));
        let len = len as u32;
        let op = |modify, out| Op::ReadModifyWrite { h, offset, len, modify, out };
        match change {
            Change::Add { by, .. } => start.send([], room, form, |[], out| op(Modify::Add(by), out)),
            Change::Patch(bytes) => start.send([bytes.into()], room, form, |[src], out| op(Modify::Patch(src), out)),
            Change::Xor(bytes) => start.send([bytes.into()], room, form, |[src], out| op(Modify::Xor(src), out)),
            Change::CompareSwap { expect, new } => {
                let build = |[expect, new]: [_; 2], out| op(Modify::CompareSwap { expect, new }, out);
                start.send([expect.into(), new.into()], room, form, build)
            }
        }
    })
}

/// Submits weldfs_checksum_range: result is the bytes there were, value their checksum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_checksum_range(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    offset: u64,
    len: u64,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_checksum_range", || {
        let mut start = Start::new(queue, job)?;
        let (h, kind) = (start.on(file)?, ChecksumKind::Crc32c);
        let len = len.min((i64::MAX as u64).saturating_sub(offset));
        start.plain([], |[]| Op::ChecksumRange { h, kind, offset, len })
    })
}
