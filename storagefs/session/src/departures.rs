//! Whoever waits until sessions are gone: told when one is, if it asked.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Says that sessions have gone. Thread-safe.
pub struct Departures {
    awaited: AtomicBool,
    /// An eventfd.
    bell: OwnedFd,
}

impl Departures {
    /// None is awaited. EMFILE when no eventfd is to be had.
    pub fn new() -> std::io::Result<Departures> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Departures { awaited: AtomicBool::new(false), bell })
    }

    /// A session is not among those that there are any more.
    pub fn note(&self) {
        if self.awaited.swap(false, Ordering::SeqCst) {
            // A counter that is full has been rung already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Asks to be told of the next one. What has gone before is to be looked at after this call.
    pub fn await_next(&self) {
        self.awaited.store(true, Ordering::SeqCst);
    }

    /// The bell was heard, and is silent again: whoever polls it says so each time, or does not sleep any more.
    pub fn heard(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Readable when one has gone since it was asked.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
