//! What is to happen at a moment: a heap by time, in order of arrival where times are equal.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::session::QueueState;

/// A completion held back by the profile.
pub struct Delayed {
    /// Where it goes.
    pub queue: Arc<QueueState>,
    /// What it says.
    pub cqe: [u64; 4],
}

struct Item<T> {
    key: Reverse<(u64, u64)>,
    what: T,
}

impl<T> PartialEq for Item<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Item<T> {}

impl<T> PartialOrd for Item<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Item<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

/// Things by the moment at which they are due, nanoseconds.
pub struct Due<T> {
    heap: BinaryHeap<Item<T>>,
    added: u64,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Due { heap: BinaryHeap::new(), added: 0 }
    }
}

impl<T> Due<T> {
    /// Adds something.
    pub fn add(&mut self, at: u64, what: T) {
        self.added += 1;
        self.heap.push(Item { key: Reverse((at, self.added)), what });
    }

    /// The next moment.
    pub fn at(&self) -> Option<u64> {
        self.heap.peek().map(|item| item.key.0.0)
    }

    /// Takes the next thing if its moment has come; the clock is read only when there is one.
    pub fn next(&mut self, now: impl FnOnce() -> u64) -> Option<T> {
        let at = self.at()?;
        if at <= now() { self.heap.pop().map(|item| item.what) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_by_their_moment_and_in_order_of_arrival() {
        let mut due = Due::default();
        for (at, what) in [(30, 'c'), (10, 'a'), (20, 'x'), (20, 'y')] {
            due.add(at, what);
        }
        assert_eq!(due.at(), Some(10));
        assert_eq!(due.next(|| 9), None);
        let got: String = std::iter::from_fn(|| due.next(|| 20)).collect();
        assert_eq!(got, "axy");
        assert_eq!(due.next(|| 30), Some('c'));
    }
}
