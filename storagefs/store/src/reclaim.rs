//! Freeing later: orphans (inodes without a name that are not open) and cuts (ranges that already read as holes) are
//! drained in bounded steps. A step is an ordinary committed record; it needs no inode set, because it only removes
//! what was born at or before its cut.

use crate::effect::{Effect, Effects, UNMAP_WINDOWS_MAX};
use crate::error::{FsError, FsResult};
use crate::limits::WINDOW_BLOCKS;
use crate::overlay::CutRange;
use crate::store::{Need, Store};
use std::collections::BTreeMap;
use weldfs_ciscops::{Errno, InodeNo};
use weldfs_journal::RecordHead;
use weldfs_locks::Mutex;

/// Cuts one inode may have pending; at the bound the operation waits for a reclaim step.
pub(crate) const CUTS_MAX: usize = 16;
/// Attributes removed in one step.
const XATTRS_PER_STEP: usize = 64;
/// Checkpoints in a row after which a step that still finds no room will find none.
pub const WAITS_MAX: u32 = 8;
/// Log bytes a step needs at most.
const STEP_BYTES: usize = 4096 + XATTRS_PER_STEP * 24;

/// Reclaim entries not yet drained: (inode, stamp of the cut or 0 for an orphan), and the block up to which each is.
#[derive(Debug, Default)]
pub struct Pending {
    entries: Mutex<BTreeMap<(u64, u64), u64>>,
    /// Only one step runs at a time.
    turn: Mutex<()>,
}

impl Pending {
    pub(crate) fn add(&self, ino: u64, cut: u64) {
        self.entries.lock().insert((ino, cut), 0);
    }

    pub(crate) fn remove(&self, ino: u64, cut: u64) {
        self.entries.lock().remove(&(ino, cut));
    }

    fn progress(&self, ino: u64, cut: u64) -> u64 {
        self.entries.lock().get(&(ino, cut)).copied().unwrap_or(0)
    }

    fn advance(&self, ino: u64, cut: u64, blk: u64) {
        if let Some(at) = self.entries.lock().get_mut(&(ino, cut)) {
            *at = blk;
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether all is drained.
    pub fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }

    /// Orphans among them.
    pub fn orphans(&self) -> usize {
        self.entries.lock().keys().filter(|e| e.1 == 0).count()
    }
}

impl Store {
    /// Whether a reclaim step has something to do.
    pub fn reclaim_pending(&self) -> bool {
        self.next_reclaim().is_some()
    }

    /// The first entry that can be drained: cuts always, orphans when they are not open.
    fn next_reclaim(&self) -> Option<(u64, u64)> {
        let entries = self.reclaim.entries.lock();
        if entries.is_empty() {
            return None;
        }
        let opens = self.opens.lock();
        entries.keys().find(|(ino, cut)| *cut != 0 || !opens.contains_key(ino)).copied()
    }

    /// Whether an inode has as many cuts pending as it may have.
    pub fn cuts_full(&self, ino: InodeNo) -> bool {
        self.overlay.shard(ino.0).read().cuts.get(&ino.0).is_some_and(|c| c.len() >= CUTS_MAX)
    }

    /// Drains a bounded piece of one entry. False when nothing can be drained now. Blocks on cold pages.
    ///
    /// # Errors
    /// `Wait(Checkpoint)` when the log is full, the medium, damage.
    pub fn reclaim_step(&self) -> FsResult<bool> {
        if self.read_only {
            return Ok(false);
        }
        let _turn = self.reclaim.turn.lock();
        let Some((ino, cut)) = self.next_reclaim() else { return Ok(false) };
        let need = Need { log_bytes: STEP_BYTES, meta_keys: 2 * UNMAP_WINDOWS_MAX as u32 + 8, ..Need::default() };
        let mut plan = self.begin(&need)?;
        let effects = self.blocking(|| self.plan_reclaim(ino, cut))?;
        let drained = effects.iter().rev().find_map(|e| match e {
            Effect::ReclaimStep { blk, count, .. } => Some(blk + u64::from(*count)),
            _ => None,
        });
        effects.into_iter().for_each(|e| plan.push(e));
        self.blocking(|| self.commit(&mut plan, RecordHead::op()))?;
        if let Some(blk) = drained {
            self.reclaim.advance(ino, cut, blk);
        }
        Ok(true)
    }

    /// Drains everything that can be drained, with checkpoints as needed. For tests.
    ///
    /// # Errors
    /// As [`Store::reclaim_step`], without `Wait`.
    pub fn reclaim_all(&self) -> FsResult<()> {
        self.reclaim_for(u64::MAX)
    }

