//! encrypt_write: encrypt a payload in the device and write the ciphertext.

use super::template::{Template, fault, place};
use crate::program::{Body, BufSlot, Builder, Bytes, Fault, Micro, Place, Transform, Value};
use crate::{Access, At, Errno, Handle};

/// Bytes by which a sealed record is longer than its plaintext: nonce and tag.
pub const RECORD_OVERHEAD: u32 = 28;
/// Bytes of the shortest data unit.
pub const UNIT_TAIL_MIN: u32 = 16;

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

/// Encrypts the payload and writes the ciphertext. Pool ranges: the payload. Results: its offset.
///
/// The plaintext is never on the medium, nor the key in a command. Units: EINVAL unless `at` is an offset that is a
/// multiple of the unit, and unless the last unit is whole or has 16 bytes at least; a unit that was there is replaced
/// as a whole. Not for handles opened with APPEND. ENOKEY when the session has no such key, EINVAL when it is for the
/// other cipher, EBADF when the handle was not opened for writing, EOPNOTSUPP by a device without ciphers.
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
        b.push(Micro::Fill { buf: plain, from, append: false });
        b.push(Micro::Transform { buf, from: plain, how });
        let at = b.write(file, place, Bytes::Buffer(buf));
        b.results(Some(at), None);
        b.finish()
    }
}
