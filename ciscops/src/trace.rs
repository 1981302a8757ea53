//! A trace as it travels from the device to whoever asked: a head, facts as JSON text, then one fixed record per slice
//! of a core, then one per span of an FPGA slot.
//!
//! All integers little-endian. The text is padded with spaces to a multiple of 64 bytes, so that records lie aligned.

use crate::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Magic of a recording: "WELDTRAC".
pub const TRACE_MAGIC: u64 = u64::from_le_bytes(*b"WELDTRAC");
/// Version of the layout.
pub const TRACE_VERSION: u32 = 2;
/// Slices and spans of slots that one recording may hold, at most.
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

/// What a span of a slot is ([`SlotSpan::kind`]).
pub mod slot_kind {
    /// A session had the slot, from being given it to giving it back. The counts are those of all of it.
    pub const SESSION: u8 = 0;
    /// The kernel took one step of a session's packet on the slot's own thread: a part of that session's counts.
    pub const STEP: u8 = 1;
    /// Another kernel was loaded: modelled time.
    pub const LOAD: u8 = 2;
}

/// Bits of [`SlotSpan::flags`].
pub mod slot_flag {
    /// The kernel failed, or was lost.
    pub const FAILED: u8 = 1;
    /// The session's slot was given to another that waited.
    pub const TAKEN: u8 = 2;
}

/// Something that went on in an FPGA slot, 88 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SlotSpan {
    /// Begin, nanoseconds of the device's clock.
    pub start_ns: u64,
    /// End, nanoseconds of the device's clock; never before `start_ns`.
    pub end_ns: u64,
    /// Slot time, nanoseconds: cycles over the clock, or what loading takes. Modelled, never this machine's time.
    pub slot_ns: u64,
    /// Clock cycles.
    pub cycles: u64,
    /// Bytes that the kernel took.
    pub bytes_in: u64,
    /// Bytes that it made.
    pub bytes_out: u64,
    /// The session's number, which no other one of the card has; 0: loading.
    pub session: u64,
    /// Of a session: how long it had waited for a slot, nanoseconds.
    pub waited_ns: u64,
    /// Of a session: how long its input waited for a credit, nanoseconds.
    pub credit_wait_ns: u64,
    /// The tenant that is charged.
    pub tenant: u32,
    /// The kernel: an index into the facts' names.
    pub kernel: u16,
    /// The slot.
    pub slot: u16,
    /// `slot_kind`.
    pub kind: u8,
    /// `slot_flag` bits.
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 6],
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
    /// The device-wide slot of the command; `u32::MAX` for one that was over where it was taken, in none.
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
    spans: u64,
    reserved: [u64; 4],
}

const UNIT: usize = size_of::<Slice>();
const _: () = assert!(UNIT == 64 && size_of::<Head>() == UNIT && size_of::<SlotSpan>() == 88);

/// A recording's bytes: facts as JSON text, then the slices, then the spans.
pub fn encode(facts: &str, slices: &[Slice], spans: &[SlotSpan]) -> Vec<u8> {
    let text_bytes = facts.len().next_multiple_of(UNIT);
    let head = Head {
        magic: TRACE_MAGIC,
        version: TRACE_VERSION,
        text_bytes: text_bytes as u32,
        records: slices.len() as u64,
        spans: spans.len() as u64,
        reserved: [0; 4],
    };
    let mut out = Vec::with_capacity(UNIT + text_bytes + size_of_val(slices) + size_of_val(spans));
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(facts.as_bytes());
    out.resize(UNIT + text_bytes, b' ');
    out.extend_from_slice(slices.as_bytes());
    out.extend_from_slice(spans.as_bytes());
    out
}

/// What [`decode`] finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded<'a> {
    /// The facts, trailing spaces included.
    pub facts: &'a str,
    /// Slices of cores.
    pub slices: Vec<Slice>,
    /// Spans of slots.
    pub spans: Vec<SlotSpan>,
}

/// The parts of a recording. EPROTO when the bytes are none, EOPNOTSUPP when they are of another version.
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, Errno> {
    let (head, rest) = Head::read_from_prefix(bytes).map_err(|_| Errno::PROTO)?;
    if head.magic != TRACE_MAGIC {
        return Err(Errno::PROTO);
    }
    if head.version != TRACE_VERSION {
        return Err(Errno::OPNOTSUPP);
    }
    let (text, records) = rest.split_at_checked(head.text_bytes as usize).ok_or(Errno::PROTO)?;
    let lies = |_| Errno::PROTO;
    let split = usize::try_from(head.records).ok().and_then(|n| n.checked_mul(UNIT)).ok_or(Errno::PROTO)?;
    let (slices, spans) = records.split_at_checked(split).ok_or(Errno::PROTO)?;
    let (spans, odd) = spans.as_chunks::<{ size_of::<SlotSpan>() }>();
    if !odd.is_empty() || spans.len() as u64 != head.spans {
        return Err(Errno::PROTO);
    }
    let slices = slices.as_chunks::<UNIT>().0.iter().map(|c| Slice::read_from_bytes(c).map_err(|_| Errno::PROTO));
    let spans = spans.iter().map(|c| SlotSpan::read_from_bytes(c).map_err(|_| Errno::PROTO));
    Ok(Decoded {
        facts: std::str::from_utf8(text).map_err(lies)?,
        slices: slices.collect::<Result<_, _>>()?,
        spans: spans.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_comes_back_as_it_was() {
        let slices = [Slice { start_ns: 5, end_ns: 9, opcode: 3, ..Slice::default() }, Slice::default()];
        let spans = [SlotSpan { start_ns: 6, cycles: 7, kernel: 1, slot: 2, ..SlotSpan::default() }];
        for text in ["", "{}", &"x".repeat(64), &"y".repeat(65)] {
            for spans in [&spans[..], &[]] {
                let bytes = encode(text, &slices, spans);
                let back = decode(&bytes).unwrap();
                assert_eq!((back.facts.trim_end(), &back.slices[..], &back.spans[..]), (text, &slices[..], spans));
            }
        }
    }

    #[test]
    fn bytes_that_are_no_recording_are_refused() {
        let good = encode("{}", &[Slice::default()], &[SlotSpan::default()]);
        for cut in 0..good.len() {
            assert_eq!(decode(&good[..cut]), Err(Errno::PROTO), "cut at {cut}");
        }
        let longer = [&good[..], &[0; 64]].concat();
        assert_eq!(decode(&longer), Err(Errno::PROTO));
        let mut lying = good.clone();
        lying[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(&lying), Err(Errno::PROTO));
        // As many slices as fit into no memory; one more, and one span fewer.
        for records in [u64::MAX, u64::MAX / 64 + 2, 2] {
            let mut lying = good.clone();
            lying[16..24].copy_from_slice(&records.to_le_bytes());
            lying[24..32].copy_from_slice(&1_u64.wrapping_sub(records - 1).to_le_bytes());
            assert_eq!(decode(&lying), Err(Errno::PROTO), "{records}");
        }
        let mut newer = good;
        newer[8] = 3;
        assert_eq!(decode(&newer), Err(Errno::OPNOTSUPP));
    }
}
