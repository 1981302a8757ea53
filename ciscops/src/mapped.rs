//! Which files a mount's kernel has mapped: a page that the mount writes, and programs beside it look at.
//!
//! A file of the device that is mapped shared through a mount has pages in the kernel that the device has not seen. A
//! program whose calls go to the device would miss them; so before it reads or writes bytes of a file it looks here,
//! and has the kernel do that for a file that is listed. To look costs one load of memory as long as nothing changes.
//!
//! The page is a file in shared memory: a head, and a hash table of inode numbers (open addressing, linear probing:
//! Knuth, The Art of Computer Programming 3, 6.4, algorithms L and R). One process writes it, under a sequence number
//! that is odd meanwhile (a sequence lock: a reader that saw it change looks again). Readers map it read-only and
//! believe nothing in it but numbers: whatever stands there, they only take the longer of two ways to a file's bytes.

use crate::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Places for inode numbers; a power of two.
const PLACES: usize = 8192;
/// Files that are listed at most: half of the places, so that searches are short.
pub const FILES_MAX: usize = PLACES / 2;
/// Words before the first place: the magic, the sequence number, how many are listed; the rest is zero.
const HEAD: usize = 8;
const MAGIC: usize = 0;
const SEQUENCE: usize = 1;
const LISTED: usize = 2;
/// "WELDMAP" and the version of the layout.
const MAGIC_WORD: u64 = u64::from_le_bytes(*b"WELDMAP\x01");
/// Bytes of the page.
pub const BYTES: usize = (HEAD + PLACES) * 8;
/// In a place: the file's first mapping is about to begin.
const BEGINS_BIT: u64 = 1 << 63;
/// The ioctl(2) by which a program says, of the file that it has opened to map it, that the kernel has dropped what it
/// had of it; without an argument.
pub const BEGINS: u32 = (b'W' as u32) << 8 | 1;
/// How often a reader looks again before it takes the writer for dead.
const TRIES: usize = 10_000;

/// The page in this process's memory.
struct Page {
    words: NonNull<AtomicU64>,
}

// SAFETY: atomics in memory that is mapped until the page is dropped.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn map(fd: impl AsFd, writable: bool) -> io::Result<Page> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        if rustix::fs::fstat(&fd)?.st_size < BYTES as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let prot = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: new memory, at an address of the kernel's choice.
        let at = unsafe { mmap(std::ptr::null_mut(), BYTES, prot, MapFlags::SHARED, fd, 0)? };
        NonNull::new(at.cast()).map(|words| Page { words }).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn word(&self, n: usize) -> &AtomicU64 {
        assert!(n < HEAD + PLACES);
        // SAFETY: the mapping has that many words, is aligned as a page is, and outlives `self`. Other processes touch
        // it too, by atomics as well; a reader's mapping is never stored to, as only `Registry` stores.
        unsafe { self.words.add(n).as_ref() }
    }

    fn place(&self, n: usize) -> &AtomicU64 {
        self.word(HEAD + n % PLACES)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no reference to a word outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The file of a place.
fn ino_of(place: u64) -> u64 {
    place & !BEGINS_BIT
}

/// Where the search for a number begins (Fibonacci hashing, Knuth 3, 6.4).
fn home(ino: u64) -> usize {
    (ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51) as usize % PLACES
}

/// The writer's side. Not shared: the mount keeps it under a lock.
pub struct Registry {
    page: Page,
    /// How many mappings of each file there are.
    mapped: HashMap<u64, u32>,
}

impl Registry {
    /// Begins a registry in an empty file, for nothing that is mapped yet.
    pub fn create(fd: impl AsFd) -> io::Result<Registry> {
        // Written, and not only sized: a page that a full file system cannot give would be a SIGBUS later.
        let zeros = vec![0; BYTES];
        let mut at = 0;
        while at < BYTES {
            match rustix::io::pwrite(&fd, &zeros[at..], at as u64)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => at += n,
            }
        }
        let page = Page::map(fd, true)?;
        page.word(SEQUENCE).store(2, Ordering::Relaxed);
        page.word(MAGIC).store(MAGIC_WORD, Ordering::Release);
        Ok(Registry { page, mapped: HashMap::new() })
    }

    /// A file is mapped once more; the first time it is about to be, until `begin`. ENFILE: as many are as can be
    /// listed. EINVAL: no file has this number.
    pub fn add(&mut self, ino: u64) -> Result<(), Errno> {
        if ino == 0 || ino & BEGINS_BIT != 0 {
            return Err(Errno::INVAL);
        }
        if let Some(times) = self.mapped.get_mut(&ino) {
            *times += 1;
            return Ok(());
        }
        if self.mapped.len() >= FILES_MAX {
            return Err(Errno(libc::ENFILE));
        }
        self.mapped.insert(ino, 1);
        self.change(|page| {
            // As many places as there are: who can write to the file may have filled them.
            let free = (home(ino)..home(ino) + PLACES).find(|n| page.place(*n).load(Ordering::Relaxed) == 0);
            page.place(free.unwrap_or_default()).store(ino | BEGINS_BIT, Ordering::Relaxed);
        });
        Ok(())
    }

    /// One of its mappings is gone.
    pub fn remove(&mut self, ino: u64) {
        match self.mapped.get_mut(&ino) {
            Some(times) if *times > 1 => *times -= 1,
            Some(_) => {
                self.mapped.remove(&ino);
                self.change(|page| take_out(page, ino));
            }
            None => {}
        }
    }

    /// Its first mapping begins.
    pub fn begin(&self, ino: u64) {
        self.change(|page| {
            if let Some(at) = place_of(page, ino) {
                page.place(at).store(ino, Ordering::Relaxed);
            }
        });
    }

    fn change(&self, go: impl FnOnce(&Page)) {
        let sequence = self.page.word(SEQUENCE);
        let before = sequence.load(Ordering::Relaxed);
        sequence.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        go(&self.page);
        self.page.word(LISTED).store(self.mapped.len() as u64, Ordering::Relaxed);
        sequence.store(before.wrapping_add(2), Ordering::Release);
    }
}

