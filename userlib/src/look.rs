//! What an open brought along: the attributes of a file, and the content of a short one, for as long as the device
//! vouches for them (docs/COMMANDS.md, "Looks").

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
    over: AtomicBool,
}

/// By what a client knows that nothing has changed.
struct Watch {
    memory: QueueMemory,
    number: u32,
    until: Instant,
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
        // The time first: a device that follows one that died changes nothing before it is over.
        let in_time = !self.over.load(Ordering::Acquire) && Instant::now() < self.watch.until;
        in_time && self.watch.memory.is_watched(self.watch.number) && !self.watch.memory.is_closed()
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
        self.over.store(true, Ordering::Release);
    }
}

/// Which watches of a queue pair are in use.
#[derive(Default)]
pub(crate) struct Looks {
    places: [Place; WATCHES as usize],
}

#[derive(Clone, Default)]
struct Place {
    look: Weak<Look>,
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
            let alive = || place.look.upgrade().is_some_and(|look| !look.over.load(Ordering::Relaxed));
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
        let now = Instant::now();
        let bytes = if flags.contains(OpenFlags::READ) { LOOK_MAX } else { HEAD as u32 };
        let Some(watch) = queue.looks().free(now) else { return Asked::none() };
        let Ok(room) = queue.alloc(bytes) else { return Asked::none() };
        Asked { room, watch: watch + 1, until: now + Duration::from_nanos(WATCH_NS) }
    }

    /// What came with the answer. The range goes back in any case.
    pub(crate) fn take(self, queue: &mut Queue, answer: &Result<Cqe, Errno>) -> Option<Arc<Look>> {
        let bits = answer.as_ref().ok().filter(|cqe| cqe.ok().is_ok()).map_or(0, |cqe| cqe.result2);
        let look = if bits & WATCHED != 0 { self.read(queue, bits & WHOLE != 0) } else { None };
        queue.free(self.room);
        let look = Arc::new(look?);
        let place = queue.looks().places.get_mut(self.watch as usize - 1)?;
        *place = Place { look: Arc::downgrade(&look), until: Some(self.until) };
        Some(look)
    }

    fn read(&self, queue: &Queue, whole: bool) -> Option<Look> {
        let room = queue.pool().slice(self.room).ok()?;
        let mut head = [0; HEAD];
        room.sub(0, HEAD).copy_to(&mut head);
        let body = StatBody::read_from_bytes(&head).ok()?;
        let fits = whole && body.size <= (room.len() - HEAD) as u64;
        let bytes = fits.then(|| room.sub(HEAD, body.size as usize).to_vec().into_boxed_slice());
        let watch = Watch { memory: queue.memory().clone(), number: self.watch - 1, until: self.until };
        Some(Look { body, bytes, watch, over: AtomicBool::new(false) })
    }
}
