//! The store: file-system state as effects over a checkpoint tree. Reads are synchronous and composed (active over
//! frozen over tree); changes are planned and committed as one journal record; a checkpoint moves them to the tree.
//!
//! All methods may be called by any thread. Effects on one inode are ordered by the inode sets their planners hold.

mod ledger;
mod micro;
mod names;
mod parts;
mod pins;
mod plan;
mod read;
mod records;
mod spare;
pub mod tails;
mod together;

#[cfg(test)]
mod tests;

pub use crate::micro::Group;
pub use ledger::Ledger;
pub use micro::MicroTxn;
pub use micro::as_one_record;
pub use names::NameHash;
pub use names::{removal_in, slot_in};
pub use plan::{Need, Plan};
pub use read::Around;
pub use read::{BlockKind, BlockView};
pub use spare::Spare;

use crate::alloc::Alloc;
use crate::blockcache::BlockCache;
use crate::checkpoint::Writer;
use crate::effect::Effect;
use crate::error::{FsError, FsResult, Miss};
use crate::geometry::Geometry;
use crate::integrity::Damage;
use crate::micro::open::OpenTxns;
use crate::outcomes::{Identity, Outcomes};
use crate::overlay::{InoMap, Overlay};
use crate::reclaim::Pending;
use crate::record::{InodeRec, Time};
use crate::shares::{NOBODY, Owner};
use crate::tree::PageRef;
use pins::Pins;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use weldfs_ciscops::{Errno, InodeNo, OutcomeBody, OutcomeState};
use weldfs_journal::{Clock, Journal, Medium, MediumInfo, Random};
use weldfs_locks::{Mutex, RwLock};

/// Pages remembered whose fetch found other bytes.
const SUSPECTS_MAX: usize = 64;
/// This part of the memory for caches is that of inodes and names that were looked up, decoded.
const CELLS_PART: usize = 8;

/// How to mount.
#[derive(Clone)]
pub struct MountOptions {
    /// Write nothing: recover in memory only.
    pub read_only: bool,
    /// Memory for overlay, page cache and block cache together, bytes; up to an eighth more (at least 1 MiB) holds
    /// outcomes of detectable commands, if there are so many.
    pub memory: usize,
    /// Verify the data CRCs of records above the recorded watermark (always, except in measurements).
    pub verify_data: bool,
    /// Bits of the name hash that count; below 51 only in tests of collisions, then the same at every mount.
    pub hash_bits: u32,
    /// On block media: whoever commits writes and flushes by itself, and no commit thread is started. For tools and
    /// tests that drive the store by one thread; their writes come in the same order every time.
    pub inline_commits: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
}

impl MountOptions {
    /// Read-write with 64 MiB of memory.
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> MountOptions {
        MountOptions {
            read_only: false,
            memory: 64 << 20,
            verify_data: true,
            hash_bits: 51,
            inline_commits: false,
            clock,
            random,
        }
    }
}

/// Totals for statfs, in blocks of 4096 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Statfs {
    /// Blocks for files and metadata, the reserves not counted.
    pub blocks: u64,
    /// Blocks that can still be written.
    pub free: u64,
    /// Inodes.
    pub inodes: u64,
    /// Longest payload kept in a record, bytes.
    pub inline_max: u32,
    /// First eight bytes of the UUID.
    pub fsid: u64,
}

/// How the log of an image ended when it was mounted, for as long as the device runs: whoever opens an image through a
/// library has no other report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LogEnd {
    /// The image had been closed cleanly: nothing was recovered.
    pub clean: bool,
    /// Where the log ended, LSN; a record behind that which is gone as a whole has left no trace.
    pub tail_lsn: u64,
    /// Everything below this LSN had been durable.
    pub watermark: u64,
    /// Whole records of a torn tail, which were discarded.
    pub discarded_records: u64,
    /// Bytes of them.
    pub discarded_bytes: u64,
    /// Records in it that are not whole.
    pub discarded_torn: u64,
}

