//! What is done about bytes that are not what was written: they are never handed out, the caller gets EIO, and the log
//! says once where they are and by which checksum they were found out. Structured, so that a program can find them:
//! `inode`, `offset`, `block`, `path`, `expected`, `actual`.

use crate::error::{Corrupt, FsError, Place};
use crate::lograte::LogRate;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weldfs_locks::Mutex;

/// Findings remembered, so that a client that reads the same bad block for ever does not fill the log.
const RECENT_MAX: usize = 256;
/// Lines in ten seconds, for one that reads more bad blocks than that, again and again.
const LINES_MAX: u32 = 64;

/// The findings of one store. Thread-safe.
#[derive(Debug)]
pub struct Damage {
    found: AtomicU64,
    recent: Mutex<VecDeque<(Place, u64, u64)>>,
    log: LogRate,
    fails: LogRate,
}

impl Default for Damage {
    fn default() -> Damage {
        Damage {
            found: AtomicU64::new(0),
            recent: Mutex::default(),
            log: LogRate::of(LINES_MAX),
            fails: LogRate::default(),
        }
    }
}

impl Damage {
    /// Times that damage was met, repetitions included.
    pub fn found(&self) -> u64 {
        self.found.load(Relaxed)
    }

    /// Counts a finding and logs it, unless it was logged lately. `doing` is what met it; `path` what the caller called
    /// the file, where there was a name.
    #[cold]
    pub fn note(&self, c: &Corrupt, doing: &str, path: Option<&[u8]>) {
        self.found.fetch_add(1, Relaxed);
        let this = (c.place, c.expected, c.actual);
        {
            let mut recent = self.recent.lock();
            if recent.contains(&this) || !self.log.permits() {
                return;
            }
            if recent.len() >= RECENT_MAX {
                recent.pop_front();
            }
            recent.push_back(this);
        }
        let path = path.filter(|p| !p.is_empty()).map(|p| String::from_utf8_lossy(p).escape_debug().to_string());
        let (expected, actual) = (format!("{:#010x}", c.expected), format!("{:#010x}", c.actual));
        let path = path.as_deref();
        let what = c.what;
        match c.place {
            Place::File { ino, off } => {
                tracing::error!(doing, what, inode = ino, offset = off, path, expected, actual, "damaged data: EIO");
            }
            Place::Medium(off) => {
                tracing::error!(doing, what, medium_offset = off, path, expected, actual, "damaged metadata: EIO");
            }
            Place::Key(key) => {
                let key = key.to_string();
                tracing::error!(doing, what, key, inode = c.inode(), path, expected, actual, "damaged metadata: EIO");
            }
            Place::Log(lsn) => {
                tracing::error!(doing, what, lsn = lsn.0, path, expected, actual, "damaged log: EIO");
            }
        }
    }

    /// Whether a line may be logged of a command that fails for want of a medium that works: a client can have as many
    /// of them as it sends commands.
    pub fn may_log(&self) -> bool {
        self.fails.permits()
    }

    /// The same for any failure; those that are no damage are left to the caller.
    pub fn note_error(&self, e: &FsError, doing: &str, path: Option<&[u8]>) -> bool {
        match e {
            FsError::Corrupt(c) => {
                self.note(c, doing, path);
                true
            }
            _ => false,
        }
    }
}

impl Corrupt {
    /// The inode concerned, where the place names one.
    pub fn inode(&self) -> Option<u64> {
        match self.place {
            Place::File { ino, .. } => Some(ino),
            Place::Key(key) => key.inode(),
            Place::Medium(_) | Place::Log(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_meets_again_and_again_is_logged_a_few_times_and_counted_each_time() {
        let damage = Damage::default();
        for off in 0..1000 {
            let c = Corrupt { what: "page", place: Place::Medium(off), expected: 1, actual: 2 };
            (0..2).for_each(|_| damage.note(&c, "test", None));
        }
        assert_eq!((damage.found(), damage.recent.lock().len()), (2000, LINES_MAX as usize));
        assert_eq!((0..1000).filter(|_| damage.may_log()).count(), 8, "others than these");
    }
}
