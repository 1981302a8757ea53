//! append_checksum_write: append a payload and, right behind it, the checksum of the bytes that were stored.

use super::{From, Micro, Program, Spot};
use crate::command::At;
use crate::{Access, ChecksumKind, Handle, PoolRange};

pub(super) fn expand(h: Handle, kind: ChecksumKind, src: PoolRange) -> Program {
    let ChecksumKind::Crc32c = kind;
    Program::from_slice(&[
        Micro::Use { h, need: Access::WRITE },
        Micro::Write { spot: Spot::At(At::End), from: From::Pool(src), sum: true },
        Micro::Write { spot: Spot::AfterWrite, from: From::Sum, sum: false },
    ])
}
