//! What CFS and EEVDF share: virtual time, members that are charged in it, and what a level of the hierarchy must do.

use super::tree::Nodes;
use crate::policy::WEIGHT_DEFAULT;

/// Virtual time: device time over weight. Fixed point, so that the largest weight still advances by each nanosecond;
/// 128 bits, so that it never ends.
pub(crate) type Virtual = i128;

/// Fraction bits of [`Virtual`].
const FRACTION: u32 = 24;

/// A charge is cut here (13 days), so that a broken clock cannot break the arithmetic.
const CHARGE_NS_MAX: u64 = 1 << 50;

/// How much one 1024th of memory over the share delays a tenant: twice the share is 4 ms later.
const PRESSURE_NS: u64 = 4096;

/// The longest delay for memory: later, but never starved.
const PRESSURE_NS_MAX: u64 = 16_000_000;

/// The request of a command that names none.
const REQUEST_NS_DEFAULT: u64 = 100_000;

/// Virtual time in nanoseconds.
pub(crate) fn in_ns(v: Virtual) -> i128 {
    v >> FRACTION
}

/// Nanoseconds as virtual time of weight 1.
pub(crate) fn of_ns(ns: i128) -> Virtual {
    ns << FRACTION
}

/// A tenant or an inode queue: something with a weight that is charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Virtual runtime.
    pub(crate) v: Virtual,
    /// Where its present request begins (EEVDF); never above `v`.
    pub(crate) begin: Virtual,
    /// Where its present request ends (EEVDF).
    pub(crate) deadline: Virtual,
    /// Added to its key: memory pressure.
    pub(crate) later: i64,
    /// Virtual time per nanosecond.
    pub(crate) rate: u64,
    /// Weight, 1024ths.
    pub(crate) weight: u32,
    /// When it was queued, counted in insertions: what its key ends with.
    pub(crate) order: u64,
    /// Has something runnable: stands in its level.
    pub(crate) queued: bool,
    /// Was placed once: has a virtual runtime of its own.
    pub(crate) known: bool,
    /// Expected length of its slices, nanoseconds.
    pub(crate) request_ns: u32,
}

impl Default for Member {
    fn default() -> Member {
        Member::new(WEIGHT_DEFAULT)
    }
}

impl Member {
    pub(crate) fn new(weight: u32) -> Member {
        let mut member = Member {
            v: 0,
            begin: 0,
            deadline: 0,
            later: 0,
            rate: 0,
            weight: 0,
            order: 0,
            queued: false,
            known: false,
            request_ns: REQUEST_NS_DEFAULT as u32,
        };
        member.set_weight(weight);
        member
    }

    pub(crate) fn set_weight(&mut self, weight: u32) {
        self.weight = weight;
        let one = (u64::from(WEIGHT_DEFAULT)) << FRACTION;
        self.rate = (one + u64::from(weight) / 2) / u64::from(weight);
    }

    pub(crate) fn set_pressure(&mut self, over: u32) {
        self.later = ((u64::from(over) * PRESSURE_NS).min(PRESSURE_NS_MAX) << FRACTION) as i64;
    }

    pub(crate) fn set_request(&mut self, request_ns: u64) {
        let request = if request_ns == 0 { REQUEST_NS_DEFAULT } else { request_ns };
        self.request_ns = u32::try_from(request).unwrap_or(u32::MAX);
    }

    /// What `ns` of device time are for this member.
    pub(crate) fn virtual_of(&self, ns: u64) -> Virtual {
        (u128::from(ns.min(CHARGE_NS_MAX)) * u128::from(self.rate)) as i128
    }

    /// Begins a request at its virtual runtime.
    pub(crate) fn renew(&mut self) {
        self.begin = self.v;
        self.deadline = self.v + self.virtual_of(u64::from(self.request_ns));
    }

    /// How far a member may be behind the reference when it comes: what it is owed for a short sleep, and what memory
    /// pressure holds back.
    pub(crate) fn slack(&self, credit_ns: u64) -> Virtual {
        self.virtual_of(credit_ns) + Virtual::from(self.later)
    }
}

/// An order of members by virtual time: the tenants of a device, or the inode queues of a tenant. Members live with
/// the caller and are handed in beside their number.
pub(crate) trait Level: Default + Send {
    /// The policy's name.
    const NAME: &'static str;
    /// Queues a member that has been placed.
    fn insert(&mut self, nodes: &mut Nodes, member: &mut Member, id: u32);
    /// Takes a queued member out.
    fn remove(&mut self, nodes: &mut Nodes, member: &mut Member);
    /// The member that is to be served next.
    fn first(&mut self, nodes: &mut Nodes) -> Option<u32>;
    /// Advances a queued member by `delta`.
    fn charge(&mut self, nodes: &mut Nodes, member: &mut Member, id: u32, delta: Virtual);
    /// Where a newcomer starts.
    fn reference(&self) -> Virtual;
    /// True when `v` is behind where a newcomer starts.
    fn is_behind(&self, v: Virtual) -> bool;
    /// Where a member is placed that becomes runnable: a newcomer at the reference, one that comes back at its own
    /// runtime, but not further behind the reference than `credit_ns` of its device time. So nothing is earned by
    /// having slept but that credit, and nothing is lost by having slept briefly.
    fn placed(&self, member: &Member, credit_ns: u64) -> Virtual {
        if !member.known {
            self.reference()
        } else if self.is_behind(member.v + member.slack(credit_ns)) {
            self.reference() - member.slack(credit_ns)
        } else {
            member.v
        }
    }
    /// By what two members that are both to be served are compared, smallest first.
    fn rank(member: &Member) -> Virtual;
    /// True when one of the queued is to be served before a member of rank `rank`.
    fn better_than(&self, rank: Virtual) -> bool;
    /// Starts virtual time at `reference`; only while nothing is queued.
    fn restart(&mut self, reference: Virtual);
}
