//! read_modify_write: read a field, change it, write it back in place.

use super::{From, Micro, Program, Span, Spot, To};
use crate::command::{At, Modify};
use crate::{Access, Handle, PoolRange};

pub(super) fn expand(h: Handle, offset: u64, len: u32, modify: Modify, out: PoolRange) -> Program {
    Program::from_slice(&[
        Micro::Use { h, need: Access::READ | Access::WRITE },
        Micro::Read { span: Span { off: offset, len, whole: false }, to: To::Scratch, sum: false },
        Micro::Change { modify, old: out },
        Micro::Write { spot: Spot::At(At::Offset(offset)), from: From::Scratch, sum: false },
    ])
}
