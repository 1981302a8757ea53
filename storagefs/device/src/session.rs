//! Sessions: one attached process, with the credentials the control plane gave it, its handles and its queue pairs.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use weldfs_ciscops::limits::HANDLES_MAX;
use weldfs_ciscops::program::Recent;
use weldfs_ciscops::{Errno, Handle, SessionLimits, SharedRegion};
use weldfs_fs::keys::Keys;
use weldfs_fs::{Cred, Fetching, HandleTable, OpenFile, SessionView, Staged, StagedTable};
use weldfs_functions::cipher::Key;
use weldfs_locks::{Mutex, MutexGuard};
use weldfs_session::clock::cpu_ns;
use weldfs_session::counters::{QueueCounters, Totals};
use weldfs_session::pair::Pair;
use weldfs_session::tenants::{Load, Tenant};
use weldfs_store::error::Miss;

use super::aside::Aside;
use super::io::IoPool;
use super::open::Handles;
use super::pools::PoolBudget;

pub use weldfs_session::rings::{Fresh, Pools, QueueParts, Ring, Rings};

/// A session, as the device threads see it. Thread-safe.
pub struct SessionState {
    /// Number, never reused in this run of the device.
    pub id: u64,
    /// Who is charged.
    pub tenant: Arc<Tenant>,
    /// The client's 128-bit id.
    pub client_id: [u8; 16],
    /// Its handles.
    pub handles: Handles,
    /// Transactions that it collects.
    staged: Mutex<StagedTable>,
    /// Its keys.
    pub(super) keys: Keys,
    /// Commands in flight.
    pub(super) load: Load,
    /// Its doorbell.
    pub doorbell: Arc<OwnedFd>,
    cred: Cred,
    prefix: Vec<u8>,
    pools: Arc<PoolBudget>,
    io: Arc<IoPool>,
    rings: Rings<QueueState>,
}

/// What all holders of a queue pair share.
pub struct QueueState {
    /// Whose it is: the queue a command arrives on is its identity.
    pub session: Arc<SessionState>,
    /// Who is charged for what arrives on it.
    pub tenant: Arc<Tenant>,
    /// Number within the session.
    pub index: u32,
    /// The buffer pool.
    pub pool: SharedRegion,
    /// What the decoder must know.
    pub limits: SessionLimits,
    /// Counters.
    pub counters: QueueCounters,
    /// The device's ends of the rings.
    pub pair: Pair,
    /// Commands that gave their tickets up, to wait.
    pub(super) aside: Aside,
    /// Programs that came on it.
    pub(super) programs: Mutex<Recent>,
    /// Itself.
    this: Weak<QueueState>,
}

impl QueueState {
    /// Whether a command of `bytes` payload may be taken from the ring; then it is in the accounts of session and
    /// tenant.
    #[inline]
    pub(super) fn try_admit(&self, bytes: u64) -> bool {
        self.tenant.try_admit(&self.session.load, bytes)
    }

    /// It, to be kept.
    pub(super) fn to_keep(&self) -> Option<Arc<QueueState>> {
        self.this.upgrade()
    }

    /// The same whatever the limits say.
    pub(super) fn admit_anyway(&self, bytes: u64) -> bool {
        self.tenant.admit_anyway(&self.session.load, bytes);
        true
    }

    /// The command is over.
    #[inline]
    pub(super) fn done(&self, bytes: u64) {
        self.tenant.done(&self.session.load, bytes);
    }
}

