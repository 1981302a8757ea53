//! The library's own thread, one per queue that asked for it: how it starts without taking the program's signals, how
//! it rests, and how it is told to leave.

use std::time::Duration;
use weldfs_ciscops::Errno;
use weldfs_locks::{Condvar, Mutex};

/// Starts a thread that no signal is delivered to: handlers run on the program's own threads. EAGAIN when there can
/// be no more threads.
pub(super) fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    // SAFETY: both sets are locals of ours, filled before they are read; a thread inherits its maker's mask, which is
    // put back right after. Neither call can fail with these arguments.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed::<libc::sigset_t>());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let made = std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(body);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    made.map(drop).map_err(|e| Errno(e.raw_os_error().unwrap_or(Errno::AGAIN.0)))
}

#[derive(Default)]
struct State {
    asked: bool,
    stop: bool,
    asleep: bool,
}

/// Where the thread rests, and is told what is wanted of it.
#[derive(Default)]
pub(super) struct Park {
    state: Mutex<State>,
    bell: Condvar,
}

impl Park {
    /// Rests until asked; false when it shall leave.
    pub(super) fn rest(&self) -> bool {
        let mut state = self.state.lock();
        while !state.asked && !state.stop {
            self.bell.wait(&mut state);
        }
        state.asked = false;
        !state.stop
    }

    /// Has it look after the queue.
    pub(super) fn ask(&self) {
        let mut state = self.state.lock();
        if !state.asked {
            state.asked = true;
            self.bell.notify_all();
        }
    }

    /// Says that it goes to sleep on the ring, or has come back; false when it shall leave instead.
    pub(super) fn asleep(&self, asleep: bool) -> bool {
        let mut state = self.state.lock();
        state.asleep = asleep && !state.stop;
        if !asleep {
            self.bell.notify_all();
        }
        !state.stop
    }

    /// Tells it to leave, and waits until it no longer sleeps on the ring; `rouse` wakes it there.
    pub(super) fn stop(&self, rouse: impl Fn()) {
        let mut state = self.state.lock();
        state.stop = true;
        self.bell.notify_all();
        while state.asleep {
            rouse();
            // It may have been about to sleep when it was roused.
            self.bell.wait_for(&mut state, Duration::from_millis(1));
        }
    }
}
