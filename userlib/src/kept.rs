//! Which of the process's descriptors are this library's: a program that closes every number there is, as daemons do,
//! must not take them, nor may the library use a number that is a file of the program's by now.
//!
//! A map of bits, one for each number. Only whoever stands between a program and the kernel looks (the preload
//! library); it costs others a bit set and cleared for each descriptor that lives long. The map is of this process: a
//! forked child has a copy, as it has of the descriptors.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that are looked after: as many as a preloaded program can have files of a device.
const NUMBERS: usize = 1 << 16;
static KEPT: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let n = usize::try_from(fd).ok()?;
    Some((KEPT.get(n / 64)?, 1 << (n % 64)))
}

/// Notes that a descriptor is the library's.
pub fn keep(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Notes that a descriptor is about to be closed, or given to the program.
pub fn release(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Whether a descriptor is the library's.
#[inline]
pub fn is_kept(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// The first of the library's own numbers from `first` to `last`.
pub fn first_kept(first: u32, last: u32) -> Option<u32> {
    let mut at = first as usize;
    let end = (last as usize).min(NUMBERS - 1);
    while at <= end {
        let word = KEPT[at / 64].load(Ordering::Relaxed) >> (at % 64);
        if word != 0 {
            at += word.trailing_zeros() as usize;
            return (at <= end).then_some(at as u32);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

/// A descriptor that is the library's as long as this is there. It must be dropped before the descriptor is closed: a
/// field or variable before it.
#[derive(Debug)]
pub(crate) struct Kept(RawFd);

impl Kept {
    pub(crate) fn new(fd: &impl AsRawFd) -> Kept {
        keep(fd.as_raw_fd());
        Kept(fd.as_raw_fd())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        release(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_until_they_are_released() {
        for fd in [60_063, 60_064, 60_191] {
            keep(fd);
        }
        assert!(is_kept(60_063) && !is_kept(60_065) && !is_kept(-1) && !is_kept(i32::MAX));
        assert_eq!(first_kept(60_000, u32::MAX), Some(60_063));
        assert_eq!(first_kept(60_064, 60_070), Some(60_064));
        assert_eq!((first_kept(60_065, 60_190), first_kept(60_065, 60_191)), (None, Some(60_191)));
        assert_eq!((first_kept(70_000, u32::MAX), first_kept(9, 8)), (None, None));
        for fd in [60_063, 60_064, 60_191] {
            release(fd);
        }
        assert_eq!(first_kept(60_000, 60_999), None);
    }
}
