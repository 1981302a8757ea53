//! A red-black tree whose leftmost member stands beside it.
//!
//! The member that is picked next is the one whose key grows next. As long as it stays leftmost, growing its key is a
//! comparison with the key of the second, which is remembered: no operation on the tree. Nodes are boxes that move
//! between the tree and a store of spare ones; the leftmost needs none.

use intrusive_collections::{KeyAdapter, RBTree, RBTreeLink, intrusive_adapter};

/// Bits of the key that hold the order of insertion.
const ORDER_BITS: u32 = 40;
/// Fraction bits of a virtual time that the key leaves out: it tells times apart that differ by a 16th of a nanosecond.
const BELOW: u32 = 20;

/// What a tree is ordered by: a virtual time, then the order of insertion, in one number. The order starts again after
/// 2^40 insertions; two members would have to be queued at the same time with that between them to be confused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(i128);

impl Key {
    /// The key that no member has: larger than all.
    const END: Key = Key(i128::MAX);

    pub(crate) fn new(at: i128, order: u64) -> Key {
        Key(((at >> BELOW) << ORDER_BITS) | i128::from(order & ((1 << ORDER_BITS) - 1)))
    }

    /// The virtual time, less than a 16th of a nanosecond before the one it was made of.
    pub(crate) fn at(self) -> i128 {
        (self.0 >> ORDER_BITS) << BELOW
    }

    /// Another time with the same order.
    pub(crate) fn moved_to(self, at: i128) -> Key {
        Key(((at >> BELOW) << ORDER_BITS) | (self.0 & ((1 << ORDER_BITS) - 1)))
    }
}

/// A member: its number, its key, and a virtual time that travels with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) key: Key,
    pub(crate) other: i128,
    pub(crate) id: u32,
}

/// One cache line: key, links, and a member's other time as its distance from the key's.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Node {
    key: Key,
    link: RBTreeLink,
    away: i64,
    id: u32,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    fn set(&mut self, member: Member) {
        (self.key, self.id) = (member.key, member.id);
        self.away = ((member.other >> BELOW) - (member.key.0 >> ORDER_BITS)) as i64;
    }

    /// Its other time is as exact as the key's.
    fn member(&self) -> Member {
        let other = ((self.key.0 >> ORDER_BITS) + i128::from(self.away)) << BELOW;
        Member { key: self.key, other, id: self.id }
    }
}

intrusive_adapter!(ByKey = Box<Node>: Node { link => RBTreeLink });

impl<'a> KeyAdapter<'a> for ByKey {
    type Key = Key;

    fn get_key(&self, node: &'a Node) -> Key {
        node.key
    }
}

/// Spare nodes of all trees of a policy.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    // Boxes on purpose: a node keeps its address while it moves in and out of trees.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Node>>,
}

impl Nodes {
    /// Makes sure that `n` more nodes exist.
    pub(crate) fn grow(&mut self, n: usize) {
        let blank = || Box::new(Node { key: Key::END, link: RBTreeLink::new(), away: 0, id: 0 });
        self.spare.extend(std::iter::repeat_with(blank).take(n));
    }

    fn take(&mut self, member: Member) -> Box<Node> {
        if self.spare.is_empty() {
            self.grow(16);
        }
        let mut node = self.spare.pop().expect("just grown");
        node.set(member);
        node
    }
}

/// Members by key.
pub(crate) struct Tree {
    /// The smallest; `Key::END` when there is none.
    first: Member,
    /// The key of the second; `Key::END` when there is none.
    second: Key,
    rest: RBTree<ByKey>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { first: Tree::NONE, second: Key::END, rest: RBTree::default() }
    }
}

impl Tree {
    const NONE: Member = Member { key: Key::END, other: 0, id: 0 };

