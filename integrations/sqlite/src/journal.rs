//! A rollback journal, or the end of one, that is not in the device yet.
//!
//! SQLite appends to a journal in small pieces, three for a page. Nothing but the order against the database counts:
//! the journal must be in the device before the first page that it is for is written there. As long as none has to be,
//! it stays here as a whole, and its file is not even made ("kept"). After that what is appended is held back until the
//! next page, and sent as one write. What is lost with a program that is killed before that is the journal of a
//! database that was not touched.

use crate::code;
use crate::fault::{Done, Fault};
use crate::making;
use crate::name::Name;
use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs::{Client, Errno, File, Handle};
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
    /// It may be kept at all.
    keep: bool,
    /// Nothing of it is in the device, where its file, if there is one, is empty: what is here is all of it. Changed
    /// under the lock of `inner`.
    kept: AtomicBool,
    /// The connection that has it open holds nothing to itself: others may have made one of this name, or removed it.
    idle: AtomicBool,
    inner: Mutex<Inner>,
}

struct Inner {
    file: Option<File>,
    /// The device has a file of this name, as far as this knows.
    made: bool,
    /// Where the bytes held back begin: the file's end in the device.
    start: u64,
    bytes: Vec<u8>,
    /// The file was changed through this and not synced.
    dirty: bool,
}

impl Journal {
    /// One that has no file, and may be kept.
    pub fn unmade(name: Name, flags: c_int) -> Journal {
        Journal::over(name, flags, None, 0, true)
    }

    /// Of an open file of this size; `keep`: it may stay here as a whole while that is 0.
    pub fn of(name: Name, flags: c_int, file: File, size: u64, keep: bool) -> Journal {
        Journal::over(name, flags, Some(file), size, keep)
    }

    fn over(name: Name, flags: c_int, file: Option<File>, start: u64, keep: bool) -> Journal {
        let (kept, idle) = (AtomicBool::new(keep && start == 0), AtomicBool::new(false));
        let (made, bytes) = (file.is_some(), Vec::with_capacity(USUAL));
        Journal { name, flags, keep, kept, idle, inner: Mutex::new(Inner { file, made, start, bytes, dirty: false }) }
    }

    /// All of it is here.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    /// It has a head that counts: one that is zeroed has ended.
    pub fn has_begun(&self) -> bool {
        self.inner.lock().has_begun()
    }

    /// There is no file.
    pub fn is_unmade(&self) -> bool {
        !self.inner.lock().made
    }

