//! Runnable commands in their inode queues: lists through a table of slots, found by number, never by search.
//!
//! What a queue was charged must not be forgotten because it ran empty for a moment. So an empty queue stays in an
//! *idle* list until its place is needed for another one; the longest idle goes first.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::policy::{Entry, TenantId, Token};

/// "No slot", "no queue".
pub(crate) const NONE: u32 = u32::MAX;

/// Empty queues that are remembered beyond the number of slots.
const IDLE_EXTRA: usize = 64;

/// A command in a queue. Tenant and inode are its queue's. Half a cache line.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct Slot {
    request_ns: u64,
    arrival: u64,
    queue: u32,
    next: u32,
    prev: u32,
}

const FREE: Slot = Slot { request_ns: 0, arrival: 0, queue: NONE, next: NONE, prev: NONE };

/// One inode queue of one tenant; `D` is what a policy keeps with it.
/// Two cache lines with what the fair policies keep.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Queue<D> {
    pub(crate) tenant: TenantId,
    pub(crate) inode: u64,
    pub(crate) data: D,
    head: u32,
    tail: u32,
    len: u32,
    idle_next: u32,
    idle_prev: u32,
}

/// All queues, and the commands in them.
#[derive(Debug)]
pub(crate) struct Queues<D> {
    slots: Vec<Slot>,
    queues: Vec<Queue<D>>,
    index: HashMap<(u32, u64), u32, Spread>,
    idle_first: u32,
    idle_last: u32,
    idle: usize,
    idle_max: usize,
    hot: u32,
    len: usize,
    arrivals: u64,
}

impl<D: Default> Queues<D> {
    /// Room for `slots` runnable commands, each in a queue of its own, without another allocation.
    pub(crate) fn with_capacity(slots: usize) -> Queues<D> {
        let idle_max = slots + IDLE_EXTRA;
        Queues {
            slots: Vec::with_capacity(slots),
            queues: Vec::with_capacity(slots + idle_max),
            index: HashMap::with_capacity_and_hasher(2 * (slots + idle_max), Spread::new()),
            idle_first: NONE,
            idle_last: NONE,
            idle: 0,
            idle_max,
            hot: 0,
            len: 0,
            arrivals: 0,
        }
    }

    /// Runnable commands.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A queue by number.
    pub(crate) fn get(&mut self, queue: u32) -> &mut Queue<D> {
        &mut self.queues[queue as usize]
    }

    /// Commands in a queue.
    pub(crate) fn depth(&self, queue: u32) -> u32 {
        self.queues[queue as usize].len
    }

    /// All queues that are remembered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Queue<D>, u32)> {
        self.queues.iter().map(|q| (q, q.len))
    }

    /// The number of a queue that is remembered.
    #[cfg_attr(not(feature = "steps"), inline)]
    #[cfg_attr(feature = "steps", inline(never))]
    pub(crate) fn find(&mut self, tenant: TenantId, inode: u64) -> Option<u32> {
        if self.queues.get(self.hot as usize).is_some_and(|q| q.inode == inode && q.tenant == tenant) {
            return Some(self.hot);
        }
        let found = self.index.get(&(tenant.0, inode)).copied()?;
        self.hot = found;
        Some(found)
    }

    /// The number of a queue, made with `fresh` when it is not remembered.
    pub(crate) fn find_or_make(&mut self, tenant: TenantId, inode: u64, fresh: impl FnOnce() -> D) -> u32 {
        if let Some(found) = self.find(tenant, inode) {
            return found;
        }
        let made =
            |data| Queue { tenant, inode, data, head: NONE, tail: NONE, len: 0, idle_next: NONE, idle_prev: NONE };
        let at = if self.idle >= self.idle_max {
            let at = self.idle_first;
            self.leave_idle(at);
            let old = &self.queues[at as usize];
            self.index.remove(&(old.tenant.0, old.inode));
            self.queues[at as usize] = made(fresh());
            at
        } else {
            self.queues.push(made(fresh()));
            self.queues.len() as u32 - 1
        };
        self.index.insert((tenant.0, inode), at);
        self.enter_idle(at);
        self.hot = at;
        at
    }

    /// Appends a command; true when the queue was empty.
    #[cfg_attr(feature = "steps", inline(never))]
    pub(crate) fn push(&mut self, queue: u32, entry: Entry) -> bool {
        let arrival = self.arrivals;
        self.arrivals += 1;
        let at = entry.token.0;
        if self.slots.len() <= at as usize {
            self.slots.resize(at as usize + 1, FREE);
        }
        debug_assert_eq!(self.slots[at as usize].queue, NONE, "a token is enqueued once at a time");
        let was_empty = self.queues[queue as usize].len == 0;
        if was_empty {
            self.leave_idle(queue);
        }
        let q = &mut self.queues[queue as usize];
        let prev = std::mem::replace(&mut q.tail, at);
        q.len += 1;
        if prev == NONE {
            q.head = at;
        } else {
            self.slots[prev as usize].next = at;
        }
        self.slots[at as usize] = Slot { request_ns: entry.request_ns, arrival, queue, next: NONE, prev };
        self.len += 1;
        was_empty
    }

    /// The queue that holds a token now.
    pub(crate) fn holds(&self, token: Token) -> Option<u32> {
        self.slots.get(token.0 as usize).map(|s| s.queue).filter(|&q| q != NONE)
    }

    /// The first command of a queue.
    pub(crate) fn head(&self, queue: u32) -> Option<Token> {
        let head = self.queues[queue as usize].head;
        (head != NONE).then_some(Token(head))
    }

    /// Takes the first command of a queue.
    pub(crate) fn pop(&mut self, queue: u32) -> Option<Entry> {
        // What is picked is charged soon.
        self.hot = queue;
        self.head(queue).and_then(|token| self.take(token))
    }

    /// The request of a command that is queued.
    pub(crate) fn request_ns(&self, token: Token) -> u64 {
        self.slots.get(token.0 as usize).map_or(0, |s| s.request_ns)
    }

    /// Takes a command out, wherever it is.
    #[cfg_attr(feature = "steps", inline(never))]
    pub(crate) fn take(&mut self, token: Token) -> Option<Entry> {
        let queue = self.holds(token)?;
        let slot = &mut self.slots[token.0 as usize];
        slot.queue = NONE;
        let (request_ns, next, prev) = (slot.request_ns, slot.next, slot.prev);
        let q = &mut self.queues[queue as usize];
        let entry = Entry { tenant: q.tenant, inode: q.inode, token, request_ns };
        q.len -= 1;
        if prev == NONE {
            q.head = next;
        }
        if next == NONE {
            q.tail = prev;
        }
        if q.len == 0 {
            self.enter_idle(queue);
        }
        if prev != NONE {
            self.slots[prev as usize].next = next;
        }
        if next != NONE {
            self.slots[next as usize].prev = prev;
        }
        self.len -= 1;
        Some(entry)
    }

    /// The commands in the order in which they came.
    pub(crate) fn in_order(&self) -> Vec<Entry> {
        let mut all: Vec<(usize, &Slot)> = self.slots.iter().enumerate().filter(|(_, s)| s.queue != NONE).collect();
        all.sort_unstable_by_key(|(_, s)| s.arrival);
        let entry = |(at, slot): (usize, &Slot)| {
            let Queue { tenant, inode, .. } = self.queues[slot.queue as usize];
            Entry { tenant, inode, token: Token(at as u32), request_ns: slot.request_ns }
        };
        all.into_iter().map(entry).collect()
    }

    fn enter_idle(&mut self, queue: u32) {
        let last = std::mem::replace(&mut self.idle_last, queue);
        let q = &mut self.queues[queue as usize];
        (q.idle_prev, q.idle_next) = (last, NONE);
        match last {
            NONE => self.idle_first = queue,
            last => self.queues[last as usize].idle_next = queue,
        }
        self.idle += 1;
    }

    fn leave_idle(&mut self, queue: u32) {
        let q = &self.queues[queue as usize];
        let (prev, next) = (q.idle_prev, q.idle_next);
        match prev {
            NONE => self.idle_first = next,
            prev => self.queues[prev as usize].idle_next = next,
        }
        match next {
            NONE => self.idle_last = prev,
            next => self.queues[next as usize].idle_prev = prev,
        }
        self.idle -= 1;
    }
}

