//! `RawCommand -> validate -> Command`, and back. Total on arbitrary bytes: the right errno, never a panic.

use crate::command::{Command, Durability, Modify, Op, Placement, TxnMode};
use crate::flags::{LockAction, LockKind, LockSpace, OpenFlags, RenameFlags, XattrFlags};
use crate::limits::{
    ATOMIC_WRITE_MAX, BATCH_MAX, FILE_OFFSET_MAX, LOOK_MAX, MODIFY_MAX, PROGRAM_BODY_MAX, VIRT_PARAMS_MAX,
    VIRT_SPEC_MAX, WATCHES, XATTR_VALUE_MAX,
};
use crate::optable::{Opcode, put_operands, take_operands};
use crate::program::{HEADER_BYTES, MICRO_BYTES};
use crate::sqe::{RawCommand, flags};
use crate::{Cqe, Errno, Hints, PoolRange, Sqe, StatBody};

/// What the decoder must know of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Bytes of the queue pair's pool.
    pub pool_bytes: u32,
}

/// Believes an SQE, or says why not. Checks form, flags, ranges and arithmetic; knows nothing of files.
pub fn validate(raw: &RawCommand, limits: &SessionLimits) -> Result<Command, Errno> {
    let sqe = &raw.0;
    let opcode = Opcode::from_wire(sqe.opcode).ok_or(Errno::NOSYS)?;
    let words = sqe.to_words();
    let used = &opcode.spec().used;
    let stray = (0..8).fold(0, |acc, i| acc | (words[i] & !used[i]));
    if stray != 0 {
        return Err(Errno::INVAL);
    }
    let (durability, mode, after_durable) = take_flags(sqe.flags)?;
    let op = take_operands(opcode, sqe, limits.pool_bytes)?;
    check(&op)?;
    let detectable = sqe.flags & flags::DETECTABLE != 0;
    if detectable && op.is_session_level() {
        return Err(Errno::INVAL);
    }
    let posted = sqe.flags & flags::POSTED != 0;
    if posted && (sqe.flags & NOT_POSTED != 0 || !op.may_be_posted()) {
        return Err(Errno::INVAL);
    }
    let placement = if sqe.flags & PLACED == 0 { Placement::Auto } else { take_placement(sqe.flags, &op)? };
    let hints = if sqe.flags & flags::HINTS == 0 { Hints::NONE } else { take_hints(sqe.flags)? };
    Ok(Command { seq: sqe.sequence, durability, mode, after_durable, detectable, posted, placement, hints, op })
}

/// What has no meaning without an answer that is waited for.
const NOT_POSTED: u16 = flags::DURABLE | flags::AFTER_DURABLE | flags::DETECTABLE;
/// Bits that say where compute stages run.
const PLACED: u16 = 3 << flags::PLACEMENT_SHIFT | flags::OR_CORE;

/// Host is the client's own business: a command that says so has come too far.
#[cold]
fn take_placement(bits: u16, op: &Op) -> Result<Placement, Errno> {
    let or_core = bits & flags::OR_CORE != 0;
    match bits >> flags::PLACEMENT_SHIFT & 3 {
        3 if op.has_slot_form() => Ok(Placement::Slot { or_core }),
        2 | 3 => Err(Errno::OPNOTSUPP),
        _ if or_core => Err(Errno::INVAL),
        0 => Ok(Placement::Auto),
        _ => Ok(Placement::Device),
    }
}

#[cold]
fn take_hints(bits: u16) -> Result<Hints, Errno> {
    Hints::from_wire((bits & flags::HINTS) >> flags::HINTS_SHIFT).ok_or(Errno::INVAL)
}

fn take_flags(bits: u16) -> Result<(Durability, TxnMode, bool), Errno> {
    if bits & !flags::ALL != 0 {
        return Err(Errno::INVAL);
    }
    let durability = match bits >> flags::DURABILITY_SHIFT & 3 {
        0 => Durability::Default,
        1 => Durability::Volatile,
        2 => Durability::Durable,
        _ => return Err(Errno::INVAL),
    };
    let mode = match bits >> flags::MODE_SHIFT & 3 {
        0 => TxnMode::Default,
        1 => TxnMode::Macro,
        2 => TxnMode::Micro,
        _ => return Err(Errno::INVAL),
    };
    Ok((durability, mode, bits & flags::AFTER_DURABLE != 0))
}

