//! One client thread's queue pair: runs an operation as one fused command or as its single commands, up to 32 at a
//! time, polling for completions.
//!
//! The payload lies in the pool, where an application that generates or parses it in place would have it; 16 bytes of
//! it change with every operation, as they do on the host.

use super::catalogue::weld::Lent;
use super::catalogue::{self, weld as programs};
use super::cell::{Cell, Class, FIELD, FIELD_AT, GROUP, MicroOp};
use super::files::{self, MASK, NAME, Place, SUM};
use super::weld::Target;
use std::io;
use std::time::Instant;
use weldfs::{At, ChecksumKind, Client, Command, Cqe, Durability, Errno, Handle, Op, OpenFlags, PoolRange, Queue};
use weldfs_ciscops::functions::cipher::Key;
use weldfs_ciscops::{Modify, SharedRegion, Sqe};
use zerocopy::IntoBytes;

/// Operations in flight at most.
pub(super) const DEPTH_MAX: usize = 32;
/// Commands that the queue pair holds.
const QUEUE: usize = 64;
/// Bytes of the largest payload.
pub(super) const SIZE_MAX: u32 = 64 << 10;
/// Two payloads for each operation in flight, and names.
const POOL: u32 = 8 << 20;
/// Looks at the completion ring before the library waits for it, which may give the core away and sleep.
const LOOKS: u32 = 3000;
/// The same when there are more spinning threads than cores.
const LOOKS_CROWDED: u32 = 100;
const NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNC);
const UPDATE: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

/// An operation in flight.
#[derive(Clone, Copy)]
struct Slot {
    /// Payload in, payload out, name.
    src: PoolRange,
    out: PoolRange,
    name: PoolRange,
    /// Trailer of the unfused checksummed append.
    tail: PoolRange,
    /// A program, or what a large batch needs.
    aux: PoolRange,
    number: u64,
    step: u8,
    /// Where a listing goes on, and the files seen so far.
    cookie: u64,
    seen: u64,
    handle: Handle,
    start_ns: u64,
}

/// What is being done.
struct Job {
    cell: Cell,
    fused: bool,
    folder: Handle,
    file: Handle,
    run: u64,
    crowded: bool,
    /// The files that stay open, where there are several or other ones.
    open: Vec<Handle>,
    /// What the device calls the key, and the key itself for single commands.
    key: u64,
    own_key: Option<Key>,
}

pub(super) struct Lane {
    queue: Queue,
    pool: SharedRegion,
    slots: Vec<Slot>,
    mask: PoolRange,
    /// Entries and completions of the elements of each batch in flight.
    batches: Vec<(PoolRange, PoolRange)>,
    /// What the client has in its own memory: the payload of which the unfused steps take the checksum, and where the
    /// copying variant puts what it reads.
    own: Vec<u8>,
    job: Option<Job>,
}

fn few(files: u64) -> io::Error {
    io::Error::other(format!("not what was asked for: {files} files in a directory"))
}

fn nothing_begun() -> io::Error {
    io::Error::other("no job was begun")
}

impl Lane {
    pub(super) fn new(client: &Client) -> io::Result<Lane> {
        let mut queue = client.queue(QUEUE as u32, POOL)?;
        let pool = queue.pool().clone();
        let mut slot = || -> Result<Slot, Errno> {
            Ok(Slot {
                src: queue.alloc(SIZE_MAX)?,
                out: queue.alloc(SIZE_MAX + SUM as u32)?,
                name: queue.alloc(NAME as u32)?,
                tail: queue.alloc(4)?,
                aux: queue.alloc(programs::AUX)?,
                number: 0,
                step: 0,
                cookie: 0,
                seen: 0,
                handle: Handle::ROOT,
                start_ns: 0,
            })
        };
        let slots = (0..DEPTH_MAX).map(|_| slot()).collect::<Result<Vec<_>, _>>()?;
        let mask = queue.stage(&MASK)?;
        let bytes = |each: usize| (GROUP as usize * each) as u32;
        let mut batch = || Ok((queue.alloc(bytes(Sqe::SIZE))?, queue.alloc(bytes(Cqe::SIZE))?));
        let batches = (0..DEPTH_MAX / GROUP as usize).map(|_| batch()).collect::<Result<Vec<_>, Errno>>()?;
        Ok(Lane { queue, pool, slots, mask, batches, own: vec![0; SIZE_MAX as usize + SUM], job: None })
    }

