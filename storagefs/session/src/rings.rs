//! The queue pairs of one session, and its end: the same over a medium and over a directory of the host.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use weldfs_ciscops::limits::QUEUES_MAX;
use weldfs_ciscops::{Errno, Handle, OpenFlags, QueueLayout, QueueMemory, SessionLimits, SharedRegion};
use weldfs_locks::Mutex;

use super::clock::now_ns;
use super::counters::{QueueCounters, Totals};
use super::limits::POOL_BYTES_SESSION_MAX;

/// One queue pair as the device made it.
pub struct QueueParts {
    /// Number within the session.
    pub index: u32,
    /// Where rings and pool lie in `region`.
    pub layout: QueueLayout,
    /// The memory.
    pub region: SharedRegion,
    /// The sealed memfd behind it, to send to another process; none for memory of this process.
    pub memfd: Option<OwnedFd>,
    /// Write to it when the ring says that the device sleeps.
    pub doorbell: Arc<OwnedFd>,
}

/// A description taken over through its placeholder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claimed {
    /// This session's handle for it.
    pub handle: Handle,
    /// Its flags.
    pub flags: OpenFlags,
    /// Inode number.
    pub ino: u64,
    /// st_mode.
    pub mode: u32,
    /// The placeholder's number in the session that made it.
    pub placeholder: u32,
}

/// One queue pair, as far as its session goes.
pub trait Ring {
    /// Its counters.
    fn counters(&self) -> &QueueCounters;
}

/// Where the memory of queue pairs is charged.
pub trait Pools {
    /// Takes it. ENOMEM or EMFILE.
    fn charge(&self, bytes: u64) -> Result<(), Errno>;
    /// Gives it back.
    fn release(&self, bytes: u64);
}

/// What a queue pair is made of.
pub struct Fresh {
    /// Number within the session.
    pub index: u32,
    /// The buffer pool.
    pub pool: SharedRegion,
    /// What the decoder must know.
    pub limits: SessionLimits,
    /// Rings and pool.
    pub memory: QueueMemory,
}

/// See the module. Thread-safe.
pub struct Rings<Q> {
    queues: Mutex<Vec<Arc<Q>>>,
    next: AtomicU32,
    live: AtomicUsize,
    pool_bytes: AtomicU64,
    closing: AtomicBool,
    /// When it began to, nanoseconds of the device's clock.
    closed_at: AtomicU64,
    /// After that a command was dropped that would have changed something.
    dropped: AtomicBool,
    cleaned: AtomicBool,
    retired: Mutex<Totals>,
}

impl<Q> Default for Rings<Q> {
    fn default() -> Rings<Q> {
        Rings {
            queues: Mutex::default(),
            next: AtomicU32::new(0),
            live: AtomicUsize::new(0),
            pool_bytes: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            closed_at: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            cleaned: AtomicBool::new(false),
            retired: Mutex::default(),
        }
    }
}

impl<Q: Ring> Rings<Q> {
    /// True once the session is ending.
    pub fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Since when, on the device's clock.
    pub fn closed_at(&self) -> Option<u64> {
        self.closing().then(|| self.closed_at.load(Ordering::Relaxed))
    }

    /// A command was dropped that would have changed something.
    pub fn note_dropped(&self) {
        self.dropped.store(true, Ordering::Relaxed);
    }

