//! The payload of a micro-op's commit.

use super::{Input, VERSION};
use crate::codec::{DecodeError, Reader, Writer};
use crate::effect::{self, EFFECTS_MAX, Effect, Effects};
use weldfs_ciscops::limits::FILE_OFFSET_MAX;
use weldfs_ciscops::{ChecksumState, Registers, Written};

/// What one micro-op changed, and the registers after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// What flows on.
    pub regs: Registers,
    /// What changed; `Effect::Input` stands for an input's effects.
    pub effects: Effects,
}

/// What one micro-op changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which micro-op.
    pub index: u16,
    /// Its commit.
    pub commit: Commit,
}

const CREATED: u8 = 1;
const WROTE: u8 = 2;

impl Commit {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(128);
        self.encode_into(&mut w);
        w.into_vec()
    }

    /// Appends the payload to `w`.
    pub(crate) fn encode_into(&self, w: &mut Writer) {
        w.u8(VERSION);
        encode_registers(&self.regs, w);
        effect::encode_into(&self.effects, w);
    }

    /// Reads a payload back.
    ///
    /// # Errors
    /// Bytes that no writer produces.
    pub fn decode(bytes: &[u8]) -> Result<Commit, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError("commit of an unknown version"));
        }
        let regs = decode_registers(&mut r)?;
        let effects = effect::decode_commit(r.take(r.remaining())?)?;
        Ok(Commit { regs, effects })
    }
}

/// The list that is applied: every input that is adopted replaced by its effects. A bit per input says which were.
///
/// # Errors
/// An input that the transaction does not have, adopted twice, or of another file.
pub fn expand(effects: Effects, inputs: &[Input]) -> Result<(Effects, u16), DecodeError> {
    let mut adopted = 0u16;
    let mut out = Effects::with_capacity(effects.len() + 4);
    for e in effects {
        let Effect::Input { ino, input } = e else {
            out.push(e);
            continue;
        };
        let bit = 1u16.checked_shl(input.into()).ok_or(DecodeError("commit: input"))?;
        let found = inputs.get(usize::from(input)).filter(|_| adopted & bit == 0);
        let found = found.ok_or(DecodeError("commit: input"))?;
        // An input is of one file; a planned group is named by that of its first effect.
        let foreign = match found.len {
            0 => found.effects.first().is_none_or(|e| e.ino() != ino),
            _ => found.effects.iter().any(|e| e.ino() != ino),
        };
        if foreign || out.len() + found.effects.len() > EFFECTS_MAX {
            return Err(DecodeError("commit: input"));
        }
        adopted |= bit;
        out.extend(found.effects.iter().cloned());
    }
    Ok((out, adopted))
}

/// Appends registers to `w`.
pub(crate) fn encode_registers(regs: &Registers, w: &mut Writer) {
    let first = regs.first.unwrap_or_default();
    w.var(regs.file);
    w.u8(if regs.created { CREATED } else { 0 } | if regs.first.is_some() { WROTE } else { 0 });
    w.var(regs.read.map_or(0, |n| n + 1));
    for v in [first.off, first.len, regs.last.off, regs.last.len] {
        w.var(v);
    }
    w.u32(regs.sum.value());
    w.var(regs.sum.len());
}

/// Reads what `encode_registers` wrote.
///
/// # Errors
/// Bytes that no writer produces.
pub(crate) fn decode_registers(r: &mut Reader<'_>) -> Result<Registers, DecodeError> {
    let (file, bits, read) = (r.var()?, r.u8()?, r.var()?);
    if bits & !(CREATED | WROTE) != 0 {
        return Err(DecodeError("registers: flags"));
    }
    let first = Written { off: r.var()?, len: r.var()? };
    let last = Written { off: r.var()?, len: r.var()? };
    let wrote = bits & WROTE != 0;
    if !wrote && (first, last) != (Written::default(), Written::default()) {
        return Err(DecodeError("registers: writes"));
    }
    if [first, last].iter().any(|w| w.off.checked_add(w.len).is_none()) {
        return Err(DecodeError("registers: writes"));
    }
    let (value, summed) = (r.u32()?, r.var()?);
    if summed > FILE_OFFSET_MAX {
        return Err(DecodeError("registers: checksum"));
    }
    let sum = ChecksumState::resume(value, summed);
    let created = bits & CREATED != 0;
    Ok(Registers { file, created, read: read.checked_sub(1), first: wrote.then_some(first), last, sum })
}
