//! CFS and EEVDF: two levels of virtual time, tenants over inode queues over commands.
//!
//! A pick asks the level of tenants for the next tenant, that tenant's level for the next inode queue, and takes the
//! oldest command there. A charge advances tenant and inode queue, each by its own weight. Members that run out of
//! commands leave their level and keep their virtual runtime; they come back at it, or at most a bounded credit
//! behind the level's reference. The credit covers the gaps between a command's end and the client's next one.

mod cfs;
mod eevdf;
mod level;
#[cfg(test)]
mod tests;
mod tree;

use crate::policy::{
    Cost, Entry, Policy, PolicyState, QueueState, Queued, TenantId, TenantState, Token, WEIGHT_DEFAULT,
};
use crate::queues::Queues;
use crate::weights::Weights;
use level::{Level, Member, Virtual, in_ns, of_ns};
use tree::Nodes;

/// The queue of a tenant that holds what was boosted into its place. No inode has this number.
const BOOSTED: u64 = u64::MAX;

/// The credit for having slept: this many of the longest recent slices,
const CREDIT_SLICES: u64 = 4;
/// but at least this, nanoseconds of the sleeper's device time,
const CREDIT_NS_MIN: u64 = 1_000_000;
/// and never more than this.
const CREDIT_NS_MAX: u64 = 50_000_000;

/// Completely fair scheduling: see [`Fair`].
pub(crate) type Cfs = Fair<cfs::ByRuntime>;
/// Earliest eligible virtual deadline first: see [`Fair`].
pub(crate) type Eevdf = Fair<eevdf::ByDeadline>;

struct Group<L> {
    member: Member,
    pressure: u32,
    queues: L,
    runnable: u32,
    runnable_queues: u32,
}

/// Virtual time as reports have it: nanoseconds, within 64 bits.
fn reported(v: Virtual) -> u64 {
    in_ns(v).clamp(0, u64::MAX.into()) as u64
}

/// A virtual-time policy over two levels of members.
pub(crate) struct Fair<L: Level> {
    tenants: L,
    groups: Vec<Group<L>>,
    queues: Queues<Member>,
    nodes: Nodes,
    weights: Weights,
    slice_ns: u64,
}

impl<L: Level> Fair<L> {
    /// A policy that does not allocate while at most `slots` commands are runnable and no new tenant comes.
    pub(crate) fn with_capacity(slots: usize) -> Fair<L> {
        let mut nodes = Nodes::default();
        nodes.grow(slots);
        Fair {
            tenants: L::default(),
            groups: Vec::new(),
            queues: Queues::with_capacity(slots),
            nodes,
            weights: Weights::default(),
            slice_ns: 0,
        }
    }

    #[inline]
    fn register(&mut self, tenant: TenantId) {
        if self.groups.len() <= tenant.0 as usize {
            self.register_up_to(tenant.0 as usize + 1);
        }
    }

    #[cold]
    fn register_up_to(&mut self, wanted: usize) {
        self.nodes.grow(wanted - self.groups.len());
        self.groups.resize_with(wanted, || Group {
            member: Member::new(WEIGHT_DEFAULT),
            pressure: 0,
            queues: L::default(),
            runnable: 0,
            runnable_queues: 0,
        });
    }

    fn credit_ns(&self) -> u64 {
        (CREDIT_SLICES * self.slice_ns).clamp(CREDIT_NS_MIN, CREDIT_NS_MAX)
    }

    fn queue_for(&mut self, tenant: TenantId, inode: u64) -> u32 {
        let weights = &self.weights;
        self.queues.find_or_make(tenant, inode, || Member::new(weights.of_inode(tenant, inode)))
    }