    /// Whether one was.
    pub fn has_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    /// A new queue pair of `depth` commands and `pool_bytes`: `make` makes it of its memory, `place` hands it to
    /// whoever serves it, before any client is told that the session ends. EINVAL, EMFILE, ENOMEM, ENODEV.
    pub fn add(
        &self,
        (depth, pool_bytes, shared): (u32, u32, bool),
        (pools, doorbell): (&impl Pools, &Arc<OwnedFd>),
        make: impl FnOnce(Fresh) -> Arc<Q>,
        place: impl FnOnce(Arc<Q>),
    ) -> Result<QueueParts, Errno> {
        let layout = QueueLayout::new(depth, pool_bytes)?;
        let bytes = u64::from(layout.total_bytes);
        if self.closing() {
            return Err(Errno::NODEV);
        }
        self.take_bytes(bytes)?;
        pools.charge(bytes).inspect_err(|_| self.give_bytes(bytes))?;
        let made = make_region(&layout, shared).and_then(|(fd, memory)| Ok((fd, memory.pool(&layout)?, memory)));
        // Not under the lock: this takes the kernel milliseconds, and reports read the list meanwhile.
        let (memfd, pool, memory) = made.inspect_err(|_| self.release(pools, bytes))?;
        let mut queues = self.queues.lock();
        let refused = match () {
            () if self.closing() => Some(Errno::NODEV),
            () if queues.len() >= QUEUES_MAX as usize => Some(Errno::MFILE),
            () => None,
        };
        if let Some(errno) = refused {
            drop(queues);
            drop((memfd, pool, memory));
            self.release(pools, bytes);
            return Err(errno);
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let region = memory.region().clone();
        let queue = make(Fresh { index, pool, limits: SessionLimits { pool_bytes }, memory });
        queues.push(queue.clone());
        self.live.fetch_add(1, Ordering::AcqRel);
        place(queue);
        Ok(QueueParts { index, layout, region, memfd, doorbell: doorbell.clone() })
    }

    /// Takes memory for pools, or what counts as that, of which a session has so much and no more. ENOMEM.
    pub fn take_bytes(&self, bytes: u64) -> Result<(), Errno> {
        let fits = |n: u64| n.checked_add(bytes).filter(|n| *n <= POOL_BYTES_SESSION_MAX);
        self.pool_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map(drop).map_err(|_| Errno::NOMEM)
    }

    /// Gives it back.
    pub fn give_bytes(&self, bytes: u64) {
        self.pool_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn release(&self, pools: &impl Pools, bytes: u64) {
        pools.release(bytes);
        self.give_bytes(bytes);
    }

    /// A queue pair has been drained and dropped; true when it was the last one of a session that is ending. Its memory
    /// is charged until it is given back.
    pub fn gone(&self, queue: &Arc<Q>) -> bool {
        {
            // Under one lock: whoever sums up meanwhile counts it once.
            let mut queues = self.queues.lock();
            self.retired.lock().add_queue(queue.counters());
            queues.retain(|q| !Arc::ptr_eq(q, queue));
        }
        self.live.fetch_sub(1, Ordering::AcqRel) == 1 && self.closing()
    }

    /// Starts the end: no new queue pairs. `tell` says so to whoever serves those there are. True when there are none.
    pub fn close(&self, tell: impl FnOnce()) -> bool {
        let queues = self.queues.lock();
        if self.closing() {
            return false;
        }
        self.closed_at.store(now_ns(), Ordering::Relaxed);
        self.closing.store(true, Ordering::Release);
        drop(queues);
        tell();
        self.live.load(Ordering::Acquire) == 0
    }

    /// Whether it is now that everything is to be given back: once.
    pub fn clean_up(&self) -> bool {
        !self.cleaned.swap(true, Ordering::AcqRel)
    }

    /// Everything counted for the session.
    pub fn totals(&self) -> Totals {
        let queues = self.queues.lock();
        let mut sum = self.retired.lock().clone();
        queues.iter().for_each(|q| sum.add_queue(q.counters()));
        sum
    }

    /// What its queue pairs counted that are gone, for the last time.
    pub fn retire(&self) -> Totals {
        std::mem::take(&mut *self.retired.lock())
    }

    /// Its queue pairs.
    pub fn list(&self) -> Vec<Arc<Q>> {
        self.queues.lock().clone()
    }

    /// How many of them are alive, and the bytes of their shared memory and of what counts as that.
    pub fn usage(&self) -> (usize, u64) {
        (self.live.load(Ordering::Acquire), self.pool_bytes.load(Ordering::Relaxed))
    }
}

fn make_region(layout: &QueueLayout, shared: bool) -> Result<(Option<OwnedFd>, QueueMemory), Errno> {
    let errno = |e: std::io::Error| Errno(e.raw_os_error().unwrap_or(Errno::NOMEM.0));
    if shared {
        let (fd, memory) = QueueMemory::create(layout).map_err(errno)?;
        return Ok((Some(fd), memory));
    }
    Ok((None, QueueMemory::format(SharedRegion::heap(layout.total_bytes as usize), layout)?))
}
