//! Commands of a ring that have stepped aside: they gave their tickets up to wait (for room, for the gate of names)
//! after the next ones of their ring had been let in.
//!
//! Tickets keep the order of commands that share an inode. One that gives its tickets up would be passed by those
//! behind it: `truncate`, `write` and `close` of one handle, sent together, would end without the write. So it says
//! here that it stepped aside, before it lets go, until it heads its queues again; and each later one of its ring that
//! heads its queues meanwhile steps aside, too, and begins again in its turn. None that waits here holds tickets or a
//! plan, so what it waits for can come. Nothing is answered past the slots of a ring that has such a command.
//!
//! Almost always there is none: one load says so.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use weldfs_locks::Mutex;

/// Of one ring. Thread-safe.
#[derive(Default)]
pub(super) struct Aside {
    /// Commands that were given a slot so far.
    taken: AtomicU64,
    /// How many are in the list.
    len: AtomicU32,
    list: Mutex<Vec<One>>,
}

/// A command that stepped aside.
struct One {
    position: u64,
    /// Those that wait until it heads its queues.
    behind: Vec<Waker>,
}

/// Says that a command stands aside, as long as it lives.
pub(super) struct Standing<'a> {
    aside: &'a Aside,
    position: u64,
}

impl Aside {
    /// The place in the ring of the command that was taken just now. Commands of a ring are taken one by one.
    pub fn position(&self) -> u64 {
        self.taken.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether none stands aside.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// The command steps aside. Call it before tickets are given up.
    pub fn step(&self, position: u64) -> Standing<'_> {
        let mut list = self.list.lock();
        list.push(One { position, behind: Vec::new() });
        self.len.store(list.len() as u32, Ordering::Release);
        Standing { aside: self, position }
    }

    /// Whether one that came before stands aside. A command that shares an inode with it and holds it now sees that: it
    /// was said before the inode was given up.
    #[inline]
    pub fn is_behind(&self, position: u64) -> bool {
        !self.is_empty() && self.list.lock().iter().any(|one| one.position < position)
    }

    /// Waits until none that came before stands aside. Call it without tickets.
    pub async fn turn(&self, position: u64) {
        poll_fn(|cx| {
            let mut list = self.list.lock();
            match list.iter_mut().find(|one| one.position < position) {
                None => Poll::Ready(()),
                Some(one) => {
                    if !one.behind.iter().any(|w| w.will_wake(cx.waker())) {
                        one.behind.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await;
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let mut list = self.aside.list.lock();
        let at = list.iter().position(|one| one.position == self.position);
        let behind = at.map(|at| list.swap_remove(at).behind);
        self.aside.len.store(list.len() as u32, Ordering::Release);
        drop(list);
        behind.into_iter().flatten().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Rung(AtomicU32);

    impl Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn later_ones_wait_for_all_that_came_before_and_for_no_other() {
        let aside = Aside::default();
        let [first, second, third, fourth] = [(); 4].map(|()| aside.position());
        assert!(aside.is_empty() && !aside.is_behind(fourth));
        let (a, c) = (aside.step(first), aside.step(third));
        assert!(!aside.is_behind(first) && aside.is_behind(second) && aside.is_behind(fourth));
        let rung = Arc::new(Rung::default());
        let waker = Waker::from(rung.clone());
        let mut cx = Context::from_waker(&waker);
        let mut waits = pin!(aside.turn(fourth));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        drop(a);
        assert!(!aside.is_behind(second), "what came later keeps none");
        assert_eq!(rung.0.load(Ordering::Relaxed), 1);
        assert!(waits.as_mut().poll(&mut cx).is_pending(), "there is another before it");
        drop(c);
        assert_eq!(rung.0.load(Ordering::Relaxed), 2);
        assert!(waits.as_mut().poll(&mut cx).is_ready());
        assert!(aside.is_empty());
    }
}
