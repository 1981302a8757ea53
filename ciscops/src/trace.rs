//! A trace as it travels from the device to whoever asked: a head, facts as JSON text, then one fixed record per slice.
//!
//! All integers little-endian. The text is padded with spaces to a multiple of 64 bytes, so that records lie aligned.

use crate::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Magic of a recording: "WELDTRAC".
pub const TRACE_MAGIC: u64 = u64::from_le_bytes(*b"WELDTRAC");
/// Version of the layout.
pub const TRACE_VERSION: u32 = 1;
/// Slices that one recording may hold, at most: 64 bytes each.
pub const TRACE_EVENTS_MAX: u32 = 1 << 20;

/// Why a slice ended ([`Slice::end`]).
pub mod slice_end {
    /// The command ended.
    pub const DONE: u8 = 0;
    /// The command waits for something: tickets, memory, room, a medium, a moment.
    pub const WAITS: u8 = 1;
    /// Preempted at a boundary: the quantum was over and another command was runnable.
    pub const PREEMPTED: u8 = 2;
    /// Handed itself to the policy before it went on, because others were runnable.
    pub const YIELDED: u8 = 3;
}

/// Bits of [`Slice::flags`].
pub mod slice_flag {
    /// Picked in the place of another tenant that waits for its tickets.
    pub const BOOSTED: u8 = 1;
    /// Its time was corrected by thread CPU time.
    pub const CORRECTED: u8 = 2;
    /// Ran uncontended: past the run queue, uncharged.
    pub const UNCONTENDED: u8 = 4;
}

/// One slice of one command on one device core, 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slice {
    /// Begin, nanoseconds of the device's clock.
    pub start_ns: u64,
    /// End, nanoseconds of the device's clock; never before `start_ns`.
    pub end_ns: u64,
    /// Device time charged for it, nanoseconds; 0 when nothing waited.
    pub cost_ns: u64,
    /// Session the command came from.
    pub session: u64,
    /// The command's primary inode; 0 before it is known.
    pub inode: u64,
    /// Tenant it was charged to.
    pub tenant: u32,
    /// The device-wide slot of the command.
    pub slot: u32,
    /// Runnable commands waiting when the slice ended.
    pub runnable: u32,
    /// The command's opcode.
    pub opcode: u16,
    /// Micro-ops of a fused command begun when the slice ended, from 1; 0: not a fused command.
    pub micro: u16,
    /// Device core. Set by the recorder.
    pub core: u16,
    /// Why it ended: `slice_end`.
    pub end: u8,
    /// `slice_flag` bits.
    pub flags: u8,
    /// Zero.
    pub reserved: u32,
}

/// Head of a recording, 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    magic: u64,
    version: u32,
    text_bytes: u32,
    records: u64,
    reserved: [u64; 5],
}

const UNIT: usize = size_of::<Slice>();
const _: () = assert!(UNIT == 64 && size_of::<Head>() == UNIT);

/// A recording's bytes: facts as JSON text, then the slices.
pub fn encode(facts: &str, slices: &[Slice]) -> Vec<u8> {
    let text_bytes = facts.len().next_multiple_of(UNIT);
    let head = Head {
        magic: TRACE_MAGIC,
        version: TRACE_VERSION,
        text_bytes: text_bytes as u32,
        records: slices.len() as u64,
        reserved: [0; 5],
    };
    let mut out = Vec::with_capacity(UNIT + text_bytes + size_of_val(slices));
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(facts.as_bytes());
    out.resize(UNIT + text_bytes, b' ');
    out.extend_from_slice(slices.as_bytes());
    out
}

/// Facts (trailing spaces included) and slices of a recording. EPROTO when the bytes are none, EOPNOTSUPP when they
/// are of another version.
pub fn decode(bytes: &[u8]) -> Result<(&str, Vec<Slice>), Errno> {
    let (head, rest) = Head::read_from_prefix(bytes).map_err(|_| Errno::PROTO)?;
    if head.magic != TRACE_MAGIC {
        return Err(Errno::PROTO);
    }
    if head.version != TRACE_VERSION {
        return Err(Errno::OPNOTSUPP);
    }
    let (text, records) = rest.split_at_checked(head.text_bytes as usize).ok_or(Errno::PROTO)?;
    let (chunks, odd) = records.as_chunks::<UNIT>();
    if !odd.is_empty() || chunks.len() as u64 != head.records {
        return Err(Errno::PROTO);
    }
    let slices =
        chunks.iter().map(|c| Slice::read_from_bytes(c).map_err(|_| Errno::PROTO)).collect::<Result<_, _>>()?;
    Ok((std::str::from_utf8(text).map_err(|_| Errno::PROTO)?, slices))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_comes_back_as_it_was() {
        let slices = [Slice { start_ns: 5, end_ns: 9, opcode: 3, ..Slice::default() }, Slice::default()];
        for text in ["", "{}", &"x".repeat(64), &"y".repeat(65)] {
            let bytes = encode(text, &slices);
            let (facts, back) = decode(&bytes).unwrap();
            assert_eq!((facts.trim_end(), &back[..]), (text, &slices[..]));
        }
    }

    #[test]
    fn bytes_that_are_no_recording_are_refused() {
        let good = encode("{}", &[Slice::default()]);
        for cut in 0..good.len() {
            assert_eq!(decode(&good[..cut]), Err(Errno::PROTO), "cut at {cut}");
        }
        let longer = [&good[..], &[0; 64]].concat();
        assert_eq!(decode(&longer), Err(Errno::PROTO));
        let mut lying = good.clone();
        lying[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(&lying), Err(Errno::PROTO));
        let mut newer = good;
        newer[8] = 2;
        assert_eq!(decode(&newer), Err(Errno::OPNOTSUPP));
    }
}
