//! Calls of the host that take raw memory or change one thread only.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags, capabilities, set_capabilities};
use weldfs_ciscops::{Errno, SharedBytes};

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

/// Nanoseconds that a thread inside of a long command asks the host's scheduler for at a time: its deadline then is
/// behind that of any thread that wakes, which has 0.7 to 2.8 ms unasked; and those inside of long commands wait no
/// longer for each other than they need to.
const LONG_SLICE_NS: u64 = 20_000_000;

/// The niceness of a thread that computes while clients of several users are attached: a sixth of a thread's usual
/// weight. What wakes beside a thread of its own weight runs at once only if it has had no more than its share, and one
/// that has just run has had more, until the other has run as long; beside this one, a sixth of that.
const COMPUTES_NICE: i32 = 8;

/// As long as it lives, the thread that made it asks the host's scheduler for long time slices. It gets no more and no
/// less of a processor by it; but whoever asks for less and wakes on the same processor runs at once, and not at the
/// next tick (Linux 6.12 and later; Linux kernel documentation, "EEVDF Scheduler": a slice is asked for with
/// sched_setattr(2)). For a thread that computes: one that sleeps now and then would itself be woken late. Refused, or
/// of another class of scheduling, the thread stays as it is.
pub struct LongSlice {
    /// What it asked for before.
    before: Option<libc::sched_attr>,
    /// It is of one thread.
    _thread: PhantomData<*const ()>,
}

fn ask(attr: &libc::sched_attr) -> bool {
    // SAFETY: the structure outlives the call, which reads as many bytes of it as it says; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attr, 0) == 0 }
}

/// Runs something with the right to lower niceness in effect, if this thread may have it: also one that acts with the
/// rights of a client keeps it among those it may have. False if it may not.
pub(super) fn with_right_to_nice(run: impl FnOnce()) -> bool {
    let Ok(sets) = capabilities(None) else { return false };
    if !sets.permitted.contains(CapabilitySet::SYS_NICE) {
        return false;
    }
    let effective = sets.effective | CapabilitySet::SYS_NICE;
    if set_capabilities(None, CapabilitySets { effective, ..sets }).is_err() {
        return false;
    }
    run();
    // To have less is never refused.
    set_capabilities(None, sets).is_ok()
}

impl LongSlice {
    pub fn ask() -> LongSlice {
        LongSlice::of(false)
    }

    /// Of a thread that holds nothing that others wait for: `yields` has it take less of a processor that others want
    /// as well, if it may take as much again afterwards.
    pub fn of(yields: bool) -> LongSlice {
        // SAFETY: a structure of integers.
        let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::sched_attr>() as libc::c_uint;
        // SAFETY: the structure outlives the call, which writes at most `size` bytes to it; 0 is the calling thread.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
        attr.size = size;
        let fair = got == 0 && attr.sched_policy == libc::SCHED_OTHER as u32;
        let long = libc::sched_attr { sched_runtime: LONG_SLICE_NS, ..attr };
        let yielding = libc::sched_attr { sched_nice: COMPUTES_NICE, ..long };
        let mut asked = false;
        if fair && yields && attr.sched_nice < COMPUTES_NICE {
            // Where it would not come back from there it does not go.
            with_right_to_nice(|| asked = ask(&yielding));
        }
        asked |= fair && !asked && ask(&long);
        LongSlice { before: asked.then_some(attr), _thread: PhantomData }
    }
}

impl Drop for LongSlice {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && !ask(before)
        {
            with_right_to_nice(|| _ = ask(before));
        }
    }
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
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let cpu_ns = (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned();
        Usage { cpu_ns, sleeps: usage.ru_nvcsw.cast_unsigned() }
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
