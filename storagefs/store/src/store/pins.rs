//! Ranges of files that are not to be cut off or cleared: the real files behind virtual files that are open.
//!
//! In memory only: a pin is there as long as an open file description is. Most devices have none, and then the look
//! costs one load.

use crate::overlay::InoMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use weldfs_ciscops::InodeNo;
use weldfs_locks::Mutex;

/// A pinned range.
struct Range {
    /// The pin's number.
    number: u64,
    /// First byte, and the byte behind the last one.
    from: u64,
    to: u64,
    /// Number of the open file description that it belongs to.
    owner: u64,
}

/// Whether an owner was let go of because no process has it open any more.
type Look = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// The pins of one store. Thread-safe.
#[derive(Default)]
pub struct Pins {
    count: AtomicUsize,
    by_inode: Mutex<(u64, InoMap<Vec<Range>>)>,
    look: OnceLock<Look>,
}

impl Pins {
    /// Says how to look whether an owner is still there, once. It is called with no lock of the pins held.
    pub fn look_with(&self, look: Look) {
        let _ = self.look.set(look);
    }

    /// Pins bytes `from..to` of a file for a description; the number takes it away again.
    pub fn add(&self, ino: InodeNo, from: u64, to: u64, owner: u64) -> u64 {
        let (next, map) = &mut *self.by_inode.lock();
        *next += 1;
        map.entry(ino.0).or_default().push(Range { number: *next, from, to, owner });
        self.count.fetch_add(1, Relaxed);
        *next
    }

    /// Takes a pin away.
    pub fn remove(&self, ino: InodeNo, number: u64) {
        let (_, map) = &mut *self.by_inode.lock();
        let Some(list) = map.get_mut(&ino.0) else { return };
        let before = list.len();
        list.retain(|range| range.number != number);
        self.count.fetch_sub(before - list.len(), Relaxed);
        if list.is_empty() {
            map.remove(&ino.0);
        }
    }

    /// Whether a byte of `from..to` is pinned by what is still there. Under the file's ticket the answer stays: pins
    /// are added under one. The regular look for descriptions that no process holds any more comes a while after a
    /// program has ended, so each that is in the way is looked at here.
    pub fn covers(&self, ino: InodeNo, from: u64, to: u64) -> bool {
        if self.count.load(Relaxed) == 0 || from >= to {
            return false;
        }
        while let Some(owner) = self.in_the_way(ino, from, to) {
            // A description is let go of once, by this thread or by another since it was found: what stays in the way
            // after that is in use by a command.
            let gone = self.look.get().is_some_and(|gone| gone(owner));
            if !gone && self.in_the_way(ino, from, to) == Some(owner) {
                return true;
            }
        }
        false
    }

    fn in_the_way(&self, ino: InodeNo, from: u64, to: u64) -> Option<u64> {
        let (_, map) = &*self.by_inode.lock();
        map.get(&ino.0)?.iter().find(|range| range.from < to && from < range.to).map(|range| range.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_covers_its_bytes_until_it_goes() {
        let (pins, file) = (Pins::default(), InodeNo(7));
        let (first, second) = (pins.add(file, 100, 200, 1), pins.add(file, 150, 300, 2));
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

    #[test]
    fn what_is_in_the_way_is_looked_at_and_may_be_gone() {
        let (pins, file) = (std::sync::Arc::new(Pins::default()), InodeNo(7));
        let (gone, there) = (pins.add(file, 0, 10, 1), pins.add(file, 5, 20, 2));
        let same = pins.clone();
        pins.look_with(Box::new(move |owner| {
            same.remove(file, gone);
            owner == 1
        }));
        assert!(!pins.covers(file, 0, 5), "its owner is gone");
        assert!(pins.covers(file, 5, 10), "its owner is there");
        pins.remove(file, there);
        assert!(!pins.covers(file, 5, 10));
    }
}
