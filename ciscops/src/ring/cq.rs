//! The completion ring: the device produces, the client consumes.

use super::{QueueFault, QueueMemory, RingMemory, Word};
use crate::Errno;
use crate::sqe::Cqe;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The client's sleep word: it sleeps, having taken `head` completions. Never 0.
fn sleep_at(head: u32) -> u32 {
    head << 1 | 1
}

/// Device's end. A command is taken from the SQ only when a slot here is reserved for its completion.
pub struct CqProducer<M = QueueMemory> {
    memory: M,
    depth: u32,
    tail: u32,
    published: u32,
    reserved: u32,
    head_seen: u32,
    /// The sleep last woken, and the tail it was woken for.
    woken: (u32, u32),
}

impl<M: RingMemory> CqProducer<M> {
    /// Over a fresh queue.
    pub fn new(memory: M) -> Self {
        let depth = memory.depth();
        CqProducer { memory, depth, tail: 0, published: 0, reserved: 0, head_seen: 0, woken: (0, 0) }
    }

    /// Slots that can still be reserved; looks at the client's index only when the cached one says none.
    #[inline]
    pub fn free(&mut self) -> Result<u32, QueueFault> {
        let used = self.tail.wrapping_sub(self.head_seen) + self.reserved;
        if used < self.depth {
            return Ok(self.depth - used);
        }
        let head = self.memory.load(Word::CqHead, Acquire);
        // Neither back below what was seen, nor past what was published.
        if head.wrapping_sub(self.head_seen) > self.published.wrapping_sub(self.head_seen) {
            return Err(QueueFault { word: Word::CqHead, value: head });
        }
        self.head_seen = head;
        Ok(self.depth.saturating_sub(self.tail.wrapping_sub(head) + self.reserved))
    }

    /// Reserves a slot; false when the client has not made room.
    #[inline]
    pub fn reserve(&mut self) -> Result<bool, QueueFault> {
        if self.free()? == 0 {
            return Ok(false);
        }
        self.reserved += 1;
        Ok(true)
    }

    /// Gives a reservation back unused.
    #[inline]
    pub(crate) fn unreserve(&mut self) {
        self.reserved = self.reserved.checked_sub(1).expect("a reservation to give back");
    }

    /// Slots reserved and not yet posted.
    pub fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Writes a completion into a reserved slot; the client sees it after `publish`.
    #[inline]
    pub fn post(&mut self, cqe: &Cqe) {
        self.unreserve();
        self.memory.write_cqe(self.tail & (self.depth - 1), cqe);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes everything posted visible; true when the client sleeps and must be woken (`wake`).
    #[inline]
    #[must_use]
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        self.memory.store(Word::CqTail, self.tail, Release);
        self.memory.fence();
        let sleep = self.memory.load(Word::ClientSleeping, Relaxed);
        // Awake; or asleep having taken all of this already (it saw the tail before we looked at its word).
        if sleep == 0 || sleep == sleep_at(self.tail) {
            return false;
        }
        // Asleep on an older tail. One wake per sleep is enough: it reaches the sleeper, or the sleeper finds the tail
        // changed. The same word counts as the same sleep only within a ring's length, for it wraps.
        if sleep == self.woken.0 && self.tail.wrapping_sub(self.woken.1) <= self.depth {
            return false;
        }
        self.woken = (sleep, self.tail);
        true
    }

    /// Marks the queue closed; then `wake`.
    pub fn close(&mut self, errno: Errno) {
        self.memory.store(Word::DeviceClosed, errno.0 as u32, Release);
        self.memory.fence();
    }

    /// The memory under the ring.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

/// What a client that wants to sleep should do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// Not sleep: completions are there, or the queue is closed. (Already awake again.)
    Ready,
    /// Sleep while the CQ tail holds this value; then `awake`.
    On(u32),
}

/// Client's end. One thread at a time.
pub struct CqConsumer<M = QueueMemory> {
    memory: M,
    depth: u32,
    head: u32,
    released: u32,
    tail_seen: u32,
}

impl<M: RingMemory> CqConsumer<M> {
    /// Over a fresh queue.
    pub fn new(memory: M) -> Self {
        let depth = memory.depth();
        CqConsumer { memory, depth, head: 0, released: 0, tail_seen: 0 }
    }

    /// The same end for another owner, which goes on where this one is; this one is not to be used any more.
    pub fn hand_over(&mut self) -> Self
    where
        M: Clone,
    {
        let CqConsumer { depth, head, released, tail_seen, .. } = *self;
        CqConsumer { memory: self.memory.clone(), depth, head, released, tail_seen }
    }

    /// Completions waiting.
    #[inline]
    pub fn available(&mut self) -> u32 {
        if self.tail_seen == self.head {
            self.tail_seen = self.memory.load(Word::CqTail, Acquire);
        }
        self.tail_seen.wrapping_sub(self.head).min(self.depth)
    }

    /// Takes the next completion. Its slot is the device's again after `release`.
    #[inline]
    pub fn pop(&mut self) -> Option<Cqe> {
        if self.available() == 0 {
            return None;
        }
        let cqe = self.memory.read_cqe(self.head & (self.depth - 1));
        self.head = self.head.wrapping_add(1);
        Some(cqe)
    }

    /// Completions taken so far, modulo 2^32: the tail's value when nothing waits.
    pub fn taken(&self) -> u32 {
        self.head
    }

    /// Gives the slots of popped completions back; once per batch.
    #[inline]
    pub fn release(&mut self) {
        if self.released != self.head {
            self.released = self.head;
            self.memory.store(Word::CqHead, self.head, Release);
        }
    }

    /// The errno the device closed this queue with.
    pub fn closed(&self) -> Option<Errno> {
        match self.memory.load(Word::DeviceClosed, Acquire) {
            0 => None,
            e => Some(Errno(e as i32)),
        }
    }

    /// Announces sleep and looks once more.
    pub fn prepare_sleep(&mut self) -> Sleep {
        self.release();
        self.memory.store(Word::ClientSleeping, sleep_at(self.head), Relaxed);
        self.memory.fence();
        let tail = self.memory.load(Word::CqTail, Acquire);
        if tail == self.head && self.closed().is_none() {
            return Sleep::On(tail);
        }
        self.awake();
        Sleep::Ready
    }

    /// Takes the announcement back, after waking.
    pub fn awake(&mut self) {
        self.memory.store(Word::ClientSleeping, 0, Relaxed);
    }

    /// The memory under the ring.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}
