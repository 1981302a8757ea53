//! The bytes of a body as docs/COMMANDS.md has them, and each way in which a body is no program with its errno.

use weldfs_ciscops::program::*;
use weldfs_ciscops::*;

const POOL: u32 = 1 << 20;

fn micro(head: [u8; 8], x: u64, y: u64, z: u64) -> Vec<u8> {
    [&head[..], &x.to_le_bytes(), &y.to_le_bytes(), &z.to_le_bytes()].concat()
}

/// Open "/f" (slot 0), append range 0 with its checksum to register 2, write the register behind it, close.
fn golden() -> Vec<u8> {
    let mut body = vec![0; 64];
    body[..9].copy_from_slice(&[1, 0, 4, 1, 1, 3, 255, 0, 2]);
    (body[32], body[33]) = (0, 16); // buffer 0: 4096 bytes
    body.extend(micro([1, 0, 0, 255, 7, 0, 0, 0], 0x1_0000_0002, 0o644, 0));
    body.extend(micro([4, 0, 1, 3, 2, 0, 0x02, 0], 0, 0, 0));
    body.extend(micro([4, 0, 2, 255, 6, 2, 255, 0], 0, 0, 0));
    body.extend(micro([26, 0, 0, 0, 0, 0, 0, 0], 0, 0, 0));
    body.extend([0x00, 0x02, 0, 0, 0x64, 0, 0, 0]); // range 0: 100 bytes at 512
    body.extend([0, 0, 2, 0]);
    body.extend(b"/f");
    body
}

#[test]
fn golden_bytes_of_a_body() {
    let program = Program::decode(&golden(), POOL).unwrap();
    let file = FileSlot(0);
    let base = Handle { index: 2, generation: 1 };
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let fold = Some(Fold { kind: SumKind::Crc32c, to: Reg(2) });
    let trailer = Bytes::Int(Reg(2), Int::U32_LE);
    assert_eq!(
        program.micros(),
        [
            Micro::Open { file, base, path: Str(0), flags, mode: 0o644, created: None },
            Micro::Write { file, place: Place::End, from: Bytes::Pool(Pool(0)), fold, at: Some(Reg(3)) },
            Micro::Write { file, place: Place::After, from: trailer, fold: None, at: None },
            Micro::Close { file },
        ]
    );
    assert_eq!(program.results(), [Some(Reg(3)), None]);
    assert_eq!((program.range(Pool(0)), program.string(Str(0))), (PoolRange::new(512, 100), &b"/f"[..]));
    assert_eq!(program.capacity(BufSlot(0)), 4096);
    assert_eq!(program.encode(), golden());
}

#[test]
fn golden_bytes_of_operands() {
    let value = |m: Micro| {
        let mut b = Builder::new();
        let (file, buf) = (b.open(Handle::ROOT, b"f", OpenFlags::READ, 0), b.buffer(16));
        let to = b.register();
        b.push(Micro::Size { file, to });
        b.push(Micro::Fill { buf, from: Bytes::Int(to, Int::U64_LE), append: false });
        b.push(m);
        let body = b.finish().unwrap();
        body.program().encode()[64 + 3 * 32..64 + 4 * 32].to_vec()
    };
    let (buf, to) = (BufSlot(0), Reg(0));
    let int = Int { width: Width::W2, order: Order::Big };
    let load = Micro::Load { to, buf, off: Value::Reg(Reg(0)), int };
    assert_eq!(value(load), micro([9, 0, 0, 0, 9, 0, 0, 1], 0, 0, 0));
    let guard = Micro::Guard {
        cond: Cond::Compare(Value::Reg(Reg(0)), Relation::Ge, Value::Imm(300)),
        otherwise: Else::Fail(Errno::BADMSG),
    };
    assert_eq!(value(guard), micro([17, 0, 5, 0, 74, 0, 0, 1], 0, 300, 0));
    let (file, off) = (FileSlot(0), Value::Imm(8));
    let read = Micro::Read {
        file,
        off,
        len: Value::Reg(to),
        to: To::Buffer(buf),
        whole: true,
        pad: false,
        fold: None,
        count: Some(Reg(1)),
    };
    assert_eq!(value(read), micro([3, 0, 1, 1, 1, 0, 255, 2], 8, 0, 0));
}

/// The golden body with some bytes changed.
fn changed(changes: &[(usize, u8)]) -> Result<Program, Fault> {
    let mut body = golden();
    for (at, v) in changes {
        body[*at] = *v;
    }
    Program::decode(&body, POOL)
}

const OPEN: usize = 64;
const WRITE: usize = 96;
const TRAILER: usize = 128;
const CLOSE: usize = 160;
const RANGE: usize = 192;
const STRING: usize = 200;

