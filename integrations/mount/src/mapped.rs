//! Which files the kernel has mapped, for the programs of a run: the mount's side of the registry.
//!
//! As long as a file is mapped, the kernel is told the time of modification that it knew when that began. Where it
//! finds another one it drops the file's pages, to read them anew; if that meets a write(2) that is on its way here,
//! the page is read as it was before, stays so, and written back undoes the write. The programs of the run change such
//! a file through the kernel, so there is nothing to be found out.
//!
//! **A first mapping begins in two steps.** The kernel drops what it had of the file when it has opened it, and finds
//! the time of modification that it is told from now on, after the file is listed; either can meet a write that goes
//! through the kernel, as above. So whoever maps the file says when that is over (`ops/handing`), and the registry's
//! number changes once more. Until then the registry says so, and another mapping of the file does not begin.
//!
//! **Writes that met one.** A program that finds another number after its write than before it, or found the file about
//! to be mapped, writes once more (`promote::once_more` of the preload library), by an open file that *holds off*
//! mappings: as long as it is open, no first mapping of the file begins.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs_ciscops::mapped::Registry;
use weldfs_ciscops::{Errno, StatBody, WireTime};
use weldfs_locks::Mutex;

/// How long a first mapping may take to begin, and how long one is held off by one open file: then others go on. The
/// program is stopped, say, and what the kernel does for it is done by then.
const AT_MOST: Duration = Duration::from_secs(1);

/// A file that is listed.
struct Mapped {
    mappings: u32,
    mtime: WireTime,
    /// Since when its first mapping has been about to begin, as long as that is open.
    begins: Option<Instant>,
    /// Whether one has begun.
    begun: bool,
}

struct State {
    registry: Registry,
    files: HashMap<u64, Mapped>,
    /// Of which files mappings are held off, and since when: by the number of the hold.
    holds: HashMap<u64, Vec<(u64, Instant)>>,
    last_hold: u64,
}

impl State {
    /// Whether the first mapping of a file is about to begin.
    fn begins(&self, ino: u64) -> bool {
        let since = self.files.get(&ino).and_then(|file| file.begins);
        since.is_some_and(|since| since.elapsed() < AT_MOST)
    }

    fn is_held_off(&self, ino: u64) -> bool {
        let holds = self.holds.get(&ino).into_iter().flatten();
        holds.into_iter().any(|(_, since)| since.elapsed() < AT_MOST)
    }
}

/// The registry, for whoever maps a file.
pub struct Listing {
    state: Arc<Mutex<State>>,
}

impl Listing {
    pub fn new(registry: Registry) -> Listing {
        Listing {
            state: Arc::new(Mutex::new(State { registry, files: HashMap::new(), holds: HashMap::new(), last_hold: 0 })),
        }
    }

    /// A mapping of a file, of which the kernel knows this time of modification. ENFILE: as many are as can be listed.
    /// EAGAIN: its first one is about to begin, or this would be the first one and is held off.
    pub fn list(&self, ino: u64, mtime: WireTime) -> Result<Listed, Errno> {
        let mut state = self.state.lock();
        if state.begins(ino) || (!state.files.contains_key(&ino) && state.is_held_off(ino)) {
            return Err(Errno::AGAIN);
        }
        state.registry.add(ino)?;
        let file = state.files.entry(ino).or_insert_with(|| Mapped {
            mappings: 0,
            mtime,
            begins: Some(Instant::now()),
            begun: false,
        });
        file.mappings += 1;
        Ok(Listed { state: self.state.clone(), ino, first: file.mappings == 1 })
    }

    /// No first mapping of a file begins from now on. EAGAIN: one is about to.
    pub fn hold_off(&self, ino: u64) -> Result<Hold, Errno> {
        let mut state = self.state.lock();
        if state.begins(ino) {
            return Err(Errno::AGAIN);
        }
        state.last_hold += 1;
        let number = state.last_hold;
        state.holds.entry(ino).or_default().push((number, Instant::now()));
        Ok(Hold { state: self.state.clone(), ino, number })
    }

    /// Whether a file is mapped.
    pub fn lists(&self, ino: u64) -> bool {
        self.state.lock().files.contains_key(&ino)
    }

    /// A file's attributes as the kernel is told them.
    pub fn told(&self, stat: &StatBody) -> StatBody {
        match self.state.lock().files.get(&stat.ino) {
            Some(file) => StatBody { mtime: file.mtime, ..*stat },
            None => *stat,
        }
    }
}

/// A mapping's line in the registry, for as long as the kernel has the file open for it.
pub struct Listed {
    state: Arc<Mutex<State>>,
    ino: u64,
    /// Whether it was mapped nowhere before.
    pub first: bool,
}

