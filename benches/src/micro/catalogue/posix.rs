//! Plain calls, the fewest that do it.

use super::*;
use crate::micro::cell::{Cell, Class};
use crate::micro::files::{self, records};
use crate::micro::posix::{MODE, full};
use crate::micro::sample::Counts;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

/// What one thread has open, and its count of calls.
pub(in crate::micro) struct Calls<'a> {
    pub cell: &'a Cell,
    pub run: u64,
    pub folder: &'a OwnedFd,
    pub open: &'a [OwnedFd],
    /// The payload, and room for what is read or made of it.
    pub data: &'a mut [u8],
    pub room: &'a mut Vec<u8>,
    pub key: Option<&'a Key>,
    pub counts: &'a mut Counts,
}

/// A name with a NUL behind it.
fn with_nul<const N: usize, const M: usize>(name: [u8; N]) -> [u8; M] {
    let mut all = [0; M];
    all[..N].copy_from_slice(&name);
    all
}

fn c(name: &[u8]) -> io::Result<&CStr> {
    CStr::from_bytes_with_nul(name).map_err(io::Error::other)
}

fn named(number: u64) -> [u8; NAME + 1] {
    let mut name = [0; NAME];
    name_of(number, &mut name);
    with_nul(name)
}

fn odd(what: &str) -> io::Error {
    io::Error::other(format!("not what was asked for: {what}"))
}

