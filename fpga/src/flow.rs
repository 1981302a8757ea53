//! Credit-based flow control of one kernel's input, after INSIDER (USENIX ATC 2019), sections 3.5 and 3.6: no byte
//! leaves the drive for a kernel that has no room for it, so a slow kernel never blocks the data of the others.

/// The credits of one input FIFO: `count` of them, each for `bytes` bytes.
///
/// The FIFO has room for `count * bytes` bytes and one unit more. A credit is taken when a request is issued; its
/// bytes are in flight until they arrive in the FIFO; and it comes back once the FIFO has more than `bytes` free that
/// no other credit or request speaks for. So what arrives always has room, whatever order things happen in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Credits {
    count: u64,
    bytes: u64,
    /// The FIFO's unit: a flit, as bytes.
    unit: u64,
    /// Credits that can be taken now.
    free: u64,
    /// Requests that have been issued and have not arrived.
    flying: u64,
    /// Bytes in the FIFO.
    held: u64,
}

impl Credits {
    /// `count` credits of `bytes` bytes each for a FIFO of `unit` bytes a word; 0 counts as 1.
    pub fn new(count: u64, bytes: u64, unit: u64) -> Credits {
        let (count, bytes) = (count.max(1), bytes.max(1));
        Credits { count, bytes, unit: unit.max(1), free: count, flying: 0, held: 0 }
    }

    /// Bytes that the FIFO has room for.
    pub fn capacity(&self) -> u64 {
        self.count * self.bytes + self.unit
    }

    /// Bytes of all credits: what may be in flight and in the FIFO.
    pub fn all_bytes(&self) -> u64 {
        self.count * self.bytes
    }

    /// Bytes of a request.
    pub fn request_bytes(&self) -> u64 {
        self.bytes
    }

    /// Credits that can be taken now.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Bytes in the FIFO.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Takes a credit for a request; false where there is none.
    pub fn take(&mut self) -> bool {
        if self.free == 0 {
            return false;
        }
        (self.free, self.flying) = (self.free - 1, self.flying + 1);
        true
    }

    /// The data of a request arrives, at most [`Credits::new`]'s `bytes`. Returns the credits that come back, which are
    /// more than 0 only for a short request.
    pub fn arrive(&mut self, bytes: u64) -> u64 {
        debug_assert!(self.flying > 0 && bytes <= self.bytes, "data that no credit was taken for");
        self.flying = self.flying.saturating_sub(1);
        self.held += bytes.min(self.bytes);
        debug_assert!(self.held <= self.capacity(), "the FIFO overflows");
        self.give_back()
    }

    /// The kernel has taken that many bytes out of the FIFO. Returns the credits that come back.
    pub fn consume(&mut self, bytes: u64) -> u64 {
        debug_assert!(bytes <= self.held, "more than the FIFO held");
        self.held = self.held.saturating_sub(bytes);
        self.give_back()
    }

    fn give_back(&mut self) -> u64 {
        let spoken_for = self.held + (self.free + self.flying) * self.bytes;
        let mut unclaimed = self.capacity().saturating_sub(spoken_for);
        let mut back = 0;
        while unclaimed > self.bytes && self.free + self.flying < self.count {
            self.free += 1;
            unclaimed -= self.bytes;
            back += 1;
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    /// Every state that any order of issue, arrival (of every length) and consumption (of every length) leads to, for
    /// all small numbers: the FIFO never overflows, no credit is made or lost, and a drained FIFO has all of them.
    #[test]
    fn every_order_of_events_keeps_the_rules_for_small_numbers() {
        let mut seen_in_all = 0;
        for (count, bytes, unit) in (1..=4).flat_map(|r| (1..=5).flat_map(move |c| (1..=3).map(move |u| (r, c, u)))) {
            let first = Credits::new(count, bytes, unit);
            let mut seen = HashSet::from([first.clone()]);
            let mut queue = VecDeque::from([first]);
            while let Some(state) = queue.pop_front() {
                assert!(state.held <= state.capacity(), "{state:?} overflows");
                assert!(state.free + state.flying <= count, "{state:?} has credits from nowhere");
                assert!(
                    state.held + (state.free + state.flying) * bytes <= state.capacity(),
                    "{state:?} promises too much"
                );
                let quiet = state.flying == 0 && state.held == 0;
                assert!(!quiet || state.free == count, "{state:?} has lost a credit");
                assert!(state.free + state.flying > 0 || state.held > 0, "{state:?} can do nothing");
                let mut next = Vec::new();
                let mut issued = state.clone();
                assert_eq!(issued.take(), state.free > 0);
                next.push(issued);
                for n in 0..=bytes {
                    if state.flying > 0 {
                        let mut arrived = state.clone();
                        arrived.arrive(n);
                        next.push(arrived);
                    }
                }
                for n in 0..=state.held {
                    let mut consumed = state.clone();
                    consumed.consume(n);
                    next.push(consumed);
                }
                queue.extend(next.into_iter().filter(|s| seen.insert(s.clone())));
            }
            seen_in_all += seen.len();
        }
        assert!(seen_in_all > 1000, "only {seen_in_all} states: the search does not search");
    }

    #[test]
    fn a_credit_comes_back_only_when_more_than_a_burst_is_free() {
        let mut credits = Credits::new(2, 128, 64);
        assert!(credits.take() && credits.take() && !credits.take());
        assert_eq!(credits.arrive(128) + credits.arrive(128), 0);
        assert_eq!(credits.consume(64), 0, "128 bytes are free: not more than a burst");
        assert_eq!(credits.consume(1), 1);
        assert_eq!(credits.consume(191), 1);
        assert_eq!((credits.free(), credits.held(), credits.flying), (2, 0, 0));
    }
}
