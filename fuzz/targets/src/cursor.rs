//! Takes numbers and bytes from the front of an input. At its end everything is zero and empty, so that a shorter input
//! is always a valid one.

/// See the module.
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most `n` bytes.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Exactly `N` bytes, zeros behind the end.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut all = [0; N];
        let taken = self.take(N);
        all[..taken.len()].copy_from_slice(taken);
        all
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// Two bytes, little-endian, as all numbers here.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// As many bytes as the next one says.
    pub fn short(&mut self) -> &'a [u8] {
        let n = self.u8();
        self.take(n.into())
    }

    /// As many bytes as the next two say.
    pub fn long(&mut self) -> &'a [u8] {
        let n = self.u16();
        self.take(n.into())
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }
}
