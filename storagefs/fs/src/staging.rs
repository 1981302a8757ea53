//! Staging content: what a command writes, before it is committed. Adjacent writes meet here, so that a block is
//! written once.

use super::stage::{BLOCK, BLOCK_BYTES, Filling, SLICE_BYTES, StagedBlock, StagedFile, StagedRun, UNMAP_BLOCKS};
use super::txn::Txn;
use smallvec::SmallVec;
use std::sync::Arc;
use weldfs_ciscops::{ChecksumState, Errno, InodeNo, Source};
use weldfs_functions::crc32c;
use weldfs_journal::{AlignedBuf, BlockNo, IoWrite};
use weldfs_media::{crc32c_join, crc32c_then_zeros};
use weldfs_store::BlockKind;
use weldfs_store::alloc::Run;
use weldfs_store::effect::{BlockState, Effect};
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::scratch::BlockBuf;
use weldfs_store::tails::Tail;

impl Txn<'_> {
    /// Whether what is staged may be settled more than once.
    fn has_steps(&self) -> bool {
        self.steps.is_some() || self.many
    }

    pub(super) fn staged(&self, ino: InodeNo) -> Option<&StagedFile> {
        self.files.iter().find(|f| f.ino == ino)
    }

    pub(super) fn staged_mut(&mut self, ino: InodeNo) -> &mut StagedFile {
        let at = self.files.iter().position(|f| f.ino == ino).unwrap_or_else(|| {
            let file = StagedFile { ino, cut_from: u64::MAX, runs: SmallVec::new(), blocks: SmallVec::new() };
            self.files.push(file);
            self.files.len() - 1
        });
        &mut self.files[at]
    }

    /// A block as this command sees it, verified: the store's, with what is staged laid over.
    pub(super) fn load_block(&mut self, ino: InodeNo, blk: u64, out: &mut [u8; BLOCK]) -> FsResult<()> {
        self.load_base(ino, blk, out)?;
        if let Some(b) = self.staged(ino).and_then(|f| f.blocks.iter().find(|b| b.blk == blk)) {
            b.ranges.iter().for_each(|(from, to)| out[from..to].copy_from_slice(&b.bytes[from..to]));
        }
        Ok(())
    }

    /// Bytes `from..to` of a block, at their place in `out`; the rest of it is undefined. Whether there is any data.
    pub(super) fn load_part(
        &mut self,
        ino: InodeNo,
        blk: u64,
        out: &mut [u8; BLOCK],
        (from, to): (usize, usize),
    ) -> FsResult<bool> {
        if self.staged(ino).is_some() {
            return self.load_block(ino, blk, out).map(|()| true);
        }
        let kind = self.store.read_part(ino, blk, out, (from, to))?;
        self.counters.blocks_read += u32::from(kind == BlockKind::Data);
        Ok(kind == BlockKind::Data)
    }

    /// The block under the partial writes of this command. Returns whether anything is there.
    fn load_base(&mut self, ino: InodeNo, blk: u64, out: &mut [u8; BLOCK]) -> FsResult<bool> {
        if let Some(f) = self.staged(ino) {
            if let Some(r) = f.run(blk) {
                let i = blk - r.blk;
                match &r.held {
                    Some(bytes) => out.copy_from_slice(&bytes[i as usize * BLOCK..][..BLOCK]),
                    None => {
                        self.medium().read((r.addr.0 + i) * BLOCK_BYTES, out)?;
                        // What this command wrote a moment ago is believed as little as anything else.
                        self.store.verify(r.crcs[i as usize], ino, blk, out)?;
                    }
                }
                return Ok(true);
            }
            if blk >= f.cut_from {
                out.fill(0);
                return Ok(false);
            }
        }
        let kind = self.store.read_block(ino, blk, out)?;
        self.counters.blocks_read += u32::from(kind == BlockKind::Data);
        Ok(kind == BlockKind::Data)
    }

    /// Stages bytes inside one block.
    pub(super) fn stage_part(
        &mut self,
        ino: InodeNo,
        off: u64,
        src: Source<'_>,
        (at, len): (usize, usize),
        sum: Option<&mut ChecksumState>,
    ) {
        let (blk, from) = (off / BLOCK_BYTES, (off % BLOCK_BYTES) as usize);
        let payload = src.is_payload();
        self.counters.payload_copies += u32::from(payload);
        let (small, steps) = (self.inline || !payload, self.has_steps());
        let blocks = &mut self.staged_mut(ino).blocks;
        let slot = blocks.iter().position(|b| b.blk == blk).unwrap_or_else(|| {
            blocks.push(StagedBlock::new(blk));
            blocks.len() - 1
        });
        let block = &mut blocks[slot];
        block.payload |= payload;
        let bytes = &mut block.bytes[from..from + len];
        src.copy_to(at, bytes);
        // Summed once: the command's checksum and the block's are put together from that of the piece.
        let crc = if small && block.crc.is_none() { None } else { Some(crc32c(bytes)) };
        match (sum, crc) {
            (Some(sum), Some(crc)) => {
                *sum = ChecksumState::resume(crc32c_join(sum.value(), crc, len), sum.len() + len as u64)
            }
            (Some(sum), None) => sum.update(bytes),
            (None, _) => {}
        }
        block.crc = match (block.ranges.single(), block.crc, crc) {
            _ if block.ranges.is_empty() => crc,
            (Some((_, end)), Some(front), Some(crc)) if end == from => Some(crc32c_join(front, crc, len)),
            _ => None,
        };
        block.ranges.add(from, from + len);
        if steps {
            block.fresh.add(from, from + len);
        }
    }

    /// Stages up to `len` bytes of whole blocks, a piece of at most `SLICE_BYTES` at a time: straight into fresh
    /// blocks of the medium, in one pass that also gives their checksums. Returns the bytes staged; a miss stages
    /// nothing. The blocks of all pieces are allocated with the first one, and staged with the last.
    pub(super) fn stage_whole(
        &mut self,
        ino: InodeNo,
        blk: u64,
        src: Source<'_>,
        (at, len): (usize, usize),
        sum: Option<&mut ChecksumState>,
    ) -> FsResult<usize> {
        let mut f = match self.filling.take() {
            Some(f) => f,
            None => self.start_filling(blk, src, len, ino)?,
        };
        let (all, from) = (f.run.count as usize * BLOCK, f.done);
        let n = (all - from).min(SLICE_BYTES as usize);
        self.fill_piece(&mut f, src, at, n)?;
        if let Some(sum) = sum {
            f.crcs[from / BLOCK..f.done / BLOCK].iter().for_each(|crc| sum.update_crc(*crc, BLOCK));
        }
        if f.done < all {
            self.filling = Some(f);
        } else {
            let run =
                StagedRun { blk: f.blk, addr: f.run.addr, crcs: f.crcs, held: f.held.map(Arc::new), sealed: false };
            self.staged_mut(ino).runs.push(run);
        }
        Ok(n)
    }

    fn start_filling(&mut self, blk: u64, src: Source<'_>, len: usize, ino: InodeNo) -> FsResult<Filling> {
        let run = self.plan_mut()?.alloc((len / BLOCK) as u32, ino)?;
        self.counters.payload_copies += u32::from(src.is_payload());
        self.counters.blocks_written += run.count;
        let held = (!self.store.writes_directly()).then(|| AlignedBuf::zeroed(run.count as usize * BLOCK));
        Ok(Filling { blk, run, crcs: SmallVec::from_elem(0, run.count as usize), held, done: 0 })
    }

    fn fill_piece(&mut self, f: &mut Filling, src: Source<'_>, at: usize, len: usize) -> FsResult<()> {
        let off = f.run.addr.0 * BLOCK_BYTES + f.done as u64;
        let crcs = &mut f.crcs[f.done / BLOCK..(f.done + len) / BLOCK];
        let checksum = |crcs: &mut [u32], bytes: &[u8]| {
            crcs.iter_mut().zip(bytes.chunks_exact(BLOCK)).for_each(|(c, b)| *c = crc32c(b));
        };
        match (&mut f.held, src) {
            (Some(held), _) => {
                let bytes = &mut held[f.done..f.done + len];
                src.copy_to(at, bytes);
                checksum(crcs, bytes);
            }
            (None, Source::Shared(s)) => self.medium().ingest(off, s.sub(at, len), crcs)?,
            (None, Source::Private(s) | Source::Taken(s)) => {
                checksum(crcs, &s[at..at + len]);
                self.medium().write(off, &s[at..at + len])?;
            }
            (None, Source::Adopted { .. }) => return Err(Errno::IO.into()),
        }
        f.done += len;
        Ok(())
    }

    /// Gives one private block a fresh block, or one that this command wrote already; says which. On byte-addressable
    /// media it still has to be written there.
    fn place_private(&mut self, ino: InodeNo, block: &StagedBlock, crc: u32) -> FsResult<u64> {
        let (blk, bytes) = (block.blk, &*block.bytes);
        let direct = self.store.writes_directly();
        self.counters.payload_copies += u32::from(block.payload);
        self.counters.blocks_written += 1;
        let file = self.staged_mut(ino);
        // What a record may name already is not written again: the block gets another place.
        let addr = if let Some(r) = file.runs.iter_mut().find(|r| r.contains(blk) && !r.sealed) {
            let i = (blk - r.blk) as usize;
            r.crcs[i] = crc;
            if let Some(held) = r.held.as_mut().and_then(Arc::get_mut) {
                held[i * BLOCK..][..BLOCK].copy_from_slice(bytes);
            }
            r.addr.0 + i as u64
        } else {
            let addr = self.block_for_composed(ino)?;
            let held = (!direct).then(|| Arc::new(AlignedBuf::from_slice(bytes)));
            let runs = &mut self.staged_mut(ino).runs;
            match runs.last_mut().filter(|r| held.is_none() && r.goes_on_with(blk, addr)) {
                Some(run) => run.crcs.push(crc),
                None => {
                    let crcs = SmallVec::from_slice(&[crc]);
                    runs.push(StagedRun { blk, addr, crcs, held, sealed: false });
                }
            }
            addr.0
        };
        Ok(addr)
    }

    /// A fresh block for one that was composed. Where all of a file's are composed at once, they lie together: one
    /// allocation, and one change of the map.
    fn block_for_composed(&mut self, ino: InodeNo) -> FsResult<BlockNo> {
        let run = match self.composed.take() {
            Some(run) => run,
            None => {
                let at_once = self.store.writes_directly() && !self.has_steps();
                let others = self.staged(ino).filter(|_| at_once).map_or(0, StagedFile::blocks_without_place);
                self.plan_mut()?.alloc(1 + others, ino)?
            }
        };
        self.composed = (run.count > 1).then(|| Run { addr: BlockNo(run.addr.0 + 1), count: run.count - 1 });
        Ok(run.addr)
    }

    /// Writes composed blocks to their places, together.
    fn land(&mut self, blocks: SmallVec<[Landing; 2]>) -> FsResult<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let writes = blocks.iter().map(|b| IoWrite { off: b.addr * BLOCK_BYTES, buf: &b.bytes[..] });
        self.medium().write_batch(&writes.collect::<SmallVec<[IoWrite<'_>; 2]>>())?;
        for Landing { ino, blk, addr, bytes, front } in blocks {
            if let Some((len, crc)) = front {
                self.plan_mut()?.tail(Tail { ino: ino.0, blk, addr, bytes, len, crc });
            }
        }
        Ok(())
    }

    /// Turns staged content into effects. If there are later micro-ops, it stays for them to read. May be called again
    /// after a miss.
    pub(super) fn settle(&mut self, stays: bool) -> FsResult<()> {
        let mut landing = SmallVec::new();
        let settled = (0..self.files.len()).try_for_each(|i| self.settle_file(i, stays, &mut landing));
        // What has its place is there, also when the rest has to wait.
        self.land(landing)?;
        settled
    }

    fn settle_file(&mut self, i: usize, stays: bool, landing: &mut SmallVec<[Landing; 2]>) -> FsResult<()> {
        let ino = self.files[i].ino;
        let mut settled = SmallVec::new();
        // In the order of the file, if they were written so.
        self.files[i].blocks.reverse();
        while let Some(mut block) = self.files[i].blocks.pop() {
            match self.settle_block(ino, &mut block, landing) {
                Ok(patched) if stays && patched => settled.push(block),
                Ok(_) => {}
                Err(e) => {
                    self.files[i].blocks.push(block);
                    self.files[i].blocks.append(&mut settled);
                    return Err(e);
                }
            }
        }
        if !settled.is_empty() {
            self.files[i].blocks = settled;
        }
        self.settle_runs(i, stays)
    }

    fn settle_runs(&mut self, i: usize, stays: bool) -> FsResult<()> {
        let ino = self.files[i].ino;
        // Those of one block stay in their order.
        self.files[i].runs.sort_by_key(|r| r.blk);
        for r in self.files[i].runs.iter_mut().filter(|r| !r.sealed) {
            if let Some(bytes) = &r.held {
                self.plan.as_mut().ok_or(FsError::SetChanged)?.data(r.addr, bytes.clone());
            }
            let (count, state) = (r.crcs.len() as u32, BlockState::Written);
            let crcs = if stays { r.crcs.clone() } else { std::mem::take(&mut r.crcs) };
            self.data_effects.push(Effect::Map { ino, blk: r.blk, addr: r.addr, count, state, crcs });
            r.sealed = true;
        }
        if !stays {
            self.files[i].runs.clear();
        }
        Ok(())
    }

    /// A file was cut to `size`: what was staged past it is gone, and reads as zeros when the file grows again. All of
    /// it is settled. `zeroed`: the rest of its last block is being zeroed in the store, of which later micro-ops of
    /// this command must see nothing more.
    pub(super) fn cut_staged(&mut self, ino: InodeNo, size: u64, zeroed: bool) {
        let keep = size.div_ceil(BLOCK_BYTES);
        let edge = (size % BLOCK_BYTES) as usize;
        let f = self.staged_mut(ino);
        f.cut_from = f.cut_from.min(keep);
        let mut gone: SmallVec<[(u64, u64); 4]> = SmallVec::new();
        for r in &mut f.runs {
            let end = r.blk + r.crcs.len() as u64;
            if end > keep {
                let from = r.blk.max(keep);
                gone.push((from, end));
                r.crcs.truncate((from - r.blk) as usize);
            }
        }
        f.runs.retain(|r| !r.crcs.is_empty());
        gone.extend(f.blocks.iter().filter(|b| b.blk >= keep).map(|b| (b.blk, b.blk + 1)));
        f.blocks.retain(|b| b.blk < keep);
        let own = edge > 0 && f.writes(keep - 1);
        if own || zeroed {
            let at = f.blocks.iter().position(|b| b.blk == keep - 1).unwrap_or_else(|| {
                f.blocks.push(StagedBlock::new(keep - 1));
                f.blocks.len() - 1
            });
            let block = &mut f.blocks[at];
            block.bytes[edge..].fill(0);
            // No longer one piece of the client's.
            block.crc = None;
            block.ranges.add(edge, BLOCK);
        }
        for (from, end) in joined(gone) {
            for blk in (from..end).step_by(UNMAP_BLOCKS as usize) {
                let count = (end - blk).min(UNMAP_BLOCKS) as u32;
                self.data_effects.push(Effect::Unmap { ino, blk, count });
            }
        }
        if own {
            self.data_effects.push(Effect::Zero { ino, off: size, len: (BLOCK - edge) as u32 });
        }
    }

    /// Whether the block stays a patch over what lies below (or was one before).
    fn settle_block(
        &mut self,
        ino: InodeNo,
        block: &mut StagedBlock,
        landing: &mut SmallVec<[Landing; 2]>,
    ) -> FsResult<bool> {
        let off = block.blk * BLOCK_BYTES;
        let steps = self.has_steps();
        if steps && block.fresh.is_empty() {
            return Ok(true);
        }
        let own = self.staged(ino).and_then(|f| f.run(block.blk));
        // What a commit names is never written again, and a MicroTx keeps the device's own bytes out of the client's
        // blocks: they belong to another micro-op. A program's go to other blocks.
        let patched = match own {
            Some(run) => run.sealed && !self.many,
            None => self.inline || (self.steps.is_some() && !self.many && !block.payload),
        };
        if patched {
            let fresh = if steps { std::mem::take(&mut block.fresh) } else { block.ranges.clone() };
            for (from, to) in fresh.iter() {
                let bytes = SmallVec::from_slice(&block.bytes[from..to]);
                self.data_effects.push(Effect::Patch { ino, off: off + from as u64, bytes });
                self.counters.patches += 1;
            }
            block.payload = false;
            return Ok(true);
        }
        let single = block.ranges.single();
        let sums = if block.ranges.is_whole() { Sums::default() } else { self.fill_gaps(ino, block)? };
        let crc = match (sums.whole, block.crc) {
            (Some(crc), _) => crc,
            (None, Some(crc)) if single == Some((0, BLOCK)) => crc,
            _ => crc32c(&block.bytes[..]),
        };
        // A block that stays has other ranges than what was summed.
        block.crc = None;
        let addr = self.place_private(ino, block, crc)?;
        if self.store.writes_directly() {
            let front = sums.front.filter(|_| !self.many);
            landing.push(Landing { ino, blk: block.blk, addr, bytes: block.bytes.detach(), front });
        }
        Ok(false)
    }

    /// Completes a block that was written in part with what lies under it.
    fn fill_gaps(&mut self, ino: InodeNo, block: &mut StagedBlock) -> FsResult<Sums> {
        let StagedBlock { blk, bytes, ranges, crc, .. } = block;
        let own = |f: &StagedFile| *blk >= f.cut_from || f.runs.iter().any(|r| r.contains(*blk));
        let single = ranges.single().filter(|_| !self.staged(ino).is_some_and(own));
        let Some((from, to)) = single else {
            let mut base = BlockBuf::take();
            self.load_base(ino, *blk, &mut base)?;
            ranges.gaps().for_each(|(from, to)| bytes[from..to].copy_from_slice(&base[from..to]));
            ranges.add(0, BLOCK);
            return Ok(Sums::default());
        };
        let around = self.store.read_around(ino, *blk, bytes, (from, to))?;
        self.counters.blocks_read += u32::from(around.kind == BlockKind::Data);
        ranges.add(0, BLOCK);
        let Some(crc) = *crc else { return Ok(Sums::default()) };
        let front = match around.front {
            Some((len, crc)) => crc32c_append(crc, &bytes[len..from]),
            None => crc32c(&bytes[..from]),
        };
        let front = crc32c_join(front, crc, to - from);
        let zeros = around.zeros || bytes[to..].iter().fold(0, |all, b| all | b) == 0;
        let whole = match zeros {
            true => crc32c_then_zeros(front, BLOCK - to),
            false => crc32c_append(front, &bytes[to..]),
        };
        Ok(Sums { whole: Some(whole), front: (zeros && to < BLOCK).then_some((to, front)) })
    }
}

