//! The two queue entries and the bits of their flags word. Bytes only: what they mean is `command` and `codec`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[cfg(not(target_endian = "little"))]
compile_error!("the wire is little-endian and used in place");

/// Submission queue entry, 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sqe {
    /// Which operation: `Opcode`.
    pub opcode: u16,
    /// `flags` bits.
    pub flags: u16,
    /// Small operands of the op: open flags, modes, kinds.
    pub aux: u32,
    /// Chosen by the client, echoed in the CQE.
    pub sequence: u64,
    /// `Handle` in wire form.
    pub handle: u64,
    /// File offset, size, or cookie.
    pub offset: u64,
    /// Bytes of pool range A.
    pub length: u32,
    /// Start of pool range A.
    pub pool_off: u32,
    /// Start of pool range B.
    pub pool_off2: u32,
    /// Bytes of pool range B.
    pub length2: u32,
    /// Immediate operands.
    pub imm: [u8; 16],
}

/// Completion queue entry, 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cqe {
    /// The sequence of the SQE answered.
    pub sequence: u64,
    /// 0, or a positive errno.
    pub status: i32,
    /// Micro-ops whose effects stand.
    pub micro_done: u16,
    /// 0, or 1 + the index of the micro-op that failed.
    pub micro_failed: u16,
    /// First result, per op.
    pub result: u64,
    /// Second result, per op.
    pub result2: u64,
}

impl Sqe {
    /// Bytes of one entry.
    pub const SIZE: usize = 64;

    /// As eight little-endian words, the unit in which rings copy and the decoder masks.
    #[inline]
    pub fn to_words(&self) -> [u64; 8] {
        zerocopy::transmute!(*self)
    }

    /// From eight words.
    #[inline]
    pub fn from_words(words: [u64; 8]) -> Sqe {
        zerocopy::transmute!(words)
    }
}

impl Cqe {
    /// Bytes of one entry.
    pub const SIZE: usize = 32;

    /// As four little-endian words.
    #[inline]
    pub fn to_words(&self) -> [u64; 4] {
        zerocopy::transmute!(*self)
    }

    /// From four words.
    #[inline]
    pub fn from_words(words: [u64; 4]) -> Cqe {
        zerocopy::transmute!(words)
    }

    /// `Ok` with the two results, or the errno.
    #[inline]
    pub fn ok(&self) -> Result<(u64, u64), crate::Errno> {
        if self.status == 0 { Ok((self.result, self.result2)) } else { Err(crate::Errno(self.status)) }
    }
}

/// Bits of `Sqe::flags`.
pub mod flags {
    /// Bits 0-1: durability. 0 the device's default, 1 volatile, 2 durable; 3 is EINVAL.
    pub const DURABILITY_SHIFT: u16 = 0;
    /// Durability: volatile.
    pub const VOLATILE: u16 = 1;
    /// Durability: durable.
    pub const DURABLE: u16 = 2;
    /// Bits 2-3: transaction mode. 0 default (per op), 1 MacroTx, 2 MicroTx; 3 is EINVAL.
    pub const MODE_SHIFT: u16 = 2;
    /// Bits 4-5: placement. 0 auto, 1 device, 2 host, 3 slot.
    pub const PLACEMENT_SHIFT: u16 = 4;
    /// Bit 6: the completion waits until what the command read is durable.
    pub const AFTER_DURABLE: u16 = 1 << 6;
    /// Bit 7: posted: the client goes on without the answer; of an open: it asks for the write lease that this needs.
    pub const POSTED: u16 = 1 << 7;
    /// Bit 8: detectable execution, the outcome is kept for `Opcode::Outcome`. EINVAL with what has no transaction.
    pub const DETECTABLE: u16 = 1 << 8;
    /// Bit 9: with placement 3, a core may do what no slot can, or what a slot has lost. EINVAL with any other
    /// placement.
    pub const OR_CORE: u16 = 1 << 9;
    /// Bits 10-14: hints, as [`Hints::to_wire`](crate::Hints::to_wire) has them. EINVAL with what none has.
    pub const HINTS_SHIFT: u16 = 10;
    /// Bits of hints.
    pub const HINTS: u16 = 0x1f << HINTS_SHIFT;
    /// Every bit that has a meaning.
    pub const ALL: u16 = 0x7fff;
}

/// An SQE as copied out of the ring: private bytes, not yet believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RawCommand(pub Sqe);
