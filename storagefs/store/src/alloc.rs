//! The block allocator: group bitmaps in memory, loaded on demand from the checkpoint's `FreeGroup` keys.
//!
//! In memory a block is used if the tree says so, if a record since the checkpoint took it, or if a plan in flight
//! holds it. A freed block stays used until the checkpoint that frees it is durable; then [`Alloc::release`] clears it.

use crate::checkpoint::by_group;
use crate::codec::DecodeError;
use crate::error::{FsError, FsResult, Place};
use crate::geometry::Geometry;
use crate::limits::PAGE_BLOCKS;
use crate::overlay::Base;
use crate::tree::{Key, Pages, kind};
use std::sync::Arc;
use weldfs_ciscops::{Errno, Life};
use weldfs_journal::BlockNo;
use weldfs_locks::Mutex;

/// A run of blocks on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First block.
    pub addr: BlockNo,
    /// How many.
    pub count: u32,
}

/// Places where allocation goes on for what nothing is known of; files are spread over them by inode number.
const ORDINARY: usize = 16;
/// The same for what has each life that a client can name.
const PER_LIFE: usize = 4;
/// All of them.
const CURSORS: usize = ORDINARY + PER_LIFE * (Life::ALL.len() - 1);
/// Blocks a cursor claims at a time, at most.
const STRETCH: u64 = 256;
/// Free blocks in whole pages beyond which none is counted.
const WHOLE_MAX: i64 = 1 << 18;
/// Version byte of a `FreeGroup` value.
const VERSION: u8 = 1;
/// `FreeGroup` encodings: bitmap words, or runs of used blocks.
const AS_WORDS: u8 = 0;
const AS_RUNS: u8 = 1;

