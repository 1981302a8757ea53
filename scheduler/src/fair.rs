//! CFS and EEVDF: two levels of virtual time, tenants over inode queues over commands.
//!
//! A pick asks the level of tenants for the next tenant, that tenant's level for the next inode queue, and takes the
//! oldest command there. A charge advances tenant and inode queue, each by its own weight. Members that run out of
//! commands leave their level and keep their virtual runtime; they come back at it, or at most a bounded credit
//! behind the level's reference. The credit covers the gaps between a command's end and the client's next one.
//!
//! A command that holds what another tenant waits for may be picked in that tenant's place, too. For this the tenant,
//! the
//! *lender*, has a second member among the tenants: its *proxy*, queued while there are such commands. A proxy is never
//! before its lender; what commands use that are picked through it advances the proxy and not the lender, and what the
//! lender uses itself advances both. So the lender and what is done in its place get what one tenant gets, the lender
//! pays for nothing but its own, and commands are charged to their own tenants as ever: tenants that wait for each
//! other on purpose get no more than their shares together.

mod cfs;
mod eevdf;
mod lent;
mod level;
#[cfg(test)]
mod tests;
mod tree;

use crate::policy::{
    Cost, Entry, Policy, PolicyState, QueueState, Queued, TenantId, TenantState, Token, WEIGHT_DEFAULT,
};
use crate::queues::Queues;
use crate::weights::Weights;
use lent::{List, Places};
use level::{Level, Member, Virtual, in_ns, of_ns};
use tree::Nodes;

