//! The host through io_uring: each operation is a chain of linked requests, at depth 32 all chains of a batch are
//! submitted and awaited by one system call. Where a step depends on what the one before it read, the chain is cut in
//! two.

use super::System;
use super::catalogue;
use super::cell::{Cell, Class, FIELD, FIELD_AT, MicroOp};
use super::chains::{Chains, On, Step};
use super::files::{self, MASK, NAME, Place, SUM};
use super::posix::{FOLDER, MODE, NEW, Ours, READ, UPDATE};
use super::sample::{Counts, Sample};
use super::weld::Run;
use crate::peers::Peer;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use weldfs_ciscops::functions::cipher::Key;

/// Bytes of a buffer behind the payload: the checksum. Behind that, room for what an operation writes after reading.
const TRAILER: usize = SUM;

/// Linked requests on a directory.
pub(super) struct Uring {
    name: String,
    ours: Ours,
}

impl Uring {
    /// Fails where the kernel or its policy refuses io_uring.
    pub(super) fn new(peer: &Peer, calm: Duration) -> io::Result<Uring> {
        Chains::new(1, 4096)?;
        Ok(Uring { name: format!("uring:{}", peer.name), ours: Ours::new(peer, calm)? })
    }
}

impl System for Uring {
    fn name(&self) -> &str {
        &self.name
    }

    fn medium(&self) -> String {
        self.ours.ground.describe()
    }

    fn power_safe(&self) -> bool {
        self.ours.ground.power_safe()
    }

    fn takes(&self, cell: &Cell) -> bool {
        // One differs from another row only in what plain calls and WeldFS do; for some there are no requests.
        let other = matches!(cell.op, MicroOp::OpenReadCloseCopied)
            || (catalogue::is_one(cell.op) && !catalogue::uring::takes(cell.op));
        !other && (cell.class == Class::Volatile || self.ours.ground.keeps())
    }

    fn run(&mut self, cell: &Cell, run: u64, count: u64) -> io::Result<Sample> {
        self.ours.run(&self.name, cell, run, count, &one)
    }

    fn rest(&mut self) -> io::Result<()> {
        self.ours.sync()
    }
}

fn one(cell: &Cell, place: &Place, folder: PathBuf, barrier: &Barrier) -> io::Result<Run> {
    let ready = Worker::new(cell, place, &folder);
    barrier.wait();
    let mut worker = ready?;
    let mut latencies = Vec::with_capacity(place.count as usize);
    let start = Instant::now();
    let (mut i, mut before) = (0, start);
    while i < place.count {
        let batch = (side(cell) as u64).min(place.count - i);
        worker.batch(i, batch)?;
        let now = Instant::now();
        // Each operation of a batch is known to be done when the batch is.
        let ns = u32::try_from(now.duration_since(before).as_nanos()).unwrap_or(u32::MAX);
        latencies.extend((0..batch).map(|_| ns));
        (i, before) = (i + batch, now);
    }
    let mut counts = worker.counts;
    counts.syscalls = worker.chains.enters();
    counts.crossings = counts.syscalls;
    Ok(Run { start, end: before, latencies, counts })
}

/// Whether files are opened by name.
fn cell_by_name(op: MicroOp) -> bool {
    op.name().starts_with("open_")
}

/// Chains side by side: what may be in flight, and at least what a batch of ours holds.
fn side(cell: &Cell) -> usize {
    (cell.depth as usize).max(cell.op.group() as usize)
}

struct Worker {
    cell: Cell,
    run: u64,
    chains: Chains,
    folder: OwnedFd,
    file: Option<OwnedFd>,
    /// The files that stay open, where there are several or other ones.
    open: Vec<OwnedFd>,
    key: Option<Key>,
    data: Vec<u8>,
    counts: Counts,
}

