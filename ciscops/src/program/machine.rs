//! Runs a verified program over a `Target`. What the verifier has seen to is not asked again, but no operand is indexed
//! without a check: an impossible one is EINVAL, never a panic.

use super::Program;
use super::bulk::{Piece, Sum, read_summed, write_summed};
use super::foresight::Foreseen;
use super::kept::{Kept, Ran};
use super::micro::Micro;
use super::operand::*;
use super::slot::Summed;
use crate::bodies::SetAttrBody;
use crate::command::{At, Command, Placement};
use crate::decode::span;
use crate::flags::{OpenFlags, SetAttrMask};
use crate::interp::{Outcome, Registers};
use crate::limits::{MICRO_OPS_MAX, PROGRAM_BUFFERS, PROGRAM_FILES, PROGRAM_READ_MAX, PROGRAM_REGISTERS};
use crate::target::{Quiet, Sink, Source, Target};
use crate::{Errno, SharedRegion};
use smallvec::SmallVec;

/// Runs `program` as the command `cmd`. The caller boxes the future: all state of a program lives in it, and none of it
/// in the future of other commands.
pub(crate) async fn run<T: Target>(cmd: &Command, program: &Program, pool: &SharedRegion, t: &mut T) -> Outcome {
    if t.is_rehearsal() || t.foresees() {
        return foreseen(cmd, program, pool, t).await;
    }
    let mut machine = Machine::new(program, pool);
    machine.placement = cmd.placement;
    if cmd.placement == (Placement::Slot { or_core: false })
        && let Some(index) = program.without_slot_form()
    {
        machine.index = index;
        return machine.failed(cmd, Errno::OPNOTSUPP);
    }
    if let Some(kept) = t.kept().and_then(|kept| kept.downcast::<Kept>().ok()) {
        match machine.resume(*kept, t).await {
            Ok(true) => {}
            Err(e) if t.starts_over() => return machine.failed(cmd, e),
            // An error, too, is for the run that does everything again to give, with all that belongs to it.
            Ok(false) | Err(_) => return machine.failed(cmd, t.start_over()),
        }
    }
    machine.steps(cmd, t).await
}

/// The same of a program that is rehearsed, or has been.
async fn foreseen<T: Target>(cmd: &Command, program: &Program, pool: &SharedRegion, t: &mut T) -> Outcome {
    let mut machine = Machine::new(program, pool);
    let kept = t.kept().and_then(|kept| kept.downcast::<Foreseen>().ok()).unwrap_or_default();
    (machine.foreseen, machine.rehearsal) = (Some(kept.anew()), t.is_rehearsal());
    let outcome = machine.steps(cmd, t).await;
    if let Some(foreseen) = machine.foreseen {
        t.keep(foreseen);
    }
    outcome
}

impl<F: Copy> Machine<'_, F> {
    async fn steps<T: Target<File = F>>(&mut self, cmd: &Command, t: &mut T) -> Outcome {
        let (program, machine) = (self.program, self);
        let micros = program.micros();
        while let Some(micro) = micros.get(machine.index) {
            let ran = match machine.step(micro, t).await {
                Ok(next) => t.seal(machine.index as u16, &Registers::default()).await.map(|()| next),
                Err(e) => Err(e),
            };
            let (index, answer) = (machine.index, machine.answer);
            match ran {
                Ok(Next::Go) => machine.index += 1,
                Ok(Next::Skip(n)) => machine.index += 1 + usize::from(n),
                Ok(Next::End) => (machine.end, machine.index) = (machine.index + 1, micros.len()),
                Err(e) => return machine.ended(cmd, e, t),
            }
            machine.ran.push(Ran { index, answer, version: machine.filled });
            if machine.index < micros.len() {
                t.quiet(Quiet::Between);
                if let Err(e) = t.boundary(machine.index as u16).await {
                    return machine.ended(cmd, e, t);
                }
            }
        }
        // Before it ends it must hold all that it has seen and staged.
        match t.hold().await {
            Ok(()) => machine.well(machine.end),
            Err(e) => machine.ended(cmd, e, t),
        }
    }
}

/// The checksum that a read takes in passing, or has taken in a slot.
struct Folding {
    fold: Option<Fold>,
    placed: bool,
    value: Option<u64>,
}

/// Where a program goes on.
pub(super) enum Next {
    Go,
    Skip(u8),
    End,
}

