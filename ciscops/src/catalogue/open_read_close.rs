//! open_read_close: open a file, read one range, close.

use super::{Micro, Program, Span, To};
use crate::{Handle, OpenFlags, PoolRange};

pub(super) fn expand(base: Handle, flags: OpenFlags, offset: u64, out: PoolRange) -> Program {
    Program::from_slice(&[
        Micro::Open { base, flags, mode: 0 },
        Micro::Read { span: Span { off: offset, len: out.len, whole: false }, to: To::Pool(out), sum: false },
        Micro::Close,
    ])
}
