//! Queue pairs of all sessions, and the bytes of their memory: how many there are, and who is charged.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use weldfs_ciscops::Errno;
use weldfs_session::limits::QUEUES_MAX;
use weldfs_session::tenants::{Resource, Tenant};

/// See the module.
#[derive(Default)]
pub(super) struct Budget {
    queues: AtomicUsize,
    bytes: AtomicU64,
}

impl Budget {
    /// Charges a tenant for one more. EMFILE or ENOMEM.
    pub fn charge(&self, tenant: &Tenant, bytes: u64) -> Result<(), Errno> {
        if self.queues.fetch_add(1, Ordering::Relaxed) >= QUEUES_MAX || !tenant.take(Resource::QueuePairs, 1) {
            self.queues.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::MFILE);
        }
        if !tenant.take(Resource::PoolBytes, bytes) {
            tenant.give(Resource::QueuePairs, 1);
            self.queues.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::NOMEM);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives it back.
    pub fn release(&self, tenant: &Tenant, bytes: u64) {
        tenant.give(Resource::PoolBytes, bytes);
        tenant.give(Resource::QueuePairs, 1);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }

    /// Queue pairs and the bytes of their memory.
    pub fn used(&self) -> (usize, u64) {
        (self.queues.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}
