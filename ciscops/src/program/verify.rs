//! What a program must satisfy before any of it runs: operands exist and have their type, every slot is written before
//! it is read on every way through the program, constants are in their bounds, and the totals are below the limits.

use super::micro::Micro;
use super::operand::*;
use super::{PIECE_BYTES, Program};
use crate::decode::{offset, open_flags, span};
use crate::flags::{Access, OpenFlags, RenameFlags};
use crate::limits::*;
use crate::paths;
use crate::{Errno, PoolRange};
use weldfs_functions::working;

/// Why a body is no program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The errno of the completion.
    pub errno: Errno,
    /// The micro-op at fault, from 0; `None` when it is the body as a whole.
    pub micro: Option<u8>,
    /// What is wrong, for whoever wrote the program.
    pub why: &'static str,
}

impl Fault {
    pub(super) fn whole(errno: Errno, why: &'static str) -> Fault {
        Fault { errno, micro: None, why }
    }

    pub(super) fn at(index: usize, errno: Errno, why: &'static str) -> Fault {
        Fault { errno, micro: Some(index as u8), why }
    }
}

impl From<Fault> for Errno {
    fn from(f: Fault) -> Errno {
        f.errno
    }
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(m) = self.micro {
            write!(f, "micro-op {}: ", m + 1)?;
        }
        write!(f, "{} ({})", self.why, self.errno.name())
    }
}

impl std::error::Error for Fault {}

/// What a program may come to in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    /// Bytes of private memory.
    pub scratch: u64,
    /// Bytes written into files.
    pub writes: u64,
}

/// What is certain before a micro-op runs, whichever way led there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    /// The grant of the file in each slot; `None`: there may be none.
    files: [Option<Access>; PROGRAM_FILES],
    /// Slots of files that were written to.
    written: u32,
    /// Buffers and registers that have been given something.
    buffers: u32,
    registers: u32,
}

impl Known {
    const NOTHING: Known = Known { files: [None; PROGRAM_FILES], written: 0, buffers: 0, registers: 0 };

    /// What is certain when two ways meet.
    fn meet(&mut self, other: &Known) {
        for (a, b) in self.files.iter_mut().zip(other.files) {
            *a = a.and_then(|a| b.map(|b| a & b));
        }
        self.written &= other.written;
        self.buffers &= other.buffers;
        self.registers &= other.registers;
    }
}

/// The verifier of one micro-op.
struct Check<'p> {
    program: &'p Program,
    known: Known,
}