/// The bitmap of one group: a set bit is a used block. What is not data is always used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// The bitmap of a group in which no data block is used.
    pub(crate) fn vacant(geometry: &Geometry, group: u64) -> Bitmap {
        let bits = geometry.group_blocks as usize;
        let mut map = Bitmap { words: vec![u64::MAX; bits.div_ceil(64)] };
        let (range, data) = (geometry.group_range(group), geometry.group_data(group));
        data.for_each(|b| {
            map.set((b - range.start) as usize, false);
        });
        map
    }

    /// Whether block `i` of the group is used.
    pub fn get(&self, i: usize) -> bool {
        self.words[i / 64] >> (i % 64) & 1 == 1
    }

    /// Marks block `i` of the group; returns whether that changed it.
    pub fn set(&mut self, i: usize, used: bool) -> bool {
        let (word, bit) = (&mut self.words[i / 64], 1u64 << (i % 64));
        let was = *word & bit != 0;
        if used {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        was != used
    }

    /// Marks blocks `i..i + n` of the group; returns how many that changed.
    pub(crate) fn set_range(&mut self, i: usize, n: usize, used: bool) -> u64 {
        let (mut at, end, mut changed) = (i, i + n, 0);
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            let word = &mut self.words[at / 64];
            let differ = if used { mask & !*word } else { mask & *word };
            *word ^= differ;
            changed += u64::from(differ.count_ones());
            at += bits;
        }
        changed
    }

    /// Length of the free run at `i`, at most `max`, within the group.
    fn free_run(&self, i: usize, max: usize) -> usize {
        let mut n = 0;
        while n < max {
            let at = i + n;
            let Some(word) = self.words.get(at / 64) else { break };
            let run = (word >> (at % 64)).trailing_zeros().min(64 - (at % 64) as u32) as usize;
            n += run;
            if run < 64 - at % 64 {
                break;
            }
        }
        n.min(max)
    }

    /// Blocks not used.
    pub fn free(&self) -> u64 {
        self.words.iter().map(|w| u64::from(w.count_zeros())).sum()
    }

    /// First free block at or after `i`.
    fn next_free(&self, i: usize) -> Option<usize> {
        let mut w = i / 64;
        let mut word = !self.words.get(w)? & (u64::MAX << (i % 64));
        loop {
            if word != 0 {
                return Some(w * 64 + word.trailing_zeros() as usize);
            }
            w += 1;
            word = !*self.words.get(w)?;
        }
    }

    /// The value of key `FreeGroup(group, 0)`: the shorter of two encodings.
    pub fn to_value(&self) -> Vec<u8> {
        let mut runs = vec![VERSION, AS_RUNS];
        let bits = self.words.len() * 64;
        let mut i = 0;
        while i < bits && runs.len() <= self.words.len() * 8 {
            if !self.get(i) {
                i += 1;
                continue;
            }
            let start = i;
            while i < bits && self.get(i) {
                i += 1;
            }
            runs.extend_from_slice(&(start as u16).to_le_bytes());
            runs.extend_from_slice(&((i - start - 1) as u16).to_le_bytes());
        }
        if runs.len() <= self.words.len() * 8 {
            return runs;
        }
        let mut out = vec![VERSION, AS_WORDS];
        self.words.iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
        out
    }

    /// Reads the value of key `FreeGroup(group, 0)`; what is not data must be used in it.
    ///
    /// # Errors
    /// Bytes that no writer produces.
    pub fn from_value(v: &[u8], geometry: &Geometry, group: u64) -> Result<Bitmap, DecodeError> {
        let bits = geometry.group_blocks as usize;
        let (head, body) = v.split_at_checked(2).ok_or(DecodeError("group: short"))?;
        let mut map = Bitmap { words: vec![0; bits.div_ceil(64)] };
        match (head[0], head[1]) {
            (VERSION, AS_WORDS) if body.len() == map.words.len() * 8 => {
                for (w, b) in map.words.iter_mut().zip(body.chunks_exact(8)) {
                    *w = b.iter().rev().fold(0, |acc, b| acc << 8 | u64::from(*b));
                }
            }
            (VERSION, AS_RUNS) if body.len() % 4 == 0 => {
                for r in body.chunks_exact(4) {
                    let start = usize::from(u16::from_le_bytes([r[0], r[1]]));
                    let end = start + usize::from(u16::from_le_bytes([r[2], r[3]])) + 1;
                    if end > bits {
                        return Err(DecodeError("group: run"));
                    }
                    (start..end).for_each(|i| {
                        map.set(i, true);
                    });
                }
            }
            _ => return Err(DecodeError("group: encoding")),
        }
        let vacant = Bitmap::vacant(geometry, group);
        if vacant.words.iter().zip(&map.words).any(|(must, is)| must & !is != 0) {
            return Err(DecodeError("group: a block outside the data area is free"));
        }
        Ok(map)
    }

    /// The bitmap the tree of `base` holds for a group.
    ///
    /// # Errors
    /// `Miss` on a cold page, damage.
    pub fn load(base: &Base, pages: &Pages, geometry: &Geometry, group: u64) -> FsResult<Bitmap> {
        let key = Key::new(kind::FREE_GROUP, group, 0);
        let found = base.value(pages, key, |v| Bitmap::from_value(v, geometry, group))?;
        Ok(found.unwrap_or_else(|| Bitmap::vacant(geometry, group)))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    next: u64,
    end: u64,
}

#[derive(Debug)]
struct Inner {
    groups: Vec<Option<Box<Bitmap>>>,
    cursors: [Cursor; CURSORS],
    sweep: u64,
    base: Arc<Base>,
    free: u64,
    /// Lower bound of the free blocks that lie in runs of whole metadata pages. Measured at mount and by checkpoints.
    whole: i64,
}

impl Inner {
    /// Counts blocks that are taken. The count began with what the superblock says, which may be forged.
    fn spend(&mut self, blocks: u64) {
        self.free = self.free.saturating_sub(blocks);
    }
}

/// Where allocation goes on for a file, and for what has this life.
fn cursor(hint: u64, life: Life) -> usize {
    match life as usize {
        0 => (hint % ORDINARY as u64) as usize,
        life => ORDINARY + (life - 1) * PER_LIFE + (hint % PER_LIFE as u64) as usize,
    }
}

/// The allocator. All methods may be called by any thread.
#[derive(Debug)]
pub struct Alloc {
    geometry: Geometry,
    stretch: u64,
    inner: Mutex<Inner>,
}

impl Inner {
    fn group(&mut self, geometry: &Geometry, group: u64, slow: bool) -> FsResult<&mut Bitmap> {
        let slot = &mut self.groups[group as usize];
        if slot.is_none() {
            let pages = if slow { &self.base.slow } else { &self.base.pages };
            *slot = Some(Box::new(Bitmap::load(&self.base, pages, geometry, group)?));
        }
        slot.as_deref_mut().ok_or(FsError::Errno(Errno::IO))
    }

