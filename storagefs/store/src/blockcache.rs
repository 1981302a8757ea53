//! Data blocks in memory, for media that are not byte-addressable: fresh blocks until their record's data is on the
//! medium (pinned), and blocks read (evicted by CLOCK). A byte-addressable medium needs none of it.
//!
//! Blocks that came together share a buffer, which is there as long as one of them is: so what is bounded are the
//! buffers. A client that wrote mebibytes and kept one block of each in use would hold 256 times the memory otherwise.

use crate::error::FsResult;
use crate::limits::BLOCK;
use crate::shares::{NOBODY, Owner, Shares};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weldfs_journal::{AlignedBuf, BlockNo, DataWrite, Lsn, Medium};
use weldfs_locks::Mutex;

/// Blocks read at most in one fetch.
pub const FETCH_MAX: u32 = 64;
/// Clean blocks held at least; smaller budgets are raised to it.
const BLOCKS_MIN: usize = 64;

/// The buffer of blocks that came together; counted as long as it is there.
#[derive(Debug)]
struct Held {
    buf: Arc<AlignedBuf>,
    all: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.buf.len(), Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Entry {
    held: Arc<Held>,
    at: u32,
    pinned: bool,
    used: bool,
    owner: Owner,
}

#[derive(Debug, Default)]
struct Inner {
    blocks: HashMap<u64, Entry>,
    clock: VecDeque<u64>,
    /// Pinned by records not yet durable: (end of the record, first block, blocks).
    pins: VecDeque<(u64, u64, u32)>,
    /// Bytes of these.
    pinned: usize,
}

/// The cache.
#[derive(Debug)]
pub struct BlockCache {
    inner: Mutex<Inner>,
    limit: AtomicUsize,
    /// Bytes of the buffers.
    held: Arc<AtomicUsize>,
    shares: Shares,
}

impl BlockCache {
    /// Holds `budget` bytes of clean blocks.
    pub fn new(budget: usize) -> BlockCache {
        BlockCache {
            inner: Mutex::default(),
            limit: AtomicUsize::new((budget / BLOCK).max(BLOCKS_MIN)),
            held: Arc::default(),
            shares: Shares::default(),
        }
    }

    /// Changes the memory that clean blocks may use, bytes.
    pub(crate) fn set_budget(&self, budget: usize) {
        self.limit.store((budget / BLOCK).max(BLOCKS_MIN), Ordering::Relaxed);
        self.evict(&mut self.inner.lock());
    }

    /// Serves the data of a record that ends at `end` until `BlockCache::unpin` says that it is on the medium.
    pub fn pin(&self, data: &[DataWrite], end: Lsn) {
        let mut inner = self.inner.lock();
        for w in data {
            let first = w.off / BLOCK as u64;
            let count = w.buf.len() / BLOCK;
            let held = self.hold(w.buf.clone());
            inner.pinned += count * BLOCK;
            for i in 0..count {
                let e = Entry { held: held.clone(), at: (i * BLOCK) as u32, pinned: true, used: true, owner: NOBODY };
                self.put(&mut inner, first + i as u64, e);
            }
            inner.pins.push_back((end.0, first, count as u32));
        }
    }

    /// Everything below `watermark` is on the medium: its blocks may be evicted.
    pub(crate) fn unpin(&self, watermark: Lsn) {
        let mut inner = self.inner.lock();
        while inner.pins.front().is_some_and(|p| p.0 <= watermark.0) {
            let Some((_, first, count)) = inner.pins.pop_front() else { break };
            inner.pinned -= count as usize * BLOCK;
            for b in first..first + u64::from(count) {
                let newly = inner.blocks.get_mut(&b).is_some_and(|e| std::mem::replace(&mut e.pinned, false));
                if newly {
                    inner.clock.push_back(b);
                }
            }
        }
        self.evict(&mut inner);
    }

    /// Bytes that are here because of `owner`.
    pub fn of(&self, owner: Owner) -> u64 {
        self.shares.of(owner)
    }

    /// Bytes of memory that it holds, for pinned blocks and for others.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed) as u64
    }

    fn hold(&self, buf: Arc<AlignedBuf>) -> Arc<Held> {
        self.held.fetch_add(buf.len(), Ordering::Relaxed);
        Arc::new(Held { buf, all: self.held.clone() })
    }

    fn put(&self, inner: &mut Inner, block: u64, entry: Entry) {
        self.shares.add(entry.owner, BLOCK);
        if let Some(old) = inner.blocks.insert(block, entry) {
            self.shares.sub(old.owner, BLOCK);
        }
    }

    fn take(&self, inner: &mut Inner, block: u64) {
        if let Some(old) = inner.blocks.remove(&block) {
            self.shares.sub(old.owner, BLOCK);
        }
    }

