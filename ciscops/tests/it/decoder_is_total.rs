//! The decoder believes nothing: any 64 bytes give a command or an errno, and what it accepts means one thing only.

use proptest::prelude::*;
use weldfs_ciscops::sqe::flags;
use weldfs_ciscops::*;

const POOL: u32 = 4 << 20;

fn limits() -> SessionLimits {
    SessionLimits { pool_bytes: POOL }
}

fn decode(sqe: Sqe) -> Result<Command, Errno> {
    validate(&RawCommand(sqe), &limits())
}

/// SQEs that have a chance: a known opcode, stray bits masked off, ranges mostly inside.
fn likely_sqe() -> impl Strategy<Value = Sqe> {
    prop_oneof![8 => masked_sqe(), 1 => compute_op().prop_map(|op| Command::new(9, op).encode())]
}

/// The fused ops whose operands depend on each other too much for chance.
fn compute_op() -> impl Strategy<Value = Op> {
    let range = |len: u32| (0..POOL - len).prop_map(move |off| PoolRange::new(off, len));
    let h = Handle { index: 3, generation: 9 };
    let verify = (0..5000u32, any::<bool>(), 0..1u64 << 40).prop_map(move |(len, show, offset)| {
        let out = PoolRange::new(8, if show { len } else { 0 });
        Op::ReadChecksumVerify { h, kind: ChecksumKind::Crc32c, offset, len, out }
    });
    let modify = (0..4u32, any::<[u8; 16]>(), range(8), range(8), 0..5u8, any::<bool>()).prop_map(
        move |(len, imm, a, b, kind, show)| {
            let len = 1 << len;
            let (a, b) = (PoolRange::new(a.off, len), PoolRange::new(b.off, len));
            let mut short = [0; 16];
            short[..len as usize].copy_from_slice(&imm[..len as usize]);
            let modify = match kind {
                0 => Modify::Patch(a),
                1 => Modify::Add(u64::from_le_bytes(imm[..8].try_into().unwrap())),
                2 => Modify::Xor(a),
                3 => Modify::XorImm(short),
                _ => Modify::CompareSwap { expect: a, new: b },
            };
            let out = PoolRange::new(16, if show { len } else { 0 });
            Op::ReadModifyWrite { h, offset: imm[15] as u64 * 977, len, modify, out }
        },
    );
    prop_oneof![verify, modify]
}