    /// The same, until so many nanoseconds are over: before an unmount, so that what was removed is free at the next
    /// mount. What is left then is drained after it.
    ///
    /// # Errors
    /// As [`Store::reclaim_all`].
    pub fn reclaim_for(&self, ns: u64) -> FsResult<()> {
        let end = self.clock.now_ns().saturating_add(ns);
        let mut waits = 0;
        loop {
            match self.reclaim_step() {
                Ok(true) => waits = 0,
                Ok(false) => return Ok(()),
                // A checkpoint makes room for a step, or none does: on a forged image.
                Err(FsError::Wait(_)) if waits < WAITS_MAX => {
                    waits += 1;
                    self.checkpoint()?;
                }
                Err(FsError::Wait(_)) => return Err(Errno::NOSPC.into()),
                Err(e) => return Err(e),
            }
            if self.clock.now_ns() >= end {
                return Ok(());
            }
        }
    }

    fn plan_reclaim(&self, ino: u64, cut: u64) -> FsResult<Effects> {
        let mut out = Effects::new();
        let range = if cut == 0 { None } else { self.cut_range(ino, cut) };
        let (first, end) = match range {
            Some(c) => (c.blk, c.end),
            None if cut != 0 => (0, 0),
            None => (0, u64::MAX),
        };
        let births = if cut == 0 { u64::MAX } else { cut };
        let first = first.max(self.reclaim.progress(ino, cut));
        if self.plan_blocks(ino, births, first, end, &mut out)? {
            return Ok(out);
        }
        if cut == 0 && !self.plan_orphan_rest(ino, &mut out)? {
            return Ok(out);
        }
        out.push(Effect::ReclaimDone { ino: InodeNo(ino), cut });
        Ok(out)
    }

    fn cut_range(&self, ino: u64, cut: u64) -> Option<CutRange> {
        self.overlay.shard(ino).read().cuts.get(&ino)?.iter().find(|c| c.stamp == cut).copied()
    }

    /// Adds the next steps over windows that hold something; false when none is left.
    fn plan_blocks(&self, ino: u64, births: u64, first: u64, end: u64, out: &mut Effects) -> FsResult<bool> {
        let mut at = first;
        let mut windows = 0;
        while at < end && windows < UNMAP_WINDOWS_MAX {
            let Some(found) = self.held_window(ino, at / WINDOW_BLOCKS, births)? else { break };
            let start = (found * WINDOW_BLOCKS).max(at);
            let stop = ((found + 1) * WINDOW_BLOCKS).min(end);
            if start >= end {
                break;
            }
            out.push(Effect::ReclaimStep { ino: InodeNo(ino), cut: births, blk: start, count: (stop - start) as u32 });
            windows += 1;
            at = stop;
        }
        Ok(windows > 0)
    }

    /// Least window from `win` on that holds a block born at or before `births`.
    fn held_window(&self, ino: u64, win: u64, births: u64) -> FsResult<Option<u64>> {
        let mut at = win;
        loop {
            let shard = self.overlay.shard(ino).read();
            let Some(w) = shard.next_window(ino, at)? else { return Ok(None) };
            if shard.window_holds(ino, w, births)? {
                return Ok(Some(w));
            }
            at = w + 1;
        }
    }

    /// Removes attributes; true when none is left after `out`.
    fn plan_orphan_rest(&self, ino: u64, out: &mut Effects) -> FsResult<bool> {
        // Some at a time, those that are gone already among them: the shard is locked for no longer.
        let (mut xattrs, mut next) = self.xattrs_from(InodeNo(ino), 0)?;
        while let Some(from) = next.filter(|_| xattrs.len() < XATTRS_PER_STEP) {
            let (more, then) = self.xattrs_from(InodeNo(ino), from)?;
            xattrs.extend(more);
            next = then;
        }
        let all = next.is_none() && xattrs.len() <= XATTRS_PER_STEP;
        out.extend(xattrs.iter().take(XATTRS_PER_STEP).map(|x| Effect::DelXattr { ino: x.ino, slot: x.slot }));
        // Cuts of an inode that goes: their entries go along.
        let stamps: Vec<u64> = {
            let shard = self.overlay.shard(ino).read();
            shard.cuts.get(&ino).map(|c| c.iter().map(|c| c.stamp).collect()).unwrap_or_default()
        };
        out.extend(stamps.into_iter().map(|cut| Effect::ReclaimDone { ino: InodeNo(ino), cut }));
        Ok(all)
    }
}
