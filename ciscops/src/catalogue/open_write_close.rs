//! open_write_close: open or create a file, write one payload, close.

use super::{From, Micro, Program, opened_spot};
use crate::command::At;
use crate::{Handle, OpenFlags, PoolRange};

pub(super) fn expand(base: Handle, flags: OpenFlags, mode: u32, at: At, src: PoolRange) -> Program {
    Program::from_slice(&[
        Micro::Open { base, flags, mode },
        Micro::Write { spot: opened_spot(flags, at), from: From::Pool(src), sum: false },
        Micro::Close,
    ])
}