fn masked_sqe() -> impl Strategy<Value = Sqe> {
    (any::<[u64; 8]>(), 0..OPS.len(), 0..10u8).prop_map(|(mut w, op, shape)| {
        let spec = OPS[op];
        for (word, used) in w.iter_mut().zip(spec.used) {
            *word &= used;
        }
        let mut sqe = Sqe::from_words(w);
        sqe.opcode = spec.opcode as u16;
        sqe.flags &= flags::DURABLE | flags::AFTER_DURABLE | flags::DETECTABLE | 4;
        if shape > 0 {
            sqe.length &= 0x1fff >> (shape * 2 % 8);
            sqe.length2 &= 0x1ff;
            sqe.pool_off &= 0x1f_ffff;
            sqe.pool_off2 &= 0x1f_ffff;
            sqe.offset &= 0xffff_ffff;
            sqe.aux &= 0xb1ff_00ff >> (shape % 3 * 4) | 3;
        }
        if shape > 5 {
            sqe.imm = (u128::from_le_bytes(sqe.imm) & 0xffff_ffff_0000_007f_0000_ffff).to_le_bytes();
        }
        for fixed in [256, 64, 32, 128] {
            let exact = |o: &optable::OperandSpec, l: fn(RangeKind) -> Lane| {
                o.lane == l(RangeKind::Exact(fixed)) || o.lane == l(RangeKind::OptExact(fixed))
            };
            if spec.operands.iter().any(|o| exact(o, Lane::A)) {
                sqe.length = fixed;
            }
            if spec.operands.iter().any(|o| exact(o, Lane::B)) {
                sqe.length2 = fixed;
            }
        }
        if spec.opcode == Opcode::SetKey {
            sqe.length = KeyKind::from_wire(u64::from(sqe.aux as u8)).map_or(1, KeyKind::bytes);
        }
        if matches!(spec.opcode, Opcode::Open | Opcode::Read | Opcode::ReadDirPlus) && shape > 3 {
            // A watch, or none; with room for what comes along, or without.
            let watch = u128::from_le_bytes(sqe.imm) >> 32 & 31;
            let at = if spec.opcode == Opcode::Open { 32 } else { 0 };
            sqe.imm = (watch << at).to_le_bytes();
            sqe.length2 = if watch == 0 { 0 } else { 256 + (sqe.length2 & 0xfff) };
        }
        if spec.opcode == Opcode::Batch {
            (sqe.length, sqe.length2) = (sqe.length / 64 * 64, sqe.length / 64 * 32);
        }
        for (word, used) in [(&mut sqe.pool_off, spec.used[4]), (&mut sqe.pool_off2, spec.used[5])] {
            if used == 0 {
                *word = 0;
            }
        }
        if spec.used[4] == 0 {
            sqe.length = 0;
        }
        if spec.used[5] == 0 {
            sqe.length2 = 0;
        }
        sqe.aux &= (spec.used[0] >> 32) as u32;
        sqe.imm = (u128::from_le_bytes(sqe.imm) & (spec.used[6] as u128 | (spec.used[7] as u128) << 64)).to_le_bytes();
        sqe
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn random_bytes_never_panic(words: [u64; 8]) {
        let _ = decode(Sqe::from_words(words));
    }

    #[test]
    fn what_is_accepted_encodes_back_to_the_same_bytes(sqe in likely_sqe()) {
        if let Ok(cmd) = decode(sqe) {
            prop_assert_eq!(cmd.encode(), sqe);
            prop_assert_eq!(decode(cmd.encode()), Ok(cmd));
        }
    }

    #[test]
    fn a_bit_the_op_does_not_use_is_einval(sqe in likely_sqe(), bit in 0..512usize) {
        let spec = OPS.iter().find(|s| s.opcode as u16 == sqe.opcode).unwrap();
        let mut words = sqe.to_words();
        let unused = |b: &usize| spec.used[b / 64] >> (b % 64) & 1 == 0;
        let Some(bit) = (bit..512).chain(0..bit).find(unused) else { return Ok(()) };
        words[bit / 64] |= 1 << (bit % 64);
        prop_assert_eq!(decode(Sqe::from_words(words)), Err(Errno::INVAL));
    }

    #[test]
    fn flipping_any_one_bit_gives_a_command_or_an_errno(sqe in likely_sqe(), bit in 0..512usize) {
        let mut words = sqe.to_words();
        words[bit / 64] ^= 1 << (bit % 64);
        let flipped = Sqe::from_words(words);
        if let (Ok(a), Ok(b)) = (decode(sqe), decode(flipped)) {
            prop_assert_ne!(a, b, "two encodings of one command");
        }
    }
}

#[test]
fn the_generator_reaches_every_op() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = likely_sqe();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..200_000 {
        let sqe = strategy.new_tree(&mut runner).unwrap().current();
        if let Ok(cmd) = decode(sqe) {
            seen.insert(cmd.op.opcode() as u16);
        }
        if seen.len() == OPS.len() {
            return;
        }
    }
    let missing: Vec<_> = OPS.iter().filter(|s| !seen.contains(&(s.opcode as u16))).map(|s| s.name).collect();
    panic!("no valid SQE generated for {missing:?}");
}

fn write_at(offset: u64, len: u32) -> Op {
    Op::Write { h: Handle::ROOT, at: At::Offset(offset), src: PoolRange::new(0, len) }
}

fn verdict(op: Op) -> Result<(), Errno> {
    decode(Command::new(0, op).encode()).map(|_| ())
}

#[test]
fn what_comes_along_has_a_watch_and_room() {
    let open = |len: u32, watch: u32| {
        let (base, path, look) = (Handle::ROOT, PoolRange::new(0, 3), PoolRange::new(0, len));
        let op = Op::Open { base, path, flags: OpenFlags::READ, mode: 0, placeholder: 0, look, watch };
        decode(Command::new(1, op).encode()).map(drop)
    };
    let most = limits::LOOK_MAX;
    for (len, watch) in [(0, 0), (256, 1), (most, limits::WATCHES)] {
        assert_eq!(open(len, watch), Ok(()), "{len} {watch}");
    }
    for (len, watch) in [(0, 1), (256, 0), (255, 1), (most + 1, 1), (256, limits::WATCHES + 1), (256, u32::MAX)] {
        assert_eq!(open(len, watch), Err(Errno::INVAL), "{len} {watch}");
    }
    let list = |watch| Op::ReadDirPlus { h: Handle::ROOT, cookie: 0, out: PoolRange::new(0, 9), watch };
    assert!(decode(Command::new(1, list(limits::WATCHES)).encode()).is_ok());
    assert_eq!(decode(Command::new(1, list(limits::WATCHES + 1)).encode()), Err(Errno::INVAL));
    let read = |watch| Op::Read { h: Handle::ROOT, at: At::Offset(0), out: PoolRange::new(0, 9), watch };
    assert!(decode(Command::new(1, read(limits::WATCHES)).encode()).is_ok());
    assert_eq!(decode(Command::new(1, read(limits::WATCHES + 1)).encode()), Err(Errno::INVAL));
    for (at, watch, taken) in [
        (At::Offset((1 << 58) - 1), 1, true),
        (At::Offset(1 << 58), 1, false),
        (At::Offset(1 << 58), 0, true),
        (At::Current, 1, false),
        (At::Current, 0, true),
    ] {
        let op = Op::Read { h: Handle::ROOT, at, out: PoolRange::new(0, 9), watch };
        assert_eq!(decode(Command::new(1, op).encode()).is_ok(), taken, "{at:?} {watch}");
    }
}

#[test]
fn each_refusal_has_its_errno() {
    let h = Handle::ROOT;
    let path = PoolRange::new(0, 3);
    let r = PoolRange::new;
    let sqe = Command::new(1, Op::Nop).encode();
    assert_eq!(decode(Sqe { opcode: 999, ..sqe }), Err(Errno::NOSYS), "unknown opcode");
    for (bits, errno) in [
        (3, Errno::INVAL),
        (3 << 2, Errno::INVAL),
        (2 << 4, Errno::OPNOTSUPP),
        (3 << 4, Errno::OPNOTSUPP),
        (3 << 4 | flags::OR_CORE, Errno::OPNOTSUPP),
        (1 << 4 | flags::OR_CORE, Errno::INVAL),
        (flags::OR_CORE, Errno::INVAL),
        (flags::POSTED, Errno::INVAL),
        (flags::DETECTABLE, Errno::INVAL),
        (5 << 12, Errno::INVAL),
        (7 << 12 | 3 << 10, Errno::INVAL),
        (1 << 15, Errno::INVAL),
    ] {
        assert_eq!(decode(Sqe { flags: bits, ..sqe }), Err(errno), "flags {bits:#x}");
    }
    assert_eq!(decode(Sqe { flags: 1 << 4, ..sqe }).map(|c| c.op), Ok(Op::Nop), "placement device");
    let append = Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src: path };
    let placed = |bits| decode(Sqe { flags: bits, ..Command::new(1, append).encode() }).map(|c| c.placement);
    assert_eq!(placed(0), Ok(Placement::Auto));
    assert_eq!(placed(1 << 4), Ok(Placement::Device));
    assert_eq!(placed(3 << 4), Ok(Placement::Slot { or_core: false }));
    assert_eq!(placed(3 << 4 | flags::OR_CORE), Ok(Placement::Slot { or_core: true }));
    let max = i64::MAX as u64;
    for (op, want) in [
        (write_at(max - 10, 10), Ok(())),
        (write_at(max - 10, 11), Err(Errno::FBIG)),
        (write_at(max + 1, 0), Err(Errno::INVAL)),
        (write_at(u64::MAX, 1), Err(Errno::INVAL)),
        (write_at(0, limits::ATOMIC_WRITE_MAX), Ok(())),
        (write_at(0, limits::ATOMIC_WRITE_MAX + 1), Err(Errno::TOOBIG)),
        (Op::Write { h, at: At::End, src: r(POOL - 1, 2) }, Err(Errno::FAULT)),
        (Op::Write { h, at: At::End, src: r(u32::MAX, 1 << 20) }, Err(Errno::FAULT)),
        (Op::Read { h, at: At::End, out: r(0, 1), watch: 0 }, Err(Errno::INVAL)),
        (Op::Truncate { h, size: max }, Ok(())),
        (Op::Truncate { h, size: max + 1 }, Err(Errno::INVAL)),
        (Op::Fallocate { h, mode: FallocMode::Punch, off: 0, len: 0 }, Err(Errno::INVAL)),
        (Op::Fallocate { h, mode: FallocMode::Punch, off: max, len: 1 }, Err(Errno::FBIG)),
        (Op::Batch { items: r(0, 64), results: r(64, 32) }, Ok(())),
        (Op::Batch { items: r(32, 64), results: r(0, 32) }, Ok(())),
        (Op::Batch { items: r(0, 64 * 256), results: r(1 << 15, 32 * 256) }, Ok(())),
        (Op::Batch { items: r(0, 64 * 257), results: r(1 << 15, 32 * 257) }, Err(Errno::TOOBIG)),
        (Op::Batch { items: r(0, 0), results: r(0, 0) }, Err(Errno::INVAL)),
        (Op::Batch { items: r(0, 65), results: r(128, 32) }, Err(Errno::INVAL)),
        (Op::Batch { items: r(0, 128), results: r(128, 32) }, Err(Errno::INVAL)),
        (Op::Batch { items: r(0, 64), results: r(63, 32) }, Err(Errno::INVAL)),
        (Op::Batch { items: r(31, 64), results: r(0, 32) }, Err(Errno::INVAL)),
        (Op::Batch { items: r(POOL - 32, 64), results: r(0, 32) }, Err(Errno::FAULT)),
        (Op::SetKey { kind: KeyKind::Xts256, bytes: r(0, 64) }, Ok(())),
        (Op::SetKey { kind: KeyKind::Xts256, bytes: r(0, 32) }, Err(Errno::INVAL)),
        (Op::SetKey { kind: KeyKind::Gcm128, bytes: r(POOL - 8, 16) }, Err(Errno::FAULT)),
        (Op::ReadDirPlus { h, cookie: max + 1, out: r(0, 9), watch: 0 }, Err(Errno::INVAL)),
        (Op::TxnWrite { txn: h, h, at: At::Current, src: r(0, 9) }, Err(Errno::INVAL)),
        (Op::TxnWrite { txn: h, h, at: At::Offset(max), src: r(0, 9) }, Err(Errno::FBIG)),
        (Op::TxnWrite { txn: h, h, at: At::End, src: r(0, 9) }, Ok(())),
        (Op::Mkdir { base: h, path: r(0, 0), mode: 0 }, Err(Errno::NOENT)),
        (Op::Mkdir { base: h, path: r(0, 4096), mode: 0 }, Err(Errno::NAMETOOLONG)),
        (Op::Mkdir { base: h, path: r(0, 4095), mode: 0o7777 }, Ok(())),
        (Op::Stat { h, out: r(0, 255) }, Err(Errno::INVAL)),
        (Op::open(h, path, OpenFlags::CREATE, 0), Err(Errno::INVAL)),
        (Op::OpenReadClose { base: h, path, flags: OpenFlags::WRITE, offset: 0, out: r(0, 9) }, Err(Errno::INVAL)),
        (Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src: r(0, (1 << 20) - 4) }, Ok(())),
        (Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src: r(0, 1 << 20) }, Err(Errno::TOOBIG)),
        (Op::ReadModifyWrite { h, offset: 0, len: 3, modify: Modify::Add(1), out: r(0, 0) }, Err(Errno::INVAL)),
        (Op::ReadModifyWrite { h, offset: 0, len: 8, modify: Modify::Add(1), out: r(0, 4) }, Err(Errno::INVAL)),
        (Op::ReadModifyWrite { h, offset: max - 7, len: 8, modify: Modify::Add(1), out: r(0, 0) }, Err(Errno::FBIG)),
        (
            Op::ReadModifyWrite { h, offset: 0, len: 65537, modify: Modify::Patch(r(0, 65537)), out: r(0, 0) },
            Err(Errno::TOOBIG),
        ),
    ] {
        assert_eq!(verdict(op), want, "{op:?}");
    }
}