fn place_of(page: &Page, ino: u64) -> Option<usize> {
    (home(ino)..home(ino) + PLACES).find(|n| ino_of(page.place(*n).load(Ordering::Relaxed)) == ino)
}

/// Empties a number's place, and moves up what a search would not find across it any more.
fn take_out(page: &Page, ino: u64) {
    let Some(mut hole) = place_of(page, ino) else { return };
    for n in hole + 1..hole + PLACES {
        let other = page.place(n).load(Ordering::Relaxed);
        if other == 0 {
            break;
        }
        // How far it lies from its home: it may fill a hole that is no further away than that.
        let away = (n + PLACES - home(ino_of(other))) % PLACES;
        if away >= n - hole {
            page.place(hole).store(other, Ordering::Relaxed);
            hole = n;
        }
    }
    page.place(hole).store(0, Ordering::Relaxed);
}

/// A reader's side. Thread-safe.
pub struct RegistryView {
    page: Page,
}

/// What a reader found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// As of when: it holds as long as [`RegistryView::stamp`] is this.
    pub stamp: u64,
    /// Whether the file is mapped.
    pub mapped: bool,
    /// Whether it only is about to be: the kernel drops what it had of it.
    pub begins: bool,
}

impl RegistryView {
    /// Of the file that a mount keeps. InvalidData: it is no such file, or of another version.
    pub fn open(fd: impl AsFd) -> io::Result<RegistryView> {
        let page = Page::map(fd, false)?;
        if page.word(MAGIC).load(Ordering::Acquire) != MAGIC_WORD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(RegistryView { page })
    }

    /// Another number after each change; never 0.
    #[inline]
    pub fn stamp(&self) -> u64 {
        self.page.word(SEQUENCE).load(Ordering::Acquire)
    }

    /// Whether any file is mapped.
    pub fn any(&self) -> bool {
        self.page.word(LISTED).load(Ordering::Acquire) != 0
    }

    /// Whether a file is mapped. `ino` is asked for only where any is.
    pub fn look<E>(&self, mut ino: impl FnMut() -> Result<u64, E>) -> Result<Found, E> {
        for tries in 0.. {
            let stamp = self.stamp();
            if stamp % 2 == 1 && tries < TRIES {
                std::thread::yield_now();
                continue;
            }
            let any = self.page.word(LISTED).load(Ordering::Relaxed) != 0;
            let place = if any { self.listed(ino()?) } else { None };
            let (mapped, begins) = (place.is_some(), place.is_some_and(|place| place & BEGINS_BIT != 0));
            fence(Ordering::Acquire);
            // A writer that died in the middle leaves the number odd: what it listed counts, and no answer is kept.
            if self.page.word(SEQUENCE).load(Ordering::Relaxed) == stamp {
                return Ok(Found { stamp: if stamp % 2 == 1 { 0 } else { stamp }, mapped, begins });
            }
        }
        unreachable!("the loop has no end")
    }

