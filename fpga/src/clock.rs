//! Time as the card sees it: the machine's, or a test's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weldfs_locks::{Condvar, Mutex, MutexGuard};

/// A wait that is shorter, nanoseconds, is not slept: the thread would be woken too late.
const SLEEP_ABOVE_NS: u64 = 200_000;
/// A wait that is no longer, nanoseconds, costs less than any other way to wait.
const SPIN_NS: u64 = 5_000;
/// By so much earlier it is woken, nanoseconds.
const WAKE_EARLY_NS: u64 = 80_000;

/// Nanoseconds since some moment. Cheap to clone; clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Machine(Instant),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's monotonic clock.
    pub fn machine() -> Clock {
        Clock(Source::Machine(Instant::now()))
    }

    /// A clock that stands still until [`Clock::advance`] is called.
    pub fn manual() -> Clock {
        Clock(Source::Manual(Arc::default()))
    }

    /// Moves a manual clock; the machine's is not moved. Who waits for a time is woken by [`crate::card::Card::tick`].
    pub fn advance(&self, ns: u64) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(ns, Ordering::AcqRel);
        }
    }

    /// Now, ns.
    pub fn now(&self) -> u64 {
        match &self.0 {
            Source::Machine(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Source::Manual(now) => now.load(Ordering::Acquire),
        }
    }

    /// Whether the time `until` has come, or comes so soon that this thread had better wait for it.
    pub(crate) fn reaches(&self, until: u64) -> bool {
        if let Source::Machine(_) = self.0
            && until.saturating_sub(self.now()) <= SPIN_NS
        {
            while self.now() < until {
                std::hint::spin_loop();
            }
        }
        self.now() >= until
    }

    /// Waits for `condition`, at most until the time `until`. May return early.
    pub(crate) fn wait<'m, T>(
        &self,
        condition: &Condvar,
        mutex: &'m Mutex<T>,
        guard: &mut MutexGuard<'m, T>,
        until: Option<u64>,
    ) {
        match (&self.0, until) {
            (Source::Machine(_), Some(until)) => match until.saturating_sub(self.now()) {
                0 => {}
                left if left > SLEEP_ABOVE_NS => {
                    condition.wait_for(guard, Duration::from_nanos(left - WAKE_EARLY_NS));
                }
                _ => MutexGuard::unlocked(guard, mutex, std::thread::yield_now),
            },
            _ => condition.wait(guard),
        }
    }
}
