//! A rollback journal, or the end of one, that is not in the device yet.
//!
//! SQLite appends to a journal in small pieces, three for a page. Nothing but the order against the database counts:
//! the journal must be in the device before the first page that it is for is written there. As long as no page is, it
//! stays here as a whole, and its file is not even made ("kept"). After that what is appended is held back until the
//! next page, and sent as one write. What is lost with a program that is killed before that is the journal of a
//! database that was not touched.

use crate::code;
use crate::fault::{Done, Fault};
use crate::making;
use crate::name::Name;
use std::ffi::c_int;
use std::io;
use weldfs::{Client, File};
use weldfs_ciscops::limits::{ATOMIC_WRITE_MAX, TXN_BYTES_MAX};
use weldfs_locks::Mutex;

/// Held back at most, bytes: one write.
const MOST: usize = ATOMIC_WRITE_MAX as usize;
/// Kept at most, bytes: what belongs to the pages of one transaction of the device, and its own heads.
const KEPT_MOST: u64 = TXN_BYTES_MAX + (1 << 20);
/// Bytes that a journal of a few pages has.
const USUAL: usize = 32 << 10;

/// See the module.
pub struct Journal {
    name: Name,
    /// SQLite's, to make the file with.
    flags: c_int,
    inner: Mutex<Inner>,
}

struct Inner {
    /// None while it is not made.
    file: Option<File>,
    /// Nothing of it is in the device, where its file, if there is one, is empty: `bytes` is all of it.
    kept: bool,
    /// Where the bytes held back begin: the file's end in the device.
    start: u64,
    bytes: Vec<u8>,
    /// The file was changed through this and not synced.
    dirty: bool,
}

impl Journal {
    /// One that has no file.
    pub fn unmade(name: Name, flags: c_int) -> Journal {
        Journal::over(name, flags, None, 0, true)
    }

    /// Of an open file of this size; `keep`: it may stay here as a whole while that is 0.
    pub fn of(name: Name, file: File, size: u64, keep: bool) -> Journal {
        Journal::over(name, 0, Some(file), size, keep && size == 0)
    }

    fn over(name: Name, flags: c_int, file: Option<File>, start: u64, kept: bool) -> Journal {
        let bytes = Vec::with_capacity(USUAL);
        Journal { name, flags, inner: Mutex::new(Inner { file, kept, start, bytes, dirty: false }) }
    }

    /// All of it is here, and no page of its database that was written since it was begun is in the device.
    pub fn is_kept(&self) -> bool {
        self.inner.lock().kept
    }

    /// There is no file.
    pub fn is_unmade(&self) -> bool {
        self.inner.lock().file.is_none()
    }

    /// Whether a write that ends here leaves a journal kept that is.
    pub fn takes(&self, end: u64) -> bool {
        !self.inner.lock().kept || end <= KEPT_MOST
    }

    /// Reads; how many bytes there were.
    pub fn read(&self, room: &mut [u8], at: u64) -> io::Result<usize> {
        let inner = self.inner.lock();
        let n = match &inner.file {
            Some(file) if !inner.kept => file.read_at(&mut *room, at)?,
            _ => 0,
        };
        Ok(inner.lay_over(room, at, n))
    }

    /// Writes, now or later. A failure leaves what was held back held back.
    pub fn write(&self, client: &Client, data: &[u8], at: u64) -> Done {
        let mut inner = self.inner.lock();
        let end = at.saturating_add(data.len() as u64);
        if inner.kept && end <= KEPT_MOST {
            inner.put(data, at as usize);
            return Ok(());
        }
        if !inner.kept && at == inner.end() && data.len() <= MOST {
            if inner.bytes.len() + data.len() > MOST {
                self.send_in(&mut inner, client)?;
            }
            inner.bytes.extend_from_slice(data);
            return Ok(());
        }
        // What overwrites (a head that is zeroed to end a commit) does so at once.
        self.send_in(&mut inner, client)?;
        let file = inner.made()?;
        file.write_all_at(data, at).map_err(|e| self.failed(code::IOERR_WRITE, e))?;
        (inner.start, inner.dirty) = (inner.start.max(end), true);
        Ok(())
    }

    /// All of it is in the device, not necessarily durable.
    pub fn send(&self, client: &Client) -> Done {
        self.send_in(&mut self.inner.lock(), client)
    }

    fn send_in(&self, inner: &mut Inner, client: &Client) -> Done {
        if inner.file.is_none() {
            let made = making::open(client, &self.name, self.flags);
            // In the middle of a write: a code that SQLite expects of that.
            let failed = |e: Fault| self.failed(code::IOERR_WRITE, io::Error::from_raw_os_error(e.errno));
            inner.file = Some(made.map_err(failed)?.0);
        }
        if !inner.bytes.is_empty() {
            inner.dirty = true;
            let sent = inner.made()?.write_all_at(&inner.bytes, inner.start);
            sent.map_err(|e| self.failed(code::IOERR_WRITE, e))?;
            inner.start = inner.end();
            inner.bytes.clear();
        }
        inner.kept = false;
        Ok(())
    }

    /// Sets the size; of what is held back behind it nothing is left.
    pub fn truncate(&self, client: &Client, size: u64) -> Done {
        let mut inner = self.inner.lock();
        if inner.kept && size <= KEPT_MOST {
            inner.bytes.resize(size as usize, 0);
            return Ok(());
        }
        if inner.kept || size > inner.start {
            self.send_in(&mut inner, client)?;
        }
        inner.dirty = true;
        inner.made()?.set_len(size).map_err(|e| self.failed(code::IOERR_TRUNCATE, e))?;
        (inner.start, inner.kept) = (size, false);
        inner.bytes.clear();
        Ok(())
    }

    /// Everything completed in the device is durable.
    pub fn sync(&self) -> Done {
        let mut inner = self.inner.lock();
        inner.made()?.sync_data().map_err(|e| self.failed(code::IOERR_FSYNC, e))?;
        inner.dirty = false;
        Ok(())
    }

    /// It is empty and durable so: it may be kept again.
    pub fn keep(&self) {
        let mut inner = self.inner.lock();
        inner.kept = inner.start == 0 && inner.bytes.is_empty() && !inner.dirty;
    }

    /// Bytes, with what is held back.
    pub fn size(&self) -> u64 {
        self.inner.lock().end()
    }

    /// The file, to be closed.
    pub fn take_file(&self) -> Option<File> {
        self.inner.lock().file.take()
    }

    fn failed(&self, code: c_int, e: io::Error) -> Fault {
        Fault::of(code, e, || format!("write {}", self.name))
    }
}

impl Inner {
    fn made(&self) -> Done<&File> {
        self.file.as_ref().ok_or_else(|| Fault::quiet(code::IOERR))
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Writes into what is kept.
    fn put(&mut self, data: &[u8], at: usize) {
        let end = at + data.len();
        if at == self.bytes.len() {
            return self.bytes.extend_from_slice(data);
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(data);
    }

    /// Puts what is held back over what was read from `at`, of which `n` bytes were there; how many are there with it.
    fn lay_over(&self, room: &mut [u8], at: u64, n: usize) -> usize {
        let (from, to) = (self.start.max(at), self.end().min(at.saturating_add(room.len() as u64)));
        if from >= to {
            return n;
        }
        let data = &self.bytes[(from - self.start) as usize..(to - self.start) as usize];
        room[(from - at) as usize..(to - at) as usize].copy_from_slice(data);
        n.max((to - at) as usize)
    }
}
