//! The layout of a body: header, micro-ops, pool ranges, strings, data. No byte of it is without a meaning or a check.

use super::micro::Micro;
use super::operand::{Pool, Reg};
use super::verify::{Fault, Totals};
use super::wire::{self, NONE, Raw};
use super::{HEADER_BYTES, MICRO_BYTES, Program, VERSION};
use crate::limits::{
    MICRO_OPS_MAX, PROGRAM_BODY_MAX, PROGRAM_BUFFERS, PROGRAM_RANGES_MAX, PROGRAM_REGISTERS, PROGRAM_STRINGS_MAX,
};
use crate::{Errno, PoolRange};
use smallvec::SmallVec;

/// Bytes of an entry of the table of ranges.
pub(super) const RANGE_BYTES: usize = 8;
/// Bytes of an entry of the table of strings.
const STRING_BYTES: usize = 4;

const VERSION_AT: usize = 0;
const MICROS_AT: usize = 2;
const RANGES_AT: usize = 3;
const STRINGS_AT: usize = 4;
const RESULTS_AT: usize = 5;
const DATA_AT: usize = 8;
const CAPACITIES_AT: usize = 32;

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Where the table of ranges starts in the body of a program with so many micro-ops.
pub(super) fn ranges_at(micros: usize) -> usize {
    HEADER_BYTES + micros * MICRO_BYTES
}

/// The parts of a body, found by the counts of its header.
pub(super) struct Layout<'b> {
    body: &'b [u8],
    ranges_at: usize,
    strings_at: usize,
    data_at: usize,
}

impl<'b> Layout<'b> {
    /// Those of a body whose counts add up to its length.
    pub fn of(body: &'b [u8]) -> Result<Layout<'b>, Fault> {
        let short = Fault::whole(Errno::INVAL, "the body is shorter than a header");
        let head: &[u8; HEADER_BYTES] = body.first_chunk().ok_or(short)?;
        if body.len() > PROGRAM_BODY_MAX as usize {
            return Err(Fault::whole(Errno::TOOBIG, "the body is longer than a body may be"));
        }
        if u16_at(head, VERSION_AT) != VERSION {
            return Err(Fault::whole(Errno::OPNOTSUPP, "the body is of another version"));
        }
        let count = |at: usize| usize::from(head[at]);
        let (micros, ranges, strings) = (count(MICROS_AT), count(RANGES_AT), count(STRINGS_AT));
        if micros > MICRO_OPS_MAX || ranges > PROGRAM_RANGES_MAX || strings > PROGRAM_STRINGS_MAX {
            return Err(Fault::whole(Errno::TOOBIG, "more micro-ops, pool ranges or strings than a program may have"));
        }
        if micros == 0 {
            return Err(Fault::whole(Errno::INVAL, "a program without micro-ops"));
        }
        let ranges_at = ranges_at(micros);
        let strings_at = ranges_at + ranges * RANGE_BYTES;
        let data_at = strings_at + strings * STRING_BYTES;
        if data_at.checked_add(u32_at(head, DATA_AT) as usize) != Some(body.len()) {
            return Err(Fault::whole(Errno::INVAL, "the counts do not add up to the length of the body"));
        }
        Ok(Layout { body, ranges_at, strings_at, data_at })
    }

    pub fn micros(&self) -> impl Iterator<Item = &'b [u8; MICRO_BYTES]> {
        self.body[HEADER_BYTES..self.ranges_at].as_chunks().0.iter()
    }

    pub fn ranges(&self) -> impl Iterator<Item = &'b [u8; RANGE_BYTES]> {
        self.body[self.ranges_at..self.strings_at].as_chunks().0.iter()
    }

    pub fn strings(&self) -> impl Iterator<Item = &'b [u8; STRING_BYTES]> {
        self.body[self.strings_at..self.data_at].as_chunks().0.iter()
    }

    pub fn data(&self) -> &'b [u8] {
        &self.body[self.data_at..]
    }

    /// The strings and the data.
    pub fn tail(&self) -> &'b [u8] {
        &self.body[self.strings_at..]
    }
}

/// Whether two bodies have the same header and length, and so the same layout if any.
pub(super) fn are_alike(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.get(..HEADER_BYTES) == b.get(..HEADER_BYTES)
}