    fn evict(&self, inner: &mut Inner) {
        let mut steps = inner.clock.len() * 2;
        let limit = self.limit.load(Ordering::Relaxed);
        let over = |inner: &Inner| {
            let clean = self.held.load(Ordering::Relaxed).saturating_sub(inner.pinned);
            inner.clock.len() > limit || clean > limit * BLOCK
        };
        while steps > 0 && over(inner) {
            steps -= 1;
            let Some(b) = inner.clock.pop_front() else { return };
            let Some(e) = inner.blocks.get_mut(&b) else { continue };
            if e.pinned {
                continue; // written anew since: it comes back when it is unpinned
            }
            // No second chance for those who have more than their part.
            if std::mem::take(&mut e.used) && !self.shares.is_over(e.owner, limit * BLOCK) {
                inner.clock.push_back(b);
            } else {
                self.take(inner, b);
            }
        }
    }

    /// Copies a cached block; false if it is not here.
    pub fn get(&self, addr: u64, buf: &mut [u8; BLOCK]) -> bool {
        let mut inner = self.inner.lock();
        let Some(e) = inner.blocks.get_mut(&addr) else { return false };
        e.used = true;
        let at = e.at as usize;
        let shared = e.held.clone();
        drop(inner);
        buf.copy_from_slice(&shared.buf[at..at + BLOCK]);
        true
    }

    /// How many of `count` blocks from `addr` on are not here, up to the first one that is: at least 1, for the one
    /// that was missed may have come meanwhile.
    pub(crate) fn cold_run(&self, addr: u64, count: u32) -> u32 {
        let inner = self.inner.lock();
        (1..count).find(|i| inner.blocks.contains_key(&(addr + u64::from(*i)))).unwrap_or(count).max(1)
    }

    /// Reads blocks into the cache for `owner`; blocks on the medium. What is here already stays.
    ///
    /// # Errors
    /// The medium.
    pub fn fetch(&self, medium: &dyn Medium, addr: BlockNo, count: u32, owner: Owner) -> FsResult<()> {
        let count = count.clamp(1, FETCH_MAX);
        let mut buf = AlignedBuf::zeroed(count as usize * BLOCK);
        medium.read(addr.0 * BLOCK as u64, &mut buf)?;
        let held = self.hold(Arc::new(buf));
        let mut inner = self.inner.lock();
        for i in 0..count {
            let b = addr.0 + u64::from(i);
            if !inner.blocks.contains_key(&b) {
                let e = Entry { held: held.clone(), at: i * BLOCK as u32, pinned: false, used: true, owner };
                self.put(&mut inner, b, e);
                inner.clock.push_back(b);
            }
        }
        drop(held);
        self.evict(&mut inner);
        Ok(())
    }

    /// Forgets a block whose bytes were found wrong, unless the medium has no other copy yet.
    pub(crate) fn distrust(&self, addr: u64) {
        let mut inner = self.inner.lock();
        if inner.blocks.get(&addr).is_some_and(|e| !e.pinned) {
            self.take(&mut inner, addr);
        }
    }

    /// Forgets blocks that were written past the cache.
    pub fn forget(&self, addr: u64) {
        self.take(&mut self.inner.lock(), addr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_media::RamMedium;

    #[test]
    fn a_block_in_use_does_not_keep_the_memory_of_all_that_came_with_it_for_nothing() {
        let (mib, budget) = (256 * BLOCK, 8 << 20);
        let cache = BlockCache::new(budget);
        let mut buf = [0; BLOCK];
        for n in 0..64u64 {
            let data = DataWrite { off: n * mib as u64, buf: Arc::new(AlignedBuf::zeroed(mib)) };
            cache.pin(std::slice::from_ref(&data), Lsn(n + 1));
            drop(data);
            assert!(cache.held() >= mib as u64, "pinned, whatever the budget");
            cache.unpin(Lsn(n + 1));
            // One block of each is in use all the time.
            (0..=n).for_each(|m| assert!(cache.get(m * 256, &mut buf) || m < n));
            assert!(cache.held() <= budget as u64, "{} bytes after {n} mebibytes", cache.held());
        }
        assert!(cache.get(63 * 256, &mut buf), "what was written last is here");
        assert!(cache.held() > budget as u64 / 2, "and it is used");
        (0..64 * 256).for_each(|b| cache.forget(b));
        assert_eq!(cache.held(), 0);
    }

    #[test]
    fn who_streams_through_the_cache_drops_his_own_blocks_first() {
        let medium = RamMedium::new(16 << 20);
        let cache = BlockCache::new(128 * BLOCK);
        let (modest, streaming) = (1, 2);
        cache.fetch(&medium, BlockNo(0), 32, modest).unwrap();
        let mut buf = [0; BLOCK];
        for at in (64..4032).step_by(32) {
            // What the modest one has is in use all the time; without shares it would still go as often as the rest.
            assert!((0..32).all(|b| cache.get(b, &mut buf)), "at {at}");
            cache.fetch(&medium, BlockNo(at), 32, streaming).unwrap();
        }
        assert_eq!(cache.of(modest), 32 * BLOCK as u64, "all of it is still here");
        assert!(cache.of(streaming) <= 96 * BLOCK as u64, "{}", cache.of(streaming));
        cache.set_budget(0);
        assert!(cache.of(modest) + cache.of(streaming) <= (BLOCKS_MIN * BLOCK) as u64);
        (0..4096).for_each(|b| cache.forget(b));
        assert_eq!((cache.of(modest), cache.of(streaming)), (0, 0));
    }
}
