//! The checkpoint: everything at or below a cut moves from the overlay into the tree, then the log and the freed blocks
//! below it are let go. Operations go on meanwhile; only the cut itself holds them up, for microseconds.
//!
//! Order: cut; log durable to the cut; merged blocks and new pages written; barrier; superblock copy 0, flush, copies 1
//! and 2, flush; then readers switch, log and blocks are released.

mod build;
mod open;

pub(crate) use build::{Built, Kept, Merge, build, by_group, double_use};
pub(crate) use open::{add_open, load as open_txns};

use crate::alloc::{Bitmap, Run};
use crate::error::{FsError, FsResult};
use crate::limits::BLOCK;
use crate::micro::open::TxnCut;
use crate::outcomes::FrozenOutcomes;
use crate::overlay::{Base, Layer};
use crate::store::Store;
use crate::superblock::Superblock;
use crate::tree::{Key, kind};
use crate::zone::Zone;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weldfs_ciscops::Errno;
use weldfs_journal::canary::{Canary, planted};
use weldfs_journal::{Lsn, crashpoint};

type Change = (Key, Option<Vec<u8>>);

/// A generation cut off and not yet durable in the tree. Survives a failed attempt: the next one resumes it.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) layers: Vec<Arc<Layer>>,
    pub(crate) cut: Lsn,
    outcomes: FrozenOutcomes,
    inodes: i64,
    next_ino: u64,
    next_txn: u64,
    txns: TxnCut,
}

/// What only the checkpoint changes.
#[derive(Debug)]
pub struct Writer {
    /// The superblock as last written.
    pub sb: Superblock,
    /// The metadata zone.
    pub zone: Zone,
    pub(crate) pending: Option<Generation>,
    /// Runs the zone took since the last durable checkpoint: no durable bitmap counts them yet.
    pub(crate) unnamed: Vec<Run>,
}

/// What a checkpoint did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckpointReport {
    /// Its cut.
    pub cut: u64,
    /// Keys written.
    pub keys: u64,
    /// Patched blocks merged.
    pub merged: u64,
    /// Blocks that came free.
    pub freed: u64,
}

impl Store {
    /// Moves everything committed so far into the tree and lets the log go. Blocks; one at a time.
    ///
    /// # Errors
    /// The medium, damage. What was cut off stays readable and is resumed by the next checkpoint.
    pub fn checkpoint(&self) -> FsResult<CheckpointReport> {
        if self.read_only {
            return Err(FsError::Errno(Errno::ROFS));
        }
        let mut writer = self.writer.lock();
        self.check_poison()?;
        let resumed = match writer.pending.take() {
            Some(g) => Some(self.write_generation(&mut writer, g)?),
            None => None,
        };
        // What a resumed checkpoint left is usually small; callers that need room ask again.
        match resumed {
            Some(report) => Ok(report),
            None if self.ledger.keys.load(Relaxed) == 0 && self.journal().tail() == writer.sb.cut => {
                Ok(CheckpointReport { cut: writer.sb.cut.0, ..CheckpointReport::default() })
            }
            None => {
                let g = self.cut();
                crashpoint("checkpoint-cut");
                self.write_generation(&mut writer, g)
            }
        }
    }

    /// Checkpoint, then marks the image clean: the next mount replays nothing. Afterwards nothing may be committed.
    ///
    /// # Errors
    /// As [`Store::checkpoint`].
    pub fn unmount(&self) -> FsResult<()> {
        if self.read_only {
            return Ok(());
        }
        loop {
            self.checkpoint()?;
            // Commits stay out while it is decided that there is nothing left.
            let _gate = self.gate.write();
            if self.ledger.keys.load(Relaxed) == 0 && self.txns.is_settled() {
                self.closed.store(true, Relaxed);
                break;
            }
        }
        let mut writer = self.writer.lock();
        writer.sb.clean = true;
        self.store_superblock(&mut writer.sb)
    }

    /// Freezes what is committed so far. Nothing may be frozen already.
    pub(crate) fn cut(&self) -> Generation {
        let l = &self.ledger;
        let _gate = self.gate.write();
        let cut = self.journal().tail();
        let layers = self.overlay.freeze(cut.0);
        let outcomes = self.outcomes.freeze();
        l.keys.store(0, Relaxed);
        l.frozen_bytes.store(l.bytes.swap(0, Relaxed), Relaxed);
        let (inodes, next_ino) = (l.inodes.load(Relaxed), l.next_ino.load(Relaxed));
        let (next_txn, mut txns) = (l.next_txn.load(Relaxed), self.txns.cut(cut));
        if planted(Canary::CheckpointWithoutOpenTxns) {
            txns.open.clear();
        }
        Generation { layers, cut, outcomes, inodes, next_ino, next_txn, txns }
    }

