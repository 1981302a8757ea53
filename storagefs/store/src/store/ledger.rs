//! What is used, promised and free. Two questions are kept apart:
//!
//! * *logical*: do all files with everything promised to them fit? Only this gives ENOSPC. Reserves for copy-on-write
//!   and metadata are outside.
//! * *physical*: is there a free block right now? Freed blocks wait for a checkpoint, so an operation may have to wait
//!   for one, and never fails for want of them.

use super::Need;
use crate::error::{FsError, FsResult, Wait};
use crate::geometry::Geometry;
use crate::limits::{BLOCK, PAGE_BLOCKS};
use crate::micro::open::{TxnRoom, weight};
use crate::overlay::apply::Tally;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use weldfs_ciscops::Errno;
use weldfs_ciscops::limits::{ATOMIC_WRITE_MAX, MICRO_OPS_MAX, PROGRAM_WRITE_MAX, TXN_BYTES_MAX, TXN_WRITES_MAX};

/// Blocks that the largest command writes: a program, with room for the unaligned ends of its writes.
pub(super) const COMMAND_BLOCKS: u64 = PROGRAM_WRITE_MAX / BLOCK as u64 + 2 * MICRO_OPS_MAX as u64;
/// The same of the largest command that is no program and no transaction of several commands.
const PLAIN_BLOCKS: u64 = ATOMIC_WRITE_MAX as u64 / BLOCK as u64 + 4;
/// Blocks of metadata that the reserve has beside, at most.
const SLACK_MAX: u64 = 1024;

const _: () = assert!(TXN_BYTES_MAX / BLOCK as u64 + 2 * TXN_WRITES_MAX as u64 <= COMMAND_BLOCKS);

/// The counters. All in blocks unless named otherwise.
#[derive(Debug)]
pub struct Ledger {
    /// Blocks for data and metadata in all.
    pub capacity: u64,
    /// Outside what statfs calls free: copy-on-write of one command and some more.
    pub reserve: u64,
    /// Blocks that one command can replace whatever is free: all that a command may replace at most, unless the image
    /// is small. What a command replaces beyond them has to be free.
    pub covered: u64,
    /// Free on the medium, minus promised, minus what merging patches will take.
    pub avail: AtomicI64,
    /// Held by files.
    pub held: AtomicI64,
    /// Promised to plans in flight as growth of files.
    pub growing: AtomicI64,
    /// Of that, what is kept for files under a lease, and is free for statfs.
    pub spared: AtomicI64,
    /// Promised to plans in flight in all.
    pub inflight: AtomicI64,
    /// Blocks with patches in the overlay.
    pub patched: AtomicI64,
    /// Blocks of the metadata zone.
    pub zone: AtomicI64,
    /// Pages of the zone in use, and not in use.
    pub zone_live: AtomicI64,
    /// Pages of the zone that can be handed out.
    pub zone_free: AtomicI64,
    /// Inodes.
    pub inodes: AtomicI64,
    /// Keys a checkpoint of the active layer must write.
    pub keys: AtomicI64,
    /// Bytes of the active layer.
    pub bytes: AtomicI64,
    /// Bytes of the frozen layer.
    pub frozen_bytes: AtomicI64,
    /// What open transactions add to the next checkpoint.
    pub txns: Arc<TxnRoom>,
    /// Next inode number.
    pub next_ino: AtomicU64,
    /// Next transaction id.
    pub next_txn: AtomicU64,
}

impl Ledger {
    /// Nothing used.
    pub fn new(geometry: &Geometry) -> Ledger {
        let data = geometry.data_blocks();
        let capacity = data.end - data.start;
        let covered = (capacity / 16).clamp(PLAIN_BLOCKS, COMMAND_BLOCKS);
        let reserve = (covered + (60 + capacity / 64).min(SLACK_MAX)).min(capacity / 2);
        let z = || AtomicI64::new(0);
        Ledger {
            capacity,
            reserve,
            covered,
            avail: z(),
            held: z(),
            growing: z(),
            spared: z(),
            inflight: z(),
            patched: z(),
            zone: z(),
            zone_live: z(),
            zone_free: z(),
            inodes: z(),
            keys: z(),
            bytes: z(),
            frozen_bytes: z(),
            txns: Arc::default(),
            next_ino: AtomicU64::new(2),
            next_txn: AtomicU64::new(1),
        }
    }

    /// Blocks the metadata zone may have to grow by for the changes so far, the open transactions, and `more` keys,
    /// those of a transaction to begin with a record of `begin` bytes (0: none) included.
    pub fn meta_growth(&self, more: i64, begin: usize) -> i64 {
        let (txn_keys, txn_bytes) = self.txns.get();
        let (begin_keys, begin_bytes) = begin_weight(begin);
        let keys = self.keys.load(Relaxed) + more;
        let bytes = self.bytes.load(Relaxed).min(keys * 300) + txn_bytes + begin_bytes;
        let keys = keys + txn_keys + begin_keys;
        // As Zone::pages_needed, with the overlay's bytes for the values' (they are larger).
        let leaves = keys.min(self.zone_live.load(Relaxed)) * 5 / 4 + (bytes + keys * 21) / 13_000 + 20;
        let pages = leaves + leaves / 32 - self.zone_free.load(Relaxed);
        pages.max(0) * PAGE_BLOCKS as i64
    }

