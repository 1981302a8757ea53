//! read_checksum_verify: read a payload and the trailer behind it, compare; with no room given, no payload byte
//! crosses the link.

use super::template::{SUM_BYTES, Summing, Template};
use super::{Micro, Program, Span, To};
use crate::program::{self, Body, Builder, Cond, Else, Fault, Fold, Relation, Value};
use crate::{Access, ChecksumKind, Errno, Handle, PoolRange};

pub(super) fn expand(h: Handle, kind: ChecksumKind, offset: u64, len: u32, out: PoolRange) -> Program {
    let ChecksumKind::Crc32c = kind;
    let to = if out.is_empty() { To::Discard } else { To::Pool(out) };
    Program::from_slice(&[
        Micro::Use { h, need: Access::READ },
        Micro::Read { span: Span { off: offset, len, whole: true }, to, sum: true },
        Micro::Read { span: Span { off: offset + len as u64, len: 4, whole: true }, to: To::Scratch, sum: false },
        Micro::Verify,
    ])
}

/// Reads a payload and the checksum beside it, and compares. Pool ranges: room for the payload, if `show`. Results: the
/// bytes of the payload, and its checksum.
///
/// EBADMSG when they differ (the payload is handed over all the same), ENODATA when the file ends within the record,
/// EBADF when the handle was not opened for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerifyChecksum {
    /// The file.
    pub h: Handle,
    /// Where the record begins, bytes: at its checksum if that is the header, else at its payload.
    pub offset: u64,
    /// Bytes of the payload.
    pub len: u32,
    /// Which checksum, and how it lies there.
    pub sum: Summing,
    /// Whether the client wants the payload, and not only the verdict.
    pub show: bool,
}

impl Template for VerifyChecksum {
    /// Bytes of payload, and their checksum.
    type Answer = (u64, u32);

    fn body(&self) -> Result<Body, Fault> {
        let (payload_at, sum_at) = self.sum.places(self.offset, self.len)?;
        let mut b = Builder::new();
        let file = b.take(self.h, Access::READ);
        let to = if self.show { program::To::Pool(b.pool(self.len)) } else { program::To::Nowhere };
        let (count, got, stored) = (b.register(), b.register(), b.register());
        b.push(program::Micro::Read {
            file,
            off: Value::Imm(payload_at),
            len: Value::Imm(self.len.into()),
            to,
            whole: true,
            pad: false,
            fold: Some(Fold { kind: self.sum.kind, to: got }),
            count: Some(count),
        });
        let buf = b.buffer(SUM_BYTES);
        b.push(program::Micro::Read {
            file,
            off: Value::Imm(sum_at),
            len: Value::Imm(SUM_BYTES.into()),
            to: program::To::Buffer(buf),
            whole: true,
            pad: false,
            fold: None,
            count: None,
        });
        b.push(program::Micro::Load { to: stored, buf, off: Value::Imm(0), int: self.sum.int() });
        b.guard(Cond::Compare(Value::Reg(got), Relation::Eq, Value::Reg(stored)), Else::Fail(Errno::BADMSG));
        b.results(Some(count), Some(got));
        b.finish()
    }

    fn answer((len, sum): (u64, u64)) -> Self::Answer {
        (len, sum as u32)
    }
}