impl Calls<'_> {
    fn call(&mut self, payload: usize, names: u64) {
        self.counts.crossings += 1;
        self.counts.syscalls += 1;
        self.counts.payload_copies += u64::from(payload > 0);
        self.counts.metadata_copies += names;
        self.counts.link_bytes += payload as u64;
    }

    fn durable(&self) -> bool {
        self.cell.class == Class::Durable
    }

    /// fdatasync, or fsync of what is new, where the class asks for it.
    fn sync(&mut self, file: impl AsFd, is_new: bool) -> io::Result<()> {
        if !self.durable() {
            return Ok(());
        }
        self.call(0, 0);
        self.counts.flushes += 1;
        let done = if is_new { rustix::fs::fsync(file) } else { rustix::fs::fdatasync(file) };
        Ok(done?)
    }

    fn read(&mut self, which: usize, offset: u64, len: usize) -> io::Result<()> {
        self.call(len, 0);
        full(rustix::io::pread(&self.open[which], &mut self.room[..len], offset)?, len)
    }

    fn write(&mut self, file: impl AsFd, offset: u64, data: &[u8]) -> io::Result<()> {
        self.call(data.len(), 0);
        full(rustix::io::pwrite(file, data, offset)?, data.len())
    }

    /// The payload with its stamp, taken out of the way.
    fn with_payload(&mut self, number: u64, f: impl FnOnce(&mut Self, &mut [u8]) -> io::Result<()>) -> io::Result<()> {
        files::stamp(self.data, number, self.run);
        let data = std::mem::take(&mut self.data);
        let done = f(self, data);
        self.data = data;
        done
    }

    /// Operation `i`.
    pub(in crate::micro) fn operation(&mut self, i: u64) -> io::Result<()> {
        let (size, wide) = (self.cell.size, u64::from(self.cell.size));
        let (record, open) = (pick(i, records(size)), self.open);
        match self.cell.op {
            MicroOp::AtomicReplace => self.with_payload(pick(i, FILES), |c, data| c.replace(i, data)),
            MicroOp::CopyRange => {
                self.copy(0, record * wide, 1, record * wide, wide)?;
                self.sync(&open[1], false)
            }
            MicroOp::Concat => {
                (0..PARTS).try_for_each(|k| self.copy(1 + k as usize, 0, 0, (i * PARTS + k) * wide, wide))?;
                self.sync(&open[0], false)
            }
            MicroOp::CompressWrite => self.with_payload(record, |c, data| {
                let frame = compressed(data)?;
                c.write(&open[0], record * wide, &frame)?;
                c.sync(&open[0], false)
            }),
            MicroOp::EncryptWrite => {
                let (number, offset) = layout::encrypted(i, size);
                self.with_payload(number, |c, data| {
                    let mut room = std::mem::take(c.room);
                    room[..data.len()].copy_from_slice(data);
                    encrypt(c.key.ok_or_else(|| odd("no key"))?, offset, &mut room[..data.len()])?;
                    let done = c.write(&open[0], offset, &room[..data.len()]);
                    *c.room = room;
                    done.and_then(|()| c.sync(&open[0], false))
                })
            }
            MicroOp::CreateTree => self.with_payload(i, |c, data| c.plant(i, data)),
            MicroOp::StatMany => self.stat(pick(i, FILES)),
            MicroOp::ReaddirPlus => self.list(),
            MicroOp::LogRecover => self.recover(),
            MicroOp::AppendToRecord => self.with_payload(record, |c, data| {
                c.read(0, record * wide, LENGTH as usize)?;
                let before = u32::from_le_bytes([c.room[0], c.room[1], c.room[2], c.room[3]]);
                c.write(&open[0], record * wide + LENGTH + u64::from(before), &data[..GROWTH as usize])?;
                c.write(&open[0], record * wide, &(before + GROWTH).to_le_bytes())?;
                c.sync(&open[0], false)
            }),
            MicroOp::AppendAndRotate => self.with_payload(i, |c, data| c.log(pick(i, LOGS), data)),
            MicroOp::IndexWalk => self.walk(i),
            MicroOp::MultiWrite => {
                let number = pick(i, (records(size) / PARTS).max(1));
                self.with_payload(number, |c, data| {
                    let at = layout::part_offset(i, size);
                    open.iter().try_for_each(|file| c.write(file, at, data))?;
                    open.iter().try_for_each(|file| c.sync(file, false))
                })
            }
            op => Err(odd(op.name())),
        }
    }

    /// A new file beside the old one, and then in its place. The directory is synced, too: the rename must last.
    fn replace(&mut self, i: u64, data: &[u8]) -> io::Result<()> {
        let mut name = [0; NAME];
        temporary(i, &mut name);
        let (from, to): ([u8; NAME + 1], _) = (with_nul(name), named(pick(i, FILES)));
        self.call(0, 1);
        let file = rustix::fs::openat(self.folder, c(&from)?, NEW, MODE)?;
        self.write(&file, 0, data)?;
        self.sync(&file, true)?;
        self.call(0, 0);
        drop(file);
        self.call(0, 2);
        rustix::fs::renameat(self.folder, c(&from)?, self.folder, c(&to)?)?;
        self.sync(self.folder, true)
    }

    /// A payload at the end of a log by name. A full log is renamed over the one before, and the directory synced: the
    /// rename must last.
    fn log(&mut self, number: u64, data: &[u8]) -> io::Result<()> {
        let (path, mut aside) = (named(number), [0; NAME]);
        temporary(number, &mut aside);
        let aside: [u8; NAME + 1] = with_nul(aside);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.call(0, 1);
        let mut file = rustix::fs::openat(self.folder, c(&path)?, flags, MODE)?;
        self.call(0, 1);
        let mut end = rustix::fs::fstat(&file)?.st_size as u64;
        let rotates = end + data.len() as u64 > FULL * data.len() as u64;
        if rotates {
            self.call(0, 2);
            rustix::fs::renameat(self.folder, c(&path)?, self.folder, c(&aside)?)?;
            self.call(0, 0);
            drop(file);
            self.call(0, 1);
            file = rustix::fs::openat(self.folder, c(&path)?, flags | OFlags::EXCL, MODE)?;
            end = 0;
        }
        self.write(&file, end, data)?;
        self.sync(&file, rotates)?;
        self.call(0, 0);
        drop(file);
        if rotates { self.sync(self.folder, true) } else { Ok(()) }
    }

    fn copy(&mut self, from: usize, mut offset: u64, to: usize, mut at: u64, len: u64) -> io::Result<()> {
        let end = offset + len;
        while offset < end {
            let (from, to, left) = (&self.open[from], &self.open[to], (end - offset) as usize);
            let (mut source, mut target) = (offset, at);
            let done = rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), left)?;
            self.call(0, 0);
            if done == 0 {
                return Err(odd("the source ends early"));
            }
            (offset, at) = (offset + done as u64, at + done as u64);
        }
        Ok(())
    }

    /// A directory with four files: all are written before the first is synced, so that one commit may do for all.
    fn plant(&mut self, i: u64, data: &[u8]) -> io::Result<()> {
        self.call(0, 1);
        rustix::fs::mkdirat(self.folder, c(&named(i))?, Mode::from_raw_mode(0o755))?;
        let mut made = Vec::with_capacity(LEAVES.len());
        for which in 0..LEAVES.len() {
            let path: [u8; NAME + 3] = with_nul(leaf(i, which));
            self.call(0, 1);
            let file = rustix::fs::openat(self.folder, c(&path)?, NEW, MODE)?;
            self.write(&file, 0, data)?;
            if self.durable() {
                made.push(file);
            } else {
                self.call(0, 0);
            }
        }
        for file in made {
            self.sync(&file, true)?;
            self.call(0, 0);
        }
        self.sync(self.folder, true)
    }

    fn stat(&mut self, number: u64) -> io::Result<()> {
        self.call(0, 2);
        let found = rustix::fs::statat(self.folder, c(&named(number))?, AtFlags::SYMLINK_NOFOLLOW)?;
        if found.st_size as u64 == u64::from(self.cell.size) { Ok(()) } else { Err(odd("another size")) }
    }

    /// Every entry of the directory with its attributes.
    fn list(&mut self) -> io::Result<()> {
        let mut room = [MaybeUninit::<u8>::uninit(); 32 << 10];
        self.call(0, 0);
        rustix::fs::seek(self.folder, SeekFrom::Start(0))?;
        let (mut entries, mut reads, mut files) = (RawDir::new(self.folder, &mut room), 0, 0);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if entry.file_name().to_bytes().starts_with(b"f") {
                let found = rustix::fs::statat(self.folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                files += u64::from(found.st_size as u64 == u64::from(self.cell.size));
                self.counts.crossings += 1;
                self.counts.syscalls += 1;
                self.counts.metadata_copies += 2;
            }
            reads += u64::from(entries.is_buffer_empty());
        }
        // The last one says that there are no more.
        self.counts.crossings += reads + 1;
        self.counts.syscalls += reads + 1;
        if files == ENTRIES { Ok(()) } else { Err(odd(&format!("{files} files in a directory"))) }
    }

    /// The whole log at once, and each record's checksum.
    fn recover(&mut self) -> io::Result<()> {
        let whole = self.room.len();
        self.call(whole, 0);
        let read = rustix::io::pread(&self.open[0], &mut self.room[..], 0)?;
        let (mut records, mut rest) = (0, &self.room[..read]);
        while let Some((head, data)) = rest.split_at_checked(HEAD) {
            let of = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (len, sum) = (of(0) as usize, of(4));
            if len == 0 || len > data.len() || weldfs_functions::crc32c(&data[..len]) != sum {
                break;
            }
            (records, rest) = (records + 1, &data[len..]);
        }
        if records == log_records(self.cell.size) { Ok(()) } else { Err(odd(&format!("{records} records"))) }
    }

    fn walk(&mut self, i: u64) -> io::Result<()> {
        let mut at = first_node(i) * NODE;
        let word = |room: &[u8], at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&room[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        for _ in 1..WALK {
            self.read(0, at, 8)?;
            at = word(self.room, 0);
        }
        self.read(0, at, self.cell.size as usize)?;
        let node = word(self.room, 8);
        if node == last_node(i) { Ok(()) } else { Err(odd(&format!("the walk ended at node {node}"))) }
    }
}

/// Room for what is read: a payload, or a whole log.
pub(in crate::micro) fn room(cell: &Cell) -> usize {
    if cell.op == MicroOp::LogRecover { 2 * LOG as usize } else { cell.size as usize + 64 }
}
