//! The overlay: journalled changes in memory, over the checkpoint tree. Sharded by inode number (a directory entry
//! lives with its directory); each shard has an *active* layer that effects go into and, while a checkpoint runs, an
//! immutable *frozen* one that it writes out. A reader composes active over frozen over tree; layers hold deltas, so
//! that none is rewritten when a lower one drops.

pub mod apply;
mod cells;
pub mod patch;
pub mod window;

use crate::effect::FILE_BLOCKS_MAX;
use crate::error::{FsError, FsResult, Place};
use crate::limits::WINDOW_BLOCKS;
use crate::record::{Dirent, InodeRec, ReclaimRec, Xattr};
use crate::tree::{Key, Pages, Tree, kind};
use cells::{InodeCells, NameCells};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use weldfs_ciscops::InodeNo;
use weldfs_journal::canary::{Canary, planted};
use weldfs_locks::RwLock;
use window::{Bits, Mapping, Under, Win};

/// First window no file has. Block numbers in lower ones overflow in no sum.
pub(crate) const WINDOWS_MAX: u64 = FILE_BLOCKS_MAX / WINDOW_BLOCKS;

/// What is said of others, which only a forged tree has.
pub(crate) fn no_window(ino: u64, win: u64) -> FsError {
    FsError::corrupt("window (beyond the largest file)", Place::Key(Key::new(kind::WINDOW, ino, win)), WINDOWS_MAX, win)
}

/// Shards; a power of two.
pub const SHARDS: usize = 64;

/// A hasher for inode numbers: one multiplication. Numbers are handed out by us, so no client can choose collisions.
#[derive(Default, Clone, Copy)]
pub(crate) struct InoHasher(u64);

impl Hasher for InoHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_u64(&mut self, v: u64) {
        let h = (self.0 ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = h ^ (h >> 32);
    }
}

/// A map keyed by inode number.
pub(crate) type InoMap<T> = HashMap<u64, T, BuildHasherDefault<InoHasher>>;

/// The last durable checkpoint, as readers see it.
#[derive(Debug)]
pub struct Base {
    /// Its tree.
    pub tree: Tree,
    /// Pages; a cold one is a miss.
    pub pages: Pages,
    /// Pages; a cold one is read.
    pub slow: Pages,
    /// Its cut: stamps below it are in the tree.
    pub cut: u64,
    /// No inode of the tree has this number or a higher one.
    pub next_ino: u64,
}

/// What a layer says about an inode record.
#[derive(Debug, Clone, Default)]
pub enum RecState {
    /// Nothing.
    #[default]
    Below,
    /// There is none.
    Gone,
    /// This.
    Live(InodeRec),
}

/// A layer's deltas of one inode.
#[derive(Debug, Default)]
pub struct Node {
    /// The record.
    pub rec: RecState,
    /// Windows by index.
    pub wins: BTreeMap<u64, Box<Win>>,
    /// Attributes by slot.
    pub xattrs: BTreeMap<u64, Option<Xattr>>,
}

/// One generation of changes.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// Inodes.
    pub nodes: InoMap<Node>,
    /// Directory entries by (directory, cookie).
    pub dirents: BTreeMap<(u64, u64), Option<Dirent>>,
    /// Reclaim entries by (inode, stamp or 0).
    pub reclaim: BTreeMap<(u64, u64), Option<ReclaimRec>>,
    /// Blocks (first, count) that effects of this generation mapped and later ones of it unmapped.
    pub dead: Vec<(u64, u64)>,
    /// Of a frozen layer: inodes with cuts pending at its cut.
    pub cut_inodes: Vec<u64>,
}

/// Everything below the active layer.
#[derive(Debug)]
pub(crate) struct Lower {
    /// The generation a running checkpoint writes out.
    pub frozen: Option<Arc<Layer>>,
    /// The tree.
    pub base: Arc<Base>,
    /// Inodes of the tree that were looked at.
    pub cells: InodeCells,
}

/// Blocks of an inode that read as holes and are not freed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CutRange {
    /// First block.
    pub blk: u64,
    /// One past the last block.
    pub end: u64,
    /// What was born at or before this is a hole.
    pub stamp: u64,
}

