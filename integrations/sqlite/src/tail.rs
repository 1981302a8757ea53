//! The end of a rollback journal that is not in the device yet.
//!
//! SQLite appends to a journal in small pieces, three for a page. Nothing but the order against the database counts:
//! the journal must be in the device before the first page that it is for is written there. So appends are held back
//! here, and sent as one write before anything is written to the database. What is lost with a program that is killed
//! before that is the journal of a database that was not touched.

use std::io;
use std::sync::Arc;
use weldfs::File;
use weldfs_locks::Mutex;

/// Held back at most, bytes: one write.
const MOST: usize = weldfs_ciscops::limits::ATOMIC_WRITE_MAX as usize;

/// A journal with its end. Only appends are held back: what overwrites (a head that is zeroed to end a commit) does so
/// at once.
pub struct Tail {
    file: Arc<File>,
    held: Mutex<Held>,
}

struct Held {
    /// Where the bytes held back begin: the file's end in the device.
    start: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// Of an open journal of this size.
    pub fn new(file: Arc<File>, size: u64) -> Tail {
        Tail { file, held: Mutex::new(Held { start: size, bytes: Vec::new() }) }
    }

    /// Writes, now or later. A failure leaves what was held back held back.
    pub fn write(&self, data: &[u8], at: u64) -> io::Result<()> {
        let mut held = self.held.lock();
        if at == held.end() && data.len() <= MOST {
            if held.bytes.len() + data.len() > MOST {
                held.send(&self.file)?;
            }
            held.bytes.extend_from_slice(data);
            return Ok(());
        }
        held.send(&self.file)?;
        self.file.write_all_at(data, at)?;
        held.start = held.start.max(at + data.len() as u64);
        Ok(())
    }

    /// Everything written is in the device, not necessarily durable.
    pub fn send(&self) -> io::Result<()> {
        self.held.lock().send(&self.file)
    }

    /// Sets the size; of what is held back nothing is left.
    pub fn truncate(&self, size: u64) -> io::Result<()> {
        let mut held = self.held.lock();
        if size > held.start {
            held.send(&self.file)?;
        }
        self.file.set_len(size)?;
        *held = Held { start: size, bytes: Vec::new() };
        Ok(())
    }

    /// Puts what is held back over what was read from `at`, of which `n` bytes were there; how many are there with it.
    pub fn lay_over(&self, room: &mut [u8], at: u64, n: usize) -> usize {
        let held = self.held.lock();
        let (from, to) = (held.start.max(at), held.end().min(at + room.len() as u64));
        if from >= to {
            return n;
        }
        let data = &held.bytes[(from - held.start) as usize..(to - held.start) as usize];
        room[(from - at) as usize..(to - at) as usize].copy_from_slice(data);
        n.max((to - at) as usize)
    }

    /// Bytes, with what is held back.
    pub fn size(&self) -> u64 {
        self.held.lock().end()
    }
}

impl Held {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn send(&mut self, file: &File) -> io::Result<()> {
        if !self.bytes.is_empty() {
            file.write_all_at(&self.bytes, self.start)?;
            self.start = self.end();
            self.bytes.clear();
        }
        Ok(())
    }
}
