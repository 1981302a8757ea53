//! Every template is a program that a device runs, and none of its operands, however odd, makes it anything but a
//! program or a refusal.

use proptest::prelude::*;
use weldfs_ciscops::catalogue::*;
use weldfs_ciscops::program::{Body, Codec, Fault, Int, Micro, Order, Pool, Record, SumKind};
use weldfs_ciscops::{At, Errno, Handle, PoolRange, Program};

const H: Handle = Handle { index: 1, generation: 2 };

fn summing() -> impl Strategy<Value = Summing> {
    let kinds = vec![SumKind::Crc32c, SumKind::Crc32, SumKind::Crc32cMasked];
    let places = vec![SumPlace::Trailer, SumPlace::Header];
    (prop::sample::select(kinds), order(), prop::sample::select(places)).prop_map(|(kind, order, place)| Summing {
        kind,
        order,
        place,
    })
}

fn order() -> impl Strategy<Value = Order> {
    prop::sample::select(vec![Order::Little, Order::Big])
}

/// Mostly sound, sometimes at a bound, sometimes past it.
fn len() -> impl Strategy<Value = u32> {
    prop_oneof![0..300u32, Just(1 << 20), Just((1 << 20) + 1), any::<u32>()]
}

fn off() -> impl Strategy<Value = u64> {
    prop_oneof![0..300u64, Just(i64::MAX as u64), Just(u64::MAX), any::<u64>()]
}

fn change() -> impl Strategy<Value = FieldChange> {
    prop_oneof![
        Just(FieldChange::Patch),
        (order(), any::<u64>()).prop_map(|(order, by)| FieldChange::Add(order, by)),
        prop::sample::select(vec![FieldChange::And, FieldChange::Or, FieldChange::Xor, FieldChange::CompareSwap]),
    ]
}

fn any_body() -> impl Strategy<Value = Result<Body, Fault>> {
    let at = prop_oneof![off().prop_map(At::Offset), Just(At::End), Just(At::Current)];
    prop_oneof![
        (len(), summing()).prop_map(|(len, sum)| AppendChecksum { h: H, len, sum }.body()),
        (off(), len(), summing()).prop_map(|(offset, len, sum)| WriteChecksum { h: H, offset, len, sum }.body()),
        (off(), len(), summing(), any::<bool>()).prop_map(|(offset, len, sum, show)| VerifyChecksum {
            h: H,
            offset,
            len,
            sum,
            show
        }
        .body()),
        (off(), len(), change(), any::<bool>()).prop_map(|(offset, len, change, show)| ModifyField {
            h: H,
            offset,
            len,
            change,
            show
        }
        .body()),
        (off(), 0..10u32, order(), off(), len()).prop_map(|(offset, width, order, room, len)| {
            AppendToRecord { h: H, offset, width, order, room, len }.body()
        }),
        (off(), len(), len(), len(), change()).prop_map(|(offset, len, field, field_len, change)| {
            ModifyAppend { h: H, to: H, offset, len, field, field_len, change }.body()
        }),
        (off(), len(), len(), any::<bool>()).prop_map(|(off, read, len, tail)| {
            let from = if tail { ReadFrom::Tail } else { ReadFrom::Offset(off) };
            ReadAppend { h: H, from, read, len }.body()
        }),
        (off(), off(), at).prop_map(|(offset, len, at)| CopyRange { from: H, offset, len, to: H, at }.body()),
        (0..6usize).prop_map(|n| Concat { from: &[H; 6][..n], to: H }.body()),
        (len(), "[a/.\0]{0,5}", any::<u16>()).prop_map(|(len, path, mode)| {
            AtomicReplace { base: H, path: path.as_bytes(), temporary: b"tmp", mode, len }.body()
        }),
        len().prop_map(|len| AppendAndSync { h: H, len }.body()),
        computed(),
        prop::collection::vec((0..3u8, len(), "[a/]{0,3}"), 0..9).prop_map(|nodes| {
            let nodes: Vec<Node<'_>> = nodes
                .iter()
                .map(|(kind, len, path)| match kind {
                    0 => Node::Directory { path: path.as_bytes(), mode: 0o755 },
                    1 => Node::File { path: path.as_bytes(), mode: 0o644, len: *len },
                    _ => Node::Link { path: path.as_bytes(), target: b"target" },
                })
                .collect();
            CreateTree { base: H, nodes: &nodes }.body()
        }),
    ]
}

fn codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(vec![Codec::Lz4, Codec::Zstd, Codec::Snappy])
}

