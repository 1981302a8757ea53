//! The host through plain system calls, one after the other: what a program does today. Each call is counted where it
//! is made.

use super::System;
use super::catalogue;
use super::cell::{Cell, Class, FIELD, FIELD_AT, MicroOp};
use super::files::{self, HostTree, MASK, NAME, Place};
use super::sample::{Counts, Sample};
use super::weld::{Run, merge};
use crate::peers::{Ground, Peer};
use crate::settle::settle;
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use weldfs_ciscops::functions::cipher::Key;

/// A directory of the host with a folder for this experiment, removed at the end.
pub(super) struct Ours {
    pub tree: HostTree,
    pub ground: Ground,
    /// How long to wait for rest before a clock starts.
    calm: Duration,
    _folder: tempfile::TempDir,
}

impl Ours {
    pub(super) fn new(peer: &Peer, calm: Duration) -> io::Result<Ours> {
        let (folder, tree) = files::host_tree(&peer.dir)?;
        Ok(Ours { tree, ground: Ground::of(&peer.dir)?, calm, _folder: folder })
    }

    /// Has the file system write back everything.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(std::fs::File::open(&self.tree.0)?)?)
    }

    /// Prepares, runs one thread per place with `each`, verifies and clears.
    pub(super) fn run(
        &self,
        who: &str,
        cell: &Cell,
        run: u64,
        count: u64,
        each: &(dyn Fn(&Cell, &Place, PathBuf, &Barrier) -> io::Result<Run> + Sync),
    ) -> io::Result<Sample> {
        let share = (count / u64::from(cell.threads)).max(1);
        let places = (0..cell.threads).map(|t| Place::prepare(&self.tree, cell, t, run, share));
        let places = places.collect::<io::Result<Vec<_>>>()?;
        if cell.class == Class::Durable {
            // What earlier runs left unwritten is not this one's to persist.
            self.sync()?;
        }
        let restless = u64::from(!settle(self.calm));
        let barrier = Barrier::new(places.len());
        let results: Vec<io::Result<Run>> = std::thread::scope(|s| {
            let started = places.iter().map(|place| {
                let (folder, barrier) = (self.tree.path(&place.folder), &barrier);
                s.spawn(move || each(cell, place, folder, barrier))
            });
            let started: Vec<_> = started.collect();
            let panicked = || Err(io::Error::other("a thread panicked"));
            started.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
        });
        let mut sample = merge(results.into_iter().collect::<io::Result<Vec<_>>>()?, Counts::default());
        (sample.ops, sample.restless) = (share * u64::from(cell.threads), restless);
        for place in &places {
            place.verify(&self.tree, who, cell)?;
            place.clear(&self.tree)?;
        }
        Ok(sample)
    }
}

/// Flags of the directory that names are relative to.
pub(super) const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
pub(super) const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::TRUNC).union(OFlags::CLOEXEC);
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
pub(super) const UPDATE: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC);
const APPEND: OFlags = OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::CLOEXEC);
pub(super) const MODE: Mode = Mode::from_raw_mode(0o644);

/// Plain calls on a directory.
pub(super) struct Posix {
    name: String,
    ours: Ours,
}

impl Posix {
    pub(super) fn new(peer: &Peer, calm: Duration) -> io::Result<Posix> {
        Ok(Posix { name: format!("posix:{}", peer.name), ours: Ours::new(peer, calm)? })
    }
}

impl System for Posix {
    fn name(&self) -> &str {
        &self.name
    }

    fn medium(&self) -> String {
        self.ours.ground.describe()
    }

    fn power_safe(&self) -> bool {
        self.ours.ground.power_safe()
    }

    /// A plain call returns when it is done: there is no depth but one.
    fn takes(&self, cell: &Cell) -> bool {
        cell.depth == 1 && (cell.class == Class::Volatile || self.ours.ground.keeps())
    }

    fn run(&mut self, cell: &Cell, run: u64, count: u64) -> io::Result<Sample> {
        self.ours.run(&self.name, cell, run, count, &one)
    }

    fn rest(&mut self) -> io::Result<()> {
        self.ours.sync()
    }
}

fn one(cell: &Cell, place: &Place, folder: PathBuf, barrier: &Barrier) -> io::Result<Run> {
    let ready = Calls::new(cell, place, &folder);
    barrier.wait();
    let mut calls = ready?;
    let mut latencies = Vec::with_capacity(place.count as usize);
    let start = Instant::now();
    let mut before = start;
    for i in 0..place.count {
        calls.operation(i)?;
        let now = Instant::now();
        latencies.push(u32::try_from(now.duration_since(before).as_nanos()).unwrap_or(u32::MAX));
        before = now;
    }
    Ok(Run { start, end: before, latencies, counts: calls.counts })
}

