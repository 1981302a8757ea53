//! log_recover: find the sound beginning of a log, and perhaps copy it.

use super::template::{Template, place};
use crate::limits::PROGRAM_WRITE_MAX;
use crate::program::{Arith, Body, Builder, Fault, Micro, Record, Value};
use crate::{Access, At, Handle};

/// Walks over the records of a log from `offset` and stops at the first that is cut, empty or does not match its
/// checksum. Pool ranges: room for the offsets of the good records (8 bytes each, little-endian), if `offsets` is not
/// 0; when it is full the walk ends. Results: the number of good records, and the offset behind the last of them.
///
/// With `copy`, the good records, one behind the other, are then written to another file: E2BIG, and nothing is
/// written, when they have more than PROGRAM_WRITE_MAX bytes; ENOSPC when the device has no room for that many. EBADF
/// when the handle was not opened for reading, or the target not for writing; EINVAL when `record` describes none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRecover {
    /// The log.
    pub h: Handle,
    /// Where its first record begins, bytes.
    pub offset: u64,
    /// Bytes to walk over at most.
    pub len: u64,
    /// How a record lies there.
    pub record: Record,
    /// Offsets to hand over at most.
    pub offsets: u32,
    /// A file, and where in it the good records go.
    pub copy: Option<(Handle, At)>,
}

impl Template for LogRecover {
    /// Whole records, and where the last of them ends, bytes.
    type Answer = (u64, u64);

    fn body(&self) -> Result<Body, Fault> {
        let mut b = Builder::new();
        let file = b.take(self.h, Access::READ);
        let (count, end) = (b.register(), b.register());
        let offsets = (self.offsets > 0).then(|| b.pool(self.offsets.saturating_mul(8)));
        b.push(Micro::Scan {
            file,
            off: Value::Imm(self.offset),
            len: Value::Imm(self.len),
            record: self.record,
            offsets,
            count: Some(count),
            end: Some(end),
            why: None,
        });
        if let Some((h, at)) = self.copy {
            let to = b.take(h, Access::WRITE);
            let len = b.register();
            let (a, by) = (Value::Reg(end), Value::Imm(self.offset));
            b.push(Micro::Arith { to: len, a, op: Arith::Sub, b: by });
            b.push(Micro::CopyRange {
                from: file,
                off: Value::Imm(self.offset),
                len: Value::Reg(len),
                max: PROGRAM_WRITE_MAX as u32,
                to,
                place: place(at)?,
                count: None,
            });
        }
        b.results(Some(count), Some(end));
        b.finish()
    }

    fn answer(results: (u64, u64)) -> Self::Answer {
        results
    }
}
