//! Op slots: pre-allocated, pinned places in which one future each lives while its command is under way.
//!
//! The slots are the device's: whichever core is free polls the op that is next. Nothing is allocated per command. Each
//! slot has a waker, made once, that says on the board which slot is to run again. Any thread may wake.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use weldfs_locks::{Mutex, MutexGuard};

use super::board::{self, Board};
use super::mail::{self, Desk, Mail};
use crate::limits::SLOTS_AT_HAND;

/// What lives in one slot: the future, and what its cores note about the command (`T`).
pub struct Work<I, O, F, T> {
    future: Pin<Box<F>>,
    desk: Desk<I, O>,
    /// The command's notes; `None` while there is no command.
    pub notes: Option<T>,
}

struct Slot<I, O, F, T> {
    work: Mutex<Work<I, O, F, T>>,
    waker: Waker,
}

/// The slots of one device. The future in a slot lives as long as the slot and serves one command after the other: it
/// is made in place once, because moving a future of several KiB into a slot for every command would cost more than
/// many commands do. Thread-safe.
pub struct Slots<I, O, F, M, T> {
    slots: Box<[Slot<I, O, F, T>]>,
    free: Mutex<Vec<u32>>,
    count: AtomicUsize,
    make: M,
}

impl<I, O, F: Future<Output = ()>, M: Fn(Mail<I, O>) -> F, T> Slots<I, O, F, M, T> {
    /// As many empty slots as the board has, whose wakers tell it; `make` makes the future of one, which answers each
    /// piece of its mail once, for ever.
    pub fn new(board: &Arc<Board>, make: M) -> Self {
        let count = board.len();
        let slots = (0..count)
            .map(|at| {
                let (desk, mail) = mail::new();
                let work = Work { future: Box::pin(make(mail)), desk, notes: None };
                Slot { work: Mutex::new(work), waker: board::waker(board, at as u32) }
            })
            .collect();
        Slots { slots, free: Mutex::new((0..count as u32).rev().collect()), count: AtomicUsize::new(count), make }
    }

    /// Free slots that no core has at hand, at this moment.
    #[inline]
    pub fn free(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes a free slot, one at hand if there is one.
    #[inline]
    pub fn take(&self, at_hand: &mut Vec<u32>) -> Option<u32> {
        at_hand.pop().or_else(|| {
            let mut free = self.free.lock();
            let at = free.pop();
            self.count.store(free.len(), Ordering::Relaxed);
            at
        })
    }

    /// Puts a command into a slot taken; nothing runs before `poll`.
    pub fn fill(&self, at: u32, input: I, notes: T) {
        let mut work = self.slots[at as usize].work.lock();
        work.desk.put(input);
        work.notes = Some(notes);
    }

    /// Puts notes into a slot taken, without a command: there is nothing to poll.
    pub fn note(&self, at: u32, notes: T) {
        self.slots[at as usize].work.lock().notes = Some(notes);
    }

    /// The work in a slot, for the one core that polls it.
    pub fn work(&self, at: u32) -> MutexGuard<'_, Work<I, O, F, T>> {
        self.slots[at as usize].work.lock()
    }

    /// Runs the slot's op until it waits or is done.
    #[inline]
    pub fn poll(&self, at: u32, work: &mut Work<I, O, F, T>) -> Poll<O> {
        // The future never ends: it waits for more work when it has answered.
        let waker = &self.slots[at as usize].waker;
        let future = &mut work.future;
        let answer = work.desk.poll(|| {
            let _ = future.as_mut().poll(&mut Context::from_waker(waker));
        });
        answer.map_or(Poll::Pending, Poll::Ready)
    }

    /// Gives back a slot whose work is done; a few stay at hand.
    #[inline]
    pub fn give_back(&self, at: u32, at_hand: &mut Vec<u32>) {
        if at_hand.len() < SLOTS_AT_HAND {
            return at_hand.push(at);
        }
        let mut free = self.free.lock();
        free.push(at);
        self.count.store(free.len(), Ordering::Relaxed);
    }

