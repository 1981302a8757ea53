//! The layout of a body: header, micro-ops, pool ranges, strings, data. No byte of it is without a meaning or a check.

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

/// Believes the layout, and nothing else.
pub(super) fn decode(body: &[u8]) -> Result<Box<Program>, Fault> {
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
    let data_len = u32_at(head, DATA_AT) as usize;
    if data_at.checked_add(data_len) != Some(body.len()) {
        return Err(Fault::whole(Errno::INVAL, "the counts do not add up to the length of the body"));
    }
    if head[RESULTS_AT + 2] != 0 || head[DATA_AT + 4..CAPACITIES_AT].iter().any(|b| *b != 0) {
        return Err(Fault::whole(Errno::INVAL, "a reserved byte of the header is not zero"));
    }
    let mut program = Box::new(Program {
        micros: SmallVec::new(),
        ranges: body[ranges_at..strings_at].chunks_exact(RANGE_BYTES).map(decoded_range).collect(),
        strings: SmallVec::new(),
        data: body[data_at..].into(),
        capacities: core::array::from_fn(|i| u32_at(head, CAPACITIES_AT + 4 * i)),
        results: [result(head[RESULTS_AT])?, result(head[RESULTS_AT + 1])?],
        totals: Totals::default(),
    });
    for s in body[strings_at..data_at].chunks_exact(STRING_BYTES) {
        let (at, len) = (u16_at(s, 0), u16_at(s, 2));
        if usize::from(at) + usize::from(len) > data_len {
            return Err(Fault::whole(Errno::INVAL, "a string lies outside the data"));
        }
        program.strings.push((at, len));
    }
    for (index, bytes) in body[HEADER_BYTES..ranges_at].chunks_exact(MICRO_BYTES).enumerate() {
        let mut own = [0; MICRO_BYTES];
        own.copy_from_slice(bytes);
        let raw = Raw::from_bytes(&own);
        let micro = wire::decode(&raw).map_err(|e| {
            let why = if e == Errno::NOSYS { "no such kind of micro-op" } else { "a field has no such value" };
            Fault::at(index, e, why)
        })?;
        if wire::encode(&micro) != raw {
            return Err(Fault::at(index, Errno::INVAL, "a field that its kind does not have is not zero"));
        }
        program.micros.push(micro);
    }
    Ok(program)
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

/// What an entry of the table of ranges says.
pub(super) fn decoded_range(entry: &[u8]) -> PoolRange {
    PoolRange::new(u32_at(entry, 0), u32_at(entry, 4))
}

/// An entry of the table of ranges.
pub(super) fn range_bytes(r: PoolRange) -> [u8; RANGE_BYTES] {
    (u64::from(r.off) | u64::from(r.len) << 32).to_le_bytes()
}

/// Where the entry of a range lies in a body.
pub(super) fn range_at(micros: usize, p: Pool) -> usize {
    ranges_at(micros) + usize::from(p.0) * RANGE_BYTES
}

const _: () = assert!(CAPACITIES_AT + 4 * PROGRAM_BUFFERS == HEADER_BYTES);
