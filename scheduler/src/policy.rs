//! The seam between the executor and the choice of what runs next.

use std::fmt;
use std::str::FromStr;

/// Who is charged: the uid of the session, or a name the device's configuration gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TenantId(pub u64);

/// The executor's name for one runnable command (its slot index).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u32);

/// One runnable command, as the policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Who pays for it.
    pub tenant: TenantId,
    /// The inode queue it belongs to: its primary inode, or 0 for a command without one.
    pub inode: u64,
    /// What to hand back when it is picked.
    pub token: Token,
}

/// What a slice of a command cost, measured by the executor.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    /// Device time consumed, nanoseconds.
    pub time_ns: u64,
    /// Payload bytes moved over the link.
    pub link_bytes: u64,
}

/// Decides the order in which runnable commands get the device thread. One instance per device thread.
///
/// Contract: every entry enqueued is returned by `pick` exactly once or taken back by `remove`; `pick` returns
/// `None` only when the policy is empty, so the executor never idles beside runnable work. `account` may name an entry
/// that is no longer enqueued (it is running). All calls are O(log n) or better and never allocate in steady state.
///
/// A virtual-time policy (CFS, EEVDF) fits behind these calls: `enqueue` places a tenant by its virtual runtime,
/// `account` advances it by measured time over weight. None is implemented yet.
pub trait Policy: Send {
    /// The policy's name as the command line spells it.
    fn name(&self) -> &'static str;
    /// A command became runnable.
    fn enqueue(&mut self, entry: Entry);
    /// Takes the command that runs next.
    fn pick(&mut self) -> Option<Entry>;
    /// Charges a finished slice.
    fn account(&mut self, tenant: TenantId, inode: u64, cost: Cost);
    /// Withdraws a runnable command; false when it was not enqueued.
    fn remove(&mut self, token: Token) -> bool;
    /// Runnable commands held.
    fn len(&self) -> usize;
    /// True when nothing is runnable: the executor may run a newcomer at once.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The policies that exist.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PolicyKind {
    /// First come, first served over all tenants.
    #[default]
    Fifo,
}

impl PolicyKind {
    /// A fresh policy with room for `slots` runnable commands.
    pub fn build(self, slots: usize) -> Box<dyn Policy> {
        match self {
            PolicyKind::Fifo => Box::new(crate::Fifo::with_capacity(slots)),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyKind::Fifo => f.write_str("fifo"),
        }
    }
}

/// A policy name that this build does not know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownPolicy(pub String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown scheduling policy {:?} (this version has: fifo)", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(s: &str) -> Result<Self, UnknownPolicy> {
        match s {
            "fifo" => Ok(PolicyKind::Fifo),
            other => Err(UnknownPolicy(other.to_owned())),
        }
    }
}