/// The cuts of one inode.
pub(crate) type Cuts = SmallVec<[CutRange; 2]>;

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Takes the effects.
    pub active: Layer,
    /// Under it.
    pub lower: Lower,
    /// All pending cuts, those of the tree included.
    pub cuts: InoMap<Cuts>,
    /// The cut of the active layer: everything it holds has a stamp at or above.
    pub floor: u64,
    /// Names that were looked for.
    pub names: Arc<NameCells>,
}

/// The whole overlay.
#[derive(Debug)]
pub struct Overlay {
    shards: Box<[RwLock<Shard>]>,
    /// Names that were looked for.
    pub(crate) names: Arc<NameCells>,
}

/// A file block composed over all layers, without its bytes.
#[derive(Debug, Clone)]
pub(crate) struct BlockComp {
    /// The medium block under the patches, if any.
    pub base: Option<Mapping>,
    /// Patches to lay over it, oldest first.
    pub patches: SmallVec<[Arc<patch::Patches>; 2]>,
}

impl BlockComp {
    /// A hole.
    pub(crate) fn hole() -> BlockComp {
        BlockComp { base: None, patches: SmallVec::new() }
    }

    /// Whether nothing is there.
    pub(crate) fn is_hole(&self) -> bool {
        self.base.is_none() && self.patches.is_empty()
    }
}

/// Window index and position in it of a file block.
pub(crate) fn win_of(blk: u64) -> (u64, u8) {
    (blk / WINDOW_BLOCKS, (blk % WINDOW_BLOCKS) as u8)
}

fn undecodable(key: Key) -> impl Fn(crate::codec::DecodeError) -> FsError {
    move |e| FsError::corrupt(e.0, Place::Key(key), 0, 0)
}

impl Base {
    /// Decodes the value of `key`, if there is one.
    pub fn value<T>(
        &self,
        pages: &Pages,
        key: Key,
        decode: impl FnOnce(&[u8]) -> Result<T, crate::codec::DecodeError>,
    ) -> FsResult<Option<T>> {
        match self.tree.get(pages, key)? {
            None => Ok(None),
            Some(v) => decode(&v).map(Some).map_err(undecodable(key)),
        }
    }

    /// An inode record of the tree.
    pub fn inode(&self, pages: &Pages, ino: u64) -> FsResult<Option<InodeRec>> {
        self.value(pages, Key::new(kind::INODE, ino, 0), |v| InodeRec::from_value(InodeNo(ino), v))
    }

    /// One block's mapping in the tree.
    pub fn mapping(&self, pages: &Pages, ino: u64, blk: u64) -> FsResult<Option<Mapping>> {
        let (win, i) = win_of(blk);
        Ok(self.value(pages, Key::new(kind::WINDOW, ino, win), |v| window::find(v, i))?.flatten())
    }

    /// A directory entry of the tree.
    pub fn dirent(&self, pages: &Pages, dir: u64, cookie: u64) -> FsResult<Option<Dirent>> {
        self.value(pages, Key::new(kind::DIRENT, dir, cookie), |v| Dirent::from_value(InodeNo(dir), cookie, v))
    }
}

impl Lower {
    fn frozen_node(&self, ino: u64) -> Option<&Node> {
        self.frozen.as_ref()?.nodes.get(&ino)
    }

    /// The inode record below the active layer, where it is in memory.
    #[inline]
    fn in_core(&self, ino: u64) -> Option<&InodeRec> {
        match self.frozen_node(ino).map(|n| &n.rec) {
            Some(RecState::Live(rec)) => Some(rec),
            Some(RecState::Gone) => None,
            Some(RecState::Below) | None => self.cells.get(&ino),
        }
    }

    /// The inode record below the active layer.
    pub fn inode(&self, pages: &Pages, ino: u64) -> FsResult<Option<InodeRec>> {
        match self.frozen_node(ino).map(|n| &n.rec) {
            Some(RecState::Live(rec)) => Ok(Some(rec.clone())),
            Some(RecState::Gone) => Ok(None),
            Some(RecState::Below) | None => match self.cells.get(&ino) {
                Some(rec) => Ok(Some(rec.clone())),
                None => self.base.inode(pages, ino),
            },
        }
    }

