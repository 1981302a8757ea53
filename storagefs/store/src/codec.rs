//! Bytes in and out: variable-length integers (LEB128), length-prefixed byte strings, times. Shared by effects and tree
//! values. The reader is total: every method checks what is left.

use crate::record::Time;

/// Bytes that no writer produces; names what was being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("undecodable {0}")]
pub struct DecodeError(pub &'static str);

/// Appends encoded fields to a byte vector.
#[derive(Debug, Default)]
pub struct Writer {
    buf: Vec<u8>,
}

impl Writer {
    /// An empty writer with room for `n` bytes.
    pub fn with_capacity(n: usize) -> Writer {
        Writer { buf: Vec::with_capacity(n) }
    }

    /// Continues `buf`.
    pub fn over(buf: Vec<u8>) -> Writer {
        Writer { buf }
    }

    /// The bytes written.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.buf
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// One byte.
    pub fn u8(&mut self, v: u8) {
        self.buf.push(v);
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self, v: u32) {
        self.buf.extend_from_slice(&v.to_le_bytes());
    }

    /// Variable length, 1 to 10 bytes.
    pub fn var(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.buf.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.buf.push(v as u8);
    }

    /// Length, then the bytes.
    pub fn bytes(&mut self, b: &[u8]) {
        self.var(b.len() as u64);
        self.buf.extend_from_slice(b);
    }

    /// The bytes, without their length.
    pub fn raw(&mut self, b: &[u8]) {
        self.buf.extend_from_slice(b);
    }

    /// A time: seconds zigzag, nanoseconds.
    pub fn time(&mut self, t: Time) {
        let (z, n) = (((t.sec << 1) ^ (t.sec >> 63)) as u64, t.nsec.to_le_bytes());
        // Times from 1974 to 2514: the same five bytes as below, in one piece.
        if (1 << 28..1 << 35).contains(&z) {
            let b = |i: u32| (z >> (7 * i)) as u8 | 0x80;
            return self.raw(&[b(0), b(1), b(2), b(3), (z >> 28) as u8, n[0], n[1], n[2], n[3]]);
        }
        self.var(z);
        self.raw(&n);
    }
}

/// Takes encoded fields off a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `b`.
    pub fn new(b: &'a [u8]) -> Reader<'a> {
        Reader { rest: b }
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(DecodeError("short input"))?;
        self.rest = rest;
        Ok(head)
    }

    /// One byte.
    ///
    /// # Errors
    /// None is left.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    /// Four bytes, little-endian.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Variable length, at most 64 bits, shortest form only (one value has one encoding).
    ///
    /// # Errors
    /// Too long, too large, or cut off.
    pub fn var(&mut self) -> Result<u64, DecodeError> {
        let mut v = 0u64;
        for shift in (0..70).step_by(7) {
            let b = self.u8()?;
            if shift == 63 && b > 1 {
                return Err(DecodeError("integer: too large"));
            }
            v |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                if b == 0 && shift > 0 {
                    return Err(DecodeError("integer: not shortest"));
                }
                return Ok(v);
            }
        }
        Err(DecodeError("integer: too long"))
    }

    /// Variable length, at most 32 bits.
    ///
    /// # Errors
    /// As [`Reader::var`].
    pub fn var32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.var()?).map_err(|_| DecodeError("integer: above 32 bits"))
    }

    /// Variable length, at most 16 bits.
    ///
    /// # Errors
    /// As [`Reader::var`].
    pub fn var16(&mut self) -> Result<u16, DecodeError> {
        u16::try_from(self.var()?).map_err(|_| DecodeError("integer: above 16 bits"))
    }

    /// Length-prefixed bytes, at most `max`.
    ///
    /// # Errors
    /// Longer, or cut off.
    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8], DecodeError> {
        let n = self.var()?;
        if n > max as u64 {
            return Err(DecodeError("byte string: too long"));
        }
        self.take(n as usize)
    }

    /// A name: 1 to 255 bytes without NUL.
    ///
    /// # Errors
    /// Not a name.
    pub fn name(&mut self) -> Result<&'a [u8], DecodeError> {
        let b = self.bytes(255)?;
        if b.is_empty() || b.contains(&0) {
            return Err(DecodeError("name"));
        }
        Ok(b)
    }

    /// A time.
    ///
    /// # Errors
    /// Nanoseconds out of range, or cut off.
    pub fn time(&mut self) -> Result<Time, DecodeError> {
        let z = self.var()?;
        let nsec = self.u32()?;
        if nsec >= 1_000_000_000 {
            return Err(DecodeError("time: nanoseconds"));
        }
        Ok(Time { sec: (z >> 1) as i64 ^ -((z & 1) as i64), nsec })
    }

    /// The version byte.
    ///
    /// # Errors
    /// Another version than `known`.
    pub fn version(&mut self, known: u8) -> Result<(), DecodeError> {
        if self.u8()? == known { Ok(()) } else { Err(DecodeError("value of an unknown version")) }
    }

    /// That nothing is left.
    ///
    /// # Errors
    /// Bytes are left.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError("value: trailing bytes")) }
    }
}
