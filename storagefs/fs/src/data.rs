//! Reading and writing bytes. Synchronous cores of `Txn`.
//!
//! Whole blocks that are written go one-pass from the client's pool to the medium, with their checksum computed in
//! passing; anything else is composed in a private block first. `committed` reads what is committed.

use super::FILE_BYTES_MAX;
use super::committed::{Reader, with_what_follows};
use super::inode_set::Hold;
use super::perm::{self, IFDIR, IFREG};
use super::resolve;
use super::stage::{BLOCK_BYTES, SLICE_BYTES};
use super::txn::Txn;
use smallvec::SmallVec;
use weldfs_ciscops::{At, ChecksumState, Errno, InodeNo, Sink, Source, Whence, Written};
use weldfs_store::BlockKind;
use weldfs_store::effect::{Effect, attr};
use weldfs_store::error::{FsError, FsResult, Wait};
use weldfs_store::limits::WINDOW_BLOCKS;
use weldfs_store::record::InodeRec;
use weldfs_store::scratch::BlockBuf;

/// Windows that a truncation frees at once.
const TAIL_WINDOWS: usize = 4;
/// Windows of the map in which data or a hole is looked for at a time.
const LOOK_WINDOWS: u64 = 4;

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
        let size = self.look(ino, |rec| readable(rec).map(|()| rec.size))??;
        if self.staged(ino).is_some() {
            return self.read_staged((ino, size), off, (len, ahead), sink, sum);
        }
        let mut reader = Reader::new(self.store);
        let read = reader.read((ino, size), off, (len, ahead), sink, sum);
        self.counters += reader.counters;
        read
    }

    /// The same of a file that this command has written to.
    fn read_staged(
        &mut self,
        (ino, size): (InodeNo, u64),
        off: u64,
        (len, ahead): (u64, u64),
        sink: &mut Sink<'_>,
        sum: &mut Option<ChecksumState>,
    ) -> FsResult<u64> {
        let end = size.min(off.saturating_add(len));
        if off >= end {
            return Ok(0);
        }
        let last = size.min(off.saturating_add(ahead)).div_ceil(BLOCK_BYTES);
        let mut composed = false;
        let mut pos = off;
        while pos < end {
            let (blk, within) = (pos / BLOCK_BYTES, pos % BLOCK_BYTES);
            let take = (BLOCK_BYTES - within).min(end - pos);
            let part = (within as usize, take as usize);
            let read = self.read_bytes(ino, blk, part, (pos - off) as usize, sink, sum);
            composed |= read.map_err(|e| with_what_follows(self.store, e, (ino, blk), last))?;
            pos += take;
        }
        if matches!(sink, Sink::Shared(_)) {
            self.counters.payload_copies += 1 + u32::from(composed);
            self.counters.bytes_out += end - off;
        }
        Ok(end - off)
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
            IFREG if self.store.pins().covers(rec.ino, size, rec.size) => return Err(Errno::TXTBSY.into()),
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
