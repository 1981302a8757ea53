//! append_checksum_write: append a payload and, right behind it, the checksum of the bytes that were stored.

use super::template::{SumPlace, Summing, Template};
use super::{From, Micro, Program, Spot};
use crate::command::At;
use crate::program::{self, Body, Builder, Bytes, Fault, Fold, Place};
use crate::{Access, ChecksumKind, Handle, PoolRange};

pub(super) fn expand(h: Handle, kind: ChecksumKind, src: PoolRange) -> Program {
    let ChecksumKind::Crc32c = kind;
    Program::from_slice(&[
        Micro::Use { h, need: Access::WRITE },
        Micro::Write { spot: Spot::At(At::End), from: From::Pool(src), sum: true },
        Micro::Write { spot: Spot::AfterWrite, from: From::Sum, sum: false },
    ])
}

/// Appends a payload with its checksum, in any of the forms. Pool ranges: the payload. Results: the offset of the
/// record (of the checksum if it is the header, else of the payload), and the checksum.
///
/// The checksum is that of the bytes that are stored, whatever the client does to the payload meanwhile: a header,
/// which must be known before its payload, is taken from a private copy. EBADF when the handle was not opened for
/// writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendChecksum {
    /// The file.
    pub h: Handle,
    /// Bytes of the payload, at most ATOMIC_WRITE_MAX.
    pub len: u32,
    /// Which checksum, and how it lies there.
    pub sum: Summing,
}

impl Template for AppendChecksum {
    /// Where the record begins in the file, bytes, and its checksum.
    type Answer = (u64, u32);

    fn body(&self) -> Result<Body, Fault> {
        record(self.h, Place::End, self.len, self.sum)
    }

    fn answer((offset, sum): (u64, u64)) -> Self::Answer {
        (offset, sum as u32)
    }
}

/// A payload of the pool and its checksum as one record at `place`.
pub(super) fn record(h: Handle, place: Place, len: u32, sum: Summing) -> Result<Body, Fault> {
    let mut b = Builder::new();
    let file = b.take(h, Access::WRITE);
    let payload = Bytes::Pool(b.pool(len));
    let (at, value) = (b.register(), b.register());
    let fold = Some(Fold { kind: sum.kind, to: value });
    let trailer = Bytes::Int(value, sum.int());
    match sum.place {
        SumPlace::Trailer => {
            b.push(program::Micro::Write { file, place, from: payload, fold, at: Some(at) });
            b.push(program::Micro::Write { file, place: Place::After, from: trailer, fold: None, at: None });
        }
        SumPlace::Header => {
            let copy = b.buffer(len);
            b.push(program::Micro::Fill { buf: copy, from: payload, append: false });
            b.push(program::Micro::Checksum { kind: sum.kind, of: Bytes::Buffer(copy), to: value });
            b.push(program::Micro::Write { file, place, from: trailer, fold: None, at: Some(at) });
            let from = Bytes::Buffer(copy);
            b.push(program::Micro::Write { file, place: Place::After, from, fold: None, at: None });
        }
    }
    b.results(Some(at), Some(value));
    b.finish()
}