impl Command {
    /// The SQE that says this. `validate` of it gives the command back if the command is a valid one.
    pub fn encode(&self) -> Sqe {
        let mut sqe = Sqe { sequence: self.seq, ..Sqe::default() };
        put_operands(&self.op, &mut sqe);
        sqe.flags = (self.durability as u16) << flags::DURABILITY_SHIFT
            | (self.mode as u16) << flags::MODE_SHIFT
            | if self.after_durable { flags::AFTER_DURABLE } else { 0 }
            | if self.detectable { flags::DETECTABLE } else { 0 }
            | if self.posted { flags::POSTED } else { 0 }
            | match self.placement {
                Placement::Auto => 0,
                Placement::Device => 1 << flags::PLACEMENT_SHIFT,
                Placement::Slot { or_core } => 3 << flags::PLACEMENT_SHIFT | if or_core { flags::OR_CORE } else { 0 },
            }
            | self.hints.to_wire() << flags::HINTS_SHIFT;
        sqe
    }
}

/// An offset that a file position can have.
pub(crate) fn offset(off: u64) -> Result<(), Errno> {
    if off > FILE_OFFSET_MAX { Err(Errno::INVAL) } else { Ok(()) }
}

/// A span that fits below the largest file size.
pub(crate) fn span(off: u64, len: u64) -> Result<(), Errno> {
    offset(off)?;
    match off.checked_add(len) {
        Some(end) if end <= FILE_OFFSET_MAX => Ok(()),
        _ => Err(Errno::FBIG),
    }
}

fn place(at: crate::At, len: u32) -> Result<(), Errno> {
    match at {
        crate::At::Offset(off) => span(off, len as u64),
        _ => Ok(()),
    }
}

/// Combinations of open flags that open(2) refuses, too.
pub(crate) fn open_flags(flags: OpenFlags) -> Result<(), Errno> {
    use OpenFlags as F;
    let bad = !flags.intersects(F::READ | F::WRITE | F::PATH)
        || flags.contains(F::PATH) && flags.intersects(F::READ | F::WRITE | F::CREATE | F::TRUNC | F::TMPFILE)
        || flags.contains(F::TMPFILE) && (!flags.contains(F::WRITE) || flags.intersects(F::CREATE | F::DIRECTORY))
        || flags.contains(F::CREATE) && flags.contains(F::DIRECTORY);
    if bad { Err(Errno::INVAL) } else { Ok(()) }
}

/// What a fused open may say: it never outlives the command.
fn fused_open_flags(flags: OpenFlags, need: OpenFlags) -> Result<(), Errno> {
    open_flags(flags)?;
    let odd = OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::TMPFILE;
    if !flags.contains(need) || flags.intersects(odd) { Err(Errno::INVAL) } else { Ok(()) }
}

/// Whole words, and no more than a kernel may have.
fn check_params(params: PoolRange) -> Result<(), Errno> {
    match params.len {
        n if n % 4 != 0 => Err(Errno::INVAL),
        n if n as usize > 4 * VIRT_PARAMS_MAX => Err(Errno::TOOBIG),
        _ => Ok(()),
    }
}

