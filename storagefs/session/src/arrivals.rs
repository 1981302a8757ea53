//! When the entries of a ring were first seen: a command may wait there for its turn, and that is part of its latency.

use std::collections::VecDeque;

/// The entries of one ring that were seen and not taken, in order, with the moments at which they were seen. Entries
/// seen in one look share a place, so what is held is at most a place per entry of the ring. Changed under the lock
/// of the pair's ends.
#[derive(Default, Debug)]
pub(crate) struct Arrivals {
    seen: VecDeque<(u32, u64)>,
    entries: u32,
}

impl Arrivals {
    /// So many entries wait in the ring now. `clock` is asked only when there are more than before.
    #[inline]
    pub fn look(&mut self, waiting: u32, clock: impl FnOnce() -> u64) {
        if waiting > self.entries {
            self.seen.push_back((waiting - self.entries, clock()));
            self.entries = waiting;
        }
    }

    /// The oldest entry was taken: when it had been seen; `None` when no look came before.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        let (left, at) = self.seen.front_mut()?;
        let at = *at;
        *left -= 1;
        if *left == 0 {
            self.seen.pop_front();
        }
        self.entries -= 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_the_moment_of_the_look_that_found_it() {
        let mut a = Arrivals::default();
        assert_eq!(a.take(), None);
        a.look(0, || unreachable!("nothing is new"));
        a.look(2, || 10);
        a.look(2, || unreachable!("nothing is new"));
        a.look(3, || 20);
        assert_eq!(a.take(), Some(10));
        a.look(3, || 30);
        assert_eq!([a.take(), a.take(), a.take(), a.take()], [Some(10), Some(20), Some(30), None]);
    }

    #[test]
    fn what_is_held_is_bounded_by_the_ring() {
        let mut a = Arrivals::default();
        for round in 0..10_000u64 {
            a.look(((round % 64) as u32).max(a.entries), || round);
            if round % 3 == 0 {
                a.take();
            }
            assert!(a.seen.len() <= 64 && a.seen.iter().map(|(n, _)| n).sum::<u32>() == a.entries);
        }
    }
}
