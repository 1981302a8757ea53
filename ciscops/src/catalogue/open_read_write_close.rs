//! open_read_write_close: open or create a file, read one range of the old content, write one payload, close. The
//! old content and the new write are one atomic step.

use super::{From, Micro, Program, Span, To, opened_spot};
use crate::command::At;
use crate::{Handle, OpenFlags, PoolRange};

pub(super) fn expand(
    base: Handle,
    flags: OpenFlags,
    mode: u32,
    (read_off, out): (u64, PoolRange),
    (at, src): (At, PoolRange),
) -> Program {
    Program::from_slice(&[
        Micro::Open { base, flags, mode },
        Micro::Read { span: Span { off: read_off, len: out.len, whole: false }, to: To::Pool(out), sum: false },
        Micro::Write { spot: opened_spot(flags, at), from: From::Pool(src), sum: false },
        Micro::Close,
    ])
}
