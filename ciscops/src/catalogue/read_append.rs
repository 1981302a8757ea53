//! read_append: read a range and append a payload; no other client gets in between.

use super::template::Template;
use crate::program::{Arith, Body, Builder, Bytes, Fault, Micro, Place, To, Value};
use crate::{Access, Handle};

/// Which bytes a [`ReadAppend`] reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadFrom {
    /// From this byte.
    Offset(u64),
    /// The last ones before the append.
    Tail,
}

/// Reads up to `read` bytes of a file as it is, then appends the payload. Pool ranges: the payload; room for what is
/// read. Results: the bytes read (fewer only where the file ends), and the offset of the payload: also the size
/// before.
///
/// EBADF when the handle was not opened for both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadAppend {
    /// The file.
    pub h: Handle,
    /// What is read.
    pub from: ReadFrom,
    /// At most so many bytes.
    pub read: u32,
    /// Bytes of the payload.
    pub len: u32,
}

impl Template for ReadAppend {
    /// Bytes read, and where the payload went in the file, bytes.
    type Answer = (u64, u64);

    fn body(&self) -> Result<Body, Fault> {
        let mut b = Builder::new();
        let file = b.take(self.h, Access::READ | Access::WRITE);
        let payload = b.pool(self.len);
        let room = b.pool(self.read);
        let (count, at) = (b.register(), b.register());
        let read = |off, len| Micro::Read {
            file,
            off,
            len,
            to: To::Pool(room),
            whole: false,
            pad: false,
            fold: None,
            count: Some(count),
        };
        match self.from {
            ReadFrom::Offset(off) => b.push(read(Value::Imm(off), Value::Imm(self.read.into()))),
            ReadFrom::Tail => {
                b.push(Micro::Size { file, to: at });
                let (a, most) = (Value::Reg(at), Value::Imm(self.read.into()));
                b.push(Micro::Arith { to: count, a, op: Arith::Min, b: most });
                b.push(Micro::Arith { to: at, a, op: Arith::Sub, b: Value::Reg(count) });
                b.push(read(Value::Reg(at), Value::Reg(count)))
            }
        };
        let from = Bytes::Pool(payload);
        b.push(Micro::Write { file, place: Place::End, from, fold: None, at: Some(at) });
        b.results(Some(count), Some(at));
        b.finish()
    }

    fn answer(results: (u64, u64)) -> Self::Answer {
        results
    }
}
