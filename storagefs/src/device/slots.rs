//! Op slots: pre-allocated, pinned places in which one future each lives while its command is under way.
//!
//! A device thread owns its slots; nothing is allocated per command. Each slot has a waker, made once: waking sets the
//! slot's bit in the thread's [`Inbox`] and, if the thread sleeps, writes its eventfd. Any thread may wake.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
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

struct Slot<F> {
    future: Pin<Box<Option<F>>>,
    waker: Waker,
}

/// The slots of one device thread, all for futures of one type.
pub struct Slots<F> {
    slots: Vec<Slot<F>>,
    free: Vec<u32>,
}

impl<F: Future> Slots<F> {
    /// `count` empty slots (a multiple of 64) whose wakers ring `inbox`.
    pub fn new<M: Send + 'static>(count: usize, inbox: &Arc<Inbox<M>>) -> Slots<F> {
        let slots = (0..count)
            .map(|slot| Slot {
                future: Box::pin(None),
                waker: Waker::from(Arc::new(SlotWaker { inbox: inbox.clone(), slot })),
            })
            .collect();
        Slots { slots, free: (0..count as u32).rev().collect() }
    }

    /// Free slots.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Puts a future into a free slot.
    #[inline]
    pub fn insert(&mut self, future: F) -> Option<u32> {
        let at = self.free.pop()?;
        self.slots[at as usize].future.set(Some(future));
        Some(at)
    }

    /// Polls a slot's future once. `None` when the slot is empty (a late wake-up of an op that ended).
    #[inline]
    pub fn poll(&mut self, at: u32) -> Option<Poll<F::Output>> {
        let slot = &mut self.slots[at as usize];
        let future = slot.future.as_mut().as_pin_mut()?;
        Some(future.poll(&mut Context::from_waker(&slot.waker)))
    }

    /// Drops a slot's future and frees the slot.
    #[inline]
    pub fn clear(&mut self, at: u32) {
        self.slots[at as usize].future.set(None);
        self.free.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_woken_slot_is_reported_once_and_its_place_is_reused() {
        let inbox = Arc::new(Inbox::<()>::new(64).unwrap());
        let mut slots = Slots::new(64, &inbox);
        let (tx, rx) = (Arc::new(Mutex::new(None::<Waker>)), Arc::new(AtomicBool::new(false)));
        let op = {
            let (tx, rx) = (tx.clone(), rx.clone());
            async move {
                std::future::poll_fn(|cx| {
                    *tx.lock() = Some(cx.waker().clone());
                    if rx.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                42
            }
        };
        let at = slots.insert(op).unwrap();
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
