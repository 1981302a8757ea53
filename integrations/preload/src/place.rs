//! The offset of an open file whose content came with its open: kept here, where reads move it without a command, until
//! a call needs it where the device has it. Once it is there it stays there.

use crate::abi::Res;
use crate::sys;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the offset; above them, which open file of this entry of the table it is: entries are used again.
const BITS: u32 = 40;
const OFFSET: u64 = (1 << BITS) - 1;
/// The device has it.
const AWAY: u64 = OFFSET;
/// It is on its way there.
const MOVING: u64 = OFFSET - 1;
/// No offset that is kept here is larger.
pub const PLACE_MAX: u64 = OFFSET - 2;

/// An offset, here or at the device. Thread-safe, and safe in handlers of signals.
pub struct Place(AtomicU64);

/// A place as it was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Found(u64);

impl Found {
    /// The offset, if it is here.
    pub fn offset(self) -> Option<u64> {
        Some(self.0 & OFFSET).filter(|at| *at <= PLACE_MAX)
    }

    /// Whether both are of the same open file.
    pub fn is_same_file(self, other: Found) -> bool {
        self.with(0) == other.with(0)
    }

    fn with(self, offset: u64) -> Found {
        Found(self.0 & !OFFSET | offset)
    }
}

impl Place {
    /// At the device.
    pub const fn new() -> Place {
        Place(AtomicU64::new(AWAY))
    }

    /// Of another open file: here, at the beginning, where the device has it, too; or at the device.
    pub fn begin(&self, here: bool) {
        let offset = if here { 0 } else { AWAY };
        let next = |now: u64| Some((now | OFFSET).wrapping_add(1) | offset);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }

    /// Whether the device may not have it.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OFFSET != AWAY
    }

    /// Where it is, and of which open file.
    #[inline]
    pub fn find(&self) -> Found {
        Found(self.0.load(Ordering::Acquire))
    }

    /// Whether it is still of the same open file.
    #[inline]
    pub fn is_of(&self, found: Found) -> bool {
        self.find().is_same_file(found)
    }

    /// Moves it, if nothing else has happened to it.
    #[inline]
    pub fn advance(&self, from: Found, to: u64) -> bool {
        self.change(from, from.with(to))
    }

    fn change(&self, from: Found, to: Found) -> bool {
        self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Has the device know it, by `seek`; when this returns, it does, whichever thread told it. Where the open file is
    /// another one by now (`is_meant` says false), nothing is done.
    pub fn hand_over(&self, is_meant: impl Fn() -> bool, seek: impl Fn(u64) -> Res<()>) -> Res<()> {
        loop {
            // Found before it is asked: what begins after that is not changed here.
            let now = self.find();
            if !is_meant() {
                return Ok(());
            }
            match now.0 & OFFSET {
                AWAY => return Ok(()),
                // Another thread is telling it: no handler of a signal runs on that one.
                MOVING => drop(sys::call(libc::SYS_sched_yield, [0; 6])),
                0 => {
                    if self.advance(now, AWAY) {
                        return Ok(());
                    }
                }
                at => {
                    let _alone = Unsignalled::begin();
                    if self.advance(now, MOVING) {
                        let told = seek(at);
                        let then = if told.is_ok() { AWAY } else { at };
                        // Closed meanwhile: then it is no place of this file any more.
                        self.change(now.with(MOVING), now.with(then));
                        return told;
                    }
                }
            }
        }
    }
}

/// No signal is handled on this thread as long as it lives.
struct Unsignalled(u64);

/// Bytes of the kernel's set of signals.
const SET: usize = size_of::<u64>();

impl Unsignalled {
    fn begin() -> Unsignalled {
        let (all, mut before) = (u64::MAX, 0u64);
        let args = [libc::SIG_SETMASK as usize, &raw const all as usize, &raw mut before as usize, SET, 0, 0];
        sys::call(libc::SYS_rt_sigprocmask, args);
        Unsignalled(before)
    }
}

impl Drop for Unsignalled {
    fn drop(&mut self) {
        let args = [libc::SIG_SETMASK as usize, &raw const self.0 as usize, 0, SET, 0, 0];
        sys::call(libc::SYS_rt_sigprocmask, args);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEANT: fn() -> bool = || true;

    fn never(_: u64) -> Res<()> {
        Err(libc::EIO)
    }

    #[test]
    fn the_device_is_told_once_and_only_what_it_does_not_know() {
        let place = Place::new();
        assert_eq!(place.hand_over(MEANT, never), Ok(()), "it has it");
        place.begin(true);
        assert_eq!(place.find().offset(), Some(0));
        assert_eq!(place.hand_over(MEANT, never), Ok(()), "both are at the beginning");
        assert_eq!(place.find().offset(), None);
        place.begin(true);
        let first = place.find();
        assert!(place.advance(first, 7) && !place.advance(first, 9));
        assert_eq!(place.hand_over(MEANT, never), Err(libc::EIO));
        assert_eq!(place.find().offset(), Some(7), "what the device was not told is kept");
        let told = AtomicU64::new(0);
        let tell = |at| {
            told.store(at, Ordering::Relaxed);
            Ok(())
        };
        assert_eq!(place.hand_over(MEANT, tell), Ok(()));
        assert_eq!((told.load(Ordering::Relaxed), place.is_here()), (7, false));
    }

    #[test]
    fn what_is_meant_for_one_file_does_nothing_to_the_next() {
        let place = Place::new();
        place.begin(true);
        let old = place.find();
        assert!(place.advance(old, 5));
        let late = place.find();
        // While the device is told, the file is closed, and its entry is another file's.
        let tell = |_| {
            place.begin(true);
            assert!(place.advance(place.find(), 11));
            Ok(())
        };
        assert_eq!(place.hand_over(MEANT, tell), Ok(()));
        assert_eq!(place.find().offset(), Some(11));
        assert!(!place.advance(late, 6));
        assert_eq!(place.hand_over(|| false, never), Ok(()));
        assert_eq!(place.find().offset(), Some(11));
    }

    #[test]
    fn threads_that_read_and_one_that_hands_over_lose_no_byte() {
        const READS: u64 = 20_000;
        let (place, told) = (Place::new(), AtomicU64::new(0));
        place.begin(true);
        let by_reads: u64 = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut moved = 0;
                        loop {
                            let at = place.find();
                            let Some(offset) = at.offset().filter(|offset| *offset < READS) else { return moved };
                            moved += u64::from(place.advance(at, offset + 1));
                        }
                    })
                })
                .collect();
            while place.find().offset().is_some_and(|at| at < READS / 2) {
                std::hint::spin_loop();
            }
            let tell = |at| {
                told.store(at, Ordering::Relaxed);
                Ok(())
            };
            place.hand_over(MEANT, tell).unwrap();
            readers.into_iter().map(|reader| reader.join().unwrap()).sum()
        });
        assert_eq!(told.load(Ordering::Relaxed), by_reads);
    }
}