    /// It is of no transaction.
    pub fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Acquire)
    }

    /// Its transaction is over; see `idle`.
    pub fn rest(&self) {
        self.idle.store(true, Ordering::Release);
    }

    /// Whether a write that ends here leaves a journal kept that is.
    pub fn takes(&self, end: u64) -> bool {
        !self.is_kept() || end <= KEPT_MOST
    }

    /// Reads; how many bytes there were.
    pub fn read(&self, room: &mut [u8], at: u64) -> io::Result<usize> {
        let inner = self.inner.lock();
        let n = match &inner.file {
            Some(file) if !self.is_kept() => file.read_at(&mut *room, at)?,
            _ => 0,
        };
        Ok(inner.lay_over(room, at, n))
    }

    /// Writes, now or later. A failure leaves what was held back held back.
    pub fn write(&self, client: &Client, data: &[u8], at: u64) -> Done {
        let mut inner = self.inner.lock();
        if at == 0 && self.is_idle() {
            self.look_again(&mut inner, client)?;
        }
        if self.is_kept() && at.saturating_add(data.len() as u64) <= KEPT_MOST {
            inner.put(data, at as usize);
            return Ok(());
        }
        if !self.is_kept() && at == inner.end() && data.len() <= MOST {
            if inner.bytes.len() + data.len() > MOST {
                self.send_in(&mut inner, client)?;
            }
            inner.bytes.extend_from_slice(data);
            return Ok(());
        }
        // What overwrites (a head that is zeroed to end a commit) does so at once.
        self.write_in(&mut inner, client, data, at)
    }

    /// Writes to the device at once, behind everything that was held back.
    pub fn write_now(&self, client: &Client, data: &[u8], at: u64) -> Done {
        self.write_in(&mut self.inner.lock(), client, data, at)
    }

    fn write_in(&self, inner: &mut Inner, client: &Client, data: &[u8], at: u64) -> Done {
        self.send_in(inner, client)?;
        inner.dirty = true;
        inner.file()?.write_all_at(data, at).map_err(|e| self.failed(code::IOERR_WRITE, e))?;
        inner.start = inner.start.max(at.saturating_add(data.len() as u64));
        Ok(())
    }

    /// A journal that has rested is used again: what has its name now is what goes on.
    fn look_again(&self, inner: &mut Inner, client: &Client) -> Done {
        let (found, size) = match client.raw().statat(Handle::ROOT, &self.name.path, false) {
            Err(Errno::NOENT) => (None, 0),
            _ => {
                let file = self.open(client)?;
                let size = file.metadata().map_err(|e| self.failed(code::IOERR_WRITE, e))?.len();
                (Some(file), size)
            }
        };
        *inner =
            Inner { made: found.is_some(), file: found, start: size, bytes: Vec::with_capacity(USUAL), dirty: false };
        self.kept.store(self.keep && size == 0, Ordering::Release);
        self.idle.store(false, Ordering::Release);
        Ok(())
    }

    /// In the middle of a write: a failure has a code that SQLite expects of that.
    fn open(&self, client: &Client) -> Done<File> {
        let opened = making::open(client, &self.name, self.flags | code::OPEN_CREATE);
        opened.map(|(file, _)| file).map_err(|e| self.failed(code::IOERR_WRITE, io::Error::from_raw_os_error(e.errno)))
    }

    /// All of it is in the device, not necessarily durable. One that is kept and has ended, or not begun (its head is
    /// zeroed, or not there), stays here: there is nothing that it would undo.
    pub fn send(&self, client: &Client) -> Done {
        let mut inner = self.inner.lock();
        if self.is_kept() && !inner.has_begun() {
            return Ok(());
        }
        self.send_in(&mut inner, client)
    }

    fn send_in(&self, inner: &mut Inner, client: &Client) -> Done {
        if inner.file.is_none() {
            inner.file = Some(self.open(client)?);
            inner.made = true;
        }
        if !inner.bytes.is_empty() {
            inner.dirty = true;
            let file = inner.file()?;
            if let Err(e) = file.write_all_at(&inner.bytes, inner.start) {
                // A part of it must not outlive the transaction that it was to undo.
                if self.is_kept() && file.set_len(0).is_err() {
                    self.kept.store(false, Ordering::Release);
                }
                return Err(self.failed(code::IOERR_WRITE, e));
            }
            inner.start = inner.end();
            inner.bytes.clear();
        }
        self.kept.store(false, Ordering::Release);
        Ok(())
    }

    /// Sets the size; of what is held back behind it nothing is left.
    pub fn truncate(&self, client: &Client, size: u64) -> Done {
        let mut inner = self.inner.lock();
        if self.is_kept() && size <= KEPT_MOST {
            inner.bytes.resize(size as usize, 0);
            return Ok(());
        }
        if self.is_kept() || size > inner.start {
            self.send_in(&mut inner, client)?;
        }
        inner.dirty = true;
        inner.file()?.set_len(size).map_err(|e| self.failed(code::IOERR_TRUNCATE, e))?;
        inner.start = size;
        inner.bytes.clear();
        Ok(())
    }

    /// Everything completed in the device is durable.
    pub fn sync(&self) -> Done {
        let mut inner = self.inner.lock();
        inner.file()?.sync_data().map_err(|e| self.failed(code::IOERR_FSYNC, e))?;
        inner.dirty = false;
        Ok(())
    }

    /// It is empty and durable so: it may be kept again.
    pub fn keep(&self) {
        let inner = self.inner.lock();
        let empty = inner.start == 0 && inner.bytes.is_empty() && !inner.dirty;
        self.kept.store(self.keep && empty, Ordering::Release);
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
    fn file(&self) -> Done<&File> {
        self.file.as_ref().ok_or_else(|| Fault::quiet(code::IOERR))
    }

    /// Of one that is kept.
    fn has_begun(&self) -> bool {
        self.bytes.first().is_some_and(|first| *first != 0)
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
