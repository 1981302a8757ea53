//! Integers, strings and times out of bytes, as the section "Conventions" says. Total: each checks what is left.

use serde::{Serialize, Serializer};
use std::fmt;

/// Bytes that the format does not allow; says what was being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("no valid {0}")]
pub struct Bad(pub &'static str);

/// A name or a target: bytes that are usually text. Shown with escapes where they are not.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Name(pub Vec<u8>);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in self.0.utf8_chunks() {
            piece.valid().chars().try_for_each(|c| match c {
                '\\' => f.write_str("\\\\"),
                c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c)),
                c => write!(f, "{c}"),
            })?;
            piece.invalid().iter().try_for_each(|b| write!(f, "\\x{b:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Bytes of a user's file: shown by length, checksum and their first few.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Data(pub Vec<u8>);

/// Bytes of a [`Data`] that are shown.
const SHOWN: usize = 32;

impl Data {
    fn head(&self) -> String {
        self.0.iter().take(SHOWN).map(|b| format!("{b:02x}")).collect()
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.0.len() > SHOWN { "..." } else { "" };
        write!(f, "{} bytes {}{more}", self.0.len(), self.head())
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = s.serialize_struct("Data", 3)?;
        out.serialize_field("bytes", &self.0.len())?;
        out.serialize_field("crc32c", &crc32c::crc32c(&self.0))?;
        out.serialize_field("head", &self.head())?;
        out.end()
    }
}

/// Takes fields off a byte slice.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], Bad> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Bad("payload: it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Bad> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Bad> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Bad> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Bad> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn id(&mut self) -> Result<[u8; 16], Bad> {
        self.array()
    }

    /// LEB128, lowest seven bits first, in its shortest form.
    pub(crate) fn var(&mut self) -> Result<u64, Bad> {
        let mut value = 0u64;
        for place in 0..10 {
            let byte = self.u8()?;
            if place == 9 && byte > 1 {
                return Err(Bad("integer: above 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                let shortest = byte != 0 || place == 0;
                return if shortest { Ok(value) } else { Err(Bad("integer: not in its shortest form")) };
            }
        }
        Err(Bad("integer: longer than 10 bytes"))
    }

    pub(crate) fn var32(&mut self) -> Result<u32, Bad> {
        u32::try_from(self.var()?).map_err(|_| Bad("integer: above 32 bits"))
    }

    pub(crate) fn var16(&mut self) -> Result<u16, Bad> {
        u16::try_from(self.var()?).map_err(|_| Bad("integer: above 16 bits"))
    }

    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Bad> {
        let n = usize::try_from(self.var()?).ok().filter(|n| *n <= max).ok_or(Bad("byte string: too long"))?;
        self.take(n)
    }

    /// 1 to 255 bytes, none of them zero.
    pub(crate) fn name(&mut self) -> Result<Name, Bad> {
        let bytes = self.bytes(255)?;
        let is_name = !bytes.is_empty() && !bytes.contains(&0);
        if is_name { Ok(Name(bytes.to_vec())) } else { Err(Bad("name")) }
    }

    /// Seconds, zigzag, and nanoseconds.
    pub(crate) fn time(&mut self) -> Result<(i64, u32), Bad> {
        let zigzag = self.var()?;
        let nanoseconds = self.u32()?;
        if nanoseconds >= 1_000_000_000 {
            return Err(Bad("time: nanoseconds"));
        }
        let magnitude = (zigzag >> 1) as i64;
        Ok((if zigzag & 1 == 0 { magnitude } else { !magnitude }, nanoseconds))
    }

    pub(crate) fn version(&mut self) -> Result<(), Bad> {
        if self.u8()? == 1 { Ok(()) } else { Err(Bad("version of a payload")) }
    }

    pub(crate) fn end(&self) -> Result<(), Bad> {
        if self.is_empty() { Ok(()) } else { Err(Bad("payload: bytes are left over")) }
    }
}
