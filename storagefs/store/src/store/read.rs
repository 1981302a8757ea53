//! File content, block by block: composed over overlay and tree, verified by CRC on every read.

use super::Store;
use crate::effect::BlockState;
use crate::error::{FsError, FsResult, Place};
use crate::limits::{BLOCK, WINDOW_BLOCKS};
use crate::overlay::window::Mapping;
use crate::overlay::{BlockComp, win_of};
use crate::scratch::BlockBuf;
use smallvec::SmallVec;
use weldfs_ciscops::InodeNo;
use weldfs_journal::BlockNo;

/// What a read block was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// Nothing there: zeros.
    Hole,
    /// Bytes that were written.
    Data,
    /// Reserved, not written: zeros.
    Unwritten,
}

/// Where a block's content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// What it is.
    pub kind: BlockKind,
    /// Its place on the medium, if it has one.
    pub addr: Option<BlockNo>,
    /// CRC32C of the 4 KiB at `addr` (meaningful for unpatched data).
    pub crc: u32,
    /// Whether bytes from the log lie over it, or it is marked bad (its checksum is right, its bytes are not): read it
    /// with [`Store::read_block`] only.
    pub patched: bool,
}

/// What is known of what lies around bytes that a command writes.
pub struct Around {
    /// What the block was.
    pub kind: BlockKind,
    /// So many bytes from the front have this CRC32C.
    pub front: Option<(usize, u32)>,
    /// All is zero behind the command's bytes.
    pub zeros: bool,
}

impl BlockView {
    fn of(comp: &BlockComp) -> BlockView {
        let patched = !comp.patches.is_empty();
        match comp.base {
            None if !patched => BlockView { kind: BlockKind::Hole, addr: None, crc: 0, patched },
            None => BlockView { kind: BlockKind::Data, addr: None, crc: 0, patched },
            Some(m) => {
                let unwritten = m.state == BlockState::Unwritten && !patched;
                let kind = if unwritten { BlockKind::Unwritten } else { BlockKind::Data };
                let patched = patched || m.state == BlockState::Bad;
                BlockView { kind, addr: Some(BlockNo(m.addr)), crc: m.crc, patched }
            }
        }
    }
}

impl Store {
    /// Visits blocks `first..first + count` of a file in order until `visit` returns false.
    ///
    /// # Errors
    /// `Miss` on a cold page (what was visited stays visited), damage.
    pub fn block_map(
        &self,
        ino: InodeNo,
        first: u64,
        count: u64,
        visit: &mut dyn FnMut(u64, BlockView) -> bool,
    ) -> FsResult<()> {
        if count == 1 {
            let view = BlockView::of(&self.overlay.shard(ino.0).read().block(ino.0, first)?);
            visit(first, view);
            return Ok(());
        }
        let mut at = first;
        while at < first + count {
            let (win, i) = win_of(at);
            let n = (first + count - at).min(WINDOW_BLOCKS - u64::from(i));
            let start = win * WINDOW_BLOCKS;
            let mut views: SmallVec<[BlockView; 16]> = SmallVec::new();
            self.overlay.shard(ino.0).read().blocks(ino.0, win, (i, i + (n - 1) as u8), &mut |_, comp| {
                views.push(BlockView::of(&comp));
                true
            })?;
            for (k, view) in views.into_iter().enumerate() {
                if !visit(start + u64::from(i) + k as u64, view) {
                    return Ok(());
                }
            }
            at += n;
        }
        Ok(())
    }

    /// Whether a block of a file is no hole.
    ///
    /// # Errors
    /// `Miss` on a cold page, damage.
    #[inline]
    pub fn holds(&self, ino: InodeNo, blk: u64) -> FsResult<bool> {
        self.overlay.shard(ino.0).read().holds(ino.0, blk)
    }

    /// The 4 KiB of one file block, verified.
    ///
    /// # Errors
    /// `Miss` on cold metadata or data; `Corrupt` when the bytes are not what was written.
    pub fn read_block(&self, ino: InodeNo, blk: u64, buf: &mut [u8; BLOCK]) -> FsResult<BlockKind> {
        self.read_part(ino, blk, buf, (0, BLOCK))
    }

    /// Bytes `from..to` of one file block, at their place in `buf`; what the rest of it holds afterwards is undefined.
    /// What lies on the medium is read, and verified whole, only if some of them are there.
    ///
    /// # Errors
    /// As [`Store::read_block`].
    pub fn read_part(
        &self,
        ino: InodeNo,
        blk: u64,
        buf: &mut [u8; BLOCK],
        (from, to): (usize, usize),
    ) -> FsResult<BlockKind> {
        // The shard stays locked while the block is read: no checkpoint can end and give its place to others.
        let shard = self.overlay.shard(ino.0).read();
        let comp = shard.block(ino.0, blk)?;
        let view = BlockView::of(&comp);
        let covered = comp.patches.iter().any(|p| p.covers(from, to));
        match comp.base {
            Some(m) if !covered => self.read_base(&m, ino, blk, buf)?,
            // Patches that cover them are all there is of them.
            _ if covered => {}
            _ => buf[from..to].fill(0),
        }
        comp.patches.iter().for_each(|p| p.lay_over_part(buf, from, to));
        Ok(view.kind)
    }

