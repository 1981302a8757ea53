//! The offset of an open file whose content came with its open: kept here, where reads move it without a command, until
//! a call needs it where the device has it. Once it is there it stays there.

use crate::abi::Res;
use crate::sys;
use std::sync::atomic::{AtomicU64, Ordering};

/// The device has it.
const AWAY: u64 = u64::MAX;
/// It is on its way there.
const MOVING: u64 = u64::MAX - 1;
/// No offset that is kept here is larger.
pub const PLACE_MAX: u64 = i64::MAX as u64;

/// An offset, here or at the device. Thread-safe, and safe in handlers of signals.
pub struct Place(AtomicU64);

impl Place {
    /// At the device.
    pub const fn new() -> Place {
        Place(AtomicU64::new(AWAY))
    }

    /// Here, at the beginning, where the device has it, too: for a file that no other thread knows yet.
    pub fn begin(&self, here: bool) {
        self.0.store(if here { 0 } else { AWAY }, Ordering::Release);
    }

    /// Whether the device may not have it.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed) != AWAY
    }

    /// Where it is, if it is here.
    #[inline]
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|at| *at <= PLACE_MAX)
    }

    /// Moves it, if nobody else has meanwhile.
    #[inline]
    pub fn advance(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Has the device know it, by `seek`; when this returns, it does, whichever thread told it.
    pub fn hand_over(&self, seek: impl FnOnce(u64) -> Res<()>) -> Res<()> {
        loop {
            match self.0.load(Ordering::Acquire) {
                AWAY => return Ok(()),
                // Another thread is telling it: no handler of a signal runs on that one.
                MOVING => drop(sys::call(libc::SYS_sched_yield, [0; 6])),
                0 if self.advance(0, AWAY) => return Ok(()),
                0 => {}
                at => {
                    let _alone = Unsignalled::begin();
                    if self.advance(at, MOVING) {
                        let told = seek(at);
                        self.0.store(AWAY, Ordering::Release);
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

    #[test]
    fn the_device_is_told_once_and_only_what_it_does_not_know() {
        let place = Place::new();
        assert_eq!(place.hand_over(|_| Err(libc::EIO)), Ok(()), "it has it");
        place.begin(true);
        assert_eq!(place.get(), Some(0));
        assert_eq!(place.hand_over(|_| Err(libc::EIO)), Ok(()), "both are at the beginning");
        assert_eq!(place.get(), None);
        place.begin(true);
        assert!(place.advance(0, 7) && !place.advance(0, 9));
        let mut told = None;
        let tell = |at| {
            told = Some(at);
            Ok(())
        };
        assert_eq!(place.hand_over(tell), Ok(()));
        assert_eq!((told, place.is_here()), (Some(7), false));
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
                        while let Some(at) = place.get().filter(|at| *at < READS) {
                            moved += u64::from(place.advance(at, at + 1));
                        }
                        moved
                    })
                })
                .collect();
            while place.get().is_some_and(|at| at < READS / 2) {
                std::hint::spin_loop();
            }
            let tell = |at| {
                told.store(at, Ordering::Relaxed);
                Ok(())
            };
            place.hand_over(tell).unwrap();
            readers.into_iter().map(|reader| reader.join().unwrap()).sum()
        });
        assert_eq!(told.load(Ordering::Relaxed), by_reads);
    }
}
