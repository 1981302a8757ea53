//! Positions: in the log, and on the medium.

use std::fmt;

/// Position in the log: a byte offset in the endless stream of all laps. 0 means "none"; a fresh image starts at the log's
/// length, so that no record ever has LSN 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn(pub u64);

/// Address of a 4 KiB block: 16 bits of device (0 for now), 48 bits of block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockNo(pub u64);

/// Bytes of a block.
pub const BLOCK: usize = 4096;

impl Lsn {
    /// No position.
    pub const NONE: Lsn = Lsn(0);
}

impl BlockNo {
    /// Byte offset on the medium.
    pub const fn byte(self) -> u64 {
        self.0 * BLOCK as u64
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for BlockNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}
