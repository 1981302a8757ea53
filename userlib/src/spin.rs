//! How long to spin before sleeping. A wake-up through the kernel costs some ten microseconds, so a wait that ends
//! sooner is better spun; a wait that lasts longer only burns the core that the device may need. Where others want the
//! processors, it sleeps at once (`weldfs_waiting` says why).

use std::time::{Duration, Instant};
use weldfs_waiting::crowd;

/// Nanoseconds spun at least, so that a device that became fast is noticed. Well above what waking a sleeping peer
/// costs, or both sides, once asleep, would go on waking each other for ever.
const SPIN_NS_MIN: u64 = 15_000;
/// Nanoseconds spun at most.
const SPIN_NS_MAX: u64 = 60_000;
/// Looks at the ring between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 32;

/// The adaptive budget of one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spin {
    budget_ns: u64,
    yields: u64,
}

impl Default for Spin {
    fn default() -> Self {
        Spin { budget_ns: SPIN_NS_MAX, yields: 0 }
    }
}

impl Spin {
    /// Spins until `done` or the budget is spent, or no longer than a moment where others want the processors; whether
    /// it was done.
    #[inline]
    pub(crate) fn run(&mut self, mut done: impl FnMut() -> bool) -> bool {
        let look = |done: &mut dyn FnMut() -> bool| {
            (0..LOOKS_PER_CLOCK).any(|_| {
                std::hint::spin_loop();
                done()
            })
        };
        if look(&mut done) {
            return true;
        }
        let crowd = crowd();
        if crowd.is_there() {
            return done();
        }
        let _spinning = crowd.spin();
        let start = Instant::now();
        let budget = Duration::from_nanos(self.budget_ns);
        let mut last = start;
        loop {
            if look(&mut done) {
                return true;
            }
            let now = Instant::now();
            if crowd.missed(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX)) || now - start >= budget {
                return done();
            }
            last = now;
            // With more threads of its own than processors, the one that would answer may wait for this very one.
            std::thread::yield_now();
            self.yields += 1;
        }
    }

    /// Times it gave the core away: one system call each.
    pub(crate) fn yields(&self) -> u64 {
        self.yields
    }

    /// Tells how long a wait took that did not end while spinning, sleep included.
    pub(crate) fn slept(&mut self, total: Duration) {
        let total_ns = u64::try_from(total.as_nanos()).unwrap_or(u64::MAX);
        self.budget_ns = if total_ns <= 2 * SPIN_NS_MAX {
            (self.budget_ns * 2).min(SPIN_NS_MAX)
        } else {
            (self.budget_ns / 2).max(SPIN_NS_MIN)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_shrink_the_budget_to_its_floor_and_short_ones_restore_it() {
        let mut spin = Spin::default();
        for _ in 0..20 {
            spin.slept(Duration::from_millis(3));
        }
        assert_eq!(spin.budget_ns, SPIN_NS_MIN);
        for _ in 0..20 {
            spin.slept(Duration::from_micros(12));
        }
        assert_eq!(spin.budget_ns, SPIN_NS_MAX);
    }
}
