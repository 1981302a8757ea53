//! Op slots: pre-allocated, pinned places in which one future each lives while its command is under way.
//!
//! A device thread owns its slots; nothing is allocated per command. Each slot has a waker, made once: waking sets the
//! slot's bit in the thread's [`Inbox`] and, if the thread sleeps, writes its eventfd. Any thread may wake.

use std::cell::Cell;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// What other threads leave for a device thread. Thread-safe.
pub struct Inbox<M> {
    woken: Box<[AtomicU64]>,
    any: AtomicBool,
    sleeping: AtomicBool,
    messages: Mutex<Vec<M>>,
    bell: OwnedFd,
}

impl<M> Inbox<M> {
    /// An inbox for `slots` slots (a multiple of 64). EMFILE when no eventfd is to be had.
    pub fn new(slots: usize) -> std::io::Result<Inbox<M>> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Inbox {
            woken: (0..slots / 64).map(|_| AtomicU64::new(0)).collect(),
            any: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            messages: Mutex::new(Vec::new()),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The eventfd to watch while asleep (edge-triggered; nobody reads it).
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Leaves a message and wakes the thread.
    pub fn send(&self, message: M) {
        self.messages.lock().push(message);
        self.ring();
    }

    fn wake_slot(&self, slot: usize) {
        self.woken[slot / 64].fetch_or(1 << (slot % 64), Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        self.any.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            // A full counter (EAGAIN) has rung already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// True when something was left since the last look.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes everything left: calls `slot` for each slot woken, and returns the messages.
    pub fn collect(&self, mut slot: impl FnMut(u32)) -> Vec<M> {
        self.any.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for (w, word) in self.woken.iter().enumerate() {
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                slot((w * 64) as u32 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        std::mem::take(&mut *self.messages.lock())
    }

    /// Announces sleep; false when mail is there already (and the announcement is withdrawn).
    pub fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.has_mail() {
            self.awake();
            return false;
        }
        true
    }

    /// Withdraws the announcement.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

struct SlotWaker<M> {
    inbox: Arc<Inbox<M>>,
    slot: usize,
}

impl<M: Send + 'static> Wake for SlotWaker<M> {
    fn wake(self: Arc<Self>) {
        self.inbox.wake_slot(self.slot);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.wake_slot(self.slot);
    }
}

/// How work gets into a slot and its result out.
pub struct Mail<I, O> {
    input: Cell<Option<I>>,
    output: Cell<Option<O>>,
}

impl<I, O> Mail<I, O> {
    /// The next piece of work.
    pub async fn next(&self) -> I {
        std::future::poll_fn(|_| self.input.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Hands over the result of the last one.
    pub fn answer(&self, output: O) {
        self.output.set(Some(output));
    }
}

struct Slot<I, O, F> {
    future: Pin<Box<F>>,
    mail: Rc<Mail<I, O>>,
    waker: Waker,
    busy: bool,
}

/// The slots of one device thread. The future in a slot lives as long as the slot and serves one command after the
/// other: it is made in place once, because moving a future of several KiB into a slot for every command would cost
/// more than many commands do.
pub struct Slots<I, O, F, M> {
    slots: Vec<Slot<I, O, F>>,
    free: Vec<u32>,
    make: M,
}

impl<I, O, F: Future<Output = ()>, M: Fn(Rc<Mail<I, O>>) -> F> Slots<I, O, F, M> {
    /// `count` empty slots (a multiple of 64) whose wakers ring `inbox`; `make` makes the future of one, which answers
    /// each piece of its mail once, for ever.
    pub fn new<T: Send + 'static>(count: usize, inbox: &Arc<Inbox<T>>, make: M) -> Self {
        let slots = (0..count)
            .map(|slot| {
                let mail = Rc::new(Mail { input: Cell::new(None), output: Cell::new(None) });
                let waker = Waker::from(Arc::new(SlotWaker { inbox: inbox.clone(), slot }));
                Slot { future: Box::pin(make(mail.clone())), mail, waker, busy: false }
            })
            .collect();
        Slots { slots, free: (0..count as u32).rev().collect(), make }
    }

    /// Free slots.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Puts work into a free slot; nothing runs before `poll`.
    #[inline]
    pub fn insert(&mut self, input: I) -> Option<u32> {
        let at = self.free.pop()?;
        let slot = &mut self.slots[at as usize];
        slot.mail.input.set(Some(input));
        slot.busy = true;
        Some(at)
    }

    /// Runs a slot until its work waits or is done. `None` when it has none (a late wake-up of an op that ended).
    #[inline]
    pub fn poll(&mut self, at: u32) -> Option<Poll<O>> {
        let slot = &mut self.slots[at as usize];
        if !slot.busy {
            return None;
        }
        // The future never ends: it waits for more work when it has answered.
        let _ = slot.future.as_mut().poll(&mut Context::from_waker(&slot.waker));
        Some(slot.mail.output.take().map_or(Poll::Pending, Poll::Ready))
    }

    /// Frees a slot whose work is done.
    #[inline]
    pub fn clear(&mut self, at: u32) {
        self.slots[at as usize].busy = false;
        self.free.push(at);
    }

    /// Frees a slot whose work panicked: what is left of the future is dropped and a new one made.
    #[cold]
    pub fn replace(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.mail.input.take();
        slot.mail.output.take();
        slot.future.set((self.make)(slot.mail.clone()));
        self.clear(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_woken_slot_is_reported_once_and_its_place_is_reused() {
        let inbox = Arc::new(Inbox::<()>::new(64).unwrap());
        let (tx, rx) = (Arc::new(Mutex::new(None::<Waker>)), Arc::new(AtomicBool::new(false)));
        let (tx2, rx2) = (tx.clone(), rx.clone());
        let mut slots = Slots::new(64, &inbox, |mail: Rc<Mail<u32, u32>>| {
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
        let at = slots.insert(41).unwrap();
        assert!(slots.poll(at).unwrap().is_pending());
        assert!(!inbox.has_mail());
        rx.store(true, Ordering::SeqCst);
        tx.lock().take().unwrap().wake();
        let mut woken = Vec::new();
        inbox.collect(|s| woken.push(s));
        assert_eq!(woken, [at]);
        assert!(matches!(slots.poll(at), Some(Poll::Ready(42))));
        slots.clear(at);
        assert!(slots.poll(at).is_none());
        assert_eq!(slots.free(), 64);
        assert_eq!(slots.insert(1), Some(at), "the place is reused");
        assert!(matches!(slots.poll(at), Some(Poll::Ready(2))), "by the same future");
    }

    #[test]
    fn a_slot_whose_work_panicked_works_again() {
        let inbox = Arc::new(Inbox::<()>::new(64).unwrap());
        let mut slots = Slots::new(64, &inbox, |mail: Rc<Mail<u32, u32>>| async move {
            loop {
                let n = mail.next().await;
                assert!(n != 13, "unlucky");
                mail.answer(n);
            }
        });
        let at = slots.insert(13).unwrap();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| slots.poll(at))).is_err());
        slots.replace(at);
        assert_eq!(slots.insert(7), Some(at));
        assert!(matches!(slots.poll(at), Some(Poll::Ready(7))));
    }

    #[test]
    fn mail_before_sleep_prevents_it_and_mail_during_sleep_rings() {
        let inbox = Inbox::<u8>::new(64).unwrap();
        inbox.send(1);
        assert!(!inbox.prepare_sleep());
        assert_eq!(inbox.collect(|_| ()), [1]);
        assert!(inbox.prepare_sleep());
        inbox.send(2);
        let mut counter = [0; 8];
        assert_eq!(rustix::io::read(inbox.bell(), &mut counter), Ok(8));
    }
}