#[test]
fn only_commands_with_a_transaction_are_detectable() {
    let h = Handle::ROOT;
    let out = PoolRange::new(0, 64);
    for op in [
        Op::Nop,
        Op::Close { h },
        Op::Fsync { h },
        Op::Fdatasync { h },
        Op::Syncfs,
        Op::SetFlags { h, flags: OpenFlags::empty() },
        Op::Outcome { client: [1; 16], queue: 0, sequence: 0, out },
        Op::ChecksumRange { h, kind: ChecksumKind::Crc32c, offset: 0, len: 1 },
        Op::Batch { items: PoolRange::new(0, 64), results: PoolRange::new(64, 32) },
        Op::ReadDirPlus { h, cookie: 0, out, watch: 0 },
        Op::SetKey { kind: KeyKind::Gcm128, bytes: PoolRange::new(0, 16) },
        Op::DropKey { key: 1 },
        Op::TxnBegin,
        Op::TxnWrite { txn: h, h, at: At::End, src: out },
        Op::TxnAbort { txn: h },
    ] {
        assert_eq!(decode(Command::new(0, op).detectable().encode()), Err(Errno::INVAL), "{op:?}");
    }
    for op in [write_at(0, 1), Op::Truncate { h, size: 1 }, Op::Read { h, at: At::Current, out, watch: 0 }] {
        assert!(decode(Command::new(0, op).detectable().encode()).unwrap().detectable, "{op:?}");
    }
}

