//! A program does what a client does that runs its micro-ops one by one as single commands, and computes between them
//! by itself: same files, same bytes handed back, same results, the same step at fault.

use crate::support::micros::*;
use crate::support::*;
use proptest::prelude::*;
use weldfs_ciscops::program::*;
use weldfs_ciscops::*;
use weldfs_functions::crc32c;

type Done<T> = Result<T, Errno>;

/// A file as the client keeps it: its handle, whether it opened it to append, where its last write ended.
#[derive(Clone, Copy)]
struct Opened {
    h: Handle,
    own: bool,
    end: Option<u64>,
}

/// A client without programs.
struct Client<'t> {
    toy: &'t mut Toy,
    program: &'t Program,
    files: [Option<Opened>; 8],
    buffers: [Vec<u8>; 8],
    regs: [u64; 8],
}

fn done(o: Outcome) -> Done<(u64, u64)> {
    if o.is_ok() { Ok((o.result, o.result2)) } else { Err(Errno(o.status)) }
}

fn part(bytes: &[u8], off: u64, len: usize) -> Done<&[u8]> {
    let start = usize::try_from(off).map_err(|_| Errno::RANGE)?;
    bytes.get(start..start.checked_add(len).ok_or(Errno::RANGE)?).ok_or(Errno::RANGE)
}

fn sum(kind: SumKind, bytes: &[u8]) -> u64 {
    let crc = crc32c(bytes);
    match kind {
        SumKind::Crc32c => crc.into(),
        SumKind::Crc32cMasked => crc.rotate_left(17).wrapping_add(0xa282_ead8).into(),
        SumKind::Crc32 => crc32(bytes),
    }
}

/// CRC-32 by its definition, bit by bit.
fn crc32(bytes: &[u8]) -> u64 {
    let bit = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
    let crc = bytes.iter().fold(u32::MAX, |crc, b| (0..8).fold(crc ^ u32::from(*b), |crc, _| bit(crc)));
    (!crc).into()
}

