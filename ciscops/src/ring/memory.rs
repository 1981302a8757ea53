//! The memory under the rings: index words and entry slots, as a trait so that a model checker can supply its own.

use super::layout::{QueueLayout, word};
use crate::limits::WATCHES;
use crate::sqe::{Cqe, Sqe};
use crate::{Errno, SharedRegion};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use zerocopy::IntoBytes;

/// The words of the queue header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// Entries put in the SQ; the client's.
    SqTail,
    /// Entries taken from the SQ; the device's.
    SqHead,
    /// The device's sleep ticket.
    DeviceSleeping,
    /// How often the ring's write leases were taken back; the device's.
    Recalls,
    /// The ring's watches that are over, a bit each; the device's.
    Watches,
    /// Entries put in the CQ; the device's, and the futex the client sleeps on.
    CqTail,
    /// Entries taken from the CQ; the client's.
    CqHead,
    /// The client's sleep word.
    ClientSleeping,
    /// Errno the queue was closed with; the device's.
    DeviceClosed,
}

impl Word {
    /// Byte offset in the region.
    #[inline(always)]
    pub const fn offset(self) -> usize {
        match self {
            Word::SqTail => word::SQ_TAIL,
            Word::SqHead => word::SQ_HEAD,
            Word::DeviceSleeping => word::DEVICE_SLEEPING,
            Word::Recalls => word::RECALLS,
            Word::Watches => word::WATCHES,
            Word::CqTail => word::CQ_TAIL,
            Word::CqHead => word::CQ_HEAD,
            Word::ClientSleeping => word::CLIENT_SLEEPING,
            Word::DeviceClosed => word::DEVICE_CLOSED,
        }
    }
}

/// What rings are made of. `slot` is always below `depth`.
pub trait RingMemory {
    /// Entries of each ring, from a private copy; a power of two.
    fn depth(&self) -> u32;
    /// Reads a header word.
    fn load(&self, w: Word, order: Ordering) -> u32;
    /// Writes a header word.
    fn store(&self, w: Word, value: u32, order: Ordering);
    /// The sequentially consistent fence between publishing and looking at the peer's sleep word.
    fn fence(&self);
    /// Copies an SQE out, once.
    fn read_sqe(&self, slot: u32) -> Sqe;
    /// Copies an SQE in.
    fn write_sqe(&self, slot: u32, sqe: &Sqe);
    /// Copies a CQE out, once.
    fn read_cqe(&self, slot: u32) -> Cqe;
    /// Copies a CQE in.
    fn write_cqe(&self, slot: u32, cqe: &Cqe);
}

/// The real thing: a shared region laid out by `QueueLayout`. Clones share it.
#[derive(Clone)]
pub struct QueueMemory {
    region: SharedRegion,
    base: NonNull<u8>,
    depth: u32,
    sq_off: u32,
    cq_off: u32,
}

// SAFETY: the pointer is into `region`, which is Send + Sync and kept alive here; accesses are atomic or volatile.
unsafe impl Send for QueueMemory {}
// SAFETY: as above.
unsafe impl Sync for QueueMemory {}

impl QueueMemory {
    /// Over a region that holds `layout`; EPROTO or EINVAL when it does not fit. Of the layout only this private
    /// copy is used: what the region itself says is never read.
    pub fn new(region: SharedRegion, layout: &QueueLayout) -> Result<QueueMemory, Errno> {
        layout.validate()?;
        if region.len() < layout.total_bytes as usize || !(region.base().as_ptr() as usize).is_multiple_of(64) {
            return Err(Errno::PROTO);
        }
        let base = region.base();
        Ok(QueueMemory { region, base, depth: layout.depth, sq_off: layout.sq_off, cq_off: layout.cq_off })
    }

    /// Device side: makes the region (a sealed memfd) of a new queue pair and writes its layout for readers of dumps.
    pub fn create(layout: &QueueLayout) -> std::io::Result<(std::os::fd::OwnedFd, QueueMemory)> {
        let (fd, region) = SharedRegion::create_sealed("weldfs-queue", layout.total_bytes as usize)?;
        Ok((fd, QueueMemory::format(region, layout)?))
    }

