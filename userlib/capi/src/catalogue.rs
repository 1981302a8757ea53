//! Operations of the catalogue, each by a call that waits and by one that does not.

use crate::boundary::{Fault, How, call, given, on, path, put};
use crate::client::weldfs_client;
use crate::file::weldfs_file;
use crate::fused::payload;
use crate::jobs::Form;
use crate::queue::weldfs_queue;
use crate::submit::Start;
use crate::types::weldfs_job;
use libc::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use weldfs::catalogue::Operand;
use weldfs::template::{AppendAndRotate, AppendAndSync};
use weldfs::{Errno, Handle};

/// Appends `len` bytes durably, whatever the client's durability: a write and an fdatasync as one command. *where,
/// unless NULL: where the first byte went. Errors: -EBADF, -E2BIG, -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_append_and_sync(
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    r#where: *mut u64,
) -> c_int {
    call("weldfs_append_and_sync", || {
        let file = given(file)?;
        let written = file.file.raw().append_and_sync(file.file.handle(), payload(from, len)?)?;
        put(r#where, written.offset);
        Ok(())
    })
}

/// Submits weldfs_append_and_sync: result is where the first byte went. The bytes are copied at once.
///
/// ```c
/// weldfs_file *file;
/// assert(weldfs_open(client, "/kept", O_WRONLY | O_CREAT, 0600, &file) == 0);
/// weldfs_job job = {.size = sizeof job};
/// weldfs_completion done;
/// assert(weldfs_submit_append_and_sync(queue, file, "one", 3, &job) == 0);
/// assert(weldfs_queue_reap(queue, &done, 1, -1) == 1 && done.result == 0);
/// assert(weldfs_submit_append_and_sync(queue, file, "two", 3, &job) == 0);
/// assert(weldfs_queue_reap(queue, &done, 1, -1) == 1 && done.result == 3);
/// assert(weldfs_close(file) == 0);
/// ```
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_append_and_sync(
    queue: Option<&weldfs_queue>,
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_append_and_sync", || {
        let mut start = Start::new(queue, job)?;
        let (h, data) = (start.on(file)?, payload(from, len)?);
        let op = AppendAndSync { h, len: u32::try_from(len).map_err(|_| Errno::TOOBIG)? };
        let (pending, _) = start.with.fused(&op, &[Some(data)])?;
        start.follow(pending, (0, 0), Form::Plain, None)
    })
}

/// Appends `len` bytes to the log `name`, as one command. A log that has bytes, and would have more than `limit`
/// afterwards, is renamed to `old` first (what was called so is gone), and the bytes are the beginning of a new file. A
/// file that is made gets `mode`, less the umask. Any number of processes may append to one log so: others, and what is
/// found after a crash, see all of a call or nothing (unless `how` has WELDFS_STEP_BY_STEP, and not on a directory of
/// the host). *where and *rotated, unless NULL: where the first byte went, and 1 if the log was renamed, else 0.
///
/// ```c
/// uint64_t where;
/// int rotated;
/// assert(weldfs_append_and_rotate(client, "/log", "/log.1", 10, 0640, "one two", 7, 0, &where, &rotated) == 0);
/// assert(where == 0 && rotated == 0);
/// assert(weldfs_append_and_rotate(client, "/log", "/log.1", 10, 0640, "!!!!", 4, 0, &where, &rotated) == 0);
/// assert(where == 0 && rotated == 1);
/// ```
///
/// Errors: those of open, write and rename; -ELOOP when `name` is a symbolic link, -E2BIG above the payload limit; when
/// the log is to be renamed, -EEXIST if both names are the same file's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_append_and_rotate(
    client: Option<&weldfs_client>,
    name: *const c_char,
    old: *const c_char,
    limit: u64,
    mode: u32,
    from: *const c_void,
    len: usize,
    how: u32,
    r#where: *mut u64,
    rotated: *mut c_int,
) -> c_int {
    call(on("weldfs_append_and_rotate", name), || {
        let client = &given(client)?.client;
        let op = rotation((name, old), limit, client.masked(mode), len)?;
        let data = Operand::In(payload(from, len)?.into());
        let appended = How::new(how)?.of(client.raw()).fused(&op, &mut [data])?;
        put(r#where, appended.offset);
        put(rotated, appended.rotated.into());
        Ok(())
    })
}

/// Submits weldfs_append_and_rotate, with no `how`: result is where the first byte went, value 1 if the log was
/// renamed, else 0. The bytes are copied at once.
///
/// ```c
/// weldfs_job job = {.size = sizeof job};
/// weldfs_completion done;
/// assert(weldfs_submit_append_and_rotate(queue, "/log", "/log.1", 10, 0640, "?", 1, &job) == 0);
/// assert(weldfs_queue_reap(queue, &done, 1, -1) == 1 && done.result == 4 && done.value == 0);
/// ```
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_append_and_rotate(
    queue: Option<&weldfs_queue>,
    name: *const c_char,
    old: *const c_char,
    limit: u64,
    mode: u32,
    from: *const c_void,
    len: usize,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_append_and_rotate", || {
        let start = Start::new(queue, job)?;
        let op = rotation((name, old), limit, start.with.masked(mode), len)?;
        let (pending, _) = start.with.fused(&op, &[Some(payload(from, len)?)])?;
        start.follow(pending, (0, 0), Form::Plain, None)
    })
}

fn rotation<'a>(
    (name, old): (*const c_char, *const c_char),
    limit: u64,
    mode: u32,
    len: usize,
) -> Result<AppendAndRotate<'a>, Fault> {
    let (path, old) = (path(name)?.as_os_str().as_bytes(), path(old)?.as_os_str().as_bytes());
    let (mode, len) = ((mode & 0o7777) as u16, u32::try_from(len).map_err(|_| Errno::TOOBIG)?);
    Ok(AppendAndRotate { base: Handle::ROOT, path, old, limit, mode, len })
}
