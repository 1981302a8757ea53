//! A micro-op from and to its 32 bytes. Decoding looks only at the fields a kind has; whoever decodes encodes again and
//! compares, so that every bit without a meaning must be zero and no micro-op has two encodings.

use super::MICRO_BYTES;
use super::micro::Micro;
use super::operand::*;
use crate::flags::{Access, OpenFlags, RenameFlags};
use crate::{Errno, Handle};

/// No register, or no string.
pub(super) const NONE: u8 = 0xff;

/// The numbers of the kinds; never reused.
mod kind {
    pub const OPEN: u8 = 1;
    pub const USE: u8 = 2;
    pub const READ: u8 = 3;
    pub const WRITE: u8 = 4;
    pub const SIZE: u8 = 5;
    pub const TRUNCATE: u8 = 6;
    pub const CHECKSUM: u8 = 7;
    pub const CHANGE: u8 = 8;
    pub const LOAD: u8 = 9;
    pub const ARITH: u8 = 10;
    pub const FILL: u8 = 11;
    pub const SLICE: u8 = 12;
    pub const GIVE: u8 = 13;
    pub const TRANSFORM: u8 = 14;
    pub const COPY_RANGE: u8 = 15;
    pub const SCAN: u8 = 16;
    pub const GUARD: u8 = 17;
    pub const UNLINK: u8 = 18;
    pub const RMDIR: u8 = 19;
    pub const MKDIR: u8 = 20;
    pub const RENAME: u8 = 21;
    pub const LINK: u8 = 22;
    pub const SYMLINK: u8 = 23;
    pub const SET_ATTR: u8 = 24;
    pub const SYNC: u8 = 25;
    pub const CLOSE: u8 = 26;
    pub const LENGTH: u8 = 27;
    pub const KERNEL: u8 = 28;
}

/// The fields of a micro-op: a kind, seven bytes, three words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Raw {
    kind: u8,
    a: u8,
    b: u8,
    c: u8,
    d: u8,
    e: u8,
    f: u8,
    /// Bits 0..3: x, y, z is a register's number.
    modes: u8,
    x: u64,
    y: u64,
    z: u64,
}

type Done<T> = Result<T, Errno>;

impl Raw {
    pub fn from_bytes(bytes: &[u8; MICRO_BYTES]) -> Raw {
        let word = |at: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(w)
        };
        let [kind, a, b, c, d, e, f, modes] = word(0).to_le_bytes();
        Raw { kind, a, b, c, d, e, f, modes, x: word(8), y: word(16), z: word(24) }
    }

    pub fn to_bytes(self) -> [u8; MICRO_BYTES] {
        let Raw { kind, a, b, c, d, e, f, modes, x, y, z } = self;
        let mut out = [0; MICRO_BYTES];
        out[..8].copy_from_slice(&[kind, a, b, c, d, e, f, modes]);
        for (at, w) in [(8, x), (16, y), (24, z)] {
            out[at..at + 8].copy_from_slice(&w.to_le_bytes());
        }
        out
    }

    fn of(kind: u8) -> Raw {
        Raw { kind, ..Raw::default() }
    }

    fn value(&self, word: u8) -> Done<Value> {
        let w = [self.x, self.y, self.z][usize::from(word)];
        if self.modes >> word & 1 == 0 {
            return Ok(Value::Imm(w));
        }
        u8::try_from(w).map(|r| Value::Reg(Reg(r))).map_err(|_| Errno::INVAL)
    }

    fn with(mut self, word: u8, v: Value) -> Raw {
        let w = match v {
            Value::Imm(v) => v,
            Value::Reg(r) => {
                self.modes |= 1 << word;
                r.0.into()
            }
        };
        *[&mut self.x, &mut self.y, &mut self.z][usize::from(word)] = w;
        self
    }

    fn place(&self, code: u8, word: u8) -> Done<Place> {
        match code {
            0 => self.value(word).map(Place::At),
            1 => Ok(Place::End),
            2 => Ok(Place::After),
            _ => Err(Errno::INVAL),
        }
    }

    /// With a place: its code goes in the field that `code` picks.
    fn placed(mut self, code: fn(&mut Raw) -> &mut u8, word: u8, p: Place) -> Raw {
        *code(&mut self) = match p {
            Place::At(_) => 0,
            Place::End => 1,
            Place::After => 2,
        };
        if let Place::At(v) = p { self.with(word, v) } else { self }
    }

    /// The bytes that (d, e) name.
    fn bytes(&self) -> Done<Bytes> {
        bytes(self.d, self.e)
    }

    fn with_bytes(mut self, b: Bytes) -> Raw {
        (self.d, self.e) = put_bytes(b);
        self
    }
}