/// Counters of the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct StoreStats {
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Bytes that checkpoints wrote: merged blocks, pages of metadata, superblocks.
    pub checkpoint_bytes: u64,
    /// Keys waiting for the next one.
    pub overlay_keys: u64,
    /// Memory of the overlay, bytes.
    pub overlay_bytes: u64,
    /// Blocks whose changes so far live in the log only.
    pub patched_blocks: u64,
    /// Blocks of the metadata zone.
    pub zone_blocks: u64,
    /// Blocks held by files.
    pub held_blocks: u64,
    /// Free blocks on the medium.
    pub free_blocks: u64,
    /// Cuts and orphans not yet drained.
    pub reclaim_pending: u64,
    /// Pages read from the medium.
    pub page_reads: u64,
    /// Pages written to the medium.
    pub page_writes: u64,
    /// Memory of the outcomes of detectable commands, bytes.
    pub outcome_bytes: u64,
    /// Times that bytes were met which are not what was written (each gave EIO, or marked a block bad).
    pub damage_found: u64,
}

/// Is told what changes.
pub trait Changes: Send + Sync {
    /// These effects will be applied now: none of them can be seen yet.
    fn change(&self, effects: &[Effect]);
}

/// The file system below its semantics. See the module.
pub struct Store {
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) info: MediumInfo,
    pub(crate) geometry: Geometry,
    pub(crate) overlay: Overlay,
    pub(crate) alloc: Alloc,
    pub(crate) ledger: Ledger,
    pub(crate) journal: OnceLock<Arc<Journal>>,
    /// Commits hold it shared, the checkpoint cut exclusively.
    pub(crate) gate: RwLock<()>,
    /// Records that began to be applied, and records applied.
    pub(crate) applying: AtomicU64,
    pub(crate) applied: AtomicU64,
    pub(crate) cache: BlockCache,
    /// Last blocks of files that grow.
    pub(crate) tails: tails::Tails,
    pub(crate) damage: Damage,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) reclaim: Pending,
    /// Transactions with a begin record and no end record.
    pub(crate) txns: OpenTxns,
    /// What became of detectable commands.
    pub(crate) outcomes: Outcomes,
    pub(crate) hash: NameHash,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) uuid: [u8; 16],
    pub(crate) inline_max: u32,
    pub(crate) budget: usize,
    /// Memory of page and block cache.
    pub(crate) cache_bytes: usize,
    pub(crate) read_only: bool,
    /// How the log ended when it was mounted.
    pub(crate) mounted: OnceLock<LogEnd>,
    /// Unmounted: nothing may be begun any more.
    pub(crate) closed: AtomicBool,
    pub(crate) checkpoints: AtomicU64,
    /// Bytes of blocks that checkpoints merged, and of superblocks; pages are counted where they are written.
    pub(crate) checkpoint_bytes: AtomicU64,
    pub(crate) opens: Mutex<InoMap<u32>>,
    /// Told of changes.
    pub(crate) changes: OnceLock<Arc<dyn Changes>>,
    /// Ranges of files that virtual files which are open stream from or to.
    pub(crate) pins: Pins,
    /// Pages whose fetch found other bytes, once: see [`Store::fetch`].
    pub(crate) suspects: Mutex<VecDeque<PageRef>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.stats())
    }
}

impl Store {
    /// The record of an inode; `None` if there is none.
    ///
    /// # Errors
    /// `Miss` on a cold page, damage.
    pub fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>> {
        self.overlay.inode(ino.0, InodeRec::clone)
    }

    /// The same into `rec`; whether there is one.
    ///
    /// # Errors
    /// `Miss` on a cold page, damage.
    #[inline]
    pub fn inode_into(&self, ino: InodeNo, rec: &mut InodeRec) -> FsResult<bool> {
        Ok(self.overlay.inode(ino.0, |found| rec.set(found))?.is_some())
    }

    /// Looks at an inode's record where it lies.
    ///
    /// # Errors
    /// ENOENT, `Miss` on a cold page, damage.
    pub fn look_at<T>(&self, ino: InodeNo, look: impl FnOnce(&InodeRec) -> T) -> FsResult<T> {
        self.overlay.inode(ino.0, look)?.ok_or(Errno::NOENT.into())
    }

    /// Has `changes` told of all that is applied from now on. False: another one is, for as long as the store lives.
    pub fn tell_changes(&self, changes: Arc<dyn Changes>) -> bool {
        self.changes.set(changes).is_ok()
    }

    /// A number for a new inode. Numbers not used are lost, which is harmless.
    pub fn alloc_ino(&self) -> InodeNo {
        InodeNo(self.ledger.next_ino.fetch_add(1, Relaxed))
    }

