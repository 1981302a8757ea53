//! SIGTERM and SIGINT as a readable descriptor.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Where the handler writes; -1 while there is nowhere.
static BELL: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(_: libc::c_int) {
    let fd = BELL.load(Ordering::Relaxed);
    if fd >= 0 {
        let one = 1u64.to_ne_bytes();
        // SAFETY: write(2) is async-signal-safe; the buffer is on this stack; a closed descriptor only gives EBADF.
        unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
    }
}

/// Makes SIGTERM and SIGINT ring an eventfd for as long as the result lives. One at a time per process.
pub struct Signals {
    bell: OwnedFd,
    before: [(libc::c_int, libc::sighandler_t); 2],
}

impl Signals {
    /// Installs the handlers.
    pub fn install() -> io::Result<Signals> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        BELL.store(bell.as_raw_fd(), Ordering::SeqCst);
        let handler = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        let set = |signal| {
            // SAFETY: the handler only loads an atomic and calls write(2).
            (signal, unsafe { libc::signal(signal, handler) })
        };
        Ok(Signals { bell, before: [set(libc::SIGTERM), set(libc::SIGINT)] })
    }

    /// Readable once a signal came.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, before) in self.before {
            if before != libc::SIG_ERR {
                // SAFETY: puts back what was installed before.
                unsafe { libc::signal(signal, before) };
            }
        }
        BELL.store(-1, Ordering::SeqCst);
    }
}
