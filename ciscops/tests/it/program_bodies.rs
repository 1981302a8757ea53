//! Bodies of programs: what is built decodes to itself, any bytes give a program or an errno, and what is accepted has
//! one encoding.

use proptest::prelude::*;
use weldfs_ciscops::program::*;
use weldfs_ciscops::*;

const POOL: u32 = 1 << 20;

/// A program that has something of everything: a checksummed record appended, its index entry patched, names moved.
fn sample() -> Body {
    let mut b = Builder::new();
    let payload = b.pool(4096);
    let out = b.pool(64);
    let log = b.open(Handle::ROOT, b"/log", OpenFlags::WRITE | OpenFlags::CREATE, 0o644);
    let (at, sum) = (b.register(), b.register());
    let fold = Some(Fold { kind: SumKind::Crc32c, to: sum });
    b.push(Micro::Write { file: log, place: Place::End, from: Bytes::Pool(payload), fold, at: Some(at) });
    let int = Bytes::Int(sum, Int::U32_LE);
    b.push(Micro::Write { file: log, place: Place::After, from: int, fold: None, at: None });
    let h = Handle { index: 3, generation: 1 };
    let index = b.take(h, Access::READ | Access::WRITE);
    let buf = b.buffer(64);
    let n = b.read(index, Value::Imm(0), Value::Imm(64), To::Buffer(buf));
    let fail = Else::Fail(Errno::NODATA);
    b.guard(Cond::Compare(Value::Reg(n), Relation::Eq, Value::Imm(64)), fail);
    let magic = b.literal(b"IDX1");
    b.guard(Cond::Holds { buf, off: Value::Imm(0), bytes: magic }, Else::Fail(Errno::BADMSG));
    let change = Change::Add(Int::U64_LE, Value::Imm(1));
    b.push(Micro::Change { buf, off: Value::Imm(8), change });
    b.push(Micro::Write {
        file: index,
        place: Place::At(Value::Imm(0)),
        from: Bytes::Buffer(buf),
        fold: None,
        at: None,
    });
    b.push(Micro::Give { buf, to: out, count: None });
    b.push(Micro::Close { file: log });
    let (from, to) = (b.string(b"/log"), b.string(b"/log.1"));
    let base = Handle::ROOT;
    b.push(Micro::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() });
    b.push(Micro::Sync);
    b.results(Some(at), Some(sum));
    b.finish().unwrap()
}

#[test]
fn a_built_body_decodes_to_the_program_it_was_built_from() {
    let body = sample();
    let ranges = [PoolRange::new(512, 4096), PoolRange::new(8192, 64)];
    let bytes = body.bind(&ranges).unwrap();
    assert_eq!(bytes.len(), body.len());
    let program = Program::decode(&bytes, POOL).unwrap();
    assert_eq!(program.micros(), body.program().micros());
    assert_eq!(program.ranges(), ranges);
    assert_eq!(program.encode(), bytes);
    assert_eq!((program.scratch_bytes(), program.write_bytes()), (64, 4096 + 4 + 64));
    assert!(program.is_durable() && program.changes() && program.changes_file_of(0) && program.changes_file_of(3));
    assert!(body.is_input(Pool(0)) && !body.is_output(Pool(0)) && body.is_output(Pool(1)) && !body.is_input(Pool(1)));
    assert_eq!(body.bind(&ranges[..1]), Err(Errno::INVAL));
}

#[test]
fn a_program_is_repeatable_unless_it_gives_where_it_takes_or_where_its_body_lies() {
    let (payload, body) = (PoolRange::new(512, 4096), PoolRange::new(65536, 1000));
    let repeatable = |out| {
        let bytes = sample().bind(&[payload, PoolRange::new(out, 64)]).unwrap();
        Program::decode(&bytes, POOL).unwrap().is_repeatable(body)
    };
    for (out, is) in [(448, true), (449, false), (4607, false), (4608, true), (65472, true), (65473, false)] {
        assert_eq!(repeatable(out), is, "what is given lies at {out}");
    }
    let sizes: Vec<u64> = sample().program().weighed().map(|(_, bytes)| bytes).collect();
    assert_eq!(sizes, [0, 4096, 4, 0, 64, 0, 4, 64, 64, 64, 0, 0, 0]);
}

/// A pool with room for a body at its middle.
const BODY_AT: u32 = 65536;

fn recently(recent: &mut Recent, pool: &SharedRegion, body: &[u8]) -> Result<Program, Errno> {
    let range = PoolRange::new(BODY_AT, body.len() as u32);
    pool.slice(range).unwrap().copy_from(body);
    let (program, said) = recent.fetch(range, pool)?;
    let copy = (*program).clone();
    recent.keep(program, said);
    Ok(copy)
}

