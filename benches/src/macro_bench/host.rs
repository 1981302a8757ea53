//! The host: plain calls, or one chain of linked io_uring requests per sequence.

use super::model::{APPEND_MAX, FILE_MAX, Step};
use super::personality::Sequence;
use super::store::{LOG, Names, Store, compare, durable, stamp};
use crate::micro::chains::{self, Chains, On};
use crate::micro::sample::Counts;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
const MODE: Mode = Mode::from_raw_mode(0o644);

/// What both ways have open.
struct Place {
    root: OwnedFd,
    log: OwnedFd,
    names: Names,
    counts: Counts,
}

impl Place {
    fn new(root: &Path, names: Names) -> io::Result<Place> {
        let root = rustix::fs::open(root, FOLDER, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let log = rustix::fs::openat(&root, LOG, flags, MODE)?;
        Ok(Place { root, log, names, counts: Counts::default() })
    }

    /// A file's path with a NUL behind it.
    fn path(&self, file: u64) -> [u8; Names::PATH + 1] {
        let mut path = [0; Names::PATH + 1];
        self.names.write(file, &mut path[..Names::PATH]);
        path
    }

    fn call(&mut self, payload: usize) {
        self.counts.crossings += 1;
        self.counts.syscalls += 1;
        self.counts.payload_copies += u64::from(payload > 0);
        self.counts.link_bytes += payload as u64;
    }
}

fn flags(what: Sequence) -> OFlags {
    let flags = match what {
        Sequence::ReadWhole => OFlags::RDONLY,
        Sequence::ReadAppendSync => OFlags::RDWR | OFlags::APPEND,
        Sequence::OpenAppend => OFlags::WRONLY | OFlags::APPEND,
        _ => OFlags::WRONLY | OFlags::CREATE,
    };
    flags | OFlags::CLOEXEC
}

fn full(done: usize, due: usize) -> io::Result<()> {
    if done == due { Ok(()) } else { Err(io::Error::other(format!("{done} of {due} bytes were transferred"))) }
}

/// Plain calls.
pub(super) struct Posix {
    place: Place,
    data: Vec<u8>,
    room: Vec<u8>,
}

impl Posix {
    pub(super) fn new(root: &Path, names: Names) -> io::Result<Posix> {
        let (data, room) = (vec![0x5a; FILE_MAX as usize], vec![0; FILE_MAX as usize]);
        Ok(Posix { place: Place::new(root, names)?, data, room })
    }
}

impl Store for Posix {
    fn step(&mut self, step: &Step) -> io::Result<()> {
        let (size, len) = (step.size as usize, step.len as usize);
        if step.what == Sequence::Log {
            self.place.call(len);
            return full(rustix::io::write(&self.place.log, &self.data[..len])?, len);
        }
        let path = self.place.path(step.file);
        let path = CStr::from_bytes_with_nul(&path).map_err(io::Error::other)?;
        self.place.call(0);
        self.place.counts.metadata_copies += 1;
        let root = &self.place.root;
        match step.what {
            Sequence::Delete => return Ok(rustix::fs::unlinkat(root, path, AtFlags::empty())?),
            Sequence::Stat => return Ok(rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW).map(drop)?),
            _ => {}
        }
        let flags = flags(step.what);
        let file = rustix::fs::openat(root, path, flags, MODE)?;
        if matches!(step.what, Sequence::ReadWhole | Sequence::ReadAppendSync) {
            self.place.call(size);
            full(rustix::io::read(&file, &mut self.room[..size])?, size)?;
            compare(step.file, &self.room[..8])?;
        }
        if step.what != Sequence::ReadWhole {
            if size == 0 {
                self.data[..8].copy_from_slice(&stamp(step.file));
            }
            self.place.call(len);
            full(rustix::io::write(&file, &self.data[..len])?, len)?;
            if durable(step.what) {
                self.place.call(0);
                self.place.counts.flushes += 1;
                rustix::fs::fsync(&file)?;
            }
        }
        self.place.call(0);
        drop(file);
        Ok(())
    }

