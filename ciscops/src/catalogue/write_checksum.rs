//! write_checksum: write a payload with its checksum at an offset.

use super::append_checksum_write::record;
use super::template::{Summing, Template};
use crate::Handle;
use crate::program::{Body, Fault, Place, Value};

/// Writes a payload with its checksum at an offset: see [`AppendChecksum`](super::AppendChecksum), also for ranges
/// and results. EFBIG past the largest file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteChecksum {
    /// The file.
    pub h: Handle,
    /// Where the record begins, bytes. A file opened with APPEND gets it at its end, as in pwrite on Linux.
    pub offset: u64,
    /// Bytes of the payload, at most ATOMIC_WRITE_MAX.
    pub len: u32,
    /// Which checksum, and how it lies there.
    pub sum: Summing,
}

impl Template for WriteChecksum {
    /// Where the record begins in the file, bytes, and its checksum.
    type Answer = (u64, u32);

    fn body(&self) -> Result<Body, Fault> {
        self.sum.places(self.offset, self.len)?;
        record(self.h, Place::At(Value::Imm(self.offset)), self.len, self.sum)
    }

    fn answer((offset, sum): (u64, u64)) -> Self::Answer {
        (offset, sum as u32)
    }
}
