//! Names of things that both sides speak about.

use core::fmt;

/// Number of an inode; never reused within one image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct InodeNo(pub u64);

impl InodeNo {
    /// The root directory.
    pub const ROOT: InodeNo = InodeNo(1);
}

impl fmt::Display for InodeNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An open file description as one session names it: index into the session's table, plus the generation that tells
/// a stale name from a live one. On the wire it is one u64: `generation << 32 | index`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Handle {
    /// Slot in the session's handle table.
    pub index: u32,
    /// Counts the uses of the slot.
    pub generation: u32,
}

impl Handle {
    /// The root directory: always valid, cannot be closed.
    pub const ROOT: Handle = Handle { index: 0, generation: 0 };

    /// The wire form.
    #[inline]
    pub const fn to_wire(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// From the wire form; any value is a well-formed handle, whether it names anything is the session's business.
    #[inline]
    pub const fn from_wire(wire: u64) -> Handle {
        Handle { index: wire as u32, generation: (wire >> 32) as u32 }
    }
}
