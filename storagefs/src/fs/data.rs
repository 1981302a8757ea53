//! Reading and writing bytes. Synchronous cores of `Txn`.
//!
//! Whole blocks go one-pass between the client's pool and the medium, with their checksum computed in passing; anything
//! else is composed in a private block first.

use super::FILE_BYTES_MAX;
use super::inode_set::Hold;
use super::perm::{self, IFDIR, IFREG};
use super::resolve;
use super::stage::{BLOCK, BLOCK_BYTES, SLICE_BYTES};
use super::txn::Txn;
use crate::blockcache::FETCH_MAX;
use crate::effect::{Effect, attr};
use crate::error::{FsError, FsResult, Miss, Place, Wait};
use crate::limits::WINDOW_BLOCKS;
use crate::record::InodeRec;
use crate::scratch::BlockBuf;
use crate::store::BlockKind;
use smallvec::SmallVec;
use weldfs_ciscops::{At, ChecksumState, Errno, InodeNo, SharedBytes, Sink, Source, Whence, Written};

/// Blocks asked of the map at a time.
const MAP_STEP: u64 = 64;
/// Windows that a truncation frees at once.
const TAIL_WINDOWS: usize = 4;
/// Windows of the map in which data or a hole is looked for at a time.
const LOOK_WINDOWS: u64 = 4;
/// Times a block that fails verification is looked up again: a checkpoint may have moved it between lookup and read.
const REREADS: u32 = 2;

/// A place on the medium from which a whole block can be emitted, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    /// Zeros.
    Empty,
    /// A verified copy can be made straight from here.
    Whole { addr: u64, crc: u32 },
    /// Needs composing.
    Mixed,
}

/// Whether the content of a file can be read and written by commands.
fn readable(rec: &InodeRec) -> FsResult<()> {
    match rec.mode & perm::IFMT {
        // Its bytes are streamed by the device; no command has them as the content of a file.
        IFREG if rec.is_virtual() => Err(Errno::OPNOTSUPP.into()),
        IFREG => Ok(()),
        IFDIR => Err(Errno::ISDIR.into()),
        _ => Err(Errno::INVAL.into()),
    }
}

