//! Malformed commands, made out of the sound one of every row by changing one thing that the wire can say: each has the
//! errno that docs/COMMANDS.md states, and changes nothing.

use super::*;
use weldfs_ciscops::limits::ATOMIC_WRITE_MAX;
use weldfs_ciscops::program::{HEADER_BYTES, MICRO_BYTES};
use weldfs_ciscops::{Command, Cqe, Sqe};
use zerocopy::IntoBytes;

/// A handle that was never given.
const NOBODY: Handle = Handle { index: 60_000, generation: 7 };
/// A key that was never given.
const NO_KEY: u64 = 99;

/// Where operands and bodies lie: behind what pictures are taken through.
const HERE: u32 = 4 << 20;

/// A malformed command, as bytes that lie in the pool.
pub struct Wrong {
    /// What is wrong with it.
    pub what: &'static str,
    /// The entry.
    pub sqe: Sqe,
    /// What it must be refused with.
    pub errno: Errno,
}

/// An entry that no typed command can say is handed over as the element of a batch.
pub fn submit(m: &mut dyn Machine, sqe: &Sqe) -> Cqe {
    let (at, results) = (m.pool() - 128, PoolRange::new(m.pool() - 64, Cqe::SIZE as u32));
    let items = m.put(at, sqe.as_bytes());
    let whole = m.run(&Command::new(0, Op::Batch { items, results }));
    assert_eq!(whole.status, 0, "the batch itself is sound");
    let mut cqe = Cqe::default();
    cqe.as_mut_bytes().copy_from_slice(&m.take(results));
    cqe
}

/// Where the next body lies: each wrong one stays in the pool until it is run.
struct Bodies<'m> {
    m: &'m mut dyn Machine,
    at: u32,
    wrong: Vec<Wrong>,
}

impl Bodies<'_> {
    fn add(&mut self, what: &'static str, body: &[u8], errno: Errno) {
        let at = self.m.put(self.at, body);
        self.at = (self.at + at.len).next_multiple_of(64);
        self.wrong.push(Wrong { what, sqe: Command::new(0, Body::op(at)).encode(), errno });
    }
}

/// Kinds of micro-ops, and where the fields of one lie.
const OPEN: u8 = 1;
const USE: u8 = 2;
const READ: u8 = 3;
const WRITE: u8 = 4;
const CHECKSUM: u8 = 7;
const TRANSFORM: u8 = 14;
const KERNEL: u8 = 28;
const COPY_RANGE: u8 = 15;
const SCAN: u8 = 16;
const MODES_AT: usize = 7;
const X_AT: usize = 8;
const Y_AT: usize = 16;

/// Every malformed form of a program, whose files are open as `h`.
///
/// # Panics
/// When the sound one is none.
pub fn programs(m: &mut dyn Machine, ins: &[Vec<u8>], body: &Body) -> Vec<Wrong> {
    let (mut pool, mut ranges) = (super::Pool::from(HERE), Vec::new());
    let mut ins = ins.iter();
    for p in 0..body.pools() {
        let p = weldfs_ciscops::program::Pool(p as u8);
        let bytes = if body.is_output(p) { None } else { ins.next() };
        ranges.push(match bytes {
            Some(bytes) => pool.put(m, bytes),
            None => pool.room(body.pool_len(p)),
        });
    }
    let bytes = body.bind(&ranges).expect("as many ranges as it has");
    let (pool_bytes, at) = (m.pool(), pool.room(0).off);
    let mut all = Bodies { m, at, wrong: Vec::new() };
    let micros = usize::from(bytes[2]);
    {
        let mut with = |what, at: usize, new: &[u8], errno| {
            let mut body = bytes.clone();
            body[at..at + new.len()].copy_from_slice(new);
            all.add(what, &body, errno);
        };
        with("another version", 0, &[2], Errno::OPNOTSUPP);
        with("more micro-ops than a program may have", 2, &[17], Errno::TOOBIG);
        with("a result in register 8", 5, &[8], Errno::INVAL);
        with("a reserved byte of the header", 12, &[1], Errno::INVAL);
        with("a buffer above the limit", 32, &(ATOMIC_WRITE_MAX + 1).to_le_bytes(), Errno::TOOBIG);
        with("an unknown kind", HEADER_BYTES, &[99], Errno::NOSYS);
        let table = HEADER_BYTES + micros * MICRO_BYTES;
        if body.pools() > 0 {
            with(
                "a range outside of the pool",
                table,
                &pool_bytes.to_le_bytes(),
                match ranges[0].len {
                    0 => return all.wrong,
                    _ => Errno::FAULT,
                },
            );
            with("a range above the limit", table + 4, &(ATOMIC_WRITE_MAX + 1).to_le_bytes(), Errno::TOOBIG);
        }
        for i in 0..micros {
            let at = HEADER_BYTES + i * MICRO_BYTES;
            let micro = &bytes[at..at + MICRO_BYTES];
            let far = (1u64 << 63).to_le_bytes();
            let constant = micro[MODES_AT] & 1 == 0;
            match micro[0] {
                USE => with("an unknown handle", at + X_AT, &NOBODY.to_wire().to_le_bytes(), Errno::BADF),
                OPEN => with("an unknown directory", at + X_AT, &NOBODY.to_wire().to_le_bytes(), Errno::BADF),
                READ | COPY_RANGE | SCAN if constant => with("an offset out of range", at + X_AT, &far, Errno::INVAL),
                WRITE if constant && micro[2] == 0 => with("an offset out of range", at + X_AT, &far, Errno::INVAL),
                _ => {}
            }
            match (micro[0], micro[1]) {
                (READ | WRITE, _) => {
                    with("a file in slot 8", at + 1, &[8], Errno::INVAL);
                    with("register 8", at + 3, &[8], Errno::INVAL);
                    with("an unknown checksum", at + 6, &[0x30], Errno::INVAL);
                }
                (KERNEL, _) => {
                    with("a kernel without a name", at + 2, &[31], Errno::INVAL);
                    with("parameters that are no string", at + 3, &[31], Errno::INVAL);
                    with("more registers than parameters", at + X_AT, &2u64.to_le_bytes(), Errno::INVAL);
                }
                (CHECKSUM, _) => with("an unknown checksum", at + 2, &[9], Errno::INVAL),
                (TRANSFORM, _) if micro[2] < 2 => with("an unknown codec", at + 3, &[9], Errno::INVAL),
                (TRANSFORM, _) => {
                    with("an unknown key", at + Y_AT, &NO_KEY.to_le_bytes(), Errno::NOKEY);
                    with("an unknown transform", at + 2, &[9], Errno::INVAL);
                    if micro[2] < 4 {
                        with("a unit of 8 KiB", at + 3, &[13], Errno::INVAL);
                    }
                }
                _ => {}
            }
        }
    }
    all.add("a body that is cut", &bytes[..bytes.len() - 1], Errno::INVAL);
    all.wrong
}

