//! Ranges of files that are not to be cut off or cleared: the real files behind virtual files that are open.
//!
//! In memory only: a pin is there as long as an open file description is. Most devices have none, and then the look
//! costs one load.

use crate::overlay::InoMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use weldfs_ciscops::InodeNo;
use weldfs_locks::Mutex;

/// A pinned range: its pin's number, its first byte, and the byte behind its last.
type Range = (u64, u64, u64);

/// The pins of one store. Thread-safe.
#[derive(Default)]
pub(crate) struct Pins {
    count: AtomicUsize,
    by_inode: Mutex<(u64, InoMap<Vec<Range>>)>,
}

impl Pins {
    /// Pins bytes `from..to` of a file; the number takes it away again.
    pub(crate) fn add(&self, ino: InodeNo, from: u64, to: u64) -> u64 {
        let (next, map) = &mut *self.by_inode.lock();
        *next += 1;
        map.entry(ino.0).or_default().push((*next, from, to));
        self.count.fetch_add(1, Relaxed);
        *next
    }

    /// Takes a pin away.
    pub(crate) fn remove(&self, ino: InodeNo, number: u64) {
        let (_, map) = &mut *self.by_inode.lock();
        let Some(list) = map.get_mut(&ino.0) else { return };
        let before = list.len();
        list.retain(|(n, ..)| *n != number);
        self.count.fetch_sub(before - list.len(), Relaxed);
        if list.is_empty() {
            map.remove(&ino.0);
        }
    }

    /// Whether a byte of `from..to` is pinned. Under the file's ticket the answer stays: pins are added under one.
    pub(crate) fn covers(&self, ino: InodeNo, from: u64, to: u64) -> bool {
        if self.count.load(Relaxed) == 0 || from >= to {
            return false;
        }
        let (_, map) = &*self.by_inode.lock();
        map.get(&ino.0).is_some_and(|list| list.iter().any(|(_, a, b)| *a < to && from < *b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_covers_its_bytes_until_it_goes() {
        let (pins, file) = (Pins::default(), InodeNo(7));
        let (first, second) = (pins.add(file, 100, 200), pins.add(file, 150, 300));
        assert!(pins.covers(file, 199, 200) && pins.covers(file, 0, 101) && !pins.covers(file, 0, 100));
        assert!(!pins.covers(file, 250, 250), "no bytes");
        assert!(!pins.covers(InodeNo(8), 0, u64::MAX));
        pins.remove(file, first);
        assert!(!pins.covers(file, 100, 150) && pins.covers(file, 150, 151));
        pins.remove(file, second);
        pins.remove(file, second);
        assert!(!pins.covers(file, 0, u64::MAX));
        assert_eq!(pins.count.load(Relaxed), 0);
    }
}
