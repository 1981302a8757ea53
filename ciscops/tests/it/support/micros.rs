//! Random micro-ops over a few files, buffers, registers and ranges, and programs of them.
#![allow(dead_code)] // each test uses the part it needs

use super::*;
use proptest::prelude::*;
use weldfs_ciscops::program::*;

pub const IN: [PoolRange; 2] = [PoolRange::new(SRC_AT, 200), PoolRange::new(SRC_AT + 256, 40)];
pub const OUT: [PoolRange; 2] = [PoolRange::new(OUT_AT, 128), PoolRange::new(OUT_AT + 256, 64)];
pub const RANGES: [PoolRange; 4] = [IN[0], IN[1], OUT[0], OUT[1]];
pub const NAMES: [&[u8]; 3] = [b"a", b"b", b"n"];
pub const LITERALS: [&[u8]; 2] = [b"literal bytes", b"0123"];
pub const CAPACITY: u32 = 256;
pub const HANDLE: Handle = Handle { index: 1, generation: 0 };

pub fn any_reg() -> impl Strategy<Value = Reg> + Clone {
    (0..4u8).prop_map(Reg)
}

pub fn reg_or_none() -> impl Strategy<Value = Option<Reg>> {
    prop::option::of(any_reg())
}

pub fn any_value() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        6 => (0..140u64).prop_map(Value::Imm),
        3 => any_reg().prop_map(Value::Reg),
        1 => Just(Value::Imm(i64::MAX as u64 - 10)),
    ]
}

pub fn any_int() -> impl Strategy<Value = Int> {
    let width = prop::sample::select(vec![Width::W1, Width::W2, Width::W4, Width::W8]);
    let order = prop::sample::select(vec![Order::Little, Order::Big]);
    (width, order).prop_map(|(width, order)| Int { width, order })
}

pub fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        (0..3u8).prop_map(|b| Bytes::Buffer(BufSlot(b))),
        (0..2u8).prop_map(|p| Bytes::Pool(Pool(p))),
        (3..5u8).prop_map(|s| Bytes::Literal(Str(s))),
        (any_reg(), any_int()).prop_map(|(r, i)| Bytes::Int(r, i)),
    ]
}

pub fn any_fold() -> impl Strategy<Value = Option<Fold>> {
    let kind = prop::sample::select(vec![SumKind::Crc32c, SumKind::Crc32, SumKind::Crc32cMasked]);
    prop::option::of((kind, any_reg()).prop_map(|(kind, to)| Fold { kind, to }))
}

pub fn any_file() -> impl Strategy<Value = FileSlot> {
    (0..3u8).prop_map(FileSlot)
}

pub fn any_buf() -> impl Strategy<Value = BufSlot> {
    (0..3u8).prop_map(BufSlot)
}

pub fn any_name() -> impl Strategy<Value = Str> {
    (0..3u8).prop_map(Str)
}

pub fn any_place() -> impl Strategy<Value = Place> {
    prop_oneof![any_value().prop_map(Place::At), Just(Place::End), Just(Place::After)]
}

pub fn any_open() -> impl Strategy<Value = Micro> {
    let extra = [OpenFlags::CREATE, OpenFlags::EXCL, OpenFlags::TRUNC, OpenFlags::APPEND];
    let flags = prop::collection::vec(prop::sample::select(extra.to_vec()), 0..3);
    (any_file(), any_name(), flags, reg_or_none()).prop_map(|(file, path, flags, created)| {
        let flags = flags.into_iter().fold(OpenFlags::READ | OpenFlags::WRITE, |a, f| a | f);
        Micro::Open { file, base: Handle::ROOT, path, flags, mode: 0o644, created }
    })
}

pub fn any_file_micro() -> impl Strategy<Value = Micro> {
    let to = prop_oneof![Just(To::Nowhere), any_buf().prop_map(To::Buffer), (2..4u8).prop_map(|p| To::Pool(Pool(p))),];
    let read = (any_file(), any_value(), any_value(), to, any::<[bool; 2]>(), any_fold(), reg_or_none());
    let copy = (any_file(), any_value(), any_value(), any_file(), any_place(), reg_or_none());
    let need = prop::sample::select(vec![Access::READ, Access::WRITE, Access::READ | Access::WRITE]);
    prop_oneof![
        2 => any_open(),
        1 => (any_file(), need).prop_map(|(file, need)| Micro::Use { file, h: HANDLE, need }),
        4 => read.prop_map(|(file, off, len, to, [whole, pad], fold, count)| {
            let pad = pad && matches!(to, To::Buffer(_));
            Micro::Read { file, off, len, to, whole, pad, fold, count }
        }),
        5 => (any_file(), any_place(), any_bytes(), any_fold(), reg_or_none())
            .prop_map(|(file, place, from, fold, at)| Micro::Write { file, place, from, fold, at }),
        1 => (any_file(), any_reg()).prop_map(|(file, to)| Micro::Size { file, to }),
        1 => (any_file(), any_value()).prop_map(|(file, size)| Micro::Truncate { file, size }),
        2 => copy.prop_map(|(from, off, len, to, place, count)| {
            let max = if matches!(len, Value::Reg(_)) { 1 << 16 } else { 0 };
            Micro::CopyRange { from, off, len, max, to, place, count }
        }),
        1 => any_file().prop_map(|file| Micro::Close { file }),
        1 => Just(Micro::Sync),
    ]
}