    /// The same, with the generation of what is created `now`.
    pub fn fresh_number(&self, now: Time) -> (InodeNo, u32) {
        let ino = self.alloc_ino();
        (ino, (ino.0 as u32).wrapping_mul(0x9e37_79b1) ^ now.nsec ^ now.sec as u32)
    }

    /// Counts an open description (or a session's use) of an inode: it outlives its last name until the last close.
    pub fn open_ref(&self, ino: InodeNo) {
        *self.opens.lock().entry(ino.0).or_insert(0) += 1;
    }

    /// The same for several at once.
    pub(crate) fn open_refs(&self, inos: &[InodeNo]) {
        let mut opens = self.opens.lock();
        inos.iter().for_each(|ino| *opens.entry(ino.0).or_insert(0) += 1);
    }

    /// Ends what `Store::open_ref` began. An orphan that is not open goes with the next reclaim steps.
    pub fn close_ref(&self, ino: InodeNo) {
        self.close_refs(&[ino]);
    }

    /// The same for several at once.
    pub(crate) fn close_refs(&self, inos: &[InodeNo]) {
        let mut opens = self.opens.lock();
        for ino in inos {
            if let Some(n) = opens.get_mut(&ino.0) {
                *n -= 1;
                if *n == 0 {
                    opens.remove(&ino.0);
                }
            }
        }
    }

    /// Brings what missed into memory; blocks on the medium. For a metadata thread. Whoever missed looks again then; it
    /// may miss something else, because checkpoints end meanwhile.
    ///
    /// # Errors
    /// The medium, damage.
    pub fn fetch(&self, miss: &Miss) -> FsResult<()> {
        self.fetch_for(miss, NOBODY)
    }

    /// The same; what the caches hold because of it is `owner`'s.
    ///
    /// # Errors
    /// The medium, damage.
    pub fn fetch_for(&self, miss: &Miss, owner: Owner) -> FsResult<()> {
        match miss {
            Miss::Page(page) => self.fetch_page(page, owner),
            Miss::Blocks { addr, count } => self.cache.fetch(&*self.medium, *addr, *count, owner),
        }
    }

    /// Runs `f` until it does not miss; blocks. For threads that may.
    ///
    /// # Errors
    /// Those of `f`, except misses.
    pub fn blocking<T>(&self, mut f: impl FnMut() -> FsResult<T>) -> FsResult<T> {
        loop {
            match f() {
                Err(FsError::Miss(m)) => self.fetch(&m)?,
                Err(FsError::Turn) => {}
                other => return other,
            }
        }
    }

    /// What became of a detectable command, as far as it is known.
    pub fn outcome(&self, id: &Identity) -> OutcomeBody {
        // First the open transactions, then the table: a transaction that ends comes to the table before it goes there.
        let Some(txn) = self.txns.running(id) else { return self.outcomes.lookup(id).to_body() };
        OutcomeBody {
            state: OutcomeState::InProgress as u8,
            micro_done: txn.next,
            micro_ops: txn.begin.steps(),
            ..OutcomeBody::default()
        }
    }

    /// Totals.
    pub fn statfs(&self) -> Statfs {
        let l = &self.ledger;
        let fsid = self.uuid.iter().take(8).fold(0, |acc, b| acc << 8 | u64::from(*b));
        Statfs {
            blocks: l.capacity - l.reserve,
            free: (l.logical_free() + l.spared.load(Relaxed)).max(0) as u64,
            inodes: l.inodes.load(Relaxed).max(0) as u64,
            inline_max: self.inline_max,
            fsid,
        }
    }

    /// Counters.
    pub fn stats(&self) -> StoreStats {
        let l = &self.ledger;
        let n = |a: &std::sync::atomic::AtomicI64| a.load(Relaxed).max(0) as u64;
        let pages = self.overlay.base(0).pages.stats();
        StoreStats {
            checkpoints: self.checkpoints.load(Relaxed),
            checkpoint_bytes: self.checkpoint_bytes.load(Relaxed) + pages.writes * crate::limits::PAGE as u64,
            overlay_keys: n(&l.keys),
            overlay_bytes: n(&l.bytes) + n(&l.frozen_bytes),
            patched_blocks: n(&l.patched),
            zone_blocks: n(&l.zone),
            held_blocks: n(&l.held),
            free_blocks: self.alloc.free(),
            reclaim_pending: self.reclaim.len() as u64,
            page_reads: pages.reads,
            page_writes: pages.writes,
            outcome_bytes: self.outcomes.bytes(),
            damage_found: self.damage.found(),
        }
    }