    /// First free block in `from..to`.
    fn next_free(&mut self, geometry: &Geometry, from: u64, to: u64) -> FsResult<Option<u64>> {
        let to = to.min(geometry.data_blocks().end);
        let mut at = from;
        while at < to {
            let group = geometry.group_of(BlockNo(at));
            let range = geometry.group_range(group);
            if let Some(i) = self.group(geometry, group, false)?.next_free((at - range.start) as usize) {
                let block = range.start + i as u64;
                if block < range.end {
                    return Ok(Some(block).filter(|b| *b < to));
                }
            }
            at = range.end;
        }
        Ok(None)
    }

    /// Length of the free run at `block`, at most `max`.
    fn run_at(&mut self, geometry: &Geometry, block: u64, max: u64) -> FsResult<u64> {
        let (mut n, end) = (0, geometry.data_blocks().end);
        while n < max && block + n < end {
            let group = geometry.group_of(BlockNo(block + n));
            let range = geometry.group_range(group);
            let want = (max - n).min(range.end.min(end) - (block + n));
            let run = self.group(geometry, group, false)?.free_run((block + n - range.start) as usize, want as usize);
            n += run as u64;
            if (run as u64) < want {
                break;
            }
        }
        Ok(n)
    }

    /// Takes what is free at `from` itself, mostly: up to `want` blocks of its group, if that is in memory and goes on
    /// for so long. How many.
    fn go_on(&mut self, geometry: &Geometry, (from, to): (u64, u64), want: u64) -> Option<u64> {
        if from >= to {
            return None;
        }
        let group = geometry.group_of(BlockNo(from));
        let range = geometry.group_range(group);
        if range.end.min(geometry.data_blocks().end) - from < want {
            return None;
        }
        let map = self.groups[group as usize].as_deref_mut()?;
        let i = (from - range.start) as usize;
        let run = map.free_run(i, want as usize);
        if run == 0 {
            return None;
        }
        map.set_range(i, run, true);
        let run = run as u64;
        self.whole -= self.pages_hurt(geometry, (from, run), run < want, true);
        self.spend(run);
        Some(run)
    }

    fn mark(&mut self, geometry: &Geometry, block: u64, count: u64, used: bool, slow: bool) -> FsResult<u64> {
        let mut changed = 0;
        for (group, first, n) in by_group(&[(block, count)], geometry.group_blocks.into()) {
            let at = (first - geometry.group_range(group).start) as usize;
            changed += self.group(geometry, group, slow)?.set_range(at, n as usize, used);
        }
        Ok(changed)
    }
}

impl Inner {
    /// Blocks by which taking `n` free ones at `at` may lower those in whole pages: `ended` says that the free run goes
    /// no further, `continued` that what lies before was taken from the same run.
    fn pages_hurt(&self, geometry: &Geometry, (at, n): (u64, u64), ended: bool, continued: bool) -> i64 {
        let group = geometry.group_of(BlockNo(at));
        let i = (at - geometry.group_range(group).start) as usize;
        let map = self.groups[group as usize].as_deref();
        let begins = i > 0 && map.is_some_and(|m| m.get(i - 1));
        match (ended && begins, continued) {
            (true, _) => (n / PAGE_BLOCKS * PAGE_BLOCKS) as i64,
            (false, true) if begins => n as i64,
            (false, _) => (n + 2 * PAGE_BLOCKS) as i64,
        }
    }
}

impl Alloc {
    /// At least so many free blocks lie in runs that can hold metadata pages.
    pub fn whole(&self) -> i64 {
        self.inner.lock().whole
    }

    /// Finds out how many free blocks lie in whole pages, as far as it may matter. Blocks on cold bitmaps.
    ///
    /// # Errors
    /// Damage.
    pub fn measure(&self) -> FsResult<()> {
        let geometry = &self.geometry;
        let data = geometry.data_blocks();
        let mut inner = self.inner.lock();
        // However the used blocks lie, each ends at most one run, which may miss a page by three blocks.
        let all = (data.end - data.start) as i64;
        let sure = inner.free as i64 - (PAGE_BLOCKS as i64 - 1) * (all - inner.free as i64 + 1);
        if sure >= all / 8 {
            inner.whole = sure;
            return Ok(());
        }
        let mut whole = 0;
        for g in 0..geometry.groups() {
            inner.group(geometry, g, true)?;
            let range = geometry.group_range(g);
            let mut at = range.start.max(data.start);
            while let Some(b) = inner.next_free(geometry, at, range.end)? {
                let n = inner.run_at(geometry, b, range.end - b)?;
                whole += (n / PAGE_BLOCKS * PAGE_BLOCKS) as i64;
                at = b + n;
            }
            if whole >= WHOLE_MAX {
                break;
            }
        }
        // What goes on in the middle of a page is counted without the rest of it. `ZONE_SLACK` is for the others.
        let lives = inner.cursors[ORDINARY..].iter().filter(|c| c.next < c.end).count() as i64;
        inner.whole = whole - lives * (PAGE_BLOCKS as i64 - 1);
        Ok(())
    }

