//! Queued log bytes and data of block media: what the next batch writes.

use crate::limits::LOG_CHUNK_BYTES;
use crate::{AlignedBuf, DataWrite, IoWrite};

/// Consecutive records.
struct Chunk {
    off: u64,
    used: usize,
    buf: AlignedBuf,
}

/// Records in LSN order and the data they point to, not yet submitted. Records start at sector multiples and are
/// padded to them, so that no sector is ever written twice.
#[derive(Default)]
pub(crate) struct LogBuffer {
    chunks: Vec<Chunk>,
    data: Vec<DataWrite>,
    bytes: u64,
    spare: Vec<AlignedBuf>,
}

impl LogBuffer {
    /// Copies a record of `bytes` bytes (padding included) that lies at `off`. A pad record's body is not written.
    pub(crate) fn push_record(&mut self, off: u64, header: &[u8], parts: &[&[u8]], bytes: usize) {
        let filled = header.len() + parts.iter().map(|p| p.len()).sum::<usize>();
        // A pad of a lap's end spans up to a record's length; its first sector says it all.
        let bytes = if parts.is_empty() { bytes.min(crate::BLOCK) } else { bytes };
        debug_assert!(filled <= bytes);
        let chunk = self.chunk_for(off, bytes);
        let room = &mut chunk.buf[chunk.used..chunk.used + bytes];
        let (head, mut rest) = room.split_at_mut(header.len());
        head.copy_from_slice(header);
        for p in parts {
            let (to, after) = rest.split_at_mut(p.len());
            to.copy_from_slice(p);
            rest = after;
        }
        rest.fill(0);
        chunk.used += bytes;
        self.bytes += bytes as u64;
    }

    fn chunk_for(&mut self, off: u64, bytes: usize) -> &mut Chunk {
        let fits = |c: &Chunk| c.off + c.used as u64 == off && c.used + bytes <= c.buf.len();
        if !self.chunks.last().is_some_and(fits) {
            let reuse = self.spare.last().is_some_and(|b| b.len() >= bytes);
            let buf = if reuse { self.spare.pop() } else { None };
            let buf = buf.unwrap_or_else(|| AlignedBuf::zeroed(bytes.max(LOG_CHUNK_BYTES)));
            self.chunks.push(Chunk { off, used: 0, buf });
        }
        self.chunks.last_mut().expect("just pushed")
    }

    pub(crate) fn push_data(&mut self, data: Vec<DataWrite>) {
        self.bytes += data.iter().map(|d| d.buf.len() as u64).sum::<u64>();
        self.data.extend(data);
    }

    /// Bytes queued.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes of log and of data that it will take.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.chunks.len() as u64, self.data.len() as u64)
    }

    /// Takes everything queued; buffers of an earlier batch (`used`) come back for reuse.
    pub(crate) fn take(&mut self, used: LogBuffer) -> LogBuffer {
        let mut spare = std::mem::take(&mut self.spare);
        spare.extend(used.chunks.into_iter().map(|c| c.buf).filter(|b| b.len() == LOG_CHUNK_BYTES));
        spare.truncate(4);
        std::mem::replace(self, LogBuffer { spare, ..LogBuffer::default() })
    }

    /// The writes of data.
    pub(crate) fn data(&self) -> impl Iterator<Item = IoWrite<'_>> {
        self.data.iter().map(|d| IoWrite { off: d.off, buf: &d.buf[..] })
    }

    /// Those of log, in LSN order.
    pub(crate) fn log(&self) -> impl Iterator<Item = IoWrite<'_>> {
        self.chunks.iter().map(|c| IoWrite { off: c.off, buf: &c.buf[..c.used] })
    }
}
