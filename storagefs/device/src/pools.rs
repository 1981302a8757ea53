//! How much shared memory is given out: pools of queue pairs, and transactions that are being collected.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use weldfs_ciscops::Errno;
use weldfs_session::tenants::{Resource, Tenant};

use crate::limits::QUEUES_MAX;

/// The budget of one device. Thread-safe.
pub(super) struct PoolBudget {
    bytes: AtomicU64,
    queues: AtomicUsize,
    bytes_max: u64,
}

impl PoolBudget {
    /// Of a device that gives out so many bytes at most.
    pub fn new(bytes_max: u64) -> PoolBudget {
        PoolBudget { bytes: AtomicU64::new(0), queues: AtomicUsize::new(0), bytes_max }
    }

    /// Takes shared memory for a queue pair of `tenant`. ENOMEM or EMFILE at the device's or the tenant's limits.
    pub fn charge(&self, tenant: &Tenant, bytes: u64) -> Result<(), Errno> {
        if !tenant.take(Resource::QueuePairs, 1) {
            return Err(Errno::MFILE);
        }
        if !tenant.take(Resource::PoolBytes, bytes) {
            tenant.give(Resource::QueuePairs, 1);
            return Err(Errno::NOMEM);
        }
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let queues = self.queues.fetch_add(1, Ordering::AcqRel);
        if before + bytes <= self.bytes_max && queues < QUEUES_MAX {
            return Ok(());
        }
        self.release(tenant, bytes);
        Err(if queues < QUEUES_MAX { Errno::NOMEM } else { Errno::MFILE })
    }

    /// Gives it back.
    pub fn release(&self, tenant: &Tenant, bytes: u64) {
        tenant.give(Resource::QueuePairs, 1);
        tenant.give(Resource::PoolBytes, bytes);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.queues.fetch_sub(1, Ordering::AcqRel);
    }

    /// Charges memory in which a session collects a transaction: it counts as pool memory. ENOMEM.
    pub fn charge_staged(&self, tenant: &Tenant, bytes: u64) -> Result<(), Errno> {
        if !tenant.take(Resource::PoolBytes, bytes) {
            return Err(Errno::NOMEM);
        }
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes <= self.bytes_max {
            return Ok(());
        }
        self.release_staged(tenant, bytes);
        Err(Errno::NOMEM)
    }

    /// Gives it back.
    pub fn release_staged(&self, tenant: &Tenant, bytes: u64) {
        tenant.give(Resource::PoolBytes, bytes);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Queue pairs alive, and the bytes given out.
    pub fn usage(&self) -> (usize, u64) {
        (self.queues.load(Ordering::Acquire), self.bytes.load(Ordering::Acquire))
    }
}