const BUFFER: u8 = 1;
const POOL: u8 = 2;
const LITERAL: u8 = 3;
/// From here on integers: + width + 4 * order.
const INT: u8 = 4;

fn int(code: u8) -> Done<Int> {
    let width = match code.wrapping_sub(INT) & 3 {
        0 => Width::W1,
        1 => Width::W2,
        2 => Width::W4,
        _ => Width::W8,
    };
    match code {
        4..8 => Ok(Int { width, order: Order::Little }),
        8..12 => Ok(Int { width, order: Order::Big }),
        _ => Err(Errno::INVAL),
    }
}

fn put_int(i: Int) -> u8 {
    INT + i.width as u8 + 4 * i.order as u8
}

fn bytes(tag: u8, index: u8) -> Done<Bytes> {
    Ok(match tag {
        BUFFER => Bytes::Buffer(BufSlot(index)),
        POOL => Bytes::Pool(Pool(index)),
        LITERAL => Bytes::Literal(Str(index)),
        _ => Bytes::Int(Reg(index), int(tag)?),
    })
}

fn put_bytes(b: Bytes) -> (u8, u8) {
    match b {
        Bytes::Buffer(b) => (BUFFER, b.0),
        Bytes::Pool(p) => (POOL, p.0),
        Bytes::Literal(s) => (LITERAL, s.0),
        Bytes::Int(r, i) => (put_int(i), r.0),
    }
}

fn to(tag: u8, index: u8) -> Done<To> {
    match tag {
        0 => Ok(To::Nowhere),
        BUFFER => Ok(To::Buffer(BufSlot(index))),
        POOL => Ok(To::Pool(Pool(index))),
        _ => Err(Errno::INVAL),
    }
}

fn put_to(t: To) -> (u8, u8) {
    match t {
        To::Nowhere => (0, 0),
        To::Buffer(b) => (BUFFER, b.0),
        To::Pool(p) => (POOL, p.0),
    }
}

fn reg(v: u8) -> Option<Reg> {
    if v == NONE { None } else { Some(Reg(v)) }
}

fn put_reg(r: Option<Reg>) -> u8 {
    r.map_or(NONE, |r| r.0)
}

fn string(v: u8) -> Option<Str> {
    if v == NONE { None } else { Some(Str(v)) }
}

fn put_string(s: Option<Str>) -> u8 {
    s.map_or(NONE, |s| s.0)
}

pub(super) fn sum_kind(v: u8) -> Done<SumKind> {
    match v {
        0 => Ok(SumKind::Crc32c),
        1 => Ok(SumKind::Crc32),
        2 => Ok(SumKind::Crc32cMasked),
        _ => Err(Errno::INVAL),
    }
}

/// A checksum taken in passing: kind in the high four bits, register in the low four.
fn fold(v: u8) -> Done<Option<Fold>> {
    if v == NONE {
        return Ok(None);
    }
    Ok(Some(Fold { kind: sum_kind(v >> 4)?, to: Reg(v & 0xf) }))
}

fn put_fold(f: Option<Fold>) -> u8 {
    // Registers above 15 do not exist; the verifier says so of those that a builder made up.
    f.map_or(NONE, |f| (f.kind as u8) << 4 | f.to.0 & 0xf)
}

fn flag(v: u8) -> Done<bool> {
    match v {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::INVAL),
    }
}

fn half(low: u8, high: u8) -> u16 {
    u16::from_le_bytes([low, high])
}

fn arith(v: u8) -> Done<Arith> {
    use Arith::*;
    [Add, Sub, Mul, And, Or, Xor, Shl, Shr, Min, Max].get(usize::from(v)).copied().ok_or(Errno::INVAL)
}

fn relation(v: u8) -> Done<Relation> {
    use Relation::*;
    [Eq, Ne, Lt, Le, Gt, Ge].get(usize::from(v)).copied().ok_or(Errno::INVAL)
}

const WHOLE: u8 = 1;
const PAD: u8 = 2;

