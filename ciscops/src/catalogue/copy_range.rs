//! copy_range: bytes from one file to another, or to another place of the same, without leaving the device.

use super::template::{Template, place};
use crate::program::{Body, Builder, Fault, Micro, Value};
use crate::{Access, At, Handle};

/// Copies up to `len` bytes. No pool ranges. Results: the bytes copied, fewer only where the source ends.
///
/// Holes arrive as zeros. EINVAL when the two ranges are of one file and meet; E2BIG above PROGRAM_WRITE_MAX; EBADF
/// when `from` was not opened for reading or `to` not for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRange {
    /// The source.
    pub from: Handle,
    /// Its first byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The target.
    pub to: Handle,
    /// Where in the target: an offset or the end (`Current` is EINVAL).
    pub at: At,
}

impl Template for CopyRange {
    /// Bytes copied.
    type Answer = u64;

    fn body(&self) -> Result<Body, Fault> {
        let place = place(self.at)?;
        let mut b = Builder::new();
        let from = b.take(self.from, Access::READ);
        let to = b.take(self.to, Access::WRITE);
        let count = b.register();
        let (off, len) = (Value::Imm(self.offset), Value::Imm(self.len));
        b.push(Micro::CopyRange { from, off, len, max: 0, to, place, count: Some(count) });
        b.results(Some(count), None);
        b.finish()
    }

    fn answer((first, _): (u64, u64)) -> Self::Answer {
        first
    }
}
