//! Pages of a database on their way to the device, while the journal that they have is kept in this process.
//!
//! SQLite writes a journal so that pages which reached the database can be undone. Where none has, there is nothing to
//! undo: the pages wait here, and the sync that ends them makes all of them one atomic, durable command. See
//! `Stored::sync` and docs/engines/SQLITE.md. When the journal has become too long to be kept, they wait on for the
//! next call on the database, behind it.

use crate::atomic::Gathered;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs::{Durability, Errno, File};
use weldfs_locks::Mutex;

/// What one connection has written and the device has not.
pub struct Pages {
    file: Arc<File>,
    waiting: Mutex<Gathered>,
    /// They were forgotten, because the device had no room for their journal. SQLite undoes what it wrote then, and
    /// what it writes for that is there already.
    undone: AtomicBool,
}

impl Pages {
    /// Of an open database.
    pub fn new(file: Arc<File>) -> Pages {
        Pages { file, waiting: Mutex::default(), undone: AtomicBool::new(false) }
    }

    /// Adds a write, if it fits one command with the others; whether it does.
    pub fn push(&self, at: u64, data: &[u8]) -> bool {
        if self.undone.load(Ordering::Relaxed) {
            let mut there = vec![0; data.len()];
            if self.file.read_at(&mut there[..], at).is_ok_and(|n| n == data.len() && there == data) {
                self.waiting.lock().remove(at, data.len());
                return true;
            }
        }
        self.waiting.lock().push_if_it_fits(at, data)
    }

    /// They could not be sent; see `undone`.
    pub fn undo(&self) {
        drop(self.take());
        self.undone.store(true, Ordering::Relaxed);
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Where the file ends once they are there, if it ends here now.
    pub fn end(&self, size: u64) -> u64 {
        self.waiting.lock().end(size)
    }

    /// Cuts them at a size, if the file, of which the device has no more than that, ends there with them; whether it
    /// does.
    pub fn cut(&self, size: u64, there: u64) -> bool {
        let mut waiting = self.waiting.lock();
        let ends = there == size || waiting.reaches(size);
        if ends {
            waiting.cut(size);
        }
        ends
    }

    /// Puts them over what was read from `at`, of which `n` bytes were there; how many are there with them.
    pub fn lay_over(&self, room: &mut [u8], at: u64, n: usize) -> usize {
        let waiting = self.waiting.lock();
        if waiting.is_empty() { n } else { waiting.lay_over(room, at, n) }
    }

    /// Writes them, one after the other. None waits any more, whatever comes of it: what failed is for SQLite to undo,
    /// with the journal, which is in the device by then.
    pub fn write(&self) -> io::Result<()> {
        self.take().write(&self.file)
    }

    /// Makes them one command; whether it could be. If not, they wait on, for another way. After an error none does:
    /// the command was done or not, and never by halves.
    pub fn commit(&self, durability: Durability) -> Result<bool, Errno> {
        let pages = self.take();
        match pages.commit(&self.file, durability) {
            Ok(()) => return Ok(true),
            Err(Errno::TOOBIG | Errno::NOSPC | Errno::DQUOT | Errno::NOMEM | Errno::MFILE) => {}
            Err(e) => return Err(e),
        }
        *self.waiting.lock() = pages;
        Ok(false)
    }

    /// Forgets them, of a transaction that is over; they come back.
    pub fn take(&self) -> Gathered {
        self.undone.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.waiting.lock())
    }
}
