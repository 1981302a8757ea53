//! `apply`: the one way into the overlay, at run time and at replay. Deterministic: it depends only on the composed
//! state and the effect. What it needs from the layers below is read first; `Shard::prepare` does that ahead of
//! the journal append, so that apply itself cannot fail half way.

use super::patch::Patches;
use super::window::{Mapping, Under, Win};
use super::{CutRange, Layer, Lower, Node, RecState, Shard, covered, win_of};
use crate::effect::{BlockState, Effect};
use crate::error::{FsError, FsResult, Place};
use crate::limits::{BLOCK, WINDOW_BLOCKS};
use crate::record::{Dirent, InodeRec, ReclaimRec, Xattr};
use crate::tree::{Key, Pages, kind};
use std::collections::btree_map::Entry;
use std::sync::Arc;
use weldfs_ciscops::InodeNo;
use weldfs_journal::Lsn;

/// What applied effects changed in the file system's totals.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Blocks held by files.
    pub held: i64,
    /// Blocks that the next checkpoints must allocate to merge patches.
    pub patched: i64,
    /// Keys a checkpoint must write.
    pub keys: i64,
    /// Memory of the overlay, bytes.
    pub bytes: i64,
    /// Inodes.
    pub inodes: i64,
}

/// Memory of a node, bytes (estimate, with its place in the table).
const NODE_BYTES: i64 = 360;
/// Memory of a directory entry or attribute beside its name, bytes (estimate).
const ENTRY_BYTES: i64 = 128;

fn no_inode(ino: u64) -> FsError {
    FsError::corrupt("inode (missing)", Place::Key(Key::new(kind::INODE, ino, 0)), 1, 0)
}

fn created_twice(ino: u64) -> FsError {
    FsError::corrupt("inode (created twice)", Place::Key(Key::new(kind::INODE, ino, 0)), 0, 1)
}

/// An input stands for other effects: whoever applies a commit puts them in its place first.
fn unexpanded(ino: u64) -> FsError {
    FsError::corrupt("input (not expanded)", Place::Key(Key::new(kind::INODE, ino, 0)), 0, 1)
}

impl Layer {
    fn node(&mut self, ino: u64, tally: &mut Tally) -> &mut Node {
        self.nodes.entry(ino).or_insert_with(|| {
            tally.bytes += NODE_BYTES;
            Node::default()
        })
    }

    /// The node with its record in this layer: copied up on the first change.
    fn live(&mut self, lower: &Lower, pages: &Pages, ino: u64, tally: &mut Tally) -> FsResult<&mut Node> {
        let node = self.node(ino, tally);
        if let RecState::Below = node.rec {
            node.rec = RecState::Live(lower.inode(pages, ino)?.ok_or_else(|| no_inode(ino))?);
            tally.keys += 1;
        }
        Ok(node)
    }

    /// The same before anything is applied: a cold page is a miss, and an inode that is gone an error.
    fn known(&mut self, lower: &Lower, ino: u64, tally: &mut Tally) -> FsResult<&mut Node> {
        let node = self.live(lower, &lower.base.pages, ino, tally)?;
        if let RecState::Gone = node.rec { Err(no_inode(ino)) } else { Ok(node) }
    }
}

impl Node {
    fn rec_mut(&mut self, ino: u64) -> FsResult<&mut InodeRec> {
        match &mut self.rec {
            RecState::Live(rec) => Ok(rec),
            _ => Err(no_inode(ino)),
        }
    }

    /// The window with its `below` set: from the lower layers on the first change.
    fn win(&mut self, lower: &Lower, pages: &Pages, ino: u64, win: u64, tally: &mut Tally) -> FsResult<&mut Win> {
        let known = match self.wins.entry(win) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let young = matches!(&self.rec, RecState::Live(r) if r.birth.0 >= lower.base.cut);
                // The tree knows nothing of what was created after its cut.
                let below = if young { lower.held_frozen(ino, win) } else { lower.held(pages, ino, win)? };
                tally.keys += 1;
                tally.bytes += 120;
                new.insert(Box::new(Win::over(below)))
            }
        };
        Ok(known)
    }
}

/// Everything one block change needs.
struct BlockEdit<'a> {
    win: &'a mut Win,
    dead: &'a mut Vec<(u64, u64)>,
    tally: &'a mut Tally,
    /// Change of the inode's block count.
    held: i64,
}

