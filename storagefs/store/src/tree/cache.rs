//! Verified pages in memory: sharded, bounded, evicted by CLOCK; filled from the medium on demand.

use super::page::{NewPage, Page, PageBytes, PageType, blank};
use super::{PageRef, TreeRoot};
use crate::error::{FsError, FsResult, Miss, Place};
use crate::limits::{BLOCK, PAGE, PAGE_BLOCKS, PAGE_CACHE_MIN};
use crate::shares::{NOBODY, Owner, Shares};
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use weldfs_journal::{IoWrite, Medium};
use weldfs_locks::Mutex;

/// Shards; a power of two.
const SHARDS: usize = 64;
/// Memory of a cached page beside its 16 KiB, bytes (page record, hash table, map and clock entries).
const OVERHEAD: usize = 1024;

struct Slot {
    page: Arc<Page>,
    used: bool,
    owner: Owner,
}

#[derive(Default)]
struct Shard {
    index: HashMap<u64, u32>,
    slots: Vec<Slot>,
    hand: usize,
}

impl Shard {
    fn get(&mut self, want: &PageRef) -> Option<Arc<Page>> {
        let at = *self.index.get(&want.addr.0)? as usize;
        let slot = &mut self.slots[at];
        if slot.page.this() != *want {
            return None; // the address was reused since: the page of that name is not here
        }
        slot.used = true;
        Some(slot.page.clone())
    }

    /// Keeps a page for `owner`; a shard holds at most `limit`.
    fn put(&mut self, page: Arc<Page>, owner: Owner, limit: usize, shares: &Shares) {
        shares.add(owner, PAGE + OVERHEAD);
        let addr = page.this().addr.0;
        if let Some(&at) = self.index.get(&addr) {
            let old = std::mem::replace(&mut self.slots[at as usize], Slot { page, used: true, owner });
            shares.sub(old.owner, PAGE + OVERHEAD);
            return;
        }
        if self.slots.len() < limit {
            self.index.insert(addr, self.slots.len() as u32);
            self.slots.push(Slot { page, used: true, owner });
            return;
        }
        let at = self.victim(|owner| shares.is_over(owner, limit * SHARDS * (PAGE + OVERHEAD)));
        self.index.remove(&self.slots[at].page.this().addr.0);
        self.index.insert(addr, at as u32);
        let old = std::mem::replace(&mut self.slots[at], Slot { page, used: true, owner });
        shares.sub(old.owner, PAGE + OVERHEAD);
    }

    /// Drops slots beyond `limit`, after the budget was lowered.
    fn shrink(&mut self, limit: usize, shares: &Shares) {
        while self.slots.len() > limit {
            if let Some(last) = self.slots.pop() {
                self.index.remove(&last.page.this().addr.0);
                shares.sub(last.owner, PAGE + OVERHEAD);
            }
        }
    }

    /// CLOCK: the first slot not used since the hand last passed, or of an owner who is over its part; at most two
    /// rounds.
    fn victim(&mut self, is_over: impl Fn(Owner) -> bool) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if !std::mem::take(&mut slot.used) || is_over(slot.owner) {
                return self.hand;
            }
        }
    }
}

/// Counters of the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Pages read from the medium and verified.
    pub reads: u64,
    /// Pages written to the medium.
    pub writes: u64,
    /// Pages in the cache.
    pub cached: u64,
    /// Most pages the cache may hold.
    pub limit: u64,
}

struct Shared {
    medium: Arc<dyn Medium>,
    uuid: [u8; 16],
    blocks: u64,
    immediate: bool,
    shards: Box<[Mutex<Shard>]>,
    limit: AtomicUsize,
    shares: Shares,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Access to the metadata pages of one file system. Clones share the cache; all methods may be called by any thread.
#[derive(Clone)]
pub struct Pages {
    shared: Arc<Shared>,
    blocking: bool,
}

impl Pages {
    /// Pages of the file system `uuid`, which has `blocks` blocks; the cache holds `budget` bytes.
    pub fn new(medium: Arc<dyn Medium>, uuid: [u8; 16], blocks: u64, budget: usize) -> Pages {
        let immediate = medium.info().byte_addressable;
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (limit, shares, reads, writes) = Default::default();
        let pages = Pages {
            shared: Arc::new(Shared { medium, uuid, blocks, immediate, shards, limit, shares, reads, writes }),
            blocking: false,
        };
        pages.set_budget(budget);
        pages
    }

    /// The same pages for a thread that may block (mount, checkpoint, fsck): a cold page is read, never a miss.
    pub fn blocking(&self) -> Pages {
        Pages { shared: self.shared.clone(), blocking: true }
    }

    /// Changes the memory the cache may use, bytes.
    pub(crate) fn set_budget(&self, budget: usize) {
        let limit = (budget.max(PAGE_CACHE_MIN) / (PAGE + OVERHEAD)).div_ceil(SHARDS);
        self.shared.limit.store(limit, Ordering::Relaxed);
        self.shared.shards.iter().for_each(|s| s.lock().shrink(limit, &self.shared.shares));
    }