impl Client<'_> {
    fn value(&self, v: Value) -> u64 {
        match v {
            Value::Imm(v) => v,
            Value::Reg(r) => self.regs[r.0 as usize],
        }
    }

    fn bytes(&self, b: Bytes) -> Vec<u8> {
        match b {
            Bytes::Buffer(b) => self.buffers[b.0 as usize].clone(),
            Bytes::Pool(p) => {
                let r = self.program.range(p);
                self.toy.get(r.off, r.len as usize)
            }
            Bytes::Literal(s) => self.program.string(s).to_vec(),
            Bytes::Int(r, int) => {
                let v = self.regs[r.0 as usize];
                let n = int.width.bytes();
                match int.order {
                    Order::Little => v.to_le_bytes()[..n].to_vec(),
                    Order::Big => v.to_be_bytes()[8 - n..].to_vec(),
                }
            }
        }
    }

    fn set(&mut self, r: Option<Reg>, v: u64) {
        if let Some(r) = r {
            self.regs[r.0 as usize] = v;
        }
    }

    fn path(&self, s: Str) -> PoolRange {
        self.toy.put(PATH_AT, self.program.string(s))
    }

    fn read(&mut self, f: FileSlot, off: u64, len: u64) -> Done<Vec<u8>> {
        let h = self.files[f.0 as usize].unwrap().h;
        let out = PoolRange::new(ARG_AT, len as u32);
        let n = done(self.toy.run(Op::Read { h, at: At::Offset(off), out, watch: 0 }))?.0;
        Ok(self.toy.get(ARG_AT, n as usize))
    }

    fn write(&mut self, f: FileSlot, place: Place, bytes: &[u8]) -> Done<u64> {
        let file = self.files[f.0 as usize].unwrap();
        let at = match place {
            Place::At(v) => At::Offset(self.value(v)),
            Place::End => At::End,
            Place::After => At::Offset(file.end.unwrap()),
        };
        let src = self.toy.put(ARG_AT, bytes);
        let (len, off) = done(self.toy.run(Op::Write { h: file.h, at, src }))?;
        self.files[f.0 as usize] = Some(Opened { end: Some(off + len), ..file });
        Ok(off)
    }

    fn change(&mut self, buf: BufSlot, off: u64, change: Change) -> Done<()> {
        let mut buffer = self.buffers[buf.0 as usize].clone();
        let mut zip = |with: Vec<u8>, f: fn(u8, u8) -> u8| -> Done<()> {
            part(&buffer, off, with.len())?;
            with.iter().enumerate().for_each(|(i, b)| buffer[off as usize + i] = f(buffer[off as usize + i], *b));
            Ok(())
        };
        match change {
            Change::Patch(b) => zip(self.bytes(b), |_, b| b)?,
            Change::And(b) => zip(self.bytes(b), |a, b| a & b)?,
            Change::Or(b) => zip(self.bytes(b), |a, b| a | b)?,
            Change::Xor(b) => zip(self.bytes(b), |a, b| a ^ b)?,
            Change::Add(int, by) => {
                let old = integer(part(&buffer, off, int.width.bytes())?, int.order);
                let by = self.value(by);
                self.regs[7] = old.wrapping_add(by);
                let new = self.bytes(Bytes::Int(Reg(7), int));
                buffer[off as usize..off as usize + new.len()].copy_from_slice(&new);
            }
            Change::CompareSwap { expect, new } => {
                let (expect, new) = (self.bytes(expect), self.bytes(new));
                if expect.len() != new.len() {
                    return Err(Errno::INVAL);
                }
                if part(&buffer, off, new.len())? != expect {
                    return Err(Errno::CANCELED);
                }
                let off = off as usize;
                buffer[off..off + new.len()].copy_from_slice(&new);
            }
        }
        self.buffers[buf.0 as usize] = buffer;
        Ok(())
    }

    /// Runs one micro-op; how many are passed by after it, `None` when the program is over.
    fn step(&mut self, m: &Micro) -> Done<Option<usize>> {
        match *m {
            Micro::Open { file, path, flags, created, .. } => {
                let name = self.program.string(path).to_vec();
                let there = self.toy.state.names.contains_key(&name);
                let h = self.toy.open(&name, flags)?;
                self.files[file.0 as usize] = Some(Opened { h, own: true, end: None });
                self.set(created, u64::from(!there));
            }
            Micro::Use { file, h, need } => {
                let empty = PoolRange::new(ARG_AT, 0);
                if need.contains(Access::READ) {
                    done(self.toy.run(Op::Read { h, at: At::Offset(0), out: empty, watch: 0 }))?;
                }
                if need.contains(Access::WRITE) {
                    done(self.toy.run(Op::Write { h, at: At::Offset(0), src: empty }))?;
                }
                self.files[file.0 as usize] = Some(Opened { h, own: false, end: None });
            }
            Micro::Read { file, off, len, to, whole, pad, fold, count } => {
                let (off, len) = (self.value(off), self.value(len));
                let room = match to {
                    To::Nowhere => limits::PROGRAM_READ_MAX,
                    To::Buffer(_) => CAPACITY.into(),
                    To::Pool(p) => self.program.range(p).len.into(),
                };
                if len > room {
                    return Err(Errno::TOOBIG);
                }
                let mut bytes = self.read(file, off, len)?;
                self.set(fold.map(|f| f.to), fold.map_or(0, |f| sum(f.kind, &bytes)));
                let n = bytes.len() as u64;
                self.set(count, n);
                match to {
                    To::Nowhere => {}
                    To::Pool(p) => drop(self.toy.put(self.program.range(p).off, &bytes)),
                    To::Buffer(b) => {
                        bytes.resize(if pad { len } else { n } as usize, 0);
                        self.buffers[b.0 as usize] = bytes;
                    }
                }
                if whole && n < len {
                    return Err(Errno::NODATA);
                }
            }
            Micro::Write { file, place, from, fold, at } => {
                let bytes = self.bytes(from);
                let off = self.write(file, place, &bytes)?;
                self.set(fold.map(|f| f.to), fold.map_or(0, |f| sum(f.kind, &bytes)));
                self.set(at, off);
            }
            Micro::Size { file, to } => {
                let h = self.files[file.0 as usize].unwrap().h;
                let size = self.toy.size_behind(h);
                self.set(Some(to), size);
            }
            Micro::Truncate { file, size } => {
                let (h, size) = (self.files[file.0 as usize].unwrap().h, self.value(size));
                done(self.toy.run(Op::Truncate { h, size }))?;
            }
            Micro::CopyRange { .. } => self.copy_range(m)?,
            Micro::Guard { cond, otherwise } => return self.guard(cond, otherwise),
            Micro::Close { file } => {
                let file = self.files[file.0 as usize].take().unwrap();
                if file.own {
                    self.toy.run(Op::Close { h: file.h });
                }
            }
            Micro::Sync => {}
            _ => self.other(m)?,
        }
        Ok(Some(0))
    }

    fn copy_range(&mut self, m: &Micro) -> Done<()> {
        let Micro::CopyRange { from, off, len, max, to, place, count } = *m else { unreachable!() };
        let (at, n) = (self.value(off), self.value(len));
        if matches!(len, Value::Reg(_)) && n > max.into() {
            return Err(Errno::TOOBIG);
        }
        // A single read checks the range, and says what is there; longer ones than the toy's files are all alike.
        let bytes = self.read(from, at, n.min(1 << 12))?;
        let (a, b) = (self.files[from.0 as usize].unwrap().h, self.files[to.0 as usize].unwrap());
        let target = match place {
            Place::At(v) if !self.toy.appends(b.h) => self.value(v),
            Place::After => b.end.unwrap(),
            _ => self.toy.size_behind(b.h),
        };
        if matches!(place, Place::At(v) if self.value(v) > i64::MAX as u64) {
            return Err(Errno::INVAL);
        }
        let len = bytes.len() as u64;
        if self.toy.same_file(a, b.h) && target < at + len && at < target + len {
            return Err(Errno::INVAL);
        }
        if bytes.is_empty() {
            self.files[to.0 as usize] = Some(Opened { end: Some(target), ..b });
        } else {
            self.write(to, place, &bytes)?;
        }
        self.set(count, len);
        Ok(())
    }

    fn guard(&mut self, cond: Cond, otherwise: Else) -> Done<Option<usize>> {
        let holds = match cond {
            Cond::Compare(a, relation, b) => {
                let order = self.value(a).cmp(&self.value(b));
                match relation {
                    Relation::Eq => order.is_eq(),
                    Relation::Ne => order.is_ne(),
                    Relation::Lt => order.is_lt(),
                    Relation::Le => order.is_le(),
                    Relation::Gt => order.is_gt(),
                    Relation::Ge => order.is_ge(),
                }
            }
            Cond::Holds { buf, off, bytes } => {
                let bytes = self.bytes(bytes);
                let off = self.value(off);
                part(&self.buffers[buf.0 as usize], off, bytes.len()).is_ok_and(|there| there == bytes)
            }
        };
        match otherwise {
            _ if holds => Ok(Some(0)),
            Else::Fail(e) => Err(e),
            Else::End => Ok(None),
            Else::Skip(n) => Ok(Some(n.into())),
        }
    }

    fn other(&mut self, m: &Micro) -> Done<()> {
        match *m {
            Micro::Checksum { kind, of, to } => {
                let v = sum(kind, &self.bytes(of));
                self.set(Some(to), v);
            }
            Micro::Change { buf, off, change } => self.change(buf, self.value(off), change)?,
            Micro::Load { to, buf, off, int } => {
                let off = self.value(off);
                let v = integer(part(&self.buffers[buf.0 as usize], off, int.width.bytes())?, int.order);
                self.set(Some(to), v);
            }
            Micro::Arith { to, a, op, b } => {
                let v = arithmetic(op, self.value(a), self.value(b));
                self.set(Some(to), v);
            }
            Micro::Fill { buf, from, append } => {
                let held = if append { self.buffers[buf.0 as usize].clone() } else { Vec::new() };
                let bytes = [held, self.bytes(from)].concat();
                if bytes.len() > CAPACITY as usize {
                    return Err(Errno::TOOBIG);
                }
                self.buffers[buf.0 as usize] = bytes;
            }
            Micro::Slice { buf, from, off, len } => {
                let (off, len) = (self.value(off), self.value(len));
                if len > CAPACITY.into() {
                    return Err(Errno::TOOBIG);
                }
                self.buffers[buf.0 as usize] = part(&self.buffers[from.0 as usize], off, len as usize)?.to_vec();
            }
            Micro::Length { buf, to } => {
                let n = self.buffers[usize::from(buf.0)].len() as u64;
                self.set(Some(to), n);
            }
            Micro::Give { buf, to, count } => {
                let (bytes, range) = (self.buffers[buf.0 as usize].clone(), self.program.range(to));
                if bytes.len() > range.len as usize {
                    return Err(Errno::TOOBIG);
                }
                self.toy.put(range.off, &bytes);
                self.set(count, bytes.len() as u64);
            }
            _ => self.names(m)?,
        }
        Ok(())
    }

    fn names(&mut self, m: &Micro) -> Done<()> {
        let base = Handle::ROOT;
        let second = |client: &Self, s: Str| client.toy.put(PATH_AT + 4096, client.program.string(s));
        let op = match *m {
            Micro::Unlink { path, .. } => Op::Unlink { base, path: self.path(path) },
            Micro::Rmdir { path, .. } => Op::Rmdir { base, path: self.path(path) },
            Micro::Mkdir { path, mode, .. } => Op::Mkdir { base, path: self.path(path), mode: mode.into() },
            Micro::Rename { from, to, flags, .. } => {
                Op::Rename { from_base: base, from: self.path(from), to_base: base, to: second(self, to), flags }
            }
            Micro::Link { from, to, follow, .. } => {
                let from = from.map_or(PoolRange::EMPTY, |from| self.path(from));
                Op::Link { from_base: base, from, to_base: base, to: second(self, to), follow }
            }
            Micro::Symlink { target, path, .. } => {
                Op::Symlink { base, path: self.path(path), target: second(self, target) }
            }
            Micro::SetAttr { path, nofollow, size, .. } => {
                use zerocopy::IntoBytes;
                let mut set = SetAttrBody::default();
                if let Some(size) = size {
                    (set.mask, set.size) = (SetAttrMask::SIZE.bits(), self.value(size));
                }
                let set = self.toy.put(ARG_AT, set.as_bytes());
                Op::SetAttrPath { base, path: self.path(path.unwrap()), nofollow, set }
            }
            _ => unreachable!("{m:?}"),
        };
        done(self.toy.run(op)).map(drop)
    }

    /// Micro-ops passed, and the error of the one that failed.
    fn run(&mut self) -> (usize, Option<Errno>) {
        let mut index = 0;
        while let Some(m) = self.program.micros().get(index) {
            match self.step(m) {
                Ok(Some(skip)) => index += 1 + skip,
                Ok(None) => return (index + 1, None),
                Err(e) => return (index, Some(e)),
            }
        }
        (self.program.micros().len(), None)
    }
}

