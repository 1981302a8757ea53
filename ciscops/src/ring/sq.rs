//! The submission ring: the client produces, the device consumes.

use super::{QueueFault, QueueMemory, RingMemory, Word, next_ticket};
use crate::sqe::{RawCommand, Sqe};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The ring has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Client's end. One thread at a time.
pub struct SqProducer<M = QueueMemory> {
    memory: M,
    depth: u32,
    tail: u32,
    published: u32,
    head_seen: u32,
    ticket_rung: u32,
}

impl<M: RingMemory> SqProducer<M> {
    /// Over a fresh queue.
    pub fn new(memory: M) -> Self {
        let depth = memory.depth();
        SqProducer { memory, depth, tail: 0, published: 0, head_seen: 0, ticket_rung: 0 }
    }

    /// The same end for another owner, which goes on where this one is; this one has no room any more.
    pub fn hand_over(&mut self) -> Self
    where
        M: Clone,
    {
        let depth = std::mem::take(&mut self.depth);
        let SqProducer { tail, published, head_seen, ticket_rung, .. } = *self;
        SqProducer { memory: self.memory.clone(), depth, tail, published, head_seen, ticket_rung }
    }

    /// Free entries; looks at the device's index only when the cached one says none.
    #[inline]
    pub fn free(&mut self) -> u32 {
        let used = self.tail.wrapping_sub(self.head_seen);
        if used < self.depth {
            return self.depth - used;
        }
        self.head_seen = self.memory.load(Word::SqHead, Acquire);
        self.depth.saturating_sub(self.tail.wrapping_sub(self.head_seen))
    }

    /// Writes an entry; the device sees it after `publish`.
    #[inline]
    pub fn push(&mut self, sqe: &Sqe) -> Result<(), Full> {
        if self.free() == 0 {
            return Err(Full);
        }
        self.memory.write_sqe(self.tail & (self.depth - 1), sqe);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Makes everything pushed visible to the device. Then ask `needs_doorbell`.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.tail {
            self.published = self.tail;
            self.memory.store(Word::SqTail, self.tail, Release);
        }
    }

    /// After `publish`: whether the device sleeps and has not been rung for this sleep; then write the doorbell.
    #[inline]
    pub fn needs_doorbell(&mut self) -> bool {
        self.memory.fence();
        let ticket = self.memory.load(Word::DeviceSleeping, Relaxed);
        // A ticket is rung once: the doorbell stays readable until the device has woken from that very sleep.
        if ticket == 0 || ticket == self.ticket_rung {
            return false;
        }
        self.ticket_rung = ticket;
        true
    }

    /// The same after publishing what is not waited for: not where the device looks by itself soon.
    #[inline]
    pub fn posts_need_doorbell(&mut self) -> bool {
        self.memory.fence();
        let ticket = self.memory.load(Word::DeviceSleeping, Relaxed);
        if ticket & 1 == 1 || ticket == 0 || ticket == self.ticket_rung {
            return false;
        }
        self.ticket_rung = ticket;
        true
    }

    /// How often the device has taken back this ring's write leases. Looked at after `publish` and `needs_doorbell`:
    /// where it is what it was when a lease was granted, the device will find what was published before it takes that
    /// back.
    #[inline]
    pub fn recalls(&self) -> u32 {
        self.memory.load(Word::Recalls, Acquire)
    }

    /// Entries published that the device has not taken yet.
    pub fn pending(&mut self) -> u32 {
        self.head_seen = self.memory.load(Word::SqHead, Acquire);
        self.published.wrapping_sub(self.head_seen)
    }

    /// The memory under the ring.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

/// Device's side: takes a ring's write leases back. What a client publishes that has not seen it is found by a look at
/// its index after this.
pub fn recall_leases(memory: &impl RingMemory) {
    let recalls = memory.load(Word::Recalls, Relaxed);
    memory.store(Word::Recalls, recalls.wrapping_add(1), Release);
    memory.fence();
}

/// Device's end. Believes nothing: its own index is private, the client's is checked against it.
pub struct SqConsumer<M = QueueMemory> {
    memory: M,
    depth: u32,
    head: u32,
    released: u32,
    tail_seen: u32,
    ticket: u32,
}

impl<M: RingMemory> SqConsumer<M> {
    /// Over a fresh queue.
    pub fn new(memory: M) -> Self {
        let depth = memory.depth();
        SqConsumer { memory, depth, head: 0, released: 0, tail_seen: 0, ticket: 0 }
    }

