//! The lock of all names below the directory: shared by those that only look, or held alone; in the order of arrival
//! within a tenant, and tenants in turn: of those who wait, one of each tenant comes before the second of any. A tenant
//! with as many slow renames under way as there are threads keeps another one waiting for one of them, not for all.
//!
//! A walk that is long lets it go in passing ([`Guard::pass`]), so whoever waits must be sure to be next: a lock that
//! lets others barge in would be taken again by the one that has just let go. Only the one that is next is woken: each
//! of the others would take a processor to find that it is not. And no thread offers its processor to
//! others (sched_yield(2)): the host's scheduler then takes a whole time slice, 4 ms, from a thread that may hold
//! tickets, and from the one that looks at rings.

use std::collections::VecDeque;
use std::thread::Thread;
use std::time::{Duration, Instant};

use weldfs_locks::{Mutex, MutexGuard};

/// See the module. Thread-safe; taken twice by one thread it is a deadlock.
#[derive(Default)]
pub(super) struct NameLock {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shared: usize,
    alone: bool,
    /// The tenant of the one that holds it alone.
    holder: Option<u32>,
    /// Who waits, in order. Few: no more than there are threads.
    line: VecDeque<Waiting>,
    next: u64,
}

struct Waiting {
    number: u64,
    tenant: u32,
    alone: bool,
    /// Parked.
    thread: Thread,
}

impl State {
    fn admits(&self, alone: bool) -> bool {
        !self.alone && (!alone || self.shared == 0)
    }

    /// Whether whoever comes now need not wait.
    fn is_free(&self, alone: bool) -> bool {
        self.line.is_empty() && self.admits(alone)
    }

    /// How many of a tenant have it alone, or wait for it before that place in the line.
    fn before(&self, place: usize, tenant: u32) -> usize {
        let waiting = self.line.range(..place).filter(|other| other.tenant == tenant).count();
        usize::from(self.holder == Some(tenant)) + waiting
    }

    /// Gives one of this tenant its place in the line: before all that have more of their own before them. Its number.
    fn line_up(&mut self, tenant: u32, alone: bool) -> u64 {
        let (number, end) = (self.next, self.line.len());
        self.next += 1;
        let mine = self.before(end, tenant);
        let place = (0..end).find(|at| self.before(*at, self.line[*at].tenant) > mine).unwrap_or(end);
        self.line.insert(place, Waiting { number, tenant, alone, thread: std::thread::current() });
        number
    }

    fn enter(&mut self, tenant: u32, alone: bool) {
        (self.alone, self.holder) = (alone, alone.then_some(tenant));
        self.shared += usize::from(!alone);
    }

    /// Wakes the one that is next, if its time has come.
    fn call(&self) {
        if let Some(first) = self.line.front().filter(|first| self.admits(first.alone)) {
            first.thread.unpark();
        }
    }
}

/// The lock, held; let go of when dropped.
pub(super) struct Guard<'l> {
    of: &'l NameLock,
    tenant: u32,
    alone: bool,
}

impl NameLock {
    /// Waits until its tenant's turn has come, and all of its own that came before have had it.
    pub fn take(&self, tenant: u32, alone: bool) -> Guard<'_> {
        loop {
            if let Some(guard) = self.take_until(tenant, alone, None) {
                return guard;
            }
        }
    }

    /// The same if it need not wait.
    pub fn try_take(&self, tenant: u32, alone: bool) -> Option<Guard<'_>> {
        let mut state = self.state.lock();
        if !state.is_free(alone) {
            return None;
        }
        state.enter(tenant, alone);
        Some(Guard { of: self, tenant, alone })
    }

    /// The same, for at most so long.
    pub fn try_take_for(&self, tenant: u32, alone: bool, time: Duration) -> Option<Guard<'_>> {
        self.take_until(tenant, alone, Some(Instant::now() + time))
    }

    fn take_until(&self, tenant: u32, alone: bool, until: Option<Instant>) -> Option<Guard<'_>> {
        let mut state = self.state.lock();
        if !state.is_free(alone) {
            let me = state.line_up(tenant, alone);
            while state.line.front().is_none_or(|first| first.number != me) || !state.admits(alone) {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                // A thread may have been unparked for something else: it looks again.
                MutexGuard::unlocked(&mut state, &self.state, || match left {
                    None => std::thread::park(),
                    Some(left) => std::thread::park_timeout(left),
                });
                if left == Some(Duration::ZERO) {
                    state.line.retain(|other| other.number != me);
                    state.call();
                    return None;
                }
            }
            state.line.pop_front();
            state.enter(tenant, alone);
            // Those that only look come in together.
            state.call();
            return Some(Guard { of: self, tenant, alone });
        }
        state.enter(tenant, alone);
        Some(Guard { of: self, tenant, alone })
    }

    /// How many wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.state.lock().line.len()
    }

    fn let_go(&self, alone: bool) {
        let mut state = self.state.lock();
        match alone {
            true => (state.alone, state.holder) = (false, None),
            false => state.shared -= 1,
        }
        state.call();
    }
}

