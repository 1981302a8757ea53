//! What an open brought along: the attributes of a file, and the content of a short one, for as long as the device
//! vouches for them (docs/COMMANDS.md, "Looks").

use crate::fork;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use weldfs_ciscops::StatBody;
use weldfs_ciscops::limits::WATCHES;
use weldfs_ciscops::ring::QueueMemory;

/// Attributes and content of a file as they are, until anything changes it. Thread-safe.
#[derive(Debug)]
pub struct Look {
    body: StatBody,
    bytes: Option<Box<[u8]>>,
    watch: Watch,
}

/// By what a client knows that nothing has changed.
pub(crate) struct Watch {
    /// Of the process that asked for it: a child has no such memory.
    memory: Option<QueueMemory>,
    generation: u32,
    number: u32,
    until: Instant,
    /// Which of those with its number; and which is the one now, none once it is of no use any more.
    id: u64,
    users: Users,
}

impl Watch {
    /// Whether all that it is about is as it was.
    #[inline]
    pub(crate) fn stands(&self) -> bool {
        let Some(memory) = self.memory.as_ref().filter(|_| self.generation == fork::generation()) else { return false };
        // The bit first. It may be that of another look, which has the same number now: then this one was of no use any
        // more, or too old, before the other was asked for, and that is seen after the bit. And a device that follows
        // one that died changes nothing before the time is over: what the bit says was true when it was looked at.
        memory.is_watched(self.number) && self.in_use() && !memory.is_closed() && Instant::now() < self.until
    }

    fn in_use(&self) -> bool {
        self.users.get(self.number as usize).is_some_and(|user| user.load(Ordering::Acquire) == self.id)
    }

    pub(crate) fn end(&self) {
        if let Some(user) = self.users.get(self.number as usize) {
            let _ = user.compare_exchange(self.id, 0, Ordering::Release, Ordering::Relaxed);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
        if self.generation != fork::generation() {
            // What is mapped there now, if anything, is not this memory.
            std::mem::forget(self.memory.take());
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.number)
    }
}

impl Look {
    pub(crate) fn new(body: StatBody, bytes: Option<Box<[u8]>>, watch: Watch) -> Look {
        Look { body, bytes, watch }
    }

    /// Whether the file is now as it was when it was opened: what is told of it after this was true at this moment.
    /// False once `WATCH_NS` have passed, too, and as soon as the device says anything else.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.watch.stands()
    }

    /// What stat(2) says.
    pub fn attributes(&self) -> &StatBody {
        &self.body
    }

    /// All bytes of the file, if they came.
    pub fn content(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }

    /// It is of no use any more: this process changes the file, or closes it.
    pub fn end(&self) {
        self.watch.end();
    }
}

/// Which watches of a queue pair are in use.
pub(crate) struct Looks {
    /// By number: which watch it is, 0 for none. Each that relies on one has a share of this.
    users: Users,
    until: [Option<Instant>; WATCHES as usize],
    last: u64,
}

type Users = Arc<[AtomicU64; WATCHES as usize]>;

impl Default for Looks {
    fn default() -> Looks {
        let users = Arc::new([const { AtomicU64::new(0) }; WATCHES as usize]);
        Looks { users, until: [None; WATCHES as usize], last: 0 }
    }
}

impl Looks {
    /// One that nothing relies on. Reads may rely on theirs for as long as they like: half of all are for others.
    pub(crate) fn free(&self, now: Instant, for_reads: bool) -> Option<u32> {
        let first = if for_reads { WATCHES as usize / 2 } else { 0 };
        let used = |(until, user): (&Option<Instant>, &AtomicU64)| {
            until.is_some_and(|until| now < until) && user.load(Ordering::Relaxed) != 0
        };
        let mut places = self.until.iter().zip(&*self.users).enumerate().skip(first);
        places.find(|(_, place)| !used(*place)).map(|(at, _)| at as u32)
    }

    /// One of them, which was granted, is in use from now on. Takes no memory.
    pub(crate) fn begin(&mut self, memory: QueueMemory, number: u32, until: Instant) -> Option<Watch> {
        self.last += 1;
        *self.until.get_mut(number as usize)? = Some(until);
        self.users.get(number as usize)?.store(self.last, Ordering::Release);
        let (generation, users) = (fork::generation(), self.users.clone());
        Some(Watch { memory: Some(memory), generation, number, until, id: self.last, users })
    }

    /// The number of a watch that may be asked for again: it is one of this queue pair, and what it had been granted
    /// for is not another's by now.
    pub(crate) fn again(&self, memory: &QueueMemory, watch: &Watch) -> Option<u32> {
        let here = watch.generation == fork::generation() && watch.memory.as_ref().is_some_and(|m| m.is_same(memory));
        (here && watch.in_use() && memory.is_watched(watch.number)).then_some(watch.number)
    }

    /// It was granted again.
    pub(crate) fn go_on(&mut self, watch: &mut Watch, until: Instant) {
        watch.until = until;
        if let Some(place) = self.until.get_mut(watch.number as usize) {
            *place = Some(until);
        }
    }
}
