//! A client without fused operations: it runs the expansion of a row micro-op by micro-op, each as a single operation,
//! and computes between them by itself. What the row's one command does must be the same.

use super::*;
use weldfs_ciscops::catalogue::{self, From, Micro as Fixed, Spot};
use weldfs_ciscops::functions::checksum::Kind;
use weldfs_ciscops::functions::{codec, crc32c};
use weldfs_ciscops::interp::CREATED;
use weldfs_ciscops::program::{self, *};
use weldfs_ciscops::{Access, Command, Modify, StatBody};
use zerocopy::FromBytes;

type Done<T> = Result<T, Errno>;

/// Where paths and operands of the single operations lie, behind those of the row.
const ARG_AT: u32 = 4 << 20;
const PATH_AT: u32 = ARG_AT - (64 << 10);

/// Makes what a row needs, opens its files, runs its steps, closes.
///
/// # Errors
/// What was to be made or opened before.
pub fn perform(m: &mut dyn Machine, row: &Row, planned: &Planned) -> Result<Answer, Errno> {
    planned.before.iter().try_for_each(|effect| make(m, effect, Ops::default()))?;
    let handles = open_all(m, &planned.opens)?;
    let mut client = Client { m, files: [None; 8], buffers: Default::default(), regs: [0; 8], shown: Vec::new() };
    let done = client.form(&planned.form, &handles);
    let shown = (row.view)(&std::mem::take(&mut client.shown));
    for h in handles {
        client.single(Op::Close { h })?;
    }
    let (status, results) = match done {
        Ok(results) => (0, results),
        Err(e) => (e.0, (0, 0)),
    };
    Ok(Answer { status, results, shown })
}

/// A file as this client keeps it.
#[derive(Clone, Copy)]
struct Opened {
    h: Handle,
    own: bool,
    /// Where its last write ended.
    end: u64,
}

struct Client<'m> {
    m: &'m mut dyn Machine,
    files: [Option<Opened>; 8],
    buffers: [Vec<u8>; 8],
    regs: [u64; 8],
    shown: Vec<u8>,
}

fn sum(kind: SumKind, bytes: &[u8]) -> u64 {
    let kind = match kind {
        SumKind::Crc32c => Kind::Crc32c,
        SumKind::Crc32 => Kind::Crc32,
        SumKind::Crc32cMasked => Kind::Crc32cMasked,
    };
    kind.of(bytes).into()
}

fn function(codec: Codec) -> codec::Codec {
    match codec {
        Codec::Lz4 => codec::Codec::Lz4,
        Codec::Zstd => codec::Codec::Zstd,
        Codec::Snappy => codec::Codec::Snappy,
    }
}

/// A program being stepped through: its payloads and rooms are this client's own memory.
struct Text<'p> {
    program: &'p Program,
    pools: Vec<Vec<u8>>,
}