    /// The file system these pages belong to.
    pub fn uuid(&self) -> &[u8; 16] {
        &self.shared.uuid
    }

    /// Counters so far.
    pub fn stats(&self) -> PageStats {
        let cached = self.shared.shards.iter().map(|s| s.lock().slots.len() as u64).sum();
        let limit = (self.shared.limit.load(Ordering::Relaxed) * SHARDS) as u64;
        let load = |a: &AtomicU64| a.load(Ordering::Relaxed);
        PageStats { reads: load(&self.shared.reads), writes: load(&self.shared.writes), cached, limit }
    }

    /// Forgets every page, as if others had needed the room; for tests of what is cold.
    #[doc(hidden)]
    pub fn forget_all(&self) {
        self.shared.shards.iter().for_each(|s| s.lock().shrink(0, &self.shared.shares));
    }

    fn shard(&self, want: &PageRef) -> &Mutex<Shard> {
        let hash = (want.addr.0 / PAGE_BLOCKS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shared.shards[(hash >> (64 - SHARDS.ilog2())) as usize]
    }

    /// The tree page `want` names. `Err(Miss)` when it is cold, the medium is slow and this thread must not block.
    #[inline]
    pub fn get(&self, want: &PageRef) -> FsResult<Arc<Page>> {
        if let Some(page) = self.shard(want).lock().get(want) {
            return Ok(page);
        }
        if !self.blocking && !self.shared.immediate {
            return Err(FsError::Miss(Miss::Page(*want)));
        }
        self.read_in(want, NOBODY)
    }

    /// Bytes of the cache that are used because of `owner`.
    pub fn of(&self, owner: Owner) -> u64 {
        self.shared.shares.of(owner)
    }

    /// Brings a page that missed into the cache for `owner`; blocks on the medium.
    pub fn fetch(&self, want: &PageRef, owner: Owner) -> FsResult<()> {
        if self.shard(want).lock().get(want).is_none() {
            self.read_in(want, owner)?;
        }
        Ok(())
    }

    #[cold]
    fn read_in(&self, want: &PageRef, owner: Owner) -> FsResult<Arc<Page>> {
        let page = Arc::new(self.read_uncached(want)?);
        self.keep(page.clone(), owner);
        Ok(page)
    }

    fn keep(&self, page: Arc<Page>, owner: Owner) {
        let limit = self.shared.limit.load(Ordering::Relaxed);
        self.shard(&page.this()).lock().put(page, owner, limit, &self.shared.shares);
    }

    /// Reads and verifies a tree page, past the cache.
    pub(crate) fn read_uncached(&self, want: &PageRef) -> FsResult<Page> {
        let page = self.read_any(want)?;
        if page.kind() == PageType::ZoneMap {
            return Err(FsError::corrupt("metadata page (type)", place(want), 1, PageType::ZoneMap as u64));
        }
        Ok(page)
    }

    /// Reads and verifies a page of any type.
    pub(crate) fn read_any(&self, want: &PageRef) -> FsResult<Page> {
        if want.is_none() || want.addr.0.checked_add(PAGE_BLOCKS).is_none_or(|end| end > self.shared.blocks) {
            let place = place(want);
            return Err(FsError::corrupt(
                "page reference (outside the medium)",
                place,
                self.shared.blocks,
                want.addr.0,
            ));
        }
        let mut bytes: PageBytes = blank();
        self.shared.medium.read(want.addr.0 * BLOCK as u64, &mut bytes[..])?;
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        Page::verify(bytes, want, &self.shared.uuid)
    }

    /// Writes pages just built (no barrier) and, where `cache` says so, keeps them.
    pub(crate) fn write(&self, pages: &[Arc<Page>], cache: bool) -> FsResult<()> {
        let batch: Vec<IoWrite<'_>> =
            pages.iter().map(|p| IoWrite { off: p.this().addr.0 * BLOCK as u64, buf: &p.bytes()[..] }).collect();
        self.shared.medium.write_batch(&batch)?;
        self.shared.writes.fetch_add(pages.len() as u64, Ordering::Relaxed);
        if cache {
            pages.iter().for_each(|p| self.keep(p.clone(), NOBODY));
        }
        Ok(())
    }

    /// What the header of a page built now says.
    pub(crate) fn new_page(
        &self,
        kind: PageType,
        level: u8,
        addr: weldfs_journal::BlockNo,
        birth: weldfs_journal::Lsn,
    ) -> NewPage {
        NewPage { kind, level, uuid: self.shared.uuid, addr, birth }
    }
}

fn place(want: &PageRef) -> Place {
    Place::Medium(want.addr.0.wrapping_mul(BLOCK as u64))
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pages({:?})", self.stats())
    }
}

impl TreeRoot {
    /// Whether the tree is empty.
    pub fn is_empty(&self) -> bool {
        self.page.is_none()
    }
}