    /// Clears a slot whose work panicked: what is left of the future is dropped and a new one made.
    #[cold]
    pub fn replace(&self, work: &mut Work<I, O, F, T>) {
        let (desk, mail) = mail::new();
        work.future.set((self.make)(mail));
        work.desk = desk;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runq::{CostModel, RunQueue};
    use std::sync::atomic::AtomicBool;
    use weldfs_scheduler::{PolicyKind, TenantId};
    use weldfs_session::inbox::Inbox;

    fn board() -> Arc<Board> {
        let runq = RunQueue::new(PolicyKind::Fifo, 64, 100_000, CostModel::Measured);
        Arc::new(Board::new(runq, 64, [Arc::new(Inbox::new().unwrap())]))
    }

    #[test]
    fn a_woken_slot_is_runnable_once_and_its_place_is_reused() {
        let board = board();
        let (tx, rx) = (Arc::new(Mutex::new(None::<Waker>)), Arc::new(AtomicBool::new(false)));
        let (tx2, rx2) = (tx.clone(), rx.clone());
        let slots = Slots::new(&board, |mut mail: Mail<u32, u32>| {
            let (tx, rx) = (tx2.clone(), rx2.clone());
            async move {
                loop {
                    let n = mail.next().await;
                    std::future::poll_fn(|cx| {
                        *tx.lock() = Some(cx.waker().clone());
                        if rx.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                    mail.answer(n + 1);
                }
            }
        });
        let mut at_hand = Vec::new();
        let at = slots.take(&mut at_hand).unwrap();
        slots.fill(at, 41, ());
        board.fill(at, TenantId(0), 0);
        board.start(at, 0);
        assert!(slots.poll(at, &mut slots.work(at)).is_pending());
        board.wait(at);
        assert!(board.runq.is_empty());
        rx.store(true, Ordering::SeqCst);
        tx.lock().take().unwrap().wake();
        assert_eq!(board.runq.pick().unwrap().0.token.0, at);
        board.start(at, 0);
        assert!(matches!(slots.poll(at, &mut slots.work(at)), Poll::Ready(42)));
        board.end(at);
        slots.give_back(at, &mut at_hand);
        assert_eq!(slots.free() + at_hand.len(), 64);
        assert_eq!(slots.take(&mut at_hand), Some(at), "the place is reused");
        slots.fill(at, 1, ());
        assert!(matches!(slots.poll(at, &mut slots.work(at)), Poll::Ready(2)), "by the same future");
    }

    #[test]
    fn a_slot_whose_work_panicked_works_again() {
        let board = board();
        let slots = Slots::new(&board, |mut mail: Mail<u32, u32>| async move {
            loop {
                let n = mail.next().await;
                assert!(n != 13, "unlucky");
                mail.answer(n);
            }
        });
        let mut at_hand = Vec::new();
        let at = slots.take(&mut at_hand).unwrap();
        slots.fill(at, 13, ());
        let mut work = slots.work(at);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| slots.poll(at, &mut work))).is_err());
        slots.replace(&mut work);
        drop(work);
        slots.fill(at, 7, ());
        assert!(matches!(slots.poll(at, &mut slots.work(at)), Poll::Ready(7)));
    }

    /// The steps of two cores in the order in which they break a ring: between the end of a command and the look at its
    /// ring's mark, another core puts the next command of that ring into the very slot.
    #[test]
    fn the_end_of_a_command_takes_nothing_from_the_next_of_its_ring_in_its_slot() {
        use weldfs_ciscops::ring::SqProducer;
        use weldfs_ciscops::{QueueLayout, QueueMemory, SharedRegion, Sqe};
        use weldfs_session::pair::{Pair, Taken};

        let board = board();
        let slots = Slots::new(&board, |mut mail: Mail<u32, u32>| async move {
            loop {
                let n = mail.next().await;
                mail.answer(n);
            }
        });
        let layout = QueueLayout::new(8, 4096).unwrap();
        let memory = QueueMemory::new(SharedRegion::heap(layout.total_bytes as usize), &layout).unwrap();
        let pair = Pair::new(memory.clone(), 0);
        let mut client = SqProducer::new(memory);
        (0..3).for_each(|_| client.push(&Sqe::default()).unwrap());
        client.publish();
        let take = |at_hand: &mut Vec<u32>| {
            assert!(!pair.is_admitting());
            let mut ends = pair.ends();
            assert!(!matches!(ends.next(&pair), Err(Taken::Nothing | Taken::Fault)));
            ends.start(&pair, 0);
            let at = slots.take(at_hand).unwrap();
            let generation = board.fill(at, TenantId(0), 0);
            pair.admit(at, generation, false);
            slots.fill(at, 1, ());
            (at, generation)
        };
        // One core takes a command, which gets its tickets and ends.
        let (at, generation) = take(&mut Vec::new());
        board.start(at, 0);
        assert!(pair.admitted(at, generation));
        assert!(slots.poll(at, &mut slots.work(at)).is_ready());
        board.end(at);
        // It has enough slots at hand: this one is for all.
        slots.give_back(at, &mut vec![0; SLOTS_AT_HAND]);
        // The other core.
        let (next, young) = take(&mut Vec::new());
        assert_eq!(next, at);
        // The first one again.
        assert!(!pair.admitted(at, generation), "that is not its mark");
        assert!(pair.is_admitting(), "the third command could overtake the second");
        assert!(pair.admitted(next, young));
    }
}
