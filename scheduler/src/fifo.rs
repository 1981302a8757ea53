//! First come, first served: the base line every other policy is compared with.

use std::collections::VecDeque;

use crate::policy::{Cost, Entry, Policy, TenantId, Token};

/// Runs commands in the order in which they became runnable. Ignores tenants and costs.
#[derive(Debug)]
pub struct Fifo {
    ready: VecDeque<Entry>,
}

impl Fifo {
    /// A queue that does not allocate while at most `slots` commands are runnable.
    pub fn with_capacity(slots: usize) -> Fifo {
        Fifo { ready: VecDeque::with_capacity(slots) }
    }
}

impl Policy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn enqueue(&mut self, entry: Entry) {
        self.ready.push_back(entry);
    }

    fn pick(&mut self) -> Option<Entry> {
        self.ready.pop_front()
    }

    fn account(&mut self, _tenant: TenantId, _inode: u64, _cost: Cost) {}

    fn remove(&mut self, token: Token) -> bool {
        match self.ready.iter().position(|e| e.token == token) {
            Some(at) => self.ready.remove(at).is_some(),
            None => false,
        }
    }

    fn len(&self) -> usize {
        self.ready.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(token: u32) -> Entry {
        Entry { tenant: TenantId(u64::from(token % 3)), inode: u64::from(token), token: Token(token) }
    }

    #[test]
    fn picks_in_the_order_of_arrival_and_each_entry_once() {
        let mut fifo = Fifo::with_capacity(4);
        for t in 0..100 {
            fifo.enqueue(entry(t));
        }
        let picked: Vec<u32> = std::iter::from_fn(|| fifo.pick()).map(|e| e.token.0).collect();
        assert_eq!(picked, (0..100).collect::<Vec<_>>());
        assert!(fifo.is_empty());
    }

    #[test]
    fn a_removed_entry_is_never_picked() {
        let mut fifo = Fifo::with_capacity(4);
        (0..3).for_each(|t| fifo.enqueue(entry(t)));
        assert!(fifo.remove(Token(1)));
        assert!(!fifo.remove(Token(1)));
        let picked: Vec<u32> = std::iter::from_fn(|| fifo.pick()).map(|e| e.token.0).collect();
        assert_eq!(picked, [0, 2]);
    }

    #[test]
    fn unknown_policy_names_are_refused() {
        assert!("fifo".parse::<crate::PolicyKind>().is_ok());
        assert!("cfs".parse::<crate::PolicyKind>().is_err());
    }
}