    /// Blocks of an inode that the tree does not know, held below the active layer.
    fn held_frozen(&self, ino: u64, win: u64) -> Bits {
        let node = self.frozen.as_ref().and_then(|_| self.frozen_node(ino));
        node.and_then(|n| n.wins.get(&win)).map_or_else(Bits::default, |w| w.held_bits())
    }

    /// Blocks held below the active layer.
    pub fn held(&self, pages: &Pages, ino: u64, win: u64) -> FsResult<Bits> {
        if let Some(w) = self.frozen_node(ino).and_then(|n| n.wins.get(&win)) {
            return Ok(w.held_bits());
        }
        Ok(self.base.value(pages, Key::new(kind::WINDOW, ino, win), window::held)?.unwrap_or_default())
    }

    /// Stamp of the latest change of a block below the active layer; `None` for a hole.
    pub fn birth(&self, pages: &Pages, ino: u64, blk: u64) -> FsResult<Option<u64>> {
        let (win, i) = win_of(blk);
        if let Some(slot) = self.frozen_node(ino).and_then(|n| n.wins.get(&win)).and_then(|w| w.slot(i)) {
            if let Some(p) = &slot.patches {
                return Ok(Some(p.birth));
            }
            match slot.under {
                Under::Hole => return Ok(None),
                Under::Block(m) => return Ok(Some(m.birth)),
                Under::Below => {}
            }
        }
        Ok(self.base.mapping(pages, ino, blk)?.map(|m| m.birth))
    }
}

impl Shard {
    /// Whether a change of `blk` with stamp `birth` was cut away since.
    pub(crate) fn is_cut(&self, ino: u64, blk: u64, birth: u64) -> bool {
        !self.cuts.is_empty() && covered(self.cuts.get(&ino), blk, birth)
    }

    /// The inode record, composed; `None` if there is none. `Err(Miss)` on a cold page.
    pub fn inode(&self, ino: u64) -> FsResult<Option<InodeRec>> {
        match self.active.nodes.get(&ino).map(|n| &n.rec) {
            Some(RecState::Live(rec)) => Ok(Some(rec.clone())),
            Some(RecState::Gone) => Ok(None),
            Some(RecState::Below) | None => self.lower.inode(&self.lower.base.pages, ino),
        }
    }