    #[inline]
    fn refresh(&mut self) -> Result<u32, QueueFault> {
        let tail = self.memory.load(Word::SqTail, Acquire);
        // Neither back below what was seen, nor more than `depth` ahead of what was taken.
        let room = self.head.wrapping_add(self.depth).wrapping_sub(self.tail_seen);
        if tail.wrapping_sub(self.tail_seen) > room {
            return Err(QueueFault { word: Word::SqTail, value: tail });
        }
        self.tail_seen = tail;
        Ok(tail.wrapping_sub(self.head))
    }

    /// Entries waiting, at most `depth`; looks at the client's index only when the cached one says none.
    #[inline]
    pub fn poll(&mut self) -> Result<u32, QueueFault> {
        match self.tail_seen.wrapping_sub(self.head) {
            0 => self.refresh(),
            waiting => Ok(waiting),
        }
    }

    /// Entries waiting, at most `depth`; looks at the client's index whatever the cached one says.
    pub fn poll_now(&mut self) -> Result<u32, QueueFault> {
        self.refresh()
    }

    /// Takes the next of the entries that `poll` counted: copied out of shared memory once.
    #[inline]
    pub fn take(&mut self) -> Option<RawCommand> {
        if self.tail_seen == self.head {
            return None;
        }
        let sqe = self.memory.read_sqe(self.head & (self.depth - 1));
        self.head = self.head.wrapping_add(1);
        Some(RawCommand(sqe))
    }

    /// The entry `at` behind the next one, if it is among those that were counted: copied out of shared memory, and
    /// left where it is. `take` reads it again, and what it says then is the client's choice: whoever acts on this
    /// copy makes nothing of that one.
    #[inline]
    pub fn ahead(&self, at: u32) -> Option<RawCommand> {
        let counted = self.tail_seen.wrapping_sub(self.head);
        (at < counted).then(|| RawCommand(self.memory.read_sqe(self.head.wrapping_add(at) & (self.depth - 1))))
    }

    /// Entries taken so far, modulo 2^32: the index that the client's would equal if nothing waited.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.head
    }

    /// Reads the entry taken last once more. What it says now is the client's choice and was never checked: only for
    /// the test that shows why nothing may be read twice.
    pub fn again(&self) -> RawCommand {
        RawCommand(self.memory.read_sqe(self.head.wrapping_sub(1) & (self.depth - 1)))
    }

    /// Gives the taken entries' room back to the client; once per batch.
    #[inline]
    pub fn release(&mut self) {
        if self.released != self.head {
            self.released = self.head;
            self.memory.store(Word::SqHead, self.head, Release);
        }
    }

    /// Announces sleep. Then `recheck`; sleep only when that says false.
    pub fn prepare_sleep(&mut self) {
        self.announce(false);
    }

    /// The same of a sleep of at most `limits::NAP_NS`: a client that waits for no answer need not ring.
    pub fn prepare_nap(&mut self) {
        self.announce(true);
    }

    fn announce(&mut self, naps: bool) {
        self.ticket = next_ticket(self.ticket, naps);
        self.memory.store(Word::DeviceSleeping, self.ticket, Relaxed);
        self.memory.fence();
    }

    /// After `prepare_sleep`: whether entries wait after all.
    pub fn recheck(&mut self) -> Result<bool, QueueFault> {
        Ok(self.refresh()? > 0)
    }

    /// Takes the announcement back, after waking (and after draining the doorbell) or instead of sleeping.
    pub fn awake(&mut self) {
        self.memory.store(Word::DeviceSleeping, 0, Relaxed);
    }

    /// The memory under the ring.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}