/// Decodes the fields that the kind has; the others are not looked at.
pub(super) fn decode(r: &Raw) -> Done<Micro> {
    let file = FileSlot(r.a);
    Ok(match r.kind {
        kind::OPEN => Micro::Open {
            file,
            base: Handle::from_wire(r.x),
            path: Str(r.b),
            created: reg(r.c),
            flags: OpenFlags::from_bits(half(r.d, r.e)).ok_or(Errno::INVAL)?,
            mode: u16::try_from(r.y).map_err(|_| Errno::INVAL)?,
        },
        kind::USE => Micro::Use { file, h: Handle::from_wire(r.x), need: Access::from_bits(r.b).ok_or(Errno::INVAL)? },
        kind::READ => Micro::Read {
            file,
            off: r.value(0)?,
            len: r.value(1)?,
            to: to(r.d, r.e)?,
            whole: r.b & WHOLE != 0,
            pad: r.b & PAD != 0,
            fold: fold(r.f)?,
            count: reg(r.c),
        },
        kind::WRITE => Micro::Write { file, place: r.place(r.b, 0)?, from: r.bytes()?, fold: fold(r.f)?, at: reg(r.c) },
        kind::SIZE => Micro::Size { file, to: Reg(r.c) },
        kind::TRUNCATE => Micro::Truncate { file, size: r.value(0)? },
        kind::COPY_RANGE => Micro::CopyRange {
            from: file,
            off: r.value(0)?,
            len: r.value(2)?,
            max: u32::from(half(r.e, r.f)) << 16,
            to: FileSlot(r.b),
            place: r.place(r.d, 1)?,
            count: reg(r.c),
        },
        kind::SCAN => Micro::Scan {
            file,
            off: r.value(0)?,
            len: r.value(1)?,
            record: record(r.z.to_le_bytes())?,
            offsets: if r.b == NONE { None } else { Some(Pool(r.b)) },
            count: reg(r.c),
            end: reg(r.d),
            why: reg(r.e),
        },
        kind::SYNC => Micro::Sync,
        kind::CLOSE => Micro::Close { file },
        kind::UNLINK..=kind::SET_ATTR => names(r)?,
        _ => inner(r)?,
    })
}

/// The kinds that touch nothing but buffers and registers.
fn inner(r: &Raw) -> Done<Micro> {
    let buf = BufSlot(r.a);
    Ok(match r.kind {
        kind::CHECKSUM => Micro::Checksum { kind: sum_kind(r.b)?, of: r.bytes()?, to: Reg(r.c) },
        kind::CHANGE => Micro::Change { buf, off: r.value(0)?, change: change(r)? },
        kind::LOAD => Micro::Load { to: Reg(r.c), buf, off: r.value(0)?, int: int(r.d)? },
        kind::ARITH => Micro::Arith { to: Reg(r.c), a: r.value(0)?, op: arith(r.b)?, b: r.value(1)? },
        kind::FILL => Micro::Fill { buf, from: r.bytes()?, append: flag(r.b)? },
        kind::SLICE => Micro::Slice { buf, from: BufSlot(r.b), off: r.value(0)?, len: r.value(1)? },
        kind::LENGTH => Micro::Length { buf, to: Reg(r.c) },
        kind::GIVE => Micro::Give { buf, to: Pool(r.b), count: reg(r.c) },
        kind::TRANSFORM => Micro::Transform { buf, from: BufSlot(r.e), how: transform(r)? },
        kind::KERNEL => Micro::Kernel { buf, from: BufSlot(r.e), name: Str(r.b), params: Str(r.c), registers: r.x },
        kind::GUARD => Micro::Guard { cond: cond(r)?, otherwise: otherwise(r)? },
        _ => return Err(Errno::NOSYS),
    })
}

/// How records lie: head, place and form of the length, place of the checksum, its kind and order, what it covers.
fn record([head, len_at, len, sum_at, sum, order, covers, zero]: [u8; 8]) -> Done<Record> {
    if zero != 0 {
        return Err(Errno::INVAL);
    }
    let sum_order = if flag(order)? { Order::Big } else { Order::Little };
    let sum_at = if sum_at == NONE { None } else { Some(sum_at) };
    Ok(Record { head, len_at, len: int(len)?, sum_at, sum_order, sum: sum_kind(sum)?, covers })
}