impl SessionState {
    pub(super) fn new(
        (id, client_id): (u64, [u8; 16]),
        cred: Cred,
        tenant: Arc<Tenant>,
        prefix: Vec<u8>,
        handles_max: u32,
        (pools, io): (Arc<PoolBudget>, Arc<IoPool>),
    ) -> std::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let end = prefix.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
        let prefix = prefix[..end].to_vec();
        Ok(SessionState {
            id,
            tenant: tenant.clone(),
            client_id,
            handles: Handles::new(handles_max.min(HANDLES_MAX), tenant),
            staged: Mutex::default(),
            keys: Keys::default(),
            load: Load::default(),
            doorbell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            cred,
            prefix,
            pools,
            io,
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

    /// Its user.
    pub(super) fn uid(&self) -> u32 {
        self.cred.uid
    }

    /// A command of this ending session was dropped that would have changed something.
    pub(super) fn note_dropped(&self) {
        self.rings.note_dropped();
    }

    /// Whether one was.
    pub(super) fn has_dropped(&self) -> bool {
        self.rings.has_dropped()
    }

    /// A new queue pair, of so many commands and bytes of pool, in a memfd or not. `home`: the core that is to have it;
    /// `place` hands it over.
    pub(super) fn new_queue(
        self: &Arc<Self>,
        (depth, pool_bytes, shared): (u32, u32, bool),
        home: impl FnOnce() -> usize,
        place: impl FnOnce(Arc<QueueState>),
    ) -> Result<QueueParts, Errno> {
        let make = |fresh: Fresh| {
            Arc::new_cyclic(|this| QueueState {
                this: this.clone(),
                session: self.clone(),
                tenant: self.tenant.clone(),
                index: fresh.index,
                pool: fresh.pool,
                limits: fresh.limits,
                counters: QueueCounters::default(),
                pair: Pair::new(fresh.memory, home()),
                aside: Aside::default(),
                programs: Mutex::default(),
            })
        };
        let begin = cpu_ns();
        let paid = |queue: Arc<QueueState>| {
            // Its tenant pays for it with the first command.
            queue.pair.owe(cpu_ns().saturating_sub(begin));
            place(queue);
        };
        self.rings.add((depth, pool_bytes, shared), (&**self, &self.doorbell), make, paid)
    }

    /// Charges memory in which a transaction is collected: it counts as pool memory, here and everywhere. ENOMEM.
    pub(super) fn charge_staged(&self, bytes: u64) -> Result<(), Errno> {
        self.rings.take_bytes(bytes)?;
        self.pools.charge_staged(&self.tenant, bytes).inspect_err(|_| self.rings.give_bytes(bytes))
    }

    /// Gives it back.
    pub(super) fn release_staged(&self, bytes: u64) {
        self.pools.release_staged(&self.tenant, bytes);
        self.rings.give_bytes(bytes);
    }

    /// So many bytes of a queue pair are given back.
    pub(super) fn give_bytes(&self, bytes: u64) {
        self.rings.give_bytes(bytes);
    }

    /// A queue pair was drained and dropped. Whether the session's end may follow.
    pub(super) fn queue_gone(&self, state: &Arc<QueueState>) -> bool {
        self.rings.gone(state)
    }

    /// Starts its end; `told` tells the cores. True for the call that began it, if there is no queue pair to wait for.
    pub(super) fn close(&self, told: impl FnOnce()) -> bool {
        self.rings.close(told)
    }

    /// Whether it is now that everything is given back: once.
    pub(super) fn clean_up(&self) -> bool {
        self.rings.clean_up()
    }

    /// What it counted, when it is over.
    pub(super) fn retire(&self) -> Totals {
        self.rings.retire()
    }

    /// Ends its transactions.
    pub(super) fn clear_staged(&self) {
        let charged = self.staged.lock().clear();
        self.release_staged(charged);
    }

    /// Its transactions.
    pub(super) fn staged_table(&self) -> MutexGuard<'_, StagedTable> {
        self.staged.lock()
    }

    /// Everything counted for this session.
    pub fn totals(&self) -> Totals {
        self.rings.totals()
    }

    /// Queue pairs alive, and the bytes of their shared memory and of transactions that are being collected.
    pub fn queues(&self) -> (usize, u64) {
        self.rings.usage()
    }
}

impl Ring for QueueState {
    fn counters(&self) -> &QueueCounters {
        &self.counters
    }
}

impl Pools for SessionState {
    fn charge(&self, bytes: u64) -> Result<(), Errno> {
        self.pools.charge(&self.tenant, bytes)
    }

    fn release(&self, bytes: u64) {
        self.pools.release(&self.tenant, bytes);
    }
}

impl HandleTable for SessionState {
    fn handle(&self, h: Handle) -> Result<OpenFile, Errno> {
        self.handles.with(h, |d| OpenFile { ino: d.ino, flags: d.flags(), offset: d.offset() })
    }

    fn reserve_handle(&self) -> Result<Handle, Errno> {
        self.handles.reserve()
    }

    fn release_handle(&self, h: Handle) {
        // A handle that is not there any more needs no release.
        let _ = self.handles.close(h);
    }
}

impl SessionView for SessionState {
    fn cred(&self) -> &Cred {
        &self.cred
    }

    fn prefix(&self) -> Option<&[u8]> {
        (!self.prefix.is_empty()).then_some(&self.prefix)
    }

    fn staged(&self, txn: Handle) -> Result<Arc<Staged>, Errno> {
        self.staged.lock().committing(txn)
    }

    fn fetch(&self, miss: Miss) -> Fetching<'_> {
        Box::pin(self.io.fetch(miss, self.tenant.id))
    }

    fn key(&self, name: u64) -> Result<Arc<Key>, Errno> {
        self.keys.get(name)
    }
}