    fn cut_log(&mut self) -> io::Result<()> {
        self.place.call(0);
        Ok(rustix::fs::ftruncate(&self.place.log, 0)?)
    }

    fn counts(&self) -> Counts {
        self.place.counts
    }
}

/// Linked requests: one system call per sequence.
pub(super) struct Uring {
    place: Place,
    chains: Chains,
}

/// Where an append's bytes are in the buffer; what is read or written whole is before them.
const APPEND_AT: usize = FILE_MAX as usize;

impl Uring {
    pub(super) fn new(root: &Path, names: Names) -> io::Result<Uring> {
        let mut chains = Chains::new(1, APPEND_AT + APPEND_MAX as usize)?;
        chains.buffer(0).fill(0x5a);
        Ok(Uring { place: Place::new(root, names)?, chains })
    }

    fn run(&mut self, steps: &[chains::Step]) -> io::Result<()> {
        for step in steps {
            match step {
                chains::Step::Read { len, .. } | chains::Step::Write { len, .. } => {
                    self.place.counts.payload_copies += 1;
                    self.place.counts.link_bytes += u64::from(*len);
                }
                chains::Step::Sync { .. } => self.place.counts.flushes += 1,
                _ => {}
            }
        }
        self.chains.push(0, false, steps);
        self.chains.wait()?;
        match self.chains.results(0).iter().find(|r| **r < 0) {
            Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
            None => Ok(()),
        }
    }
}

impl Store for Uring {
    fn step(&mut self, step: &Step) -> io::Result<()> {
        let (what, len) = (step.what, step.len as u32);
        let dir = self.place.root.as_raw_fd();
        let append = |file, offset| chains::Step::Write { file, from: APPEND_AT as u32, len, offset };
        if what == Sequence::Log {
            // Opened for appending: the offset does not count.
            let log = On::Fd(self.place.log.as_raw_fd());
            return self.run(&[append(log, 0)]);
        }
        let path = self.place.path(step.file);
        self.chains.name(0, &path[..Names::PATH]);
        self.place.counts.metadata_copies += 1;
        if what == Sequence::Delete {
            return self.run(&[chains::Step::Unlink { dir }]);
        }
        if what == Sequence::Stat {
            // There is nothing to link: the plain call is the faster one.
            let path = CStr::from_bytes_with_nul(&path).map_err(io::Error::other)?;
            self.place.counts.syscalls += 1;
            self.place.counts.crossings += 1;
            return Ok(rustix::fs::statat(&self.place.root, path, AtFlags::SYMLINK_NOFOLLOW).map(drop)?);
        }
        let file = On::Opened;
        let mut steps = Vec::with_capacity(5);
        steps.push(chains::Step::Open { dir, flags: flags(what).bits() as i32, mode: MODE.bits() });
        let reads = matches!(what, Sequence::ReadWhole | Sequence::ReadAppendSync);
        if reads {
            steps.push(chains::Step::Read { file, len: step.size as u32, offset: 0 });
        }
        match what {
            Sequence::ReadWhole => {}
            Sequence::CreateWhole => {
                self.chains.buffer(0)[..8].copy_from_slice(&stamp(step.file));
                steps.push(chains::Step::Write { file, from: 0, len, offset: 0 });
            }
            _ => {
                if step.size == 0 {
                    self.chains.buffer(0)[APPEND_AT..APPEND_AT + 8].copy_from_slice(&stamp(step.file));
                }
                steps.push(append(file, step.size));
            }
        }
        if durable(what) {
            steps.push(chains::Step::Sync { file, data_only: false });
        }
        steps.push(chains::Step::Close);
        self.run(&steps)?;
        if reads {
            compare(step.file, &self.chains.buffer(0)[..8])?;
        }
        Ok(())
    }

    fn cut_log(&mut self) -> io::Result<()> {
        self.place.counts.syscalls += 1;
        self.place.counts.crossings += 1;
        Ok(rustix::fs::ftruncate(&self.place.log, 0)?)
    }

    fn counts(&self) -> Counts {
        let mut counts = self.place.counts;
        counts.syscalls += self.chains.enters();
        counts.crossings += self.chains.enters();
        counts
    }
}