fn cipher() -> impl Strategy<Value = Cipher> {
    let units = prop::sample::select(vec![0, 16, 512, 1000, 2048, 4096, 8192]);
    prop_oneof![units.prop_map(|unit| Cipher::Units { key: 7, unit }), Just(Cipher::Record { key: 7 })]
}

/// Those that compress, encrypt and scan.
fn computed() -> impl Strategy<Value = Result<Body, Fault>> {
    let at = || prop_oneof![off().prop_map(At::Offset), (0..9u64).prop_map(|n| At::Offset(n * 4096)), Just(At::End)];
    let record = (0..70u8, 0..70u8, prop::option::of(0..70u8), 0..70u8).prop_map(|(head, len_at, sum_at, covers)| {
        let (len, sum_order, sum) = (Int::U32_LE, Order::Big, SumKind::Crc32c);
        Record { head, len_at, len, sum_at, sum_order, sum, covers }
    });
    prop_oneof![
        (at(), codec(), len()).prop_map(|(at, codec, len)| CompressWrite { h: H, at, codec, len }.body()),
        (off(), len(), codec(), len()).prop_map(|(offset, len, codec, room)| ReadDecompress {
            h: H,
            offset,
            len,
            codec,
            room
        }
        .body()),
        (at(), len(), cipher()).prop_map(|(at, len, cipher)| EncryptWrite { h: H, at, len, cipher }.body()),
        (off(), len(), cipher()).prop_map(|(offset, len, cipher)| ReadDecrypt { h: H, offset, len, cipher }.body()),
        (off(), len(), at(), cipher()).prop_map(|(offset, len, at, cipher)| {
            ReadEncryptWrite { from: H, offset, len, to: H, at, cipher }.body()
        }),
        (off(), off(), record, 0..3000u32, any::<bool>()).prop_map(|(offset, len, record, offsets, copy)| {
            LogRecover { h: H, offset, len, record, offsets, copy: copy.then_some((H, At::End)) }.body()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_template_is_a_program_or_a_refusal(body in any_body()) {
        let known = [Errno::INVAL, Errno::TOOBIG, Errno::FBIG, Errno::NOENT, Errno::NAMETOOLONG, Errno::OPNOTSUPP];
        let body = match body {
            Ok(body) => body,
            Err(fault) => {
                prop_assert!(known.contains(&fault.errno), "{}", fault);
                return Ok(());
            }
        };
        let (mut ranges, mut at) = (Vec::new(), 0);
        for p in 0..body.pools() {
            let pool = Pool(p as u8);
            // An operand goes one way; a range of no bytes may go none.
            prop_assert!(body.is_input(pool) != body.is_output(pool));
            ranges.push(PoolRange::new(at, body.pool_len(pool)));
            at += body.pool_len(pool);
        }
        let bytes = body.bind(&ranges).unwrap();
        let program = Program::decode(&bytes, at).unwrap();
        prop_assert_eq!(program.micros(), body.program().micros());
        prop_assert_eq!(program.encode(), bytes);
    }
}

#[test]
fn only_what_says_so_is_durable() {
    let durable = |body: Result<Body, Fault>| body.unwrap().program().is_durable();
    assert!(durable(AppendAndSync { h: H, len: 10 }.body()));
    assert!(durable(AtomicReplace { base: H, path: b"a", temporary: b"b", mode: 0o644, len: 1 }.body()));
    assert!(!durable(AppendChecksum { h: H, len: 10, sum: Summing::default() }.body()));
}

#[test]
fn a_header_is_of_a_private_copy() {
    // The payload is taken out of the pool once, and what is summed up is what is written.
    for place in [SumPlace::Header, SumPlace::Trailer] {
        let sum = Summing { place, ..Summing::default() };
        let body = AppendChecksum { h: H, len: 100, sum }.body().unwrap();
        let pool = weldfs_ciscops::program::Bytes::Pool(Pool(0));
        assert_eq!(body.program().micros().iter().filter(|m| m.takes(pool)).count(), 1);
    }
}

#[test]
fn bounds_are_those_that_are_stated() {
    let errno = |body: Result<Body, Fault>| body.err().map(|fault| fault.errno);
    let sum = Summing::default();
    assert_eq!(errno(AppendChecksum { h: H, len: 1 << 20, sum }.body()), None);
    assert_eq!(errno(AppendChecksum { h: H, len: (1 << 20) + 1, sum }.body()), Some(Errno::TOOBIG));
    assert_eq!(errno(WriteChecksum { h: H, offset: i64::MAX as u64, len: 1, sum }.body()), Some(Errno::FBIG));
    let record = AppendToRecord { h: H, offset: 0, width: 2, order: Order::Big, room: 65_535, len: 65_535 };
    assert_eq!(errno(record.body()), None);
    assert_eq!(errno(AppendToRecord { room: 65_536, ..record }.body()), Some(Errno::INVAL));
    assert_eq!(errno(AppendToRecord { width: 3, ..record }.body()), Some(Errno::INVAL));
    assert_eq!(errno(AppendToRecord { room: 65_534, ..record }.body()), Some(Errno::FBIG));
    let add = FieldChange::Add(Order::Big, 1);
    assert_eq!(errno(ModifyField { h: H, offset: 0, len: 3, change: add, show: false }.body()), Some(Errno::INVAL));
    assert_eq!(errno(Concat { from: &[H; CONCAT_MAX], to: H }.body()), None);
    assert_eq!(errno(Concat { from: &[H; CONCAT_MAX + 1], to: H }.body()), Some(Errno::INVAL));
    assert_eq!(errno(Concat { from: &[], to: H }.body()), Some(Errno::INVAL));
    let tree = |n: usize| CreateTree { base: H, nodes: &vec![Node::Directory { path: b"d", mode: 0o755 }; n] }.body();
    assert_eq!((errno(tree(16)), errno(tree(17))), (None, Some(Errno::TOOBIG)));
    let body = CreateTree { base: H, nodes: &[Node::File { path: b"f", mode: 0o644, len: 5 }] }.body().unwrap();
    assert!(matches!(body.program().micros(), [Micro::Open { .. }, Micro::Write { .. }, Micro::Close { .. }]));
}

#[test]
fn every_file_of_the_catalogue_has_its_name_in_the_list() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/catalogue");
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files.map(|f| f.trim_end_matches(".rs").to_owned()).collect();
    names.retain(|name| name != "mod" && name != "template");
    names.sort();
    assert_eq!(names, NAMES);
}

#[test]
fn what_fills_a_range_in_part_is_counted_by_its_register_if_that_is_its_alone() {
    use weldfs_ciscops::program::{Arith, Builder, Cond, Else, Reg, Relation, To, Value};
    use weldfs_ciscops::{Access, program::FileSlot};
    /// A read into a range, and what `more` makes of it; it reports the register of the read.
    fn body(more: impl FnOnce(&mut Builder, (FileSlot, Pool, Reg))) -> Body {
        let mut b = Builder::new();
        let (file, pool) = (b.take(H, Access::READ), b.pool(64));
        let count = b.read(file, Value::Imm(0), Value::Imm(64), To::Pool(pool));
        more(&mut b, (file, pool, count));
        b.results(None, Some(count));
        b.finish().unwrap()
    }
    let read = |(file, to, count): (FileSlot, Pool, Option<Reg>)| Micro::Read {
        file,
        off: Value::Imm(0),
        len: Value::Imm(64),
        to: To::Pool(to),
        whole: false,
        pad: false,
        fold: None,
        count,
    };
    let plain = body(|_, _| {});
    assert_eq!((plain.filled(Pool(0), (1, 7)), plain.leaves_a_rest(Pool(0))), (7, false));
    assert_eq!(plain.filled(Pool(0), (1, 700)), 64, "never more than there is");
    // Another micro-op sets the register; another one fills the range; it is passed by and the register is of something
    // else: then all of the range is given, over zeros.
    let changed = body(|b, (_, _, count)| {
        b.push(Micro::Arith { to: count, a: Value::Reg(count), op: Arith::Add, b: Value::Imm(3) });
    });
    let twice = body(|b, (file, pool, _)| {
        b.push(read((file, pool, None)));
    });
    let passed = {
        let mut b = Builder::new();
        let (file, pool, count) = (b.take(H, Access::READ), b.pool(64), b.register());
        b.push(Micro::Size { file, to: count });
        b.guard(Cond::Compare(Value::Reg(count), Relation::Lt, Value::Imm(64)), Else::Skip(1));
        b.push(read((file, pool, Some(count))));
        b.results(Some(count), None);
        b.finish().unwrap()
    };
    for body in [changed, twice, passed] {
        assert_eq!((body.filled(Pool(0), (7, 7)), body.leaves_a_rest(Pool(0))), (64, true), "{body:?}");
    }
    // A result tells how many offsets a scan found, and zeros are behind them.
    let record = Record {
        head: 4,
        len_at: 0,
        len: Int::U32_LE,
        sum_at: None,
        sum_order: Order::Little,
        sum: SumKind::Crc32c,
        covers: 4,
    };
    let scan = LogRecover { h: H, offset: 0, len: 100, record, offsets: 8, copy: None }.body().unwrap();
    assert_eq!((scan.filled(Pool(0), (3, 0)), scan.leaves_a_rest(Pool(0))), (24, true), "offsets of eight bytes");
}