impl BlockEdit<'_> {
    /// Replaces what the layer says under block `i` and drops its patches.
    fn set(&mut self, i: u8, under: Under) {
        let before = self.win.held(i);
        let slot = self.win.slot_mut(i);
        if let Some(p) = slot.patches.take() {
            self.tally.patched -= 1;
            self.tally.bytes -= p.bytes() as i64;
        }
        if let Under::Block(m) = slot.under {
            bury(self.dead, m.addr);
        }
        slot.under = under;
        self.held += i64::from(matches!(under, Under::Block(_))) - i64::from(before);
        self.tally.bytes += size_of::<super::window::Slot>() as i64;
    }

    /// Lays bytes over block `i`.
    fn patch(&mut self, i: u8, stamp: u64, off: u32, bytes: &[u8]) {
        let before = self.win.held(i);
        let slot = self.win.slot_mut(i);
        let was = slot.patches.as_ref().map_or(0, |p| p.bytes() as i64);
        let patches = slot.patches.get_or_insert_with(|| {
            self.tally.patched += 1;
            Arc::new(Patches::default())
        });
        let patches = Arc::make_mut(patches);
        patches.put(stamp, off, bytes);
        self.tally.bytes += patches.bytes() as i64 - was;
        self.held += i64::from(!before);
    }
}

fn bury(dead: &mut Vec<(u64, u64)>, addr: u64) {
    match dead.last_mut() {
        Some((first, n)) if *first + *n == addr => *n += 1,
        _ => dead.push((addr, 1)),
    }
}

impl Shard {
    /// Reads what [`Shard::apply`] of this effect needs from the layers below. `Err(Miss)` on a cold page; damage, if
    /// the inode that it changes is not there. Any error means that nothing happened.
    pub fn prepare(&mut self, e: &Effect, tally: &mut Tally) -> FsResult<()> {
        let ino = e.ino().0;
        match e {
            Effect::PutInode(_)
            | Effect::PutDirent { .. }
            | Effect::DelDirent { .. }
            | Effect::PutXattr { .. }
            | Effect::DelXattr { .. }
            | Effect::Orphan { .. }
            | Effect::Adopt { .. }
            | Effect::Cut { .. } => Ok(()),
            Effect::SetAttr(_) | Effect::DropInode(_) => self.active.known(&self.lower, ino, tally).map(drop),
            Effect::Map { blk, count, .. } | Effect::Unmap { blk, count, .. } => {
                self.prepare_windows(ino, *blk, u64::from(*count), tally)
            }
            Effect::Patch { off, .. } | Effect::Zero { off, .. } => {
                let blk = off / BLOCK as u64;
                let (win, i) = win_of(blk);
                let node = self.active.known(&self.lower, ino, tally)?;
                match node.win(&self.lower, &self.lower.base.pages, ino, win, tally)?.says(i) {
                    true => Ok(()),
                    false => self.birth_below(&self.lower.base.pages, ino, blk).map(drop),
                }
            }
            // What is to be freed may be gone already.
            Effect::ReclaimStep { .. } if self.inode_gone(&self.lower.base.pages, ino)? => Ok(()),
            Effect::ReclaimStep { blk, count, .. } => {
                self.prepare_windows(ino, *blk, u64::from(*count), tally)?;
                self.lower.birth(&self.lower.base.pages, ino, *blk).map(|_| ())
            }
            Effect::ReclaimDone { cut, .. } if *cut == 0 => self.active.known(&self.lower, ino, tally).map(drop),
            Effect::ReclaimDone { .. } => Ok(()),
            Effect::Input { .. } => Err(unexpanded(ino)),
            // The store keeps it, in a table of its own.
            Effect::Outcome(_) => Ok(()),
        }
    }

    fn prepare_windows(&mut self, ino: u64, blk: u64, count: u64, tally: &mut Tally) -> FsResult<()> {
        let node = self.active.known(&self.lower, ino, tally)?;
        for win in blk / WINDOW_BLOCKS..=(blk + count - 1) / WINDOW_BLOCKS {
            node.win(&self.lower, &self.lower.base.pages, ino, win, tally)?;
        }
        Ok(())
    }

