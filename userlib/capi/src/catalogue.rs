//! Operations of the catalogue, each by a call that waits and by one that does not.

use crate::boundary::{call, given, put};
use crate::file::weldfs_file;
use crate::fused::payload;
use crate::jobs::Form;
use crate::queue::weldfs_queue;
use crate::submit::Start;
use crate::types::weldfs_job;
use libc::{c_int, c_void};
use weldfs::Errno;
use weldfs::template::AppendAndSync;

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
/// assert(weldfs_submit_append_and_sync(queue, file, "two", 3, &job) == 0);
/// assert(weldfs_queue_reap(queue, &done, 1, -1) == 1 && done.result == 0);
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
