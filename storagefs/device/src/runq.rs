//! The run queue of the device: the policy under its lock, and what is asked of it so often that it is kept outside.
//!
//! One queue for all cores: whichever core is free takes what the policy says is next, so what is fair between tenants
//! does not depend on where their commands arrived (docs/SCHEDULING.md compares it with a queue per core).

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use weldfs_locks::Mutex;
use weldfs_scheduler::{Cost, Entry, Policy, PolicyKind, PolicyState, QueueState, TenantId, Token};

use crate::limits::{QUANTUM_NS_MAX, QUANTUM_NS_MIN};

/// What a command is charged.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CostModel {
    /// The device time of its slices.
    #[default]
    Measured,
    /// A number by its kind, at its end: for comparison with systems that work this way.
    Constant,
}

impl fmt::Display for CostModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CostModel::Measured => "measured",
            CostModel::Constant => "constant",
        })
    }
}

impl FromStr for CostModel {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "measured" => Ok(CostModel::Measured),
            "constant" => Ok(CostModel::Constant),
            other => Err(format!("unknown cost model {other:?} (measured, constant)")),
        }
    }
}

struct Inner {
    policy: Box<dyn Policy>,
    kind: PolicyKind,
}

/// Runnable ops of one device. Thread-safe; a leaf lock: nothing else is taken while it is held.
pub struct RunQueue {
    inner: Mutex<Inner>,
    runnable: AtomicUsize,
    quantum_ns: AtomicU64,
    cost: AtomicU8,
    slots: usize,
}

impl RunQueue {
    /// Empty, with room for `slots` ops.
    pub fn new(kind: PolicyKind, slots: usize, quantum_ns: u64, cost: CostModel) -> RunQueue {
        RunQueue {
            inner: Mutex::new(Inner { policy: kind.build(slots), kind }),
            runnable: AtomicUsize::new(0),
            quantum_ns: AtomicU64::new(quantum_ns.clamp(QUANTUM_NS_MIN, QUANTUM_NS_MAX)),
            cost: AtomicU8::new(cost as u8),
            slots,
        }
    }

    /// A command became runnable. In whose place it may be picked, if in another tenant's, is asked under the lock: a
    /// boost that comes meanwhile is either seen here or finds the command queued.
    pub fn enqueue(&self, entry: Entry, lender: impl FnOnce() -> Option<TenantId>) {
        let mut inner = self.inner.lock();
        inner.policy.enqueue(entry);
        if let Some(lender) = lender() {
            inner.policy.boost(entry.token, lender);
        }
        self.runnable.store(inner.policy.len(), Ordering::SeqCst);
    }

    /// Takes the command that runs next; also in which other tenant's place.
    pub fn pick(&self) -> Option<(Entry, Option<TenantId>)> {
        let mut inner = self.inner.lock();
        let entry = inner.policy.pick();
        self.runnable.store(inner.policy.len(), Ordering::SeqCst);
        entry.map(|entry| (entry, inner.policy.lender()))
    }

    /// Charges a slice.
    pub fn account(&self, tenant: TenantId, inode: u64, cost: Cost) {
        self.inner.lock().policy.account(tenant, inode, cost);
    }

    /// Charges a tenant for time that was not a slice of a command, if others wait for the cores.
    pub(crate) fn charge_beside(&self, tenant: TenantId, ns: u64) {
        if !self.is_empty() && self.cost() == CostModel::Measured {
            self.account(tenant, 0, Cost { time_ns: ns, ..Cost::default() });
        }
    }

    /// Lets a queued command be picked as if it were `waiter`'s, which waits for what it holds; false when it is not
    /// queued.
    pub fn boost(&self, token: Token, waiter: TenantId) -> bool {
        self.inner.lock().policy.boost(token, waiter)
    }

    /// Takes that back.
    pub(crate) fn unboost(&self, token: Token) {
        self.inner.lock().policy.unboost(token);
    }

    /// Whether a command of this tenant that ran for so long should give way to one that waits.
    pub fn preempts(&self, running: TenantId, ran_ns: u64) -> bool {
        self.inner.lock().policy.preempts(running, ran_ns)
    }

    /// Runnable commands.
    #[inline]
    pub fn len(&self) -> usize {
        self.runnable.load(Ordering::Relaxed)
    }

    /// Whether nothing is runnable.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Registers a tenant, or changes its weight. What it is now is asked under the lock: of several changes at once
    /// the last one stays.
    pub fn set_weight(&self, tenant: TenantId, weight: impl FnOnce() -> u32) {
        let mut inner = self.inner.lock();
        inner.policy.set_weight(tenant, weight());
    }

    /// How far a tenant is over its share of the memory, 1024ths.
    pub fn set_pressure(&self, tenant: TenantId, over: u32) {
        self.inner.lock().policy.set_pressure(tenant, over);
    }

    /// Goes over to another policy; what is queued stays queued, and vruntimes keep their distances.
    pub fn set_policy(&self, kind: PolicyKind) {
        let mut inner = self.inner.lock();
        if kind == inner.kind {
            return;
        }
        let next = weldfs_scheduler::switch(&mut *inner.policy, kind, self.slots);
        *inner = Inner { policy: next, kind };
        self.runnable.store(inner.policy.len(), Ordering::SeqCst);
    }

    /// The policy in force.
    pub fn policy(&self) -> PolicyKind {
        self.inner.lock().kind
    }

    /// What the policy knows of its tenants.
    pub fn state(&self) -> PolicyState {
        self.inner.lock().policy.state()
    }

    /// What the policy knows of its inode queues.
    pub fn queues(&self) -> Vec<QueueState> {
        self.inner.lock().policy.queues()
    }

    /// Device time after which a running op gives way, nanoseconds.
    #[inline]
    pub fn quantum_ns(&self) -> u64 {
        self.quantum_ns.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub(crate) fn set_quantum(&self, ns: u64) {
        self.quantum_ns.store(ns.clamp(QUANTUM_NS_MIN, QUANTUM_NS_MAX), Ordering::Relaxed);
    }

    /// What a command is charged.
    #[inline]
    pub fn cost(&self) -> CostModel {
        if self.cost.load(Ordering::Relaxed) == CostModel::Constant as u8 {
            CostModel::Constant
        } else {
            CostModel::Measured
        }
    }

    /// Sets it.
    pub(crate) fn set_cost(&self, cost: CostModel) {
        self.cost.store(cost as u8, Ordering::Relaxed);
    }
}
