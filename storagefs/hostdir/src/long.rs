//! Commands that take long: how many run at a time, whose turn it is, and what a thread does next.
//!
//! All threads but one may be inside them; the last one looks at rings, so what is short is always served. It stays the
//! same one: a command that computes, copies or walks is given to another thread, and the one that looks goes on. The
//! host's scheduler lets a thread that wakes run before those that have had more of the processors than it, and only
//! then, so the one that all others' short commands wait for must not have spent its share on others' long ones.
//! Only for a command that will sleep, until the host has made something durable, is the lookout handed on.
//!
//! A command that finds no thread is set aside, and its ring with it. A checksum, a batch and a listing are besides cut
//! in slices, after each of which they go behind those that wait: whoever has the fewest threads comes first (by
//! tenant, then by session), among equals who has waited longest. What cannot be cut (a sync, a call on one large
//! piece, a codec's step of a program) holds its thread as long as it takes, and no more of its client's do meanwhile
//! if another wants one. A program that was cut within a step would begin that step anew, and never end beside busy
//! others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use weldfs_locks::{Condvar, Mutex};

use super::work::{Client, Work};

/// Nanoseconds after which a batch or a listing gives way.
pub(super) const SLICE_NS: u64 = 2_000_000;

/// See the module.
pub(super) struct Long {
    /// Threads that may be inside them at a time; 0: there is but one, which looks between slices.
    most: usize,
    state: Mutex<State<Work>>,
    /// There may be something to do for a thread that has nothing to do.
    call: Condvar,
    waiting: AtomicUsize,
}

struct State<W> {
    running: Vec<Client>,
    aside: VecDeque<W>,
    /// No thread looks at rings.
    vacant: bool,
    over: bool,
}

/// What a thread does next.
#[allow(clippy::large_enum_variant)] // lives for one call; a box would be an allocation for each command
pub(super) enum Job {
    /// It looks at rings.
    Look,
    /// It runs this.
    Run(Work),
}

trait Of {
    fn client(&self) -> Client;
}

impl Of for Work {
    fn client(&self) -> Client {
        Work::client(self)
    }
}

impl<W: Of> State<W> {
    fn rank(&self, client: Client) -> (usize, usize) {
        let count = |same: &dyn Fn(&Client) -> bool| self.running.iter().filter(|c| same(c)).count();
        (count(&|c| c.0 == client.0), count(&|c| *c == client))
    }

    /// Takes what comes first out of those set aside, and gives it a thread.
    fn pick(&mut self) -> Option<W> {
        let at = (0..self.aside.len()).min_by_key(|at| self.rank(self.aside[*at].client()))?;
        let work = self.aside.remove(at)?;
        self.running.push(work.client());
        Some(work)
    }

    fn leave(&mut self, client: Client) {
        if let Some(at) = self.running.iter().position(|c| *c == client) {
            self.running.swap_remove(at);
        }
    }
}

impl Long {
    /// Of so many threads, none of which looks yet.
    pub fn new(threads: usize) -> Long {
        let (running, aside) = (Vec::with_capacity(threads), VecDeque::new());
        let state = Mutex::new(State { running, aside, vacant: true, over: false });
        Long { most: threads - 1, state, call: Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    /// Whether another thread could look at the rings meanwhile, or run something while this one does.
    pub fn spares_a_thread(&self) -> bool {
        self.most > 0
    }

    /// Whether commands are set aside.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn with<R>(&self, change: impl FnOnce(&mut State<Work>) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.waiting.store(state.aside.len(), Ordering::Relaxed);
        result
    }

    /// Waits for something to do; `None` at the end.
    pub fn job(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.over {
                return None;
            }
            if std::mem::take(&mut state.vacant) {
                return Some(Job::Look);
            }
            if state.running.len() < self.most
                && let Some(work) = state.pick()
            {
                self.waiting.store(state.aside.len(), Ordering::Relaxed);
                return Some(Job::Run(work));
            }
            self.call.wait(&mut state);
        }
    }

    /// The thread that looks goes on, and another runs this.
    pub fn give(&self, mut work: Work) {
        work.away = true;
        let called = self.with(|s| {
            s.aside.push_back(work);
            s.running.len() < self.most
        });
        if called {
            self.call.notify_one();
        }
    }

    /// The thread that looks is to run this itself, and has left the lookout to another one; `None` when it has been
    /// set aside, and the thread goes on looking.
    pub fn begin(&self, mut work: Work, leave: impl FnOnce()) -> Option<Work> {
        work.away = true;
        let mut state = self.state.lock();
        if state.running.len() == self.most {
            state.aside.push_back(work);
            self.waiting.store(state.aside.len(), Ordering::Relaxed);
            return None;
        }
        leave();
        state.running.push(work.client());
        state.vacant = true;
        drop(state);
        self.call.notify_one();
        Some(work)
    }

    /// No thread has anything to do any more.
    pub fn end(&self) {
        self.with(|s| s.over = true);
        self.call.notify_all();
    }

    /// After a slice that was run beside looking at the rings.
    pub fn set_aside(&self, work: Work) {
        self.with(|s| s.aside.push_back(work));
    }

    /// For the only thread: what is set aside.
    pub fn next(&self) -> Option<Work> {
        if self.spares_a_thread() { None } else { self.with(|s| s.aside.pop_front()) }
    }

    /// After a slice: what its thread runs next, this or another one.
    pub fn again(&self, work: Work) -> Option<Work> {
        self.with(|s| {
            s.leave(work.client());
            s.aside.push_back(work);
            s.pick()
        })
    }

    /// After the end of a client's command: what its thread runs next, if anything waits.
    pub fn over(&self, client: Client) -> Option<Work> {
        self.with(|s| {
            s.leave(client);
            s.pick()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Wants(Client, u32);

    impl Of for Wants {
        fn client(&self) -> Client {
            self.0
        }
    }

    #[test]
    fn who_has_the_fewest_threads_comes_first_and_then_who_has_waited_longest() {
        let running = vec![(0, 1), (0, 1), (1, 7)];
        let mut s = State { running, aside: VecDeque::new(), vacant: false, over: false };
        let greedy = |n| Wants((0, 1), n);
        s.aside.extend([greedy(0), greedy(1), Wants((0, 2), 2), Wants((1, 8), 3), Wants((2, 9), 4), greedy(5)]);
        let order: Vec<u32> = std::iter::from_fn(|| s.pick()).map(|w| w.1).collect();
        // No session of tenant 2 has one; then of tenant 1, by a session that has none; of tenant 0 its other session.
        assert_eq!(order, [4, 3, 2, 0, 1, 5]);
        (0..3).for_each(|_| s.leave((0, 1)));
        s.aside.extend([Wants((1, 7), 6), greedy(7)]);
        assert_eq!(s.pick().map(|w| w.1), Some(6), "two of tenant 1 against three of tenant 0");
    }
}
