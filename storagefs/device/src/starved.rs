//! Who leaves a command in its ring for want of something that others hold, and whoever gives something back: one of
//! the two sees the other. A file by itself, so that `ciscops/tests/loom/board.rs` can run this very code.

use super::sync::{AtomicBool, Ordering, fence};

/// A note that a command stays in its ring until something else ends.
pub struct Starved {
    noted: AtomicBool,
    /// Several cores look at it. A single one sees what it has said itself.
    shared: bool,
}

impl Starved {
    /// None is.
    pub fn new(shared: bool) -> Starved {
        Starved { noted: AtomicBool::new(false), shared }
    }

    /// Both sides write, then read what the other writes: without a full fence between, each may read too early.
    #[inline]
    fn fence(&self) {
        if self.shared {
            fence(Ordering::SeqCst);
        }
    }

    /// Says that one is. To be said before the look that decides: what is given back after that look finds the
    /// note, and what was given back before is seen by the look.
    pub fn note(&self) {
        self.noted.store(true, Ordering::Relaxed);
        self.fence();
    }

    /// After something was given back: true when one is to be told; asked once.
    #[inline]
    pub fn take(&self) -> bool {
        self.fence();
        self.noted.load(Ordering::Relaxed) && self.noted.swap(false, Ordering::Relaxed)
    }
}
