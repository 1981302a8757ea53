//! Weights and memory pressure that were set: what every policy keeps, whether it uses them or only hands them on.

use std::collections::BTreeMap;

use crate::policy::{PolicyState, TenantId, TenantState, WEIGHT_DEFAULT, WEIGHT_MAX};

#[derive(Debug)]
struct OfTenant {
    weight: u32,
    pressure: u32,
}

/// What was set for tenants and inode queues.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    tenants: Vec<OfTenant>,
    inodes: BTreeMap<(TenantId, u64), u32>,
}

impl Weights {
    fn tenant(&mut self, tenant: TenantId) -> &mut OfTenant {
        let at = tenant.0 as usize;
        if self.tenants.len() <= at {
            self.tenants.resize_with(at + 1, || OfTenant { weight: WEIGHT_DEFAULT, pressure: 0 });
        }
        &mut self.tenants[at]
    }

    /// Remembers a weight; gives it back within its bounds.
    pub(crate) fn set(&mut self, tenant: TenantId, weight: u32) -> u32 {
        let weight = weight.clamp(1, WEIGHT_MAX);
        self.tenant(tenant).weight = weight;
        weight
    }

    /// Remembers an inode queue's weight; gives it back within its bounds.
    pub(crate) fn set_inode(&mut self, tenant: TenantId, inode: u64, weight: u32) -> u32 {
        let weight = weight.clamp(1, WEIGHT_MAX);
        if weight == WEIGHT_DEFAULT {
            self.inodes.remove(&(tenant, inode));
        } else {
            self.inodes.insert((tenant, inode), weight);
        }
        weight
    }

    /// An inode queue's weight.
    pub(crate) fn of_inode(&self, tenant: TenantId, inode: u64) -> u32 {
        if self.inodes.is_empty() {
            return WEIGHT_DEFAULT;
        }
        self.inodes.get(&(tenant, inode)).copied().unwrap_or(WEIGHT_DEFAULT)
    }

    /// All weights of inode queues that were set.
    pub(crate) fn inodes(&self) -> Vec<(TenantId, u64, u32)> {
        self.inodes.iter().map(|(&(tenant, inode), &weight)| (tenant, inode, weight)).collect()
    }

    /// Remembers how far a tenant is over its share of memory.
    pub(crate) fn set_pressure(&mut self, tenant: TenantId, over: u32) {
        self.tenant(tenant).pressure = over;
    }

    /// Everything of another policy but its virtual times.
    pub(crate) fn adopt(&mut self, from: &PolicyState) {
        for t in &from.tenants {
            *self.tenant(t.tenant) = OfTenant { weight: t.weight, pressure: t.pressure };
        }
        self.inodes = from.inode_weights.iter().map(|&(tenant, inode, weight)| ((tenant, inode), weight)).collect();
    }

    /// The state of a policy that keeps no virtual times. `runnable` counts (commands, queues) of a tenant.
    pub(crate) fn state(&self, policy: &'static str, runnable: &BTreeMap<TenantId, (u32, u32)>) -> PolicyState {
        let seen = runnable.keys().next_back().map_or(0, |t| t.0 as usize + 1).max(self.tenants.len());
        let tenants = (0..seen).map(|at| {
            let tenant = TenantId(at as u32);
            let (weight, pressure) = self.tenants.get(at).map_or((WEIGHT_DEFAULT, 0), |t| (t.weight, t.pressure));
            let (runnable, queues) = runnable.get(&tenant).copied().unwrap_or_default();
            TenantState { tenant, weight, pressure, vruntime_ns: 0, lag_ns: 0, runnable, queues }
        });
        PolicyState { policy, min_vruntime_ns: 0, tenants: tenants.collect(), inode_weights: self.inodes() }
    }
}
