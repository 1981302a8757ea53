//! encrypt_write: encrypt a payload in the device and write the ciphertext.

use super::template::{Template, fault, place};
use crate::program::{
    Arith, Body, BufSlot, Builder, Bytes, Cond, Else, Fault, FileSlot, Micro, Place, Relation, Transform, Value,
};
use crate::{Access, At, Errno, Handle};
use weldfs_functions::lengths;

/// Bytes by which a sealed record is longer than its plaintext: nonce and tag.
pub const RECORD_OVERHEAD: u32 = lengths::RECORD_OVERHEAD as u32;
/// Bytes of the shortest data unit.
pub const UNIT_TAIL_MIN: u32 = lengths::UNIT_TAIL_MIN as u32;

/// How bytes are encrypted. Keys are named by the handle that the session got for them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cipher {
    /// AES-XTS by data units: ciphertext lies where the plaintext would, and the file's size is the plaintext's. The
    /// number of a unit is its offset in the file divided by `unit`.
    Units {
        /// The key, an XTS one.
        key: u64,
        /// Bytes of a unit: 512, 1024, 2048 or 4096.
        unit: u32,
    },
    /// AES-GCM, one record of nonce (12 bytes, drawn by the device at random), ciphertext, and tag (16 bytes).
    Record {
        /// The key, a GCM one.
        key: u64,
    },
}

impl Cipher {
    /// Bytes in the file for `len` bytes of plaintext.
    pub const fn stored(self, len: u32) -> u64 {
        match self {
            Cipher::Units { .. } => len as u64,
            Cipher::Record { .. } => len as u64 + RECORD_OVERHEAD as u64,
        }
    }

    /// A buffer for what `len` bytes of plaintext become.
    pub(super) fn room(self, b: &mut Builder, len: u32) -> BufSlot {
        b.buffer(u32::try_from(self.stored(len)).unwrap_or(u32::MAX))
    }

    /// The transform that encrypts for `at`, and where it is written.
    pub(super) fn encryption(self, at: At) -> Result<(Transform, Place), Fault> {
        let how = match self {
            Cipher::Record { key } => Transform::Seal { key, bound: None },
            Cipher::Units { key, unit } => {
                let At::Offset(off) = at else {
                    return Err(fault(Errno::INVAL, "data units lie at an offset"));
                };
                let (unit_log, first) = unit_at(unit, off)?;
                Transform::EncryptUnits { key, unit_log, first: Value::Imm(first) }
            }
        };
        Ok((how, place(at)?))
    }
}

/// log2 of a unit, and the number of the one that begins at `off`.
pub(super) fn unit_at(unit: u32, off: u64) -> Result<(u8, u64), Fault> {
    if !unit.is_power_of_two() || !(512..=4096).contains(&unit) {
        return Err(fault(Errno::INVAL, "a data unit has 512, 1024, 2048 or 4096 bytes"));
    }
    if !off.is_multiple_of(u64::from(unit)) {
        return Err(fault(Errno::INVAL, "data units begin at multiples of their length"));
    }
    Ok((unit.trailing_zeros() as u8, off / u64::from(unit)))
}

/// Whether data units of `len` bytes in all may go to `off` in a file of `size` bytes, such that every unit of the file
/// can be read afterwards: EINVAL when a short last unit would lie within the file, in front of what is left of the
/// unit that it replaces, or when the file ends in a short unit before `off`, which zeros would then fill up.
pub fn units_fit(size: u64, off: u64, len: u64, unit: u32) -> Result<(), Errno> {
    let short = !len.is_multiple_of(unit.into()) && off.saturating_add(len) < size;
    let behind = size < off && !size.is_multiple_of(unit.into());
    if short || behind { Err(Errno::INVAL) } else { Ok(()) }
}

impl Cipher {
    /// The same as micro-ops: nothing is written that does not fit. No micro-ops for records.
    pub(super) fn guard(self, b: &mut Builder, file: FileSlot, at: At, len: Value) {
        let (Cipher::Units { unit, .. }, At::Offset(off)) = (self, at) else { return };
        let (size, tail) = (b.register(), b.register());
        let (mask, refused) = (Value::Imm(u64::from(unit) - 1), Else::Fail(Errno::INVAL));
        b.push(Micro::Size { file, to: size });
        match len {
            Value::Imm(len) if len.is_multiple_of(unit.into()) => {}
            Value::Imm(len) => {
                let end = Value::Imm(off.saturating_add(len));
                b.guard(Cond::Compare(Value::Reg(size), Relation::Le, end), refused);
            }
            Value::Reg(_) => {
                let end = b.register();
                b.push(Micro::Arith { to: tail, a: len, op: Arith::And, b: mask });
                b.push(Micro::Arith { to: end, a: len, op: Arith::Add, b: Value::Imm(off) });
                b.guard(Cond::Compare(Value::Reg(tail), Relation::Ne, Value::Imm(0)), Else::Skip(1));
                b.guard(Cond::Compare(Value::Reg(size), Relation::Le, Value::Reg(end)), refused);
            }
        }
        if off > 0 {
            b.guard(Cond::Compare(Value::Reg(size), Relation::Lt, Value::Imm(off)), Else::Skip(2));
            b.push(Micro::Arith { to: tail, a: Value::Reg(size), op: Arith::And, b: mask });
            b.guard(Cond::Compare(Value::Reg(tail), Relation::Eq, Value::Imm(0)), refused);
        }
    }
}

/// Encrypts the payload and writes the ciphertext. Pool ranges: the payload. Results: its offset.
///
/// The plaintext is never on the medium, nor the key in a command. Units: EINVAL unless `at` is an offset that is a
/// multiple of the unit, and unless the last unit is whole or has 16 bytes at least. A short one is the end of its
/// file: EINVAL, and nothing is written, when the file goes on behind it, or when it ends in a short unit before `at`
/// ([`units_fit`]). Holes read as what zeros decrypt to. Not for handles opened with APPEND. ENOKEY when the session
/// has no such key, EINVAL when it is for the other cipher, EBADF when the handle was not opened for writing,
/// EOPNOTSUPP by a device without ciphers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncryptWrite {
    /// The file.
    pub h: Handle,
    /// Where the ciphertext goes; a record may also go to the end.
    pub at: At,
    /// Bytes of the payload.
    pub len: u32,
    /// How.
    pub cipher: Cipher,
}

impl Template for EncryptWrite {
    /// Where it went in the file, bytes.
    type Answer = u64;

    fn body(&self) -> Result<Body, Fault> {
        let (how, place) = self.cipher.encryption(self.at)?;
        if let Cipher::Units { unit, .. } = self.cipher
            && (1..UNIT_TAIL_MIN).contains(&(self.len % unit))
        {
            return Err(fault(Errno::INVAL, "the last data unit has less than 16 bytes"));
        }
        let mut b = Builder::new();
        let file = b.take(self.h, Access::WRITE);
        let from = Bytes::Pool(b.pool(self.len));
        let plain = b.buffer(self.len);
        let buf = self.cipher.room(&mut b, self.len);
        self.cipher.guard(&mut b, file, self.at, Value::Imm(self.len.into()));
        b.push(Micro::Fill { buf: plain, from, append: false });
        b.push(Micro::Transform { buf, from: plain, how });
        let at = b.write(file, place, Bytes::Buffer(buf));
        b.results(Some(at), None);
        b.finish()
    }

    fn answer((first, _): (u64, u64)) -> Self::Answer {
        first
    }
}