    /// The place of a file that is listed.
    fn listed(&self, ino: u64) -> Option<u64> {
        let from = home(ino);
        let mut found = (from..from + PLACES).map(|n| self.page.place(n).load(Ordering::Relaxed));
        if ino == 0 { None } else { found.by_ref().take_while(|place| *place != 0).find(|place| ino_of(*place) == ino) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn both() -> (Registry, RegistryView) {
        let fd = crate::private_memfd("registry").unwrap();
        let registry = Registry::create(&fd).unwrap();
        (registry, RegistryView::open(&fd).unwrap())
    }

    fn lists(view: &RegistryView, ino: u64) -> bool {
        view.look(|| Ok::<_, ()>(ino)).unwrap().mapped
    }

    #[test]
    fn a_file_is_listed_from_its_first_mapping_to_its_last() {
        let (mut registry, view) = both();
        assert_eq!(
            view.look(|| Err::<u64, _>("asked")),
            Ok(Found { stamp: 2, mapped: false, begins: false }),
            "nothing is mapped"
        );
        registry.add(7).unwrap();
        registry.add(7).unwrap();
        assert!(view.look(|| Ok::<_, ()>(7)).unwrap().begins);
        registry.begin(7);
        let found = view.look(|| Ok::<_, ()>(7)).unwrap();
        assert!(!found.begins && found.mapped && found.stamp == view.stamp() && !lists(&view, 8) && !lists(&view, 0));
        registry.remove(7);
        assert!(lists(&view, 7));
        registry.remove(7);
        registry.remove(7);
        assert!(!lists(&view, 7) && view.stamp() != found.stamp);
        assert_eq!(registry.add(0), Err(Errno::INVAL));
    }

    #[test]
    fn so_many_files_are_listed_and_no_more() {
        let (mut registry, view) = both();
        for ino in 1..=FILES_MAX as u64 {
            registry.add(ino).unwrap();
        }
        assert_eq!(registry.add(1 << 40), Err(Errno(libc::ENFILE)));
        registry.add(1).unwrap();
        assert!(lists(&view, 1) && lists(&view, FILES_MAX as u64) && !lists(&view, 1 << 40));
        registry.remove(9);
        registry.add(1 << 40).unwrap();
        assert!(lists(&view, 1 << 40) && !lists(&view, 9));
    }

    #[test]
    fn a_file_that_is_no_board_is_refused() {
        let fd = crate::private_memfd("other").unwrap();
        assert!(RegistryView::open(&fd).is_err(), "empty");
        rustix::fs::ftruncate(&fd, BYTES as u64).unwrap();
        assert!(RegistryView::open(&fd).is_err(), "zeros");
    }

    #[test]
    fn a_reader_beside_a_writer_never_misses_what_stays_listed() {
        let (mut registry, view) = both();
        // Numbers whose searches cross: the one that stays lies behind those that come and go.
        let home_of = |place| (1u64..).filter(move |ino| home(*ino) == place);
        let near: Vec<u64> = home_of(PLACES - 2).take(3).chain(home_of(PLACES - 1).take(3)).collect();
        for ino in &near {
            registry.add(*ino).unwrap();
        }
        let stays = near[5];
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (0..20_000).filter(|_| !lists(&view, stays)).count());
            for _ in 0..2_000 {
                for ino in &near[..5] {
                    registry.remove(*ino);
                }
                for ino in &near[..5] {
                    registry.add(*ino).unwrap();
                }
            }
            assert_eq!(reader.join().unwrap(), 0);
        });
    }

    proptest! {
        #[test]
        fn what_is_listed_is_what_was_added_and_not_removed(
            steps in prop::collection::vec((any::<bool>(), 0usize..24), 1..200)
        ) {
            let (mut registry, view) = both();
            // A few homes, at the end of the table too.
            let homes = [3, 4, 5, PLACES - 1];
            let inos: Vec<u64> = homes.iter().flat_map(|h| (1u64..).filter(|i| home(*i) == *h).take(6)).collect();
            let mut model = HashMap::<u64, u32>::new();
            for (add, n) in steps {
                let times = model.entry(inos[n]).or_default();
                if add {
                    registry.add(inos[n]).unwrap();
                    *times += 1;
                } else {
                    registry.remove(inos[n]);
                    *times = times.saturating_sub(1);
                }
                for ino in &inos {
                    prop_assert_eq!(lists(&view, *ino), model.get(ino).is_some_and(|times| *times > 0));
                }
            }
        }
    }
}