    /// The same with what a command needs at most.
    pub(crate) fn growth_for(&self, need: &Need) -> i64 {
        self.meta_growth(need.meta_keys.into(), need.begin_bytes())
    }

    /// Blocks that new data can still take, for statfs.
    pub fn logical_free(&self) -> i64 {
        self.capacity as i64
            - self.reserve as i64
            - self.held.load(Relaxed)
            - self.growing.load(Relaxed)
            - self.zone.load(Relaxed)
    }

    /// Whether free blocks are few enough that runs for metadata may become rare.
    pub(crate) fn tight(&self) -> bool {
        self.avail.load(Relaxed) < self.capacity as i64 / 4
    }

    /// Pages by which a checkpoint may grow the zone ahead of need.
    pub(crate) fn spare_pages(&self) -> u64 {
        let blocks = self.logical_free().min(self.avail.load(Relaxed) - self.reserve as i64);
        blocks.max(0) as u64 / 2 / PAGE_BLOCKS
    }

    /// Promises what `need` names; `growth` is what `growth_for` says of it.
    ///
    /// # Errors
    /// ENOSPC (only to what may fail, and to what replaces more than is covered), or `Wait` for a checkpoint or for
    /// other plans: a promise is the most that a command may take, so it is no reason to tell another one ENOSPC.
    pub(crate) fn promise(&self, need: &Need, growth: i64) -> FsResult<Promise> {
        let beyond = (i64::from(need.overwrite_blocks) - self.covered as i64).max(0);
        let may_fail = need.may_fail || beyond > 0;
        let new = i64::from(need.new_blocks) + beyond;
        let all = i64::from(need.new_blocks) + i64::from(need.overwrite_blocks);
        let dirty = self.keys.load(Relaxed) > 0 || self.frozen_bytes.load(Relaxed) > 0;
        let wanted = new + i64::from(need.meta_keys > 0);
        // What others were promised, before and after what it is part of: a promise that begins or ends meanwhile is a
        // reason to look again, never for ENOSPC.
        let before = self.growing.load(Relaxed);
        let free = self.logical_free();
        let alone = free + before.max(self.growing.load(Relaxed));
        if may_fail && free - growth < wanted {
            // The estimate of metadata may be what is in the way: a checkpoint makes it exact.
            return Err(match (alone - growth >= wanted, alone >= new && dirty) {
                (true, _) => FsError::Wait(Wait::Plans),
                (false, true) => FsError::Wait(Wait::Checkpoint),
                (false, false) => FsError::Errno(Errno::NOSPC),
            });
        }
        let growing = if may_fail { new } else { 0 };
        add(&self.growing, growing);
        let others = self.inflight.fetch_add(all, Relaxed);
        let left = self.avail.fetch_sub(all, Relaxed) - all;
        // Near full, metadata must fit the zone as it is: runs to grow it with may not be found when they are needed.
        let cramped = growth > 0 && dirty && self.tight();
        if (left < growth || cramped) && (all > 0 || may_fail) {
            self.avail.fetch_add(all, Relaxed);
            self.inflight.fetch_sub(all, Relaxed);
            self.growing.fetch_sub(growing, Relaxed);
            let only_others = others > 0 && !cramped && left + others >= growth;
            // A transaction under way ends by itself, and its keys go.
            return Err(match (only_others, dirty || self.txns.get().0 > 0) {
                (true, _) => FsError::Wait(Wait::Plans),
                (false, true) => FsError::Wait(Wait::Checkpoint),
                (false, false) if others > 0 => FsError::Wait(Wait::Plans),
                (false, false) => FsError::Errno(Errno::NOSPC),
            });
        }
        let txn = begin_weight(need.begin_bytes());
        self.txns.add(txn);
        Ok(Promise { blocks: all, growing, txn })
    }

    /// Ends a promise of which `taken` blocks came from the allocator (and stay taken).
    pub fn settle(&self, p: Promise, taken: i64) {
        add(&self.avail, p.blocks - taken);
        add(&self.growing, -p.growing);
        add(&self.inflight, -p.blocks);
        self.txns.add((-p.txn.0, -p.txn.1));
    }

    /// Promises again what was settled just before, whatever is free.
    pub(super) fn keep(&self, p: Promise) {
        add(&self.avail, -p.blocks);
        add(&self.growing, p.growing);
        add(&self.inflight, p.blocks);
        self.txns.add(p.txn);
    }

    /// Books what applied effects changed.
    pub(crate) fn book(&self, t: &Tally) {
        add(&self.held, t.held);
        add(&self.patched, t.patched);
        add(&self.avail, -t.patched);
        add(&self.keys, t.keys);
        add(&self.bytes, t.bytes);
        add(&self.inodes, t.inodes);
    }
}

fn add(a: &AtomicI64, v: i64) {
    if v != 0 {
        a.fetch_add(v, Relaxed);
    }
}

/// What a plan was promised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promise {
    /// Blocks.
    pub blocks: i64,
    /// Of them, growth of files.
    pub growing: i64,
    /// Keys and bytes of the transaction that it will begin.
    pub txn: (i64, i64),
}

/// What a transaction to begin with a record of so many bytes will take in a tree.
fn begin_weight(bytes: usize) -> (i64, i64) {
    if bytes == 0 { (0, 0) } else { weight(bytes) }
}