    /// [`Shard::apply`] of what changes a file's content or attributes; false of anything else.
    #[inline]
    pub fn apply_content(&mut self, stamp: u64, e: &Effect, tally: &mut Tally) -> FsResult<bool> {
        match e {
            Effect::SetAttr(d) => {
                let pages = &self.lower.base.slow;
                let node = self.active.live(&self.lower, pages, d.ino.0, tally)?;
                d.apply_to(node.rec_mut(d.ino.0)?);
            }
            Effect::Map { ino, blk, addr, count, state, crcs } => {
                let crc = |i: u32| crcs.get(i as usize).copied().unwrap_or(0);
                let m = |i: u32| Mapping { addr: addr.0 + u64::from(i), birth: stamp, crc: crc(i), state: *state };
                self.map(ino.0, *blk, *count, &m, tally)?;
            }
            Effect::Patch { ino, off, bytes } => self.patch(stamp, ino.0, *off, bytes, tally)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Puts one effect into the active layer. `stamp` is the record's LSN plus the effect's index in it.
    ///
    /// # Errors
    /// Only when a lower layer cannot be read, or (at replay of a damaged log) the effect makes no sense.
    pub fn apply(&mut self, stamp: u64, e: Effect, tally: &mut Tally) -> FsResult<()> {
        match e {
            Effect::PutInode(rec) => self.put_inode(stamp, *rec, tally),
            Effect::SetAttr(_) | Effect::Map { .. } | Effect::Patch { .. } => {
                self.apply_content(stamp, &e, tally).map(|_| ())
            }
            Effect::DropInode(ino) => self.drop_inode(ino.0, tally),
            Effect::PutDirent { dir, cookie, ino, ftype, mark, name } => {
                let bytes = ENTRY_BYTES + name.len() as i64;
                let d = Dirent { dir, cookie, ino, ftype, mark, name };
                self.names.changed(&d);
                if self.active.dirents.insert((dir.0, cookie), Some(d)).is_none() {
                    tally.keys += 1;
                    tally.bytes += bytes;
                }
                Ok(())
            }
            Effect::DelDirent { dir, cookie } => {
                self.names.removed(dir, cookie);
                if self.active.dirents.insert((dir.0, cookie), None).is_none() {
                    tally.keys += 1;
                    tally.bytes += ENTRY_BYTES;
                }
                Ok(())
            }
            Effect::PutXattr { ino, slot, name, value } => {
                self.set_xattr(ino.0, slot, Some(Xattr { ino, slot, name, value }), tally);
                Ok(())
            }
            Effect::DelXattr { ino, slot } => {
                self.set_xattr(ino.0, slot, None, tally);
                Ok(())
            }
            Effect::Zero { ino, off, len } => self.zero(stamp, ino.0, off, len, tally),
            Effect::Unmap { ino, blk, count } => self.unmap(ino.0, blk, count, None, tally),
            Effect::Cut { ino, blk, end } => {
                self.cuts.entry(ino.0).or_default().push(CutRange { blk, end, stamp });
                self.set_reclaim(ino.0, stamp, Some(ReclaimRec::Cut { blk, end }), tally);
                Ok(())
            }
            Effect::Orphan { ino } => {
                self.set_reclaim(ino.0, 0, Some(ReclaimRec::Orphan), tally);
                Ok(())
            }
            Effect::Adopt { ino } => {
                self.set_reclaim(ino.0, 0, None, tally);
                Ok(())
            }
            Effect::ReclaimStep { ino, cut, blk, count } => self.unmap(ino.0, blk, count, Some(cut), tally),
            Effect::ReclaimDone { ino, cut } => self.reclaim_done(ino.0, cut, tally),
            Effect::Input { ino, .. } => Err(unexpanded(ino.0)),
            Effect::Outcome(_) => Ok(()),
        }
    }

    fn put_inode(&mut self, stamp: u64, mut rec: InodeRec, tally: &mut Tally) -> FsResult<()> {
        let ino = rec.ino.0;
        rec.birth = Lsn(stamp);
        rec.blocks = 0;
        let node = self.active.node(ino, tally);
        if matches!(node.rec, RecState::Live(_)) {
            return Err(created_twice(ino));
        }
        // A number that the tree may know: one that was given out before its cut.
        let below = matches!(node.rec, RecState::Below) && ino < self.lower.base.next_ino;
        if below && self.lower.inode(&self.lower.base.slow, ino)?.is_some() {
            return Err(created_twice(ino));
        }
        node.rec = RecState::Live(rec);
        tally.keys += 1;
        tally.inodes += 1;
        Ok(())
    }

    fn drop_inode(&mut self, ino: u64, tally: &mut Tally) -> FsResult<()> {
        let node = self.active.live(&self.lower, &self.lower.base.slow, ino, tally)?;
        let rec = node.rec_mut(ino)?;
        let young = rec.birth.0 >= self.floor;
        node.rec = RecState::Gone;
        tally.inodes -= 1;
        if young {
            // Nothing below knows it: not even its absence must be written.
            if let Some(node) = self.active.nodes.remove(&ino) {
                tally.keys -= 1 + node.wins.len() as i64 + node.xattrs.len() as i64;
                tally.bytes -= NODE_BYTES;
            }
        }
        Ok(())
    }

    fn set_xattr(&mut self, ino: u64, slot: u64, x: Option<Xattr>, tally: &mut Tally) {
        let bytes = x.as_ref().map_or(0, |x| (x.name.len() + x.value.len()) as i64);
        let node = self.active.node(ino, tally);
        tally.bytes += bytes;
        if node.xattrs.insert(slot, x).is_none() {
            tally.keys += 1;
            tally.bytes += ENTRY_BYTES;
        }
    }

    fn set_reclaim(&mut self, ino: u64, at: u64, r: Option<ReclaimRec>, tally: &mut Tally) {
        if self.active.reclaim.insert((ino, at), r).is_none() {
            tally.keys += 1;
            tally.bytes += ENTRY_BYTES;
        }
    }

    fn reclaim_done(&mut self, ino: u64, cut: u64, tally: &mut Tally) -> FsResult<()> {
        self.set_reclaim(ino, cut, None, tally);
        if cut == 0 {
            return self.drop_inode(ino, tally);
        }
        if let Some(cuts) = self.cuts.get_mut(&ino) {
            cuts.retain(|c| c.stamp != cut);
            if cuts.is_empty() {
                self.cuts.remove(&ino);
            }
        }
        Ok(())
    }

    /// Runs `edit` on one window of `ino` and books the change of held blocks.
    fn edit(&mut self, ino: u64, win: u64, tally: &mut Tally, edit: impl FnOnce(&mut BlockEdit<'_>)) -> FsResult<()> {
        let Shard { active, lower, .. } = self;
        let node = active.live(lower, &lower.base.slow, ino, tally)?;
        let held = {
            let win = node.win(lower, &lower.base.slow, ino, win, tally)?;
            // `node` borrows `active.nodes`; the list of dead blocks is another field.
            let mut dead = Vec::new();
            let mut e = BlockEdit { win, dead: &mut dead, tally, held: 0 };
            edit(&mut e);
            let held = e.held;
            tally.held += held;
            let rec = node.rec_mut(ino)?;
            rec.blocks = rec.blocks.saturating_add_signed(held);
            dead
        };
        active.dead.extend(held);
        Ok(())
    }

    fn map(
        &mut self,
        ino: u64,
        blk: u64,
        count: u32,
        mapping: &dyn Fn(u32) -> Mapping,
        tally: &mut Tally,
    ) -> FsResult<()> {
        let mut done = 0;
        while done < count {
            let (win, first) = win_of(blk + u64::from(done));
            let n = (count - done).min(WINDOW_BLOCKS as u32 - u32::from(first));
            self.edit(ino, win, tally, |e| {
                for i in 0..n {
                    e.set(first + i as u8, Under::Block(mapping(done + i)));
                }
            })?;
            done += n;
        }
        Ok(())
    }

    /// Makes blocks holes: all of them, or those born at or before `cut`.
    fn unmap(&mut self, ino: u64, blk: u64, count: u32, cut: Option<u64>, tally: &mut Tally) -> FsResult<()> {
        if cut.is_some() && self.inode_gone(&self.lower.base.slow, ino)? {
            return Ok(());
        }
        let mut done = 0;
        while done < count {
            let (win, first) = win_of(blk + u64::from(done));
            let n = (count - done).min(WINDOW_BLOCKS as u32 - u32::from(first));
            self.unmap_window(ino, win, first, n, cut, tally)?;
            done += n;
        }
        Ok(())
    }

    fn unmap_window(
        &mut self,
        ino: u64,
        win: u64,
        first: u8,
        n: u32,
        cut: Option<u64>,
        tally: &mut Tally,
    ) -> FsResult<()> {
        let node = self.active.live(&self.lower, &self.lower.base.slow, ino, tally)?;
        let w = node.win(&self.lower, &self.lower.base.slow, ino, win, tally)?;
        let mut doomed: Vec<u8> = (0..n).map(|i| first + i as u8).filter(|i| w.held(*i)).collect();
        if let Some(cut) = cut {
            let mut kept = Vec::new();
            for i in doomed {
                let birth = self.birth_below(&self.lower.base.slow, ino, win * WINDOW_BLOCKS + u64::from(i))?;
                if birth.is_some_and(|b| b <= cut) {
                    kept.push(i);
                }
            }
            doomed = kept;
        }
        if doomed.is_empty() {
            return Ok(());
        }
        self.edit(ino, win, tally, |e| doomed.iter().for_each(|i| e.set(*i, Under::Hole)))
    }

    fn inode_gone(&self, pages: &Pages, ino: u64) -> FsResult<bool> {
        match self.active.nodes.get(&ino).map(|n| &n.rec) {
            Some(RecState::Live(_)) => Ok(false),
            Some(RecState::Gone) => Ok(true),
            _ => Ok(self.lower.inode(pages, ino)?.is_none()),
        }
    }

    /// Stamp of the latest change of a block in the composed state, cuts ignored; `None` for a hole.
    pub(super) fn birth_below(&self, pages: &Pages, ino: u64, blk: u64) -> FsResult<Option<u64>> {
        let (win, i) = win_of(blk);
        if let Some(w) = self.active.nodes.get(&ino).and_then(|n| n.wins.get(&win)) {
            let slot = w.slot(i);
            if let Some(p) = slot.and_then(|s| s.patches.as_ref()) {
                return Ok(Some(p.birth));
            }
            match slot.map_or(Under::Below, |s| s.under) {
                Under::Block(m) => return Ok(Some(m.birth)),
                Under::Below if w.below.get(i) => {}
                Under::Below | Under::Hole => return Ok(None),
            }
        }
        self.lower.birth(pages, ino, blk)
    }

    /// Before bytes are laid over a block: one that was cut away becomes a hole for good, or its old bytes would
    /// come back under the new ones.
    fn settle(&mut self, ino: u64, blk: u64, tally: &mut Tally) -> FsResult<()> {
        if self.cuts.is_empty() || !self.cuts.contains_key(&ino) {
            return Ok(());
        }
        let birth = self.birth_below(&self.lower.base.slow, ino, blk)?;
        if birth.is_some_and(|b| covered(self.cuts.get(&ino), blk, b)) {
            let (win, i) = win_of(blk);
            self.edit(ino, win, tally, |e| e.set(i, Under::Hole))?;
        }
        Ok(())
    }

    fn patch(&mut self, stamp: u64, ino: u64, off: u64, bytes: &[u8], tally: &mut Tally) -> FsResult<()> {
        let blk = off / BLOCK as u64;
        self.settle(ino, blk, tally)?;
        let (win, i) = win_of(blk);
        self.edit(ino, win, tally, |e| e.patch(i, stamp, (off % BLOCK as u64) as u32, bytes))
    }

    fn zero(&mut self, stamp: u64, ino: u64, off: u64, len: u32, tally: &mut Tally) -> FsResult<()> {
        const ZEROS: [u8; BLOCK] = [0; BLOCK];
        let blk = off / BLOCK as u64;
        self.settle(ino, blk, tally)?;
        let (win, i) = win_of(blk);
        self.edit(ino, win, tally, |e| {
            let unwritten = |w: &Win| {
                w.slot(i).is_some_and(|s| {
                    s.patches.is_none() && matches!(s.under, Under::Block(Mapping { state: BlockState::Unwritten, .. }))
                })
            };
            if e.win.held(i) && !unwritten(e.win) {
                e.patch(i, stamp, (off % BLOCK as u64) as u32, &ZEROS[..len as usize]);
            }
        })
    }

    /// Records a cut or orphan that the tree knows; at mount, before replay.
    pub(crate) fn adopt_reclaim(&mut self, ino: InodeNo, at: u64, rec: ReclaimRec) {
        if let ReclaimRec::Cut { blk, end } = rec {
            self.cuts.entry(ino.0).or_default().push(CutRange { blk, end, stamp: at });
        }
    }
}