    /// Blocks `first..=last` of a window, composed: as [`Shard::block`] for each, with one look at the tree.
    pub fn blocks(
        &self,
        ino: u64,
        win: u64,
        (first, last): (u8, u8),
        visit: &mut dyn FnMut(u8, BlockComp) -> bool,
    ) -> FsResult<bool> {
        let active = self.active.nodes.get(&ino);
        let young = matches!(active, Some(Node { rec: RecState::Live(r), .. }) if r.birth.0 >= self.lower.base.cut);
        let base = &self.lower.base;
        let tree = match young {
            true => None,
            false => base.value(&base.pages, Key::new(kind::WINDOW, ino, win), window::unpack)?,
        };
        let tree = tree.unwrap_or_default();
        let wins = [active, self.lower.frozen_node(ino)].map(|n| n.and_then(|n| n.wins.get(&win)));
        for i in first..=last {
            let below = || tree.binary_search_by_key(&i, |(b, _)| *b).ok().map(|at| tree[at].1);
            let slots = wins.into_iter().flatten().filter_map(|w| w.slot(i));
            let comp = self.compose(ino, win * WINDOW_BLOCKS + u64::from(i), slots, || Ok(below()))?;
            if !visit(i, comp) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One file block, composed.
    pub fn block(&self, ino: u64, blk: u64) -> FsResult<BlockComp> {
        let (win, i) = win_of(blk);
        let active = self.active.nodes.get(&ino);
        // A window of the active layer knows which blocks the layers below hold.
        let known = active.and_then(|n| n.wins.get(&win));
        let slot = known.and_then(|w| w.slot(i));
        if known.is_some_and(|w| !w.below.get(i)) {
            return self.compose(ino, blk, slot.into_iter(), || Ok(None));
        }
        let frozen = self.lower.frozen_node(ino).and_then(|n| n.wins.get(&win)).and_then(|w| w.slot(i));
        // An inode born after the tree's cut has nothing there.
        let base = &self.lower.base;
        let young = matches!(active, Some(Node { rec: RecState::Live(r), .. }) if r.birth.0 >= base.cut);
        let slots = slot.into_iter().chain(frozen);
        self.compose(ino, blk, slots, || if young { Ok(None) } else { base.mapping(&base.pages, ino, blk) })
    }

    /// Whether a block is no hole: what [`Shard::block`] says of it, where that can be told without composing it.
    pub fn holds(&self, ino: u64, blk: u64) -> FsResult<bool> {
        let (win, i) = win_of(blk);
        match self.active.nodes.get(&ino).and_then(|n| n.wins.get(&win)) {
            Some(w) if !self.cuts.contains_key(&ino) => Ok(w.held(i)),
            _ => Ok(!self.block(ino, blk)?.is_hole()),
        }
    }

    /// Composes a block from what the layers say, newest first, and what the tree says.
    fn compose<'a>(
        &self,
        ino: u64,
        blk: u64,
        slots: impl Iterator<Item = &'a window::Slot>,
        tree: impl FnOnce() -> FsResult<Option<Mapping>>,
    ) -> FsResult<BlockComp> {
        let mut comp = BlockComp::hole();
        for slot in slots {
            if let Some(p) = &slot.patches {
                if comp.patches.is_empty() && self.is_cut(ino, blk, p.birth) {
                    return Ok(BlockComp::hole());
                }
                comp.patches.insert(0, p.clone());
            }
            match slot.under {
                Under::Below => {}
                Under::Hole => return Ok(comp),
                Under::Block(m) => {
                    if comp.patches.is_empty() && self.is_cut(ino, blk, m.birth) {
                        return Ok(BlockComp::hole());
                    }
                    comp.base = Some(m);
                    return Ok(comp);
                }
            }
        }
        comp.base = tree()?.filter(|m| !(comp.patches.is_empty() && self.is_cut(ino, blk, m.birth)));
        Ok(comp)
    }
}

impl Shard {
    /// Least window at or above `first` that a layer or the tree says something about. One that no file can have is
    /// damage.
    pub(crate) fn next_window(&self, ino: u64, first: u64) -> FsResult<Option<u64>> {
        let layers = [Some(&self.active), self.lower.frozen.as_deref()];
        let nodes = layers.into_iter().flatten().filter_map(|l| l.nodes.get(&ino));
        let mut least = nodes.filter_map(|n| n.wins.range(first..).next().map(|(w, _)| *w)).min();
        let base = &self.lower.base;
        let to = least.unwrap_or(u64::MAX);
        base.tree.scan(
            &base.pages,
            Key::new(kind::WINDOW, ino, first),
            Key::new(kind::WINDOW, ino, to),
            &mut |key, _| {
                least = Some(key.b);
                false
            },
        )?;
        match least {
            Some(win) if win >= WINDOWS_MAX => Err(no_window(ino, win)),
            other => Ok(other),
        }
    }
}

impl Shard {
    /// Whether a window holds a block whose latest change is `births` or older.
    pub(crate) fn window_holds(&self, ino: u64, win: u64, births: u64) -> FsResult<bool> {
        let pages = &self.lower.base.pages;
        let held = match self.active.nodes.get(&ino).and_then(|n| n.wins.get(&win)) {
            Some(w) => w.held_bits(),
            None => self.lower.held(pages, ino, win)?,
        };
        if births == u64::MAX {
            return Ok(held.count() > 0);
        }
        for i in held.iter() {
            let birth = self.birth_below(pages, ino, win * WINDOW_BLOCKS + u64::from(i))?;
            if birth.is_some_and(|b| b <= births) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn covered(cuts: Option<&Cuts>, blk: u64, birth: u64) -> bool {
    cuts.is_some_and(|cuts| cuts.iter().any(|c| birth <= c.stamp && (c.blk..c.end).contains(&blk)))
}

impl Overlay {
    /// Empty, over `base`.
    pub fn new(base: &Arc<Base>) -> Overlay {
        let names = Arc::<NameCells>::default();
        let shard = || Shard {
            active: Layer::default(),
            lower: Lower { frozen: None, base: base.clone(), cells: InodeCells::default() },
            cuts: InoMap::default(),
            floor: base.cut,
            names: names.clone(),
        };
        Overlay { shards: (0..SHARDS).map(|_| RwLock::new(shard())).collect(), names }
    }

    /// What `look` makes of the inode record, composed; `None` if there is none. What came from the tree is kept in a
    /// cell.
    #[inline]
    pub(crate) fn inode<T>(&self, ino: u64, look: impl FnOnce(&InodeRec) -> T) -> FsResult<Option<T>> {
        let shard = self.shard(ino).read();
        match shard.active.nodes.get(&ino).map(|n| &n.rec) {
            Some(RecState::Live(rec)) => return Ok(Some(look(rec))),
            Some(RecState::Gone) => return Ok(None),
            Some(RecState::Below) | None => {}
        }
        if let Some(rec) = shard.lower.in_core(ino) {
            return Ok(Some(look(rec)));
        }
        drop(shard);
        Ok(self.look_below(ino)?.map(|rec| look(&rec)))
    }

    /// The record where neither a layer nor a cell has it.
    #[inline(never)]
    fn look_below(&self, ino: u64) -> FsResult<Option<InodeRec>> {
        let shard = self.shard(ino).read();
        let layers = [shard.active.nodes.get(&ino), shard.lower.frozen_node(ino)];
        let changed = layers.into_iter().flatten().any(|n| !matches!(n.rec, RecState::Below));
        let Some(rec) = shard.inode(ino)? else { return Ok(None) };
        let base = (!changed).then(|| shard.lower.base.clone());
        drop(shard);
        // A cell says what the tree says: it is right whatever layers say by now, as long as it is the same tree. No
        // reader waits to keep what can be read again.
        if let Some(base) = base
            && let Some(mut shard) = self.shard(ino).try_write()
            && Arc::ptr_eq(&shard.lower.base, &base)
        {
            shard.lower.cells.keep(rec.clone());
        }
        Ok(Some(rec))
    }

    /// Changes how many bytes what was looked up may take, decoded; what is over goes at once.
    pub(crate) fn set_cells(&self, bytes: usize) {
        let (inodes, names) = (bytes / 2, bytes - bytes / 2);
        self.names.set_limit(names);
        self.shards.iter().for_each(|shard| shard.write().lower.cells.set_limit(inodes / SHARDS));
    }

    /// Bytes that it takes.
    pub(crate) fn cell_bytes(&self) -> usize {
        self.names.bytes() + self.shards.iter().map(|shard| shard.read().lower.cells.bytes()).sum::<usize>()
    }

    /// The shard of an inode.
    #[inline]
    pub(crate) fn shard(&self, ino: u64) -> &RwLock<Shard> {
        &self.shards[(ino % SHARDS as u64) as usize]
    }

    /// All shards.
    pub(crate) fn shards(&self) -> &[RwLock<Shard>] {
        &self.shards
    }

    /// Freezes every active layer at stamp `cut`. The caller keeps commits out and knows that nothing is frozen.
    pub(crate) fn freeze(&self, cut: u64) -> Vec<Arc<Layer>> {
        self.shards
            .iter()
            .map(|shard| {
                let mut s = shard.write();
                debug_assert!(s.lower.frozen.is_none());
                let mut layer = std::mem::take(&mut s.active);
                layer.cut_inodes = s.cuts.keys().copied().collect();
                let layer = Arc::new(layer);
                s.lower.frozen = Some(layer.clone());
                s.floor = cut;
                layer
            })
            .collect()
    }

    /// Ends a checkpoint for readers: each shard goes from frozen over old tree to new tree in one step.
    pub fn switch(&self, base: &Arc<Base>) {
        for shard in &self.shards {
            let mut s = shard.write();
            let frozen = s.lower.frozen.take();
            s.lower.base = base.clone();
            if let Some(layer) = frozen.as_ref().filter(|_| !planted(Canary::StaleCell)) {
                s.lower.cells.drop_changed(&layer.nodes);
            }
            drop(s);
            drop(frozen);
        }
    }

    /// The current base of a shard.
    pub fn base(&self, ino: u64) -> Arc<Base> {
        self.shard(ino).read().lower.base.clone()
    }
}