/// Every malformed form of a command with an opcode of its own.
pub fn singles(m: &mut dyn Machine, single: &Single, h: &[Handle]) -> Vec<Wrong> {
    let mut pool = super::Pool::from(HERE);
    let mut range = |r: &Range| match r {
        Range::In(bytes) => pool.put(m, bytes),
        Range::Out(len) => pool.room(*len),
    };
    let ranges: Vec<PoolRange> = single.ranges.iter().map(&mut range).collect();
    let op = (single.op)(h, &ranges);
    let sqe = Command::new(0, op).encode();
    let pool_bytes = m.pool();
    let mut wrong = Vec::new();
    let mut with = |what, errno, change: &dyn Fn(&mut Sqe)| {
        let mut sqe = sqe;
        change(&mut sqe);
        wrong.push(Wrong { what, sqe, errno });
    };
    with("an unknown operation", Errno::NOSYS, &|s| s.opcode = 250);
    with("an unknown durability", Errno::INVAL, &|s| s.flags |= 3);
    with("an unknown mode", Errno::INVAL, &|s| s.flags |= 3 << 2);
    with("a placement on the host", Errno::OPNOTSUPP, &|s| s.flags |= 2 << 4);
    if !op.has_slot_form() {
        with("a placement in a slot", Errno::OPNOTSUPP, &|s| s.flags |= 3 << 4);
    }
    with("a core in the place of no slot", Errno::INVAL, &|s| s.flags |= 1 << 9);
    with("a reserved flag", Errno::INVAL, &|s| s.flags |= 1 << 15);
    with("a reserved bit", Errno::INVAL, &|s| s.aux |= 1 << 30);
    with("an unknown handle", Errno::BADF, &|s| s.handle = NOBODY.to_wire());
    if sqe.length > 0 {
        with("a range outside of the pool", Errno::FAULT, &|s| s.pool_off = pool_bytes);
    }
    let far = |s: &mut Sqe| s.offset = 1 << 63;
    let long = ATOMIC_WRITE_MAX + 1;
    match op {
        Op::OpenWriteClose { .. } | Op::OpenReadWriteClose { .. } => {
            with("an offset out of range", Errno::INVAL, &far);
            with("more than a payload may be", Errno::TOOBIG, &|s| (s.pool_off2, s.length2) = (0, long));
        }
        Op::OpenReadClose { .. } => {
            with("an offset out of range", Errno::INVAL, &far);
            with("more than a payload may be", Errno::TOOBIG, &|s| (s.pool_off2, s.length2) = (0, long));
        }
        Op::AppendChecksumWrite { .. } => {
            with("an unknown checksum", Errno::INVAL, &|s| s.aux |= 9);
            with("more than a payload may be", Errno::TOOBIG, &|s| (s.pool_off, s.length) = (0, long - 4));
        }
        Op::ReadChecksumVerify { .. } => {
            with("an unknown checksum", Errno::INVAL, &|s| s.aux |= 9);
            with("an offset out of range", Errno::INVAL, &far);
        }
        Op::ReadModifyWrite { .. } => {
            with("an unknown change", Errno::INVAL, &|s| s.aux = s.aux & !0xff | 9);
            with("an offset out of range", Errno::INVAL, &far);
        }
        Op::ReadDirPlus { .. } => with("a cookie out of range", Errno::INVAL, &far),
        _ => {}
    }
    wrong
}
