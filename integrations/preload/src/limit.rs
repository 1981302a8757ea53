//! The limit of file sizes (RLIMIT_FSIZE, `ulimit -f`): the kernel, whose it is, sees no write to the device, so it is
//! kept here, as write(2), truncate(2) and setrlimit(2) say: bytes up to it are written, and what would begin or grow
//! beyond it is EFBIG and a signal. It is read when the program starts and when it sets one; that another process sets
//! it (prlimit) is not seen. Without a limit it costs one load of memory for each write.

use crate::abi::Res;
use crate::{device, sys};
use std::sync::atomic::{AtomicU64, Ordering};
use weldfs_ciscops::flags::{OpenFlags, Whence};
use weldfs_ciscops::{At, Handle};

const NONE: u64 = libc::RLIM_INFINITY;
static LIMIT: AtomicU64 = AtomicU64::new(NONE);

/// Reads the limit.
pub fn learn() {
    let mut limit = libc::rlimit { rlim_cur: NONE, rlim_max: NONE };
    let args = [0, libc::RLIMIT_FSIZE as usize, 0, &raw mut limit as usize, 0, 0];
    if sys::checked(libc::SYS_prlimit64, args).is_ok() {
        LIMIT.store(limit.rlim_cur, Ordering::Relaxed);
    }
}

/// How many of `n` bytes may be written. EFBIG: none, and the signal was sent.
#[inline]
pub fn writable(h: Handle, at: At, flags: OpenFlags, n: usize) -> Res<usize> {
    let limit = LIMIT.load(Ordering::Relaxed);
    // That a descriptor cannot write at all is said first.
    if limit == NONE || !flags.contains(OpenFlags::WRITE) {
        return Ok(n);
    }
    cut(h, at, flags.contains(OpenFlags::APPEND), n, limit)
}

#[cold]
fn cut(h: Handle, at: At, append: bool, n: usize, limit: u64) -> Res<usize> {
    let from = match at {
        At::Offset(off) if !append => off,
        At::Current if !append => device::on(|d| d.seek(h, Whence::Cur, 0))?,
        _ => device::on(|d| d.stat(h))?.size,
    };
    match limit.saturating_sub(from) {
        0 if n > 0 => Err(exceeded()),
        left => Ok(n.min(usize::try_from(left).unwrap_or(usize::MAX))),
    }
}

/// Whether a file may get this size; `now` is the one that it has, or none where the change will be refused anyway.
/// EFBIG: it would grow beyond the limit, and the signal was sent.
#[inline]
pub fn sizable(size: u64, now: impl FnOnce() -> Option<u64>) -> Res<()> {
    let limit = LIMIT.load(Ordering::Relaxed);
    if limit == NONE || size <= limit || now().is_none_or(|now| size <= now) { Ok(()) } else { Err(exceeded()) }
}

/// The signal is the calling thread's, as the kernel sends it.
fn exceeded() -> i32 {
    let [process, thread] = [libc::SYS_getpid, libc::SYS_gettid].map(|call| sys::call(call, [0; 6]) as usize);
    sys::call(libc::SYS_tgkill, [process, thread, libc::SIGXFSZ as usize, 0, 0, 0]);
    libc::EFBIG
}
