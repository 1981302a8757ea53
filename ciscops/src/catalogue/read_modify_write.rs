//! read_modify_write: read a field, change it, write it back in place.

use super::template::{FieldChange, Template, int};
use super::{From, Micro, Program, Span, Spot, To};
use crate::command::{At, Modify};
use crate::program::{self, Body, Builder, Bytes, Fault, Place, Value};
use crate::{Access, Handle, PoolRange};

pub(super) fn expand(h: Handle, offset: u64, len: u32, modify: Modify, out: PoolRange) -> Program {
    Program::from_slice(&[
        Micro::Use { h, need: Access::READ | Access::WRITE },
        Micro::Read { span: Span { off: offset, len, whole: false }, to: To::Scratch, sum: false },
        Micro::Change { modify, old: out },
        Micro::Write { spot: Spot::At(At::Offset(offset)), from: From::Scratch, sum: false },
    ])
}

/// Reads a field, changes it in any of the ways, writes it back; bytes past the end of the file count as zeros, and the
/// file then grows. Pool ranges: what the change needs, then room for the old bytes, if `show`. Results: the bytes that
/// were there; of an addition the number that the field held before, else 0.
///
/// ECANCELED when a compare-and-swap finds something else: nothing is written, and the old bytes are handed over all
/// the same. EBADF when the handle was not opened for both. In a file opened with APPEND the field goes to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModifyField {
    /// The file.
    pub h: Handle,
    /// Where the field begins, bytes.
    pub offset: u64,
    /// Bytes of the field.
    pub len: u32,
    /// What happens to it.
    pub change: FieldChange,
    /// Whether the client wants the bytes that were there.
    pub show: bool,
}

impl Template for ModifyField {
    /// Bytes that were there, and the number that the field held (of an addition).
    type Answer = (u64, u64);

    fn body(&self) -> Result<Body, Fault> {
        let mut b = Builder::new();
        let file = b.take(self.h, Access::READ | Access::WRITE);
        let (buf, count) = (b.buffer(self.len), b.register());
        b.push(program::Micro::Read {
            file,
            off: Value::Imm(self.offset),
            len: Value::Imm(self.len.into()),
            to: program::To::Buffer(buf),
            whole: false,
            pad: true,
            fold: None,
            count: Some(count),
        });
        let change = self.change.operands(&mut b, self.len)?;
        if self.show {
            let to = b.pool(self.len);
            b.push(program::Micro::Give { buf, to, count: None });
        }
        let mut before = None;
        if let FieldChange::Add(order, _) = self.change {
            let to = b.register();
            b.push(program::Micro::Load { to, buf, off: Value::Imm(0), int: int(order, self.len)? });
            before = Some(to);
        }
        b.push(program::Micro::Change { buf, off: Value::Imm(0), change });
        let (place, from) = (Place::At(Value::Imm(self.offset)), Bytes::Buffer(buf));
        b.push(program::Micro::Write { file, place, from, fold: None, at: None });
        b.results(Some(count), before);
        b.finish()
    }

    fn answer(results: (u64, u64)) -> Self::Answer {
        results
    }
}