    /// As [`Store::read_block`], of the parts of the block before `from` and after `to` only: the rest of `buf` stays.
    ///
    /// # Errors
    /// As `read_block`: the whole of what lies on the medium is verified, unless it is a last block that was kept.
    pub fn read_around(
        &self,
        ino: InodeNo,
        blk: u64,
        buf: &mut [u8; BLOCK],
        (from, to): (usize, usize),
    ) -> FsResult<Around> {
        let shard = self.overlay.shard(ino.0).read();
        let comp = shard.block(ino.0, blk)?;
        let covered = comp.patches.iter().any(|p| p.covers_block());
        let mut around = Around { kind: BlockView::of(&comp).kind, front: None, zeros: comp.is_hole() };
        match comp.base {
            Some(m) if !covered => {
                let kept = self.tails.get(ino.0, blk, m.addr, shard.lower.base.cut, |tail| {
                    buf[..from].copy_from_slice(&tail.bytes[..from]);
                    buf[to..].copy_from_slice(&tail.bytes[to..]);
                    // What was laid over the block since must lie behind what the checksum is of, and before the rest.
                    let behind = comp.patches.iter().all(|p| p.lies_in(tail.len, to));
                    if behind && tail.len <= from {
                        (around.front, around.zeros) = (Some((tail.len, tail.crc)), true);
                    }
                });
                if !kept {
                    let mut base = BlockBuf::take();
                    self.read_base(&m, ino, blk, &mut base)?;
                    buf[..from].copy_from_slice(&base[..from]);
                    buf[to..].copy_from_slice(&base[to..]);
                }
            }
            _ => {
                buf[..from].fill(0);
                buf[to..].fill(0);
            }
        }
        for p in &comp.patches {
            p.lay_over_part(buf, 0, from);
            p.lay_over_part(buf, to, BLOCK);
        }
        Ok(around)
    }

    /// Reads and verifies what a mapping names.
    pub(crate) fn read_base(&self, m: &Mapping, ino: InodeNo, blk: u64, buf: &mut [u8; BLOCK]) -> FsResult<()> {
        match m.state {
            BlockState::Unwritten => {
                buf.fill(0);
                Ok(())
            }
            BlockState::Bad => {
                let place = Place::File { ino: ino.0, off: blk * BLOCK as u64 };
                Err(FsError::corrupt("data (merged over a damaged block)", place, 0, 0))
            }
            BlockState::Written => {
                if self.info.byte_addressable {
                    self.medium.read(m.addr * BLOCK as u64, buf)?;
                } else if !self.cache.get(m.addr, buf) {
                    return Err(crate::error::Miss::Blocks { addr: BlockNo(m.addr), count: 1 }.into());
                }
                let verified = self.verify(m.crc, ino, blk, buf);
                if verified.is_err() {
                    // A bad read must not outlive itself: whoever asks again gets what the medium says then.
                    self.cache.distrust(m.addr);
                }
                verified
            }
        }
    }

    /// How many of `count` blocks of data from `addr` on are cold, up to the first that is not; at least 1.
    pub fn cold_run(&self, addr: BlockNo, count: u32) -> u32 {
        self.cache.cold_run(addr.0, count)
    }

    /// Whether `buf` is what was written to block `blk`; else the typed error.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn verify(&self, crc: u32, ino: InodeNo, blk: u64, buf: &[u8]) -> FsResult<()> {
        let actual = weldfs_functions::crc32c(buf);
        if actual == crc {
            return Ok(());
        }
        let place = Place::File { ino: ino.0, off: blk * BLOCK as u64 };
        Err(FsError::corrupt("data (checksum)", place, crc.into(), actual.into()))
    }

    /// First block at or after `blk` that is data (`data`), or that reads as zeros and is no data (`!data`); `None` if
    /// there is none below `end`. Unwritten blocks count as holes.
    ///
    /// # Errors
    /// `Miss`, damage.
    pub fn seek_block(&self, ino: InodeNo, blk: u64, end: u64, data: bool) -> FsResult<Option<u64>> {
        self.seek_on(ino, &mut { blk }, end, data, u64::MAX)
    }

    /// The same from `at` on, through at most `windows` windows of the map; `at` moves along, also when it misses.
    ///
    /// # Errors
    /// `Miss`, damage; `Turn` when there are more windows.
    pub fn seek_on(&self, ino: InodeNo, at: &mut u64, end: u64, data: bool, mut windows: u64) -> FsResult<Option<u64>> {
        while *at < end {
            if windows == 0 {
                return Err(FsError::Turn);
            }
            windows -= 1;
            if data {
                match self.next_window(ino, *at)? {
                    None => return Ok(None),
                    Some(next) => *at = next.max(*at),
                }
                if *at >= end {
                    return Ok(None);
                }
            }
            let stop = (*at / crate::limits::WINDOW_BLOCKS + 1) * crate::limits::WINDOW_BLOCKS;
            let mut found = None;
            self.block_map(ino, *at, stop.min(end) - *at, &mut |b, v| {
                if (v.kind == BlockKind::Data) == data {
                    found = Some(b);
                }
                found.is_none()
            })?;
            if found.is_some() {
                return Ok(found);
            }
            *at = stop;
        }
        Ok(None)
    }

    /// First block of the first window at or after the one of `blk` about which anything is known.
    pub fn next_window(&self, ino: InodeNo, blk: u64) -> FsResult<Option<u64>> {
        let first = blk / crate::limits::WINDOW_BLOCKS;
        let next = self.overlay.shard(ino.0).read().next_window(ino.0, first)?;
        Ok(next.map(|w| w * crate::limits::WINDOW_BLOCKS))
    }
}
