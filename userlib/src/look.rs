//! What an open brought along: the attributes of a file, and the content of a short one, for as long as the device
//! vouches for them (docs/COMMANDS.md, "Looks").

use crate::fork;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
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
    /// True until it is of no use any more.
    in_use: InUse,
}

impl Watch {
    /// Whether all that it is about is as it was.
    #[inline]
    pub(crate) fn stands(&self) -> bool {
        let Some(memory) = self.memory.as_ref().filter(|_| self.generation == fork::generation()) else { return false };
        // The bit first. It may be that of another look, which has the same number now: then this one was of no use any
        // more, or too old, before the other was asked for, and that is seen after the bit. And a device that follows
        // one that died changes nothing before the time is over: what the bit says was true when it was looked at.
        memory.is_watched(self.number)
            && self.in_use.load(Ordering::Acquire)
            && !memory.is_closed()
            && Instant::now() < self.until
    }

    pub(crate) fn end(&self) {
        self.in_use.store(false, Ordering::Release);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
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
#[derive(Default)]
pub(crate) struct Looks {
    places: [Place; WATCHES as usize],
}

/// Whoever relies on a watch has a share of this.
type InUse = Arc<AtomicBool>;

#[derive(Clone, Default)]
struct Place {
    in_use: Weak<AtomicBool>,
    until: Option<Instant>,
}

impl Looks {
    /// One that no look relies on.
    pub(crate) fn free(&self, now: Instant) -> Option<u32> {
        let used = |place: &Place| {
            let alive = || place.in_use.upgrade().is_some_and(|in_use| in_use.load(Ordering::Relaxed));
            place.until.is_some_and(|until| now < until) && alive()
        };
        self.places.iter().position(|place| !used(place)).map(|at| at as u32)
    }

    /// One of them, which was granted, is in use from now on.
    pub(crate) fn begin(&mut self, memory: QueueMemory, number: u32, until: Instant) -> Option<Watch> {
        let in_use = Arc::new(AtomicBool::new(true));
        let place = self.places.get_mut(number as usize)?;
        *place = Place { in_use: Arc::downgrade(&in_use), until: Some(until) };
        Some(Watch { memory: Some(memory), generation: fork::generation(), number, until, in_use })
    }
}