    /// Appends an entry to a queue; what was empty so far is placed in its level.
    fn push(&mut self, queue: u32, entry: Entry, arrival: Option<u64>) {
        let credit = self.credit_ns();
        let was_empty = match arrival {
            None => self.queues.push(queue, entry),
            Some(arrival) => self.queues.push_at(queue, entry, arrival),
        };
        let q = self.queues.get(queue);
        let group = &mut self.groups[q.tenant.0 as usize];
        group.runnable += 1;
        if was_empty {
            q.data.set_request(entry.request_ns);
            q.data.v = group.queues.placed(&q.data, credit);
            q.data.known = true;
            group.queues.insert(&mut self.nodes, &mut q.data, queue);
            group.runnable_queues += 1;
        }
        if !group.member.queued {
            group.member.set_request(entry.request_ns);
            group.member.v = self.tenants.placed(&group.member, credit);
            group.member.known = true;
            self.tenants.insert(&mut self.nodes, &mut group.member, q.tenant.0);
        }
    }

    /// After an entry left `queue`: what is empty now leaves its level.
    fn popped(&mut self, queue: u32) {
        let empty = self.queues.depth(queue) == 0;
        let q = self.queues.get(queue);
        let group = &mut self.groups[q.tenant.0 as usize];
        group.runnable -= 1;
        if empty {
            group.queues.remove(&mut self.nodes, &mut q.data);
            group.runnable_queues -= 1;
            if group.runnable == 0 {
                self.tenants.remove(&mut self.nodes, &mut group.member);
            }
        }
    }

    /// Changes a tenant's member, wherever it stands.
    fn change_tenant(&mut self, tenant: TenantId, change: impl FnOnce(&mut Member)) {
        let member = &mut self.groups[tenant.0 as usize].member;
        if member.queued {
            self.tenants.remove(&mut self.nodes, member);
            change(member);
            self.tenants.insert(&mut self.nodes, member, tenant.0);
        } else {
            change(member);
        }
    }

    /// True when a queued token would be picked now, or is to be served before anything of `waiter`.
    fn is_before(&mut self, token: Token, queue: u32, waiter: TenantId) -> bool {
        let own = self.queues.get(queue).tenant;
        if own == waiter {
            return true;
        }
        let credit = self.credit_ns();
        let group = &mut self.groups[own.0 as usize];
        if self.queues.head(queue) != Some(token) || group.queues.first(&mut self.nodes) != Some(queue) {
            return false;
        }
        let mine = L::rank(&group.member);
        let mut other = self.groups[waiter.0 as usize].member;
        if !other.queued {
            other.v = self.tenants.placed(&other, credit);
            other.renew();
        }
        mine <= L::rank(&other)
    }
}

