//! fallocate: reserve, punch, zero. One command commits its whole range as one record.
//!
//! A range of more than `RESERVE_BYTES_MAX` is E2BIG for the modes that reserve blocks (the client library goes in
//! pieces of 128 MiB, in order); a hole may be of any size. ENOSPC leaves no effect.

use super::FILE_BYTES_MAX;
use super::inode_set::Hold;
use super::stage::BLOCK_BYTES;
use super::txn::Txn;
use smallvec::SmallVec;
use weldfs_ciscops::{Errno, FallocMode, InodeNo};
use weldfs_journal::BlockNo;
use weldfs_store::effect::{BlockState, EFFECTS_MAX, Effect, MAP_BLOCKS_MAX, UNMAP_WINDOWS_MAX, attr, encoded_len_max};
use weldfs_store::error::FsResult;
use weldfs_store::limits::WINDOW_BLOCKS;
use weldfs_store::{BlockKind, Need};

/// Bytes of the longest range whose blocks one command reserves.
pub(crate) const RESERVE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of log set aside for the effects of one reservation that is not badly fragmented.
pub(super) const FALLOC_LOG_BYTES: usize = 32 << 10;

impl Txn<'_> {
    pub(super) fn fallocate_core(&mut self, ino: InodeNo, mode: FallocMode, off: u64, len: u64) -> FsResult<()> {
        self.held(ino, Hold::Exclusive)?;
        let rec = self.regular(ino)?;
        if len == 0 {
            return Err(Errno::INVAL.into());
        }
        let end = off.checked_add(len).filter(|e| *e <= FILE_BYTES_MAX).ok_or(Errno::FBIG)?;
        if mode != FallocMode::Punch && len > RESERVE_BYTES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        let clears = matches!(mode, FallocMode::Punch | FallocMode::Zero | FallocMode::ZeroKeepSize);
        let (first, last) = (off.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
        let inner = if clears && first < last { first..last } else { 0..0 };
        if clears && self.store.pins().covers(ino, off, end) {
            return Err(Errno::TXTBSY.into());
        }
        if clears {
            self.cut_allowed(ino)?;
            self.zero_edges(ino, off, end)?;
        }
        if !inner.is_empty() {
            self.data_effects.push(hole(ino, inner.start, inner.end));
        }
        if mode != FallocMode::Punch
            && let Err(e) = self.reserve(ino, off / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES), inner)
        {
            // What a miss interrupts is staged anew when the page is there.
            self.data_effects.clear();
            return Err(e);
        }
        if matches!(mode, FallocMode::Reserve | FallocMode::Zero) && end > rec.size {
            self.change(&rec, attr::SIZE, |r| r.size = end);
        }
        self.modified(&rec);
        Ok(())
    }

    /// Zeroes the parts of blocks at both ends of `off..end`. A miss stages nothing.
    fn zero_edges(&mut self, ino: InodeNo, off: u64, end: u64) -> FsResult<()> {
        let (first, last) = (off.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
        let done = if first > last {
            self.zero_part(ino, off, end)
        } else {
            self.zero_part(ino, off, first * BLOCK_BYTES).and_then(|_| self.zero_part(ino, last * BLOCK_BYTES, end))
        };
        if done.is_err() {
            self.data_effects.clear();
        }
        done.map(drop)
    }

    /// Maps fresh unwritten blocks over the holes of `range`, and over all of `cleared`.
    fn reserve(&mut self, ino: InodeNo, range: std::ops::Range<u64>, cleared: std::ops::Range<u64>) -> FsResult<()> {
        let mut gaps: SmallVec<[(u64, u64); 4]> = SmallVec::new();
        let mut at = range.start;
        let mut gap = |from: u64, to: u64| match gaps.last_mut() {
            _ if from >= to => {}
            Some(last) if last.1 == from => last.1 = to,
            _ => gaps.push((from, to)),
        };
        self.store.block_map(ino, range.start, range.end - range.start, &mut |b, view| {
            if view.kind != BlockKind::Hole && !cleared.contains(&b) {
                gap(at, b);
                at = b + 1;
            }
            true
        })?;
        gap(at, range.end);
        self.gather(ino, gaps.iter().map(|g| g.1 - g.0).sum())?;
        for (mut blk, to) in gaps {
            while blk < to {
                let (addr, count) = self.take_spare((to - blk).min(MAP_BLOCKS_MAX.into()) as u32);
                let (state, crcs) = (BlockState::Unwritten, SmallVec::new());
                self.data_effects.push(Effect::Map { ino, blk, addr, count, state, crcs });
                blk += u64::from(count);
            }
        }
        self.fit_record()
    }

    /// Allocates until `total` blocks lie ready; what a miss interrupts goes on at the next call.
    fn gather(&mut self, ino: InodeNo, total: u64) -> FsResult<()> {
        let mut left = total - self.spare.iter().map(|r| u64::from(r.count)).sum::<u64>().min(total);
        while left > 0 {
            let run = self.plan_mut()?.alloc(left as u32, ino)?;
            left -= u64::from(run.count);
            self.spare.push(run);
        }
        Ok(())
    }

    fn take_spare(&mut self, want: u32) -> (BlockNo, u32) {
        let run = self.spare.first_mut().expect("gather took as many blocks as the gaps have");
        let (addr, count) = (run.addr, run.count.min(want));
        run.addr.0 += u64::from(count);
        run.count -= count;
        if run.count == 0 {
            self.spare.remove(0);
        }
        (addr, count)
    }

    /// A fragmented reservation may need more log than was set aside for it.
    fn fit_record(&mut self) -> FsResult<()> {
        if self.data_effects.len() > EFFECTS_MAX / 2 {
            return Err(Errno::TOOBIG.into());
        }
        let log_bytes = encoded_len_max(&self.data_effects);
        if log_bytes > FALLOC_LOG_BYTES {
            self.plan_mut()?.extend(&Need { log_bytes, ..Need::default() })?;
        }
        Ok(())
    }
}

/// The effect that makes `blk..end` a hole: at once if it is short, else by lazy reclaim.
fn hole(ino: InodeNo, blk: u64, end: u64) -> Effect {
    let windows = end.div_ceil(WINDOW_BLOCKS) - blk / WINDOW_BLOCKS;
    if windows <= UNMAP_WINDOWS_MAX {
        Effect::Unmap { ino, blk, count: (end - blk) as u32 }
    } else {
        Effect::Cut { ino, blk, end }
    }
}