impl Listed {
    /// The kernel has dropped what it had of the file, and was told its time: the mapping may begin.
    pub fn begin(&self) {
        let mut state = self.state.lock();
        // Of another one, too, that took too long.
        if let Some(file) = state.files.get_mut(&self.ino).filter(|file| !file.begun) {
            (file.begins, file.begun) = (None, true);
            state.registry.begin(self.ino);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.registry.remove(self.ino);
        if let Some(file) = state.files.get_mut(&self.ino) {
            file.mappings -= 1;
            if self.first {
                file.begins = None;
            }
            if file.mappings == 0 {
                state.files.remove(&self.ino);
            }
        }
    }
}

/// Holds off mappings of a file.
pub struct Hold {
    state: Arc<Mutex<State>>,
    ino: u64,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if let Some(holds) = state.holds.get_mut(&self.ino) {
            holds.retain(|(number, _)| *number != self.number);
            if holds.is_empty() {
                state.holds.remove(&self.ino);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_ciscops::mapped::RegistryView;

    #[test]
    fn a_file_has_one_time_from_its_first_mapping_to_its_last() {
        let listing = Listing::new(Registry::create(weldfs_ciscops::private_memfd("registry").unwrap()).unwrap());
        let at = |sec| StatBody { ino: 7, size: sec as u64, mtime: WireTime::new(sec, 0), ..StatBody::default() };
        assert!(!listing.lists(7) && listing.told(&at(5)) == at(5));
        let first = listing.list(7, at(3).mtime).unwrap();
        first.begin();
        let second = listing.list(7, at(4).mtime).unwrap();
        assert!(first.first && !second.first && listing.lists(7));
        drop(first);
        let told = listing.told(&at(5));
        assert_eq!((told.mtime, told.size), (at(3).mtime, 5), "its size is told");
        assert_eq!(listing.told(&StatBody { ino: 8, ..at(5) }).mtime, at(5).mtime);
        drop(second);
        assert!(!listing.lists(7) && listing.told(&at(5)) == at(5));
    }

    #[test]
    fn another_mapping_waits_until_the_first_one_has_begun() {
        let fd = weldfs_ciscops::private_memfd("registry").unwrap();
        let listing = Listing::new(Registry::create(&fd).unwrap());
        let view = RegistryView::open(&fd).unwrap();
        let mtime = WireTime::new(3, 0);
        let first = listing.list(7, mtime).unwrap();
        assert_eq!(listing.list(7, mtime).err(), Some(Errno::AGAIN));
        let other = listing.list(8, mtime).unwrap();
        let before = view.stamp();
        first.begin();
        let begun = view.stamp();
        assert_ne!(before, begun, "a write that met its beginning is made once more");
        first.begin();
        let second = listing.list(7, mtime).unwrap();
        second.begin();
        assert_eq!(view.stamp(), begun, "the second one changes nothing");
        assert!(!view.look(|| Ok::<_, ()>(7)).unwrap().begins && view.look(|| Ok::<_, ()>(8)).unwrap().begins);
        drop((first, second, other));
        // One that ends before it began, and one that takes too long.
        drop(listing.list(7, mtime).unwrap());
        let stopped = listing.list(7, mtime).unwrap();
        listing.state.lock().files.get_mut(&7).unwrap().begins = Instant::now().checked_sub(AT_MOST);
        let waited = listing.list(7, mtime).unwrap();
        let before = view.stamp();
        waited.begin();
        assert_ne!(view.stamp(), before, "what met the stopped one is made once more, too");
        drop(stopped);
        assert!(listing.lists(7) && listing.list(7, mtime).is_ok());
        drop(waited);
        // The stopped one is gone before the one that waited begins.
        let stopped = listing.list(7, mtime).unwrap();
        listing.state.lock().files.get_mut(&7).unwrap().begins = Instant::now().checked_sub(AT_MOST);
        let waited = listing.list(7, mtime).unwrap();
        drop(stopped);
        waited.begin();
        assert!(!view.look(|| Ok::<_, ()>(7)).unwrap().begins);
        drop(waited);
        assert!(!listing.lists(7));
    }

    #[test]
    fn a_first_mapping_is_held_off_and_none_is_that_begins() {
        let listing = Listing::new(Registry::create(weldfs_ciscops::private_memfd("registry").unwrap()).unwrap());
        let mtime = WireTime::new(3, 0);
        let (one, two) = (listing.hold_off(7).unwrap(), listing.hold_off(7).unwrap());
        drop(one);
        assert_eq!(listing.list(7, mtime).err(), Some(Errno::AGAIN));
        let other = listing.list(8, mtime).unwrap();
        assert_eq!(listing.hold_off(8).err(), Some(Errno::AGAIN), "it is about to begin");
        other.begin();
        let held = listing.hold_off(8).unwrap();
        drop(listing.list(8, mtime).unwrap());
        drop(two);
        drop(listing.list(7, mtime).unwrap());
        // Of a program that was stopped.
        drop(other);
        assert_eq!(listing.list(8, mtime).err(), Some(Errno::AGAIN));
        listing.state.lock().holds.get_mut(&8).unwrap()[0].1 = Instant::now().checked_sub(AT_MOST).unwrap();
        drop(listing.list(8, mtime).unwrap());
        let newer = listing.hold_off(8).unwrap();
        assert_eq!(listing.list(8, mtime).err(), Some(Errno::AGAIN), "an old one does not end a newer one");
        drop((newer, held));
        assert!(listing.state.lock().holds.is_empty());
    }
}