    fn write_generation(&self, writer: &mut Writer, g: Generation) -> FsResult<CheckpointReport> {
        match self.try_write(writer, &g) {
            Ok(report) => Ok(report),
            Err(e) => {
                writer.zone.abort();
                writer.pending = Some(g);
                Err(e)
            }
        }
    }

    fn try_write(&self, writer: &mut Writer, g: &Generation) -> FsResult<CheckpointReport> {
        self.make_durable(g.cut)?;
        let base = self.overlay.base(0);
        let mut merge = Merge::into_blocks(self);
        let result = self.write_state(writer, g, &base, &mut merge);
        if result.is_err() {
            merge.undo();
        }
        let (built, root) = result?;
        self.finish(writer, g, root, &built);
        if let Err(e) = self.alloc.measure() {
            // The checkpoint stands; the old bound still holds.
            tracing::warn!("free space could not be measured: {e}");
        }
        let merged = built.merged;
        Ok(CheckpointReport { cut: g.cut.0, keys: built.changes.len() as u64, merged, freed: built.freed_blocks() })
    }

    /// Writes blocks, pages and superblock of the new state.
    fn write_state(
        &self,
        writer: &mut Writer,
        g: &Generation,
        base: &Arc<Base>,
        merge: &mut Merge<'_>,
    ) -> FsResult<(Built, Arc<Base>)> {
        let mut built = build(&g.layers, base, merge)?;
        add_open(&mut built, &g.txns, base)?;
        built.add(&g.outcomes);
        merge.flush()?;
        let (root, zone_map, free) = self.write_tree(writer, g, base, &built)?;
        let mut sb = writer.sb.clone();
        sb.root = root.tree.root();
        sb.zone = zone_map;
        sb.cut = g.cut;
        sb.segments = self.journal().segments_at(g.cut);
        sb.free_blocks = free;
        sb.inodes = g.inodes.max(0) as u64;
        sb.next_ino = g.next_ino;
        sb.next_txn = g.next_txn;
        sb.clean = false;
        self.medium.barrier()?;
        crashpoint("before-superblock");
        self.store_superblock(&mut sb)?;
        crashpoint("after-superblock");
        writer.sb = sb;
        Ok((built, root))
    }

    /// Writes the superblock. If that fails it is not known which state the medium names: it is final.
    fn store_superblock(&self, sb: &mut Superblock) -> FsResult<()> {
        let copies = self.geometry.superblocks().len();
        sb.store(&*self.medium).inspect_err(|_| self.medium.poison()).map_err(FsError::from)?;
        self.checkpoint_bytes.fetch_add((copies * BLOCK) as u64, Relaxed);
        Ok(())
    }

    /// The log (and with it the data of its records) is durable to the cut.
    pub fn make_durable(&self, cut: Lsn) -> FsResult<()> {
        if planted(Canary::CheckpointBeforeLog) {
            return Ok(());
        }
        self.journal().commit_through(cut)?;
        self.journal().wait(cut)?;
        self.cache.unpin(self.journal().watermark());
        Ok(())
    }

    /// Writes the new tree; grows the zone first, and again if the estimate was too low.
    fn write_tree(
        &self,
        writer: &mut Writer,
        g: &Generation,
        base: &Arc<Base>,
        built: &Built,
    ) -> FsResult<(Arc<Base>, crate::tree::PageRef, u64)> {
        let bytes: u64 = built.changes.iter().map(|(_, v)| v.as_ref().map_or(0, |v| v.len() as u64)).sum();
        let mut needed = writer.zone.pages_needed(built.changes.len() as u64 + 8, bytes + 8192);
        if self.ledger.tight() {
            // Room to rewrite the whole tree, taken while there is room.
            let whole = writer.zone.pages_needed(writer.zone.pages_live(), bytes);
            needed = needed.max(whole.min(writer.zone.pages_free() + self.ledger.spare_pages()));
        }
        for _ in 0..4 {
            self.grow_zone(writer, needed)?;
            let (groups, free) = self.group_changes(writer, base, built)?;
            writer.zone.begin_checkpoint();
            // Groups sort behind everything a layer holds but reclaim entries: merge by key.
            let mut all: Vec<_> = built.changes.iter().chain(&groups).collect();
            all.sort_by_key(|(k, _)| *k);
            let mut batch = all.into_iter().map(|(k, v)| (*k, v.clone()));
            let applied = base.tree.apply(&base.slow, &mut writer.zone, &mut batch, g.cut);
            let tree = applied.and_then(|t| writer.zone.write_map(&base.slow, g.cut).map(|map| (t, map)));
            match tree {
                Ok((tree, map)) => {
                    let (pages, slow) = (base.pages.clone(), base.slow.clone());
                    let (cut, next_ino) = (g.cut.0, g.next_ino);
                    return Ok((Arc::new(Base { tree, pages, slow, cut, next_ino }), map, free));
                }
                Err(FsError::Errno(Errno::NOSPC)) => {
                    writer.zone.abort();
                    needed = writer.zone.pages_free() + needed.max(16);
                }
                Err(e) => return Err(e),
            }
        }
        Err(FsError::Errno(Errno::NOSPC))
    }