fn put_record(r: Record) -> u64 {
    let (sum_at, order) = (r.sum_at.unwrap_or(NONE), r.sum_order as u8);
    u64::from_le_bytes([r.head, r.len_at, put_int(r.len), sum_at, r.sum as u8, order, r.covers, 0])
}

fn codec(v: u8) -> Done<Codec> {
    [Codec::Lz4, Codec::Zstd, Codec::Snappy].get(usize::from(v)).copied().ok_or(Errno::INVAL)
}

fn transform(r: &Raw) -> Done<Transform> {
    let key = r.y;
    let bound = || match r.z.to_le_bytes() {
        [0, ..] => Ok(None),
        [tag, index, ..] => bytes(tag, index).map(Some),
    };
    Ok(match r.b {
        0 => Transform::Compress(codec(r.c)?),
        1 => Transform::Decompress(codec(r.c)?),
        2 => Transform::EncryptUnits { key, unit_log: r.c, first: r.value(0)? },
        3 => Transform::DecryptUnits { key, unit_log: r.c, first: r.value(0)? },
        4 => Transform::Seal { key, bound: bound()? },
        5 => Transform::Open { key, bound: bound()? },
        _ => return Err(Errno::INVAL),
    })
}

fn put_transform(r: Raw, how: Transform) -> Raw {
    let z = |bound: Option<Bytes>| {
        let (tag, index) = bound.map_or((0, 0), put_bytes);
        half(tag, index).into()
    };
    match how {
        Transform::Compress(codec) => Raw { c: codec as u8, ..r },
        Transform::Decompress(codec) => Raw { b: 1, c: codec as u8, ..r },
        Transform::EncryptUnits { key, unit_log, first } => Raw { b: 2, c: unit_log, y: key, ..r }.with(0, first),
        Transform::DecryptUnits { key, unit_log, first } => Raw { b: 3, c: unit_log, y: key, ..r }.with(0, first),
        Transform::Seal { key, bound } => Raw { b: 4, y: key, z: z(bound), ..r },
        Transform::Open { key, bound } => Raw { b: 5, y: key, z: z(bound), ..r },
    }
}

fn change(r: &Raw) -> Done<Change> {
    Ok(match r.b {
        0 => Change::Patch(r.bytes()?),
        1 => Change::Add(int(r.d)?, r.value(1)?),
        2 => Change::And(r.bytes()?),
        3 => Change::Or(r.bytes()?),
        4 => Change::Xor(r.bytes()?),
        5 => {
            let [tag, index, ..] = r.y.to_le_bytes();
            Change::CompareSwap { expect: r.bytes()?, new: bytes(tag, index)? }
        }
        _ => return Err(Errno::INVAL),
    })
}

fn put_change(r: Raw, change: Change) -> Raw {
    let plain = |b: u8, bytes: Bytes| Raw { b, ..r }.with_bytes(bytes);
    match change {
        Change::Patch(bytes) => plain(0, bytes),
        Change::Add(int, by) => Raw { b: 1, d: put_int(int), ..r }.with(1, by),
        Change::And(bytes) => plain(2, bytes),
        Change::Or(bytes) => plain(3, bytes),
        Change::Xor(bytes) => plain(4, bytes),
        Change::CompareSwap { expect, new } => {
            let (tag, index) = put_bytes(new);
            Raw { y: half(tag, index).into(), ..plain(5, expect) }
        }
    }
}

/// Condition codes below are relations.
const HOLDS: u8 = 8;

fn cond(r: &Raw) -> Done<Cond> {
    if r.b == HOLDS {
        let [tag, index, ..] = r.y.to_le_bytes();
        return Ok(Cond::Holds { buf: BufSlot(r.a), off: r.value(0)?, bytes: bytes(tag, index)? });
    }
    Ok(Cond::Compare(r.value(0)?, relation(r.b)?, r.value(1)?))
}

fn otherwise(r: &Raw) -> Done<Else> {
    let n = half(r.d, r.e);
    match r.c {
        0 => Ok(Else::Fail(Errno(n.into()))),
        1 => Ok(Else::End),
        2 => u8::try_from(n).map(Else::Skip).map_err(|_| Errno::INVAL),
        _ => Err(Errno::INVAL),
    }
}