/// Believes the layout, and nothing else.
pub(super) fn decode(body: &[u8]) -> Result<Box<Program>, Fault> {
    let parts = Layout::of(body)?;
    let head = &body[..HEADER_BYTES];
    if head[RESULTS_AT + 2] != 0 || head[DATA_AT + 4..CAPACITIES_AT].iter().any(|b| *b != 0) {
        return Err(Fault::whole(Errno::INVAL, "a reserved byte of the header is not zero"));
    }
    let data = parts.data();
    let mut program = Box::new(Program {
        micros: SmallVec::new(),
        ranges: parts.ranges().map(range).collect(),
        strings: SmallVec::new(),
        data: data.into(),
        capacities: core::array::from_fn(|i| u32_at(head, CAPACITIES_AT + 4 * i)),
        results: [result(head[RESULTS_AT])?, result(head[RESULTS_AT + 1])?],
        totals: Totals::default(),
    });
    for bytes in parts.strings() {
        program.strings.push(string(bytes, data.len())?);
    }
    for (index, bytes) in parts.micros().enumerate() {
        program.micros.push(micro(index, bytes)?);
    }
    Ok(program)
}

/// An entry of the table of strings: where in the data it begins, and its length.
pub(super) fn string(entry: &[u8; STRING_BYTES], data_len: usize) -> Result<(u16, u16), Fault> {
    let (at, len) = (u16_at(entry, 0), u16_at(entry, 2));
    if usize::from(at) + usize::from(len) > data_len {
        return Err(Fault::whole(Errno::INVAL, "a string lies outside the data"));
    }
    Ok((at, len))
}

/// Micro-op `index`.
pub(super) fn micro(index: usize, bytes: &[u8; MICRO_BYTES]) -> Result<Micro, Fault> {
    let raw = Raw::from_bytes(bytes);
    let micro = wire::decode(&raw).map_err(|e| {
        let why = if e == Errno::NOSYS { "no such kind of micro-op" } else { "a field has no such value" };
        Fault::at(index, e, why)
    })?;
    if wire::encode(&micro) != raw {
        return Err(Fault::at(index, Errno::INVAL, "a field that its kind does not have is not zero"));
    }
    Ok(micro)
}

/// An entry of the table of ranges.
pub(super) fn range(entry: &[u8; RANGE_BYTES]) -> PoolRange {
    PoolRange::new(u32_at(entry, 0), u32_at(entry, 4))
}

fn result(v: u8) -> Result<Option<Reg>, Fault> {
    match v {
        NONE => Ok(None),
        r if usize::from(r) < PROGRAM_REGISTERS => Ok(Some(Reg(r))),
        _ => Err(Fault::whole(Errno::INVAL, "a result is no register")),
    }
}

/// The body of a program.
pub(super) fn encode(p: &Program) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    out[VERSION_AT..VERSION_AT + 2].copy_from_slice(&VERSION.to_le_bytes());
    out[MICROS_AT] = p.micros.len() as u8;
    out[RANGES_AT] = p.ranges.len() as u8;
    out[STRINGS_AT] = p.strings.len() as u8;
    for (i, r) in p.results.iter().enumerate() {
        out[RESULTS_AT + i] = r.map_or(NONE, |r| r.0);
    }
    out[DATA_AT..DATA_AT + 4].copy_from_slice(&(p.data.len() as u32).to_le_bytes());
    for (i, c) in p.capacities.iter().enumerate() {
        out[CAPACITIES_AT + 4 * i..CAPACITIES_AT + 4 * i + 4].copy_from_slice(&c.to_le_bytes());
    }
    p.micros.iter().for_each(|m| out.extend(wire::encode(m).to_bytes()));
    p.ranges.iter().for_each(|r| out.extend(range_bytes(*r)));
    for (at, len) in &p.strings {
        out.extend(at.to_le_bytes());
        out.extend(len.to_le_bytes());
    }
    out.extend_from_slice(&p.data);
    out
}

/// An entry of the table of ranges, as bytes.
pub(super) fn range_bytes(r: PoolRange) -> [u8; RANGE_BYTES] {
    (u64::from(r.off) | u64::from(r.len) << 32).to_le_bytes()
}

/// Where the entry of a range lies in a body.
pub(super) fn range_at(micros: usize, p: Pool) -> usize {
    ranges_at(micros) + usize::from(p.0) * RANGE_BYTES
}

const _: () = assert!(CAPACITIES_AT + 4 * PROGRAM_BUFFERS == HEADER_BYTES);
