//! Calls of the host that take raw memory or change one thread only.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::thread::UnshareFlags;
use weldfs_ciscops::{Errno, SharedBytes};

use weldfs_session::clock::cpu_ns;

fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(Errno::IO.0))
}

fn moved(n: libc::ssize_t) -> Result<usize, Errno> {
    usize::try_from(n).map_err(|_| last())
}

fn at(off: u64) -> Result<libc::off_t, Errno> {
    libc::off_t::try_from(off).map_err(|_| Errno::FBIG)
}

/// Reads at an offset, straight into the client's pool: the host's kernel makes the one copy.
pub fn read_to(fd: BorrowedFd<'_>, to: SharedBytes<'_>, off: u64) -> Result<usize, Errno> {
    let off = at(off)?;
    // SAFETY: the pointer is valid for writes of `len` bytes as long as `to` lives; no reference is made to them, and
    // the client that may write them meanwhile spoils its own bytes only.
    moved(unsafe { libc::pread(fd.as_raw_fd(), to.as_mut_ptr().cast(), to.len(), off) })
}

/// Writes at an offset, straight from the client's pool.
pub fn write_from(fd: BorrowedFd<'_>, from: SharedBytes<'_>, off: u64) -> Result<usize, Errno> {
    let off = at(off)?;
    // SAFETY: the pointer is valid for reads of `len` bytes as long as `from` lives; no reference is made to them.
    // What the client writes there meanwhile may or may not be what the file gets: it is the client's own content.
    moved(unsafe { libc::pwrite(fd.as_raw_fd(), from.as_ptr().cast(), from.len(), off) })
}

/// Takes or gives back a byte range for the open file description behind `fd`; `len` 0: to the end. EAGAIN when
/// another process of the host holds it.
pub fn lock_range(fd: impl AsFd, kind: libc::c_int, start: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: a structure of integers.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = at(start)?;
    range.l_len = at(len)?;
    // SAFETY: the structure outlives the call, and the descriptor is open.
    let rc = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    match rc {
        0 => Ok(()),
        _ => Err(match last() {
            Errno::ACCES => Errno::AGAIN,
            other => other,
        }),
    }
}

/// Gives the calling thread a umask (and working directory) of its own.
pub fn own_umask() -> rustix::io::Result<()> {
    // SAFETY: the table of descriptors stays shared; only what a file mode is masked with becomes the thread's own.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
}

/// What this thread has used so far.
pub struct Usage {
    /// Nanoseconds of a processor.
    pub cpu_ns: u64,
    /// How often it has slept, for whatever it waited.
    pub sleeps: u64,
}

impl Usage {
    pub fn now() -> Usage {
        // SAFETY: a structure of integers, which outlives the call that fills it; the call is of the calling thread.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        // (What getrusage(2) says of a thread's time may be a tick old.)
        Usage { cpu_ns: cpu_ns(), sleeps: usage.ru_nvcsw.cast_unsigned() }
    }
}

/// Keeps every signal from this thread: they are for the process's other threads, and a file that reaches a limit is
/// an error here, not the end.
pub fn no_signals() {
    // SAFETY: the set is filled before it is used, and the mask of this thread only is changed.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}