fn put_guard(cond: Cond, otherwise: Else) -> Raw {
    let (c, n) = match otherwise {
        Else::Fail(e) => (0, e.0 as u16),
        Else::End => (1, 0),
        Else::Skip(n) => (2, n.into()),
    };
    let [d, e] = n.to_le_bytes();
    let r = Raw { c, d, e, ..Raw::of(kind::GUARD) };
    match cond {
        Cond::Compare(a, relation, b) => Raw { b: relation as u8, ..r }.with(0, a).with(1, b),
        Cond::Holds { buf, off, bytes } => {
            let (tag, index) = put_bytes(bytes);
            Raw { a: buf.0, b: HOLDS, y: half(tag, index).into(), ..r }.with(0, off)
        }
    }
}

const SET_MODE: u8 = 1;
const SET_SIZE: u8 = 2;
const SET_ATIME: u8 = 4;
const SET_MTIME: u8 = 8;

/// The kinds that work on names.
fn names(r: &Raw) -> Done<Micro> {
    let base = Handle::from_wire(r.x);
    Ok(match r.kind {
        kind::UNLINK => Micro::Unlink { base, path: Str(r.b) },
        kind::RMDIR => Micro::Rmdir { base, path: Str(r.b) },
        kind::MKDIR => Micro::Mkdir { base, path: Str(r.b), mode: half(r.d, r.e) },
        kind::RENAME => Micro::Rename {
            from_base: base,
            from: Str(r.b),
            to_base: Handle::from_wire(r.y),
            to: Str(r.c),
            flags: RenameFlags::from_bits(r.d).ok_or(Errno::INVAL)?,
        },
        kind::LINK => Micro::Link {
            from_base: base,
            from: string(r.b),
            to_base: Handle::from_wire(r.y),
            to: Str(r.c),
            follow: flag(r.d)?,
        },
        kind::SYMLINK => Micro::Symlink { target: Str(r.c), base, path: Str(r.b) },
        kind::SET_ATTR => Micro::SetAttr {
            base,
            path: string(r.b),
            nofollow: flag(r.d)?,
            mode: if r.c & SET_MODE != 0 { Some(u16::try_from(r.y).map_err(|_| Errno::INVAL)?) } else { None },
            size: if r.c & SET_SIZE != 0 { Some(r.value(2)?) } else { None },
            atime_now: r.c & SET_ATIME != 0,
            mtime_now: r.c & SET_MTIME != 0,
        },
        _ => return Err(Errno::NOSYS),
    })
}