#[test]
fn each_malformed_body_has_its_errno_and_its_micro_op() {
    for (what, changes, errno, micro) in [
        ("another version", &[(0, 2)][..], Errno::OPNOTSUPP, None),
        ("no micro-ops", &[(2, 0)], Errno::INVAL, None),
        ("too many micro-ops", &[(2, 17)], Errno::TOOBIG, None),
        ("too many ranges", &[(3, 17)], Errno::TOOBIG, None),
        ("too many strings", &[(4, 33)], Errno::TOOBIG, None),
        ("counts that do not add up", &[(2, 3)], Errno::INVAL, None),
        ("data that does not add up", &[(8, 3)], Errno::INVAL, None),
        ("a result that is no register", &[(5, 8)], Errno::INVAL, None),
        ("a reserved byte", &[(20, 1)], Errno::INVAL, None),
        ("a buffer above a payload", &[(34, 0x20)], Errno::TOOBIG, None),
        ("buffers above the limit", &[(34, 16), (38, 16), (42, 16), (46, 16), (50, 1)], Errno::TOOBIG, None),
        ("a range outside the pool", &[(RANGE + 2, 0x10)], Errno::FAULT, None),
        ("a range above a payload", &[(RANGE + 6, 0x20)], Errno::TOOBIG, None),
        ("a string outside the data", &[(STRING, 1)], Errno::INVAL, None),
        ("an unknown kind", &[(OPEN, 99)], Errno::NOSYS, Some(0)),
        ("a field without a meaning", &[(OPEN + 24, 1)], Errno::INVAL, Some(0)),
        ("a mode bit without a meaning", &[(CLOSE + 7, 1)], Errno::INVAL, Some(3)),
        ("open flags that clash", &[(OPEN + 4, 4)], Errno::INVAL, Some(0)),
        ("open flags that do not exist", &[(OPEN + 5, 0x80)], Errno::INVAL, Some(0)),
        ("a directory", &[(OPEN + 4, 0x41)], Errno::INVAL, Some(0)),
        ("permission bits that do not exist", &[(OPEN + 17, 0x10)], Errno::INVAL, Some(0)),
        ("no such string", &[(OPEN + 2, 1)], Errno::INVAL, Some(0)),
        ("an empty path", &[(STRING + 2, 0)], Errno::NOENT, Some(0)),
        ("a path with a NUL", &[(STRING + 5, 0)], Errno::INVAL, Some(0)),
        ("no such file slot", &[(OPEN + 1, 8)], Errno::INVAL, Some(0)),
        ("a slot without a file", &[(WRITE + 1, 1)], Errno::INVAL, Some(1)),
        ("a file not opened for that", &[(OPEN + 4, 1)], Errno::BADF, Some(1)),
        ("no such place", &[(WRITE + 2, 3)], Errno::INVAL, Some(1)),
        ("no such range", &[(WRITE + 5, 1)], Errno::INVAL, Some(1)),
        ("no such kind of bytes", &[(WRITE + 4, 12)], Errno::INVAL, Some(1)),
        ("a buffer without bytes", &[(WRITE + 4, 1)], Errno::INVAL, Some(1)),
        ("no such checksum", &[(WRITE + 6, 0x32)], Errno::INVAL, Some(1)),
        ("no such register", &[(WRITE + 6, 0x09)], Errno::INVAL, Some(1)),
        ("a register that was not set", &[(TRAILER + 5, 4)], Errno::INVAL, Some(2)),
        ("behind no write", &[(WRITE + 2, 2)], Errno::INVAL, Some(1)),
        ("an offset above the largest file", &[(TRAILER + 2, 0), (TRAILER + 15, 0x80)], Errno::INVAL, Some(2)),
        (
            "a closed file",
            &[(TRAILER, 26), (TRAILER + 2, 0), (TRAILER + 3, 0), (TRAILER + 4, 0), (TRAILER + 5, 0), (TRAILER + 6, 0)],
            Errno::INVAL,
            Some(3),
        ),
    ] {
        let fault = changed(changes).expect_err(what);
        assert_eq!((fault.errno, fault.micro), (errno, micro), "{what}: {fault}");
    }
    assert_eq!(Program::decode(&golden()[..63], POOL).unwrap_err().errno, Errno::INVAL, "a cut header");
    let range_at_end = changed(&[(WRITE + 2, 0), (WRITE + 8, 0xff), (WRITE + 15, 0x7f)]);
    assert!(range_at_end.is_ok(), "an offset below the largest file");
}

/// A program that opens a file for both, and goes on so.
fn built(rest: &[Micro]) -> Result<Body, Fault> {
    let mut b = Builder::new();
    b.open(Handle::ROOT, b"f", OpenFlags::READ | OpenFlags::WRITE, 0);
    for micro in rest {
        b.push(*micro);
    }
    b.finish()
}