    /// Writes the layout at the start of a zeroed region and puts a queue over it (embedded mode: heap memory).
    pub fn format(region: SharedRegion, layout: &QueueLayout) -> Result<QueueMemory, Errno> {
        let memory = QueueMemory::new(region, layout)?;
        memory.region.bytes(0, size_of::<QueueLayout>())?.copy_from(layout.as_bytes());
        Ok(memory)
    }

    /// The buffer pool as a region of its own.
    pub fn pool(&self, layout: &QueueLayout) -> Result<SharedRegion, Errno> {
        self.region.sub(layout.pool_off as usize, layout.pool_bytes as usize)
    }

    /// Device's side: a watch of the ring begins (again), by number.
    pub fn begin_watch(&self, watch: u32) {
        self.atomic(Word::Watches).fetch_and(!(1 << (watch % WATCHES)), Ordering::Release);
    }

    /// Device's side: what it is about changes now. Said before the change can be seen by any: whoever has heard of it,
    /// from whomever, finds the bit.
    pub fn end_watch(&self, watch: u32) {
        self.atomic(Word::Watches).fetch_or(1 << (watch % WATCHES), Ordering::Release);
    }

    /// Client's side: whether what it is about is as it was when the watch began.
    #[inline]
    pub fn is_watched(&self, watch: u32) -> bool {
        self.load(Word::Watches, Ordering::Acquire) & 1 << (watch % WATCHES) == 0
    }

    /// Whether this is the same memory, as mapped here.
    pub fn is_same(&self, other: &QueueMemory) -> bool {
        self.base == other.base
    }

    /// Whether the device has closed the queue.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.load(Word::DeviceClosed, Ordering::Acquire) != 0
    }

    /// The whole region.
    pub fn region(&self) -> &SharedRegion {
        &self.region
    }

    #[inline(always)]
    pub(super) fn atomic(&self, w: Word) -> &AtomicU32 {
        // SAFETY: the header page is inside the region (checked in `new`), the offsets are multiples of 128 from a
        // 64-aligned base, and header words are only ever accessed as atomics.
        unsafe { AtomicU32::from_ptr(self.base.add(w.offset()).cast().as_ptr()) }
    }

    #[inline(always)]
    fn slot(&self, off: u32, slot: u32, size: usize) -> *mut u64 {
        debug_assert!(slot < self.depth);
        // SAFETY: `slot < depth`, so the entry lies inside the ring, which `new` checked to lie inside the region.
        unsafe { self.base.add(off as usize + slot as usize * size).cast().as_ptr() }
    }
}

#[inline(always)]
fn read_words<const N: usize>(from: *const u64) -> [u64; N] {
    // SAFETY: callers pass a pointer to N aligned words of the region; volatile, for the peer may be writing them.
    core::array::from_fn(|i| unsafe { from.add(i).read_volatile() })
}

#[inline(always)]
fn write_words<const N: usize>(to: *mut u64, words: [u64; N]) {
    for (i, w) in words.into_iter().enumerate() {
        // SAFETY: as in `read_words`.
        unsafe { to.add(i).write_volatile(w) };
    }
}

impl RingMemory for QueueMemory {
    #[inline(always)]
    fn depth(&self) -> u32 {
        self.depth
    }

    #[inline(always)]
    fn load(&self, w: Word, order: Ordering) -> u32 {
        self.atomic(w).load(order)
    }

    #[inline(always)]
    fn store(&self, w: Word, value: u32, order: Ordering) {
        self.atomic(w).store(value, order);
    }

    #[inline(always)]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn read_sqe(&self, slot: u32) -> Sqe {
        Sqe::from_words(read_words(self.slot(self.sq_off, slot, Sqe::SIZE)))
    }

    #[inline(always)]
    fn write_sqe(&self, slot: u32, sqe: &Sqe) {
        write_words(self.slot(self.sq_off, slot, Sqe::SIZE), sqe.to_words());
    }

    #[inline(always)]
    fn read_cqe(&self, slot: u32) -> Cqe {
        Cqe::from_words(read_words(self.slot(self.cq_off, slot, Cqe::SIZE)))
    }

    #[inline(always)]
    fn write_cqe(&self, slot: u32, cqe: &Cqe) {
        write_words(self.slot(self.cq_off, slot, Cqe::SIZE), cqe.to_words());
    }
}