/// What one thread has open, and its count of calls.
struct Calls {
    cell: Cell,
    run: u64,
    folder: OwnedFd,
    file: Option<OwnedFd>,
    data: Vec<u8>,
    room: Vec<u8>,
    /// The files that stay open, where there are several or other ones.
    open: Vec<OwnedFd>,
    key: Option<Key>,
    counts: Counts,
}

impl Calls {
    fn new(cell: &Cell, place: &Place, folder: &PathBuf) -> io::Result<Calls> {
        use MicroOp::*;
        let folder = rustix::fs::open(folder, FOLDER, Mode::empty())?;
        let flags = match cell.op {
            AppendChecksumWrite | AppendChecksumWriteGathered | Append => APPEND,
            Read | ReadChecksumVerify => READ,
            _ => UPDATE,
        };
        let file = place.file.map(|name| rustix::fs::openat(&folder, name, flags, MODE)).transpose()?;
        let data = files::content(cell.op, cell.size, place.run);
        let more = if cell.op.writes() { UPDATE } else { READ };
        let open = place.open.iter().map(|name| rustix::fs::openat(&folder, name.as_str(), more, MODE));
        let open = open.collect::<Result<Vec<_>, _>>()?;
        let key = (cell.op == EncryptWrite).then(catalogue::own_key).transpose()?;
        let room = match catalogue::is_one(cell.op) {
            true => vec![0; catalogue::posix::room(cell)],
            false if cell.op == ReadChecksumVerify => vec![0; cell.size as usize + files::SUM],
            false => vec![0; cell.size as usize],
        };
        Ok(Calls { cell: *cell, run: place.run, folder, file, data, room, open, key, counts: Counts::default() })
    }

    fn operation(&mut self, i: u64) -> io::Result<()> {
        use MicroOp::*;
        let size = u64::from(self.cell.size);
        let durable = self.cell.class == Class::Durable;
        match self.cell.op {
            OpenWriteClose
            | OpenReadClose
            | OpenReadCloseCopied
            | OpenReadWriteClose
            | OpenReadCloseBatched
            | OpenWriteCloseBatched => {
                return self.by_name(i, durable);
            }
            op if catalogue::is_one(op) => return self.program(i),
            _ => {}
        }
        let file = self.file.take().ok_or_else(|| io::Error::other("no file is open"))?;
        let record = files::pick(i, files::records(self.cell.size));
        let done = match self.cell.op {
            AppendChecksumWrite | AppendChecksumWriteGathered | Append => self.append(&file, i),
            Write => {
                files::stamp(&mut self.data, record, self.run);
                self.write_at(&file, record * size)
            }
            Read => self.read(&file, record * size, record),
            ReadChecksumVerify => self.read_summed(&file, record),
            ReadModifyWriteNarrow => self.narrow(&file, record * size + FIELD_AT as u64),
            _ => self.modify(&file, record * size),
        };
        self.file = Some(file);
        done?;
        if durable && self.cell.op.writes() { self.sync(true) } else { Ok(()) }
    }

    /// An operation of the catalogue.
    fn program(&mut self, i: u64) -> io::Result<()> {
        let mut calls = catalogue::posix::Calls {
            cell: &self.cell,
            run: self.run,
            folder: &self.folder,
            open: &self.open,
            data: &mut self.data,
            room: &mut self.room,
            key: self.key.as_ref(),
            counts: &mut self.counts,
        };
        calls.operation(i)
    }

    fn call(&mut self, payload: usize) {
        self.counts.crossings += 1;
        self.counts.syscalls += 1;
        self.counts.payload_copies += u64::from(payload > 0);
        self.counts.link_bytes += payload as u64;
    }

    fn sync(&mut self, data_only: bool) -> io::Result<()> {
        let file = self.file.as_ref().ok_or_else(|| io::Error::other("no file is open"))?;
        if data_only {
            rustix::fs::fdatasync(file)?
        } else {
            rustix::fs::fsync(file)?
        }
        self.call(0);
        self.counts.flushes += 1;
        Ok(())
    }