impl Guard<'_> {
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether others wait.
    pub fn is_wanted(&self) -> bool {
        !self.of.state.lock().line.is_empty()
    }

    /// Of those who wait by now, one of each tenant has it first; whether any did.
    pub fn pass(&mut self) -> bool {
        if !self.is_wanted() {
            return false;
        }
        self.of.let_go(self.alone);
        // Not dropped meanwhile: what is taken here is this guard's again.
        std::mem::forget(self.of.take(self.tenant, self.alone));
        true
    }

    /// From being alone to looking only, without letting go.
    pub fn share(&mut self) {
        if std::mem::take(&mut self.alone) {
            let mut state = self.of.state.lock();
            (state.alone, state.holder, state.shared) = (false, None, 1);
            state.call();
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.of.let_go(self.alone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_alone_or_many_that_look_and_none_is_lost() {
        let (lock, inside) = (NameLock::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..6usize {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let alone = (thread + round) % 3 == 0;
                        let adds = if alone { 100 } else { 1 };
                        let taken = match round % 7 {
                            0 => lock.try_take_for(thread as u32 % 3, alone, Duration::from_micros(50)),
                            _ => Some(lock.take(thread as u32 % 3, alone)),
                        };
                        let Some(mut guard) = taken else { continue };
                        for _ in 0..2 {
                            let others = inside.fetch_add(adds, Ordering::SeqCst);
                            assert!(if alone { others == 0 } else { others < 100 }, "{others} beside {alone}");
                            inside.fetch_sub(adds, Ordering::SeqCst);
                            guard.pass();
                        }
                        guard.share();
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 100);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let state = lock.state.lock();
        assert_eq!((state.shared, state.alone, state.line.len()), (0, false, 0));
    }

    #[test]
    fn whoever_waits_is_next_and_none_that_comes_later() {
        let (lock, order) = (NameLock::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let mut guard = lock.take(7, true);
            for n in 0..3 {
                let (lock, order) = (&lock, &order);
                scope.spawn(move || {
                    let _guard = lock.take(7, n != 1);
                    order.lock().push(n);
                });
                while lock.waiting() < n + 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            guard.pass();
            // It comes behind all three, though it asked for it first when it let go.
            assert_eq!(*order.lock(), [0, 1, 2]);
            assert!(lock.try_take_for(7, false, Duration::from_millis(1)).is_none());
            guard.share();
            assert!(lock.try_take_for(7, false, Duration::from_millis(1)).is_some_and(|g| !g.is_alone()));
            assert!(lock.try_take_for(7, true, Duration::from_millis(1)).is_none());
        });
    }

    #[test]
    fn one_of_each_tenant_comes_before_the_second_of_any() {
        let (lock, order) = (NameLock::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let guard = lock.take(1, true);
            // Tenant and number, in the order in which they come.
            for (n, tenant) in [1, 1, 1, 2, 2, 3].into_iter().enumerate() {
                let (lock, order) = (&lock, &order);
                scope.spawn(move || {
                    let _guard = lock.take(tenant, true);
                    order.lock().push((tenant, n));
                });
                while lock.waiting() < n + 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            drop(guard);
        });
        // The first to have it was of tenant 1.
        assert_eq!(*order.lock(), [(2, 3), (3, 5), (1, 0), (2, 4), (1, 1), (1, 2)]);
    }
}
