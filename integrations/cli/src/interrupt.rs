//! Ctrl-C as a flag, for verbs that take long and want to end in order.

use crate::failure::{Doing, Failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weldfs_kernel_shim::Signals;

/// While it lives, SIGINT and SIGTERM set a flag instead of ending the process; a second one ends it.
pub struct Interrupt {
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on.
    pub fn catch() -> Result<Interrupt, Failure> {
        let signals = Signals::install().doing("catch signals for", "this process")?;
        let flag = Arc::new(AtomicBool::new(false));
        let seen = flag.clone();
        std::thread::spawn(move || {
            let bell = signals.bell().try_clone();
            let Ok(bell) = bell else { return };
            let mut fds = [rustix::event::PollFd::new(&bell, rustix::event::PollFlags::IN)];
            while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut fds, None) {}
            seen.store(true, Relaxed);
            // Whoever presses it again means it: the handlers are put back here.
            drop(signals);
        });
        Ok(Interrupt { flag })
    }

    /// Whether a signal came.
    pub fn flag(&self) -> &AtomicBool {
        &self.flag
    }
}
