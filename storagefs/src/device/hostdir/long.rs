//! Commands that take long: how many run at a time, and whose turn it is.
//!
//! All threads but one may be inside them; the last one looks at rings, so what is short is always served. A command
//! that finds no thread is set aside, and its ring with it. A checksum, a batch and a listing are besides cut in
//! slices, after each of which they go behind those that wait: whoever has the fewest threads comes first (by tenant,
//! then by session), among equals who has waited longest. What cannot be cut (a sync, a call on one large piece, a
//! codec's step of a program) holds its thread as long as it takes, and no more of its client's do meanwhile if another
//! wants one. A program that was cut within a step would begin that step anew, and never end beside busy others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use weldfs_locks::Mutex;

use super::lookout::Work;

/// Nanoseconds after which a batch or a listing gives way.
pub(super) const SLICE_NS: u64 = 2_000_000;

/// Who has a thread: tenant and session.
pub(super) type Client = (u32, u64);

/// See the module.
pub(super) struct Long {
    /// Threads that may be inside them at a time; 0: there is but one, which looks between slices.
    most: usize,
    state: Mutex<State<Work>>,
    waiting: AtomicUsize,
}

struct State<W> {
    running: Vec<Client>,
    aside: VecDeque<W>,
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
    /// Of so many threads.
    pub fn new(threads: usize) -> Long {
        let state = State { running: Vec::with_capacity(threads), aside: VecDeque::new() };
        Long { most: threads - 1, state: Mutex::new(state), waiting: AtomicUsize::new(0) }
    }

    /// Whether another thread could look at the rings meanwhile.
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

    /// The calling thread is to run this, and another to look at the rings; `None` when it has been set aside.
    pub fn begin(&self, work: Work) -> Option<Work> {
        self.with(|s| {
            if s.running.len() < self.most {
                s.running.push(work.client());
                return Some(work);
            }
            s.aside.push_back(work);
            None
        })
    }

    /// After a slice that was run beside looking at the rings.
    pub fn set_aside(&self, work: Work) {
        self.with(|s| s.aside.push_back(work));
    }

    /// For whoever looks at the rings: what is set aside and may run now; whether the thread it takes is counted, so
    /// that another one is to look.
    pub fn next(&self) -> Option<(Work, bool)> {
        self.with(|s| {
            if self.most == 0 {
                return s.aside.pop_front().map(|work| (work, false));
            }
            if s.running.len() < self.most { s.pick().map(|work| (work, true)) } else { None }
        })
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
        let mut s = State { running: vec![(0, 1), (0, 1), (1, 7)], aside: VecDeque::new() };
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
