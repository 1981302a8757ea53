//! The policies that exist, by name.

use std::fmt;
use std::str::FromStr;

use crate::policy::Policy;

/// The policies that exist.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PolicyKind {
    /// First come, first served over all tenants.
    Fifo,
    /// Inode queues in turn, over all tenants.
    Rr,
    /// The smallest virtual runtime first: tenants, then their inode queues.
    #[default]
    Cfs,
    /// The earliest eligible virtual deadline first: tenants, then their inode queues.
    Eevdf,
}

impl PolicyKind {
    /// All of them, simplest first.
    pub const ALL: [PolicyKind; 4] = [PolicyKind::Fifo, PolicyKind::Rr, PolicyKind::Cfs, PolicyKind::Eevdf];

    /// A fresh policy with room for `slots` runnable commands.
    pub fn build(self, slots: usize) -> Box<dyn Policy> {
        match self {
            PolicyKind::Fifo => Box::new(crate::fifo::Fifo::with_capacity(slots)),
            PolicyKind::Rr => Box::new(crate::rr::RoundRobin::with_capacity(slots)),
            PolicyKind::Cfs => Box::new(crate::fair::Cfs::with_capacity(slots)),
            PolicyKind::Eevdf => Box::new(crate::fair::Eevdf::with_capacity(slots)),
        }
    }

    /// The name as the command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Fifo => "fifo",
            PolicyKind::Rr => "rr",
            PolicyKind::Cfs => "cfs",
            PolicyKind::Eevdf => "eevdf",
        }
    }
}

/// Replaces a policy by one of another kind: weights, relative virtual times (where both keep any), entries and boosts
/// go over; nothing is lost and nothing is doubled. Entries of one (tenant, inode) keep their order.
pub fn switch(old: &mut dyn Policy, kind: PolicyKind, slots: usize) -> Box<dyn Policy> {
    let mut new = kind.build(slots);
    new.adopt(&old.state());
    let entries = old.drain();
    for q in &entries {
        new.enqueue(q.entry);
    }
    for q in &entries {
        if let Some(waiter) = q.boosted {
            new.boost(q.entry.token, waiter);
        }
    }
    new
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A policy name that this build does not know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownPolicy(pub String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown scheduling policy {:?} (this version has:", self.0)?;
        PolicyKind::ALL.iter().try_for_each(|kind| write!(f, " {kind}"))?;
        f.write_str(")")
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(s: &str) -> Result<Self, UnknownPolicy> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name() == s).ok_or_else(|| UnknownPolicy(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_known_by_the_name_of_the_policy_it_builds_and_no_other_name_is() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.build(4).name(), kind.to_string());
        }
        assert!("lottery".parse::<PolicyKind>().is_err());
        assert!("".parse::<PolicyKind>().is_err());
    }
}
