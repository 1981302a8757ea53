//! Completely fair scheduling: whoever has the smallest virtual runtime is served.
//!
//! The idea is that of the Linux scheduler of 2007 to 2023 (Documentation/scheduler/sched-design-CFS.rst): virtual
//! runtime is time over weight, runnable members stand in a red-black tree by it, the leftmost runs, and a monotone
//! minimum places those that come.

use super::level::{Level, Member, Virtual};
use super::tree::{Key, Member as InTree, Nodes, Tree};

/// Members by virtual runtime.
#[derive(Default)]
pub(crate) struct ByRuntime {
    tree: Tree,
    minimum: Virtual,
    order: u64,
}

impl ByRuntime {
    fn key(member: &Member) -> Key {
        Key::new(member.v + Virtual::from(member.later), member.order)
    }

    fn entry(member: &Member, id: u32) -> InTree {
        InTree { key: Self::key(member), other: member.v, id }
    }

    /// The minimum never goes back: it is where newcomers start, and they must not gain by the order in which others
    /// leave.
    fn advance(&mut self) {
        if let Some(first) = self.tree.first() {
            self.minimum = self.minimum.max(first.other);
        }
    }
}

impl Level for ByRuntime {
    const NAME: &'static str = "cfs";

    #[cfg_attr(feature = "steps", inline(never))]
    fn insert(&mut self, nodes: &mut Nodes, member: &mut Member, id: u32) {
        self.order += 1;
        (member.order, member.queued) = (self.order, true);
        self.tree.insert(nodes, Self::entry(member, id));
        self.advance();
    }

    #[cfg_attr(feature = "steps", inline(never))]
    fn remove(&mut self, nodes: &mut Nodes, member: &mut Member) {
        self.tree.remove(nodes, Self::key(member));
        member.queued = false;
        self.advance();
    }

    #[cfg_attr(feature = "steps", inline(never))]
    fn first(&mut self, _nodes: &mut Nodes) -> Option<u32> {
        self.tree.first().map(|first| first.id)
    }

    #[cfg_attr(not(feature = "steps"), inline)]
    #[cfg_attr(feature = "steps", inline(never))]
    fn charge(&mut self, nodes: &mut Nodes, member: &mut Member, id: u32, delta: Virtual) {
        let old = Self::key(member);
        member.v += delta;
        self.tree.change(nodes, old, Self::entry(member, id));
        self.advance();
    }

    fn reference(&self) -> Virtual {
        self.minimum
    }

    fn is_behind(&self, v: Virtual) -> bool {
        v < self.minimum
    }

    fn rank(member: &Member) -> Virtual {
        member.v + Virtual::from(member.later)
    }

    fn better_than(&self, rank: Virtual) -> bool {
        self.tree.first().is_some_and(|first| first.key < Key::new(rank, 0))
    }

    fn restart(&mut self, reference: Virtual) {
        self.minimum = reference;
    }
}
