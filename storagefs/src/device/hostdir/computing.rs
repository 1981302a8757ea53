//! How many threads compute at a time.
//!
//! A device's threads are as many as may wait for the host at once, which is more than the machine has processors. Were
//! all of them to compress, whatever else is to run would wait until the host's scheduler takes one of them away. So
//! half of the processors compute, sum up, or walk a long way along paths, and threads take turns at it, in the order
//! in which they asked.
//!
//! And whoever computes, sums up or walks a long way looks now and then whether the thread that looks at rings gets on
//! ([`Breath`]). A thread that a client's thread has displaced may be in debt to the one that computes beside it, for
//! it has just run, and the host's scheduler would have it wait for the end of a slice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// What the thread that looks at rings does: it counts its looks, and says when it sleeps.
#[derive(Default)]
pub(super) struct Beat(AtomicU64);

/// In [`Beat`]: it is awake.
const AWAKE: u64 = 1;

impl Beat {
    /// It looks.
    pub fn looks(&self) {
        // Of one thread at a time.
        self.0.store((self.0.load(Ordering::Relaxed) | AWAKE).wrapping_add(2), Ordering::Relaxed);
    }

    /// It goes to sleep.
    pub fn sleeps(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) & !AWAKE, Ordering::Relaxed);
    }
}

/// A thread that looks at rings, and has not for so long, may be kept from it by the one that computes.
const STUCK_NS: u64 = 40_000;

/// What a thread that takes long has seen of the one that looks at rings.
#[derive(Default)]
pub(super) struct Breath {
    beat: u64,
    since: u64,
}

impl Breath {
    /// If the other thread is awake and does not get on, this one sleeps for a moment, once for each look of it.
    /// Whether it did.
    pub fn take(&mut self, of: &Beat) -> bool {
        let (beat, now) = (of.0.load(Ordering::Relaxed), now_ns());
        if beat != self.beat {
            (self.beat, self.since) = (beat, now);
            return false;
        }
        let stuck = beat & AWAKE != 0 && self.since != 0 && now.saturating_sub(self.since) > STUCK_NS;
        if stuck {
            self.since = 0;
            // (What the kernel makes of it are some fifty microseconds: prctl(2), PR_SET_TIMERSLACK.)
            std::thread::sleep(Duration::from_nanos(1));
        }
        stuck
    }
}

#[derive(Default)]
struct State {
    /// Turns that were asked for, and those of them that are over.
    asked: u64,
    ended: u64,
}

/// A turn; over when dropped.
pub(super) struct Turn {
    of: Arc<Computing>,
    begun: u64,
    /// Threads that serve are to find a processor meanwhile.
    _long: LongSlice,
}

impl Computing {
    /// Of a machine with so many processors.
    pub fn new(processors: usize) -> Arc<Computing> {
        Arc::new(Computing { most: (processors as u64 / 2).max(1), state: Mutex::default(), over: Condvar::new() })
    }

    /// Waits for a turn. Those that have one never wait for those that wait, as they hold nothing that others need.
    /// `yields`: nor do others wait for what is done in it, so it may take less of a processor that they want as well.
    pub fn turn(self: &Arc<Self>, yields: bool) -> Turn {
        let mut state = self.state.lock();
        let mine = state.asked;
        state.asked += 1;
        while mine >= state.ended + self.most {
            self.over.wait(&mut state);
        }
        Turn { of: self.clone(), begun: now_ns(), _long: LongSlice::of(yields) }
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

impl Turn {
    /// Whether another thread waits, and this turn has been long enough.
    pub fn is_due(&self) -> bool {
        now_ns().saturating_sub(self.begun) > TURN_NS && {
            let state = self.of.state.lock();
            state.asked > state.ended + self.of.most
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.of.state.lock().ended += 1;
        // Each knows whether it is the one.
        self.of.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

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
    fn a_breath_is_taken_once_where_the_other_thread_is_awake_and_does_not_get_on() {
        let (beat, mut breath) = (Beat::default(), Breath::default());
        let mut took = || breath.take(&beat);
        let stuck = || std::thread::sleep(Duration::from_nanos(2 * STUCK_NS));
        beat.looks();
        assert!(!took(), "it has just looked");
        stuck();
        assert!(took());
        stuck();
        assert!(!took(), "once is enough for it to be there");
        beat.looks();
        assert!(!took());
        beat.sleeps();
        assert!(!took());
        stuck();
        assert!(!took(), "it sleeps");
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
