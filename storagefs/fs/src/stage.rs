//! File content staged by one command: runs of whole blocks that already lie on the medium in fresh blocks, and private
//! copies of blocks that were written in part.

use smallvec::SmallVec;
use std::sync::Arc;
use weldfs_ciscops::InodeNo;
use weldfs_journal::{AlignedBuf, BlockNo};
use weldfs_store::alloc::Run;
use weldfs_store::effect::UNMAP_WINDOWS_MAX;
use weldfs_store::limits::WINDOW_BLOCKS;
use weldfs_store::scratch::BlockBuf;

/// Bytes per block.
pub const BLOCK: usize = 4096;
/// Bytes per block, as an offset.
pub(crate) const BLOCK_BYTES: u64 = BLOCK as u64;

/// Bytes that are copied and summed at a time: between two such pieces a command may make way for others.
pub const SLICE_BYTES: u64 = 64 << 10;

/// Blocks that one effect unmaps, at most, so that it touches no more windows than it may.
pub(super) const UNMAP_BLOCKS: u64 = (UNMAP_WINDOWS_MAX - 1) * WINDOW_BLOCKS;

/// Blocks of a run that composed ones still join.
pub(super) const JOINED_MAX: u64 = 16;

/// Byte ranges inside one block, sorted and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(SmallVec<[(u16, u16); 2]>);

impl Ranges {
    /// Adds `from..to`, joining what touches.
    pub fn add(&mut self, from: usize, to: usize) {
        let (mut from, mut to) = (from as u16, to as u16);
        // What is written piece by piece goes on where the last piece ended.
        match self.0.last_mut() {
            None => return self.0.push((from, to)),
            Some(last) if last.1 == from => {
                last.1 = to;
                return;
            }
            Some(_) => {}
        }
        self.0.retain(|r| {
            let apart = r.1 < from || r.0 > to;
            if !apart {
                (from, to) = (from.min(r.0), to.max(r.1));
            }
            apart
        });
        let at = self.0.iter().position(|r| r.0 > from).unwrap_or(self.0.len());
        self.0.insert(at, (from, to));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the whole block is covered.
    pub fn is_whole(&self) -> bool {
        self.0.first() == Some(&(0, BLOCK as u16))
    }

    /// The range, if there is just one.
    pub fn single(&self) -> Option<(usize, usize)> {
        if self.0.len() == 1 { self.iter().next() } else { None }
    }

    /// What lies between and around the ranges.
    pub fn gaps(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let ends = std::iter::once(0).chain(self.0.iter().map(|r| usize::from(r.1)));
        let starts = self.0.iter().map(|r| usize::from(r.0)).chain(std::iter::once(BLOCK));
        ends.zip(starts).filter(|(from, to)| from < to)
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.0.iter().map(|r| (usize::from(r.0), usize::from(r.1)))
    }
}

/// Whole blocks `blk..` that lie on the medium, not yet mapped.
pub(super) struct StagedRun {
    pub blk: u64,
    pub addr: BlockNo,
    pub crcs: SmallVec<[u32; 4]>,
    /// The bytes, on a medium that gets them with the record. Shared with the plan once sealed.
    pub held: Option<Arc<AlignedBuf>>,
    /// An earlier micro-op's commit names it: it is not written again.
    pub sealed: bool,
}

impl StagedRun {
    pub(super) fn contains(&self, blk: u64) -> bool {
        (self.blk..self.blk + self.crcs.len() as u64).contains(&blk)
    }

    /// Whether block `blk` at `addr` lies behind it in the file and on the medium, and the run may still grow.
    pub(super) fn goes_on_with(&self, blk: u64, addr: BlockNo) -> bool {
        let len = self.crcs.len() as u64;
        !self.sealed && self.held.is_none() && len < JOINED_MAX && (self.blk + len, self.addr.0 + len) == (blk, addr.0)
    }
}

/// A run on its way.
pub(super) struct Filling {
    pub(super) blk: u64,
    pub(super) run: Run,
    pub(super) crcs: SmallVec<[u32; 4]>,
    pub(super) held: Option<AlignedBuf>,
    /// Bytes that lie there.
    pub(super) done: usize,
}

/// A block written in part.
pub(super) struct StagedBlock {
    pub blk: u64,
    /// Only `ranges` of it mean anything.
    pub bytes: BlockBuf,
    pub ranges: Ranges,
    /// Those that are not in an earlier micro-op's commit; not kept where there is only one.
    pub fresh: Ranges,
    /// CRC32C of the bytes, as long as they were staged one right after the other.
    pub crc: Option<u32>,
    /// Whether bytes of the client's are among the fresh ones (a checksum trailer, say, is the device's own).
    pub payload: bool,
}

impl StagedBlock {
    pub(super) fn new(blk: u64) -> StagedBlock {
        let (bytes, ranges, fresh) = (BlockBuf::take(), Ranges::default(), Ranges::default());
        StagedBlock { blk, bytes, ranges, fresh, crc: None, payload: false }
    }
}

/// Content of one file as this command would leave it.
pub(super) struct StagedFile {
    pub ino: InodeNo,
    /// From this block on, what the store holds is cut away.
    pub cut_from: u64,
    pub runs: SmallVec<[StagedRun; 1]>,
    pub blocks: SmallVec<[StagedBlock; 2]>,
}

impl StagedFile {
    /// Whether bytes of the block were written.
    pub fn writes(&self, blk: u64) -> bool {
        self.blocks.iter().any(|b| b.blk == blk) || self.runs.iter().any(|r| r.contains(blk))
    }

    /// Blocks that were written in part and lie in no run.
    pub(super) fn blocks_without_place(&self) -> u32 {
        self.blocks.iter().filter(|b| !self.runs.iter().any(|r| r.contains(b.blk))).count() as u32
    }

    /// The run that a block lies in: the one staged last.
    pub(super) fn run(&self, blk: u64) -> Option<&StagedRun> {
        self.runs.iter().rev().find(|r| r.contains(blk))
    }
}