/// Ranges in order, those that touch as one: what was staged piece by piece goes in few effects.
fn joined(mut ranges: SmallVec<[(u64, u64); 4]>) -> SmallVec<[(u64, u64); 4]> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
    ranges
}

/// A composed block on its way to its place on the medium.
struct Landing {
    ino: InodeNo,
    blk: u64,
    addr: u64,
    bytes: BlockBuf,
    /// So many bytes from the front, with this checksum, have nothing but zeros behind them.
    front: Option<(usize, u32)>,
}

/// Checksums of a block that was written in part, as far as they are known.
#[derive(Default)]
struct Sums {
    whole: Option<u32>,
    /// So many bytes from the front, with nothing but zeros behind them.
    front: Option<(usize, u32)>,
}

/// CRC32C of what `crc` is of, and `bytes` after it.
fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut sum = ChecksumState::resume(crc, 0);
    sum.update(bytes);
    sum.value()
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, joined};
    use crate::stage::Ranges;
    use smallvec::smallvec;

    #[test]
    fn blocks_that_were_staged_one_by_one_are_cut_in_one_piece() {
        assert_eq!(joined(smallvec![]).to_vec(), []);
        let pieces = smallvec![(9, 10), (3, 5), (5, 6), (3, 4), (8, 9), (20, 30), (22, 24)];
        assert_eq!(joined(pieces).to_vec(), [(3, 6), (8, 10), (20, 30)]);
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let mut r = Ranges::default();
        r.add(100, 200);
        r.add(300, 400);
        r.add(0, 50);
        assert_eq!(r.iter().collect::<Vec<_>>(), [(0, 50), (100, 200), (300, 400)]);
        assert_eq!(r.gaps().collect::<Vec<_>>(), [(50, 100), (200, 300), (400, BLOCK)]);
        r.add(200, 300);
        assert_eq!(r.iter().collect::<Vec<_>>(), [(0, 50), (100, 400)]);
        r.add(40, 4096);
        assert!(r.is_whole());
    }
}
