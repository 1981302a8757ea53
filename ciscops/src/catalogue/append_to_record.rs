//! append_to_record: a record of fixed room with a length in front grows by a payload, in place.

use super::template::{Template, fault, int};
use crate::program::{Arith, Body, Builder, Bytes, Cond, Else, Fault, Micro, Order, Place, Relation, To, Value};
use crate::{Access, Errno, Handle};

/// Reads the length of a record, writes the payload behind its content, writes the new length. Pool ranges: the
/// payload. Results: the length before, and after, bytes.
///
/// A length that lies past the end of the file counts as zero, so that a record may begin as a hole. EFBIG when the
/// content would outgrow `room` (nothing is written), EBADF when the handle was not opened for both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendToRecord {
    /// The file, not opened with APPEND.
    pub h: Handle,
    /// Where the record's length lies, bytes; its content is right behind.
    pub offset: u64,
    /// Bytes of the length: 1, 2, 4 or 8.
    pub width: u32,
    /// Byte order of the length.
    pub order: Order,
    /// Bytes of content that the record has room for.
    pub room: u64,
    /// Bytes of the payload.
    pub len: u32,
}

impl Template for AppendToRecord {
    /// Its length before and after, bytes.
    type Answer = (u64, u64);

    fn body(&self) -> Result<Body, Fault> {
        let length = int(self.order, self.width)?;
        let most = if self.width == 8 { u64::MAX } else { (1 << (8 * self.width)) - 1 };
        let free = self.room.checked_sub(self.len.into()).ok_or(fault(Errno::FBIG, "more than the record may hold"))?;
        let content = self.offset.checked_add(self.width.into());
        let content = content.ok_or(fault(Errno::FBIG, "the record ends past any file"))?;
        if self.room > most {
            return Err(fault(Errno::INVAL, "the length cannot say how much the record may hold"));
        }
        let mut b = Builder::new();
        let file = b.take(self.h, Access::READ | Access::WRITE);
        let payload = b.pool(self.len);
        let buf = b.buffer(self.width);
        let (before, after, at) = (b.register(), b.register(), b.register());
        b.push(Micro::Read {
            file,
            off: Value::Imm(self.offset),
            len: Value::Imm(self.width.into()),
            to: To::Buffer(buf),
            whole: false,
            pad: true,
            fold: None,
            count: None,
        });
        b.push(Micro::Load { to: before, buf, off: Value::Imm(0), int: length });
        // What lies in the file is not believed: a length near the largest number must not wrap.
        b.guard(Cond::Compare(Value::Reg(before), Relation::Le, Value::Imm(free)), Else::Fail(Errno::FBIG));
        let add = |to, by| Micro::Arith { to, a: Value::Reg(before), op: Arith::Add, b: Value::Imm(by) };
        b.push(add(after, self.len.into()));
        b.push(add(at, content));
        let place = Place::At(Value::Reg(at));
        b.push(Micro::Write { file, place, from: Bytes::Pool(payload), fold: None, at: None });
        let (place, from) = (Place::At(Value::Imm(self.offset)), Bytes::Int(after, length));
        b.push(Micro::Write { file, place, from, fold: None, at: None });
        b.results(Some(before), Some(after));
        b.finish()
    }

    fn answer(results: (u64, u64)) -> Self::Answer {
        results
    }
}
