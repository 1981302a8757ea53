//! What this process knows of a file's mappings, and its own way to the kernel's pages of it, beside each open file of
//! the table. Entries are recycled, so what a thread has found out is kept only if the entry is still in the life that
//! it was asked in.

use crate::{mount, sys};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weldfs::kept;

/// Counts how often this process gave copies of its descriptors to a new one.
static BIRTHS: AtomicU32 = AtomicU32::new(1);

/// How often this process gave copies of its descriptors away.
pub fn births() -> u32 {
    BIRTHS.load(Ordering::Relaxed)
}

/// A new process has copies of this one's descriptors.
pub fn born() {
    BIRTHS.fetch_add(1, Ordering::Relaxed);
}

/// Of one open file.
pub struct Promotion {
    /// The life, and below it the registry's stamp as of which the file is mapped nowhere; 0 = that is not known.
    unmapped: AtomicU64,
    /// The life, and below it the descriptor of the kernel's own file, plus one; 0 = none.
    file: AtomicU64,
    /// How often descriptors had been given to a new process when it was opened; 0 = it was inherited.
    births: AtomicU32,
    /// Whether locks were asked for through it: those are the device's, and cannot go to the kernel.
    locked: AtomicBool,
}

/// Bits below a life. Stamps of a registry are kept that far: as many changes pass in years.
const LIFE_SHIFT: u32 = 48;
const BELOW_LIFE: u64 = (1 << LIFE_SHIFT) - 1;

impl Promotion {
    /// Nothing is known.
    pub const fn new() -> Promotion {
        Promotion {
            unmapped: AtomicU64::new(0),
            file: AtomicU64::new(0),
            births: AtomicU32::new(0),
            locked: AtomicBool::new(false),
        }
    }

    /// Whether the file is known to be mapped nowhere as of a registry's stamp.
    #[inline]
    pub fn is_unmapped(&self, stamp: u64) -> bool {
        self.unmapped.load(Ordering::Acquire) & BELOW_LIFE == stamp & BELOW_LIFE
    }

    /// Which life the entry is in; to be asked for before its handle.
    pub fn life(&self) -> u64 {
        self.file.load(Ordering::Acquire) >> LIFE_SHIFT
    }

    /// It is mapped nowhere as of a stamp. 0: of a registry whose writer died.
    pub fn note_unmapped(&self, life: u64, stamp: u64) {
        let old = self.unmapped.load(Ordering::Relaxed);
        if old >> LIFE_SHIFT == life && stamp != 0 {
            let new = life << LIFE_SHIFT | (stamp & BELOW_LIFE);
            // Another thread's answer is as good.
            let _ = self.unmapped.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// The kernel's own file, in a life.
    pub fn file(&self, life: u64) -> Option<i32> {
        let word = self.file.load(Ordering::Acquire);
        (word >> LIFE_SHIFT == life && word & BELOW_LIFE != 0).then(|| (word & BELOW_LIFE) as i32 - 1)
    }

    /// Puts a file in the place of another; what is there instead, if the life is over or another thread was faster.
    pub fn set_file(&self, life: u64, old: Option<i32>, new: i32) -> Result<(), Option<i32>> {
        let word = |file: Option<i32>| life << LIFE_SHIFT | file.map_or(0, |fd| fd as u64 + 1);
        let set = self.file.compare_exchange(word(old), word(Some(new)), Ordering::AcqRel, Ordering::Acquire);
        set.map(drop).map_err(|_| self.file(life))
    }

    /// As `births` counted when it was opened.
    pub fn births(&self) -> u32 {
        self.births.load(Ordering::Relaxed)
    }

    /// Whether locks were asked for.
    pub fn locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }

    /// Locks are asked for.
    pub fn lock(&self) {
        self.locked.store(true, Ordering::Relaxed);
    }

    /// A file was opened, or (`inherited`) was open when the program started.
    pub fn begin(&self, inherited: bool) {
        self.births.store(if inherited { 0 } else { births() }, Ordering::Relaxed);
    }

    /// The life is over. What was open of the kernel's is closed, unless the number is no file of the mount any more.
    pub fn end(&self) {
        let Some(file) = self.reset() else { return };
        kept::release(file);
        let mut st: libc::stat = crate::abi::zeroed();
        let asked = sys::checked(libc::SYS_fstat, [file as usize, &raw mut st as usize, 0, 0, 0, 0]);
        // ENOTCONN: its mount has ended.
        if asked.map_or_else(|code| code == libc::ENOTCONN, |_| st.st_dev == mount::st_dev(0)) {
            let _ = sys::close(file);
        }
    }

    /// What was open of the kernel's stays so, and is not used any more.
    pub fn leave(&self) {
        let _ = self.reset();
    }

    fn reset(&self) -> Option<i32> {
        let life = self.life();
        let next = (life + 1) << LIFE_SHIFT;
        self.unmapped.store(next, Ordering::Release);
        self.births.store(0, Ordering::Relaxed);
        self.locked.store(false, Ordering::Relaxed);
        let word = self.file.swap(next, Ordering::AcqRel);
        (word & BELOW_LIFE != 0).then(|| (word & BELOW_LIFE) as i32 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_out_of_an_entry_in_another_life_is_not_kept() {
        let known = Promotion::new();
        let life = known.life();
        known.note_unmapped(life, 8);
        assert!(known.is_unmapped(8) && !known.is_unmapped(10));
        assert_eq!(known.set_file(life, None, 900), Ok(()));
        assert_eq!(known.set_file(life, None, 901), Err(Some(900)));
        assert_eq!(known.set_file(life, Some(900), 901), Ok(()));
        assert_eq!(known.reset(), Some(901));
        known.note_unmapped(life, 8);
        assert!(!known.is_unmapped(8));
        assert_eq!((known.file(life), known.file(known.life())), (None, None));
        assert_eq!(known.set_file(life, None, 902), Err(None));
        assert_eq!(known.reset(), None);
        known.note_unmapped(known.life(), 0);
        assert!(!known.is_unmapped(12));
    }
}