/// Added to a tenant's number: its proxy's number in the level of tenants.
const PROXY: u32 = 1 << 31;

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
    /// Stands among the tenants while `lends` is not empty.
    proxy: Member,
    /// How far the proxy is ahead of the tenant while it is not queued; not below 0.
    lent: Virtual,
    /// What may be picked in its place.
    lends: List,
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
    boosts: Places,
    /// In whose place the command was picked that was picked last.
    lender: Option<TenantId>,
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
            boosts: Places::with_capacity(slots),
            lender: None,
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
        self.nodes.grow(2 * (wanted - self.groups.len()));
        self.groups.resize_with(wanted, || Group {
            member: Member::new(WEIGHT_DEFAULT),
            pressure: 0,
            queues: L::default(),
            runnable: 0,
            runnable_queues: 0,
            proxy: Member::new(WEIGHT_DEFAULT),
            lent: 0,
            lends: List::default(),
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
    fn push(&mut self, queue: u32, entry: Entry) {
        let credit = self.credit_ns();
        let was_empty = self.queues.push(queue, entry);
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
            let before = group.member.v;
            group.member.v = self.tenants.placed(&group.member, credit);
            group.member.known = true;
            self.tenants.insert(&mut self.nodes, &mut group.member, q.tenant.0);
            if group.lent != 0 || group.proxy.queued {
                let tenant = q.tenant;
                self.forgive(tenant, before);
            }
        }
    }

    /// A lender was placed, further than it was `before`: what it did not use in the meantime it had lent.
    #[cold]
    fn forgive(&mut self, lender: TenantId, before: Virtual) {
        let group = &mut self.groups[lender.0 as usize];
        let (member, proxy) = (&group.member, &mut group.proxy);
        if !proxy.queued {
            group.lent = (group.lent - (member.v - before)).max(0);
        } else if proxy.v < member.v {
            self.tenants.remove(&mut self.nodes, proxy);
            proxy.v = member.v;
            self.tenants.insert(&mut self.nodes, proxy, lender.0 | PROXY);
        }
    }

    /// Queues the proxy of a lender: where the lender is or would be, and not before where it was left.
    fn queue_proxy(&mut self, lender: TenantId, request_ns: u64) {
        let credit = self.credit_ns();
        let group = &mut self.groups[lender.0 as usize];
        let own = if group.member.queued { group.member.v } else { self.tenants.placed(&group.member, credit) };
        group.proxy.v = own.max(group.member.v + group.lent);
        group.proxy.set_request(request_ns);
        self.tenants.insert(&mut self.nodes, &mut group.proxy, lender.0 | PROXY);
    }

    /// Takes a command out of its lender's list, if it is in one.
    #[cold]
    fn take_back(&mut self, token: Token) {
        let Some(lender) = self.boosts.lender(token) else { return };
        let group = &mut self.groups[lender.0 as usize];
        if self.boosts.take(&mut group.lends, token) {
            group.lent = (group.proxy.v - group.member.v).max(0);
            self.tenants.remove(&mut self.nodes, &mut group.proxy);
        }
    }

    /// Picks the first command that stands in a lender's list.
    #[cold]
    fn pick_lent(&mut self, lender: u32) -> Option<Entry> {
        let token = self.groups[lender as usize].lends.first()?;
        self.lender = Some(TenantId(lender));
        self.remove(token)
    }

    /// After an entry left `queue`: what is empty now leaves its level.
    fn popped(&mut self, queue: u32, token: Token) {
        if !self.boosts.is_empty() {
            self.take_back(token);
        }
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

    /// Changes a tenant's member and its proxy, wherever they stand.
    fn change_tenant(&mut self, tenant: TenantId, change: impl Fn(&mut Member)) {
        let group = &mut self.groups[tenant.0 as usize];
        for (member, id) in [(&mut group.member, tenant.0), (&mut group.proxy, tenant.0 | PROXY)] {
            if member.queued {
                self.tenants.remove(&mut self.nodes, member);
                change(member);
                self.tenants.insert(&mut self.nodes, member, id);
            } else {
                change(member);
            }
        }
    }

    /// Charges a tenant, and its proxy with it.
    #[cfg_attr(not(feature = "steps"), inline)]
    #[cfg_attr(feature = "steps", inline(never))]
    fn charge_tenant(&mut self, tenant: TenantId, delta: Virtual) {
        let group = &mut self.groups[tenant.0 as usize];
        if group.member.queued {
            self.tenants.charge(&mut self.nodes, &mut group.member, tenant.0, delta);
        } else {
            group.member.v += delta;
        }
        if group.proxy.queued {
            self.tenants.charge(&mut self.nodes, &mut group.proxy, tenant.0 | PROXY, delta);
        }
    }

    /// Charges an inode queue, if it is remembered.
    #[cfg_attr(not(feature = "steps"), inline)]
    #[cfg_attr(feature = "steps", inline(never))]
    fn charge_queue(&mut self, tenant: TenantId, inode: u64, time_ns: u64) {
        let Some(queue) = self.queues.find(tenant, inode) else { return };
        let member = &mut self.queues.get(queue).data;
        let delta = member.virtual_of(time_ns);
        if member.queued {
            let group = &mut self.groups[tenant.0 as usize];
            group.queues.charge(&mut self.nodes, member, queue, delta);
        } else {
            member.v += delta;
        }
    }

    /// Notes what was used in a lender's place; gives what of it is charged to the tenant that used it. What is served
    /// for another's sake may be served however far its own tenant is ahead. A credit ahead it stays: it would not be
    /// served for as long, and under EEVDF would take the average with it, and so all that are placed at that.
    #[cold]
    fn charge_proxy(&mut self, tenant: TenantId, lender: TenantId, time_ns: u64) -> Virtual {
        self.register(lender);
        let (credit, reference) = (self.credit_ns(), self.tenants.reference());
        let own = &self.groups[tenant.0 as usize].member;
        let most = (reference + own.virtual_of(credit) - own.v).max(0);
        let charged = own.virtual_of(time_ns).min(most);
        let group = &mut self.groups[lender.0 as usize];
        let delta = group.proxy.virtual_of(time_ns);
        if group.proxy.queued {
            self.tenants.charge(&mut self.nodes, &mut group.proxy, lender.0 | PROXY, delta);
        } else {
            group.lent += delta;
        }
        charged
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
        self.push(queue, entry);
    }

    fn pick(&mut self) -> Option<Entry> {
        let tenant = self.tenants.first(&mut self.nodes)?;
        self.lender = None;
        if tenant & PROXY != 0 {
            return self.pick_lent(tenant & !PROXY);
        }
        let queue = self.groups[tenant as usize].queues.first(&mut self.nodes)?;
        let entry = self.queues.pop(queue)?;
        self.popped(queue, entry.token);
        Some(entry)
    }

    fn lender(&self) -> Option<TenantId> {
        self.lender
    }

    fn account(&mut self, tenant: TenantId, inode: u64, cost: Cost) {
        self.register(tenant);
        self.slice_ns = cost.time_ns.max(self.slice_ns - self.slice_ns / 128);
        let delta = match cost.lender {
            None => self.groups[tenant.0 as usize].member.virtual_of(cost.time_ns),
            Some(lender) => self.charge_proxy(tenant, lender, cost.time_ns),
        };
        self.charge_tenant(tenant, delta);
        self.charge_queue(tenant, inode, cost.queue_ns());
    }

    fn remove(&mut self, token: Token) -> Option<Entry> {
        let queue = self.queues.holds(token)?;
        let entry = self.queues.take(token)?;
        self.popped(queue, token);
        Some(entry)
    }

    fn boost(&mut self, token: Token, waiter: TenantId) -> bool {
        let Some(queue) = self.queues.holds(token) else { return false };
        let own = self.queues.get(queue).tenant;
        if self.boosts.lender(token) == Some(waiter) {
            return true;
        }
        self.take_back(token);
        if own != waiter {
            self.register(waiter);
            if self.boosts.add(&mut self.groups[waiter.0 as usize].lends, waiter, token) {
                let request_ns = self.queues.request_ns(token);
                self.queue_proxy(waiter, request_ns);
            }
        }
        true
    }

    fn unboost(&mut self, token: Token) {
        self.take_back(token);
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
        let state = self.queues.iter().map(|(q, runnable)| QueueState {
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
            for member in [&mut group.member, &mut group.proxy] {
                member.set_weight(t.weight);
                member.set_pressure(t.pressure);
            }
            group.pressure = t.pressure;
            group.member.v = of_ns(i128::from(t.vruntime_ns));
            group.member.known = true;
        }
        self.tenants.restart(of_ns(i128::from(from.min_vruntime_ns)));
    }

    fn drain(&mut self) -> Vec<Queued> {
        let entries = self.queues.in_order();
        let drained = entries.into_iter().map(|entry| {
            let boosted = self.boosts.lender(entry.token);
            self.remove(entry.token);
            Queued { entry, boosted }
        });
        drained.collect()
    }
}