impl Txn<'_> {
    /// A regular file's record.
    pub(super) fn regular(&self, ino: InodeNo) -> FsResult<InodeRec> {
        let rec = resolve::live(self, ino)?;
        readable(&rec).map(|()| rec)
    }

    /// Reads up to `len` bytes; returns how many. `sum` folds in what goes to the sink. The command will read `ahead`
    /// bytes from `off` on, these among them: a miss names what lies together of them.
    pub(super) fn read_core(
        &mut self,
        ino: InodeNo,
        off: u64,
        (len, ahead): (u64, u64),
        sink: &mut Sink<'_>,
        sum: &mut Option<ChecksumState>,
    ) -> FsResult<u64> {
        self.held(ino, Hold::Shared)?;
        let rec = self.regular(ino)?;
        let end = rec.size.min(off.saturating_add(len));
        if off >= end {
            return Ok(0);
        }
        let last = rec.size.min(off.saturating_add(ahead)).div_ceil(BLOCK_BYTES);
        let mut spots: SmallVec<[Spot; 8]> = SmallVec::new();
        let mut first = off / BLOCK_BYTES;
        let (mut pos, mut composed) = (off, false);
        while pos < end {
            let blk = pos / BLOCK_BYTES;
            let within = pos % BLOCK_BYTES;
            let take = (BLOCK_BYTES - within).min(end - pos);
            if take < BLOCK_BYTES {
                let part = (within as usize, take as usize);
                let read = self.read_bytes(ino, blk, part, (pos - off) as usize, sink, sum);
                composed |= read.map_err(|e| self.with_what_follows(e, ino, blk, last))?;
                pos += take;
                continue;
            }
            if blk >= first + spots.len() as u64 {
                let count = MAP_STEP.min(end.div_ceil(BLOCK_BYTES) - blk);
                (first, spots) = (blk, self.spots(ino, blk, count)?);
            }
            let spot = spots[(blk - first) as usize];
            composed |= spot == Spot::Mixed;
            let read = self.read_whole(ino, spot, blk, (pos - off) as usize, sink, sum);
            read.map_err(|e| self.with_what_follows(e, ino, blk, last))?;
            pos += BLOCK_BYTES;
        }
        if matches!(sink, Sink::Shared(_)) {
            self.counters.payload_copies += 1 + u32::from(composed);
            self.counters.bytes_out += end - off;
        }
        Ok(end - off)
    }

    /// A miss of the data of block `blk` as one of all that lies behind it on the medium, too, and is read by the same
    /// command, up to block `last` of the file: one I/O in place of one for each block.
    fn with_what_follows(&self, e: FsError, ino: InodeNo, blk: u64, last: u64) -> FsError {
        let FsError::Miss(Miss::Blocks { addr, count: 1 }) = e else { return e };
        let (mut run, most) = (0, last.saturating_sub(blk).clamp(1, FETCH_MAX.into()));
        // A page of the map that is cold ends the run. It is missed by itself when its turn comes.
        let _ = self.store.block_map(ino, blk, most, &mut |_, view| {
            let next = view.kind == BlockKind::Data && view.addr.is_some_and(|a| a.0 == addr.0 + u64::from(run));
            run += u32::from(next);
            next
        });
        Miss::Blocks { addr, count: self.store.cold_run(addr, run) }.into()
    }

    /// Where the blocks `blk..blk+count` can be read.
    fn spots(&self, ino: InodeNo, blk: u64, count: u64) -> FsResult<SmallVec<[Spot; 8]>> {
        let direct = self.store.writes_directly();
        let mut spots = SmallVec::from_elem(Spot::Empty, count as usize);
        self.store.block_map(ino, blk, count, &mut |b, view| {
            spots[(b - blk) as usize] = match (view.kind, view.addr) {
                (BlockKind::Hole | BlockKind::Unwritten, _) => Spot::Empty,
                (BlockKind::Data, Some(addr)) if direct && !view.patched => Spot::Whole { addr: addr.0, crc: view.crc },
                _ => Spot::Mixed,
            };
            true
        })?;
        if let Some(f) = self.staged(ino) {
            (0..count).filter(|i| f.has(blk + i)).for_each(|i| spots[i as usize] = Spot::Mixed);
        }
        Ok(spots)
    }

    /// One whole block.
    fn read_whole(
        &mut self,
        ino: InodeNo,
        spot: Spot,
        blk: u64,
        at: usize,
        sink: &mut Sink<'_>,
        sum: &mut Option<ChecksumState>,
    ) -> FsResult<()> {
        const ZEROS: [u8; BLOCK] = [0; BLOCK];
        match (spot, &mut *sink) {
            (Spot::Empty, sink) => {
                sink.put(at, &ZEROS);
                if let Some(s) = sum {
                    s.update_zeros(BLOCK_BYTES);
                }
                Ok(())
            }
            (Spot::Whole { addr, crc }, Sink::Shared(out)) => {
                let crc = self.emit(ino, blk, (addr, crc), out.sub(at, BLOCK))?;
                if let Some(s) = sum {
                    s.update_crc(crc, BLOCK);
                }
                Ok(())
            }
            _ => self.read_bytes(ino, blk, (0, BLOCK), at, sink, sum).map(drop),
        }
    }

    /// Bytes of one block, by way of a private copy. Whether there is any data.
    fn read_bytes(
        &mut self,
        ino: InodeNo,
        blk: u64,
        (within, take): (usize, usize),
        at: usize,
        sink: &mut Sink<'_>,
        sum: &mut Option<ChecksumState>,
    ) -> FsResult<bool> {
        let mut block = BlockBuf::take();
        let data = self.load_part(ino, blk, &mut block, (within, within + take))?;
        let bytes = &block[within..within + take];
        sink.put(at, bytes);
        if let Some(s) = sum {
            s.update(bytes);
        }
        Ok(data)
    }

    /// Medium to pool in one pass, verified.
    fn emit(&mut self, ino: InodeNo, blk: u64, at: (u64, u32), out: SharedBytes<'_>) -> FsResult<u32> {
        let (mut addr, mut expected) = at;
        let mut tries = 0;
        loop {
            self.counters.blocks_read += 1;
            let actual = self.medium().emit(addr * BLOCK_BYTES, out)?;
            if actual == expected {
                return Ok(actual);
            }
            match self.spots(ino, blk, 1)?[0] {
                Spot::Whole { addr: a, crc } if (a, crc) != (addr, expected) && tries < REREADS => {
                    (addr, expected, tries) = (a, crc, tries + 1);
                }
                Spot::Whole { .. } => {
                    // The pass that found it out has copied it already: nothing of it stays with the client.
                    out.copy_from(&[0; BLOCK]);
                    let place = Place::File { ino: ino.0, off: blk * BLOCK_BYTES };
                    return Err(FsError::corrupt("data (checksum)", place, expected.into(), actual.into()));
                }
                _ => {
                    let mut block = BlockBuf::take();
                    self.load_block(ino, blk, &mut block)?;
                    out.copy_from(&block[..]);
                    return Ok(weldfs_functions::crc32c(&block[..]));
                }
            }
        }
    }

    /// Stages a write of all of `src`, a piece at a time: `None` until the last one is there. Call again with the same
    /// `progress` then, and after a miss.
    pub(super) fn write_core(
        &mut self,
        ino: InodeNo,
        at: At,
        src: Source<'_>,
        sum: &mut Option<&mut ChecksumState>,
        progress: &mut usize,
    ) -> FsResult<Option<Written>> {
        self.held(ino, Hold::Exclusive)?;
        let size = self.look(ino, |rec| readable(rec).map(|()| rec.size))??;
        let off = match at {
            At::Offset(off) => off,
            At::Current | At::End => size,
        };
        let len = src.len() as u64;
        if len == 0 {
            return Ok(Some(Written { off, len }));
        }
        let end = off.checked_add(len).filter(|e| *e <= FILE_BYTES_MAX).ok_or(Errno::FBIG)?;
        if self.payload + len > self.payload_max {
            return Err(Errno::TOOBIG.into());
        }
        if let Source::Adopted { input, .. } = src {
            let rec = self.regular(ino)?;
            return self.write_adopted(&rec, off, input, sum.as_deref_mut()).map(Some);
        }
        let piece = *progress + SLICE_BYTES as usize;
        while *progress < src.len() {
            if *progress >= piece {
                return Ok(None);
            }
            let pos = off + *progress as u64;
            let (blk, within) = (pos / BLOCK_BYTES, pos % BLOCK_BYTES);
            let whole =
                if within == 0 && !self.inline { self.untouched(ino, blk, (end - pos) / BLOCK_BYTES) } else { 0 };
            *progress += if whole > 0 {
                let n = (whole * BLOCK_BYTES) as usize;
                self.stage_whole(ino, blk, src, (*progress, n), sum.as_deref_mut())?
            } else {
                let n = (BLOCK_BYTES - within).min(end - pos) as usize;
                self.stage_part(ino, pos, src, (*progress, n), sum.as_deref_mut());
                n
            };
        }
        // A miss is for what comes last, too: all of the content is there when it is called again.
        let (now, ordinary) = (self.now, self.session.cred().uid != 0);
        let staged = self.staged_inode(ino)?;
        if end > size {
            staged.rec.size = end;
            staged.mask |= attr::SIZE;
        }
        staged.modified(now, ordinary);
        self.payload += len;
        if src.is_payload() {
            self.counters.bytes_in += len;
            if let Some(s) = &mut self.steps {
                s.written = Some((ino, off, len));
            }
        }
        Ok(Some(Written { off, len }))
    }

    /// How many of the blocks `blk..blk+count`, from the front, this command has not written yet.
    fn untouched(&self, ino: InodeNo, blk: u64, count: u64) -> u64 {
        let Some(f) = self.staged(ino).filter(|f| !(f.blocks.is_empty() && f.runs.is_empty())) else { return count };
        (0..count).find(|i| f.writes(blk + i)).unwrap_or(count)
    }

    /// Content changed: times, and the privilege bits when an ordinary user did it.
    pub(super) fn modified(&mut self, rec: &InodeRec) {
        let (now, ordinary) = (self.now, self.session.cred().uid != 0);
        self.edit(rec).modified(now, ordinary);
    }

    /// Sets the size; what lies past it goes.
    pub(super) fn resize(&mut self, rec: &InodeRec, size: u64) -> FsResult<()> {
        match rec.mode & perm::IFMT {
            IFREG if rec.is_virtual() => return Err(Errno::OPNOTSUPP.into()),
            IFREG if self.store.pins.covers(rec.ino, size, rec.size) => return Err(Errno::TXTBSY.into()),
            IFREG => {}
            IFDIR => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        if size > FILE_BYTES_MAX {
            return Err(Errno::FBIG.into());
        }
        self.held(rec.ino, Hold::Exclusive)?;
        if size <= rec.size && (rec.blocks > 0 || self.staged(rec.ino).is_some()) {
            self.drop_tail(rec, size)?;
        }
        self.change(rec, attr::SIZE, |r| r.size = size);
        self.modified(rec);
        Ok(())
    }

    /// Cuts per inode are bounded: past the bound the command waits for reclaim.
    pub(super) fn cut_allowed(&self, ino: InodeNo) -> FsResult<()> {
        if self.store.cuts_full(ino) { Err(FsError::Wait(Wait::Drain)) } else { Ok(()) }
    }

    fn drop_tail(&mut self, rec: &InodeRec, size: u64) -> FsResult<()> {
        let (ino, keep) = (rec.ino, size.div_ceil(BLOCK_BYTES));
        if self.many {
            // What was written comes before the cut, also in the record.
            self.settle(true)?;
        }
        let gone = self.clear_from(ino, keep)?;
        let below = size < rec.size && !self.staged(ino).is_some_and(|f| f.writes(size / BLOCK_BYTES));
        let zeroed = below && self.zero_part(ino, size, keep * BLOCK_BYTES)?;
        self.data_effects.extend(gone);
        self.cut_staged(ino, size, zeroed && self.many);
        Ok(())
    }

    /// The effects that make everything from block `keep` on a hole: at once if few windows are concerned, else by a
    /// cut that is reclaimed later.
    fn clear_from(&self, ino: InodeNo, keep: u64) -> FsResult<SmallVec<[Effect; TAIL_WINDOWS]>> {
        let end = FILE_BYTES_MAX / BLOCK_BYTES;
        let (mut gone, mut at) = (SmallVec::new(), keep);
        while let Some(window) = self.store.next_window(ino, at)?.filter(|w| *w < end) {
            if gone.len() == TAIL_WINDOWS {
                self.cut_allowed(ino)?;
                gone.clear();
                gone.push(Effect::Cut { ino, blk: keep, end });
                break;
            }
            let blk = window.max(keep);
            at = window + WINDOW_BLOCKS;
            gone.push(Effect::Unmap { ino, blk, count: (at - blk) as u32 });
        }
        Ok(gone)
    }

    /// Zeroes `from..to`, a part of one block, if the block holds data; says whether it does.
    pub(super) fn zero_part(&mut self, ino: InodeNo, from: u64, to: u64) -> FsResult<bool> {
        if from >= to {
            return Ok(false);
        }
        let mut data = false;
        self.store.block_map(ino, from / BLOCK_BYTES, 1, &mut |_, view| {
            data = view.kind == BlockKind::Data;
            false
        })?;
        if data {
            self.data_effects.push(Effect::Zero { ino, off: from, len: (to - from) as u32 });
        }
        Ok(data)
    }

    /// lseek: the offset that results; Data and Hole look at the file.
    pub(super) fn seek_core(&mut self, ino: InodeNo, current: u64, whence: Whence, off: i64) -> FsResult<u64> {
        let from = |base: u64| {
            let to = i64::try_from(base).ok().and_then(|b| b.checked_add(off)).ok_or(Errno::OVERFLOW)?;
            u64::try_from(to).map_err(|_| FsError::Errno(Errno::INVAL))
        };
        match whence {
            Whence::Set => from(0),
            Whence::Cur => from(current),
            Whence::End => {
                self.held(ino, Hold::Shared)?;
                from(resolve::live(self, ino)?.size)
            }
            Whence::Data | Whence::Hole => {
                self.held(ino, Hold::Shared)?;
                let rec = self.regular(ino)?;
                let off = u64::try_from(off).ok().filter(|o| *o < rec.size).ok_or(Errno::NXIO)?;
                let blk = off / BLOCK_BYTES;
                let end = rec.size.div_ceil(BLOCK_BYTES);
                let data = whence == Whence::Data;
                let mut at = self.strides.remembered().and_then(|long| long.look).unwrap_or(blk);
                let found = self.store.seek_on(ino, &mut at, end, data, LOOK_WINDOWS);
                if at > blk && found.is_err() {
                    self.strides.long().look = Some(at);
                }
                let hit = match found? {
                    None if data => return Err(Errno::NXIO.into()),
                    hit => hit.unwrap_or(end),
                };
                Ok(off.max(hit * BLOCK_BYTES).min(rec.size))
            }
        }
    }
}