    /// Grows the zone until `needed` pages are free, with whatever runs there are.
    fn grow_zone(&self, writer: &mut Writer, needed: u64) -> FsResult<()> {
        let page = crate::limits::PAGE_BLOCKS;
        while writer.zone.pages_free() < needed {
            let want = writer.zone.blocks_to_grow(needed);
            let chunk = u64::from(writer.zone.chunk_pages()) * page;
            let Some(mut run) = self.alloc.take_run(page, want.min(chunk).max(page))? else {
                break; // the estimate is generous: try with what there is
            };
            let odd = run.count % page as u32;
            if odd > 0 {
                let addr = weldfs_journal::BlockNo(run.addr.0 + u64::from(run.count - odd));
                self.alloc.give_back(Run { addr, count: odd });
                run.count -= odd;
            }
            writer.zone.grow(run.addr, run.count.into())?;
            self.ledger.zone.fetch_add(run.count.into(), Relaxed);
            self.ledger.avail.fetch_sub(run.count.into(), Relaxed);
            writer.unnamed.push(run);
        }
        Ok(())
    }

    /// New bitmaps of the groups that gain or lose blocks, and the free blocks of the whole.
    fn group_changes(&self, writer: &Writer, base: &Arc<Base>, built: &Built) -> FsResult<(Vec<Change>, u64)> {
        let zone: Vec<(u64, u64)> = writer.unnamed.iter().map(|r| (r.addr.0, r.count.into())).collect();
        let mut maps: BTreeMap<u64, Bitmap> = BTreeMap::new();
        let mut free = writer.sb.free_blocks;
        let size = u64::from(self.geometry.group_blocks);
        let data = self.geometry.data_blocks();
        for (runs, used) in [(&built.freed, false), (&built.taken, true), (&zone, true)] {
            // A forged tree may name any block.
            if let Some(run) = runs.iter().find(|r| r.0 < data.start || r.0 + r.1 > data.end) {
                return Err(double_use(run.0));
            }
            for (group, first, n) in by_group(runs, size) {
                let map = match maps.entry(group) {
                    Entry::Occupied(e) => e.into_mut(),
                    Entry::Vacant(e) => e.insert(Bitmap::load(base, &base.slow, &self.geometry, group)?),
                };
                for b in first..first + n {
                    if !map.set((b - group * size) as usize, used) {
                        return Err(double_use(b));
                    }
                }
                // What the superblock said may be forged; what is written is to be mounted again.
                free = if used { free.saturating_sub(n) } else { (free + n).min(self.geometry.blocks) };
            }
        }
        let key = |group| Key::new(kind::FREE_GROUP, group, 0);
        Ok((maps.into_iter().map(|(g, map)| (key(g), Some(map.to_value()))).collect(), free))
    }

    /// After the second flush: readers switch, then log, pages and blocks are released.
    fn finish(&self, writer: &mut Writer, g: &Generation, base: Arc<Base>, built: &Built) {
        let l = &self.ledger;
        self.overlay.switch(&base);
        writer.zone.finish();
        writer.unnamed.clear();
        l.zone_live.store(writer.zone.pages_live() as i64, Relaxed);
        l.zone_free.store(writer.zone.pages_free() as i64, Relaxed);
        l.frozen_bytes.store(0, Relaxed);
        l.patched.fetch_sub(built.merged as i64, Relaxed);
        let freed = self.alloc.release(&base, &built.freed) + self.alloc.release(&base, &built.dead);
        l.avail.fetch_add(freed as i64, Relaxed);
        self.journal().release(g.cut);
        self.checkpoints.fetch_add(1, Relaxed);
    }
}
