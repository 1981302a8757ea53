//! Reads of what is committed: bytes of a file of which the command has staged nothing.
//!
//! Blocks go one-pass from the medium to where they are wanted, with their checksum computed in passing, where all of
//! one is wanted and nothing was laid over it since; anything else is composed in a private block first.

use super::stage::{BLOCK, BLOCK_BYTES};
use super::txn::OpCounters;
use weldfs_ciscops::{ChecksumState, InodeNo, SharedBytes, Sink};
use weldfs_store::blockcache::FETCH_MAX;
use weldfs_store::error::{FsError, FsResult, Miss, Place};
use weldfs_store::scratch::BlockBuf;
use weldfs_store::{BlockKind, BlockView, Store};

/// Blocks asked of the map at a time.
const MAP_STEP: u64 = 64;
/// Times a block that fails verification is looked up again: a checkpoint may have moved it between lookup and read.
const REREADS: u32 = 2;

/// A read of one file, and what it costs.
pub(super) struct Reader<'s> {
    pub store: &'s Store,
    pub counters: OpCounters,
}

/// Where a piece of a file goes, and what is summed up of it.
struct Into<'a, 'p> {
    sink: &'a mut Sink<'p>,
    sum: &'a mut Option<ChecksumState>,
    /// Some of it was composed in a private block.
    composed: bool,
}

impl<'s> Reader<'s> {
    pub fn new(store: &'s Store) -> Reader<'s> {
        Reader { store, counters: OpCounters::default() }
    }

    /// Reads up to `len` bytes of a file of that size; returns how many. `sum` folds in what goes to the sink. The
    /// command will read `ahead` bytes from `off` on, these among them: a miss names what lies together of them.
    ///
    /// # Errors
    /// `Miss`, damage.
    pub fn read(
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
        let mut to = Into { sink, sum, composed: false };
        let mut blk = off / BLOCK_BYTES;
        while blk * BLOCK_BYTES < end {
            let count = (end.div_ceil(BLOCK_BYTES) - blk).min(MAP_STEP);
            let mut failed = None;
            self.store.block_map(ino, blk, count, &mut |b, view| {
                let (from, till) = ((b * BLOCK_BYTES).max(off), ((b + 1) * BLOCK_BYTES).min(end));
                let part = ((from % BLOCK_BYTES) as usize, (till - from) as usize);
                let read = self.block((ino, b), view, part, (from - off) as usize, &mut to);
                failed = read.err().map(|e| (b, e));
                failed.is_none()
            })?;
            if let Some((b, e)) = failed {
                return Err(with_what_follows(self.store, e, (ino, b), last));
            }
            blk += count;
        }
        if matches!(to.sink, Sink::Shared(_)) {
            self.counters.payload_copies += 1 + u32::from(to.composed);
            self.counters.bytes_out += end - off;
        }
        Ok(end - off)
    }

    /// Bytes of one block, which the map shows so, to their place `at`.
    fn block(
        &mut self,
        file: (InodeNo, u64),
        view: BlockView,
        (within, take): (usize, usize),
        at: usize,
        to: &mut Into<'_, '_>,
    ) -> FsResult<()> {
        const ZEROS: [u8; BLOCK] = [0; BLOCK];
        match (view.kind, view.addr, &mut *to.sink) {
            (BlockKind::Hole | BlockKind::Unwritten, _, sink) => {
                sink.put(at, &ZEROS[..take]);
                if let Some(s) = to.sum {
                    s.update_zeros(take as u64);
                }
                Ok(())
            }
            (BlockKind::Data, Some(addr), sink) if !view.patched && self.store.writes_directly() => {
                let whole = match sink {
                    Sink::Shared(out) if take == BLOCK => Some(out.sub(at, BLOCK)),
                    Sink::Private(out) if take == BLOCK => Some(SharedBytes::of_private(&mut out[at..at + BLOCK])),
                    _ => None,
                };
                if let Some(out) = whole {
                    let crc = self.emit(file, (addr.0, view.crc), out)?;
                    if let Some(s) = to.sum {
                        s.update_crc(crc, BLOCK);
                    }
                    return Ok(());
                }
                let mut block = BlockBuf::take();
                self.emit(file, (addr.0, view.crc), SharedBytes::of_private(&mut block[..]))?;
                to.composed = true;
                let bytes = &block[within..within + take];
                to.sink.put(at, bytes);
                if let Some(s) = to.sum {
                    s.update(bytes);
                }
                Ok(())
            }
            (_, _, sink) => {
                let mut block = BlockBuf::take();
                let kind = self.store.read_part(file.0, file.1, &mut block, (within, within + take))?;
                self.counters.blocks_read += u32::from(kind == BlockKind::Data);
                to.composed |= kind == BlockKind::Data;
                let bytes = &block[within..within + take];
                sink.put(at, bytes);
                if let Some(s) = to.sum {
                    s.update(bytes);
                }
                Ok(())
            }
        }
    }

    /// From the medium to `out` in one pass, verified.
    fn emit(&mut self, (ino, blk): (InodeNo, u64), at: (u64, u32), out: SharedBytes<'_>) -> FsResult<u32> {
        let (mut addr, mut expected) = at;
        let mut tries = 0;
        loop {
            self.counters.blocks_read += 1;
            let actual = self.store.medium().emit(addr * BLOCK_BYTES, out)?;
            if actual == expected {
                return Ok(actual);
            }
            let mut now = None;
            self.store.block_map(ino, blk, 1, &mut |_, view| {
                now = Some(view);
                false
            })?;
            match now {
                Some(BlockView { kind: BlockKind::Data, addr: Some(a), crc, patched: false }) => {
                    if (a.0, crc) != (addr, expected) && tries < REREADS {
                        (addr, expected, tries) = (a.0, crc, tries + 1);
                        continue;
                    }
                    // The pass that found it out has copied it already: nothing of it stays with the client.
                    out.copy_from(&[0; BLOCK]);
                    let place = Place::File { ino: ino.0, off: blk * BLOCK_BYTES };
                    return Err(FsError::corrupt("data (checksum)", place, expected.into(), actual.into()));
                }
                _ => {
                    let mut block = BlockBuf::take();
                    self.store.read_block(ino, blk, &mut block)?;
                    out.copy_from(&block[..]);
                    return Ok(weldfs_functions::crc32c(&block[..]));
                }
            }
        }
    }
}

/// A miss of the data of block `blk` as one of all that lies behind it on the medium, too, and is read by the same
/// command, up to block `last` of the file: one I/O in place of one for each block.
pub(super) fn with_what_follows(store: &Store, e: FsError, (ino, blk): (InodeNo, u64), last: u64) -> FsError {
    let FsError::Miss(Miss::Blocks { addr, count: 1 }) = e else { return e };
    let (mut run, most) = (0, last.saturating_sub(blk).clamp(1, FETCH_MAX.into()));
    // A page of the map that is cold ends the run. It is missed by itself when its turn comes.
    let _ = store.block_map(ino, blk, most, &mut |_, view| {
        let next = view.kind == BlockKind::Data && view.addr.is_some_and(|a| a.0 == addr.0 + u64::from(run));
        run += u32::from(next);
        next
    });
    Miss::Blocks { addr, count: store.cold_run(addr, run) }.into()
}
