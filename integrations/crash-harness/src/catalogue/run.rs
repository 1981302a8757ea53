//! Performs a row on anything that takes commands: a device, a directory of the host, a store driven by hand.

use super::*;
use weldfs::Queue;
use weldfs_ciscops::{Command, Cqe, Durability, KeyKind, Placement, Sqe, TxnMode};
use weldfs_fs::driver::Direct;
use zerocopy::IntoBytes;

/// What takes commands, one at a time, whose operands lie in a pool.
pub trait Machine {
    /// Runs a command.
    fn run(&mut self, cmd: &Command) -> Cqe;
    /// Puts bytes in the pool.
    fn put(&mut self, at: u32, bytes: &[u8]) -> PoolRange;
    /// Takes bytes out of the pool.
    fn take(&mut self, range: PoolRange) -> Vec<u8>;
    /// Bytes of the pool.
    fn pool(&self) -> u32;
}

impl Machine for Queue {
    fn run(&mut self, cmd: &Command) -> Cqe {
        self.execute(cmd).expect("the device lives")
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> PoolRange {
        let range = PoolRange::new(at, bytes.len() as u32);
        Queue::pool(self).slice(range).expect("it fits the pool").copy_from(bytes);
        range
    }

    fn take(&mut self, range: PoolRange) -> Vec<u8> {
        Queue::pool(self).slice(range).expect("it lies in the pool").to_vec()
    }

    fn pool(&self) -> u32 {
        Queue::pool(self).len() as u32
    }
}

impl Machine for Direct {
    fn run(&mut self, cmd: &Command) -> Cqe {
        self.run_command(cmd).to_cqe(cmd.seq)
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> PoolRange {
        Direct::put(self, at, bytes)
    }

    fn take(&mut self, range: PoolRange) -> Vec<u8> {
        Direct::take(self, range)
    }

    fn pool(&self) -> u32 {
        Direct::pool(self).len() as u32
    }
}

/// Hands out the pool from its beginning on.
#[derive(Default)]
pub struct Pool(u32);

impl Pool {
    /// From there on.
    pub fn from(at: u32) -> Pool {
        Pool(at)
    }

    /// The next `len` bytes.
    pub fn room(&mut self, len: u32) -> PoolRange {
        let range = PoolRange::new(self.0, len);
        self.0 = (self.0 + len).next_multiple_of(64);
        range
    }

    /// The next bytes, filled.
    pub fn put(&mut self, m: &mut dyn Machine, bytes: &[u8]) -> PoolRange {
        let range = self.room(bytes.len() as u32);
        m.put(range.off, bytes)
    }

    fn ranges(&mut self, m: &mut dyn Machine, ranges: &[Range]) -> Vec<PoolRange> {
        let each = |range: &Range| match range {
            Range::In(bytes) => self.put(m, bytes),
            Range::Out(len) => self.put(m, &vec![0; *len as usize]),
        };
        ranges.iter().map(each).collect()
    }
}

/// How commands of a row run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Ops {
    /// In which transaction mode.
    pub mode: TxnMode,
    /// Whether they are durable when they complete.
    pub durable: bool,
    /// Where their compute stages run.
    pub placement: Placement,
}

impl Ops {
    fn command(self, op: Op) -> Command {
        let durability = if self.durable { Durability::Durable } else { Durability::Volatile };
        let placement = if op.has_slot_form() { self.placement } else { Placement::Auto };
        Command::new(0, op).with_mode(self.mode).with_durability(durability).with_placement(placement)
    }
}

/// What a command said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its errno, or 0.
    pub status: i32,
    /// Its results.
    pub results: (u64, u64),
    /// What lies in its rooms.
    pub shown: Vec<u8>,
}

/// Gives a machine the two keys; what it calls them.
///
/// # Panics
/// When it does not take them.
pub fn keys(m: &mut dyn Machine) -> [u64; 2] {
    [KeyKind::Xts128, KeyKind::Gcm256].map(|kind| {
        let bytes = m.put(0, &KEY_BYTES);
        m.run(&Command::new(0, Op::SetKey { kind, bytes })).ok().expect("a key").0
    })
}

fn plain(m: &mut dyn Machine, op: Op) -> Result<(u64, u64), Errno> {
    m.run(&Ops::default().command(op)).ok()
}

/// Opens files.
///
/// # Errors
/// Those of open.
pub fn open_all(m: &mut dyn Machine, opens: &[(String, OpenFlags)]) -> Result<Vec<Handle>, Errno> {
    let mut open = |(path, flags): &(String, OpenFlags)| {
        let (base, flags, path) = (Handle::ROOT, *flags, m.put(0, path.as_bytes()));
        plain(m, Op::open(base, path, flags, 0)).map(|(h, _)| Handle::from_wire(h))
    };
    opens.iter().map(&mut open).collect()
}

