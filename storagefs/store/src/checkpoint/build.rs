//! Turns a frozen generation into a sorted batch of keys and values, and works out which blocks the tree begins and
//! ceases to refer to. Pure but for [`Merge`], which gives patched blocks their new place.

use crate::alloc::Run;
use crate::effect::BlockState;
use crate::error::{FsError, FsResult, Place};
use crate::limits::{BLOCK, WINDOW_BLOCKS};
use crate::outcomes::FrozenOutcomes;
use crate::overlay::window::{self, Mapping, Under, Win};
use crate::overlay::{Base, Layer, RecState};
use crate::store::Store;
use crate::tree::{Key, kind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weldfs_ciscops::{InodeNo, Life};
use weldfs_journal::IoWrite;

/// Merged blocks handed to the medium together.
const WRITE_BATCH: usize = 64;

/// The batch of a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// Keys in order; `None` removes.
    pub(crate) changes: Vec<(Key, Option<Vec<u8>>)>,
    /// Runs (first, count) the tree refers to from now on.
    pub(crate) taken: Vec<(u64, u64)>,
    /// Runs the tree referred to and no longer does.
    pub(crate) freed: Vec<(u64, u64)>,
    /// Runs that came and went within the generation.
    pub(crate) dead: Vec<(u64, u64)>,
    /// Patched blocks merged.
    pub(crate) merged: u64,
}

impl Built {
    /// Adds outcomes of detectable commands: no other keys sort behind theirs.
    pub(crate) fn add(&mut self, outcomes: &FrozenOutcomes) {
        self.changes.extend(outcomes.changes());
    }

    /// Blocks that come free.
    pub(crate) fn freed_blocks(&self) -> u64 {
        self.freed.iter().chain(&self.dead).map(|r| r.1).sum()
    }
}

/// Adds a block to a list of runs.
pub(super) fn add(runs: &mut Vec<(u64, u64)>, block: u64) {
    match runs.last_mut() {
        Some((first, n)) if *first + *n == block => *n += 1,
        _ => runs.push((block, 1)),
    }
}

/// Gives patched blocks their new place: on the medium, or (fsck) nowhere.
pub(crate) struct Merge<'a> {
    store: Option<&'a Store>,
    taken: Vec<Run>,
    queue: Vec<(u64, Box<[u8; BLOCK]>)>,
    /// Pretended addresses, above every medium.
    pretend: u64,
    /// What it would have read, of pretended ones.
    sources: Vec<Kept>,
}

/// A block of which a merge keeps a part.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Whose it is.
    pub(crate) ino: u64,
    /// Its number in the file.
    pub(crate) blk: u64,
    /// Where it lies.
    pub(crate) mapping: Mapping,
}

/// What is merged into one new block.
struct Source<'a> {
    ino: u64,
    blk: u64,
    base: Option<Mapping>,
    patches: &'a crate::overlay::patch::Patches,
}

impl<'a> Merge<'a> {
    /// Allocates and writes.
    pub(crate) fn into_blocks(store: &'a Store) -> Merge<'a> {
        Merge { store: Some(store), taken: Vec::new(), queue: Vec::new(), pretend: 0, sources: Vec::new() }
    }

    /// Only counts: merged blocks get addresses from `pretend` on.
    pub(crate) fn pretended(pretend: u64) -> Merge<'static> {
        Merge { store: None, taken: Vec::new(), queue: Vec::new(), pretend, sources: Vec::new() }
    }

    /// What was merged into pretended blocks, and kept in part.
    pub(crate) fn sources(&self) -> &[Kept] {
        &self.sources
    }

    fn place(&mut self, src: &Source<'_>) -> FsResult<Mapping> {
        let Some(store) = self.store else {
            self.pretend += 1;
            let kept = src.base.filter(|_| !src.patches.covers_block());
            self.sources.extend(kept.map(|mapping| Kept { ino: src.ino, blk: src.blk, mapping }));
            let (addr, birth) = (self.pretend - 1, src.patches.birth);
            return Ok(Mapping { addr, birth, crc: 0, state: BlockState::Written });
        };
        let mut buf = Box::new([0u8; BLOCK]);
        let mut state = BlockState::Written;
        if let Some(m) = src.base.filter(|_| !src.patches.covers_block()) {
            match store.blocking(|| store.read_base(&m, InodeNo(src.ino), src.blk, &mut buf)) {
                Ok(()) => {}
                // Never a fresh checksum over unverified bytes: the block stays marked bad.
                Err(FsError::Corrupt(c)) => {
                    store.damage.note(&c, "merge at the checkpoint", None);
                    state = BlockState::Bad;
                }
                Err(e) => return Err(e),
            }
        }
        src.patches.lay_over(&mut buf);
        let run = store.blocking(|| store.alloc.take(1, src.ino, Life::Unknown))?;
        self.taken.push(run);
        let crc = weldfs_functions::crc32c(&buf[..]);
        self.queue.push((run.addr.0, buf));
        if self.queue.len() >= WRITE_BATCH {
            self.flush()?;
        }
        Ok(Mapping { addr: run.addr.0, birth: src.patches.birth, crc, state })
    }