/// A file in its slot.
#[derive(Clone, Copy)]
pub(super) struct Slot<F> {
    pub file: F,
    /// Writes at an offset go to the end.
    append: bool,
    /// Where the last write of this program ended.
    pub end: Option<u64>,
}

/// One program being run.
pub(super) struct Machine<'a, F> {
    pub program: &'a Program,
    pub pool: &'a SharedRegion,
    pub index: usize,
    pub files: [Option<Slot<F>>; PROGRAM_FILES],
    pub buffers: [Vec<u8>; PROGRAM_BUFFERS],
    pub registers: [u64; PROGRAM_REGISTERS],
    /// Private memory for what is moved in pieces.
    pub piece: Piece,
    /// How often each buffer has been changed.
    pub versions: [u32; PROGRAM_BUFFERS],
    /// The micro-ops that have run; what the last one was answered, and the version of the buffer that it filled.
    pub ran: SmallVec<[Ran; MICRO_OPS_MAX]>,
    pub answer: u64,
    pub filled: u32,
    /// Micro-ops that are done when it ends well.
    pub end: usize,
    /// What has been computed before; none of a program that is not rehearsed.
    pub foreseen: Option<Box<Foreseen>>,
    /// Nothing goes to the client, either.
    pub rehearsal: bool,
    /// Where what it computes is computed.
    pub placement: Placement,
    /// What a write is about to store.
    pub summed: Option<Summed>,
}

type Done<T> = Result<T, Errno>;

