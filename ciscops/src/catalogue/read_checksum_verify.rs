//! read_checksum_verify: read a payload and the trailer behind it, compare; with no room given, no payload byte
//! crosses the link.

use super::{Micro, Program, Span, To};
use crate::{Access, ChecksumKind, Handle, PoolRange};

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