    pub(super) fn system_calls(&self) -> u64 {
        self.queue.system_calls()
    }

    /// Gets ready for a run: the payload in place.
    pub(super) fn begin(&mut self, cell: &Cell, place: &Place, target: &Target, fused: bool) -> io::Result<()> {
        let data = files::content(cell.op, cell.size, place.run);
        for slot in &self.slots {
            self.pool.slice(slot.src)?.sub(0, data.len()).copy_from(&data);
        }
        self.own[..data.len()].copy_from_slice(&data);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let crowded = cell.threads as usize + 1 > cores;
        let (folder, file) = (target.folder, target.file);
        let (open, key) = (target.open.clone(), target.key.as_ref().map_or(0, weldfs::catalogue::Key::name));
        let own_key = target.key.as_ref().map(|_| catalogue::own_key()).transpose()?;
        self.job = Some(Job { cell: *cell, fused, folder, file, run: place.run, crowded, open, key, own_key });
        Ok(())
    }

    /// Keeps the device at work with commands that do nothing, so that it is awake when the clock starts.
    pub(super) fn wake(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            let cqe = self.queue.execute(&Command::new(0, Op::Nop))?;
            check(&cqe)?;
        }
        Ok(())
    }

    /// Runs `count` operations, at most `depth` in flight; nanoseconds of each, from its first command's submission to
    /// its last one's completion. The clock is read once per turn of the loop: at depth 1 once per operation.
    pub(super) fn drive(&mut self, count: u64, depth: u32, start: Instant, latencies: &mut Vec<u32>) -> io::Result<()> {
        let job = self.job.take().ok_or_else(nothing_begun)?;
        // A batch is one command of several operations; as many operations are in flight, and at least one command.
        let group = job.cell.op.group();
        let count = count.div_ceil(group);
        let side = ((depth as usize).min(DEPTH_MAX) / group as usize).max(1);
        let mut idle: Vec<usize> = (0..side).rev().collect();
        let mut owner = [0u8; QUEUE];
        // Those whose next command finds its place in the queue still taken, by one that takes longer.
        let mut parked: Vec<usize> = Vec::new();
        let (mut begun, mut done, mut now) = (0u64, 0u64, 0u64);
        loop {
            while let Some(at) = parked.pop() {
                if !self.submit(&job, at, &mut owner)? {
                    parked.push(at);
                    break;
                }
            }
            while begun < count
                && parked.is_empty()
                && let Some(at) = idle.pop()
            {
                self.slots[at] = Slot { number: begun, step: 0, cookie: 0, seen: 0, start_ns: now, ..self.slots[at] };
                begun += 1;
                if !self.submit(&job, at, &mut owner)? {
                    parked.push(at);
                }
            }
            if done == count {
                return Ok(());
            }
            self.queue.flush();
            let mut next = Some(self.first(job.crowded)?);
            now = start.elapsed().as_nanos() as u64;
            while let Some(cqe) = next {
                check(&cqe)?;
                let at = usize::from(owner[cqe.sequence as usize % QUEUE]);
                if self.advance(&job, at, &cqe)? {
                    let ns = u32::try_from(now - self.slots[at].start_ns).unwrap_or(u32::MAX);
                    latencies.extend((0..group).map(|_| ns));
                    idle.push(at);
                    done += 1;
                } else {
                    parked.push(at);
                }
                next = self.queue.reap()?;
            }
        }
    }

    /// The next completion, polled for.
    fn first(&mut self, crowded: bool) -> io::Result<Cqe> {
        let looks = if crowded { LOOKS_CROWDED } else { LOOKS };
        loop {
            for _ in 0..looks {
                if let Some(cqe) = self.queue.reap()? {
                    return Ok(cqe);
                }
                std::hint::spin_loop();
            }
            self.queue.await_any()?;
        }
    }

    /// Submits the next command of an operation; false when the queue has no place for it now.
    fn submit(&mut self, job: &Job, at: usize, owner: &mut [u8; QUEUE]) -> io::Result<bool> {
        let (op, last) = if job.fused { (self.fused(job, at)?, true) } else { self.single(job, at)? };
        let durability = match job.cell.class {
            Class::Durable if last => Durability::Durable,
            _ => Durability::Volatile,
        };
        match self.queue.submit(&Command::new(0, op).with_durability(durability)) {
            Ok(ticket) => owner[ticket.sequence() as usize % QUEUE] = at as u8,
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        Ok(true)
    }

    /// Puts the stamp into the payload in the pool; the payload of this operation.
    fn payload(&self, job: &Job, at: usize, number: u64) -> Result<PoolRange, Errno> {
        let range = PoolRange::new(self.slots[at].src.off, job.cell.size);
        let mut stamp = [0; 16];
        files::stamp(&mut stamp, number, job.run);
        self.pool.slice(range)?.sub(0, 16).copy_from(&stamp);
        Ok(range)
    }

    fn named(&self, at: usize, number: u64) -> Result<PoolRange, Errno> {
        let mut name = [0; NAME];
        files::name_of(number, &mut name);
        let range = self.slots[at].name;
        self.pool.slice(range)?.copy_from(&name);
        Ok(range)
    }

    fn room(&self, job: &Job, at: usize) -> PoolRange {
        PoolRange::new(self.slots[at].out.off, job.cell.size)
    }

    /// What an operation of the catalogue works with.
    fn lent<'a>(&'a self, job: &'a Job, at: usize) -> Lent<'a> {
        let Slot { number, src, out, aux, cookie, .. } = self.slots[at];
        let (cell, run, folder, open, key) = (&job.cell, job.run, job.folder, &job.open[..], job.key);
        Lent { cell, run, number, cookie, folder, open, key, pool: &self.pool, src, out, aux }
    }

    /// The one command of an operation.
    fn fused(&self, job: &Job, at: usize) -> Result<Op, Errno> {
        use MicroOp::*;
        let (slot, cell, h) = (&self.slots[at], &job.cell, job.file);
        let (base, size) = (job.folder, u64::from(cell.size));
        let record = |i| files::pick(i, files::records(cell.size));
        Ok(match cell.op {
            AppendChecksumWrite | AppendChecksumWriteGathered => {
                Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src: self.payload(job, at, slot.number)? }
            }
            Append => Op::Write { h, at: At::End, src: self.payload(job, at, slot.number)? },
            Write => {
                let record = record(slot.number);
                Op::Write { h, at: At::Offset(record * size), src: self.payload(job, at, record)? }
            }
            Read => Op::Read { h, at: At::Offset(record(slot.number) * size), out: self.room(job, at), watch: 0 },
            ReadChecksumVerify => {
                let (offset, kind) = (record(slot.number) * (size + SUM as u64), ChecksumKind::Crc32c);
                Op::ReadChecksumVerify { h, kind, offset, len: cell.size, out: self.room(job, at) }
            }
            OpenReadCloseBatched | OpenWriteCloseBatched => self.batch(job, at)?,
            OpenWriteClose => Op::OpenWriteClose {
                base,
                path: self.named(at, slot.number)?,
                flags: NEW,
                mode: 0o644,
                at: At::Offset(0),
                src: self.payload(job, at, slot.number)?,
            },
            OpenReadClose | OpenReadCloseCopied => {
                let path = self.named(at, files::pick(slot.number, files::FILES))?;
                Op::OpenReadClose { base, path, flags: OpenFlags::READ, offset: 0, out: self.room(job, at) }
            }
            OpenReadWriteClose => {
                let number = files::pick(slot.number, files::FILES);
                Op::OpenReadWriteClose {
                    base,
                    path: self.named(at, number)?,
                    flags: UPDATE,
                    mode: 0,
                    read_off: 0,
                    out: self.room(job, at),
                    at: At::Offset(0),
                    src: self.payload(job, at, number)?,
                }
            }
            ReadModifyWrite | ReadModifyWriteNarrow => Op::ReadModifyWrite {
                h,
                offset: record(slot.number) * size + FIELD_AT as u64,
                len: FIELD as u32,
                modify: Modify::Xor(self.mask),
                out: PoolRange::EMPTY,
            },
            _ => programs::fused(&self.lent(job, at))?,
        })
    }

    /// Eight operations in one command; its operands are those of eight slots.
    fn batch(&self, job: &Job, at: usize) -> Result<Op, Errno> {
        let (items, results) = self.batches[at];
        let base = job.folder;
        for k in 0..GROUP as usize {
            let (slot, number) = (at * GROUP as usize + k, self.slots[at].number * GROUP + k as u64);
            let op = if job.cell.op == MicroOp::OpenReadCloseBatched {
                let path = self.named(slot, files::pick(number, files::FILES))?;
                Op::OpenReadClose { base, path, flags: OpenFlags::READ, offset: 0, out: self.room(job, slot) }
            } else {
                let (path, src) = (self.named(slot, number)?, self.payload(job, slot, number)?);
                Op::OpenWriteClose { base, path, flags: NEW, mode: 0o644, at: At::Offset(0), src }
            };
            let entry = Command::new(number, op).encode();
            self.pool.slice(items)?.sub(k * Sqe::SIZE, Sqe::SIZE).copy_from(entry.as_bytes());
        }
        Ok(Op::Batch { items, results })
    }

    /// Every element of a batch went well, and what was read is what it should be.
    fn look_at_batch(&self, job: &Job, at: usize, cqe: &Cqe) -> io::Result<()> {
        if (cqe.result, cqe.result2) != (GROUP, 0) {
            return Err(io::Error::other(format!("{} of {} elements failed", cqe.result2, cqe.result)));
        }
        let (_, results) = self.batches[at];
        for k in 0..GROUP as usize {
            let mut bytes = [0; 8];
            let place = k * Cqe::SIZE + std::mem::offset_of!(Cqe, result);
            self.pool.slice(results)?.sub(place, 8).copy_to(&mut bytes);
            let moved = u64::from_le_bytes(bytes);
            let mut due = files::pick(self.slots[at].number * GROUP + k as u64, files::FILES);
            if job.cell.op == MicroOp::OpenReadCloseBatched {
                self.pool.slice(self.room(job, at * GROUP as usize + k))?.sub(0, 8).copy_to(&mut bytes);
            } else {
                due = u64::from_le_bytes(bytes);
            }
            if moved != u64::from(job.cell.size) || u64::from_le_bytes(bytes) != due {
                return Err(io::Error::other(format!("element {k} of a batch moved {moved} bytes, or another file's")));
            }
        }
        Ok(())
    }

    /// The next single command of an operation, and whether it is the one that must be durable: the last that changes
    /// something, for what is durable covers all that went before it.
    fn single(&mut self, job: &Job, at: usize) -> Result<(Op, bool), Errno> {
        use MicroOp::*;
        let (slot, cell, h) = (self.slots[at], job.cell, job.file);
        if catalogue::is_one(cell.op) {
            let mut own = std::mem::take(&mut self.own);
            let lent = self.lent(job, at);
            let computed = (&mut own[..cell.size as usize], job.own_key.as_ref());
            let command = programs::single(&lent, computed, slot.step, slot.handle);
            self.own = own;
            return command;
        }
        let size = u64::from(cell.size);
        let record = files::pick(slot.number, files::records(cell.size));
        let close = Op::Close { h: slot.handle };
        Ok(match (cell.op, slot.step) {
            (AppendChecksumWrite | AppendChecksumWriteGathered, 0) => {
                let src = self.payload(job, at, slot.number)?;
                (Op::Write { h, at: At::Offset(slot.number * (size + 4)), src }, false)
            }
            (AppendChecksumWrite | AppendChecksumWriteGathered, _) => {
                files::stamp(&mut self.own, slot.number, job.run);
                let sum = weldfs_functions::crc32c(&self.own[..cell.size as usize]);
                self.pool.slice(slot.tail)?.copy_from(&sum.to_le_bytes());
                (Op::Write { h, at: At::Offset(slot.number * (size + 4) + size), src: slot.tail }, true)
            }
            (OpenWriteClose, 0) => {
                let path = self.named(at, slot.number)?;
                (Op::open(job.folder, path, NEW, 0o644), false)
            }
            (OpenWriteClose, 1) => {
                let src = self.payload(job, at, slot.number)?;
                (Op::Write { h: slot.handle, at: At::Offset(0), src }, true)
            }
            (OpenReadClose | OpenReadCloseCopied | OpenReadWriteClose, 0) => {
                let path = self.named(at, files::pick(slot.number, files::FILES))?;
                let flags = if cell.op == OpenReadWriteClose { UPDATE } else { OpenFlags::READ };
                (Op::open(job.folder, path, flags, 0), false)
            }
            (OpenReadClose | OpenReadCloseCopied | OpenReadWriteClose, 1) => {
                (Op::Read { h: slot.handle, at: At::Offset(0), out: self.room(job, at), watch: 0 }, false)
            }
            (OpenReadWriteClose, 2) => {
                let src = self.payload(job, at, files::pick(slot.number, files::FILES))?;
                (Op::Write { h: slot.handle, at: At::Offset(0), src }, true)
            }
            (OpenWriteClose | OpenReadClose | OpenReadCloseCopied | OpenReadWriteClose, _) => (close, false),
            (ReadChecksumVerify, _) => {
                let out = PoolRange::new(slot.out.off, cell.size + SUM as u32);
                (Op::Read { h, at: At::Offset(record * (size + SUM as u64)), out, watch: 0 }, false)
            }
            (ReadModifyWrite, 0) => {
                (Op::Read { h, at: At::Offset(record * size), out: self.room(job, at), watch: 0 }, false)
            }
            (ReadModifyWrite, _) => (Op::Write { h, at: At::Offset(record * size), src: self.room(job, at) }, true),
            (ReadModifyWriteNarrow, step) => {
                let field = PoolRange::new(slot.out.off + FIELD_AT as u32, FIELD as u32);
                let place = At::Offset(record * size + FIELD_AT as u64);
                match step {
                    0 => (Op::Read { h, at: place, out: field, watch: 0 }, false),
                    _ => (Op::Write { h, at: place, src: field }, true),
                }
            }
            _ => (self.fused(job, at)?, true),
        })
    }

    /// Takes in a completion; whether the operation is done.
    fn advance(&mut self, job: &Job, at: usize, cqe: &Cqe) -> io::Result<bool> {
        use MicroOp::*;
        let slot = self.slots[at];
        if job.cell.op.is_batched() {
            return self.look_at_batch(job, at, cqe).map(|()| true);
        }
        if catalogue::is_one(job.cell.op) {
            return self.advance_program(job, at, cqe);
        }
        let (first, steps) = match (job.fused, job.cell.op) {
            (true, _) | (_, Append | Write | Read | ReadChecksumVerify) => (false, 1),
            (_, OpenWriteClose | OpenReadClose | OpenReadCloseCopied) => (slot.step == 0, 3),
            (_, OpenReadWriteClose) => (slot.step == 0, 4),
            _ => (false, 2),
        };
        if first {
            self.slots[at].handle = Handle::from_wire(cqe.result);
        }
        self.slots[at].step += 1;
        let reads = match job.cell.op {
            Read | ReadChecksumVerify => Some(files::pick(slot.number, files::records(job.cell.size))),
            OpenReadClose | OpenReadCloseCopied | OpenReadWriteClose => Some(files::pick(slot.number, files::FILES)),
            _ => None,
        };
        let read_now = job.fused || matches!(job.cell.op, Read | ReadChecksumVerify) || slot.step == 1;
        if let Some(number) = reads
            && read_now
        {
            self.look(job, at, number, cqe)?;
        }
        if !job.fused && slot.step == 0 && matches!(job.cell.op, ReadModifyWrite | ReadModifyWriteNarrow) {
            self.change(at)?;
        }
        Ok(self.slots[at].step >= steps)
    }

    /// The same for an operation of the catalogue.
    fn advance_program(&mut self, job: &Job, at: usize, cqe: &Cqe) -> io::Result<bool> {
        let (op, step) = (job.cell.op, self.slots[at].step);
        if !job.fused && programs::opens(op, step) {
            self.slots[at].handle = Handle::from_wire(cqe.result);
        }
        if op == MicroOp::ReaddirPlus {
            // As with getdents, the end is an answer without entries.
            self.slots[at].seen += programs::files(&self.lent(job, at), cqe)?;
            self.slots[at].cookie = cqe.result2;
            let (done, seen) = (cqe.result == 0, self.slots[at].seen);
            return if done && seen != catalogue::ENTRIES { Err(few(seen)) } else { Ok(done) };
        }
        let next = if job.fused { step + 1 } else { programs::next(&self.lent(job, at), step)? };
        self.slots[at].step = next;
        let done = job.fused || next >= programs::steps(op);
        if done {
            programs::look(&self.lent(job, at), cqe)?;
        }
        Ok(done)
    }

    /// What was read is whole, and what it should be.
    fn look(&mut self, job: &Job, at: usize, number: u64, cqe: &Cqe) -> io::Result<()> {
        if job.cell.op == MicroOp::ReadChecksumVerify && !job.fused {
            return self.look_at_sum(job, at, number, cqe);
        }
        let room = self.pool.slice(self.room(job, at))?;
        let mut stamp = [0; 8];
        room.sub(0, 8).copy_to(&mut stamp);
        if job.cell.op == MicroOp::OpenReadCloseCopied {
            room.copy_to(&mut self.own[..job.cell.size as usize]);
        }
        if cqe.result != u64::from(job.cell.size) || u64::from_le_bytes(stamp) != number {
            return Err(io::Error::other(format!("read {} bytes, which are not record {number}", cqe.result)));
        }
        Ok(())
    }

    /// The client's own comparison of what a single command read. It is copied first: others may write to the pool.
    fn look_at_sum(&mut self, job: &Job, at: usize, number: u64, cqe: &Cqe) -> io::Result<()> {
        let read = &mut self.own[..job.cell.size as usize + SUM];
        if cqe.result != read.len() as u64 {
            return Err(io::Error::other(format!("read {} bytes of record {number} and its checksum", cqe.result)));
        }
        self.pool.slice(PoolRange::new(self.slots[at].out.off, read.len() as u32))?.copy_to(read);
        files::is_summed(read, number)
    }

    /// Changes the field that was read, in the pool.
    fn change(&self, at: usize) -> Result<(), Errno> {
        let field = PoolRange::new(self.slots[at].out.off + FIELD_AT as u32, FIELD as u32);
        let bytes = self.pool.slice(field)?;
        let mut own = [0; FIELD];
        bytes.copy_to(&mut own);
        own.iter_mut().zip(MASK).for_each(|(b, m)| *b ^= m);
        bytes.copy_from(&own);
        Ok(())
    }
}

fn check(cqe: &Cqe) -> io::Result<()> {
    if cqe.status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(cqe.status)) }
}