type Verdict = Result<(), (Errno, &'static str)>;

const INVAL: Errno = Errno::INVAL;

/// Verifies a decoded program for a pool of `pool_bytes`. Of a pool range nothing counts but that it lies in the pool
/// and its length: `recent` relies on it.
pub(super) fn verify(program: &Program, pool_bytes: u32) -> Result<Totals, Fault> {
    for r in &program.ranges {
        check_range(*r, pool_bytes).map_err(|(e, why)| Fault::whole(e, why))?;
    }
    // What is known where skips land; the last place is behind the program.
    let mut landing: [Option<Known>; MICRO_OPS_MAX + 1] = [None; MICRO_OPS_MAX + 1];
    landing[0] = Some(Known::NOTHING);
    for (index, micro) in program.micros.iter().enumerate() {
        // Nothing is passed by without a skip, so every micro-op is reached: from the one before it at least.
        let known = landing[index].unwrap_or(Known::NOTHING);
        let mut check = Check { program, known };
        check.micro(micro).map_err(|(e, why)| Fault::at(index, e, why))?;
        let mut reach = |to: usize| match landing.get_mut(to).filter(|_| to <= program.micros.len()) {
            Some(Some(there)) => {
                there.meet(&check.known);
                true
            }
            Some(free) => {
                *free = Some(check.known);
                true
            }
            None => false,
        };
        let past = match micro {
            Micro::Guard { otherwise: Else::Skip(n), .. } => Some(index + 1 + usize::from(*n)),
            _ => None,
        };
        if !reach(index + 1) || past.is_some_and(|to| !reach(to)) {
            return Err(Fault::at(index, INVAL, "the skip leads out of the program"));
        }
    }
    if program.capacities.iter().any(|c| *c > ATOMIC_WRITE_MAX) {
        return Err(Fault::whole(Errno::TOOBIG, "a buffer is larger than a payload may be"));
    }
    let capacities: u64 = program.capacities.iter().map(|c| u64::from(*c)).sum();
    let (mut piece, mut working, mut writes) = (0, 0, 0);
    for m in &program.micros {
        piece = if needs_piece(m) { PIECE_BYTES as u64 } else { piece };
        working = working.max(working_bytes(program, m));
        writes += write_bound(program, m);
    }
    let totals = Totals { scratch: capacities + piece + working, writes };
    if capacities + piece > PROGRAM_SCRATCH_MAX {
        return Err(Fault::whole(Errno::TOOBIG, "the buffers are larger than a program's may be, all together"));
    }
    if totals.writes > PROGRAM_WRITE_MAX {
        return Err(Fault::whole(Errno::TOOBIG, "the program may write more than a program may"));
    }
    Ok(totals)
}

/// Whether a range lies in a pool of so many bytes.
pub(super) fn check_range(r: PoolRange, pool_bytes: u32) -> Verdict {
    if r.len > ATOMIC_WRITE_MAX {
        return Err((Errno::TOOBIG, "a pool range is longer than a payload may be"));
    }
    if u64::from(r.off) + u64::from(r.len) > u64::from(pool_bytes) {
        return Err((Errno::FAULT, "a pool range lies outside the pool"));
    }
    Ok(())
}

/// Whether it works through private memory in pieces, beside the program's buffers.
fn needs_piece(m: &Micro) -> bool {
    let pool = |b: &Bytes| matches!(b, Bytes::Pool(_));
    let sums = |fold: &Option<Fold>| fold.is_some_and(|f| f.kind == SumKind::Crc32);
    match m {
        Micro::CopyRange { .. } | Micro::Scan { .. } => true,
        Micro::Read { fold, .. } | Micro::Write { fold, .. } => sums(fold),
        Micro::Checksum { of, .. } => pool(of),
        Micro::Change { change, .. } => match change {
            Change::And(b) | Change::Or(b) | Change::Xor(b) => pool(b),
            Change::CompareSwap { expect, .. } => pool(expect),
            Change::Patch(_) | Change::Add(..) => false,
        },
        Micro::Guard { cond: Cond::Holds { bytes, .. }, .. } => pool(bytes),
        _ => false,
    }
}

/// Bytes that a codec may take beside input and output: tables and windows; and the copy that a kernel is given.
fn working_bytes(p: &Program, m: &Micro) -> u64 {
    match m {
        Micro::Kernel { from, .. } => p.capacity(*from).into(),
        Micro::Transform { how: Transform::Compress(c) | Transform::Decompress(c), .. } => match c {
            Codec::Lz4 => working::LZ4_BYTES as u64,
            Codec::Zstd => working::ZSTD_BYTES as u64,
            Codec::Snappy => working::SNAPPY_BYTES as u64,
        },
        _ => 0,
    }
}

/// At most so many bytes does a micro-op write into a file.
pub(super) fn write_bound(p: &Program, m: &Micro) -> u64 {
    match *m {
        Micro::Write { from, .. } => len_bound(p, from),
        Micro::CopyRange { len: Value::Imm(len), .. } => len,
        Micro::CopyRange { max, .. } => max.into(),
        _ => 0,
    }
}

/// At most so many bytes does a micro-op read, write, move or look at, in memory too; far more of one that computes, or
/// that scans: that takes as long as there are records.
pub(super) fn bytes_bound(p: &Program, m: &Micro) -> u64 {
    match *m {
        Micro::Read { len: Value::Imm(len), .. } => len,
        Micro::Read { to: To::Buffer(b), .. } => p.capacity(b).into(),
        Micro::Read { to: To::Pool(r), .. } => p.range(r).len.into(),
        Micro::Read { .. } | Micro::Scan { .. } | Micro::Transform { .. } | Micro::Kernel { .. } => PROGRAM_READ_MAX,
        Micro::CopyRange { .. } => 2 * write_bound(p, m),
        Micro::Write { from: of, .. } | Micro::Fill { from: of, .. } | Micro::Checksum { of, .. } => len_bound(p, of),
        Micro::Change { buf, .. } | Micro::Slice { buf, .. } | Micro::Give { buf, .. } => p.capacity(buf).into(),
        Micro::Guard { cond: Cond::Holds { bytes, .. }, .. } => len_bound(p, bytes),
        _ => 0,
    }
}

/// At most so many bytes are in there.
pub(super) fn len_bound(p: &Program, b: Bytes) -> u64 {
    match b {
        Bytes::Buffer(b) => p.capacity(b).into(),
        Bytes::Pool(r) => p.range(r).len.into(),
        Bytes::Literal(s) => p.string(s).len() as u64,
        Bytes::Int(_, int) => int.width.bytes() as u64,
    }
}

impl Check<'_> {
    fn micro(&mut self, m: &Micro) -> Verdict {
        match *m {
            Micro::Open { file, path, flags, mode, created, .. } => {
                open_flags(flags).map_err(|e| (e, "open flags that do not go together"))?;
                if flags.intersects(OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::TMPFILE) {
                    return Err((INVAL, "a program opens no places, directories or nameless files"));
                }
                self.mode(mode)?;
                self.path(path)?;
                self.name(file, flags.access())?;
                self.set(created)
            }
            Micro::Use { file, need, .. } => {
                if need.is_empty() {
                    return Err((INVAL, "a file is taken for reading, writing or both"));
                }
                self.name(file, need)
            }
            Micro::Read { .. } => self.read(m),
            Micro::Write { file, place, from, fold, at } => {
                self.file(file, Access::WRITE)?;
                self.place(file, place, len_bound(self.program, from))?;
                self.bytes(from)?;
                self.known.written |= 1 << file.0;
                self.fold(fold)?;
                self.set(at)
            }
            Micro::Size { file, to } => {
                self.file(file, Access::empty())?;
                self.set(Some(to))
            }
            Micro::Truncate { file, size } => {
                self.file(file, Access::WRITE)?;
                self.offset(size)
            }
            Micro::CopyRange { .. } => self.copy_range(m),
            Micro::Scan { .. } => self.scan(m),
            Micro::Transform { buf, from, how } => self.transform(buf, from, how),
            Micro::Kernel { buf, from, name, params, registers } => self.kernel((buf, from), name, params, registers),
            Micro::Sync => Ok(()),
            Micro::Close { file } => {
                self.file(file, Access::empty())?;
                self.known.files[usize::from(file.0)] = None;
                Ok(())
            }
            Micro::Checksum { of, to, .. } => {
                self.bytes(of)?;
                self.set(Some(to))
            }
            Micro::Change { buf, off, change } => self.change(buf, off, change),
            Micro::Load { to, buf, off, .. } => {
                self.buffer(buf)?;
                self.value(off)?;
                self.set(Some(to))
            }
            Micro::Arith { to, a, b, .. } => {
                self.value(a)?;
                self.value(b)?;
                self.set(Some(to))
            }
            Micro::Guard { cond, otherwise } => self.guard(cond, otherwise),
            Micro::Fill { .. } | Micro::Slice { .. } | Micro::Give { .. } | Micro::Length { .. } => self.buffers(m),
            _ => self.names(m),
        }
    }

    fn read(&mut self, m: &Micro) -> Verdict {
        let Micro::Read { file, off, len, to, pad, fold, count, .. } = *m else { return Ok(()) };
        self.file(file, Access::READ)?;
        self.value(len)?;
        let known = if let Value::Imm(len) = len { len } else { 0 };
        self.reach(off, known)?;
        let room = match to {
            To::Nowhere => PROGRAM_READ_MAX,
            To::Buffer(b) => self.capacity(b)?.into(),
            To::Pool(p) => self.range(p)?.len.into(),
        };
        if known > room {
            return Err((Errno::TOOBIG, "more bytes are read than there is room for"));
        }
        if pad && !matches!(to, To::Buffer(_)) {
            return Err((INVAL, "only a buffer is padded"));
        }
        if let To::Buffer(b) = to {
            self.known.buffers |= 1 << b.0;
        }
        self.fold(fold)?;
        self.set(count)
    }

    fn copy_range(&mut self, m: &Micro) -> Verdict {
        let Micro::CopyRange { from, off, len, max, to, place, count } = *m else { return Ok(()) };
        self.file(from, Access::READ)?;
        self.file(to, Access::WRITE)?;
        self.value(len)?;
        let bound = match len {
            Value::Imm(_) if max != 0 => return Err((INVAL, "a constant length is its own bound")),
            Value::Imm(len) => len,
            Value::Reg(_) => max.into(),
        };
        if bound > PROGRAM_WRITE_MAX {
            return Err((Errno::TOOBIG, "more bytes are copied than a program may write"));
        }
        self.reach(off, bound)?;
        self.place(to, place, bound)?;
        self.known.written |= 1 << to.0;
        self.set(count)
    }

    fn scan(&mut self, m: &Micro) -> Verdict {
        let Micro::Scan { file, off, len, record, offsets, count, end, why } = *m else { return Ok(()) };
        self.file(file, Access::READ)?;
        self.value(len)?;
        let known = if let Value::Imm(len) = len { len } else { 0 };
        self.reach(off, known)?;
        if known > PROGRAM_READ_MAX {
            return Err((Errno::TOOBIG, "more bytes are scanned than a micro-op may read"));
        }
        let inside = |at: u8, n: usize| usize::from(at) + n <= usize::from(record.head);
        let sum_fits = record.sum_at.is_none_or(|at| inside(at, 4) && usize::from(at) + 4 <= record.covers.into());
        let sound = (1..=RECORD_HEAD_MAX).contains(&usize::from(record.head))
            && inside(record.len_at, record.len.width.bytes())
            && record.covers <= record.head
            && sum_fits;
        if !sound {
            return Err((INVAL, "length or checksum do not lie in the record's head"));
        }
        offsets.map_or(Ok(()), |p| self.range(p).map(drop))?;
        self.set(count)?;
        self.set(end)?;
        self.set(why)
    }

    fn transform(&mut self, buf: BufSlot, from: BufSlot, how: Transform) -> Verdict {
        self.other_bytes(buf, Bytes::Buffer(from))?;
        match how {
            Transform::Compress(_) | Transform::Decompress(_) => {}
            Transform::EncryptUnits { unit_log, first, .. } | Transform::DecryptUnits { unit_log, first, .. } => {
                self.value(first)?;
                if !(9..=12).contains(&unit_log) {
                    return Err((INVAL, "a unit has 512, 1024, 2048 or 4096 bytes"));
                }
            }
            Transform::Seal { bound, .. } | Transform::Open { bound, .. } => match bound {
                Some(Bytes::Pool(_)) => return Err((INVAL, "what a tag covers lies in private memory")),
                Some(bound) => self.other_bytes(buf, bound)?,
                None => {}
            },
        }
        self.known.buffers |= 1 << buf.0;
        Ok(())
    }

    fn kernel(&mut self, (buf, from): (BufSlot, BufSlot), name: Str, params: Str, registers: u64) -> Verdict {
        self.other_bytes(buf, Bytes::Buffer(from))?;
        let name = self.string(name)?;
        let known = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b':');
        if !(1..=KERNEL_NAME_MAX).contains(&name.len()) || !name.iter().all(known) {
            return Err((INVAL, "the name of a kernel has 1 to 40 of a to z, digits, - and :"));
        }
        let params = self.string(params)?;
        if !params.len().is_multiple_of(4) {
            return Err((INVAL, "parameters are words of four bytes"));
        }
        let words: Vec<&[u8]> = params.chunks_exact(4).collect();
        if words.len() < 64 && registers >> words.len() != 0 {
            return Err((INVAL, "more registers than parameters"));
        }
        for (_, word) in words.iter().enumerate().take(64).filter(|(i, _)| registers >> i & 1 == 1) {
            match **word {
                [r, 0, 0, 0] => self.register(Reg(r))?,
                _ => return Err((INVAL, "no register has that number")),
            }
        }
        self.known.buffers |= 1 << buf.0;
        Ok(())
    }

    fn change(&mut self, buf: BufSlot, off: Value, change: Change) -> Verdict {
        self.buffer(buf)?;
        self.value(off)?;
        match change {
            Change::Add(_, by) => self.value(by),
            Change::Patch(b) | Change::And(b) | Change::Or(b) | Change::Xor(b) => self.other_bytes(buf, b),
            Change::CompareSwap { expect, new } => {
                self.other_bytes(buf, expect)?;
                self.other_bytes(buf, new)
            }
        }
    }

    fn buffers(&mut self, m: &Micro) -> Verdict {
        match *m {
            Micro::Fill { buf, from, .. } => {
                self.other_bytes(buf, from)?;
                let fixed = !matches!(from, Bytes::Buffer(_));
                if fixed && len_bound(self.program, from) > u64::from(self.capacity(buf)?) {
                    return Err((Errno::TOOBIG, "more bytes than the buffer has room for"));
                }
                self.known.buffers |= 1 << buf.0;
                Ok(())
            }
            Micro::Slice { buf, from, off, len } => {
                self.buffer(from)?;
                self.value(off)?;
                self.value(len)?;
                let room = self.capacity(buf)?;
                if matches!(len, Value::Imm(len) if len > room.into()) {
                    return Err((Errno::TOOBIG, "more bytes than the buffer has room for"));
                }
                self.known.buffers |= 1 << buf.0;
                Ok(())
            }
            Micro::Give { buf, to, count } => {
                self.buffer(buf)?;
                self.range(to)?;
                self.set(count)
            }
            Micro::Length { buf, to } => {
                self.buffer(buf)?;
                self.set(Some(to))
            }
            _ => Ok(()),
        }
    }

    fn guard(&mut self, cond: Cond, otherwise: Else) -> Verdict {
        match cond {
            Cond::Compare(a, _, b) => {
                self.value(a)?;
                self.value(b)?;
            }
            Cond::Holds { buf, off, bytes } => {
                self.buffer(buf)?;
                self.value(off)?;
                self.other_bytes(buf, bytes)?;
            }
        }
        match otherwise {
            Else::Fail(Errno(1..=4095)) | Else::End | Else::Skip(1..) => Ok(()),
            Else::Fail(_) => Err((INVAL, "an errno is a number from 1 to 4095")),
            Else::Skip(0) => Err((INVAL, "a skip passes by one micro-op at least")),
        }
    }

    fn names(&mut self, m: &Micro) -> Verdict {
        match *m {
            Micro::Unlink { path, .. } | Micro::Rmdir { path, .. } => self.path(path),
            Micro::Mkdir { path, mode, .. } => {
                self.mode(mode)?;
                self.path(path)
            }
            Micro::Rename { from, to, flags, .. } => {
                if flags.contains(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE) {
                    return Err((INVAL, "rename flags that do not go together"));
                }
                self.path(from)?;
                self.path(to)
            }
            Micro::Link { from, to, .. } => {
                from.map_or(Ok(()), |from| self.path(from))?;
                self.path(to)
            }
            Micro::Symlink { target, path, .. } => {
                let target = self.string(target)?;
                if target.is_empty() {
                    return Err((Errno::NOENT, "a symbolic link to nothing"));
                }
                if target.len() > SYMLINK_MAX {
                    return Err((Errno::NAMETOOLONG, "the target is too long"));
                }
                if target.contains(&0) {
                    return Err((INVAL, "the target holds a NUL"));
                }
                self.path(path)
            }
            Micro::SetAttr { path, mode, size, .. } => {
                mode.map_or(Ok(()), |mode| self.mode(mode))?;
                size.map_or(Ok(()), |size| self.offset(size))?;
                path.map_or(Ok(()), |path| self.path(path))
            }
            _ => Err((Errno::NOSYS, "no such kind of micro-op")),
        }
    }

    fn mode(&self, mode: u16) -> Verdict {
        if mode & !0o7777 == 0 { Ok(()) } else { Err((INVAL, "permission bits above 07777")) }
    }

    fn string(&self, s: Str) -> Result<&[u8], (Errno, &'static str)> {
        if usize::from(s.0) < self.program.strings.len() {
            Ok(self.program.string(s))
        } else {
            Err((INVAL, "no string has that number"))
        }
    }

    fn path(&self, s: Str) -> Verdict {
        let path = self.string(s)?;
        if path.is_empty() {
            return Err((Errno::NOENT, "an empty path"));
        }
        paths::check_path(path).map_err(|e| (e, "a path with a NUL, or with a name that is too long"))
    }

    /// Puts a file in a slot.
    fn name(&mut self, f: FileSlot, grant: Access) -> Verdict {
        let slot = self.known.files.get_mut(usize::from(f.0)).ok_or((INVAL, "no file slot has that number"))?;
        *slot = Some(grant);
        self.known.written &= !(1 << f.0);
        Ok(())
    }

    fn file(&self, f: FileSlot, need: Access) -> Verdict {
        match self.known.files.get(usize::from(f.0)) {
            None => Err((INVAL, "no file slot has that number")),
            Some(None) => Err((INVAL, "the slot may hold no file")),
            Some(Some(grant)) if grant.contains(need) => Ok(()),
            Some(_) => Err((Errno::BADF, "the file was not opened for that")),
        }
    }

    fn fold(&mut self, fold: Option<Fold>) -> Verdict {
        let Some(fold) = fold else { return Ok(()) };
        self.set(Some(fold.to))
    }

    fn set(&mut self, r: Option<Reg>) -> Verdict {
        let Some(r) = r else { return Ok(()) };
        if usize::from(r.0) >= PROGRAM_REGISTERS {
            return Err((INVAL, "no register has that number"));
        }
        self.known.registers |= 1 << r.0;
        Ok(())
    }

    fn value(&self, v: Value) -> Verdict {
        let Value::Reg(r) = v else { return Ok(()) };
        self.register(r)
    }

    fn register(&self, r: Reg) -> Verdict {
        if usize::from(r.0) >= PROGRAM_REGISTERS {
            return Err((INVAL, "no register has that number"));
        }
        if self.known.registers >> r.0 & 1 == 0 {
            return Err((INVAL, "the register may not have been set"));
        }
        Ok(())
    }

    /// An offset or size.
    fn offset(&self, v: Value) -> Verdict {
        self.reach(v, 0)
    }

    /// An offset from which `len` bytes are reached.
    fn reach(&self, off: Value, len: u64) -> Verdict {
        self.value(off)?;
        let from = if let Value::Imm(off) = off { off } else { 0 };
        offset(from).map_err(|e| (e, "an offset above the largest file"))?;
        span(from, len).map_err(|e| (e, "the range ends above the largest file"))
    }

    fn place(&self, f: FileSlot, p: Place, len: u64) -> Verdict {
        match p {
            Place::At(off) => self.reach(off, len),
            Place::End => Ok(()),
            Place::After if self.known.written >> f.0 & 1 == 1 => Ok(()),
            Place::After => Err((INVAL, "nothing may have been written to go on behind")),
        }
    }

    fn capacity(&self, b: BufSlot) -> Result<u32, (Errno, &'static str)> {
        self.program.capacities.get(usize::from(b.0)).copied().ok_or((INVAL, "no buffer has that number"))
    }

    fn buffer(&self, b: BufSlot) -> Verdict {
        self.capacity(b)?;
        if self.known.buffers >> b.0 & 1 == 0 {
            return Err((INVAL, "the buffer may hold nothing"));
        }
        Ok(())
    }

    fn range(&self, p: Pool) -> Result<PoolRange, (Errno, &'static str)> {
        self.program.ranges.get(usize::from(p.0)).copied().ok_or((INVAL, "no pool range has that number"))
    }

    fn bytes(&self, b: Bytes) -> Verdict {
        match b {
            Bytes::Buffer(b) => self.buffer(b),
            Bytes::Pool(p) => self.range(p).map(drop),
            Bytes::Literal(s) => self.string(s).map(drop),
            Bytes::Int(r, _) => self.register(r),
        }
    }

    /// Bytes that are not those of `buf`.
    fn other_bytes(&self, buf: BufSlot, b: Bytes) -> Verdict {
        self.capacity(buf)?;
        if b == Bytes::Buffer(buf) {
            return Err((INVAL, "a buffer is not changed by itself"));
        }
        self.bytes(b)
    }
}