/// Rules between the operands of one op.
fn check(op: &Op) -> Result<(), Errno> {
    match *op {
        Op::Open { flags, look, watch, .. } => {
            check_look(look, watch)?;
            open_flags(flags)
        }
        Op::Read { at: crate::At::End, .. } => Err(Errno::INVAL),
        Op::Read { watch, .. } | Op::ReadDirPlus { watch, .. } if watch > WATCHES => Err(Errno::INVAL),
        // From bit 58 on its result says what of it is watched.
        Op::Read { at, watch: 1.., .. } if !matches!(at, crate::At::Offset(off) if off >> 58 == 0) => Err(Errno::INVAL),
        Op::Read { at, out, .. } => place(at, out.len),
        Op::Write { at, src, .. } | Op::WriteVerified { at, src, .. } => place(at, src.len),
        // When it commits, it is not known what was current when it was collected.
        Op::TxnWrite { at, src, .. } => fused_place(at, src.len),
        Op::Truncate { size, .. } => offset(size),
        Op::Fallocate { len: 0, .. } => Err(Errno::INVAL),
        Op::Fallocate { off, len, .. } => span(off, len),
        Op::ReadDir { cookie, .. } | Op::ReadDirPlus { cookie, .. } => offset(cookie),
        Op::Batch { items, results } => check_batch(items, results),
        Op::ChecksumRange { offset, len, .. } => span(offset, len),
        Op::VirtRegister { spec, .. } if spec.len as usize > VIRT_SPEC_MAX => Err(Errno::TOOBIG),
        Op::VirtParams { params, .. } => check_params(params),
        Op::SetKey { kind, bytes } if bytes.len != kind.bytes() => Err(Errno::INVAL),
        Op::Lock { action, kind, space, start, len, out, .. } => check_lock((action, kind, space), start, len, out),
        Op::SetFlags { flags, .. } if !OpenFlags::SETTABLE.contains(flags) => Err(Errno::INVAL),
        Op::Rename { flags, .. } if flags.contains(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE) => Err(Errno::INVAL),
        Op::SetXattr { flags, .. } if flags.contains(XattrFlags::CREATE | XattrFlags::REPLACE) => Err(Errno::INVAL),
        Op::SetXattr { value, .. } if value.len as usize > XATTR_VALUE_MAX => Err(Errno::TOOBIG),
        Op::OpenWriteClose { flags, at, src, .. } => {
            fused_open_flags(flags, OpenFlags::WRITE)?;
            fused_place(at, src.len)
        }
        Op::OpenReadClose { flags, offset, out, .. } => {
            fused_open_flags(flags, OpenFlags::READ)?;
            // Creation and truncation have their own ops; a read makes no file.
            let odd = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC;
            if flags.intersects(odd) { Err(Errno::INVAL) } else { span(offset, out.len as u64) }
        }
        Op::OpenReadWriteClose { flags, read_off, out, at, src, .. } => {
            fused_open_flags(flags, OpenFlags::READ | OpenFlags::WRITE)?;
            span(read_off, out.len as u64)?;
            fused_place(at, src.len)
        }
        Op::AppendChecksumWrite { src, .. } if src.len > ATOMIC_WRITE_MAX - 4 => Err(Errno::TOOBIG),
        Op::ReadChecksumVerify { offset, len, out, .. } => {
            if len > ATOMIC_WRITE_MAX - 4 {
                return Err(Errno::TOOBIG);
            }
            if out.len != 0 && out.len != len { Err(Errno::INVAL) } else { span(offset, len as u64 + 4) }
        }
        Op::ReadModifyWrite { offset, len, modify, out, .. } => check_modify(offset, len, modify, out),
        Op::Program { body } if body.len > PROGRAM_BODY_MAX => Err(Errno::TOOBIG),
        Op::Program { body } if (body.len as usize) < HEADER_BYTES + MICRO_BYTES => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// A watch of the ring, and room for attributes at least; or neither.
fn check_look(look: PoolRange, watch: u32) -> Result<(), Errno> {
    let fits = (size_of::<StatBody>() as u32..=LOOK_MAX).contains(&look.len) && (1..=WATCHES).contains(&watch);
    if fits || (look.is_empty() && watch == 0) { Ok(()) } else { Err(Errno::INVAL) }
}

/// Whole entries, a result for each, and neither in the way of the other.
fn check_batch(items: PoolRange, results: PoolRange) -> Result<(), Errno> {
    let (count, rest) = (items.len as usize / Sqe::SIZE, items.len as usize % Sqe::SIZE);
    if count > BATCH_MAX {
        return Err(Errno::TOOBIG);
    }
    let apart = items.off + items.len <= results.off || results.off + results.len <= items.off;
    let fits = count > 0 && rest == 0 && results.len as usize == count * Cqe::SIZE;
    if fits && apart { Ok(()) } else { Err(Errno::INVAL) }
}

/// A fused op opens its own file: there is no offset to speak of as current.
fn fused_place(at: crate::At, len: u32) -> Result<(), Errno> {
    if at == crate::At::Current { Err(Errno::INVAL) } else { place(at, len) }
}

fn check_lock(
    (action, kind, space): (LockAction, LockKind, LockSpace),
    start: u64,
    len: u64,
    out: PoolRange,
) -> Result<(), Errno> {
    let flock_span = space == LockSpace::Flock && (start, len) != (0, 0);
    // Get asks about a lock one might set, and needs room for the answer; flock(2) has no such question.
    let odd_get =
        action == LockAction::Get && (kind == LockKind::Unlock || out.is_empty() || space == LockSpace::Flock);
    let odd_set = action == LockAction::Set && !out.is_empty();
    if flock_span || odd_get || odd_set {
        return Err(Errno::INVAL);
    }
    match span(start, len) {
        Err(Errno::FBIG) => Err(Errno::OVERFLOW),
        other => other,
    }
}

fn check_modify(offset: u64, len: u32, modify: Modify, out: PoolRange) -> Result<(), Errno> {
    if len == 0 || (out.len != 0 && out.len != len) {
        return Err(Errno::INVAL);
    }
    if len > MODIFY_MAX {
        return Err(Errno::TOOBIG);
    }
    let fits = match modify {
        Modify::Patch(r) | Modify::Xor(r) => r.len == len,
        Modify::Add(_) => matches!(len, 1 | 2 | 4 | 8),
        Modify::XorImm(imm) => len <= 16 && imm[len as usize..].iter().all(|b| *b == 0),
        Modify::CompareSwap { expect, new } => expect.len == len && new.len == len,
    };
    if fits { span(offset, len as u64) } else { Err(Errno::INVAL) }
}
