//! Data blocks in memory, for media that are not byte-addressable: fresh blocks until their record's data is on the
//! medium (pinned), and blocks read (evicted by CLOCK). A byte-addressable medium needs none of it.

use crate::error::FsResult;
use crate::limits::BLOCK;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use weldfs_journal::{AlignedBuf, BlockNo, DataWrite, Lsn, Medium};

/// Blocks read ahead of need at most in one fetch.
const FETCH_MAX: u32 = 64;

#[derive(Debug)]
struct Entry {
    buf: Arc<AlignedBuf>,
    at: u32,
    pinned: bool,
    used: bool,
}

#[derive(Debug, Default)]
struct Inner {
    blocks: HashMap<u64, Entry>,
    clock: VecDeque<u64>,
    /// Pinned by records not yet durable: (end of the record, first block, blocks).
    pins: VecDeque<(u64, u64, u32)>,
}

/// The cache.
#[derive(Debug)]
pub struct BlockCache {
    inner: Mutex<Inner>,
    limit: usize,
}

impl BlockCache {
    /// Holds `budget` bytes of clean blocks.
    pub fn new(budget: usize) -> BlockCache {
        BlockCache { inner: Mutex::default(), limit: (budget / BLOCK).max(64) }
    }

    /// Serves the data of a record that ends at `end` until [`BlockCache::unpin`] says that it is on the medium.
    pub fn pin(&self, data: &[DataWrite], end: Lsn) {
        let mut inner = self.inner.lock();
        for w in data {
            let first = w.off / BLOCK as u64;
            let count = w.buf.len() / BLOCK;
            for i in 0..count {
                let e = Entry { buf: w.buf.clone(), at: (i * BLOCK) as u32, pinned: true, used: true };
                inner.blocks.insert(first + i as u64, e);
            }
            inner.pins.push_back((end.0, first, count as u32));
        }
    }

    /// Everything below `watermark` is on the medium: its blocks may be evicted.
    pub fn unpin(&self, watermark: Lsn) {
        let mut inner = self.inner.lock();
        while inner.pins.front().is_some_and(|p| p.0 <= watermark.0) {
            let Some((_, first, count)) = inner.pins.pop_front() else { break };
            for b in first..first + u64::from(count) {
                let newly = inner.blocks.get_mut(&b).is_some_and(|e| std::mem::replace(&mut e.pinned, false));
                if newly {
                    inner.clock.push_back(b);
                }
            }
        }
        self.evict(&mut inner);
    }

    fn evict(&self, inner: &mut Inner) {
        let mut steps = inner.clock.len() * 2;
        while inner.clock.len() > self.limit && steps > 0 {
            steps -= 1;
            let Some(b) = inner.clock.pop_front() else { return };
            let Some(e) = inner.blocks.get_mut(&b) else { continue };
            if e.pinned {
                continue; // written anew since: it comes back when it is unpinned
            }
            if std::mem::take(&mut e.used) {
                inner.clock.push_back(b);
            } else {
                inner.blocks.remove(&b);
            }
        }
    }

    /// Copies a cached block; false if it is not here.
    pub fn get(&self, addr: u64, buf: &mut [u8; BLOCK]) -> bool {
        let mut inner = self.inner.lock();
        let Some(e) = inner.blocks.get_mut(&addr) else { return false };
        e.used = true;
        let at = e.at as usize;
        let shared = e.buf.clone();
        drop(inner);
        buf.copy_from_slice(&shared[at..at + BLOCK]);
        true
    }

    /// Reads blocks into the cache; blocks on the medium. What is here already stays.
    ///
    /// # Errors
    /// The medium.
    pub fn fetch(&self, medium: &dyn Medium, addr: BlockNo, count: u32) -> FsResult<()> {
        let count = count.clamp(1, FETCH_MAX);
        let mut buf = AlignedBuf::zeroed(count as usize * BLOCK);
        medium.read(addr.0 * BLOCK as u64, &mut buf)?;
        let buf = Arc::new(buf);
        let mut inner = self.inner.lock();
        for i in 0..count {
            let b = addr.0 + u64::from(i);
            if !inner.blocks.contains_key(&b) {
                let e = Entry { buf: buf.clone(), at: i * BLOCK as u32, pinned: false, used: true };
                inner.blocks.insert(b, e);
                inner.clock.push_back(b);
            }
        }
        self.evict(&mut inner);
        Ok(())
    }

    /// Forgets a block whose bytes were found wrong, unless the medium has no other copy yet.
    pub fn distrust(&self, addr: u64) {
        let mut inner = self.inner.lock();
        if inner.blocks.get(&addr).is_some_and(|e| !e.pinned) {
            inner.blocks.remove(&addr);
        }
    }

    /// Forgets blocks that were written past the cache.
    pub fn forget(&self, addr: u64) {
        self.inner.lock().blocks.remove(&addr);
    }
}
