//! Sessions: one attached process, with the credentials the control plane gave it, its handles and its queue pairs.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use weldfs_ciscops::limits::{HANDLES_MAX, PLACEHOLDERS_MAX};
use weldfs_ciscops::program::Recent;
use weldfs_ciscops::{Errno, Handle, OpenFlags, SessionLimits, SharedRegion};
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
use super::core::Core;
use super::message::Message;
use crate::open::{Handles, OpenInode};

pub use weldfs_session::rings::{Claimed, Fresh, Pools, QueueParts, Ring, Rings};

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
    core: Arc<Core>,
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
        core: Arc<Core>,
        id: u64,
        cred: Cred,
        tenant: Arc<Tenant>,
        client_id: [u8; 16],
        prefix: Vec<u8>,
    ) -> std::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let end = prefix.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
        let prefix = prefix[..end].to_vec();
        Ok(SessionState {
            id,
            tenant: tenant.clone(),
            client_id,
            handles: Handles::new(core.config.handles_max.min(HANDLES_MAX), tenant),
            staged: Mutex::default(),
            keys: Keys::default(),
            load: Load::default(),
            doorbell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            cred,
            prefix,
            core,
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

    pub(super) fn new_queue(self: &Arc<Self>, depth: u32, pool_bytes: u32, shared: bool) -> Result<QueueParts, Errno> {
        let make = |fresh: Fresh| {
            Arc::new_cyclic(|this| QueueState {
                this: this.clone(),
                session: self.clone(),
                tenant: self.tenant.clone(),
                index: fresh.index,
                pool: fresh.pool,
                limits: fresh.limits,
                counters: QueueCounters::default(),
                pair: Pair::new(fresh.memory, self.core.home_of_next()),
                aside: Aside::default(),
                programs: Mutex::default(),
            })
        };
        let begin = cpu_ns();
        let place = |queue: Arc<QueueState>| {
            // Its tenant pays for it with the first command.
            queue.pair.owe(cpu_ns().saturating_sub(begin));
            self.core.place_queue(queue);
        };
        self.rings.add((depth, pool_bytes, shared), (&**self, &self.doorbell), make, place)
    }

    /// Charges memory in which a transaction is collected: it counts as pool memory, here and everywhere. ENOMEM.
    pub(super) fn charge_staged(&self, bytes: u64) -> Result<(), Errno> {
        self.rings.take_bytes(bytes)?;
        self.core.charge_staged(&self.tenant, bytes).inspect_err(|_| self.rings.give_bytes(bytes))
    }

    /// Gives it back.
    pub(super) fn release_staged(&self, bytes: u64) {
        self.core.release_staged(&self.tenant, bytes);
        self.rings.give_bytes(bytes);
    }

    /// Called by a device thread that has drained and dropped a queue of this session.
    pub(super) fn queue_gone(self: &Arc<Self>, state: &Arc<QueueState>) {
        self.core.watches.end_ring(state);
        let last = self.rings.gone(state);
        let (bytes, tenant) = (state.pair.bytes, self.tenant.clone());
        let (session, core) = (Arc::downgrade(self), Arc::downgrade(&self.core));
        self.core.leavings.take(state.pool.clone(), move |ns| {
            if let Some(session) = session.upgrade() {
                session.rings.give_bytes(bytes);
            }
            if let Some(core) = core.upgrade() {
                core.release_pool(&tenant, bytes);
                core.charge_beside(&tenant, ns);
            }
        });
        if last {
            self.clean_up();
        }
    }

    /// Starts the end: no new queues; the device threads drain what was published, then everything is given back.
    pub(super) fn close(self: &Arc<Self>) {
        if self.rings.close(|| self.core.broadcast(|| Message::CloseSession(self.id))) {
            self.clean_up();
        }
    }

    fn clean_up(self: &Arc<Self>) {
        if !self.rings.clean_up() {
            return;
        }
        self.keys.clear();
        super::staged::clear(self);
        self.core.files.locks.release_session(self.id);
        self.core.leases.end_session(self.id);
        self.core.watches.end_session(self.id);
        if self.handles.close_all() {
            self.core.maintenance.watch_placeholders();
        }
        self.core.note_reclaim();
        self.core.session_gone(self, || self.rings.retire());
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
        self.core.charge_pool(&self.tenant, bytes)
    }

    fn release(&self, bytes: u64) {
        self.core.release_pool(&self.tenant, bytes);
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
        Box::pin(self.core.io.fetch(miss, self.tenant.id))
    }

    fn key(&self, name: u64) -> Result<Arc<Key>, Errno> {
        self.keys.get(name)
    }
}

/// The control plane's hold on a session; dropping it ends the session. Thread-safe.
pub struct Session {
    state: Arc<SessionState>,
}

impl Session {
    pub(super) fn new(state: Arc<SessionState>) -> Session {
        Session { state }
    }

    /// The session's number.
    pub fn id(&self) -> u64 {
        self.state.id
    }

    /// The doorbell to hand to the client.
    pub fn doorbell(&self) -> &Arc<OwnedFd> {
        &self.state.doorbell
    }

    /// A queue pair of `depth` commands with a pool of `pool_bytes`, in a sealed memfd. EINVAL (numbers out of range),
    /// EMFILE (too many), ENOMEM (the device's memory is given out), ENODEV (the session is ending).
    pub fn new_queue(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        self.state.new_queue(depth, pool_bytes, true)
    }

    /// The same in memory of this process (embedded mode).
    pub fn new_queue_local(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        self.state.new_queue(depth, pool_bytes, false)
    }

    /// Fresh placeholders: number and descriptor to send. EMFILE.
    pub fn placeholders(&self, count: u32) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        let (core, handles) = (&self.state.core, &self.state.handles);
        let made = match handles.placeholders(count) {
            // Those of files closed a moment ago count until a look has been taken: a program that opens thousands of
            // files a second is faster than the regular look.
            Err(Errno::MFILE) if core.look_for_dead_placeholders() => handles.placeholders(count),
            other => other,
        }?;
        core.note_placeholders(made.len());
        Ok(made)
    }

    /// Placeholders of files that are open in this session, for it to give away. EBADF, EEXIST (it came with one),
    /// EMFILE, ENODEV.
    pub fn share(&self, open: &[Handle]) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        if open.is_empty() || open.len() > PLACEHOLDERS_MAX {
            return Err(Errno::INVAL);
        }
        let descriptions = open.iter().map(|h| self.state.handles.get(*h)).collect::<Result<Vec<_>, _>>()?;
        if descriptions.iter().any(|d| d.has_placeholder()) {
            return Err(Errno::EXIST);
        }
        let made = self.placeholders(open.len() as u32)?;
        for ((id, _), description) in made.iter().zip(&descriptions) {
            let placeholder = self.state.handles.take_placeholder(*id).ok_or(Errno::NODEV)?;
            if self.state.core.files.bind_open(placeholder, description)? {
                self.state.core.maintenance.watch_placeholders();
            }
        }
        Ok(made)
    }

    /// A handle for the description that `fd` stands for, or (`anew`) for one of its own of that file, with that one's
    /// grant and no O_APPEND. EBADF, EMFILE, ENFILE, ENODEV; EOPNOTSUPP: a virtual file has one stream.
    pub fn claim(&self, fd: impl std::os::fd::AsFd, anew: bool) -> Result<Claimed, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        let (mut description, placeholder) = self.state.core.files.claimed(fd)?;
        if anew {
            let core = &self.state.core;
            if description.body.virt().is_some() {
                return Err(Errno::OPNOTSUPP);
            }
            let (ino, flags) = (description.ino, description.flags().difference(OpenFlags::APPEND));
            // What it is claimed from holds the inode until this one does.
            description = core.files.describe_with(ino, flags, || Ok(OpenInode::new(&core.store, ino)))?;
        }
        let handle = self.state.handles.reserve()?;
        let (flags, ino) = (description.flags(), description.ino);
        self.state.handles.fill(handle, description);
        let mode = self.state.core.mode_of(ino);
        Ok(Claimed { handle, flags, ino: ino.0, mode, placeholder })
    }

    /// The device's counters and this session's own, as JSON; with `detail` (bits of `ciscops::attach::detail`) more.
    pub fn stats_json(&self, detail: u32) -> String {
        self.state.core.stats(Some(&self.state), detail).to_json()
    }

    /// The number of its tenant.
    pub fn tenant(&self) -> u64 {
        self.state.tenant.id.0.into()
    }

    /// Starts a recording of at most `limit` slices, and half as many spans of slots. EPERM (neither root nor the user
    /// that runs the device), EBUSY, EINVAL.
    pub fn trace_start(&self, limit: u32) -> Result<(), Errno> {
        if ![0, rustix::process::geteuid().as_raw()].contains(&self.state.cred.uid) {
            return Err(Errno::PERM);
        }
        self.state.core.trace.start(self.state.id, limit)
    }

    /// Ends it and returns its bytes, as `weldfs_ciscops::trace::decode` reads them. EINVAL: this session has none.
    pub fn trace_stop(&self) -> Result<Vec<u8>, Errno> {
        let recording = self.state.core.trace.stop(self.state.id)?;
        let facts = self.state.core.trace_facts(&recording);
        Ok(weldfs_ciscops::trace::encode(&facts, &recording.slices, &recording.spans))
    }

    /// True once the session is ending.
    pub fn is_closing(&self) -> bool {
        self.state.closing()
    }

    /// Ends it now, whatever else holds it.
    pub fn end(&self) {
        self.state.close();
    }

    /// Handles and queues in use, for leak tests.
    pub fn usage(&self) -> (usize, usize) {
        (self.state.handles.count(), self.state.queues().0)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.state.close();
    }
}
