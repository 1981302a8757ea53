//! First come, first served: the base line every other policy is compared with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::policy::{Cost, Entry, Policy, PolicyState, QueueState, Queued, TenantId, Token};
use crate::weights::Weights;

/// Runs commands in the order in which they became runnable. Ignores tenants, weights and costs; keeps what was set,
/// for the policy that may follow.
#[derive(Debug)]
pub(crate) struct Fifo {
    ready: VecDeque<Entry>,
    weights: Weights,
}

impl Fifo {
    /// A queue that does not allocate while at most `slots` commands are runnable.
    pub(crate) fn with_capacity(slots: usize) -> Fifo {
        Fifo { ready: VecDeque::with_capacity(slots), weights: Weights::default() }
    }

    fn position(&self, token: Token) -> Option<usize> {
        self.ready.iter().position(|e| e.token == token)
    }
}

impl Policy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        self.weights.set(tenant, weight);
    }

    fn set_inode_weight(&mut self, tenant: TenantId, inode: u64, weight: u32) {
        self.weights.set_inode(tenant, inode, weight);
    }

    fn set_pressure(&mut self, tenant: TenantId, over: u32) {
        self.weights.set_pressure(tenant, over);
    }

    fn enqueue(&mut self, entry: Entry) {
        self.ready.push_back(entry);
    }

    fn pick(&mut self) -> Option<Entry> {
        self.ready.pop_front()
    }

    fn account(&mut self, _tenant: TenantId, _inode: u64, _cost: Cost) {}

    fn remove(&mut self, token: Token) -> Option<Entry> {
        self.position(token).and_then(|at| self.ready.remove(at))
    }

    /// There is one place for all: whoever came first stays first.
    fn boost(&mut self, token: Token, _waiter: TenantId) -> bool {
        self.position(token).is_some()
    }

    fn len(&self) -> usize {
        self.ready.len()
    }

    /// Never: an op runs until it waits or ends.
    fn preempts(&self, _running: TenantId, _ran_ns: u64) -> bool {
        false
    }

    fn state(&self) -> PolicyState {
        let mut runnable = BTreeMap::<TenantId, (u32, u32)>::new();
        let mut queues = BTreeSet::new();
        for e in &self.ready {
            let of = runnable.entry(e.tenant).or_default();
            of.0 += 1;
            of.1 += u32::from(queues.insert((e.tenant, e.inode)));
        }
        self.weights.state(self.name(), &runnable)
    }

    fn queues(&self) -> Vec<QueueState> {
        let mut runnable = BTreeMap::<(TenantId, u64), u32>::new();
        self.ready.iter().for_each(|e| *runnable.entry((e.tenant, e.inode)).or_default() += 1);
        let state = |((tenant, inode), runnable)| QueueState {
            tenant,
            inode,
            weight: self.weights.of_inode(tenant, inode),
            vruntime_ns: 0,
            runnable,
        };
        runnable.into_iter().map(state).collect()
    }

    fn adopt(&mut self, from: &PolicyState) {
        self.weights.adopt(from);
    }

    fn drain(&mut self) -> Vec<Queued> {
        self.ready.drain(..).map(|entry| Queued { entry, boosted: None }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(token: u32) -> Entry {
        Entry { tenant: TenantId(token % 3), inode: u64::from(token), token: Token(token), request_ns: 0 }
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
        assert_eq!(fifo.remove(Token(1)), Some(entry(1)));
        assert_eq!(fifo.remove(Token(1)), None);
        let picked: Vec<u32> = std::iter::from_fn(|| fifo.pick()).map(|e| e.token.0).collect();
        assert_eq!(picked, [0, 2]);
    }
}
