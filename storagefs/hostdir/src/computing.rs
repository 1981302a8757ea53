//! How many threads compute at a time.
//!
//! A device's threads are as many as may wait for the host at once, which is more than the machine has processors. Were
//! all of them to compress, whatever else is to run would wait until the host's scheduler takes one of them away. So
//! half of the processors compute, sum up, or walk a long way along paths, and threads take turns at it: first those of
//! the tenant that has had the least, then in the order in which they asked. Where clients of several users are
//! attached, so does whatever else takes long, but what sleeps meanwhile, and single calls of the host that have no end
//! (truncate, fallocate).
//!
//! And whoever computes, sums up or walks a long way looks now and then whether the thread that looks at rings gets on
//! ([`Breath`]). A thread that a client's thread has displaced may be in debt to the one that computes beside it, for
//! it has just run, and the host's scheduler would have it wait for the end of a slice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weldfs_ciscops::pool::BREATH;
use weldfs_locks::{Condvar, Mutex};
use weldfs_waiting::Slice;

use weldfs_session::clock::now_ns;

/// Nanoseconds after which a thread that computes gives way to one that waits for it.
const TURN_NS: u64 = 1_000_000;

/// The niceness of a thread that computes while clients of several users are attached: a sixth of a thread's usual
/// weight. What wakes beside a thread of its own weight runs at once only if it has had no more than its share, and one
/// that has just run has had more, until the other has run as long; beside this one, a sixth of that.
const COMPUTES_NICE: i32 = 8;

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
            std::thread::sleep(BREATH);
        }
        stuck
    }
}

#[derive(Default)]
struct State {
    running: u64,
    /// Whoever waits: tenant, and which one it is.
    line: Vec<(u32, u64)>,
    next: u64,
    /// Those of the line whose turn it is.
    called: Vec<u64>,
    /// Nanoseconds that tenants have had, and what the one had that was called last: start-time fair queueing (Goyal,
    /// Vin and Cheng, "Start-time Fair Queuing", SIGCOMM 1996), with a credit for those that come seldom.
    used: Vec<(u32, u64)>,
    at: u64,
}

/// Nanoseconds that a tenant may be behind the others when it comes.
const CREDIT_NS: u64 = 5_000_000;

impl State {
    /// What a tenant has had.
    fn used(&mut self, tenant: u32) -> &mut u64 {
        let least = self.at.saturating_sub(CREDIT_NS);
        // Who has had less counts as having had that.
        self.used.retain(|(of, used)| *of == tenant || *used > least);
        let at = self.used.iter().position(|(of, _)| *of == tenant).unwrap_or_else(|| {
            self.used.push((tenant, least));
            self.used.len() - 1
        });
        let used = &mut self.used[at].1;
        *used = least.max(*used);
        used
    }

    /// Where nothing runs and nothing waits, whoever has had more than others is not behind them any more.
    fn rest(&mut self) {
        if self.running == 0 && self.line.is_empty() {
            self.at = self.used.iter().map(|(_, used)| *used).fold(self.at, u64::max);
        }
    }

    /// Calls whoever is next, if there is one, and a turn.
    fn call(&mut self, most: u64) {
        while self.running < most {
            let line = std::mem::take(&mut self.line);
            let next = line.iter().min_by_key(|(tenant, number)| (*self.used(*tenant), *number)).copied();
            self.line = line;
            let Some((tenant, number)) = next else { return };
            let used = *self.used(tenant);
            self.at = used.max(self.at);
            self.line.retain(|(_, other)| *other != number);
            self.called.push(number);
            self.running += 1;
        }
    }
}

/// A turn; over when dropped.
pub(super) struct Turn {
    of: Arc<Computing>,
    tenant: u32,
    begun: u64,
    /// Others do not wait for what is done in it.
    pub yields: bool,
    /// Threads that serve are to find a processor meanwhile.
    _long: Slice,
}

impl Computing {
    /// Of a machine with so many processors.
    pub fn new(processors: usize) -> Arc<Computing> {
        Arc::new(Computing { most: (processors as u64 / 2).max(1), state: Mutex::default(), over: Condvar::new() })
    }

