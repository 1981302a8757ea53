//! Fused: one program, or one batch. Single: the commands that it takes instead.

use super::*;
use crate::micro::cell::Cell;
use crate::micro::files::{self, records};
use std::io;
use weldfs::{At, Command, Cqe, Handle, Op, OpenFlags, PoolRange};
use weldfs_ciscops::catalogue::{self as templates, Cipher, Node, Template};
use weldfs_ciscops::program::{
    self, Body, Builder, Bytes, Int, Micro, Order, Place, Record, SumKind, To, Value, Width,
};
use weldfs_ciscops::{Access, RenameFlags, SharedRegion, Sqe};
use zerocopy::IntoBytes;

/// Bytes of pool that an operation needs besides its payloads: a program, or the entries, completions and names of a
/// batch.
pub(in crate::micro) const AUX: u32 = 16 << 10;
/// Where those lie.
const RESULTS: u32 = NAMES as u32 * Sqe::SIZE as u32;
const PATHS: u32 = RESULTS + NAMES as u32 * Cqe::SIZE as u32;
/// Bytes for the attributes of one name, and where in them its size is.
const STAT: u32 = 256;
const SIZE_AT: usize = std::mem::offset_of!(weldfs_ciscops::StatBody, size);

const LE4: Int = Int { width: Width::W4, order: Order::Little };
const LE8: Int = Int { width: Width::W8, order: Order::Little };

/// What an operation in flight has to itself, and what its thread has open.
pub(in crate::micro) struct Lent<'a> {
    pub cell: &'a Cell,
    pub run: u64,
    /// Its number.
    pub number: u64,
    /// Where a listing goes on.
    pub cookie: u64,
    pub folder: Handle,
    pub open: &'a [Handle],
    /// What the device calls the key.
    pub key: u64,
    pub pool: &'a SharedRegion,
    pub src: PoolRange,
    pub out: PoolRange,
    pub aux: PoolRange,
}

/// The single command that writes to a log, behind open and stat, and what puts a full one aside.
const ROTATE_WRITE: u8 = 5;

/// Single commands of an operation.
pub(in crate::micro) fn steps(op: MicroOp) -> u8 {
    match op {
        MicroOp::AtomicReplace => 4,
        MicroOp::CopyRange => 2,
        MicroOp::Concat => 2 * PARTS as u8,
        MicroOp::CreateTree => 1 + 3 * PARTS as u8,
        MicroOp::AppendToRecord => 3,
        MicroOp::AppendAndRotate => ROTATE_WRITE + 2,
        MicroOp::IndexWalk => WALK as u8,
        MicroOp::MultiWrite => PARTS as u8,
        _ => 1,
    }
}

/// Whether the single command of that number opens something.
pub(in crate::micro) fn opens(op: MicroOp, step: u8) -> bool {
    match op {
        MicroOp::AtomicReplace => step == 0,
        MicroOp::AppendAndRotate => step == 0 || step == ROTATE_WRITE - 1,
        MicroOp::CreateTree => step % 3 == 1,
        _ => false,
    }
}

/// The single command behind that one: where a log is not full, nothing puts it aside.
pub(in crate::micro) fn next(l: &Lent<'_>, step: u8) -> Result<u8, Errno> {
    let fits = |size: u64| size + u64::from(l.size()) <= FULL * u64::from(l.size());
    let skips = l.cell.op == MicroOp::AppendAndRotate && step == 1 && fits(number_at(l, l.out.off + SIZE_AT as u32)?);
    Ok(if skips { ROTATE_WRITE } else { step + 1 })
}

/// A range within another.
fn part(whole: PoolRange, from: u32, len: u32) -> PoolRange {
    PoolRange::new(whole.off + from, len)
}

