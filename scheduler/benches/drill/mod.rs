//! Steady states with ten thousand runnable inode queues, shared by the timing bench and the instruction counts.

use intrusive_collections::{KeyAdapter, RBTree, RBTreeLink, intrusive_adapter};
use weldfs_scheduler::{Cost, Entry, Policy, PolicyKind, TenantId, Token};

/// Runnable inode queues.
pub const QUEUES: u32 = 10_000;
/// Tenants that own them.
const TENANTS: u32 = 4;
/// Commands in the queue that stays leftmost: as many as are picked from it.
pub const STAY: u32 = 1_000;

/// What happens around a pick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// The queue that is picked from stays first: pick and account.
    Stays,
    /// It holds another command and goes elsewhere when it is charged: pick, account, and the client's next command.
    Moves,
    /// It runs empty and comes back: pick, account, and the next command of the client, which queues it again.
    Empties,
}

impl Case {
    /// All, cheapest first.
    pub const ALL: [Case; 3] = [Case::Stays, Case::Moves, Case::Empties];

    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Case::Stays => "stays",
            Case::Moves => "moves",
            Case::Empties => "empties",
        }
    }
}

/// A member of the bare tree.
#[repr(align(64))]
struct Node {
    link: RBTreeLink,
    key: i128,
}

intrusive_adapter!(ByKey = Box<Node>: Node { link => RBTreeLink });

impl<'a> KeyAdapter<'a> for ByKey {
    type Key = i128;

    fn get_key(&self, node: &'a Node) -> i128 {
        node.key
    }
}

/// The floor: a red-black tree of as many members as there are queues, and nothing else.
pub struct Bare {
    tree: RBTree<ByKey>,
    dice: u32,
}

impl Bare {
    /// In the middle of its work.
    pub fn new() -> Bare {
        let mut bare = Bare { tree: RBTree::default(), dice: 12_345 };
        for i in 0..QUEUES {
            let key = bare.step() + i128::from(i);
            bare.tree.insert(Box::new(Node { link: RBTreeLink::new(), key }));
        }
        bare.work(3 * QUEUES);
        bare
    }

    fn step(&mut self) -> i128 {
        self.dice = self.dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i128::from(20_000 + (self.dice >> 16)) << 40
    }

    /// `rounds` times the first out and in again, elsewhere.
    #[inline(never)]
    pub fn work(&mut self, rounds: u32) {
        for _ in 0..rounds {
            let step = self.step();
            if let Some(mut node) = self.tree.front_mut().remove() {
                node.key += step;
                self.tree.insert(node);
            }
        }
    }
}

/// A policy in the middle of its work.
pub fn prepare(kind: PolicyKind, case: Case) -> Box<dyn Policy> {
    let mut policy = kind.build(2 * QUEUES as usize + STAY as usize);
    let deep = if case == Case::Moves { 2 } else { 1 };
    let entry = |inode: u32, token: u32| Entry {
        tenant: TenantId(inode % TENANTS),
        inode: u64::from(inode),
        token: Token(token),
        request_ns: 100_000,
    };
    for token in 0..QUEUES * deep {
        policy.enqueue(entry(token % QUEUES, token));
    }
    if case == Case::Stays {
        (0..STAY).for_each(|i| policy.enqueue(entry(0, QUEUES * deep + i)));
        // All others are behind it by more than it will be charged.
        for inode in 1..QUEUES {
            policy.account(TenantId(inode % TENANTS), u64::from(inode), Cost { time_ns: 1_000_000, ..Cost::default() });
        }
    } else {
        // Until the order of queues has nothing left of how they came: their runtimes differ.
        work(&mut *policy, case, 3 * QUEUES);
    }
    policy
}

/// `rounds` picks, each charged.
#[inline(never)]
pub fn work(policy: &mut dyn Policy, case: Case, rounds: u32) {
    let mut dice = 12_345u32;
    for _ in 0..rounds {
        let Some(e) = policy.pick() else { break };
        if case == Case::Stays {
            policy.account(e.tenant, e.inode, Cost { time_ns: 1, ..Cost::default() });
            continue;
        }
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        policy.account(e.tenant, e.inode, Cost { time_ns: 20_000 + u64::from(dice >> 16), ..Cost::default() });
        policy.enqueue(e);
    }
}
