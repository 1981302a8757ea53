//! read_decrypt: read ciphertext and hand over the plaintext.

use super::encrypt_write::{Cipher, unit_at};
use super::template::{Template, fault};
use crate::program::{Arith, Body, Builder, Fault, Micro, Reg, To, Transform, Value};
use crate::{Access, Errno, Handle};

/// Reads what [`EncryptWrite`](super::EncryptWrite) wrote. Pool ranges: room for the plaintext. Results: the bytes of
/// plaintext.
///
/// Units: any bytes from any offset, fewer only where the file ends; the device reads and decrypts the units around
/// them, ATOMIC_WRITE_MAX bytes at most (E2BIG). Bytes that were changed come out as others: XTS does not tell. EINVAL
/// when the file's last unit has less than 16 bytes. A record: all of it; EBADMSG when it was changed or the key is
/// another, ENODATA when the file ends within it. ENOKEY, EBADF and EOPNOTSUPP as there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadDecrypt {
    /// The file.
    pub h: Handle,
    /// Units: the first byte wanted. A record: where it begins.
    pub offset: u64,
    /// Bytes of plaintext.
    pub len: u32,
    /// How it was encrypted.
    pub cipher: Cipher,
}

impl Template for ReadDecrypt {
    /// Bytes of plaintext.
    type Answer = u64;

    fn body(&self) -> Result<Body, Fault> {
        match self.cipher {
            Cipher::Units { key, unit } => self.units(key, unit),
            Cipher::Record { key } => self.record(key),
        }
    }

    fn answer((first, _): (u64, u64)) -> Self::Answer {
        first
    }
}

impl ReadDecrypt {
    fn units(&self, key: u64, unit: u32) -> Result<Body, Fault> {
        unit_at(unit, 0)?;
        let skip = self.offset % u64::from(unit);
        let (unit_log, first) = unit_at(unit, self.offset - skip)?;
        let around = (skip + u64::from(self.len)).next_multiple_of(unit.into());
        let around = u32::try_from(around).map_err(|_| fault(Errno::TOOBIG, "more than a payload may have"))?;
        let mut b = Builder::new();
        let file = b.take(self.h, Access::READ);
        let to = b.pool(self.len);
        let (ciphertext, buf) = (b.buffer(around), b.buffer(around));
        let (count, start, given) = (b.register(), b.register(), b.register());
        b.push(Micro::Read {
            file,
            off: Value::Imm(self.offset - skip),
            len: Value::Imm(around.into()),
            to: To::Buffer(ciphertext),
            whole: false,
            pad: false,
            fold: None,
            count: Some(count),
        });
        let how = Transform::DecryptUnits { key, unit_log, first: Value::Imm(first) };
        b.push(Micro::Transform { buf, from: ciphertext, how });
        // What was wanted of what there is: from `start`, `count` bytes.
        let arith = |to: Reg, op, by: Value| Micro::Arith { to, a: Value::Reg(count), op, b: by };
        b.push(arith(start, Arith::Min, Value::Imm(skip)));
        b.push(arith(count, Arith::Sub, Value::Reg(start)));
        b.push(arith(count, Arith::Min, Value::Imm(self.len.into())));
        b.push(Micro::Slice { buf, from: buf, off: Value::Reg(start), len: Value::Reg(count) });
        b.push(Micro::Give { buf, to, count: Some(given) });
        b.results(Some(given), None);
        b.finish()
    }

    fn record(&self, key: u64) -> Result<Body, Fault> {
        let stored = u32::try_from(self.cipher.stored(self.len));
        let stored = stored.map_err(|_| fault(Errno::TOOBIG, "more than a payload may have"))?;
        let mut b = Builder::new();
        let file = b.take(self.h, Access::READ);
        let to = b.pool(self.len);
        let (record, plain, count) = (b.buffer(stored), b.buffer(self.len), b.register());
        b.push(Micro::Read {
            file,
            off: Value::Imm(self.offset),
            len: Value::Imm(stored.into()),
            to: To::Buffer(record),
            whole: true,
            pad: false,
            fold: None,
            count: None,
        });
        b.push(Micro::Transform { buf: plain, from: record, how: Transform::Open { key, bound: None } });
        b.push(Micro::Give { buf: plain, to, count: Some(count) });
        b.results(Some(count), None);
        b.finish()
    }
}