    /// Hands what is queued to the medium (no barrier).
    pub(crate) fn flush(&mut self) -> FsResult<()> {
        let Some(store) = self.store else { return Ok(()) };
        let writes: Vec<IoWrite<'_>> =
            self.queue.iter().map(|(addr, buf)| IoWrite { off: addr * BLOCK as u64, buf: &buf[..] }).collect();
        store.medium.write_batch(&writes)?;
        store.checkpoint_bytes.fetch_add((writes.len() * BLOCK) as u64, Relaxed);
        self.queue.iter().for_each(|(addr, _)| store.cache.forget(*addr));
        self.queue.clear();
        Ok(())
    }

    /// Gives back what was allocated, after a failure.
    pub(crate) fn undo(&mut self) {
        if let Some(store) = self.store {
            self.taken.drain(..).for_each(|r| store.alloc.give_back(r));
        }
    }
}

/// Builds the batch that turns the tree of `base` into the composed state of `layers` over it.
pub(crate) fn build(layers: &[Arc<Layer>], base: &Base, merge: &mut Merge<'_>) -> FsResult<Built> {
    let mut out = Built::default();
    for layer in layers {
        out.dead.extend_from_slice(&layer.dead);
        for (&ino, node) in &layer.nodes {
            match &node.rec {
                RecState::Below => {}
                RecState::Live(rec) => out.changes.push((Key::new(kind::INODE, ino, 0), Some(rec.to_value()))),
                RecState::Gone => out.changes.push((Key::new(kind::INODE, ino, 0), None)),
            }
            // Births stay exact while a cut may still have to tell old from new.
            let join_above = if layer.cut_inodes.contains(&ino) { u64::MAX } else { base.cut };
            for (&win, w) in &node.wins {
                build_window(ino, win, w, base, join_above, merge, &mut out)?;
            }
            for (&slot, x) in &node.xattrs {
                out.changes.push((Key::new(kind::XATTR, ino, slot), x.as_ref().map(|x| x.to_value())));
            }
        }
        for (&(dir, cookie), d) in &layer.dirents {
            out.changes.push((Key::new(kind::DIRENT, dir, cookie), d.as_ref().map(|d| d.to_value())));
        }
        for (&(ino, at), r) in &layer.reclaim {
            out.changes.push((Key::new(kind::RECLAIM, ino, at), r.as_ref().map(|r| r.to_value())));
        }
    }
    out.changes.sort_unstable_by_key(|(k, _)| *k);
    Ok(out)
}

fn build_window(
    ino: u64,
    win: u64,
    w: &Win,
    base: &Base,
    join_above: u64,
    merge: &mut Merge<'_>,
    out: &mut Built,
) -> FsResult<()> {
    let key = Key::new(kind::WINDOW, ino, win);
    let old = base.value(&base.slow, key, window::unpack)?;
    let existed = old.is_some();
    let mut blocks: BTreeMap<u8, Mapping> = old.unwrap_or_default().into_iter().collect();
    let mut changed = false;
    for (i, slot) in w.slots() {
        let before = blocks.get(&i).copied();
        let under = match slot.under {
            Under::Below => before,
            Under::Hole => None,
            Under::Block(m) => Some(m),
        };
        let after = match &slot.patches {
            None => under,
            Some(patches) => {
                out.merged += 1;
                let src = Source { ino, blk: win * WINDOW_BLOCKS + u64::from(i), base: under, patches };
                let placed = merge.place(&src)?;
                if let Under::Block(m) = slot.under {
                    add(&mut out.dead, m.addr);
                }
                Some(placed)
            }
        };
        if after == before {
            continue;
        }
        changed = true;
        if let Some(m) = before {
            add(&mut out.freed, m.addr);
        }
        match after {
            Some(m) => {
                add(&mut out.taken, m.addr);
                blocks.insert(i, m);
            }
            None => {
                blocks.remove(&i);
            }
        }
    }
    if changed {
        let packed: Vec<(u8, Mapping)> = blocks.into_iter().collect();
        let value = if packed.is_empty() { None } else { Some(window::pack(&packed, join_above)) };
        if existed || value.is_some() {
            out.changes.push((key, value));
        }
    }
    Ok(())
}

/// Blocks of a run list that lie in each group: (group, first, count), in the order of the list.
pub(crate) fn by_group(runs: &[(u64, u64)], group_blocks: u64) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
    runs.iter().flat_map(move |&(first, count)| {
        let mut at = first;
        std::iter::from_fn(move || {
            let left = first + count - at;
            if left == 0 {
                return None;
            }
            let n = left.min(group_blocks - at % group_blocks);
            let item = (at / group_blocks, at, n);
            at += n;
            Some(item)
        })
    })
}

/// A tree that refers twice to a block, or frees one it does not hold.
pub(crate) fn double_use(block: u64) -> FsError {
    FsError::corrupt("block (allocated twice or freed while free)", Place::Medium(block * BLOCK as u64), 0, 1)
}