#[test]
fn what_is_set_on_one_way_only_may_not_be_set() {
    let skip =
        |n| Micro::Guard { cond: Cond::Compare(Value::Imm(1), Relation::Eq, Value::Imm(2)), otherwise: Else::Skip(n) };
    let set = Micro::Arith { to: Reg(0), a: Value::Imm(1), op: Arith::Add, b: Value::Imm(1) };
    let used = Micro::Truncate { file: FileSlot(0), size: Value::Reg(Reg(0)) };
    let passed_by = built(&[skip(1), set, used]);
    assert_eq!(passed_by.map_err(|f| (f.errno, f.micro)).err(), Some((Errno::INVAL, Some(3))));
    assert!(built(&[skip(2), set, used]).is_ok(), "the use is passed by, too");
    assert!(built(&[set, skip(1), used]).is_ok());
    let close = Micro::Close { file: FileSlot(0) };
    let maybe_closed = built(&[set, skip(1), close, used]);
    assert_eq!(maybe_closed.map_err(|f| f.micro).err(), Some(Some(4)));
    let out = built(&[skip(2), set]);
    assert_eq!(out.map_err(|f| (f.errno, f.micro)).err(), Some((Errno::INVAL, Some(1))), "a skip out of the program");
    assert!(built(&[skip(1), set]).is_ok(), "a skip to the end");
}

#[test]
fn totals_are_bounded_before_anything_runs() {
    let file = FileSlot(0);
    let copy = |len: Value, max: u32| Micro::CopyRange {
        from: file,
        off: Value::Imm(0),
        len,
        max,
        to: file,
        place: Place::End,
        count: None,
    };
    let limit = limits::PROGRAM_WRITE_MAX;
    let errno = |r: Result<Body, Fault>| r.err().map(|f| f.errno);
    assert_eq!(errno(built(&[copy(Value::Imm(limit), 0)])), None);
    assert_eq!(errno(built(&[copy(Value::Imm(limit + 1), 0)])), Some(Errno::TOOBIG));
    let twice = &[copy(Value::Imm(limit), 0), copy(Value::Imm(1), 0)];
    assert_eq!(errno(built(twice)), Some(Errno::TOOBIG), "all micro-ops together");
    assert_eq!(errno(built(&[copy(Value::Imm(1), 1 << 16)])), Some(Errno::INVAL));
    let many = &[Micro::Sync; limits::MICRO_OPS_MAX];
    assert_eq!(errno(built(many)), Some(Errno::TOOBIG));
    let far = Micro::Read {
        file,
        off: Value::Imm(i64::MAX as u64),
        len: Value::Imm(1),
        to: To::Nowhere,
        whole: false,
        pad: false,
        fold: None,
        count: None,
    };
    assert_eq!(errno(built(&[far])), Some(Errno::FBIG));
}

#[test]
fn a_builder_states_every_operand_or_refuses_it() {
    let read = |fold, count| Micro::Read {
        file: FileSlot(0),
        off: Value::Imm(0),
        len: Value::Imm(4),
        to: To::Nowhere,
        whole: false,
        pad: false,
        fold,
        count,
    };
    let finish = |micro: Micro| {
        let mut b = Builder::new();
        b.take(Handle { index: 1, generation: 0 }, Access::READ | Access::WRITE);
        b.register();
        b.push(micro);
        b.finish().map(drop).map_err(|fault| (fault.errno, fault.micro))
    };
    let refused = Err((Errno::INVAL, Some(1)));
    let fold = |to| Some(Fold { kind: SumKind::Crc32, to: Reg(to) });
    assert_eq!(finish(read(fold(1), None)), Ok(()));
    assert_eq!(finish(read(fold(17), None)), refused, "four bits name the register of a fold");
    assert_eq!(finish(read(None, Some(Reg(255)))), refused, "255 stands for none");
    let copy = |max| {
        let mut b = Builder::new();
        let file = b.take(Handle { index: 1, generation: 0 }, Access::READ | Access::WRITE);
        let n = b.register();
        b.push(Micro::Size { file, to: n });
        let (off, len, place) = (Value::Imm(0), Value::Reg(n), Place::End);
        b.push(Micro::CopyRange { from: file, off, len, max, to: file, place, count: None });
        b.finish().map(drop).map_err(|fault| (fault.errno, fault.micro))
    };
    assert_eq!(copy(1 << 16), Ok(()));
    assert_eq!(copy((1 << 16) + 1), Err((Errno::INVAL, Some(2))), "a bound is a multiple of 64 KiB");
    let guard = |errno| {
        let cond = Cond::Compare(Value::Imm(0), Relation::Eq, Value::Imm(0));
        finish(Micro::Guard { cond, otherwise: Else::Fail(Errno(errno)) })
    };
    assert_eq!(guard(5), Ok(()));
    assert_eq!(guard(65_536 + 5), refused, "16 bits hold an errno");
    let mut b = Builder::new();
    b.push(Micro::Sync).results(Some(Reg(255)), None);
    assert_eq!(b.finish().map(drop).map_err(|fault| fault.errno), Err(Errno::INVAL), "a result that is no register");
    let mut b = Builder::new();
    for _ in 0..257 {
        b.push(Micro::Sync);
    }
    assert_eq!(b.finish().map(drop).map_err(|fault| fault.errno), Err(Errno::TOOBIG), "257 micro-ops are not one");
}