    /// Bytes that the caches had at the mount: all that `Store::set_cache_budget` may give them.
    pub fn cache_budget_max(&self) -> usize {
        self.cache_bytes
    }

    /// Bytes of the caches that are used because of `owner`.
    pub fn cached_for(&self, owner: Owner) -> u64 {
        self.overlay.base(0).pages.of(owner) + self.cache.of(owner)
    }

    /// Bytes that the caches hold, for anyone.
    pub fn cached(&self) -> u64 {
        let pages = self.overlay.base(0).pages.stats().cached * crate::limits::PAGE as u64;
        pages + self.cache.held() + self.overlay.cell_bytes() as u64
    }

    /// Changes what pages and blocks that were read may take together, with cells, bytes; what is over is dropped at
    /// once. On a medium that needs no block cache it is the pages' and the cells' alone.
    pub fn set_cache_budget(&self, bytes: usize) {
        let bytes = bytes.min(self.cache_bytes);
        let cells = bytes / CELLS_PART;
        self.overlay.set_cells(cells);
        let bytes = bytes - cells;
        let pages = if self.info.byte_addressable { bytes } else { bytes / 2 };
        self.overlay.base(0).pages.set_budget(pages);
        if !self.info.byte_addressable {
            self.cache.set_budget(bytes - pages);
        }
    }

    /// Longest payload an operation should keep in its record, bytes.
    pub fn inline_max(&self) -> usize {
        self.inline_max as usize
    }

    /// Whether fresh data is written straight to the medium before the commit (else it goes along as `Plan::data`).
    pub fn writes_directly(&self) -> bool {
        self.info.byte_addressable
    }

    /// The medium.
    pub fn medium(&self) -> &Arc<dyn Medium> {
        &self.medium
    }

    /// The journal.
    pub fn journal(&self) -> &Arc<Journal> {
        self.journal.get().expect("mount opens the journal before it hands out the store")
    }

    /// Time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The layout.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// UUID of the file system.
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// Whether nothing may be changed.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether a checkpoint should run soon: a quarter of the log or of the overlay's memory is used, or blocks are
    /// short. Early enough that what comes in while it runs fits into the half above which operations are slowed down.
    pub fn needs_checkpoint(&self) -> bool {
        let l = &self.ledger;
        let keys = l.keys.load(Relaxed);
        let log = self.journal().used() > self.journal().reservable_bytes_max() / 4;
        let memory = l.bytes.load(Relaxed).max(0) as usize > self.budget / 4;
        let short = keys > 0 && l.avail.load(Relaxed) < l.reserve as i64 / 2 + l.meta_growth(0, 0);
        // What a read-only mount replayed stays in memory.
        !self.read_only && (log || memory || short)
    }

    /// How full the fuller one of log and overlay is, as a share of `scale`.
    pub fn fill(&self, scale: u64) -> u64 {
        let l = &self.ledger;
        let memory = (l.bytes.load(Relaxed) + l.frozen_bytes.load(Relaxed)).max(0) as u64;
        // Of what can be reserved at all, and with what is: a small log stops well below its length.
        let most = self.journal().reservable_bytes_max();
        let log = most.saturating_sub(self.journal().free()) * scale / most;
        log.max(memory * scale / self.budget as u64)
    }

    pub(crate) fn overlay_full(&self) -> bool {
        (self.ledger.bytes.load(Relaxed) + self.ledger.frozen_bytes.load(Relaxed)).max(0) as usize > self.budget
    }

    pub(crate) fn check_poison(&self) -> FsResult<()> {
        if self.medium.is_poisoned() { Err(FsError::Errno(Errno::IO)) } else { Ok(()) }
    }

    fn fetch_page(&self, page: &PageRef, owner: Owner) -> FsResult<()> {
        let fetched = self.overlay.base(0).pages.fetch(page, owner);
        if !matches!(fetched, Err(FsError::Corrupt(_))) {
            return fetched;
        }
        // Since the page was looked up, checkpoints may have given its place to another one. Who looks again asks for
        // the new one then; who asks for this one again is told the truth.
        let mut suspects = self.suspects.lock();
        if suspects.contains(page) {
            return fetched;
        }
        if suspects.len() >= SUSPECTS_MAX {
            suspects.pop_front();
        }
        suspects.push_back(*page);
        Ok(())
    }
}