    /// The allocator of the state `base`, which has `free` free blocks.
    pub fn new(geometry: Geometry, base: Arc<Base>, free: u64) -> Alloc {
        let data = geometry.data_blocks();
        let stretch = ((data.end - data.start) / 64).clamp(8, STRETCH);
        let groups = (0..geometry.groups()).map(|_| None).collect();
        let cursors = [Cursor::default(); CURSORS];
        let inner = Inner { groups, cursors, sweep: data.start, base, free, whole: 0 };
        Alloc { geometry, stretch, inner: Mutex::new(inner) }
    }

    /// Free blocks now, promised ones included.
    pub fn free(&self) -> u64 {
        self.inner.lock().free
    }

    /// Takes up to `want` neighbouring blocks (at least one). Files with the same `hint` lie together, and what has
    /// another `life` lies elsewhere, as long as there are stretches for that.
    ///
    /// # Errors
    /// ENOSPC when no block is free; `Miss` when a group's bitmap is cold.
    pub fn take(&self, want: u32, hint: u64, life: Life) -> FsResult<Run> {
        let geometry = &self.geometry;
        let data = geometry.data_blocks();
        let mut inner = self.inner.lock();
        let c = cursor(hint, life);
        let Cursor { next, end } = inner.cursors[c];
        if let Some(run) = inner.go_on(geometry, (next, end.min(data.end)), u64::from(want.max(1))) {
            inner.cursors[c].next = next + run;
            inner.cursors[c].end = end.max(next + run);
            return Ok(Run { addr: BlockNo(next), count: run as u32 });
        }
        let mut at = inner.next_free(geometry, next, end)?;
        if at.is_none() {
            let sweep = inner.sweep;
            at = match inner.next_free(geometry, sweep, data.end)? {
                Some(b) => Some(b),
                None => inner.next_free(geometry, data.start, sweep)?,
            };
            let Some(b) = at else { return Err(FsError::Errno(Errno::NOSPC)) };
            inner.cursors[c].end = b + self.stretch;
            inner.sweep = if b + self.stretch >= data.end { data.start } else { b + self.stretch };
        }
        let Some(at) = at else { return Err(FsError::Errno(Errno::NOSPC)) };
        let n = inner.run_at(geometry, at, u64::from(want.max(1)))?;
        inner.whole -= inner.pages_hurt(geometry, (at, n), n < u64::from(want), at == next);
        inner.mark(geometry, at, n, true, false)?;
        inner.spend(n);
        inner.cursors[c].next = at + n;
        inner.cursors[c].end = inner.cursors[c].end.max(at + n);
        Ok(Run { addr: BlockNo(at), count: n as u32 })
    }

    /// Takes one run of at least `min` and at most `max` neighbouring blocks, wherever there is one; `None` if there
    /// is none. Blocks on cold bitmaps.
    ///
    /// # Errors
    /// Damage.
    pub(crate) fn take_run(&self, min: u64, max: u64) -> FsResult<Option<Run>> {
        let geometry = &self.geometry;
        let data = geometry.data_blocks();
        let mut inner = self.inner.lock();
        (0..geometry.groups()).try_for_each(|g| inner.group(geometry, g, true).map(|_| ()))?;
        let (mut at, mut best) = (data.start, (0, 0));
        while let Some(b) = inner.next_free(geometry, at, data.end)? {
            let n = inner.run_at(geometry, b, max)?;
            if n > best.1 {
                best = (b, n);
            }
            if n >= max {
                break;
            }
            at = b + n;
        }
        let (start, n) = best;
        if n < min {
            return Ok(None);
        }
        inner.whole -= inner.pages_hurt(geometry, (start, n), false, false);
        inner.mark(geometry, start, n, true, true)?;
        inner.spend(n);
        Ok(Some(Run { addr: BlockNo(start), count: n as u32 }))
    }