    /// The member with the smallest key. No operation on the tree.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Member> {
        (self.first.key != Key::END).then_some(&self.first)
    }

    #[cfg_attr(feature = "steps", inline(never))]
    pub(crate) fn insert(&mut self, nodes: &mut Nodes, member: Member) {
        if member.key < self.first.key {
            let first = std::mem::replace(&mut self.first, member);
            if first.key != Key::END {
                self.second = first.key;
                self.rest.insert(nodes.take(first));
            }
        } else {
            self.second = self.second.min(member.key);
            self.rest.insert(nodes.take(member));
        }
    }

    /// Takes the member with the smallest key out.
    #[cfg_attr(feature = "steps", inline(never))]
    pub(crate) fn pop(&mut self, nodes: &mut Nodes) -> Option<Member> {
        let first = std::mem::replace(&mut self.first, Tree::NONE);
        let mut front = self.rest.front_mut();
        if let Some(node) = front.remove() {
            self.second = front.get().map_or(Key::END, |node| node.key);
            self.first = node.member();
            nodes.spare.push(node);
        }
        (first.key != Key::END).then_some(first)
    }

    /// Takes the member with this key out.
    #[cfg_attr(feature = "steps", inline(never))]
    pub(crate) fn remove(&mut self, nodes: &mut Nodes, key: Key) -> Option<Member> {
        if self.first.key == key {
            return self.pop(nodes);
        }
        let mut found = self.rest.find_mut(&key);
        let node = found.remove()?;
        if self.second == key {
            self.second = found.get().map_or(Key::END, |node| node.key);
        }
        let member = node.member();
        nodes.spare.push(node);
        Some(member)
    }

    /// Gives the member with key `old` another key and other time.
    #[cfg_attr(not(feature = "steps"), inline)]
    #[cfg_attr(feature = "steps", inline(never))]
    pub(crate) fn change(&mut self, nodes: &mut Nodes, old: Key, new: Member) {
        if self.first.key == old && new.key < self.second {
            self.first = new;
        } else {
            self.move_on(nodes, old, new);
        }
    }

    #[cfg_attr(feature = "steps", inline(never))]
    fn move_on(&mut self, nodes: &mut Nodes, old: Key, new: Member) {
        if self.first.key != old {
            if self.remove(nodes, old).is_some() {
                self.insert(nodes, new);
            }
            return;
        }
        // The second becomes first; its node serves the one that goes into the tree.
        let mut front = self.rest.front_mut();
        if let Some(mut node) = front.remove() {
            let next = front.get().map_or(Key::END, |node| node.key);
            self.first = node.member();
            node.set(new);
            self.second = next.min(new.key);
            self.rest.insert(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_first_is_always_the_smallest_whatever_was_inserted_changed_and_removed(
            steps in proptest::collection::vec((0u8..4, 0i128..50, 0usize..40), 1..400)
        ) {
            let (mut tree, mut nodes, mut model) = (Tree::default(), Nodes::default(), BTreeMap::new());
            let mut order = 0;
            for (step, at, nth) in steps {
                order += 1;
                let key = Key::new(at << 30, order);
                let chosen = (!model.is_empty()).then(|| *model.keys().nth(nth % model.len()).unwrap());
                match (step, chosen) {
                    (0, _) | (_, None) => {
                        let member = Member { key, other: at << 32, id: order as u32 };
                        tree.insert(&mut nodes, member);
                        model.insert(key, member);
                    }
                    (1, Some(old)) => {
                        prop_assert_eq!(tree.remove(&mut nodes, old), model.remove(&old));
                    }
                    (2, Some(old)) => {
                        let new = Member { key, ..model.remove(&old).unwrap() };
                        tree.change(&mut nodes, old, new);
                        model.insert(key, new);
                    }
                    _ => {
                        prop_assert_eq!(tree.pop(&mut nodes), model.pop_first().map(|(_, m)| m));
                    }
                }
                prop_assert_eq!(tree.first(), model.values().next());
                prop_assert_eq!(tree.second, model.keys().nth(1).copied().unwrap_or(Key::END));
            }
        }
    }
}
