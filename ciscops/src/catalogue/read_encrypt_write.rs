//! read_encrypt_write: encrypt what lies in a file into another file, or in its place; no byte of it leaves the device.

use super::encrypt_write::Cipher;
use super::template::Template;
use crate::program::{Body, Builder, Bytes, Fault, Micro, To, Value};
use crate::{Access, At, Handle};

/// Reads plaintext, encrypts it, writes the ciphertext. No pool ranges. Results: the bytes of plaintext, fewer than
/// `len` only where the source ends; and the offset of the ciphertext.
///
/// In place with units, where source and target are one range of one file. Errors as of
/// [`EncryptWrite`](super::EncryptWrite), those of short last units included; EINVAL, and nothing is written, when the
/// source ends such that the last unit has less than 16 bytes; EBADF when `from` was not opened for reading or `to` not
/// for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadEncryptWrite {
    /// The source.
    pub from: Handle,
    /// Its first byte.
    pub offset: u64,
    /// Bytes at most, up to ATOMIC_WRITE_MAX.
    pub len: u32,
    /// The target.
    pub to: Handle,
    /// Where in the target.
    pub at: At,
    /// How.
    pub cipher: Cipher,
}

impl Template for ReadEncryptWrite {
    /// Bytes read, and where they went in the file, bytes.
    type Answer = (u64, u64);

    fn body(&self) -> Result<Body, Fault> {
        let (how, place) = self.cipher.encryption(self.at)?;
        let mut b = Builder::new();
        let from = b.take(self.from, Access::READ);
        let to = b.take(self.to, Access::WRITE);
        let plain = b.buffer(self.len);
        let buf = self.cipher.room(&mut b, self.len);
        let count = b.read(from, Value::Imm(self.offset), Value::Imm(self.len.into()), To::Buffer(plain));
        self.cipher.guard(&mut b, to, self.at, Value::Reg(count));
        b.push(Micro::Transform { buf, from: plain, how });
        let at = b.write(to, place, Bytes::Buffer(buf));
        b.results(Some(count), Some(at));
        b.finish()
    }

    fn answer(results: (u64, u64)) -> Self::Answer {
        results
    }
}
