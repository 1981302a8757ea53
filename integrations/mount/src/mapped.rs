//! Which files the kernel has mapped, for the programs of a run: the mount's side of the registry.
//!
//! As long as a file is mapped, the kernel is told the time of modification that it knew when that began. Where it
//! finds another one it drops the file's pages, to read them anew; if that meets a write(2) that is on its way here,
//! the page is read as it was before, stays so, and written back undoes the write. The programs of the run change such
//! a file through the kernel, so there is nothing to be found out.

use std::collections::HashMap;
use std::sync::Arc;
use weldfs_ciscops::mapped::Registry;
use weldfs_ciscops::{Errno, StatBody, WireTime};
use weldfs_locks::Mutex;

struct State {
    registry: Registry,
    /// Of each file that is listed: how often, and its time.
    times: HashMap<u64, (u32, WireTime)>,
}

/// The registry, for whoever maps a file.
pub struct Listing {
    state: Arc<Mutex<State>>,
}

impl Listing {
    pub fn new(registry: Registry) -> Listing {
        Listing { state: Arc::new(Mutex::new(State { registry, times: HashMap::new() })) }
    }

    /// A mapping of a file, of which the kernel knows this time of modification. ENFILE: as many are as can be listed.
    pub fn list(&self, ino: u64, mtime: WireTime) -> Result<Listed, Errno> {
        let mut state = self.state.lock();
        state.registry.add(ino)?;
        let (mappings, _) = state.times.entry(ino).or_insert((0, mtime));
        *mappings += 1;
        Ok(Listed { state: self.state.clone(), ino, first: *mappings == 1 })
    }

    /// Whether a file is mapped.
    pub fn lists(&self, ino: u64) -> bool {
        self.state.lock().times.contains_key(&ino)
    }

    /// A file's attributes as the kernel is told them.
    pub fn told(&self, stat: &StatBody) -> StatBody {
        match self.state.lock().times.get(&stat.ino) {
            Some((_, mtime)) => StatBody { mtime: *mtime, ..*stat },
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

impl Drop for Listed {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.registry.remove(self.ino);
        if let Some((mappings, _)) = state.times.get_mut(&self.ino) {
            *mappings -= 1;
            if *mappings == 0 {
                state.times.remove(&self.ino);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_time_from_its_first_mapping_to_its_last() {
        let listing = Listing::new(Registry::create(weldfs_ciscops::private_memfd("registry").unwrap()).unwrap());
        let at = |sec| StatBody { ino: 7, size: sec as u64, mtime: WireTime::new(sec, 0), ..StatBody::default() };
        assert!(!listing.lists(7) && listing.told(&at(5)) == at(5));
        let first = listing.list(7, at(3).mtime).unwrap();
        let second = listing.list(7, at(4).mtime).unwrap();
        assert!(first.first && !second.first && listing.lists(7));
        drop(first);
        let told = listing.told(&at(5));
        assert_eq!((told.mtime, told.size), (at(3).mtime, 5), "its size is told");
        assert_eq!(listing.told(&StatBody { ino: 8, ..at(5) }).mtime, at(5).mtime);
        drop(second);
        assert!(!listing.lists(7) && listing.told(&at(5)) == at(5));
    }
}