/// The fields that say this.
pub(super) fn encode(m: &Micro) -> Raw {
    match *m {
        Micro::Open { file, base, path, flags, mode, created } => {
            let [d, e] = flags.bits().to_le_bytes();
            let (x, y) = (base.to_wire(), mode.into());
            Raw { a: file.0, b: path.0, c: put_reg(created), d, e, x, y, ..Raw::of(kind::OPEN) }
        }
        Micro::Use { file, h, need } => Raw { a: file.0, b: need.bits(), x: h.to_wire(), ..Raw::of(kind::USE) },
        Micro::Read { file, off, len, to, whole, pad, fold, count } => {
            let b = if whole { WHOLE } else { 0 } | if pad { PAD } else { 0 };
            let (d, e) = put_to(to);
            let r = Raw { a: file.0, b, c: put_reg(count), d, e, f: put_fold(fold), ..Raw::of(kind::READ) };
            r.with(0, off).with(1, len)
        }
        Micro::Write { file, place, from, fold, at } => {
            let r = Raw { a: file.0, c: put_reg(at), f: put_fold(fold), ..Raw::of(kind::WRITE) };
            r.with_bytes(from).placed(|r| &mut r.b, 0, place)
        }
        Micro::Size { file, to } => Raw { a: file.0, c: to.0, ..Raw::of(kind::SIZE) },
        Micro::Truncate { file, size } => Raw { a: file.0, ..Raw::of(kind::TRUNCATE) }.with(0, size),
        Micro::CopyRange { from, off, len, max, to, place, count } => {
            let [e, f] = ((max >> 16) as u16).to_le_bytes();
            let r = Raw { a: from.0, b: to.0, c: put_reg(count), e, f, ..Raw::of(kind::COPY_RANGE) };
            r.with(0, off).with(2, len).placed(|r| &mut r.d, 1, place)
        }
        Micro::Scan { file, off, len, record, offsets, count, end, why } => {
            let b = offsets.map_or(NONE, |p| p.0);
            let (c, d, e) = (put_reg(count), put_reg(end), put_reg(why));
            let r = Raw { a: file.0, b, c, d, e, z: put_record(record), ..Raw::of(kind::SCAN) };
            r.with(0, off).with(1, len)
        }
        Micro::Sync => Raw::of(kind::SYNC),
        Micro::Close { file } => Raw { a: file.0, ..Raw::of(kind::CLOSE) },
        Micro::Checksum { kind, of, to } => Raw { b: kind as u8, c: to.0, ..Raw::of(kind::CHECKSUM) }.with_bytes(of),
        Micro::Change { buf, off, change } => {
            put_change(Raw { a: buf.0, ..Raw::of(kind::CHANGE) }.with(0, off), change)
        }
        Micro::Load { to, buf, off, int } => {
            Raw { a: buf.0, c: to.0, d: put_int(int), ..Raw::of(kind::LOAD) }.with(0, off)
        }
        Micro::Arith { to, a, op, b } => Raw { b: op as u8, c: to.0, ..Raw::of(kind::ARITH) }.with(0, a).with(1, b),
        Micro::Fill { buf, from, append } => Raw { a: buf.0, b: append.into(), ..Raw::of(kind::FILL) }.with_bytes(from),
        Micro::Slice { buf, from, off, len } => {
            Raw { a: buf.0, b: from.0, ..Raw::of(kind::SLICE) }.with(0, off).with(1, len)
        }
        Micro::Length { buf, to } => Raw { a: buf.0, c: to.0, ..Raw::of(kind::LENGTH) },
        Micro::Give { buf, to, count } => Raw { a: buf.0, b: to.0, c: put_reg(count), ..Raw::of(kind::GIVE) },
        Micro::Transform { buf, from, how } => {
            put_transform(Raw { a: buf.0, e: from.0, ..Raw::of(kind::TRANSFORM) }, how)
        }
        Micro::Kernel { buf, from, name, params, registers } => {
            Raw { a: buf.0, b: name.0, c: params.0, e: from.0, x: registers, ..Raw::of(kind::KERNEL) }
        }
        Micro::Guard { cond, otherwise } => put_guard(cond, otherwise),
        _ => encode_names(m),
    }
}

fn encode_names(m: &Micro) -> Raw {
    match *m {
        Micro::Unlink { base, path } => Raw { b: path.0, x: base.to_wire(), ..Raw::of(kind::UNLINK) },
        Micro::Rmdir { base, path } => Raw { b: path.0, x: base.to_wire(), ..Raw::of(kind::RMDIR) },
        Micro::Mkdir { base, path, mode } => {
            let [d, e] = mode.to_le_bytes();
            Raw { b: path.0, d, e, x: base.to_wire(), ..Raw::of(kind::MKDIR) }
        }
        Micro::Rename { from_base, from, to_base, to, flags } => {
            let (x, y) = (from_base.to_wire(), to_base.to_wire());
            Raw { b: from.0, c: to.0, d: flags.bits(), x, y, ..Raw::of(kind::RENAME) }
        }
        Micro::Link { from_base, from, to_base, to, follow } => {
            let (x, y) = (from_base.to_wire(), to_base.to_wire());
            Raw { b: put_string(from), c: to.0, d: follow.into(), x, y, ..Raw::of(kind::LINK) }
        }
        Micro::Symlink { target, base, path } => {
            Raw { b: path.0, c: target.0, x: base.to_wire(), ..Raw::of(kind::SYMLINK) }
        }
        Micro::SetAttr { base, path, nofollow, mode, size, atime_now, mtime_now } => {
            let bit = |on: bool, bit: u8| if on { bit } else { 0 };
            let c = bit(mode.is_some(), SET_MODE)
                | bit(size.is_some(), SET_SIZE)
                | bit(atime_now, SET_ATIME)
                | bit(mtime_now, SET_MTIME);
            let (b, x, y) = (put_string(path), base.to_wire(), mode.unwrap_or(0).into());
            let r = Raw { b, c, d: nofollow.into(), x, y, ..Raw::of(kind::SET_ATTR) };
            size.map_or(r, |size| r.with(2, size))
        }
        // Every other kind is one of `encode`'s.
        _ => Raw::default(),
    }
}