/// Makes something by a single operation.
///
/// # Errors
/// Those of the operation.
pub fn make(m: &mut dyn Machine, effect: &Effect, ops: Ops) -> Result<(), Errno> {
    let (mut pool, base) = (Pool::default(), Handle::ROOT);
    let op = match effect {
        Effect::Write { path, how, at, data } => {
            let (path, src) = (pool.put(m, path.as_bytes()), pool.put(m, data));
            let flags = OpenFlags::WRITE
                | match how {
                    How::Existing => OpenFlags::empty(),
                    How::New => OpenFlags::CREATE | OpenFlags::EXCL,
                    How::Trunc => OpenFlags::TRUNC,
                };
            Op::OpenWriteClose { base, path, flags, mode: MODE.into(), at: at.map_or(At::End, At::Offset), src }
        }
        Effect::Rename { from, to } => {
            let (from, to) = (pool.put(m, from.as_bytes()), pool.put(m, to.as_bytes()));
            Op::Rename { from_base: base, from, to_base: base, to, flags: weldfs_ciscops::RenameFlags::empty() }
        }
        Effect::Mkdir { path } => Op::Mkdir { base, path: pool.put(m, path.as_bytes()), mode: MODE.into() },
        Effect::Symlink { target, path } => {
            Op::Symlink { base, target: pool.put(m, target.as_bytes()), path: pool.put(m, path.as_bytes()) }
        }
        Effect::Sealed { .. } => return Err(Errno::OPNOTSUPP),
    };
    m.run(&ops.command(op)).ok().map(drop)
}

/// Runs the command of a row on files that are open.
///
/// # Errors
/// A program that is none.
pub fn command(m: &mut dyn Machine, form: &Form, h: &[Handle], ops: Ops) -> Result<Answer, Errno> {
    let mut pool = Pool::default();
    let (cqe, rooms) = match form {
        Form::One(single) => {
            let ranges = pool.ranges(m, &single.ranges);
            let outs = single.ranges.iter().zip(&ranges).filter(|(r, _)| matches!(r, Range::Out(_)));
            let outs = outs.map(|(_, range)| *range).collect();
            (m.run(&ops.command((single.op)(h, &ranges))), outs)
        }
        Form::Program(ins, body) => {
            let body = match body(h) {
                Ok(body) => body,
                // The builder says what the device would.
                Err(e) => return Ok(Answer { status: e.0, results: (0, 0), shown: Vec::new() }),
            };
            let (mut ins, mut ranges, mut outs) = (ins.iter(), Vec::new(), Vec::new());
            for p in 0..body.pools() {
                let p = weldfs_ciscops::program::Pool(p as u8);
                if body.is_output(p) {
                    ranges.push(pool.put(m, &vec![0; body.pool_len(p) as usize]));
                    outs.extend(ranges.last());
                } else {
                    ranges.push(pool.put(m, ins.next().ok_or(Errno::INVAL)?));
                }
            }
            let at = pool.put(m, &body.bind(&ranges)?);
            let durable = ops.durable || body.program().is_durable();
            (m.run(&Ops { durable, ..ops }.command(Body::op(at))), outs)
        }
        Form::Batch(items) => batch(m, &mut pool, items, h, ops),
        Form::Transaction(writes, commit) => (transaction(m, &mut pool, writes, *commit, h, ops), Vec::new()),
    };
    let shown = rooms.into_iter().flat_map(|range| m.take(range)).collect();
    Ok(Answer { status: cqe.status, results: (cqe.result, cqe.result2), shown })
}

fn batch(m: &mut dyn Machine, pool: &mut Pool, items: &[Single], h: &[Handle], ops: Ops) -> (Cqe, Vec<PoolRange>) {
    let results = pool.put(m, &vec![0; items.len() * Cqe::SIZE]);
    let (mut entries, mut rooms) = (Vec::new(), vec![results]);
    for single in items {
        let ranges = pool.ranges(m, &single.ranges);
        entries.extend_from_slice(Command::new(0, (single.op)(h, &ranges)).encode().as_bytes());
        let outs = single.ranges.iter().zip(ranges).filter(|(r, _)| matches!(r, Range::Out(_)));
        rooms.extend(outs.map(|(_, range)| range));
    }
    debug_assert_eq!(entries.len(), items.len() * Sqe::SIZE);
    let items = pool.put(m, &entries);
    (m.run(&ops.command(Op::Batch { items, results })), rooms)
}

fn transaction(
    m: &mut dyn Machine,
    pool: &mut Pool,
    writes: &[(usize, At, Vec<u8>)],
    commit: bool,
    h: &[Handle],
    ops: Ops,
) -> Cqe {
    let begun = m.run(&ops.command(Op::TxnBegin));
    let Ok((txn, _)) = begun.ok() else { return begun };
    let txn = Handle::from_wire(txn);
    for (file, at, bytes) in writes {
        let src = pool.put(m, bytes);
        let written = m.run(&ops.command(Op::TxnWrite { txn, h: h[*file], at: *at, src }));
        if written.ok().is_err() {
            m.run(&ops.command(Op::TxnAbort { txn }));
            return written;
        }
    }
    m.run(&ops.command(if commit { Op::TxnCommit { txn } } else { Op::TxnAbort { txn } }))
}

/// Makes what a row needs, opens its files, runs its command, closes.
///
/// # Errors
/// What was to be made or opened before, or a program that is none.
pub fn perform(m: &mut dyn Machine, row: &Row, planned: &Planned, ops: Ops) -> Result<Answer, Errno> {
    planned.before.iter().try_for_each(|effect| make(m, effect, Ops::default()))?;
    let handles = open_all(m, &planned.opens)?;
    let answer = command(m, &planned.form, &handles, Ops { placement: planned.placement, ..ops });
    for h in handles {
        plain(m, Op::Close { h })?;
    }
    // A listing's cookies and bytes are its host's own.
    let results = |said: &Answer| if row.op == "read_dir_plus" { (0, 0) } else { said.results };
    answer.map(|said| Answer { results: results(&said), shown: (row.view)(&said.shown), ..said })
}
