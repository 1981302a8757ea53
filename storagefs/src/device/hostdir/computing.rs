//! How many threads compute at a time.
//!
//! A device's threads are as many as may wait for the host at once, which is more than the machine has processors. Were
//! all of them to compress, whatever else is to run would wait until the host's scheduler takes one of them away. So
//! half of the processors compute, or walk a long way along paths, and threads take turns at it, in the order in which
//! they asked.

use weldfs_locks::{Condvar, Mutex};

use super::sys::LongSlice;
use crate::device::clock::now_ns;

/// Nanoseconds after which a thread that computes gives way to one that waits for it.
const TURN_NS: u64 = 1_000_000;

/// See the module. Thread-safe.
pub(super) struct Computing {
    most: u64,
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    /// Turns that were asked for, and those of them that are over.
    asked: u64,
    ended: u64,
}

/// A turn; over when dropped.
pub(super) struct Turn<'c> {
    of: &'c Computing,
    begun: u64,
    /// Threads that serve are to find a processor meanwhile.
    _long: LongSlice,
}

impl Computing {
    /// Of a machine with so many processors.
    pub fn new(processors: usize) -> Computing {
        Computing { most: (processors as u64 / 2).max(1), state: Mutex::default(), over: Condvar::new() }
    }

    /// Waits for a turn. Those that have one never wait for those that wait, as they hold nothing that others need.
    /// `yields`: nor do others wait for what is done in it, so it may take less of a processor that they want as well.
    pub fn turn(&self, yields: bool) -> Turn<'_> {
        let mut state = self.state.lock();
        let mine = state.asked;
        state.asked += 1;
        while mine >= state.ended + self.most {
            self.over.wait(&mut state);
        }
        Turn { of: self, begun: now_ns(), _long: LongSlice::of(yields) }
    }
}

#[cfg(test)]
impl Computing {
    /// How many wait for a turn.
    pub fn waiting(&self) -> u64 {
        let state = self.state.lock();
        (state.asked - state.ended).saturating_sub(self.most)
    }
}

impl Turn<'_> {
    /// Whether another thread waits, and this turn has been long enough.
    pub fn is_due(&self) -> bool {
        now_ns().saturating_sub(self.begun) > TURN_NS && {
            let state = self.of.state.lock();
            state.asked > state.ended + self.of.most
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.state.lock().ended += 1;
        // Each knows whether it is the one.
        self.of.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_compute_than_may_and_all_come_to_their_turn_in_order() {
        let (computing, inside) = (Computing::new(4), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let turn = computing.turn(false);
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        let state = computing.state.lock();
        assert_eq!((state.asked, state.ended), (1000, 1000));
    }

    #[test]
    fn a_turn_is_given_up_only_where_another_waits_and_it_was_long() {
        let computing = Computing::new(1);
        let turn = computing.turn(false);
        assert!(!turn.is_due());
        std::thread::sleep(std::time::Duration::from_nanos(2 * TURN_NS));
        assert!(!turn.is_due(), "nothing waits");
        std::thread::scope(|scope| {
            scope.spawn(|| drop(computing.turn(false)));
            while !turn.is_due() {
                std::thread::yield_now();
            }
            drop(turn);
        });
    }
}
