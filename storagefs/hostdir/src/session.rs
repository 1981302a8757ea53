//! An attached client of a host directory: its handles and queue pairs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use weldfs_ciscops::limits::{HANDLES_MAX, PLACEHOLDERS_MAX};
use weldfs_ciscops::{Errno, Handle, OpenFlags, SessionLimits, SharedRegion};
use weldfs_locks::{Mutex, MutexGuard};

use super::core::{Core, Message};
use super::pace::Pace;
use weldfs_fs::keys::Keys;
use weldfs_session::counters::{QueueCounters, Totals};
use weldfs_session::ofd::{Description, Handles};
use weldfs_session::pair::{Ends, Pair};
use weldfs_session::rings::{Claimed, QueueParts};
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
    core: Arc<Core>,
    rings: Rings<QueueState>,
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
        core: &Arc<Core>,
        id: u64,
        cred: Cred,
        tenant: Arc<Tenant>,
        client_id: [u8; 16],
    ) -> Result<SessionState, Errno> {
        Ok(SessionState {
            id,
            client_id,
            cred,
            handles: Handles::new(core.config.handles_max.min(HANDLES_MAX), tenant.clone()),
            tenant,
            doorbell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            keys: Keys::default(),
            makes_new: AtomicBool::new(true),
            core: core.clone(),
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

    fn new_queue(self: &Arc<Self>, depth: u32, pool_bytes: u32, shared: bool) -> Result<QueueParts, Errno> {
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
        let place = |queue: Arc<QueueState>| {
            self.core.inbox.send(Message::Queue(queue.clone()));
            if self.core.is_poisoned() {
                // It may have come too late to be closed with the others.
                queue.pair.ends().close();
            }
        };
        self.rings.add((depth, pool_bytes, shared), (&**self, &self.doorbell), make, place)
    }

    /// A queue pair of this session has been drained and dropped.
    pub(super) fn queue_gone(self: &Arc<Self>, state: &Arc<QueueState>) {
        let last = self.rings.gone(state);
        let (bytes, tenant) = (state.pair.bytes, self.tenant.clone());
        let (session, core) = (Arc::downgrade(self), Arc::downgrade(&self.core));
        self.core.leavings.take(state.pool.clone(), move |_| {
            if let Some(session) = session.upgrade() {
                session.rings.give_bytes(bytes);
            }
            if let Some(core) = core.upgrade() {
                core.release_pool(&tenant, bytes);
            }
        });
        if last {
            self.clean_up();
        }
    }

    /// Starts the end: no new queues; what was published is executed, then everything is given back.
    pub(super) fn close(self: &Arc<Self>) {
        if self.rings.close(|| self.core.inbox.send(Message::CloseSession(self.id))) {
            self.clean_up();
        }
    }

    fn clean_up(self: &Arc<Self>) {
        if !self.rings.clean_up() {
            return;
        }
        self.keys.clear();
        self.core.files.locks.release_session(self.id);
        if self.handles.close_all() {
            self.core.watch_placeholders();
        }
        self.core.session_gone(self, || self.rings.retire());
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
        self.core.charge_pool(&self.tenant, bytes)
    }

    fn release(&self, bytes: u64) {
        self.core.release_pool(&self.tenant, bytes);
    }
}

/// The control plane's hold on a session; dropping it ends the session. Thread-safe.
pub struct HostSession {
    state: Arc<SessionState>,
}

impl HostSession {
    pub(super) fn new(state: Arc<SessionState>) -> HostSession {
        HostSession { state }
    }

    /// The session's number.
    pub fn id(&self) -> u64 {
        self.state.id
    }

    /// The doorbell to hand to the client.
    pub fn doorbell(&self) -> &Arc<OwnedFd> {
        &self.state.doorbell
    }

    /// A queue pair, as the device's `Session::new_queue`.
    pub fn new_queue(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        self.state.new_queue(depth, pool_bytes, true)
    }

    /// The same in memory of this process.
    pub fn new_queue_local(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        self.state.new_queue(depth, pool_bytes, false)
    }

    /// Fresh placeholders: number and descriptor to send. EMFILE.
    pub fn placeholders(&self, count: u32) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        match self.state.handles.placeholders(count) {
            // Those of files that are not held any more count until a look has been taken.
            Err(Errno::MFILE) => {
                self.state.core.files.sweep();
                self.state.handles.placeholders(count)
            }
            other => other,
        }
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
                self.state.core.watch_placeholders();
            }
        }
        Ok(made)
    }

    /// A handle for the description that `fd` stands for, with the grant it was opened with. EBADF, EMFILE, ENODEV.
    pub fn claim(&self, fd: impl AsFd, anew: bool) -> Result<Claimed, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        let (mut description, placeholder) = self.state.core.files.claimed(fd)?;
        if anew {
            // Listings share the host's position.
            if description.body.mode & libc::S_IFMT == libc::S_IFDIR {
                return Err(Errno::OPNOTSUPP);
            }
            let flags = description.flags().difference(OpenFlags::APPEND);
            let twin = || -> Result<HostFile, Errno> {
                let fd = rustix::io::fcntl_dupfd_cloexec(&description.body.fd, 0)?;
                Ok(HostFile { fd, mode: description.body.mode, walk: Default::default() })
            };
            description = self.state.core.files.describe_with(description.ino, flags, twin)?;
        }
        let handle = self.state.handles.reserve()?;
        let (flags, ino, mode) = (description.flags(), description.ino, description.body.mode);
        self.state.handles.fill(handle, description);
        Ok(Claimed { handle, flags, ino: ino.0, mode, placeholder })
    }

    /// All counters and this session's own, as JSON.
    pub fn stats_json(&self) -> String {
        self.state.core.stats(Some(&self.state)).to_json()
    }

    /// Ends it now, whatever else holds it.
    pub fn end(&self) {
        self.state.close();
    }

    /// True once the session is ending.
    pub fn is_closing(&self) -> bool {
        self.state.closing()
    }
}

impl Drop for HostSession {
    fn drop(&mut self) {
        self.state.close();
    }
}