impl Lent<'_> {
    fn size(&self) -> u32 {
        self.cell.size
    }

    fn record(&self) -> u64 {
        pick(self.number, records(self.size()))
    }

    fn put(&self, at: PoolRange, bytes: &[u8]) -> Result<PoolRange, Errno> {
        let at = PoolRange::new(at.off, bytes.len() as u32);
        self.pool.slice(at)?.copy_from(bytes);
        Ok(at)
    }

    /// The payload with its stamp.
    fn payload(&self, number: u64, len: u32) -> Result<PoolRange, Errno> {
        let mut stamp = [0; 16];
        files::stamp(&mut stamp, number, self.run);
        self.put(self.src, &stamp)?;
        Ok(part(self.src, 0, len))
    }

    fn program(&self, body: &Body, ranges: &[PoolRange]) -> Result<Op, Errno> {
        Ok(Body::op(self.put(self.aux, &body.bind(ranges)?)?))
    }

    fn template(&self, template: &impl Template, ranges: &[PoolRange]) -> Result<Op, Errno> {
        self.program(&template.body()?, ranges)
    }
}

/// The one command of an operation.
pub(in crate::micro) fn fused(l: &Lent<'_>) -> Result<Op, Errno> {
    let (size, wide, open) = (l.size(), u64::from(l.size()), l.open);
    match l.cell.op {
        MicroOp::AtomicReplace => {
            let (mut path, mut temporary, number) = ([0; NAME], [0; NAME], pick(l.number, FILES));
            name_of(number, &mut path);
            super::temporary(l.number, &mut temporary);
            let op =
                templates::AtomicReplace { base: l.folder, path: &path, temporary: &temporary, mode: 0o644, len: size };
            l.template(&op, &[l.payload(number, size)?])
        }
        MicroOp::CopyRange => {
            let offset = l.record() * wide;
            let (from, to, at) = (open[0], open[1], At::Offset(offset));
            l.template(&templates::CopyRange { from, offset, len: wide, to, at }, &[])
        }
        MicroOp::Concat => l.template(&templates::Concat { from: &open[1..], to: open[0] }, &[]),
        MicroOp::CompressWrite => {
            let (at, codec) = (At::Offset(l.record() * wide), program::Codec::Lz4);
            let op = templates::CompressWrite { h: open[0], at, codec, len: size };
            l.template(&op, &[l.payload(l.record(), size)?])
        }
        MicroOp::EncryptWrite => {
            let (number, offset) = layout::encrypted(l.number, size);
            let cipher = Cipher::Units { key: l.key, unit: UNIT };
            let op = templates::EncryptWrite { h: open[0], at: At::Offset(offset), len: size, cipher };
            l.template(&op, &[l.payload(number, size)?])
        }
        MicroOp::CreateTree => tree(l),
        MicroOp::StatMany => stat_many(l),
        MicroOp::ReaddirPlus => Ok(Op::ReadDirPlus { h: l.folder, cookie: l.cookie, out: l.out, watch: 0 }),
        MicroOp::LogRecover => {
            let record = Record {
                head: HEAD as u8,
                len_at: 0,
                len: LE4,
                sum_at: Some(4),
                sum_order: Order::Little,
                sum: SumKind::Crc32c,
                covers: HEAD as u8,
            };
            let op = templates::LogRecover { h: open[0], offset: 0, len: 2 * LOG, record, offsets: 0, copy: None };
            l.template(&op, &[])
        }
        MicroOp::AppendToRecord => {
            let (offset, room) = (l.record() * wide, wide - LENGTH);
            let (width, order) = (LENGTH as u32, Order::Little);
            let op = templates::AppendToRecord { h: open[0], offset, width, order, room, len: GROWTH };
            l.template(&op, &[l.payload(l.record(), GROWTH)?])
        }
        MicroOp::AppendAndRotate => {
            let (path, old) = log_names(l);
            let (base, limit) = (l.folder, FULL * wide);
            let op = templates::AppendAndRotate { base, path: &path, old: &old, limit, mode: 0o644, len: size };
            l.template(&op, &[l.payload(l.number, size)?])
        }
        MicroOp::IndexWalk => l.program(&walk(l)?, &[part(l.out, 0, size)]),
        MicroOp::MultiWrite => {
            let number = pick(l.number, (records(size) / PARTS).max(1));
            l.program(&multi_write(l)?, &[l.payload(number, size)?])
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// A directory with four files.
fn tree(l: &Lent<'_>) -> Result<Op, Errno> {
    let (size, mut folder) = (l.size(), [0; NAME]);
    name_of(l.number, &mut folder);
    let leaves: [_; PARTS as usize] = std::array::from_fn(|k| leaf(l.number, k));
    let mut nodes = vec![Node::Directory { path: &folder, mode: 0o755 }];
    nodes.extend(leaves.iter().map(|path| Node::File { path, mode: 0o644, len: size }));
    let src = l.payload(l.number, size)?;
    l.template(&templates::CreateTree { base: l.folder, nodes: &nodes }, &[src; PARTS as usize])
}

/// Follows pointers from node to node, and reads a record where the last one points.
fn walk(l: &Lent<'_>) -> Result<Body, Errno> {
    let mut b = Builder::new();
    let file = b.take(l.open[0], Access::READ);
    let (buf, at, leaf) = (b.buffer(8), b.register(), b.pool(l.size()));
    let read = |off, len, to| Micro::Read { file, off, len, to, whole: true, pad: false, fold: None, count: None };
    let mut from = Value::Imm(first_node(l.number) * NODE);
    for _ in 1..WALK {
        b.push(read(from, Value::Imm(8), To::Buffer(buf)));
        b.push(Micro::Load { to: at, buf, off: Value::Imm(0), int: LE8 });
        from = Value::Reg(at);
    }
    b.push(read(from, Value::Imm(l.size().into()), To::Pool(leaf)));
    b.results(Some(at), None);
    Ok(b.finish()?)
}

/// One payload to the same place of four files: all of them or none.
fn multi_write(l: &Lent<'_>) -> Result<Body, Errno> {
    let mut b = Builder::new();
    let from = Bytes::Pool(b.pool(l.size()));
    let at = Value::Imm(layout::part_offset(l.number, l.size()));
    for h in l.open {
        let file = b.take(*h, Access::WRITE);
        b.push(Micro::Write { file, place: Place::At(at), from, fold: None, at: None });
    }
    Ok(b.finish()?)
}

/// The attributes of 64 names.
fn stat_many(l: &Lent<'_>) -> Result<Op, Errno> {
    for k in 0..NAMES as u32 {
        let mut name = [0; NAME];
        name_of(pick(l.number * NAMES + u64::from(k), FILES), &mut name);
        let path = l.put(part(l.aux, PATHS + k * NAME as u32, NAME as u32), &name)?;
        let out = part(l.out, k * STAT, size_of::<weldfs_ciscops::StatBody>() as u32);
        let entry = Command::new(k.into(), Op::StatPath { base: l.folder, path, nofollow: true, out }).encode();
        l.put(part(l.aux, k * Sqe::SIZE as u32, Sqe::SIZE as u32), entry.as_bytes())?;
    }
    let items = part(l.aux, 0, RESULTS);
    Ok(Op::Batch { items, results: part(l.aux, RESULTS, PATHS - RESULTS) })
}

/// The single command of that number, and whether it is the last that changes something.
/// `own` is the payload in the client's memory, of what it computes by itself.
pub(in crate::micro) fn single(
    l: &Lent<'_>,
    (own, key): (&mut [u8], Option<&Key>),
    step: u8,
    opened: Handle,
) -> Result<(Op, bool), Errno> {
    let (size, wide, open, k) = (l.size(), u64::from(l.size()), l.open, usize::from(step));
    let write = |h: Handle, at: u64, src: PoolRange| Op::Write { h, at: At::Offset(at), src };
    let read = |h: Handle, at: u64, len: u32| Op::Read { h, at: At::Offset(at), out: part(l.out, 0, len), watch: 0 };
    Ok(match l.cell.op {
        MicroOp::AtomicReplace => return replace(l, step, opened),
        MicroOp::CopyRange if step == 0 => (read(open[0], l.record() * wide, size), false),
        MicroOp::CopyRange => (write(open[1], l.record() * wide, part(l.out, 0, size)), true),
        MicroOp::Concat if step.is_multiple_of(2) => (read(open[1 + k / 2], 0, size), false),
        MicroOp::Concat => {
            let at = (l.number * PARTS + k as u64 / 2) * wide;
            (write(open[0], at, part(l.out, 0, size)), k + 1 == 2 * PARTS as usize)
        }
        MicroOp::CompressWrite => {
            files::stamp(own, l.record(), l.run);
            let frame = l.put(l.out, &compressed(own)?)?;
            (write(open[0], l.record() * wide, frame), true)
        }
        MicroOp::EncryptWrite => {
            let (number, offset) = layout::encrypted(l.number, size);
            files::stamp(own, number, l.run);
            let mut bytes = own.to_vec();
            encrypt(key.ok_or(Errno::INVAL)?, offset, &mut bytes)?;
            (write(open[0], offset, l.put(l.out, &bytes)?), true)
        }
        MicroOp::CreateTree => return plant(l, step, opened),
        MicroOp::AppendToRecord => match step {
            0 => (read(open[0], l.record() * wide, LENGTH as u32), false),
            1 => {
                let content = l.record() * wide + LENGTH + u64::from(length(l)?);
                (write(open[0], content, l.payload(l.record(), GROWTH)?), false)
            }
            _ => {
                let after = l.put(l.out, &(length(l)? + GROWTH).to_le_bytes())?;
                (write(open[0], l.record() * wide, after), true)
            }
        },
        MicroOp::AppendAndRotate => return rotate(l, step, opened),
        MicroOp::IndexWalk => {
            let at = if step == 0 { first_node(l.number) * NODE } else { number_at(l, l.out.off)? };
            (read(open[0], at, if u64::from(step) + 1 == WALK { size } else { 8 }), false)
        }
        MicroOp::MultiWrite => {
            let number = pick(l.number, (records(size) / PARTS).max(1));
            let at = layout::part_offset(l.number, size);
            (write(open[k], at, l.payload(number, size)?), k + 1 == open.len())
        }
        _ => (fused(l)?, true),
    })
}

/// The length that was read.
fn length(l: &Lent<'_>) -> Result<u32, Errno> {
    Ok(number_at(l, l.out.off)? as u32)
}

fn number_at(l: &Lent<'_>, off: u32) -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    l.pool.slice(PoolRange::new(off, 8))?.copy_to(&mut bytes);
    Ok(u64::from_le_bytes(bytes))
}

const EXCLUSIVE: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::EXCL);

/// A new file, written, closed, renamed over the old one.
fn replace(l: &Lent<'_>, step: u8, opened: Handle) -> Result<(Op, bool), Errno> {
    let (mut path, mut temporary, number) = ([0; NAME], [0; NAME], pick(l.number, FILES));
    name_of(number, &mut path);
    super::temporary(l.number, &mut temporary);
    let temporary = l.put(l.aux, &temporary)?;
    let base = l.folder;
    Ok(match step {
        0 => (Op::open(base, temporary, EXCLUSIVE, 0o644), false),
        1 => (Op::Write { h: opened, at: At::Offset(0), src: l.payload(number, l.size())? }, false),
        2 => (Op::Close { h: opened }, false),
        _ => {
            let to = l.put(part(l.aux, NAME as u32, NAME as u32), &path)?;
            let flags = RenameFlags::empty();
            (Op::Rename { from_base: base, from: temporary, to_base: base, to, flags }, true)
        }
    })
}

/// The name of an append's log, and of what it is when it was put aside.
fn log_names(l: &Lent<'_>) -> ([u8; NAME], [u8; NAME]) {
    let (mut path, mut old, number) = ([0; NAME], [0; NAME], pick(l.number, LOGS));
    name_of(number, &mut path);
    super::temporary(number, &mut old);
    (path, old)
}

/// A log opened, looked at, put aside and made anew if it is full (else `next` goes on behind that), written, closed.
fn rotate(l: &Lent<'_>, step: u8, opened: Handle) -> Result<(Op, bool), Errno> {
    let ((path, old), base) = (log_names(l), l.folder);
    let path = l.put(l.aux, &path)?;
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::NOFOLLOW;
    Ok(match step {
        0 => (Op::open(base, path, flags, 0o644), false),
        1 => (Op::Stat { h: opened, out: part(l.out, 0, STAT) }, false),
        2 => {
            let to = l.put(part(l.aux, NAME as u32, NAME as u32), &old)?;
            (Op::Rename { from_base: base, from: path, to_base: base, to, flags: RenameFlags::empty() }, false)
        }
        3 => (Op::Close { h: opened }, false),
        4 => (Op::open(base, path, flags | OpenFlags::EXCL, 0o644), false),
        ROTATE_WRITE => (Op::Write { h: opened, at: At::End, src: l.payload(l.number, l.size())? }, true),
        _ => (Op::Close { h: opened }, false),
    })
}

/// A directory, then each file opened, written, closed. The last write is durable for all that went before it.
fn plant(l: &Lent<'_>, step: u8, opened: Handle) -> Result<(Op, bool), Errno> {
    let (base, mut name) = (l.folder, [0; NAME]);
    if step == 0 {
        name_of(l.number, &mut name);
        return Ok((Op::Mkdir { base, path: l.put(l.aux, &name)?, mode: 0o755 }, false));
    }
    let (which, what) = (usize::from(step - 1) / 3, (step - 1) % 3);
    Ok(match what {
        0 => {
            let path = l.put(l.aux, &leaf(l.number, which))?;
            (Op::open(base, path, EXCLUSIVE, 0o644), false)
        }
        1 => {
            let src = l.payload(l.number, l.size())?;
            (Op::Write { h: opened, at: At::Offset(0), src }, which + 1 == PARTS as usize)
        }
        _ => (Op::Close { h: opened }, false),
    })
}

/// Whether the answer of the command that ends an operation is what it should be.
pub(in crate::micro) fn look(l: &Lent<'_>, cqe: &Cqe) -> io::Result<()> {
    let (size, wide) = (l.size(), u64::from(l.size()));
    let check =
        |good: bool| if good { Ok(()) } else { Err(odd(&format!("it gave {} and {}", cqe.result, cqe.result2))) };
    match l.cell.op {
        MicroOp::CopyRange => check(cqe.result == wide),
        MicroOp::StatMany => {
            check((cqe.result, cqe.result2) == (NAMES, 0))?;
            for k in 0..NAMES as u32 {
                let found = number_at(l, l.out.off + k * STAT + SIZE_AT as u32)?;
                if found != wide {
                    return Err(odd(&format!("name {k} has {found} bytes")));
                }
            }
            Ok(())
        }
        MicroOp::LogRecover => {
            let records = log_records(size);
            check((cqe.result, cqe.result2) == (records, records * (wide + HEAD as u64)))
        }
        MicroOp::IndexWalk => {
            let node = number_at(l, l.out.off + 8)?;
            if node == last_node(l.number) { Ok(()) } else { Err(odd(&format!("the walk ended at node {node}"))) }
        }
        _ => Ok(()),
    }
}

/// Files of the right size in one answer of a listing.
pub(in crate::micro) fn files(l: &Lent<'_>, cqe: &Cqe) -> io::Result<u64> {
    let bytes = l.pool.slice(PoolRange::new(l.out.off, cqe.result as u32))?.to_vec();
    let wide = u64::from(l.size());
    let good = |e: &weldfs_ciscops::dirent::DirentPlus<'_>| e.stat.is_ok_and(|s| s.size == wide);
    let all = weldfs_ciscops::dirent::DirentsPlus(&bytes);
    Ok(all.filter(|e| good(e) && e.entry.name.starts_with(b"f")).count() as u64)
}

fn odd(what: &str) -> io::Error {
    io::Error::other(format!("not what was asked for: {what}"))
}
