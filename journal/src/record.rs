//! The record header: the 64 bytes every record starts with.

use crate::Lsn;
use crate::limits::RECORD_HEADER_BYTES;
use weldfs_functions::ChecksumState;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// Fills the end of a lap; payload is neither read nor covered by the checksum.
    Pad = 1,
    /// Carries a watermark and nothing else.
    Watermark = 2,
    /// A whole operation.
    Op = 3,
    /// Begin of a transaction of several records.
    Begin = 4,
    /// A micro-op of such a transaction.
    Micro = 5,
    /// End of such a transaction.
    End = 6,
}

impl RecordKind {
    const fn from_byte(b: u8) -> Option<RecordKind> {
        Some(match b {
            1 => RecordKind::Pad,
            2 => RecordKind::Watermark,
            3 => RecordKind::Op,
            4 => RecordKind::Begin,
            5 => RecordKind::Micro,
            6 => RecordKind::End,
            _ => return None,
        })
    }

    /// Whether the journal writes it by itself and `scan` keeps it to itself.
    pub(crate) const fn is_internal(self) -> bool {
        matches!(self, RecordKind::Pad | RecordKind::Watermark)
    }
}

/// How the operation commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum TxnMode {
    /// All or nothing.
    #[default]
    Macro = 1,
    /// Each micro-op by itself.
    Micro = 2,
}

/// What the owner says about a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// Kind; not an internal one.
    pub kind: RecordKind,
    /// Transaction mode.
    pub mode: TxnMode,
    /// Which micro-op of its transaction, from 0.
    pub micro_index: u16,
    /// Transaction; 0 for "by itself".
    pub txn: u64,
}

impl RecordHead {
    /// A whole operation in one record.
    pub const fn op() -> RecordHead {
        RecordHead { kind: RecordKind::Op, mode: TxnMode::Macro, micro_index: 0, txn: 0 }
    }
}

/// The header as it lies on the medium, little-endian.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub salt: U64,
    pub crc: U32,
    pub length: U32,
    pub lsn: U64,
    pub kind: u8,
    pub mode: u8,
    pub micro_index: U16,
    pub reserved0: U32,
    pub txn: U64,
    pub watermark: U64,
    pub reserved1: [u8; 16],
}

const _: () = assert!(size_of::<RawHeader>() == RECORD_HEADER_BYTES);

/// A header that was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// What the owner said.
    pub head: RecordHead,
    /// Position.
    pub lsn: Lsn,
    /// Payload bytes.
    pub length: u32,
    /// Durable watermark when it was written.
    pub watermark: Lsn,
}

impl RawHeader {
    /// A header without its checksum.
    pub(crate) fn new(salt: u64, head: &RecordHead, lsn: Lsn, length: u32, watermark: Lsn) -> RawHeader {
        RawHeader {
            salt: U64::new(salt),
            crc: U32::ZERO,
            length: U32::new(length),
            lsn: U64::new(lsn.0),
            kind: head.kind as u8,
            mode: head.mode as u8,
            micro_index: U16::new(head.micro_index),
            reserved0: U32::ZERO,
            txn: U64::new(head.txn),
            watermark: U64::new(watermark.0),
            reserved1: [0; 16],
        }
    }

    /// The checksum: CRC-32C of the payload followed by the header with a zero in the checksum's place, so that the
    /// payload's part can be computed before the position is known.
    pub(crate) fn checksum(&self, payload: &ChecksumState) -> u32 {
        let mut zeroed = *self;
        zeroed.crc = U32::ZERO;
        let mut sum = *payload;
        sum.update(zeroed.as_bytes());
        sum.value()
    }

    /// Whether it looks like a record of this salt that starts at this position; cheap, decides nothing.
    pub(crate) fn claims(&self, salt: u64) -> bool {
        self.salt.get() == salt && salt != 0
    }

    /// 1 for a pad, which alone may be longer than the bound of records.
    pub(crate) fn is_pad(&self) -> u64 {
        u64::from(self.kind == RecordKind::Pad as u8)
    }

    /// Bytes of payload that the checksum covers.
    pub(crate) fn covered(&self) -> u32 {
        if self.kind == RecordKind::Pad as u8 { 0 } else { self.length.get() }
    }

    /// The header as checked, once the checksum was found right; `None` for values this version does not write.
    pub(crate) fn validate(&self) -> Option<RecordHeader> {
        let kind = RecordKind::from_byte(self.kind)?;
        let mode = match self.mode {
            1 => TxnMode::Macro,
            2 => TxnMode::Micro,
            _ => return None,
        };
        if self.reserved0.get() != 0 || self.reserved1 != [0; 16] || self.watermark.get() > self.lsn.get() {
            return None;
        }
        let head = RecordHead { kind, mode, micro_index: self.micro_index.get(), txn: self.txn.get() };
        let (lsn, watermark) = (Lsn(self.lsn.get()), Lsn(self.watermark.get()));
        Some(RecordHeader { head, lsn, length: self.length.get(), watermark })
    }
}
