//! Queues of commands that are not waited for on the spot: made, reaped, watched by epoll; their buffers.

use crate::boundary::{call, count, given, hand_out, misuse, put, sized};
use crate::client::weldfs_client;
use crate::jobs::Jobs;
use crate::types::*;
use libc::{c_int, c_void};
use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use weldfs::{AsyncQueue, Errno, QueueBuf};

/// A queue of commands in flight, on a queue pair of its own. Any number of threads may use it at the same time.
///
/// Commands on one file run in the order they were submitted to this queue, others in any order. In a forked child
/// every call gives -EBADF.
pub struct weldfs_queue {
    pub(crate) queue: AsyncQueue,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) reaper: bool,
}

/// A buffer in a queue's pool, which the device reaches by itself. Its bytes are at weldfs_buf_data.
pub struct weldfs_buf {
    buf: QueueBuf,
    data: usize,
}

/// Makes a queue. `options` may be NULL. On success *queue is to be given back with weldfs_queue_destroy.
///
/// With WELDFS_QUEUE_REAPER a thread of the library waits for completions and runs the callbacks; a job without a
/// callback is then not reported. Without it, callbacks run in weldfs_queue_reap.
///
/// Errors: -EMFILE (a session has 64 queue pairs), -ENODEV, -EAGAIN (no more threads), -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_queue_create(
    client: Option<&weldfs_client>,
    options: *const weldfs_queue_options,
    queue: *mut *mut weldfs_queue,
) -> c_int {
    call("weldfs_queue_create", || {
        hand_out(queue, || {
            let wanted: weldfs_queue_options = sized(options, size_of::<usize>())?;
            if wanted.reserved0 != 0 || wanted.reserved != [0; 4] || wanted.flags & !WELDFS_QUEUE_REAPER != 0 {
                return Err(misuse("weldfs_queue_options: a reserved field or an unknown flag is set"));
            }
            let depth = if wanted.depth == 0 { 64 } else { wanted.depth };
            let pool_bytes = if wanted.pool_bytes == 0 { 1 << 20 } else { wanted.pool_bytes };
            let queue = given(client)?.client.async_queue(depth, pool_bytes)?;
            let reaper = wanted.flags & WELDFS_QUEUE_REAPER != 0;
            if reaper {
                queue.start_reaper()?;
            }
            Ok(weldfs_queue { queue, jobs: Arc::default(), reaper })
        })
    })
}

/// Gives a queue back; NULL does nothing. Commands in flight run all the same, but are not reported: no callback
/// starts and no memory of the program's is written to after this returns (a callback that runs on another thread at
/// this moment finishes there). With commands in flight it may take half a second. Buffers of the queue stay valid
/// until they are freed. No other call may use `queue` at the same time or later, and no callback that is still
/// running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_queue_destroy(queue: Option<Box<weldfs_queue>>) {
    call("weldfs_queue_destroy", || {
        let Some(queue) = queue else { return Ok(()) };
        if queue.queue.check().is_err() {
            // A thread of the parent may have held the lock, and have been at work on what it guards.
            std::mem::forget(queue.jobs.clone());
        } else {
            for job in queue.jobs.table.lock().jobs.iter_mut().flatten() {
                job.forgotten = true;
            }
        }
        Ok(())
    });
}

/// Makes submitted commands visible to the device: for those submitted with WELDFS_MORE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_queue_flush(queue: Option<&weldfs_queue>) -> c_int {
    call("weldfs_queue_flush", || Ok(given(queue)?.queue.flush()?))
}

