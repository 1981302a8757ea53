//! What commands of one ring usually take of a thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Default)]
pub struct Pace {
    /// By the clock, nanoseconds.
    wall: AtomicU64,
    /// Of those that were looked at closely: processor time, or, if they slept, time.
    close: AtomicU64,
    /// How many of those that took long, in 65,536, slept.
    sleep: AtomicU64,
}

fn mean(of: &AtomicU64, n: u64, new: u64) {
    // (Of two threads at once, one is forgotten.)
    of.store(((n - 1) * of.load(Ordering::Relaxed) + new) / n, Ordering::Relaxed);
}

impl Pace {
    /// Nanoseconds from which on others should not wait for such a command.
    const SLOW_NS: u64 = 64_000;
    /// What a single one counts for at most: the thread may have been interrupted.
    const MOST_NS: u64 = 4 * Pace::SLOW_NS;

    /// Whether a thread that looks at rings should run none of its commands.
    pub fn is_slow(&self) -> bool {
        self.close.load(Ordering::Relaxed) > Pace::SLOW_NS
    }

    /// Whether its commands, slow or not, leave a processor to others soon.
    pub fn is_brief(&self) -> bool {
        self.close.load(Ordering::Relaxed) < Pace::MOST_NS / 2
    }

    /// Whether the next one is to be looked at closely: by the clock, which goes on while the thread waits for a
    /// processor or for other commands, they take long, or the last one did.
    pub fn is_suspect(&self) -> bool {
        self.wall.load(Ordering::Relaxed) >= Pace::MOST_NS / 8
    }

    /// A command has taken so long by the clock, and, if it was looked at, so long of its thread.
    pub fn note(&self, wall: u64, close: Option<u64>) {
        mean(&self.wall, 8, wall.min(Pace::MOST_NS));
        match close {
            Some(ns) => mean(&self.close, 3, ns.min(Pace::MOST_NS)),
            None if !self.is_suspect() => self.close.store(0, Ordering::Relaxed),
            None => {}
        }
    }

    /// Whether those that take long are asleep for some of it, rather than keeping a processor.
    pub fn sleeps(&self) -> bool {
        self.sleep.load(Ordering::Relaxed) > 1 << 14
    }

    /// One that took long has slept, or has not.
    pub fn note_sleep(&self, slept: bool) {
        mean(&self.sleep, 16, u64::from(slept) << 16);
    }
}