impl Client<'_> {
    fn single(&mut self, op: Op) -> Done<(u64, u64)> {
        self.m.run(&Command::new(0, op)).ok()
    }

    fn path(&mut self, path: &[u8]) -> PoolRange {
        self.m.put(PATH_AT, path)
    }

    fn read(&mut self, h: Handle, off: u64, len: u64) -> Done<Vec<u8>> {
        let mut all = Vec::new();
        while (all.len() as u64) < len {
            let out = PoolRange::new(ARG_AT, (len - all.len() as u64).min(1 << 20) as u32);
            let (n, _) = self.single(Op::Read { h, at: At::Offset(off + all.len() as u64), out, watch: 0 })?;
            all.extend(self.m.take(PoolRange::new(ARG_AT, n as u32)));
            if n < out.len.into() {
                break;
            }
        }
        Ok(all)
    }

    fn write(&mut self, h: Handle, at: At, bytes: &[u8]) -> Done<(u64, u64)> {
        let src = self.m.put(ARG_AT, bytes);
        let (len, off) = self.single(Op::Write { h, at, src })?;
        Ok((off, off + len))
    }

    fn size(&mut self, h: Handle) -> Done<u64> {
        let out = PoolRange::new(ARG_AT, size_of::<StatBody>() as u32);
        self.single(Op::Stat { h, out })?;
        StatBody::read_from_bytes(&self.m.take(out)).map(|s| s.size).map_err(|_| Errno::IO)
    }

    fn form(&mut self, form: &Form, h: &[Handle]) -> Done<(u64, u64)> {
        match form {
            Form::One(single) => {
                let (op, rooms) = self.laid(single, h);
                let done = self.fixed(&op);
                rooms.into_iter().for_each(|range| self.shown.extend(self.m.take(range)));
                done
            }
            Form::Program(ins, body) => {
                let (body, mut ins) = (body(h)?, ins.iter());
                let pool = |p| {
                    let p = Pool(p as u8);
                    if body.is_output(p) {
                        vec![0; body.pool_len(p) as usize]
                    } else {
                        ins.next().cloned().unwrap_or_default()
                    }
                };
                let pools = (0..body.pools()).map(pool).collect();
                let mut text = Text { program: body.program(), pools };
                let done = self.program(&mut text);
                let outs = (0..body.pools()).filter(|p| body.is_output(Pool(*p as u8)));
                outs.for_each(|p| self.shown.extend(&text.pools[p]));
                done?;
                let [a, b] = body.program().results().map(|r| r.map_or(0, |r| self.regs[usize::from(r.0)]));
                Ok((a, b))
            }
            Form::Batch(items) => {
                let (mut lines, mut rooms, mut failed) = (Vec::new(), Vec::new(), 0);
                for single in items {
                    let (op, outs) = self.laid(single, h);
                    let cqe = self.m.run(&Command::new(0, op));
                    failed += u64::from(cqe.status != 0);
                    lines.extend(cqe.to_words().into_iter().flat_map(u64::to_le_bytes));
                    outs.into_iter().for_each(|range| rooms.extend(self.m.take(range)));
                }
                self.shown = [lines, rooms].concat();
                Ok((items.len() as u64, failed))
            }
            Form::Transaction(_, false) => Ok((0, 0)),
            Form::Transaction(writes, true) => {
                let mut total = 0;
                for (file, at, bytes) in writes {
                    let (from, to) = self.write(h[*file], *at, bytes)?;
                    total += to - from;
                }
                Ok((total, 0))
            }
        }
    }

    /// A single command with its operands in the pool, and its rooms.
    fn laid(&mut self, single: &Single, h: &[Handle]) -> (Op, Vec<PoolRange>) {
        let (mut pool, mut ranges, mut rooms) = (super::Pool::default(), Vec::new(), Vec::new());
        for range in &single.ranges {
            match range {
                Range::In(bytes) => ranges.push(pool.put(self.m, bytes)),
                Range::Out(len) => {
                    ranges.push(pool.put(self.m, &vec![0; *len as usize]));
                    rooms.extend(ranges.last());
                }
            }
        }
        ((single.op)(h, &ranges), rooms)
    }

    /// The expansion of an operation with an opcode of its own.
    fn fixed(&mut self, op: &Op) -> Done<(u64, u64)> {
        let Some(micros) = catalogue::expand(op) else { return self.single(*op) };
        let (mut scratch, mut folded, mut created, mut read, mut wrote) = (Vec::new(), 0u32, 0, 0, None);
        let mut file: Option<Opened> = None;
        let there = |file: Option<Opened>| file.ok_or(Errno::BADF);
        for micro in micros {
            match micro {
                Fixed::Open { base, flags, mode } => {
                    let (Op::OpenWriteClose { path, .. }
                    | Op::OpenReadClose { path, .. }
                    | Op::OpenReadWriteClose { path, .. }) = *op
                    else {
                        return Err(Errno::INVAL);
                    };
                    let (h, what) = self.single(Op::open(base, path, flags, mode))?;
                    created = what & CREATED;
                    file = Some(Opened { h: Handle::from_wire(h), own: true, end: 0 });
                }
                Fixed::Use { h, .. } => file = Some(Opened { h, own: false, end: 0 }),
                Fixed::Read { span, to, sum } => {
                    let bytes = self.read(there(file)?.h, span.off, span.len.into())?;
                    if to != catalogue::To::Scratch || sum {
                        read = bytes.len() as u64;
                    }
                    if span.whole && bytes.len() < span.len as usize {
                        return Err(Errno::NODATA);
                    }
                    if sum {
                        folded = crc32c(&bytes);
                    }
                    match to {
                        catalogue::To::Pool(range) => drop(self.m.put(range.off, &bytes)),
                        catalogue::To::Scratch => {
                            read = if matches!(op, Op::ReadModifyWrite { .. }) { bytes.len() as u64 } else { read };
                            scratch = padded(&bytes, 0, span.len as usize);
                        }
                        catalogue::To::Discard => {}
                    }
                }
                Fixed::Write { spot, from, sum } => {
                    let bytes = match from {
                        From::Pool(range) => self.m.take(range),
                        From::Scratch => scratch.clone(),
                        From::Sum => folded.to_le_bytes().to_vec(),
                    };
                    if sum {
                        folded = crc32c(&bytes);
                    }
                    let now = there(file)?;
                    let at = if let Spot::At(at) = spot { at } else { At::Offset(now.end) };
                    let (off, end) = self.write(now.h, at, &bytes)?;
                    wrote.get_or_insert((bytes.len() as u64, off));
                    file = Some(Opened { end, ..now });
                }
                Fixed::Change { modify, old } => {
                    self.m.put(old.off, &scratch[..old.len as usize]);
                    self.modify(&mut scratch, modify)?;
                }
                Fixed::Verify if scratch != folded.to_le_bytes() => return Err(Errno::BADMSG),
                Fixed::Verify => {}
                Fixed::Close => drop(self.single(Op::Close { h: there(file)?.h })?),
            }
        }
        let (len, off) = wrote.unwrap_or_default();
        Ok(match op {
            Op::OpenWriteClose { .. } => (len, off | created),
            Op::OpenReadWriteClose { .. } => (read, off | created),
            Op::AppendChecksumWrite { .. } => (off, folded.into()),
            Op::ReadChecksumVerify { .. } => (read, folded.into()),
            _ => (read, 0),
        })
    }

    fn modify(&mut self, field: &mut [u8], modify: Modify) -> Done<()> {
        match modify {
            Modify::Patch(r) => field.copy_from_slice(&self.m.take(r)),
            Modify::Add(by) => {
                let old = u64::from_le_bytes(padded(field, 0, 8).try_into().map_err(|_| Errno::INVAL)?);
                let n = field.len();
                field.copy_from_slice(&old.wrapping_add(by).to_le_bytes()[..n]);
            }
            Modify::Xor(r) => self.m.take(r).iter().zip(field).for_each(|(a, b)| *b ^= a),
            Modify::XorImm(imm) => imm.iter().zip(field).for_each(|(a, b)| *b ^= a),
            Modify::CompareSwap { expect, .. } if self.m.take(expect) != field => return Err(Errno::CANCELED),
            Modify::CompareSwap { new, .. } => field.copy_from_slice(&self.m.take(new)),
        }
        Ok(())
    }

    fn program(&mut self, text: &mut Text<'_>) -> Done<()> {
        let (program, mut index) = (text.program, 0);
        let done = loop {
            let Some(micro) = program.micros().get(index) else { break Ok(()) };
            match self.step(text, micro) {
                Ok(skip) => index = skip.map_or(usize::MAX, |n| index + 1 + n),
                Err(e) => break Err(e),
            }
        };
        for file in std::mem::take(&mut self.files).into_iter().flatten().filter(|f| f.own) {
            self.single(Op::Close { h: file.h })?;
        }
        done
    }

    fn value(&self, v: Value) -> u64 {
        match v {
            Value::Imm(v) => v,
            Value::Reg(r) => self.regs[usize::from(r.0)],
        }
    }

    fn set(&mut self, r: Option<Reg>, v: u64) {
        if let Some(r) = r {
            self.regs[usize::from(r.0)] = v;
        }
    }

    fn bytes(&self, text: &Text<'_>, b: Bytes) -> Vec<u8> {
        match b {
            Bytes::Buffer(b) => self.buffers[usize::from(b.0)].clone(),
            Bytes::Pool(p) => text.pools[usize::from(p.0)].clone(),
            Bytes::Literal(s) => text.program.string(s).to_vec(),
            Bytes::Int(r, int) => {
                let (v, n) = (self.regs[usize::from(r.0)], int.width.bytes());
                if int.order == Order::Little { v.to_le_bytes()[..n].into() } else { v.to_be_bytes()[8 - n..].into() }
            }
        }
    }

    fn file(&self, f: FileSlot) -> Done<Opened> {
        self.files[usize::from(f.0)].ok_or(Errno::BADF)
    }

    fn stored(&mut self, f: FileSlot, place: Place, bytes: &[u8]) -> Done<u64> {
        let file = self.file(f)?;
        let at = match place {
            Place::At(v) => At::Offset(self.value(v)),
            Place::End => At::End,
            Place::After => At::Offset(file.end),
        };
        let mut first = None;
        for piece in bytes.chunks(1 << 20).chain(bytes.is_empty().then_some(&[][..])) {
            let at = self.files[usize::from(f.0)].filter(|_| first.is_some()).map_or(at, |f| At::Offset(f.end));
            let (off, end) = self.write(file.h, at, piece)?;
            first.get_or_insert(off);
            self.files[usize::from(f.0)] = Some(Opened { end, ..file });
        }
        first.ok_or(Errno::IO)
    }

    /// Runs one micro-op; how many are passed by after it, `None` when the program is over.
    fn step(&mut self, text: &mut Text<'_>, micro: &Micro) -> Done<Option<usize>> {
        match *micro {
            Micro::Open { file, base, path, flags, mode, created } => {
                let path = self.path(text.program.string(path));
                let (h, what) = self.single(Op::open(base, path, flags, mode.into()))?;
                self.files[usize::from(file.0)] = Some(Opened { h: Handle::from_wire(h), own: true, end: 0 });
                self.set(created, u64::from(what & CREATED != 0));
            }
            Micro::Use { file, h, need } => {
                let empty = PoolRange::new(ARG_AT, 0);
                if need.contains(Access::READ) {
                    self.single(Op::Read { h, at: At::Offset(0), out: empty, watch: 0 })?;
                }
                if need.contains(Access::WRITE) {
                    self.single(Op::Write { h, at: At::Offset(0), src: empty })?;
                }
                self.files[usize::from(file.0)] = Some(Opened { h, own: false, end: 0 });
            }
            Micro::Read { file, off, len, to, whole, pad, fold, count } => {
                let (off, len) = (self.value(off), self.value(len));
                let mut bytes = self.read(self.file(file)?.h, off, len)?;
                let n = bytes.len() as u64;
                self.set(fold.map(|f| f.to), fold.map_or(0, |f| sum(f.kind, &bytes)));
                self.set(count, n);
                match to {
                    program::To::Nowhere => {}
                    program::To::Pool(p) => text.pools[usize::from(p.0)][..bytes.len()].copy_from_slice(&bytes),
                    program::To::Buffer(b) => {
                        bytes.resize(if pad { len } else { n } as usize, 0);
                        self.buffers[usize::from(b.0)] = bytes;
                    }
                }
                if whole && n < len {
                    return Err(Errno::NODATA);
                }
            }
            Micro::Write { file, place, from, fold, at } => {
                let bytes = self.bytes(text, from);
                let off = self.stored(file, place, &bytes)?;
                self.set(fold.map(|f| f.to), fold.map_or(0, |f| sum(f.kind, &bytes)));
                self.set(at, off);
            }
            Micro::Size { file, to } => {
                let size = self.size(self.file(file)?.h)?;
                self.set(Some(to), size);
            }
            Micro::CopyRange { from, off, len, max, to, place, count } => {
                let (off, asked) = (self.value(off), self.value(len));
                if matches!(len, Value::Reg(_)) && asked > max.into() {
                    return Err(Errno::TOOBIG);
                }
                let bytes = self.read(self.file(from)?.h, off, asked)?;
                self.stored(to, place, &bytes)?;
                self.set(count, bytes.len() as u64);
            }
            Micro::Guard { cond, otherwise } => return self.guard(text, cond, otherwise),
            Micro::Close { file } => {
                let file = self.files[usize::from(file.0)].take().filter(|f| f.own);
                file.map_or(Ok((0, 0)), |f| self.single(Op::Close { h: f.h }))?;
            }
            Micro::Scan { .. } => self.scan(text, micro)?,
            Micro::Sync => {}
            _ => self.inner(text, micro)?,
        }
        Ok(Some(0))
    }

    fn guard(&mut self, text: &Text<'_>, cond: Cond, otherwise: Else) -> Done<Option<usize>> {
        let holds = match cond {
            Cond::Compare(a, Relation::Eq, b) => self.value(a) == self.value(b),
            Cond::Compare(a, Relation::Ne, b) => self.value(a) != self.value(b),
            Cond::Compare(a, Relation::Lt, b) => self.value(a) < self.value(b),
            Cond::Compare(a, Relation::Le, b) => self.value(a) <= self.value(b),
            Cond::Compare(a, Relation::Gt, b) => self.value(a) > self.value(b),
            Cond::Compare(a, Relation::Ge, b) => self.value(a) >= self.value(b),
            Cond::Holds { buf, off, bytes } => {
                let bytes = self.bytes(text, bytes);
                part(&self.buffers[usize::from(buf.0)], self.value(off), bytes.len()) == bytes
            }
        };
        match otherwise {
            _ if holds => Ok(Some(0)),
            Else::Fail(e) => Err(e),
            Else::End => Ok(None),
            Else::Skip(n) => Ok(Some(n.into())),
        }
    }

    /// The records of a log, by the form that the micro-op states.
    fn scan(&mut self, text: &mut Text<'_>, micro: &Micro) -> Done<()> {
        let Micro::Scan { file, off, len, record, offsets, count, end, .. } = *micro else { return Err(Errno::INVAL) };
        let (start, len) = (self.value(off), self.value(len));
        let log = self.read(self.file(file)?.h, start, len)?;
        let (head, mut at, mut starts) = (usize::from(record.head), 0, Vec::new());
        let room = offsets.map_or(usize::MAX, |p| text.pools[usize::from(p.0)].len() / 8);
        while starts.len() < room {
            let Some(bytes) = log.get(at..at + head).filter(|h| h.iter().any(|b| *b != 0)) else { break };
            let payload = record.len.get(&bytes[usize::from(record.len_at)..]) as usize;
            let Some(whole) = at.checked_add(head + payload).and_then(|to| log.get(at..to)) else { break };
            let trailer = record.sum_at.is_none();
            let stored = match record.sum_at {
                Some(sum_at) => whole[usize::from(sum_at)..usize::from(sum_at) + 4].to_vec(),
                None => padded(&log, (at + whole.len()) as u64, 4),
            };
            let int = Int { width: Width::W4, order: record.sum_order };
            if int.get(&stored) != sum(record.sum, &whole[usize::from(record.covers)..]) {
                break;
            }
            starts.push(start + at as u64);
            at += whole.len() + if trailer { 4 } else { 0 };
        }
        if let Some(p) = offsets {
            let bytes: Vec<u8> = starts.iter().flat_map(|at| at.to_le_bytes()).collect();
            text.pools[usize::from(p.0)][..bytes.len()].copy_from_slice(&bytes);
        }
        self.set(count, starts.len() as u64);
        self.set(end, start + at as u64);
        Ok(())
    }

    fn inner(&mut self, text: &mut Text<'_>, micro: &Micro) -> Done<()> {
        match *micro {
            Micro::Checksum { kind, of, to } => {
                let v = sum(kind, &self.bytes(text, of));
                self.set(Some(to), v);
            }
            Micro::Change { buf, off, change } => self.change(text, buf, self.value(off) as usize, change)?,
            Micro::Load { to, buf, off, int } => {
                let v = int.get(part(&self.buffers[usize::from(buf.0)], self.value(off), int.width.bytes()));
                self.set(Some(to), v);
            }
            Micro::Arith { to, a, op, b } => {
                let (a, b) = (self.value(a), self.value(b));
                let v = match op {
                    Arith::Add => a.wrapping_add(b),
                    Arith::Sub => a.wrapping_sub(b),
                    Arith::And => a & b,
                    Arith::Min => a.min(b),
                    other => other.of(a, b),
                };
                self.set(Some(to), v);
            }
            Micro::Fill { buf, from, append } => {
                let held = if append { self.buffers[usize::from(buf.0)].clone() } else { Vec::new() };
                self.buffers[usize::from(buf.0)] = [held, self.bytes(text, from)].concat();
            }
            Micro::Slice { buf, from, off, len } => {
                let (off, len) = (self.value(off) as usize, self.value(len) as usize);
                let bytes = self.buffers[usize::from(from.0)].get(off..off + len).ok_or(Errno::RANGE)?.to_vec();
                self.buffers[usize::from(buf.0)] = bytes;
            }
            Micro::Length { buf, to } => self.set(Some(to), self.buffers[usize::from(buf.0)].len() as u64),
            Micro::Give { buf, to, count } => {
                let bytes = self.buffers[usize::from(buf.0)].clone();
                let room = text.pools[usize::from(to.0)].get_mut(..bytes.len()).ok_or(Errno::TOOBIG)?;
                room.copy_from_slice(&bytes);
                self.set(count, bytes.len() as u64);
            }
            Micro::Transform { buf, from, how } => {
                let (bytes, room) = (self.buffers[usize::from(from.0)].clone(), text.program.capacity(buf));
                self.buffers[usize::from(buf.0)] = self.transform(bytes, room as usize, how)?;
            }
            Micro::Kernel { buf, from, name, params, .. } => {
                let kernel = std::str::from_utf8(text.program.string(name)).map_err(|_| Errno::INVAL)?;
                let mut run = (weldfs_kernels::find(kernel).ok_or(Errno::NOENT)?.make)();
                let word = |w: &[u8]| w.try_into().map(u32::from_le_bytes).map_err(|_| Errno::INVAL);
                let params = text.program.string(params).chunks(4).map(word).collect::<Done<Vec<u32>>>()?;
                run.reset(&params).map_err(|e| e.errno())?;
                let input = self.buffers[usize::from(from.0)].clone();
                let made = weldfs_fpga::kernel::run(run.as_mut(), &input, 4096, 4096).map_err(|e| e.errno())?.0;
                if made.len() > text.program.capacity(buf) as usize {
                    return Err(Errno::TOOBIG);
                }
                self.buffers[usize::from(buf.0)] = made;
            }
            _ => self.names(text, micro)?,
        }
        Ok(())
    }

    fn change(&mut self, text: &Text<'_>, buf: BufSlot, off: usize, change: Change) -> Done<()> {
        let mut buffer = self.buffers[usize::from(buf.0)].clone();
        let mut zip = |with: Vec<u8>, f: fn(u8, u8) -> u8| -> Done<()> {
            let field = buffer.get_mut(off..off + with.len()).ok_or(Errno::RANGE)?;
            field.iter_mut().zip(with).for_each(|(a, b)| *a = f(*a, b));
            Ok(())
        };
        match change {
            Change::Patch(b) => zip(self.bytes(text, b), |_, b| b)?,
            Change::And(b) => zip(self.bytes(text, b), |a, b| a & b)?,
            Change::Or(b) => zip(self.bytes(text, b), |a, b| a | b)?,
            Change::Xor(b) => zip(self.bytes(text, b), |a, b| a ^ b)?,
            Change::Add(int, by) => {
                let field = buffer.get_mut(off..off + int.width.bytes()).ok_or(Errno::RANGE)?;
                let new = int.put(int.get(field).wrapping_add(self.value(by)));
                field.copy_from_slice(&new[..field.len()]);
            }
            Change::CompareSwap { expect, new } => {
                let (expect, new) = (self.bytes(text, expect), self.bytes(text, new));
                if buffer.get(off..off + new.len()).ok_or(Errno::RANGE)? != expect {
                    return Err(Errno::CANCELED);
                }
                buffer[off..off + new.len()].copy_from_slice(&new);
            }
        }
        self.buffers[usize::from(buf.0)] = buffer;
        Ok(())
    }

    fn transform(&mut self, mut bytes: Vec<u8>, room: usize, how: Transform) -> Done<Vec<u8>> {
        match how {
            Transform::Compress(codec) => function(codec).compress(&bytes, room).map_err(|_| Errno::TOOBIG),
            Transform::Decompress(codec) => function(codec).decompress(&bytes, room).map_err(|_| Errno::BADMSG),
            Transform::EncryptUnits { unit_log, first, .. } => {
                let done = unit_key().encrypt_units(self.value(first), 1 << unit_log, &mut bytes);
                done.map(|()| bytes).map_err(|_| Errno::INVAL)
            }
            Transform::DecryptUnits { unit_log, first, .. } => {
                let done = unit_key().decrypt_units(self.value(first), 1 << unit_log, &mut bytes);
                done.map(|()| bytes).map_err(|_| Errno::INVAL)
            }
            Transform::Seal { .. } => {
                let mut record = Vec::new();
                record_key().seal([9; 12], b"", &bytes, &mut record).map_err(|_| Errno::INVAL)?;
                Ok(record)
            }
            Transform::Open { .. } => {
                let mut plain = Vec::new();
                record_key().open(b"", &bytes, &mut plain).map_err(|_| Errno::BADMSG)?;
                Ok(plain)
            }
        }
    }

    fn names(&mut self, text: &Text<'_>, micro: &Micro) -> Done<()> {
        let string = |s: Str| text.program.string(s).to_vec();
        let mut place = super::Pool::default();
        let op = match *micro {
            Micro::Mkdir { base, path, mode } => {
                Op::Mkdir { base, path: place.put(self.m, &string(path)), mode: mode.into() }
            }
            Micro::Symlink { target, base, path } => {
                let (path, target) = (place.put(self.m, &string(path)), place.put(self.m, &string(target)));
                Op::Symlink { base, path, target }
            }
            Micro::Rename { from_base, from, to_base, to, flags } => {
                let (from, to) = (place.put(self.m, &string(from)), place.put(self.m, &string(to)));
                Op::Rename { from_base, from, to_base, to, flags }
            }
            _ => return Err(Errno::NOSYS),
        };
        self.single(op).map(drop)
    }
}
