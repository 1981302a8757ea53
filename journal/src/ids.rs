//! Positions: in the log's stream and on the medium.

use core::fmt;

/// Position in the log stream, in bytes: the start of a record. Orders everything; 0 means "none" (a fresh image's
/// first record has the LSN `log.len`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// No position.
    pub const NONE: Lsn = Lsn(0);
    /// Above every position.
    pub const MAX: Lsn = Lsn(u64::MAX);
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lsn({})", self.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Address of a 4 KiB block: device in the upper 16 bits, block number on it in the lower 48.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockNo(pub u64);

impl BlockNo {
    /// Mask of the block number.
    pub(crate) const BLOCK_MASK: u64 = (1 << 48) - 1;

    /// From its parts; `block` is cut to 48 bits.
    pub const fn new(device: u16, block: u64) -> BlockNo {
        BlockNo((device as u64) << 48 | (block & Self::BLOCK_MASK))
    }

    /// The device.
    pub const fn device(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The block's number on its device.
    pub const fn block(self) -> u64 {
        self.0 & Self::BLOCK_MASK
    }

    /// Byte offset of the block on its device.
    pub const fn byte(self) -> u64 {
        self.block() * 4096
    }
}

impl fmt::Debug for BlockNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockNo({}:{})", self.device(), self.block())
    }
}

impl fmt::Display for BlockNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device(), self.block())
    }
}