#[test]
fn strings_are_checked_on_a_private_copy() {
    let pool = SharedRegion::heap(8192);
    let put = |s: &[u8]| {
        pool.bytes(0, s.len()).unwrap().copy_from(s);
        let op = Op::Unlink { base: Handle::ROOT, path: PoolRange::new(0, s.len() as u32) };
        Paths::fetch(&Command::new(0, op), &pool)
    };
    assert_eq!(put(b"a/b").unwrap().a[..], *b"a/b");
    assert_eq!(put(b"a\0b"), Err(Errno::INVAL));
    assert!(put(&[b'x'; 255]).is_ok());
    assert_eq!(put(&[b'x'; 256]), Err(Errno::NAMETOOLONG));
    let long: Vec<u8> = [&[b'x'; 200][..], b"/", &[b'y'; 200]].concat();
    assert!(put(&long).is_ok());
    let before = put(b"stable").unwrap();
    pool.bytes(0, 6).unwrap().copy_from(b"racing");
    assert_eq!(before.a[..], *b"stable");
}

#[test]
fn any_op_has_hints() {
    let sqe = Command::new(1, Op::Nop).encode();
    for priority in Priority::ALL {
        for life in Life::ALL {
            let bits = (priority as u16) << 10 | (life as u16) << 12;
            let hinted = decode(Sqe { flags: bits, ..sqe }).map(|c| (c.hints, c.encode().flags));
            assert_eq!(hinted, Ok((Hints { priority, life }, bits)));
        }
    }
}