#[test]
fn a_program_that_differs_in_places_and_constants_is_not_made_anew() {
    let (pool, mut recent) = (SharedRegion::heap(POOL as usize), Recent::default());
    let range = |body: &[u8]| PoolRange::new(BODY_AT, body.len() as u32);
    let first = sample().bind(&[PoolRange::new(512, 4096), PoolRange::new(8192, 64)]).unwrap();
    pool.slice(range(&first)).unwrap().copy_from(&first);
    let (program, said) = recent.fetch(range(&first), &pool).unwrap();
    let place: *const Program = &*program;
    recent.keep(program, said);
    let mut second = sample().bind(&[PoolRange::new(0, 4096), PoolRange::new(16384, 64)]).unwrap();
    let magic = second.windows(4).position(|b| b == b"IDX1").unwrap();
    second[magic] = b'J';
    pool.slice(range(&second)).unwrap().copy_from(&second);
    let (program, _) = recent.fetch(range(&second), &pool).unwrap();
    assert_eq!((&*program as *const Program, program.encode()), (place, second));
}

#[test]
fn a_program_that_came_before_is_what_its_new_body_says() {
    let (pool, mut recent) = (SharedRegion::heap(POOL as usize), Recent::default());
    let bind = |a, b| sample().bind(&[PoolRange::new(a, 4096), PoolRange::new(b, 64)]).unwrap();
    let known = bind(512, 8192);
    // Each byte of it changed, after the sound one: whatever that says, it is what the decoder says.
    for at in 0..known.len() {
        for now in [known[at] ^ 1, known[at] ^ 0x80, 0, 3] {
            let mut body = known.clone();
            body[at] = now;
            assert_eq!(recently(&mut recent, &pool, &known), Program::decode(&known, POOL).map_err(Errno::from));
            let decoded = Program::decode(&body, POOL).map_err(Errno::from);
            assert_eq!(recently(&mut recent, &pool, &body), decoded, "byte {at}: {now:#x}");
        }
    }
    // Elsewhere in the pool, and outside of it.
    for (a, b) in [(0, 8192), (8192, 0), (POOL - 4096, POOL - 64), (POOL - 4095, 0), (0, POOL - 63), (0, u32::MAX)] {
        let body = bind(a, b);
        assert_eq!(recently(&mut recent, &pool, &body), Program::decode(&body, POOL).map_err(Errno::from), "{a} {b}");
    }
    // More programs than are kept, in turns; and one that is too long to be kept.
    for round in 0..20u32 {
        let mut body = known.clone();
        let name = body.windows(4).position(|b| b == b"IDX1").unwrap();
        body[name + 3] = b'0' + (round % 6) as u8;
        assert_eq!(recently(&mut recent, &pool, &body), Program::decode(&body, POOL).map_err(Errno::from));
    }
    let mut b = Builder::new();
    b.literal(&[7; 2000]);
    b.push(Micro::Sync);
    let body = b.finish().unwrap().bind(&[]).unwrap();
    for _ in 0..2 {
        assert_eq!(recently(&mut recent, &pool, &body), Program::decode(&body, POOL).map_err(Errno::from));
    }
}

#[test]
fn a_body_is_fetched_once_and_then_its_clients_no_more() {
    let bytes = sample().bind(&[PoolRange::new(512, 4096), PoolRange::new(8192, 64)]).unwrap();
    let pool = SharedRegion::heap(POOL as usize);
    let body = PoolRange::new(65536, bytes.len() as u32);
    pool.slice(body).unwrap().copy_from(&bytes);
    let cmd = Command::new(1, Body::op(body));
    let sqe = validate(&RawCommand(cmd.encode()), &SessionLimits { pool_bytes: POOL });
    assert_eq!(sqe, Ok(cmd));
    let paths = Paths::fetch(&cmd, &pool).unwrap();
    pool.slice(body).unwrap().zero();
    assert_eq!(paths.program.unwrap().encode(), bytes);
    assert_eq!(Paths::fetch(&cmd, &pool).map(drop), Err(Errno::OPNOTSUPP), "zeros are a body of version 0");
    let long = Command::new(1, Body::op(PoolRange::new(0, limits::PROGRAM_BODY_MAX + 1)));
    assert_eq!(validate(&RawCommand(long.encode()), &SessionLimits { pool_bytes: POOL }), Err(Errno::TOOBIG));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        let _ = Program::decode(&bytes, POOL);
    }

    #[test]
    fn mutated_bodies_are_refused_or_mean_one_thing(
        at in prop::collection::vec((0..1000usize, any::<u8>()), 1..4),
        small in any::<bool>(),
    ) {
        let mut bytes = sample().bind(&[PoolRange::new(512, 4096), PoolRange::new(8192, 64)]).unwrap();
        let len = bytes.len();
        for (i, v) in at {
            bytes[i % len] = if small { v & 0x1f } else { v };
        }
        if let Ok(program) = Program::decode(&bytes, POOL) {
            prop_assert_eq!(program.encode(), bytes);
            prop_assert!(program.scratch_bytes() <= limits::PROGRAM_SCRATCH_MAX);
            prop_assert!(program.write_bytes() <= limits::PROGRAM_WRITE_MAX);
        }
    }
}
