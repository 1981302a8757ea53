//! Page-aligned buffers, as O_DIRECT wants them.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// A block: the unit of data, addresses and checksums, in bytes.
pub const BLOCK: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C, align(4096))]
struct Aligned([u8; BLOCK]);

/// A buffer whose address and length are multiples of 4096. Dereferences to its bytes.
#[derive(Clone)]
pub struct AlignedBuf {
    blocks: Vec<Aligned>,
}

impl AlignedBuf {
    /// `len` zeroed bytes; `len` is rounded up to whole blocks.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let n = len.div_ceil(BLOCK);
        let blocks = Aligned::new_vec_zeroed(n).unwrap_or_else(|_| panic!("out of memory: {n} blocks"));
        AlignedBuf { blocks }
    }

    /// A copy of `bytes`, zero-padded to whole blocks.
    pub fn from_slice(bytes: &[u8]) -> AlignedBuf {
        let mut b = AlignedBuf::zeroed(bytes.len());
        b[..bytes.len()].copy_from_slice(bytes);
        b
    }

    /// Number of whole blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }
}

impl core::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.blocks.as_slice().as_bytes()
    }
}

impl core::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.blocks.as_mut_slice().as_mut_bytes()
    }
}

impl core::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "AlignedBuf({} blocks)", self.blocks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_page_aligned_and_zero_padded() {
        let b = AlignedBuf::from_slice(&[7; 5000]);
        assert_eq!(b.len(), 8192);
        assert_eq!(b.as_ptr() as usize % BLOCK, 0);
        assert!(b[..5000].iter().all(|&x| x == 7) && b[5000..].iter().all(|&x| x == 0));
    }
}