pub fn any_inner_micro() -> impl Strategy<Value = Micro> {
    let kind = prop::sample::select(vec![SumKind::Crc32c, SumKind::Crc32, SumKind::Crc32cMasked]);
    let change = prop_oneof![
        any_bytes().prop_map(Change::Patch),
        (any_int(), any_value()).prop_map(|(int, by)| Change::Add(int, by)),
        any_bytes().prop_map(Change::And),
        any_bytes().prop_map(Change::Or),
        any_bytes().prop_map(Change::Xor),
        (any_bytes(), any_bytes()).prop_map(|(expect, new)| Change::CompareSwap { expect, new }),
    ];
    use weldfs_ciscops::program::Arith::*;
    let op = prop::sample::select(vec![Add, Sub, Mul, And, Or, Xor, Shl, Shr, Min, Max]);
    prop_oneof![
        (kind, any_bytes(), any_reg()).prop_map(|(kind, of, to)| Micro::Checksum { kind, of, to }),
        (any_buf(), any_value(), change).prop_map(|(buf, off, change)| Micro::Change { buf, off, change }),
        (any_reg(), any_buf(), any_value(), any_int()).prop_map(|(to, buf, off, int)| Micro::Load {
            to,
            buf,
            off,
            int
        }),
        (any_reg(), any_value(), op, any_value()).prop_map(|(to, a, op, b)| Micro::Arith { to, a, op, b }),
        (any_buf(), any_bytes(), any::<bool>()).prop_map(|(buf, from, append)| Micro::Fill { buf, from, append }),
        (any_buf(), any_buf(), any_value(), any_value()).prop_map(|(buf, from, off, len)| Micro::Slice {
            buf,
            from,
            off,
            len
        }),
        (any_buf(), any_reg()).prop_map(|(buf, to)| Micro::Length { buf, to }),
        (any_buf(), 2..4u8, reg_or_none()).prop_map(|(buf, to, count)| Micro::Give { buf, to: Pool(to), count }),
    ]
}

pub fn any_guard() -> impl Strategy<Value = Micro> {
    use Relation::*;
    let relation = prop::sample::select(vec![Eq, Ne, Lt, Le, Gt, Ge]);
    let cond = prop_oneof![
        (any_value(), relation, any_value()).prop_map(|(a, r, b)| Cond::Compare(a, r, b)),
        (any_buf(), any_value(), any_bytes()).prop_map(|(buf, off, bytes)| Cond::Holds { buf, off, bytes }),
    ];
    let otherwise = prop_oneof![
        1 => Just(Else::Fail(Errno::BADMSG)),
        1 => Just(Else::End),
        4 => (1..4u8).prop_map(Else::Skip),
    ];
    (cond, otherwise).prop_map(|(cond, otherwise)| Micro::Guard { cond, otherwise })
}

pub fn any_name_micro() -> impl Strategy<Value = Micro> {
    let base = Handle::ROOT;
    let set = (any_name(), any::<bool>(), prop::option::of(any_value()));
    prop_oneof![
        any_name().prop_map(move |path| Micro::Unlink { base, path }),
        any_name().prop_map(move |path| Micro::Rmdir { base, path }),
        (any_name(), 0..0o1000u16).prop_map(move |(path, mode)| Micro::Mkdir { base, path, mode }),
        (any_name(), any_name()).prop_map(move |(from, to)| {
            Micro::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() }
        }),
        (any_name(), any_name()).prop_map(move |(from, to)| {
            Micro::Link { from_base: base, from: Some(from), to_base: base, to, follow: false }
        }),
        (any_name(), 3..5u8).prop_map(move |(path, t)| Micro::Symlink { target: Str(t), base, path }),
        set.prop_map(move |(path, nofollow, size)| Micro::SetAttr {
            base,
            path: Some(path),
            nofollow,
            mode: None,
            size,
            atime_now: false,
            mtime_now: false
        }),
    ]
}

pub fn any_micro() -> impl Strategy<Value = Micro> {
    prop_oneof![4 => any_file_micro(), 3 => any_inner_micro(), 2 => any_guard(), 1 => any_name_micro()]
}

/// The program, when the verifier takes it: every slot has something before the random part begins.
pub fn program_of(random: &[Micro]) -> Result<Body, Fault> {
    let mut b = Builder::new();
    for range in IN.iter().chain(&OUT) {
        b.pool(range.len);
    }
    for text in NAMES.iter().chain(&LITERALS) {
        b.string(text);
    }
    let rw = OpenFlags::READ | OpenFlags::WRITE;
    b.open(Handle::ROOT, b"a", rw, 0o644);
    b.open(Handle::ROOT, b"b", rw | OpenFlags::CREATE, 0o644);
    b.take(HANDLE, Access::READ | Access::WRITE);
    for _ in 0..3 {
        let buf = b.buffer(CAPACITY);
        b.push(Micro::Fill { buf, from: Bytes::Pool(Pool(buf.0 % 2)), append: false });
    }
    for n in 0..4 {
        let to = b.register();
        b.push(Micro::Arith { to, a: Value::Imm(n * 31), op: Arith::Add, b: Value::Imm(2) });
    }
    for m in random.iter().take(limits::MICRO_OPS_MAX - b.len()) {
        b.push(*m);
    }
    b.results(Some(Reg(0)), Some(Reg(1)));
    b.finish()
}