    /// Waits for a turn; of those that wait, who has had the least comes first. Those that have one never wait for
    /// those that wait, as they hold nothing that others need. `yields`: nor do others wait for what is done in it, so
    /// it may take less of a processor that they want as well.
    pub fn turn(self: &Arc<Self>, tenant: u32, yields: bool) -> Turn {
        let mut state = self.state.lock();
        let mine = state.next;
        state.next += 1;
        state.line.push((tenant, mine));
        state.call(self.most);
        loop {
            if let Some(at) = state.called.iter().position(|called| *called == mine) {
                state.called.swap_remove(at);
                break;
            }
            self.over.wait(&mut state);
        }
        drop(state);
        let long = if yields { Slice::long_and_nice(COMPUTES_NICE) } else { Slice::long() };
        Turn { of: self.clone(), tenant, begun: now_ns(), yields, _long: long }
    }
}

#[cfg(test)]
impl Computing {
    /// How many wait for a turn.
    pub fn waiting(&self) -> u64 {
        self.state.lock().line.len() as u64
    }
}

impl Turn {
    /// Whether another thread waits, and this turn has been long enough.
    pub fn is_due(&self) -> bool {
        now_ns().saturating_sub(self.begun) > TURN_NS && !self.of.state.lock().line.is_empty()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let took = now_ns().saturating_sub(self.begun);
        let mut state = self.of.state.lock();
        *state.used(self.tenant) += took;
        state.running -= 1;
        state.call(self.of.most);
        state.rest();
        let called = !state.called.is_empty();
        drop(state);
        if called {
            // Each knows whether it is the one.
            self.of.over.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    #[test]
    fn no_more_compute_than_may_and_all_come_to_their_turn_in_order() {
        let (computing, inside) = (Computing::new(4), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let turn = computing.turn(0, false);
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        let state = computing.state.lock();
        assert_eq!((state.next, state.running, state.line.len(), state.called.len()), (1000, 0, 0, 0));
    }

    #[test]
    fn whoever_has_computed_the_least_comes_first() {
        let mut state = State::default();
        let mut order = Vec::new();
        // Three threads of one tenant ask for turns of a millisecond without end, and one of another one now and then.
        for n in 0..30 {
            state.line.push((7, n));
        }
        for round in 0..30 {
            if round % 5 == 4 {
                state.line.push((9, 1000 + round));
            }
            state.call(1);
            let called = state.called.pop().unwrap();
            let tenant = if called < 1000 { 7 } else { 9 };
            order.push(tenant);
            *state.used(tenant) += 1_000_000;
            state.running = 0;
        }
        assert!((0..30).all(|round| (order[round] == 9) == (round % 5 == 4)), "{order:?}");
        // And one that has had nothing for long does not keep the others away for as long.
        (0..30).for_each(|n| state.line.push((11, 2000 + n)));
        let mut mine = 0;
        for _ in 0..20 {
            state.call(1);
            let tenant = if state.called.pop().unwrap() >= 2000 { 11 } else { 7 };
            mine += usize::from(tenant == 11);
            *state.used(tenant) += 1_000_000;
            state.running = 0;
        }
        assert!((11..=14).contains(&mine), "{mine} of 20");
        // Nor does one that was alone for long wait for as long.
        state.line.clear();
        *state.used(7) += 10_000_000_000;
        state.rest();
        let behind = *state.used(7) - *state.used(9);
        assert!(behind <= CREDIT_NS, "{behind}");
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
        let turn = computing.turn(0, false);
        assert!(!turn.is_due());
        std::thread::sleep(std::time::Duration::from_nanos(2 * TURN_NS));
        assert!(!turn.is_due(), "nothing waits");
        std::thread::scope(|scope| {
            scope.spawn(|| drop(computing.turn(0, false)));
            while !turn.is_due() {
                std::thread::yield_now();
            }
            drop(turn);
        });
    }
}