/// Delivers at most `max` completions that are there: runs their callbacks, and copies each into `done` (an array of
/// `max`, or NULL if only callbacks count). Waits for the first up to `timeout_ms` milliseconds, 0: not at all, -1: as
/// long as it takes; not at all when nothing is in flight. Returns how many it delivered. When it finds none, the
/// eventfd stops being readable.
///
/// Completions of jobs without a callback that are delivered into NULL are lost. When the device died, what was in
/// flight is delivered with -EIO (its outcome is unknown) within a second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_queue_reap(
    queue: Option<&weldfs_queue>,
    done: *mut weldfs_completion,
    max: usize,
    timeout_ms: c_int,
) -> i64 {
    count("weldfs_queue_reap", || {
        let queue = given(queue)?;
        let wait = match timeout_ms {
            0 => None,
            n if n < 0 => Some(Duration::MAX),
            n => Some(Duration::from_millis(n as u64)),
        };
        let delivered = Cell::new(0);
        let each = |number, result| {
            if let Some(completion) = queue.jobs.deliver(number, result) {
                if !done.is_null() {
                    // SAFETY: by the header `done` has room for `max`, and fewer have been delivered before this one.
                    put(unsafe { done.add(delivered.get()) }, completion);
                }
                delivered.set(delivered.get() + 1);
            }
        };
        // Forgotten ones are taken, too, but not delivered.
        while queue.queue.reap(max, wait, |one| each(one.user, one.result))? > 0 && delivered.get() == 0 {}
        Ok(delivered.get() as i64)
    })
}

/// The descriptor that is readable while completions wait, for epoll and poll: from when something completed until a
/// weldfs_queue_reap found nothing. Reap until 0, then wait for it again (level- or edge-triggered). It may also be
/// readable for nothing. It belongs to the queue; do not close or read it.
///
/// The device wakes its clients by a futex, so the first call starts a thread of the library that turns this into the
/// descriptor; it sleeps while nothing is in flight. -EBUSY for a queue made with WELDFS_QUEUE_REAPER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_queue_eventfd(queue: Option<&weldfs_queue>) -> c_int {
    count("weldfs_queue_eventfd", || {
        let queue = given(queue)?;
        if queue.reaper {
            return Err(Errno::BUSY.into());
        }
        Ok(queue.queue.eventfd()?.as_raw_fd().into())
    }) as c_int
}

/// Commands submitted and not yet completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_queue_in_flight(queue: Option<&weldfs_queue>) -> i64 {
    count("weldfs_queue_in_flight", || Ok(given(queue)?.queue.in_flight().into()))
}

/// Forgets a job by its ticket. The command runs all the same (a command cannot be recalled), but its callback is not
/// called, no reap returns it, and memory of the program's that it named is the program's again at once. Memory in a
/// weldfs_buf stays the command's until it completes.
///
/// -ENOENT when there is no such job (any more): its completion has been delivered, or is being delivered by another
/// thread at this moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_forget(queue: Option<&weldfs_queue>, ticket: u64) -> c_int {
    call("weldfs_forget", || {
        let queue = given(queue)?;
        queue.queue.check()?;
        let mut table = queue.jobs.table.lock();
        let mut jobs = table.jobs.iter_mut().flatten();
        let job = jobs.find(|job| job.ticket == ticket && !job.forgotten).ok_or(Errno::NOENT)?;
        job.forgotten = true;
        Ok(())
    })
}

/// A buffer of `len` bytes of the queue's pool. On success *buf is to be given back with weldfs_buf_free. A submission
/// that names memory inside it copies nothing. -EAGAIN when the pool has no room now, -ENOMEM when it never will.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_buf_alloc(
    queue: Option<&weldfs_queue>,
    len: usize,
    buf: *mut *mut weldfs_buf,
) -> c_int {
    call("weldfs_buf_alloc", || {
        hand_out(buf, || {
            let mut buf = given(queue)?.queue.buffer(len)?;
            let data = buf.bytes_mut()?.as_mut_ptr() as usize;
            Ok(weldfs_buf { buf, data })
        })
    })
}

/// Where the buffer's bytes are; NULL for no buffer, and in a forked child. Aligned to its length rounded up to a power
/// of two, at most a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_buf_data(buf: Option<&weldfs_buf>) -> *mut c_void {
    match buf {
        Some(buf) if !buf.buf.bytes().is_empty() => buf.data as *mut c_void,
        _ => std::ptr::null_mut(),
    }
}

/// Bytes it holds; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_buf_len(buf: Option<&weldfs_buf>) -> usize {
    buf.map_or(0, |buf| buf.buf.len())
}

/// Gives a buffer back; NULL does nothing. While commands in flight use it, its memory stays theirs; the program must
/// no longer touch it all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_buf_free(buf: Option<Box<weldfs_buf>>) {
    call("weldfs_buf_free", || {
        drop(buf);
        Ok(())
    });
}