/// Spreads two numbers over a word: one multiplication each. The seed differs per policy, so that no client can choose
/// inode numbers that collide; no decision depends on the order of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    seed: u64,
}

impl Spread {
    fn new() -> Spread {
        Spread { seed: RandomState::new().hash_one(0u64) }
    }
}

impl BuildHasher for Spread {
    type Hasher = Spread;

    fn build_hasher(&self) -> Spread {
        *self
    }
}

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.seed
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.seed ^ n) * 0x9e37_79b9_7f4a_7c15;
        self.seed = (product as u64) ^ ((product >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, VecDeque};

    fn entry(tenant: u32, inode: u64, token: u32) -> Entry {
        Entry { tenant: TenantId(tenant), inode, token: Token(token), request_ns: 0 }
    }

    #[test]
    fn an_empty_queue_is_remembered_until_many_others_ran_empty_after_it() {
        let mut queues = Queues::<u32>::with_capacity(8);
        let first = queues.find_or_make(TenantId(0), 7, || 41);
        queues.push(first, entry(0, 7, 0));
        queues.pop(first);
        for inode in 100..171 {
            let q = queues.find_or_make(TenantId(0), inode, || 0);
            queues.push(q, entry(0, inode, 0));
            queues.pop(q);
        }
        assert_eq!(queues.find(TenantId(0), 7).map(|q| queues.get(q).data), Some(41), "72 are remembered");
        for inode in 200..272 {
            queues.find_or_make(TenantId(0), inode, || 0);
        }
        assert_eq!(queues.find(TenantId(0), 7), None);
        assert_eq!(queues.iter().count(), 72, "no more queues than that were ever made");
    }

    proptest! {
        #[test]
        fn queues_are_first_in_first_out_and_lose_nothing(
            steps in proptest::collection::vec((0u8..3, 0u32..3, 0u64..4, 0u32..16), 1..300)
        ) {
            let mut queues = Queues::<u32>::with_capacity(4);
            let mut model = BTreeMap::<(u32, u64), VecDeque<u32>>::new();
            for (step, tenant, inode, token) in steps {
                let q = queues.find_or_make(TenantId(tenant), inode, || 0);
                let mine = model.entry((tenant, inode)).or_default();
                match step {
                    0 if queues.holds(Token(token)).is_none() => {
                        prop_assert_eq!(queues.push(q, entry(tenant, inode, token)), mine.is_empty());
                        mine.push_back(token);
                    }
                    1 => prop_assert_eq!(queues.pop(q).map(|e| e.token.0), mine.pop_front()),
                    _ => {
                        let taken = queues.take(Token(token)).map(|e| e.token.0);
                        let held = model.values_mut().find_map(|l| {
                            let at = l.iter().position(|&t| t == token)?;
                            l.remove(at)
                        });
                        prop_assert_eq!(taken, held);
                    }
                }
                prop_assert_eq!(queues.len(), model.values().map(VecDeque::len).sum::<usize>());
                prop_assert_eq!(queues.in_order().len(), queues.len());
            }
        }
    }
}
