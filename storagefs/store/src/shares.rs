//! Who had what brought into a cache: bytes by owner (a tenant's number), so that each is charged for its part, and
//! what goes first is of those who have more than an equal one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// An owner's number.
pub type Owner = u32;

/// Owner of what was brought in for no one in particular.
pub const NOBODY: Owner = Owner::MAX;

/// Numbers told apart; what others bring in belongs to none.
const OWNERS: usize = 1024;

/// The bytes of one cache by owner. Thread-safe.
#[derive(Debug)]
pub struct Shares {
    bytes: Box<[AtomicU64]>,
    /// Owners of anything.
    holders: AtomicUsize,
}

impl Default for Shares {
    fn default() -> Self {
        Shares { bytes: (0..OWNERS).map(|_| AtomicU64::new(0)).collect(), holders: AtomicUsize::new(0) }
    }
}

impl Shares {
    /// `owner` has so many bytes more.
    pub fn add(&self, owner: Owner, bytes: usize) {
        if let Some(of) = self.bytes.get(owner as usize)
            && of.fetch_add(bytes as u64, Ordering::Relaxed) == 0
        {
            self.holders.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `owner` has so many bytes less.
    pub fn sub(&self, owner: Owner, bytes: usize) {
        if let Some(of) = self.bytes.get(owner as usize)
            && of.fetch_sub(bytes as u64, Ordering::Relaxed) == bytes as u64
        {
            self.holders.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Bytes of `owner`.
    pub fn of(&self, owner: Owner) -> u64 {
        self.bytes.get(owner as usize).map_or(0, |of| of.load(Ordering::Relaxed))
    }

    /// Whether `owner` has more than an equal part of a cache of `limit` bytes that others use, too.
    pub fn is_over(&self, owner: Owner, limit: usize) -> bool {
        let holders = self.holders.load(Ordering::Relaxed);
        holders > 1 && self.of(owner) > (limit / holders) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_more_than_an_equal_part_is_over_while_others_use_the_cache() {
        let s = Shares::default();
        s.add(3, 900);
        assert!(!s.is_over(3, 1000), "nobody else is there");
        s.add(4, 50);
        s.add(NOBODY, 50);
        assert!(s.is_over(3, 1000) && !s.is_over(4, 1000) && !s.is_over(NOBODY, 1000));
        s.sub(3, 500);
        assert!(!s.is_over(3, 1000));
        s.sub(4, 50);
        s.sub(3, 400);
        assert_eq!((s.of(3), s.of(4), s.of(NOBODY), s.holders.into_inner()), (0, 0, 0, 0));
    }
}
