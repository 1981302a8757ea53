//! What an open brought along: the attributes of a file, and the content of a short one, for as long as the device
//! vouches for them (docs/COMMANDS.md, "Looks").

use crate::fork;
use crate::queue::Queue;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use weldfs_ciscops::interp::{WATCHED, WHOLE};
use weldfs_ciscops::limits::{LOOK_MAX, WATCH_NS, WATCHES};
use weldfs_ciscops::ring::QueueMemory;
use weldfs_ciscops::{Cqe, Errno, OpenFlags, PoolRange, StatBody};
use zerocopy::FromBytes;

const HEAD: usize = size_of::<StatBody>();

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

/// What an open asks for.
pub(crate) struct Asked {
    /// Where its answer goes.
    pub(crate) room: PoolRange,
    /// The number of the watch, from 1; 0: nothing is asked for.
    pub(crate) watch: u32,
    until: Instant,
}

impl Looks {
    /// One that no look relies on.
    fn free(&self, now: Instant) -> Option<u32> {
        let used = |place: &Place| {
            let alive = || place.in_use.upgrade().is_some_and(|in_use| in_use.load(Ordering::Relaxed));
            place.until.is_some_and(|until| now < until) && alive()
        };
        self.places.iter().position(|place| !used(place)).map(|at| at as u32)
    }
}

impl Asked {
    /// Nothing.
    pub(crate) fn none() -> Asked {
        Asked { room: PoolRange::EMPTY, watch: 0, until: Instant::now() }
    }

    /// Attributes, and where the file is read, its content. Nothing where there is no room for it now.
    pub(crate) fn of(queue: &mut Queue, flags: OpenFlags) -> Asked {
        let content = flags.contains(OpenFlags::READ) && !flags.contains(OpenFlags::DIRECTORY);
        Asked::bytes(queue, if content { LOOK_MAX } else { HEAD as u32 })
    }

    /// A watch, with room for so many bytes.
    pub(crate) fn bytes(queue: &mut Queue, bytes: u32) -> Asked {
        let now = Instant::now();
        let Some(watch) = queue.looks().free(now) else { return Asked::none() };
        let Ok(room) = queue.alloc(bytes) else { return Asked::none() };
        Asked { room, watch: watch + 1, until: now + Duration::from_nanos(WATCH_NS) }
    }

    /// What came with an open's answer. The range goes back in any case.
    pub(crate) fn take(self, queue: &mut Queue, answer: &Result<Cqe, Errno>) -> Option<Arc<Look>> {
        let bits = answer.as_ref().ok().filter(|cqe| cqe.ok().is_ok()).map_or(0, |cqe| cqe.result2);
        let look = if bits & WATCHED != 0 { self.read(queue, bits & WHOLE != 0) } else { None };
        queue.free(self.room);
        look.map(Arc::new)
    }

    /// The watch, which was granted: in use from now on.
    pub(crate) fn watch(&self, queue: &mut Queue) -> Option<Watch> {
        let in_use = Arc::new(AtomicBool::new(true));
        let place = queue.looks().places.get_mut(self.watch as usize - 1)?;
        *place = Place { in_use: Arc::downgrade(&in_use), until: Some(self.until) };
        let memory = Some(queue.memory().clone());
        Some(Watch { memory, generation: fork::generation(), number: self.watch - 1, until: self.until, in_use })
    }

    fn read(&self, queue: &mut Queue, whole: bool) -> Option<Look> {
        let room = queue.pool().slice(self.room).ok()?;
        let mut head = [0; HEAD];
        room.sub(0, HEAD).copy_to(&mut head);
        let body = StatBody::read_from_bytes(&head).ok()?;
        let fits = whole && body.size <= (room.len() - HEAD) as u64;
        let bytes = fits.then(|| room.sub(HEAD, body.size as usize).to_vec().into_boxed_slice());
        Some(Look { body, bytes, watch: self.watch(queue)? })
    }
}
