//! Random small programs.

use weldfs_ciscops::Access;
use weldfs_ciscops::program::*;

use super::*;

/// Where bodies lie.
const BODY: u32 = 240 << 10;

/// A program, or nothing that does anything where what was put together is none.
pub fn program(r: &mut Random, client: &Client) -> Op {
    let mut p = Parts::new(client);
    p.file(r);
    for _ in 0..1 + r.below(7) {
        p.step(r);
    }
    let result = r.one_of(&p.registers);
    p.b.results(Some(result), Some(p.registers[0]));
    let Ok(body) = p.b.finish() else { return Op::Nop };
    let at = PoolRange::new(BODY, body.len() as u32);
    // Mostly the ranges lie apart. Some give where they take, or over the body: those are not to be run in part.
    let start = r.one_of(&[OUT, OUT, OUT, OUT, SRC, SRC + 100, BODY]);
    let ranges: Vec<_> =
        p.ranges.iter().map(|(input, len)| PoolRange::new(if *input { SRC } else { start }, *len)).collect();
    client.pool.slice(at).unwrap().copy_from(&body.bind(&ranges).unwrap());
    Body::op(at)
}

struct Parts<'a> {
    client: &'a Client,
    b: Builder,
    files: Vec<FileSlot>,
    buffers: Vec<BufSlot>,
    registers: Vec<Reg>,
    /// Whether the program takes from it, and its length.
    ranges: Vec<(bool, u32)>,
}

