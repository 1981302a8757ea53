//! Round robin over inode queues: one global list, one command each in turn. Ignores tenants, weights and costs, and so
//! gives a tenant what it opens files for: the comparison that the fair policies are measured against.

use std::collections::BTreeMap;

use crate::policy::{Cost, Entry, Policy, PolicyState, QueueState, Queued, TenantId, Token};
use crate::queues::{NONE, Queue, Queues};
use crate::weights::Weights;

/// A queue's place in the ring of queues that hold something.
#[derive(Debug)]
struct Link {
    next: u32,
    prev: u32,
}

impl Default for Link {
    fn default() -> Link {
        Link { next: NONE, prev: NONE }
    }
}

/// One linked list of inode queues: the first gives its oldest command and goes to the end.
#[derive(Debug)]
pub(crate) struct RoundRobin {
    queues: Queues<Link>,
    first: u32,
    last: u32,
    weights: Weights,
}

impl RoundRobin {
    /// A policy that does not allocate while at most `slots` commands are runnable.
    pub(crate) fn with_capacity(slots: usize) -> RoundRobin {
        RoundRobin { queues: Queues::with_capacity(slots), first: NONE, last: NONE, weights: Weights::default() }
    }

    fn append(&mut self, queue: u32) {
        let last = std::mem::replace(&mut self.last, queue);
        self.queues.get(queue).data = Link { next: NONE, prev: last };
        match last {
            NONE => self.first = queue,
            last => self.queues.get(last).data.next = queue,
        }
    }

    fn unlink(&mut self, queue: u32) {
        let Link { next, prev } = std::mem::take(&mut self.queues.get(queue).data);
        match prev {
            NONE => self.first = next,
            prev => self.queues.get(prev).data.next = next,
        }
        match next {
            NONE => self.last = prev,
            next => self.queues.get(next).data.prev = prev,
        }
    }
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "rr"
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
        let queue = self.queues.find_or_make(entry.tenant, entry.inode, Link::default);
        if self.queues.push(queue, entry) {
            self.append(queue);
        }
    }

    fn pick(&mut self) -> Option<Entry> {
        let queue = (self.first != NONE).then_some(self.first)?;
        let entry = self.queues.pop(queue)?;
        self.unlink(queue);
        if self.queues.depth(queue) > 0 {
            self.append(queue);
        }
        Some(entry)
    }

    fn account(&mut self, _tenant: TenantId, _inode: u64, _cost: Cost) {}

    fn remove(&mut self, token: Token) -> Option<Entry> {
        let queue = self.queues.holds(token)?;
        let entry = self.queues.take(token)?;
        if self.queues.depth(queue) == 0 {
            self.unlink(queue);
        }
        Some(entry)
    }

    /// A tenant has no place of its own here that another could be given: the entry stays where it is.
    fn boost(&mut self, token: Token, _waiter: TenantId) -> bool {
        self.queues.holds(token).is_some()
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whenever anything else is runnable: its turn has come.
    fn preempts(&self, _running: TenantId, _ran_ns: u64) -> bool {
        !self.is_empty()
    }

    fn state(&self) -> PolicyState {
        let mut runnable = BTreeMap::<TenantId, (u32, u32)>::new();
        for (queue, depth) in self.queues.iter() {
            let of = runnable.entry(queue.tenant).or_default();
            of.0 += depth;
            of.1 += u32::from(depth > 0);
        }
        self.weights.state(self.name(), &runnable)
    }

    fn queues(&self) -> Vec<QueueState> {
        let weight = |q: &Queue<Link>| self.weights.of_inode(q.tenant, q.inode);
        let state = |(q, runnable): (&Queue<Link>, u32)| QueueState {
            tenant: q.tenant,
            inode: q.inode,
            weight: weight(q),
            vruntime_ns: 0,
            runnable,
        };
        self.queues.iter().map(state).collect()
    }

    fn adopt(&mut self, from: &PolicyState) {
        self.weights.adopt(from);
    }

    fn drain(&mut self) -> Vec<Queued> {
        let entries = self.queues.in_order();
        entries
            .iter()
            .filter_map(|entry| self.remove(entry.token))
            .map(|entry| Queued { entry, boosted: None })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tenant: u32, inode: u64, token: u32) -> Entry {
        Entry { tenant: TenantId(tenant), inode, token: Token(token), request_ns: 0 }
    }

    #[test]
    fn inode_queues_take_turns_whoever_owns_them() {
        let mut rr = RoundRobin::with_capacity(16);
        // Tenant 0 has three files, tenant 1 has one.
        for (token, (tenant, inode)) in [(0, 1), (0, 1), (0, 2), (0, 3), (1, 9), (1, 9), (1, 9)].into_iter().enumerate()
        {
            rr.enqueue(entry(tenant, inode, token as u32));
        }
        let picked: Vec<u64> = std::iter::from_fn(|| rr.pick()).map(|e| e.inode).collect();
        assert_eq!(picked, [1, 2, 3, 9, 1, 9, 9]);
    }

    #[test]
    fn a_queue_whose_last_command_was_removed_loses_its_turn() {
        let mut rr = RoundRobin::with_capacity(16);
        (0..4).for_each(|t| rr.enqueue(entry(0, u64::from(t), t)));
        assert_eq!(rr.remove(Token(1)).map(|e| e.inode), Some(1));
        assert_eq!(rr.remove(Token(3)).map(|e| e.inode), Some(3));
        assert_eq!(rr.remove(Token(0)).map(|e| e.inode), Some(0));
        let picked: Vec<u32> = std::iter::from_fn(|| rr.pick()).map(|e| e.token.0).collect();
        assert_eq!(picked, [2]);
    }
}