impl<L: Level> Policy for Fair<L> {
    fn name(&self) -> &'static str {
        L::NAME
    }

    fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        self.register(tenant);
        let weight = self.weights.set(tenant, weight);
        self.change_tenant(tenant, |member| member.set_weight(weight));
    }

    fn set_inode_weight(&mut self, tenant: TenantId, inode: u64, weight: u32) {
        self.register(tenant);
        let weight = self.weights.set_inode(tenant, inode, weight);
        let Some(queue) = self.queues.find(tenant, inode) else { return };
        let level = &mut self.groups[tenant.0 as usize].queues;
        let member = &mut self.queues.get(queue).data;
        if member.queued {
            level.remove(&mut self.nodes, member);
            member.set_weight(weight);
            level.insert(&mut self.nodes, member, queue);
        } else {
            member.set_weight(weight);
        }
    }

    fn set_pressure(&mut self, tenant: TenantId, over: u32) {
        self.register(tenant);
        self.weights.set_pressure(tenant, over);
        let group = &mut self.groups[tenant.0 as usize];
        if std::mem::replace(&mut group.pressure, over) != over {
            self.change_tenant(tenant, |member| member.set_pressure(over));
        }
    }

    fn enqueue(&mut self, entry: Entry) {
        self.register(entry.tenant);
        let queue = self.queue_for(entry.tenant, entry.inode);
        self.push(queue, entry, None);
    }

    fn pick(&mut self) -> Option<Entry> {
        let tenant = self.tenants.first(&mut self.nodes)?;
        let queue = self.groups[tenant as usize].queues.first(&mut self.nodes)?;
        let entry = self.queues.pop(queue)?;
        self.popped(queue);
        Some(entry)
    }

    fn account(&mut self, tenant: TenantId, inode: u64, cost: Cost) {
        self.register(tenant);
        self.slice_ns = cost.time_ns.max(self.slice_ns - self.slice_ns / 128);
        let group = &mut self.groups[tenant.0 as usize];
        let delta = group.member.virtual_of(cost.time_ns);
        if group.member.queued {
            self.tenants.charge(&mut self.nodes, &mut group.member, tenant.0, delta);
        } else {
            group.member.v += delta;
        }
        let Some(queue) = self.queues.find(tenant, inode) else { return };
        let member = &mut self.queues.get(queue).data;
        let delta = member.virtual_of(cost.time_ns);
        if member.queued {
            group.queues.charge(&mut self.nodes, member, queue, delta);
        } else {
            member.v += delta;
        }
    }

    fn remove(&mut self, token: Token) -> Option<Entry> {
        let queue = self.queues.holds(token)?;
        let (entry, _) = self.queues.take(token)?;
        self.popped(queue);
        Some(entry)
    }

    fn boost(&mut self, token: Token, waiter: TenantId) -> bool {
        let Some(queue) = self.queues.holds(token) else { return false };
        self.register(waiter);
        if !self.is_before(token, queue, waiter)
            && let Some((entry, arrival)) = self.queues.take(token)
        {
            self.popped(queue);
            let place = self.queue_for(waiter, BOOSTED);
            self.push(place, entry, Some(arrival));
        }
        true
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    /// True when another tenant is to be served before `running` once that is charged for `ran_ns`. Within a tenant
    /// always: which of its queues is next shows when it is charged.
    fn preempts(&self, running: TenantId, ran_ns: u64) -> bool {
        let Some(group) = self.groups.get(running.0 as usize) else { return !self.is_empty() };
        if group.runnable > 0 {
            return true;
        }
        let mut member = group.member;
        member.v += member.virtual_of(ran_ns);
        member.renew();
        self.tenants.better_than(L::rank(&member))
    }

    fn state(&self) -> PolicyState {
        let reference = self.tenants.reference();
        let tenants = self.groups.iter().enumerate().map(|(at, group)| TenantState {
            tenant: TenantId(at as u32),
            weight: group.member.weight,
            pressure: group.pressure,
            vruntime_ns: reported(group.member.v),
            lag_ns: in_ns(reference - group.member.v).clamp(i64::MIN.into(), i64::MAX.into()) as i64,
            runnable: group.runnable,
            queues: group.runnable_queues,
        });
        PolicyState {
            policy: L::NAME,
            min_vruntime_ns: reported(reference),
            tenants: tenants.collect(),
            inode_weights: self.weights.inodes(),
        }
    }

    fn queues(&self) -> Vec<QueueState> {
        let remembered = self.queues.iter().filter(|(q, _)| q.inode != BOOSTED);
        let state = remembered.map(|(q, runnable)| QueueState {
            tenant: q.tenant,
            inode: q.inode,
            weight: q.data.weight,
            vruntime_ns: reported(q.data.v),
            runnable,
        });
        state.collect()
    }

    fn adopt(&mut self, from: &PolicyState) {
        self.weights.adopt(from);
        for t in &from.tenants {
            self.register(t.tenant);
            let group = &mut self.groups[t.tenant.0 as usize];
            group.member.set_weight(t.weight);
            group.member.set_pressure(t.pressure);
            group.pressure = t.pressure;
            group.member.v = of_ns(i128::from(t.vruntime_ns));
            group.member.known = true;
        }
        self.tenants.restart(of_ns(i128::from(from.min_vruntime_ns)));
    }

    fn drain(&mut self) -> Vec<Queued> {
        let entries = self.queues.in_order();
        let drained = entries.into_iter().map(|(entry, queue)| {
            let place = self.queues.get(queue);
            let boosted = (place.inode == BOOSTED).then_some(place.tenant);
            self.remove(entry.token);
            Queued { entry, boosted }
        });
        drained.collect()
    }
}