impl<'a> Parts<'a> {
    fn new(client: &'a Client) -> Parts<'a> {
        let mut b = Builder::new();
        let buffers = [8, 300, 5000].map(|n| b.buffer(n)).to_vec();
        let registers = (0..4).map(|_| b.register()).collect();
        // Something lies in each of them, so that mostly it may be looked at.
        b.push(Micro::Arith { to: Reg(0), a: Value::Imm(4096), op: Arith::Add, b: Value::Imm(3) });
        b.push(Micro::Arith { to: Reg(1), a: Value::Imm(17), op: Arith::Mul, b: Value::Imm(1) });
        let from = b.literal(b"literal");
        b.push(Micro::Fill { buf: BufSlot(0), from, append: false });
        b.push(Micro::Fill { buf: BufSlot(1), from, append: false });
        Parts { client, b, files: Vec::new(), buffers, registers, ranges: Vec::new() }
    }

    fn pool(&mut self, input: bool, len: u32) -> Pool {
        self.ranges.push((input, len));
        self.b.pool(len)
    }

    fn name(&mut self, r: &mut Random) -> Str {
        self.b.string(r.one_of(&PATHS).as_bytes())
    }

    fn file(&mut self, r: &mut Random) {
        use OpenFlags as F;
        let slot = if self.files.is_empty() || r.below(2) == 0 { self.b.file() } else { r.one_of(&self.files) };
        self.files.push(slot);
        if r.below(2) == 0 && !self.client.handles.is_empty() {
            let h = r.one_of(&self.client.handles);
            let need = r.one_of(&[Access::READ, Access::WRITE, Access::READ | Access::WRITE]);
            self.b.push(Micro::Use { file: slot, h, need });
            return;
        }
        let how = r.one_of(&[F::empty(), F::empty(), F::CREATE, F::CREATE | F::EXCL, F::TRUNC]);
        let flags = r.one_of(&[F::READ, F::READ | F::WRITE, F::READ | F::WRITE, F::WRITE | F::APPEND]) | how;
        let (path, created) = (self.name(r), Some(r.one_of(&self.registers)));
        self.b.push(Micro::Open { file: slot, base: Handle::ROOT, path, flags, mode: 0o640, created });
    }

    fn value(&self, r: &mut Random) -> Value {
        match r.below(4) {
            0 => Value::Reg(r.one_of(&self.registers)),
            _ => Value::Imm(r.one_of(&[0, 1, 5, 100, 4095, 4096, 5000, 9000])),
        }
    }

    fn bytes(&mut self, r: &mut Random) -> Bytes {
        match r.below(4) {
            0 => Bytes::Buffer(r.one_of(&self.buffers)),
            1 => Bytes::Int(r.one_of(&self.registers), Int::U64_LE),
            2 => self.b.literal(b"other"),
            _ => {
                let len = r.one_of(&[8, 300, 4096, 5000]);
                Bytes::Pool(self.pool(true, len))
            }
        }
    }

    fn step(&mut self, r: &mut Random) {
        let (file, other) = (r.one_of(&self.files), r.one_of(&self.files));
        let (buf, reg) = (r.one_of(&self.buffers), r.one_of(&self.registers));
        let (off, base) = (self.value(r), Handle::ROOT);
        let fold = (r.below(3) == 0).then(|| Fold { kind: r.one_of(&[SumKind::Crc32c, SumKind::Crc32]), to: reg });
        let micro = match r.below(22) {
            0 => return self.file(r),
            1..=5 => {
                let len = r.one_of(&[1, 8, 300, 5000]);
                let to = match r.below(3) {
                    0 => To::Pool(self.pool(false, len)),
                    1 => To::Nowhere,
                    _ => To::Buffer(buf),
                };
                let (whole, pad) = (r.below(4) == 0, r.below(4) == 0 && matches!(to, To::Buffer(_)));
                Micro::Read { file, off, len: Value::Imm(len.into()), to, whole, pad, fold, count: Some(reg) }
            }
            6..=8 => {
                let place = r.one_of(&[Place::At(off), Place::End, Place::After]);
                Micro::Write { file, place, from: self.bytes(r), fold, at: Some(reg) }
            }
            9 => Micro::CopyRange {
                from: other,
                off,
                len: Value::Imm(5000),
                max: 0,
                to: file,
                place: Place::End,
                count: None,
            },
            10 => r.one_of(&[Micro::Truncate { file, size: off }, Micro::Size { file, to: reg }]),
            11 => Micro::Checksum { kind: SumKind::Crc32c, of: self.bytes(r), to: reg },
            12 => {
                let with = self.bytes(r);
                let change = r.one_of(&[Change::Xor(with), Change::Patch(with), Change::Add(Int::U64_LE, off)]);
                Micro::Change { buf, off: Value::Imm(0), change }
            }
            13 => Micro::Load { to: reg, buf, off: Value::Imm(0), int: Int::U64_LE },
            14 => Micro::Give { buf, to: self.pool(false, 5000), count: Some(reg) },
            15 => Micro::Fill { buf, from: self.bytes(r), append: r.below(2) == 0 },
            16 => {
                let otherwise = r.one_of(&[Else::Fail(weldfs_ciscops::Errno::EXIST), Else::End, Else::Skip(1)]);
                Micro::Guard { cond: Cond::Compare(Value::Reg(reg), Relation::Lt, off), otherwise }
            }
            17 => {
                let (from, to) = (self.name(r), self.name(r));
                Micro::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() }
            }
            18 => {
                let path = self.name(r);
                r.one_of(&[
                    Micro::Unlink { base, path },
                    Micro::Rmdir { base, path },
                    Micro::Mkdir { base, path, mode: 0o755 },
                ])
            }
            19 => {
                let (size, path) = ((r.below(2) == 0).then_some(off), Some(self.name(r)));
                Micro::SetAttr {
                    base,
                    path,
                    nofollow: false,
                    mode: Some(0o644),
                    size,
                    atime_now: true,
                    mtime_now: false,
                }
            }
            20 => r.one_of(&[Micro::Close { file }, Micro::Sync]),
            _ => Micro::Slice { buf, from: r.one_of(&self.buffers), off: Value::Imm(1), len: Value::Imm(3) },
        };
        self.b.push(micro);
    }
}
