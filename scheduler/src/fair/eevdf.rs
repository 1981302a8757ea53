//! Earliest eligible virtual deadline first.
//!
//! The algorithm is that of I. Stoica and H. Abdel-Wahab, "Earliest Eligible Virtual Deadline First: A Flexible and
//! Accurate Mechanism for Proportional Share Resource Allocation" (Old Dominion University, TR-95-22, 1995), in the
//! form in which Linux has it since 6.6 (Documentation/scheduler/sched-eevdf.rst): the virtual time of a level is the
//! average of its members' virtual runtimes, weighted; a member's *lag* is that average less its own runtime; who is
//! not ahead of the average is *eligible*; of the eligible, the one with the earliest deadline is served, where a
//! deadline is the runtime at which a request began plus the request over the weight. So a member with short requests
//! is served sooner, never more.
//!
//! As in the paper, a member stays eligible until its request is used up (Linux gets the same by letting what runs
//! finish its request). That costs two trees here, since neither needs more than its keys: those whose request has not
//! begun, by where it begins, and the eligible, by deadline. Members change over when the average has moved.

use super::level::{Level, Member, Virtual};
use super::tree::{Key, Member as InTree, Nodes, Tree};

/// Members by virtual deadline, as far as they are eligible.
#[derive(Default)]
pub(crate) struct ByDeadline {
    eligible: Tree,
    pending: Tree,
    /// Sum of weights of all queued.
    weight: i128,
    /// Sum of weight times virtual runtime of all queued.
    weighted: i128,
    /// The last average while anything was queued.
    last: Virtual,
    order: u64,
}

impl ByDeadline {
    fn is_eligible(&self, begin: Virtual) -> bool {
        begin * self.weight <= self.weighted
    }

    #[cfg_attr(feature = "steps", inline(never))]
    fn queue(&mut self, nodes: &mut Nodes, member: &Member, id: u32) {
        let later = Virtual::from(member.later);
        let (begin, deadline) = (member.begin + later, member.deadline + later);
        if self.is_eligible(begin) {
            self.eligible.insert(nodes, InTree { key: Key::new(deadline, member.order), other: begin, id });
        } else {
            self.pending.insert(nodes, InTree { key: Key::new(begin, member.order), other: deadline, id });
        }
    }

    /// Takes a member out of the tree it stands in: most likely the one where it would be put now.
    #[cfg_attr(feature = "steps", inline(never))]
    fn unqueue(&mut self, nodes: &mut Nodes, member: &Member) {
        let key = |at| Key::new(at + Virtual::from(member.later), member.order);
        let (by_deadline, by_begin) = (key(member.deadline), key(member.begin));
        if self.is_eligible(by_begin.at()) {
            let found = self.eligible.remove(nodes, by_deadline).or_else(|| self.pending.remove(nodes, by_begin));
            debug_assert!(found.is_some());
        } else {
            let found = self.pending.remove(nodes, by_begin).or_else(|| self.eligible.remove(nodes, by_deadline));
            debug_assert!(found.is_some());
        }
    }

    fn average(&self) -> Virtual {
        if self.weight == 0 { self.last } else { self.weighted.div_euclid(self.weight) }
    }
}

impl Level for ByDeadline {
    const NAME: &'static str = "eevdf";

    #[cfg_attr(feature = "steps", inline(never))]
    fn insert(&mut self, nodes: &mut Nodes, member: &mut Member, id: u32) {
        self.order += 1;
        (member.order, member.queued) = (self.order, true);
        member.renew();
        self.weight += i128::from(member.weight);
        self.weighted += i128::from(member.weight) * member.v;
        self.queue(nodes, member, id);
    }

    #[cfg_attr(feature = "steps", inline(never))]
    fn remove(&mut self, nodes: &mut Nodes, member: &mut Member) {
        self.unqueue(nodes, member);
        if self.weight == i128::from(member.weight) {
            self.last = member.v;
        }
        self.weight -= i128::from(member.weight);
        self.weighted -= i128::from(member.weight) * member.v;
        member.queued = false;
    }

    #[cfg_attr(feature = "steps", inline(never))]
    fn first(&mut self, nodes: &mut Nodes) -> Option<u32> {
        while let Some(&InTree { key, other: deadline, id }) = self.pending.first()
            && self.is_eligible(key.at())
        {
            self.pending.pop(nodes);
            self.eligible.insert(nodes, InTree { key: key.moved_to(deadline), other: key.at(), id });
        }
        // The average goes back when a member leaves that was ahead of it.
        while let Some(&InTree { key, other: begin, id }) = self.eligible.first()
            && !self.is_eligible(begin)
        {
            self.eligible.pop(nodes);
            self.pending.insert(nodes, InTree { key: key.moved_to(begin), other: key.at(), id });
        }
        // Without memory pressure one is always eligible: not all can be ahead of their average.
        self.eligible.first().or_else(|| self.pending.first()).map(|first| first.id)
    }

    #[cfg_attr(not(feature = "steps"), inline)]
    #[cfg_attr(feature = "steps", inline(never))]
    fn charge(&mut self, nodes: &mut Nodes, member: &mut Member, id: u32, delta: Virtual) {
        self.weighted += i128::from(member.weight) * delta;
        if member.v + delta < member.deadline {
            member.v += delta;
            return;
        }
        self.unqueue(nodes, member);
        member.v += delta;
        member.renew();
        self.queue(nodes, member, id);
    }

    fn reference(&self) -> Virtual {
        self.average()
    }

    fn is_behind(&self, v: Virtual) -> bool {
        if self.weight == 0 { v < self.last } else { v * self.weight < self.weighted }
    }

    fn rank(member: &Member) -> Virtual {
        member.deadline + Virtual::from(member.later)
    }

    fn better_than(&self, rank: Virtual) -> bool {
        self.eligible.first().is_some_and(|first| first.key.at() < rank && self.is_eligible(first.other))
            || self.pending.first().is_some_and(|next| next.other < rank && self.is_eligible(next.key.at()))
    }

    fn restart(&mut self, reference: Virtual) {
        self.last = reference;
    }
}
