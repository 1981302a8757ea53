//! A write lease as its holder keeps it; `posting` is how it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use weldfs_ciscops::interp::{LEASED, MERGED, OWNED, ROOT_HERE};
use weldfs_ciscops::{Cqe, Errno, Handle, PoolRange};

/// The right to post changes through one handle, on the queue pair of the thread that opened it. Thread-safe: on
/// another thread nothing is posted under it.
#[derive(Debug)]
pub struct Lease {
    handle: Handle,
    queue: u64,
    /// How often the device had taken back leases of this queue pair.
    pub(crate) recalls: u32,
    /// Mode and times, and as root the owner, may be changed.
    pub(crate) owned: bool,
    pub(crate) root: bool,
    over: AtomicBool,
    /// Of the first posted write that failed, until a call has said so.
    failed: AtomicI32,
    /// What was posted and is not known to be over, as the device counts it.
    pub(crate) blocks: AtomicU32,
    /// Where the last write began that is over.
    place: AtomicU64,
}

impl Lease {
    /// Ends the right: nothing is posted under it from now on.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// The errno of a posted write that failed, once. The device tells it at fsync and close, too.
    pub fn take_error(&self) -> Result<(), Errno> {
        match self.failed.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(Errno(code)),
        }
    }

    /// Where in its file the last posted write began that is over, bytes.
    pub fn last_place(&self) -> u64 {
        self.place.load(Ordering::Relaxed)
    }

    /// So much of what was posted under it is over; of a write, how.
    fn done(&self, blocks: u32, write: Option<&Cqe>) {
        self.blocks.fetch_sub(blocks, Ordering::Relaxed);
        match write.map(|cqe| cqe.ok()) {
            Some(Ok((_, place))) => self.place.store(place & !MERGED, Ordering::Relaxed),
            Some(Err(e)) => drop(self.failed.compare_exchange(0, e.0, Ordering::Relaxed, Ordering::Relaxed)),
            None => {}
        }
    }

    /// The one that an open gave; `queue`: on which queue pair, and how often leases had been taken back there.
    pub(crate) fn granted(opened: &Cqe, (queue, recalls): (u64, u32)) -> Option<Arc<Lease>> {
        let has = |bit: u64| opened.result2 & bit != 0;
        has(LEASED).then(|| {
            Arc::new(Lease {
                handle: Handle::from_wire(opened.result),
                queue,
                recalls,
                owned: has(OWNED),
                root: has(ROOT_HERE),
                over: AtomicBool::new(false),
                failed: AtomicI32::new(0),
                blocks: AtomicU32::new(0),
                place: AtomicU64::new(0),
            })
        })
    }

    pub(crate) fn holds(&self, queue: u64, h: Handle) -> bool {
        self.queue == queue && self.handle == h && !self.over.load(Ordering::Relaxed)
    }
}

/// Posted commands of this process that became part of the record of one before them.
static MERGED_HERE: AtomicU64 = AtomicU64::new(0);

/// How many of the posted commands of this process whose answers were seen became part of the record of a command
/// before them. The count begins anew with each call.
pub fn take_merged() -> u64 {
    MERGED_HERE.swap(0, Ordering::Relaxed)
}

/// A posted command: the pool and the part of the credit that it holds, and who learns how it went.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) range: PoolRange,
    /// None of a close without one.
    pub(crate) lease: Option<Arc<Lease>>,
    pub(crate) blocks: u32,
    pub(crate) writes: bool,
}

impl Posted {
    /// It is over, and how, if that is known.
    pub(crate) fn done(&self, cqe: Option<&Cqe>) {
        let merged = cqe.is_some_and(|cqe| cqe.status == 0 && cqe.result2 & MERGED != 0);
        if merged {
            MERGED_HERE.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(lease) = &self.lease {
            lease.done(self.blocks, cqe.filter(|_| self.writes));
        }
    }
}
