//! read_modify_append: read a record, change a field of it, append the new version: an update in a log.

use super::template::{FieldChange, Template};
use crate::program::{Body, Builder, Bytes, Fault, Micro, Place, To, Value};
use crate::{Access, Handle};

/// Reads a record, changes a field of the copy, appends the copy to a file (the same or another); the old record stays.
/// Pool ranges: what the change needs, of `field_len` bytes each. Results: where the new record begins, and its bytes.
///
/// ENODATA when the file ends within the record, ERANGE when the field is not inside it, ECANCELED when a
/// compare-and-swap finds something else; nothing is appended then. EBADF when `h` was not opened for reading or `to`
/// not for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModifyAppend {
    /// The file that is read.
    pub h: Handle,
    /// The file that is appended to.
    pub to: Handle,
    /// Where the record begins, bytes.
    pub offset: u64,
    /// Bytes of the record.
    pub len: u32,
    /// Where in the record the field begins, bytes.
    pub field: u32,
    /// Bytes of the field.
    pub field_len: u32,
    /// What happens to it.
    pub change: FieldChange,
}

impl Template for ModifyAppend {
    /// Where the new version went, and its length, bytes.
    type Answer = (u64, u64);

    fn body(&self) -> Result<Body, Fault> {
        let mut b = Builder::new();
        let from = b.take(self.h, Access::READ);
        let to = b.take(self.to, Access::WRITE);
        let (buf, count, at) = (b.buffer(self.len), b.register(), b.register());
        b.push(Micro::Read {
            file: from,
            off: Value::Imm(self.offset),
            len: Value::Imm(self.len.into()),
            to: To::Buffer(buf),
            whole: true,
            pad: false,
            fold: None,
            count: Some(count),
        });
        let change = self.change.operands(&mut b, self.field_len)?;
        b.push(Micro::Change { buf, off: Value::Imm(self.field.into()), change });
        let from = Bytes::Buffer(buf);
        b.push(Micro::Write { file: to, place: Place::End, from, fold: None, at: Some(at) });
        b.results(Some(at), Some(count));
        b.finish()
    }

    fn answer(results: (u64, u64)) -> Self::Answer {
        results
    }
}