    /// Marks blocks that a replayed record maps. Blocks on cold bitmaps. Returns how many were free.
    ///
    /// # Errors
    /// Damage; addresses outside the data area.
    pub fn claim(&self, addr: BlockNo, count: u32) -> FsResult<u64> {
        let data = self.geometry.data_blocks();
        if addr.0 < data.start || addr.0 + u64::from(count) > data.end {
            let place = Place::Medium(addr.0 * crate::limits::BLOCK as u64);
            return Err(FsError::corrupt("block address (outside the data area)", place, data.end, addr.0));
        }
        let mut inner = self.inner.lock();
        let n = inner.mark(&self.geometry, addr.0, count.into(), true, true)?;
        inner.spend(n);
        Ok(n)
    }

    /// Gives blocks of an abandoned plan back.
    pub fn give_back(&self, run: Run) {
        let mut inner = self.inner.lock();
        // Their groups are in memory: the blocks were taken from there.
        let n = inner.mark(&self.geometry, run.addr.0, run.count.into(), false, true).unwrap_or(0);
        inner.free += n;
    }

    /// A planted bug: blocks given back, to be handed out next.
    #[cold]
    pub(crate) fn give_back_first(&self, run: Run) {
        self.give_back(run);
        let stretch = Cursor { next: run.addr.0, end: run.addr.0 + u64::from(run.count) };
        self.inner.lock().cursors = [stretch; CURSORS];
    }

    /// A checkpoint is durable: from now on unknown groups are read from `base`, and blocks it freed can be taken.
    /// Returns how many blocks came free.
    pub fn release(&self, base: &Arc<Base>, freed: &[(u64, u64)]) -> u64 {
        let mut inner = self.inner.lock();
        inner.base = base.clone();
        let mut n = 0;
        for (group, start, count) in by_group(freed, self.geometry.group_blocks.into()) {
            let at = (start - self.geometry.group_range(group).start) as usize;
            n += match &mut inner.groups[group as usize] {
                // A group not in memory will be read with the blocks free.
                None => count,
                Some(map) => map.set_range(at, count as usize, false),
            };
        }
        inner.free += n;
        n
    }

    /// The groups in memory, for fsck: (group, bitmap).
    pub(crate) fn bitmap(&self, group: u64) -> FsResult<Bitmap> {
        self.inner.lock().group(&self.geometry, group, true).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::GeometryOptions;

    #[test]
    fn ranges_equal_single_blocks() {
        let g = geometry();
        let (mut a, mut b) = (Bitmap::vacant(&g, 2), Bitmap::vacant(&g, 2));
        for (i, n, used) in
            [(0, 256, true), (3, 61, false), (64, 64, false), (100, 120, false), (5, 1, true), (190, 66, true)]
        {
            let changed = (i..i + n).filter(|i| b.set(*i, used)).count() as u64;
            assert_eq!(a.set_range(i, n, used), changed);
            assert_eq!(a, b);
        }
        for i in 0..256 {
            let run = (i..256).take_while(|i| !a.get(*i)).count();
            assert_eq!((a.free_run(i, 256), a.free_run(i, 7)), (run, run.min(7)), "at {i}");
        }
    }

    #[test]
    fn every_life_has_its_own_cursors() {
        let mut seen = std::collections::BTreeMap::new();
        for life in Life::ALL {
            (0..64).for_each(|ino| assert_eq!(*seen.entry(cursor(ino, life)).or_insert(life), life));
        }
        assert_eq!(seen.len(), CURSORS);
    }

    fn geometry() -> Geometry {
        Geometry::plan(8 << 20, &GeometryOptions { group_blocks: Some(256), ..Default::default() }).unwrap()
    }

    #[test]
    fn group_values_read_back_in_both_encodings() {
        let g = geometry();
        let mut map = Bitmap::vacant(&g, 2);
        assert_eq!(Bitmap::from_value(&map.to_value(), &g, 2).unwrap(), map);
        (0..256).step_by(2).for_each(|i| {
            map.set(i, true);
        });
        let v = map.to_value();
        assert_eq!(v[1], AS_WORDS);
        assert_eq!(Bitmap::from_value(&v, &g, 2).unwrap(), map);
        assert!(Bitmap::from_value(&v[..20], &g, 2).is_err());
        assert!(Bitmap::from_value(&Bitmap::vacant(&g, 2).to_value(), &g, 0).is_err(), "superblock would be free");
    }
}
