//! An attached client of a host directory, as the threads that serve know it: its handles and queue pairs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use weldfs_ciscops::limits::HANDLES_MAX;
use weldfs_ciscops::{Errno, Handle, SessionLimits, SharedRegion};
use weldfs_locks::{Mutex, MutexGuard};

use super::budget::Budget;
use super::pace::Pace;
use weldfs_fs::keys::Keys;
use weldfs_session::counters::{QueueCounters, Totals};
use weldfs_session::ofd::{Description, Handles};
use weldfs_session::pair::{Ends, Pair};
use weldfs_session::rings::QueueParts;
use weldfs_session::rings::{Fresh, Pools, Ring, Rings};
use weldfs_session::tenants::Tenant;
use weldfs_store::cred::Cred;

/// What a description holds open: the host's own descriptor.
pub struct HostFile {
    /// Opened with the rights of the session that opened it.
    pub fd: OwnedFd,
    /// st_mode when it was opened.
    pub mode: u32,
    /// One listing of a directory at a time: they share the descriptor's position.
    pub walk: Mutex<()>,
}

/// A session. Thread-safe.
pub struct SessionState {
    /// Number, never reused in this run.
    pub id: u64,
    /// Who is charged.
    pub tenant: Arc<Tenant>,
    /// The client's 128-bit id.
    pub client_id: [u8; 16],
    /// With whose rights its commands run.
    pub cred: Cred,
    /// Its handles.
    pub handles: Handles<HostFile>,
    /// Its keys.
    pub keys: Keys,
    /// Its doorbell.
    pub doorbell: Arc<OwnedFd>,
    /// Whether the file it named last for creation was missing: the next one probably is, too.
    pub makes_new: AtomicBool,
    budget: Arc<Budget>,
    pub(super) rings: Rings<QueueState>,
}

/// What all holders of a queue pair share.
pub struct QueueState {
    /// Whose it is: the queue a command arrives on is its identity.
    pub session: Arc<SessionState>,
    /// Number within the session.
    pub index: u32,
    /// The buffer pool.
    pub pool: SharedRegion,
    /// What the decoder must know.
    pub limits: SessionLimits,
    /// Counters.
    pub counters: QueueCounters,
    /// This side's ends of the rings.
    pub pair: Pair,
    /// Commands of it that have been cut and are not over: no further one is taken meanwhile, so that there are no more
    /// of them than rings, or a few.
    pub cut: AtomicUsize,
    /// How long its commands take.
    pub pace: Pace,
}

impl QueueState {
    /// Makes visible to the client what was posted.
    pub fn publish(&self) {
        let mut ends = self.pair.ends();
        let asleep = ends.publish_asleep();
        self.wake(ends, asleep);
    }

    /// Wakes the client, if it sleeps: without the ends, which others need meanwhile.
    pub fn wake(&self, ends: MutexGuard<'_, Ends>, asleep: bool) {
        self.counters.client_wakes.add(u64::from(asleep));
        drop(ends);
        if asleep {
            self.pair.wake();
        }
    }

    /// Whether a command may be taken from it.
    pub fn is_worth_a_look(&self) -> bool {
        self.pair.is_worth_a_look() && self.cut.load(Ordering::Acquire) == 0
    }
}

impl SessionState {
    pub(super) fn new(
        id: u64,
        (cred, client_id): (Cred, [u8; 16]),
        tenant: Arc<Tenant>,
        handles_max: u32,
        budget: Arc<Budget>,
    ) -> Result<SessionState, Errno> {
        Ok(SessionState {
            id,
            client_id,
            cred,
            handles: Handles::new(handles_max.min(HANDLES_MAX), tenant.clone()),
            tenant,
            doorbell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            keys: Keys::default(),
            makes_new: AtomicBool::new(true),
            budget,
            rings: Rings::default(),
        })
    }

    /// True once the session is ending.
    pub fn closing(&self) -> bool {
        self.rings.closing()
    }

    /// Since when, on the device's clock.
    pub(super) fn closed_at(&self) -> Option<u64> {
        self.rings.closed_at()
    }

    /// A new queue pair of so many commands and bytes, which `place` hands to the thread that looks at rings.
    pub(super) fn new_queue(
        self: &Arc<Self>,
        parts: (u32, u32, bool),
        place: impl FnOnce(Arc<QueueState>),
    ) -> Result<QueueParts, Errno> {
        let make = |fresh: Fresh| {
            Arc::new(QueueState {
                session: self.clone(),
                index: fresh.index,
                pool: fresh.pool,
                limits: fresh.limits,
                counters: QueueCounters::default(),
                pair: Pair::new(fresh.memory, 0),
                cut: AtomicUsize::new(0),
                pace: Pace::default(),
            })
        };
        self.rings.add(parts, (&**self, &self.doorbell), make, place)
    }

    /// What gives back what a queue pair's memory was charged, when that is gone.
    pub(super) fn refund(self: &Arc<Self>, bytes: u64) -> impl FnOnce(u64) + Send + 'static {
        let (session, tenant, budget) = (Arc::downgrade(self), self.tenant.clone(), self.budget.clone());
        move |_| {
            if let Some(session) = session.upgrade() {
                session.rings.give_bytes(bytes);
            }
            budget.release(&tenant, bytes);
        }
    }

    /// Everything counted for this session.
    pub fn totals(&self) -> Totals {
        self.rings.totals()
    }

    /// Its queue pairs.
    pub(super) fn queues(&self) -> Vec<Arc<QueueState>> {
        self.rings.list()
    }

    pub(super) fn description(&self, h: Handle) -> Result<Arc<Description<HostFile>>, Errno> {
        self.handles.get(h)
    }
}

impl Ring for QueueState {
    fn counters(&self) -> &QueueCounters {
        &self.counters
    }
}

impl Pools for SessionState {
    fn charge(&self, bytes: u64) -> Result<(), Errno> {
        self.budget.charge(&self.tenant, bytes)
    }

    fn release(&self, bytes: u64) {
        self.budget.release(&self.tenant, bytes);
    }
}
