//! One record's header, as the table in the section "Log" says.

use crate::fields::Fields;
use serde::Serialize;

/// Bytes of a header.
pub(crate) const HEADER: u64 = 64;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Fills the end of a lap.
    Pad,
    /// Carries a watermark.
    Watermark,
    /// A whole operation.
    Operation,
    /// Begin of a transaction.
    Begin,
    /// A micro-op of one.
    Micro,
    /// End of one.
    End,
}

impl Kind {
    fn from_byte(b: u8) -> Option<Kind> {
        [Kind::Pad, Kind::Watermark, Kind::Operation, Kind::Begin, Kind::Micro, Kind::End]
            .get(usize::from(b).checked_sub(1)?)
            .copied()
    }
}

/// A header whose checksum was right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Header {
    /// Position in the log stream.
    pub lsn: u64,
    /// What the record is.
    pub kind: Kind,
    /// "macro" (all or nothing) or "micro" (each micro-op by itself).
    pub mode: &'static str,
    /// Which micro-op of its transaction.
    pub micro_index: u16,
    /// Transaction, 0 for a record by itself.
    pub transaction: u64,
    /// Durable watermark when it was appended.
    pub watermark: u64,
    /// Bytes of payload.
    pub length: u32,
}

/// The 64 bytes, taken apart, nothing believed.
#[derive(Debug)]
pub(crate) struct Raw {
    pub salt: u64,
    pub crc: u32,
    pub length: u32,
    pub lsn: u64,
    pub kind: u8,
    mode: u8,
    micro_index: u16,
    reserved: u32,
    transaction: u64,
    watermark: u64,
    tail: [u8; 16],
}

impl Raw {
    /// `None` when the bytes are fewer than a header.
    pub(crate) fn read(bytes: &[u8]) -> Option<Raw> {
        let mut f = Fields(bytes);
        let read = |f: &mut Fields<'_>| {
            Ok::<_, crate::Bad>(Raw {
                salt: f.u64()?,
                crc: f.u32()?,
                length: f.u32()?,
                lsn: f.u64()?,
                kind: f.u8()?,
                mode: f.u8()?,
                micro_index: f.u16()?,
                reserved: f.u32()?,
                transaction: f.u64()?,
                watermark: f.u64()?,
                tail: f.id()?,
            })
        };
        read(&mut f).ok()
    }

    pub(crate) fn is_pad(&self) -> bool {
        self.kind == 1
    }

    /// Bytes of payload that are stored and covered by the checksum.
    pub(crate) fn stored(&self) -> u64 {
        if self.is_pad() { 0 } else { self.length.into() }
    }

    /// The checksum over the payload, given as `sum`, and the header with zeros in the checksum's place.
    pub(crate) fn checksum(&self, sum: u32, bytes: &[u8]) -> u32 {
        let mut header = bytes.to_vec();
        header[8..12].fill(0);
        crc32c::crc32c_append(sum, &header)
    }

    /// What it says, when every field is one that is written today.
    pub(crate) fn validate(&self) -> Option<Header> {
        let kind = Kind::from_byte(self.kind)?;
        let mode = match self.mode {
            1 => "macro",
            2 => "micro",
            _ => return None,
        };
        if self.reserved != 0 || self.tail != [0; 16] || self.watermark > self.lsn {
            return None;
        }
        Some(Header {
            lsn: self.lsn,
            kind,
            mode,
            micro_index: self.micro_index,
            transaction: self.transaction,
            watermark: self.watermark,
            length: self.length,
        })
    }
}