    fn append(&mut self, file: &OwnedFd, i: u64) -> io::Result<()> {
        files::stamp(&mut self.data, i, self.run);
        let whole = self.data.len();
        if self.cell.op == MicroOp::Append {
            self.call(whole);
            return full(rustix::io::write(file, &self.data)?, whole);
        }
        let sum = weldfs_functions::crc32c(&self.data).to_le_bytes();
        if self.cell.op == MicroOp::AppendChecksumWriteGathered {
            self.call(whole + sum.len());
            return full(rustix::io::writev(file, &[IoSlice::new(&self.data), IoSlice::new(&sum)])?, whole + sum.len());
        }
        self.call(whole);
        full(rustix::io::write(file, &self.data)?, whole)?;
        self.call(sum.len());
        full(rustix::io::write(file, &sum)?, sum.len())
    }

    fn write_at(&mut self, file: &OwnedFd, offset: u64) -> io::Result<()> {
        self.call(self.data.len());
        full(rustix::io::pwrite(file, &self.data, offset)?, self.data.len())
    }

    /// Reads a record and compares its number.
    fn read(&mut self, file: &OwnedFd, offset: u64, number: u64) -> io::Result<()> {
        self.call(self.room.len());
        full(rustix::io::pread(file, &mut self.room[..], offset)?, self.cell.size as usize)?;
        if self.room[..8] != number.to_le_bytes() {
            return Err(io::Error::other(format!("what was read is not record {number}")));
        }
        Ok(())
    }

    /// Reads a record with its checksum, and compares both.
    fn read_summed(&mut self, file: &OwnedFd, number: u64) -> io::Result<()> {
        let len = self.room.len();
        self.call(len);
        full(rustix::io::pread(file, &mut self.room[..], number * len as u64)?, len)?;
        files::is_summed(&self.room, number)
    }

    fn modify(&mut self, file: &OwnedFd, offset: u64) -> io::Result<()> {
        self.call(self.room.len());
        full(rustix::io::pread(file, &mut self.room[..], offset)?, self.cell.size as usize)?;
        self.room[FIELD_AT..FIELD_AT + FIELD].iter_mut().zip(MASK).for_each(|(b, m)| *b ^= m);
        self.call(self.room.len());
        full(rustix::io::pwrite(file, &self.room, offset)?, self.room.len())
    }

    fn narrow(&mut self, file: &OwnedFd, offset: u64) -> io::Result<()> {
        let mut field = [0; FIELD];
        self.call(FIELD);
        full(rustix::io::pread(file, &mut field[..], offset)?, FIELD)?;
        field.iter_mut().zip(MASK).for_each(|(b, m)| *b ^= m);
        self.call(FIELD);
        full(rustix::io::pwrite(file, &field, offset)?, FIELD)
    }

    fn by_name(&mut self, i: u64, durable: bool) -> io::Result<()> {
        let (op, size) = (self.cell.op, self.data.len());
        let fresh = matches!(op, MicroOp::OpenWriteClose | MicroOp::OpenWriteCloseBatched);
        let number = if fresh { i } else { files::pick(i, files::FILES) };
        let flags = match op {
            _ if fresh => NEW,
            MicroOp::OpenReadWriteClose => UPDATE,
            _ => READ,
        };
        let mut name = [0; NAME + 1];
        name_with_nul(number, &mut name);
        let name = CStr::from_bytes_with_nul(&name).map_err(io::Error::other)?;
        self.call(0);
        self.counts.metadata_copies += 1;
        let file = rustix::fs::openat(self.folder.as_fd(), name, flags, MODE)?;
        if !fresh {
            self.read(&file, 0, number)?;
        }
        if op.writes() {
            files::stamp(&mut self.data, number, self.run);
            self.call(size);
            full(rustix::io::pwrite(&file, &self.data, 0)?, size)?;
            if durable {
                self.file = Some(file);
                // A new file's name must last, too.
                self.sync(!fresh)?;
                self.call(0);
                self.file = None;
                return Ok(());
            }
        }
        self.call(0);
        drop(file);
        Ok(())
    }
}

/// The name of a file as C strings have it.
pub(super) fn name_with_nul(number: u64, into: &mut [u8; NAME + 1]) {
    let mut name = [0; NAME];
    files::name_of(number, &mut name);
    into[..NAME].copy_from_slice(&name);
}

pub(super) fn full(done: usize, due: usize) -> io::Result<()> {
    if done == due { Ok(()) } else { Err(io::Error::other(format!("{done} of {due} bytes were transferred"))) }
}
