//! The seam between the executor and the choice of what runs next.

/// Who is charged: a dense number from the device's tenant table, below the number of tenants registered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TenantId(pub u32);

/// The executor's name for one runnable command (its slot index, dense).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u32);

/// The weight of a tenant or inode queue without one of its own: "weight 1".
pub const WEIGHT_DEFAULT: u32 = 1024;

/// The largest weight. The smallest is 1; what is outside is brought to the nearest bound.
pub const WEIGHT_MAX: u32 = 1_000_000;

/// One runnable command, as the policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Who pays for it.
    pub tenant: TenantId,
    /// The inode queue it belongs to: its primary inode, or 0 for a command without one.
    pub inode: u64,
    /// What to hand back when it is picked.
    pub token: Token,
    /// Device time it is expected to use before it gives way, nanoseconds: the quantum, or less where a command is
    /// known to be shorter. Deadlines are made from it; it is never charged. 0 stands for "unknown".
    pub request_ns: u64,
}

/// What a slice of a command cost, measured by the executor.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    /// Device time consumed, nanoseconds.
    pub time_ns: u64,
    /// The tenant in whose place it was picked ([`Policy::lender`]), if in another's than its own.
    pub lender: Option<TenantId>,
    /// The command's own weight among those of its tenant: its inode queue is charged the time times
    /// [`WEIGHT_DEFAULT`] over this, its tenant the time. 0 stands for [`WEIGHT_DEFAULT`].
    pub weight: u32,
}

impl Cost {
    /// What the inode queue is charged, nanoseconds.
    pub(crate) fn queue_ns(&self) -> u64 {
        match self.weight {
            0 | WEIGHT_DEFAULT => self.time_ns,
            weight => {
                let ns = u128::from(self.time_ns) * u128::from(WEIGHT_DEFAULT) / u128::from(weight);
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Decides the order in which runnable commands get a device core. One instance per device, shared by its cores under
/// a lock; no call blocks, and none reads a clock.
///
/// Contract: every entry enqueued is returned by `pick` exactly once or taken back by `remove` or `drain`; `pick`
/// returns `None` only when the policy is empty, so a core never idles beside runnable work. `account` may name an
/// entry that is no longer enqueued (it is running), and need not follow every `pick`. All calls but `state`, `adopt`
/// and `drain` are O(log n) or better and allocate nothing while at most the number of slots given at the start is
/// runnable.
pub trait Policy: Send {
    /// The policy's name as the command line spells it.
    fn name(&self) -> &'static str;
    /// Registers a tenant or changes its weight: device time is shared in proportion to weights. Tenants that were
    /// never registered have [`WEIGHT_DEFAULT`]. Holds for charges from now on.
    fn set_weight(&mut self, tenant: TenantId, weight: u32);
    /// The same for one inode queue within its tenant.
    fn set_inode_weight(&mut self, tenant: TenantId, inode: u64, weight: u32);
    /// Says how far a tenant's memory is over its share, in 1024ths of the share; 0 when it is within. The tenant is
    /// picked later by a bounded amount.
    fn set_pressure(&mut self, tenant: TenantId, over: u32);
    /// A command became runnable. First in, first out within one (tenant, inode). A token is enqueued once at a time.
    fn enqueue(&mut self, entry: Entry);
    /// Takes the command that runs next.
    fn pick(&mut self) -> Option<Entry>;
    /// In whose place the command was picked that `pick` gave last, if in another tenant's than its own: for the `cost`
    /// of its slice.
    fn lender(&self) -> Option<TenantId> {
        None
    }
    /// Charges a finished slice to the tenant and to its inode queue. What was picked in another tenant's place counts
    /// there, too, but not for that tenant: all that is picked in its place, and what it uses itself, is together what
    /// one tenant gets.
    fn account(&mut self, tenant: TenantId, inode: u64, cost: Cost);
    /// Withdraws a runnable command; `None` when it was not enqueued.
    fn remove(&mut self, token: Token) -> Option<Entry>;
    /// Lets a runnable command be picked as a command of `waiter` would be, if that is earlier: it holds what `waiter`
    /// waits for. It stays charged to its own tenant. One waiter at a time: another one takes the place of the one
    /// before. Until it is picked, removed, or [`Policy::unboost`]. False when the token is not enqueued.
    fn boost(&mut self, token: Token, waiter: TenantId) -> bool;
    /// Takes a boost back; nothing happens when there is none.
    fn unboost(&mut self, _token: Token) {}
    /// Runnable commands held.
    fn len(&self) -> usize;
    /// True when nothing is runnable: the executor may run a newcomer at once.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// True when something runnable should rather have the core than an op of `running` that had it for `ran_ns` and
    /// was not charged for that yet. How often to ask (the quantum) is the caller's business.
    fn preempts(&self, running: TenantId, ran_ns: u64) -> bool;
    /// What the policy knows of tenants, for reports and for [`Policy::adopt`]. O(n).
    fn state(&self) -> PolicyState;
    /// The inode queues that hold something, and those that ran empty lately. O(n).
    fn queues(&self) -> Vec<QueueState>;
    /// Takes over weights and relative virtual times of another policy. Only on a policy that holds no entry.
    fn adopt(&mut self, from: &PolicyState);
    /// Takes all entries out, in the order in which they came, for a policy that follows.
    fn drain(&mut self) -> Vec<Queued>;
}

/// An entry taken out by [`Policy::drain`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queued {
    /// The entry as it was enqueued.
    pub entry: Entry,
    /// The tenant whose place it had been given, if any.
    pub boosted: Option<TenantId>,
}

/// One tenant, as a policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TenantState {
    /// The tenant.
    pub tenant: TenantId,
    /// Its weight.
    pub weight: u32,
    /// What `set_pressure` said last.
    pub pressure: u32,
    /// Virtual runtime: device time charged times 1024 over weight, nanoseconds, never below the policy's minimum by
    /// more than the credit for having slept. 0 under policies that keep none.
    pub vruntime_ns: u64,
    /// How far the tenant is behind (positive) or ahead of its share: virtual nanoseconds. Under CFS against the
    /// minimum, under EEVDF against the weighted average. 0 under policies that keep none.
    pub lag_ns: i64,
    /// Runnable commands.
    pub runnable: u32,
    /// Inode queues that hold them.
    pub queues: u32,
}

/// One inode queue, as a policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueState {
    /// Whose it is.
    pub tenant: TenantId,
    /// The inode.
    pub inode: u64,
    /// Its weight within the tenant.
    pub weight: u32,
    /// Virtual runtime within the tenant, nanoseconds; 0 under policies that keep none.
    pub vruntime_ns: u64,
    /// Runnable commands.
    pub runnable: u32,
}

/// What a policy knows, at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyState {
    /// The policy's name.
    pub policy: &'static str,
    /// The virtual time at which a newcomer would start, nanoseconds; 0 under policies that keep none.
    pub min_vruntime_ns: u64,
    /// The tenants that were registered or seen, by number.
    pub tenants: Vec<TenantState>,
    /// Weights of inode queues that are not [`WEIGHT_DEFAULT`].
    pub inode_weights: Vec<(TenantId, u64, u32)>,
}
