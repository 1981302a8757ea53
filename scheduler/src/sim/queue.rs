//! The ways from "runnable" to a core.

use std::collections::HashMap;

use super::{RunQueues, SimConfig};
use crate::{Cost, Entry, Policy, PolicyKind, TenantId, switch};

/// At most this many entries are taken from another core at once (the bound of crossbeam's deques).
const STEAL_MAX: usize = 32;

/// The run queue, or the run queues.
pub(super) struct Queues {
    shared: bool,
    policies: Vec<Box<dyn Policy>>,
    last_core: HashMap<(TenantId, u64), usize>,
    slots: usize,
    pub(super) picks: u64,
    pub(super) steals: u64,
    victim: usize,
}

impl Queues {
    pub(super) fn new(config: &SimConfig, slots: usize) -> Queues {
        let shared = config.queues == RunQueues::Shared;
        let n = if shared { 1 } else { config.cores };
        let policies = (0..n).map(|_| config.policy.build(slots)).collect();
        Queues { shared, policies, last_core: HashMap::new(), slots, picks: 0, steals: 0, victim: 0 }
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Box<dyn Policy>> {
        self.policies.iter_mut()
    }

    /// What became runnable; `at` is the core it ran on until now, `idle` a core that has nothing to do, `lender` who
    /// waits for what it holds.
    pub(super) fn enqueue(&mut self, entry: Entry, at: Option<usize>, idle: Option<usize>, lender: Option<TenantId>) {
        let core = if self.shared {
            0
        } else {
            let last = || self.last_core.get(&(entry.tenant, entry.inode)).copied();
            at.or(idle).or_else(last).unwrap_or(entry.inode as usize % self.policies.len())
        };
        self.policies[core].enqueue(entry);
        if let Some(lender) = lender.filter(|_| self.shared) {
            self.policies[core].boost(entry.token, lender);
        }
    }

    /// True when something runnable would get the core if what runs on it gave way.
    pub(super) fn contended(&self, core: usize) -> bool {
        !self.policies[if self.shared { 0 } else { core }].is_empty()
    }

    /// What runs next on a core, and in whose place.
    pub(super) fn pick(&mut self, core: usize) -> Option<(Entry, Option<TenantId>)> {
        self.picks += 1;
        if self.shared {
            let entry = self.policies[0].pick()?;
            return Some((entry, self.policies[0].lender()));
        }
        let entry = self.policies[core].pick().or_else(|| self.steal(core))?;
        self.last_core.insert((entry.tenant, entry.inode), core);
        Some((entry, None))
    }

    fn steal(&mut self, core: usize) -> Option<Entry> {
        let n = self.policies.len();
        self.victim = (self.victim + 1) % n;
        let victim = (0..n).map(|i| (self.victim + i) % n).find(|&v| v != core && !self.policies[v].is_empty())?;
        let first = self.policies[victim].pick();
        let more = self.policies[victim].len().div_ceil(2).min(STEAL_MAX - 1);
        for _ in 0..more {
            if let Some(entry) = self.policies[victim].pick() {
                self.policies[core].enqueue(entry);
            }
        }
        self.steals += 1;
        first
    }

    pub(super) fn account(&mut self, core: usize, tenant: TenantId, inode: u64, cost: Cost) {
        self.policies[if self.shared { 0 } else { core }].account(tenant, inode, cost);
    }

    pub(super) fn switch(&mut self, kind: PolicyKind) {
        for policy in &mut self.policies {
            *policy = switch(&mut **policy, kind, self.slots);
        }
    }
}