fn integer(bytes: &[u8], order: Order) -> u64 {
    let mut bytes = bytes.to_vec();
    if order == Order::Little {
        bytes.reverse();
    }
    bytes.iter().fold(0, |v, b| v << 8 | u64::from(*b))
}

fn arithmetic(op: Arith, a: u64, b: u64) -> u64 {
    match op {
        Arith::Add => a.wrapping_add(b),
        Arith::Sub => a.wrapping_sub(b),
        Arith::Mul => a.wrapping_mul(b),
        Arith::And => a & b,
        Arith::Or => a | b,
        Arith::Xor => a ^ b,
        Arith::Shl => (u128::from(a) << b.min(64)) as u64,
        Arith::Shr => (u128::from(a) >> b.min(64)) as u64,
        Arith::Min => std::cmp::min(a, b),
        Arith::Max => std::cmp::max(a, b),
    }
}

fn twins(content: &[u8], src: &[u8]) -> (Toy, Toy) {
    let make = || {
        let mut toy = Toy::new();
        let h = toy.open(b"a", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE).unwrap();
        assert_eq!(h, HANDLE);
        let data = toy.put(SRC_AT, content);
        toy.run(Op::Write { h, at: At::Offset(0), src: data });
        toy.pool.slice(PoolRange::new(0, POOL)).unwrap().zero();
        toy.put(IN[0].off, &src[..200]);
        toy.put(IN[1].off, &src[..40]);
        toy
    };
    (make(), make())
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 1 << 20, ..ProptestConfig::with_cases(6000) })]

    #[test]
    fn a_program_equals_its_steps_run_as_single_ops(
        content in prop::collection::vec(any::<u8>(), 0..300),
        src in prop::collection::vec(any::<u8>(), 200),
        random in prop::collection::vec(any_micro(), 1..7),
        mode in prop::sample::select(vec![TxnMode::Default, TxnMode::Macro, TxnMode::Micro]),
    ) {
        let Ok(body) = program_of(&random) else { return Err(TestCaseError::reject("not a program")) };
        let (mut one, mut many) = twins(&content, &src);
        let before = one.state.clone();
        let outcome = one.run_program(&body, &RANGES, mode);
        let bytes = body.bind(&RANGES).unwrap();
        let program = Program::decode(&bytes, POOL).unwrap();
        let mut client = Client {
            toy: &mut many,
            program: &program,
            files: [None; 8],
            buffers: Default::default(),
            regs: [0; 8],
        };
        let (passed, failure) = client.run();
        let results = (client.regs[0], client.regs[1]);
        prop_assert_eq!(outcome.status, failure.map_or(0, |e| e.0), "{:?}", program.micros());
        prop_assert_eq!((outcome.result, outcome.result2), results);
        for range in OUT {
            let len = range.len as usize;
            prop_assert_eq!(one.get(range.off, len), many.get(range.off, len), "bytes handed back");
        }
        if failure.is_none() {
            prop_assert_eq!(one.state.tree(), many.state.tree());
            prop_assert_eq!((outcome.micro_done as usize, outcome.micro_failed), (passed, 0));
            return Ok(());
        }
        prop_assert_eq!(outcome.micro_failed as usize, passed + 1);
        if mode == TxnMode::Micro {
            prop_assert_eq!(one.state.tree(), many.state.tree(), "the steps before the failure stand");
            prop_assert_eq!(outcome.micro_done as usize, passed);
        } else {
            prop_assert_eq!(one.state, before, "a failed MacroTx leaves nothing");
            prop_assert_eq!(outcome.micro_done, 0);
        }
    }
}