impl<'a, F: Copy> Machine<'a, F> {
    fn new(program: &'a Program, pool: &'a SharedRegion) -> Machine<'a, F> {
        Machine {
            program,
            pool,
            index: 0,
            files: [None; PROGRAM_FILES],
            buffers: core::array::from_fn(|_| Vec::new()),
            registers: [0; PROGRAM_REGISTERS],
            piece: Piece::default(),
            versions: [0; PROGRAM_BUFFERS],
            ran: SmallVec::new(),
            answer: 0,
            filled: 0,
            end: program.micros().len(),
            foreseen: None,
            rehearsal: false,
            placement: Placement::Auto,
            summed: None,
        }
    }

    fn results(&self) -> [u64; 2] {
        self.program.results().map(|r| r.map_or(0, |r| self.register(r).unwrap_or(0)))
    }

    fn well(&self, micro_done: usize) -> Outcome {
        let [result, result2] = self.results();
        Outcome { status: 0, micro_done: micro_done as u16, micro_failed: 0, result, result2 }
    }

    fn failed(&self, cmd: &Command, errno: Errno) -> Outcome {
        let [result, result2] = self.results();
        let index = self.index as u16;
        let micro_done = if cmd.commits_in_steps() { index } else { 0 };
        Outcome { status: errno.0, micro_done, micro_failed: index + 1, result, result2 }
    }

    /// The same; its state is kept if it is about to be started over.
    fn ended<T: Target>(&mut self, cmd: &Command, errno: Errno, t: &mut T) -> Outcome {
        let outcome = self.failed(cmd, errno);
        if t.starts_over() && self.foreseen.is_none() {
            t.keep(Box::new(self.take_kept()));
        }
        outcome
    }

    fn register(&self, r: Reg) -> Done<u64> {
        self.registers.get(usize::from(r.0)).copied().ok_or(Errno::INVAL)
    }

    pub fn value(&self, v: Value) -> Done<u64> {
        match v {
            Value::Imm(v) => Ok(v),
            Value::Reg(r) => self.register(r),
        }
    }

    pub fn set(&mut self, r: Option<Reg>, v: u64) -> Done<()> {
        if let Some(r) = r {
            *self.registers.get_mut(usize::from(r.0)).ok_or(Errno::INVAL)? = v;
        }
        Ok(())
    }

    pub fn slot(&self, f: FileSlot) -> Done<Slot<F>> {
        self.files.get(usize::from(f.0)).copied().flatten().ok_or(Errno::INVAL)
    }

    fn put_slot(&mut self, f: FileSlot, slot: Option<Slot<F>>) -> Done<()> {
        *self.files.get_mut(usize::from(f.0)).ok_or(Errno::INVAL)? = slot;
        Ok(())
    }

    /// Notes where a write to the file in a slot ended.
    pub fn wrote(&mut self, f: FileSlot, end: u64) -> Done<()> {
        let slot = self.slot(f)?;
        self.put_slot(f, Some(Slot { end: Some(end), ..slot }))
    }

    pub fn buffer(&self, b: BufSlot) -> Done<&Vec<u8>> {
        self.buffers.get(usize::from(b.0)).ok_or(Errno::INVAL)
    }

    /// The buffer, to be changed and put back.
    fn take_buffer(&mut self, b: BufSlot) -> Done<Vec<u8>> {
        let buffer = self.buffers.get_mut(usize::from(b.0)).map(std::mem::take).ok_or(Errno::INVAL);
        self.touch(b);
        buffer
    }

    fn touch(&mut self, b: BufSlot) {
        if let Some(version) = self.versions.get_mut(usize::from(b.0)) {
            *version += 1;
        }
    }

    /// An empty buffer with all the room it may come to need, and no more.
    pub fn empty_buffer(&mut self, b: BufSlot) -> Done<Vec<u8>> {
        let mut buffer = self.take_buffer(b)?;
        buffer.clear();
        buffer.reserve_exact(self.program.capacity(b) as usize);
        Ok(buffer)
    }

    pub fn put_buffer(&mut self, b: BufSlot, bytes: Vec<u8>) -> Done<()> {
        *self.buffers.get_mut(usize::from(b.0)).ok_or(Errno::INVAL)? = bytes;
        self.touch(b);
        Ok(())
    }

    /// The bytes an operand names; `int` holds them if they are those of a register.
    pub fn source<'s>(&'s self, b: Bytes, int: &'s mut [u8; 8]) -> Done<Source<'s>> {
        Ok(match b {
            Bytes::Buffer(b) => Source::Private(self.buffer(b)?),
            Bytes::Pool(p) => Source::Shared(self.pool.slice(self.program.range(p))?),
            Bytes::Literal(s) => Source::Private(self.program.string(s)),
            Bytes::Int(r, i) => {
                *int = i.put(self.register(r)?);
                Source::Private(&int[..i.width.bytes()])
            }
        })
    }

    /// Where a write of `len` bytes goes.
    pub fn place(&self, slot: &Slot<F>, place: Place, len: u64) -> Done<At> {
        let off = match place {
            Place::At(v) => {
                let off = self.value(v)?;
                span(off, len)?;
                if slot.append {
                    return Ok(At::End);
                }
                off
            }
            Place::End => return Ok(At::End),
            Place::After => slot.end.ok_or(Errno::INVAL)?,
        };
        span(off, len)?;
        Ok(At::Offset(off))
    }

    pub async fn step<T: Target<File = F>>(&mut self, m: &Micro, t: &mut T) -> Done<Next> {
        self.answer = 0;
        match *m {
            Micro::Guard { cond, otherwise } => {
                if self.holds(cond)? {
                    return Ok(Next::Go);
                }
                return match otherwise {
                    Else::Fail(e) => Err(e),
                    Else::End => Ok(Next::End),
                    Else::Skip(n) => Ok(Next::Skip(n)),
                };
            }
            Micro::Open { file, base, path, flags, mode, created } => {
                let opened = t.open(base, self.program.string(path), flags, mode.into()).await?;
                let append = flags.contains(OpenFlags::APPEND);
                // A new file has another number in each run, and nothing else in it.
                self.answer = if opened.created { 1 } else { t.number(opened.file) << 1 };
                self.put_slot(file, Some(Slot { file: opened.file, append, end: None }))?;
                self.set(created, opened.created.into())?;
            }
            Micro::Use { file, h, need } => {
                let taken = t.file(h, need).await?;
                let append = t.cursor(h).await?.append;
                self.answer = t.number(taken) << 1 | u64::from(append);
                self.put_slot(file, Some(Slot { file: taken, append, end: None }))?;
            }
            Micro::Read { .. } => self.read(m, t).await?,
            Micro::Write { .. } => self.write(m, t).await?,
            Micro::Size { file, to } => {
                let size = t.size(self.slot(file)?.file).await?;
                self.answer = size;
                self.set(Some(to), size)?;
            }
            Micro::Truncate { file, size } => {
                let size = self.value(size)?;
                span(size, 0)?;
                t.truncate(self.slot(file)?.file, size).await?;
            }
            Micro::CopyRange { .. } => self.copy_range(m, t).await?,
            Micro::Scan { .. } => self.scan(m, t).await?,
            Micro::Checksum { kind, of, to } if self.in_slot(m, t) => {
                let sum = self.sum_in_slot(kind, of, t).await?;
                self.set(Some(to), sum)?;
            }
            Micro::Transform { buf, from, how } if self.in_slot(m, t) => {
                self.transform_in_slot((buf, from), how, t).await?;
            }
            Micro::Transform { buf, from, how } => {
                self.transform_or_recall((buf, from, how), t).await?;
            }
            Micro::Kernel { buf, from, name, params, registers } => {
                self.kernel((buf, from), (name, params, registers), t).await?;
            }
            // Said of the command as a whole: see `Program::is_durable`.
            Micro::Sync => {}
            // Nothing was installed: the description dies with the command.
            Micro::Close { file } => self.put_slot(file, None)?,
            Micro::Unlink { .. }
            | Micro::Rmdir { .. }
            | Micro::Mkdir { .. }
            | Micro::Rename { .. }
            | Micro::Link { .. }
            | Micro::Symlink { .. }
            | Micro::SetAttr { .. } => self.names(m, t).await?,
            _ => self.inner(m)?,
        }
        Ok(Next::Go)
    }

    async fn read<T: Target<File = F>>(&mut self, m: &Micro, t: &mut T) -> Done<()> {
        let Micro::Read { file, off, len, to, whole, pad, fold, count } = *m else { return Err(Errno::INVAL) };
        let (file, off, len) = (self.slot(file)?.file, self.value(off)?, self.value(len)?);
        let room = match to {
            To::Nowhere => PROGRAM_READ_MAX,
            To::Buffer(b) => self.program.capacity(b).into(),
            To::Pool(p) => self.program.range(p).len.into(),
        };
        if len > room {
            return Err(Errno::TOOBIG);
        }
        span(off, len)?;
        let placed = fold.is_some() && self.in_slot(m, t);
        let mut sum = Folding { fold, placed, value: None };
        let n = match to {
            To::Buffer(b) => {
                let mut buffer = self.empty_buffer(b)?;
                buffer.resize(len as usize, 0);
                let n = self.read_folded(&mut sum, t, file, (off, len), Sink::Private(&mut buffer)).await;
                buffer.truncate(if pad { len } else { *n.as_ref().unwrap_or(&0) } as usize);
                self.put_buffer(b, buffer)?;
                self.filled = self.versions.get(usize::from(b.0)).copied().unwrap_or(0);
                n?
            }
            To::Pool(p) => {
                let out = self.pool.slice(self.program.range(p))?.sub(0, len as usize);
                let sink = if self.rehearsal { Sink::Discard } else { Sink::Shared(out) };
                self.read_folded(&mut sum, t, file, (off, len), sink).await?
            }
            To::Nowhere => self.read_folded(&mut sum, t, file, (off, len), Sink::Discard).await?,
        };
        if let (Some(fold), Some(value)) = (fold, sum.value) {
            self.set(Some(fold.to), value)?;
        }
        self.set(count, n)?;
        if whole && n < len { Err(Errno::NODATA) } else { Ok(()) }
    }

    async fn read_folded<T: Target<File = F>>(
        &mut self,
        folding: &mut Folding,
        t: &mut T,
        file: F,
        (off, len): (u64, u64),
        sink: Sink<'_>,
    ) -> Done<u64> {
        let Some(fold) = folding.fold else { return t.read(file, off, len, sink, None).await };
        if folding.placed {
            let (n, sum) = self.read_in_slot(fold.kind, t, file, (off, len), sink).await?;
            folding.value = Some(sum);
            return Ok(n);
        }
        let mut sum = Sum::new(fold.kind);
        let n = read_summed((&mut sum, self.index), t, file, (off, len), sink, &mut self.piece).await;
        folding.value = Some(sum.value());
        n
    }

    async fn write<T: Target<File = F>>(&mut self, m: &Micro, t: &mut T) -> Done<()> {
        let Micro::Write { file, place, from, fold, at } = *m else { return Err(Errno::INVAL) };
        let slot = self.slot(file)?;
        if let Some(fold) = fold
            && self.in_slot(m, t)
        {
            self.take_in_slot(fold.kind, from, t).await?;
            let to = self.place(&slot, place, self.taken_bytes())?;
            let (written, sum) = self.write_taken(t, slot.file, to, from).await?;
            self.wrote(file, written.off + written.len)?;
            self.set(Some(fold.to), sum)?;
            return self.set(at, written.off);
        }
        let (mut int, mut piece) = ([0; 8], std::mem::take(&mut self.piece));
        let src = self.source(from, &mut int)?;
        let to = self.place(&slot, place, src.len() as u64)?;
        let mut sum = fold.map(|f| Sum::new(f.kind));
        let written = write_summed(&mut sum, t, slot.file, to, src, &mut piece).await;
        self.piece = piece;
        let written = written?;
        self.wrote(file, written.off + written.len)?;
        if let (Some(fold), Some(sum)) = (fold, sum) {
            self.set(Some(fold.to), sum.value())?;
        }
        self.set(at, written.off)
    }

    async fn names<T: Target<File = F>>(&mut self, m: &Micro, t: &mut T) -> Done<()> {
        let p = self.program;
        match *m {
            Micro::Unlink { base, path } => t.unlink(base, p.string(path)).await,
            Micro::Rmdir { base, path } => t.rmdir(base, p.string(path)).await,
            Micro::Mkdir { base, path, mode } => t.mkdir(base, p.string(path), mode.into()).await,
            Micro::Rename { from_base, from, to_base, to, flags } => {
                t.rename(from_base, p.string(from), to_base, p.string(to), flags).await
            }
            Micro::Link { from_base, from, to_base, to, follow } => {
                let from = from.map_or(&b""[..], |from| p.string(from));
                t.link(from_base, from, to_base, p.string(to), follow).await
            }
            Micro::Symlink { target, base, path } => t.symlink(p.string(target), base, p.string(path)).await,
            Micro::SetAttr { base, path, nofollow, mode, size, atime_now, mtime_now } => {
                let size = size.map(|size| self.value(size)).transpose()?;
                span(size.unwrap_or(0), 0)?;
                let mut mask = SetAttrMask::empty();
                mask.set(SetAttrMask::MODE, mode.is_some());
                mask.set(SetAttrMask::SIZE, size.is_some());
                mask.set(SetAttrMask::ATIME_NOW, atime_now);
                mask.set(SetAttrMask::MTIME_NOW, mtime_now);
                let set = SetAttrBody {
                    mask: mask.bits(),
                    mode: mode.unwrap_or(0).into(),
                    size: size.unwrap_or(0),
                    ..SetAttrBody::default()
                };
                t.set_attr(base, path.map_or(&b""[..], |path| p.string(path)), nofollow, &set).await
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// The micro-ops that touch buffers and registers only.
    fn inner(&mut self, m: &Micro) -> Done<()> {
        match *m {
            Micro::Checksum { kind, of, to } => {
                let (mut sum, mut int, mut piece) = (Sum::new(kind), [0; 8], std::mem::take(&mut self.piece));
                let done = self.source(of, &mut int).map(|src| piece.each(&src, |_, part| sum.update(part)));
                self.piece = piece;
                done?;
                self.set(Some(to), sum.value())
            }
            Micro::Change { buf, off, change } => {
                let off = self.value(off)?;
                let mut buffer = self.take_buffer(buf)?;
                let mut piece = std::mem::take(&mut self.piece);
                let done = self.change(&mut buffer, off, change, &mut piece);
                self.piece = piece;
                self.put_buffer(buf, buffer)?;
                done
            }
            Micro::Load { to, buf, off, int } => {
                let off = self.value(off)?;
                let v = int.get(part(self.buffer(buf)?, off, int.width.bytes() as u64)?);
                self.set(Some(to), v)
            }
            Micro::Arith { to, a, op, b } => {
                let v = op.of(self.value(a)?, self.value(b)?);
                self.set(Some(to), v)
            }
            Micro::Fill { buf, from, append } => {
                let mut buffer = if append { self.take_buffer(buf)? } else { self.empty_buffer(buf)? };
                let done = self.fill(buf, &mut buffer, from);
                self.put_buffer(buf, buffer)?;
                done
            }
            Micro::Slice { buf, from, off, len } => self.slice(buf, from, self.value(off)?, self.value(len)?),
            Micro::Give { buf, to, count } => {
                let (bytes, room) = (self.buffer(buf)?, self.pool.slice(self.program.range(to))?);
                if bytes.len() > room.len() {
                    return Err(Errno::TOOBIG);
                }
                if !self.rehearsal {
                    room.copy_from(bytes);
                }
                let n = bytes.len() as u64;
                self.set(count, n)
            }
            Micro::Length { buf, to } => {
                let n = self.buffer(buf)?.len() as u64;
                self.set(Some(to), n)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn fill(&self, buf: BufSlot, buffer: &mut Vec<u8>, from: Bytes) -> Done<()> {
        let mut int = [0; 8];
        let src = self.source(from, &mut int)?;
        let (held, room) = (buffer.len(), self.program.capacity(buf) as usize);
        if src.len() > room.saturating_sub(held) {
            return Err(Errno::TOOBIG);
        }
        buffer.reserve_exact(room - held);
        buffer.resize(held + src.len(), 0);
        src.copy_to(0, &mut buffer[held..]);
        Ok(())
    }

    fn slice(&mut self, buf: BufSlot, from: BufSlot, off: u64, len: u64) -> Done<()> {
        if len > self.program.capacity(buf).into() {
            return Err(Errno::TOOBIG);
        }
        part(self.buffer(from)?, off, len)?;
        let (start, end) = (off as usize, (off + len) as usize);
        if buf == from {
            let mut buffer = self.take_buffer(buf)?;
            buffer.copy_within(start..end, 0);
            buffer.truncate(len as usize);
            return self.put_buffer(buf, buffer);
        }
        let mut buffer = self.empty_buffer(buf)?;
        buffer.extend_from_slice(part(self.buffer(from)?, off, len)?);
        self.put_buffer(buf, buffer)
    }

    fn change(&self, buffer: &mut [u8], off: u64, change: Change, piece: &mut Piece) -> Done<()> {
        let mut int = [0; 8];
        let mut with = |b: Bytes, f: fn(&mut u8, u8)| {
            let src = self.source(b, &mut int)?;
            let field = part_mut(buffer, off, src.len() as u64)?;
            piece.each(&src, |at, bytes| field[at..].iter_mut().zip(bytes).for_each(|(a, b)| f(a, *b)));
            Ok(())
        };
        match change {
            Change::Patch(b) => {
                let src = self.source(b, &mut int)?;
                src.copy_to(0, part_mut(buffer, off, src.len() as u64)?);
                Ok(())
            }
            Change::And(b) => with(b, |a, b| *a &= b),
            Change::Or(b) => with(b, |a, b| *a |= b),
            Change::Xor(b) => with(b, |a, b| *a ^= b),
            Change::Add(i, by) => {
                let by = self.value(by)?;
                let field = part_mut(buffer, off, i.width.bytes() as u64)?;
                let sum = i.put(i.get(field).wrapping_add(by));
                field.copy_from_slice(&sum[..i.width.bytes()]);
                Ok(())
            }
            Change::CompareSwap { expect, new } => {
                let mut other = [0; 8];
                let (expect, new) = (self.source(expect, &mut int)?, self.source(new, &mut other)?);
                if expect.len() != new.len() {
                    return Err(Errno::INVAL);
                }
                let field = part_mut(buffer, off, new.len() as u64)?;
                if !piece.equal(&expect, field) {
                    return Err(Errno::CANCELED);
                }
                new.copy_to(0, field);
                Ok(())
            }
        }
    }

    fn holds(&mut self, cond: Cond) -> Done<bool> {
        match cond {
            Cond::Compare(a, relation, b) => Ok(relation.holds(self.value(a)?, self.value(b)?)),
            Cond::Holds { buf, off, bytes } => {
                let off = self.value(off)?;
                let (mut int, mut piece) = ([0; 8], std::mem::take(&mut self.piece));
                let done = self.source(bytes, &mut int).and_then(|src| {
                    let there = part(self.buffer(buf)?, off, src.len() as u64);
                    Ok(there.is_ok_and(|there| piece.equal(&src, there)))
                });
                self.piece = piece;
                done
            }
        }
    }
}

/// `len` bytes of a buffer from `off` on; ERANGE when it ends before that.
fn part(bytes: &[u8], off: u64, len: u64) -> Done<&[u8]> {
    let end = off.checked_add(len).ok_or(Errno::RANGE)?;
    let (start, end) = (usize::try_from(off), usize::try_from(end));
    let (Ok(start), Ok(end)) = (start, end) else { return Err(Errno::RANGE) };
    bytes.get(start..end).ok_or(Errno::RANGE)
}

fn part_mut(bytes: &mut [u8], off: u64, len: u64) -> Done<&mut [u8]> {
    part(bytes, off, len)?;
    bytes.get_mut(off as usize..(off + len) as usize).ok_or(Errno::RANGE)
}