impl Worker {
    fn new(cell: &Cell, place: &Place, folder: &PathBuf) -> io::Result<Worker> {
        let (size, side) = (cell.size as usize, side(cell));
        let mut chains = Chains::new(side, size * 2 + TRAILER)?;
        let data = files::content(cell.op, cell.size, place.run);
        for c in 0..side {
            chains.buffer(c)[..size].copy_from_slice(&data);
            chains.buffer(c)[size + TRAILER..].copy_from_slice(&data);
        }
        let folder = rustix::fs::open(folder, FOLDER, Mode::empty())?;
        let flags = if cell.op.writes() { UPDATE } else { READ };
        let file = place.file.map(|name| rustix::fs::openat(&folder, name, flags, MODE)).transpose()?;
        let open = place.open.iter().map(|name| rustix::fs::openat(&folder, name.as_str(), flags, MODE));
        let open = open.collect::<Result<Vec<_>, _>>()?;
        let key = (cell.op == MicroOp::EncryptWrite).then(catalogue::own_key).transpose()?;
        let counts = Counts::default();
        Ok(Worker { cell: *cell, run: place.run, chains, folder, file, open, key, data, counts })
    }

    fn file(&self) -> RawFd {
        self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Operations `first..first + batch`, side by side.
    fn batch(&mut self, first: u64, batch: u64) -> io::Result<()> {
        for c in 0..batch as usize {
            self.start(c, first + c as u64)?;
        }
        self.chains.wait()?;
        for c in 0..batch as usize {
            self.finish(c, first + c as u64)?;
        }
        if matches!(self.cell.op, MicroOp::ReadModifyWrite | MicroOp::ReadModifyWriteNarrow) {
            (0..batch as usize).for_each(|c| self.write_back(c, first + c as u64));
            self.chains.wait()?;
            (0..batch as usize).try_for_each(|c| self.check(c))?;
        }
        Ok(())
    }

    fn number(&self, i: u64) -> u64 {
        match self.cell.op {
            MicroOp::OpenReadClose
            | MicroOp::OpenReadCloseCopied
            | MicroOp::OpenReadCloseBatched
            | MicroOp::OpenReadWriteClose => files::pick(i, files::FILES),
            MicroOp::Write
            | MicroOp::Read
            | MicroOp::ReadChecksumVerify
            | MicroOp::ReadModifyWrite
            | MicroOp::ReadModifyWriteNarrow => files::pick(i, files::records(self.cell.size)),
            _ => i,
        }
    }

    /// Bytes and place of what a read-modify-write reads and writes.
    fn window(&self, i: u64) -> (u32, u64) {
        let record = self.number(i) * u64::from(self.cell.size);
        match self.cell.op {
            MicroOp::ReadModifyWriteNarrow => (FIELD as u32, record + FIELD_AT as u64),
            _ => (self.cell.size, record),
        }
    }

    fn open(&self, flags: OFlags) -> Step {
        Step::Open { dir: self.folder.as_raw_fd(), flags: flags.bits() as i32, mode: MODE.bits() }
    }

    /// Queues an operation, or its first part.
    fn start(&mut self, c: usize, i: u64) -> io::Result<()> {
        use MicroOp::*;
        let (op, len) = (self.cell.op, self.cell.size);
        if catalogue::is_one(op) {
            return self.start_program(c, i);
        }
        let (size, number, file) = (u64::from(len), self.number(i), On::Fd(self.file()));
        if cell_by_name(op) {
            let mut name = [0; NAME];
            files::name_of(number, &mut name);
            self.chains.name(c, &name);
            self.counts.metadata_copies += 1;
        }
        let behind = size as usize + TRAILER;
        if op.writes() {
            let run = self.run;
            let at = if op == OpenReadWriteClose { behind } else { 0 };
            files::stamp(&mut self.chains.buffer(c)[at..], number, run);
        }
        let write = Step::Write { file: On::Opened, from: 0, len, offset: 0 };
        let read = Step::Read { file: On::Opened, len, offset: 0 };
        let mut steps: Vec<Step> = Vec::with_capacity(6);
        match op {
            AppendChecksumWrite | AppendChecksumWriteGathered => {
                let sum = weldfs_functions::crc32c(&self.chains.buffer(c)[..len as usize]).to_le_bytes();
                self.chains.buffer(c)[len as usize..behind].copy_from_slice(&sum);
                let (at, tail) = (i * (size + TRAILER as u64), TRAILER as u32);
                if op == AppendChecksumWriteGathered {
                    steps.push(Step::Write { file, from: 0, len: len + tail, offset: at });
                } else {
                    steps.push(Step::Write { file, from: 0, len, offset: at });
                    steps.push(Step::Write { file, from: len, len: tail, offset: at + size });
                }
            }
            Append => steps.push(Step::Write { file, from: 0, len, offset: i * size }),
            Write => steps.push(Step::Write { file, from: 0, len, offset: number * size }),
            Read => steps.push(Step::Read { file, len, offset: number * size }),
            ReadChecksumVerify => {
                let len = len + SUM as u32;
                steps.push(Step::Read { file, len, offset: number * u64::from(len) });
            }
            OpenWriteClose | OpenWriteCloseBatched => steps.extend([self.open(NEW), write]),
            OpenReadClose | OpenReadCloseCopied | OpenReadCloseBatched => steps.extend([self.open(READ), read]),
            OpenReadWriteClose => {
                let write = Step::Write { file: On::Opened, from: behind as u32, len, offset: 0 };
                steps.extend([self.open(UPDATE), read, write]);
            }
            ReadModifyWrite | ReadModifyWriteNarrow => {
                let (len, offset) = self.window(i);
                steps.push(Step::Read { file, len, offset });
            }
            op => return Err(io::Error::new(io::ErrorKind::Unsupported, op.name())),
        }
        let by_name = matches!(steps[0], Step::Open { .. });
        let sync = self.cell.class == Class::Durable && !matches!(op, ReadModifyWrite | ReadModifyWriteNarrow);
        if sync {
            let file = if by_name { On::Opened } else { file };
            steps.push(Step::Sync { file, data_only: !matches!(op, OpenWriteClose | OpenWriteCloseBatched) });
        }
        if by_name {
            steps.push(Step::Close);
        }
        self.push(c, &steps);
        Ok(())
    }

    fn program(&mut self) -> (catalogue::uring::Work<'_>, &mut Chains) {
        let Worker { cell, run, folder, open, key, data, chains, .. } = self;
        (catalogue::uring::Work { cell, run: *run, folder, open, key: key.as_ref(), data }, chains)
    }

    fn start_program(&mut self, c: usize, i: u64) -> io::Result<()> {
        let (mut work, chains) = self.program();
        let steps = work.steps(chains, c, i)?;
        self.counts.metadata_copies += catalogue::uring::names(self.cell.op);
        self.push(c, &steps);
        Ok(())
    }

    fn push(&mut self, c: usize, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Read { len, .. } | Step::Write { len, .. } => {
                    self.counts.payload_copies += 1;
                    self.counts.link_bytes += u64::from(*len);
                }
                Step::Sync { .. } => self.counts.flushes += 1,
                _ => {}
            }
        }
        self.chains.push(c, false, steps);
    }

    fn write_back(&mut self, c: usize, i: u64) {
        let (len, offset) = self.window(i);
        let at = if self.cell.op == MicroOp::ReadModifyWriteNarrow { 0 } else { FIELD_AT };
        self.chains.buffer(c)[at..at + FIELD].iter_mut().zip(MASK).for_each(|(b, m)| *b ^= m);
        let file = On::Fd(self.file());
        let write = Step::Write { file, from: 0, len, offset };
        match self.cell.class {
            Class::Volatile => self.push(c, &[write]),
            Class::Durable => self.push(c, &[write, Step::Sync { file, data_only: true }]),
        }
    }

    /// Every step of a chain succeeded.
    fn check(&self, c: usize) -> io::Result<()> {
        match self.chains.results(c).iter().find(|r| **r < 0) {
            Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
            None => Ok(()),
        }
    }

    /// Every step succeeded, and what was read is what it should be.
    fn finish(&mut self, c: usize, i: u64) -> io::Result<()> {
        use MicroOp::*;
        self.check(c)?;
        if catalogue::is_one(self.cell.op) {
            let (work, chains) = self.program();
            return work.look(chains, c);
        }
        if self.cell.op == ReadChecksumVerify {
            let (number, len) = (self.number(i), self.cell.size as usize + SUM);
            return files::is_summed(&self.chains.buffer(c)[..len], number);
        }
        let reads = cell_by_name(self.cell.op) && !matches!(self.cell.op, OpenWriteClose | OpenWriteCloseBatched);
        if reads || self.cell.op == Read {
            let number = self.number(i);
            if self.chains.buffer(c)[..8] != number.to_le_bytes() {
                return Err(io::Error::other(format!("what was read is not record {number}")));
            }
        }
        Ok(())
    }
}
