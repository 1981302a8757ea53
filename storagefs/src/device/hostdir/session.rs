//! An attached client of a host directory: its handles and queue pairs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use weldfs_ciscops::limits::{HANDLES_MAX, QUEUES_MAX};
use weldfs_ciscops::{Errno, Handle, QueueLayout, SessionLimits, SharedRegion};

use super::core::{Core, Message};
use crate::cred::Cred;
use crate::device::counters::{QueueCounters, Totals};
use crate::device::keys::Keys;
use crate::device::limits::POOL_BYTES_SESSION_MAX;
use crate::device::ofd::{Description, Handles};
use crate::device::pair::Pair;
use crate::device::session::{Claimed, QueueParts, make_region};
use crate::device::tenants::Tenant;

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
    queues: Mutex<Vec<Arc<QueueState>>>,
    next_queue: AtomicU32,
    live_queues: AtomicUsize,
    pool_bytes: AtomicU64,
    closing: AtomicBool,
    cleaned: AtomicBool,
    retired: Mutex<Totals>,
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
            queues: Mutex::default(),
            next_queue: AtomicU32::new(0),
            live_queues: AtomicUsize::new(0),
            pool_bytes: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            cleaned: AtomicBool::new(false),
            retired: Mutex::default(),
        })
    }

    /// True once the session is ending.
    pub fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn new_queue(self: &Arc<Self>, depth: u32, pool_bytes: u32, shared: bool) -> Result<QueueParts, Errno> {
        let layout = QueueLayout::new(depth, pool_bytes)?;
        let bytes = u64::from(layout.total_bytes);
        let mut queues = self.queues.lock();
        if self.closing() {
            return Err(Errno::NODEV);
        }
        if queues.len() >= QUEUES_MAX as usize {
            return Err(Errno::MFILE);
        }
        if self.pool_bytes.load(Ordering::Relaxed) + bytes > POOL_BYTES_SESSION_MAX {
            return Err(Errno::NOMEM);
        }
        self.core.charge_pool(&self.tenant, bytes)?;
        let made = make_region(&layout, shared).and_then(|(fd, memory)| Ok((fd, memory.pool(&layout)?, memory)));
        let (memfd, pool, memory) = match made {
            Ok(made) => made,
            Err(e) => {
                self.core.release_pool(&self.tenant, bytes);
                return Err(e);
            }
        };
        let index = self.next_queue.fetch_add(1, Ordering::Relaxed);
        let region = memory.region().clone();
        let state = Arc::new(QueueState {
            session: self.clone(),
            index,
            pool,
            limits: SessionLimits { pool_bytes },
            counters: QueueCounters::default(),
            pair: Pair::new(memory, 0),
        });
        queues.push(state.clone());
        self.pool_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.live_queues.fetch_add(1, Ordering::AcqRel);
        self.core.inbox.send(Message::Queue(state));
        Ok(QueueParts { index, layout, region, memfd, doorbell: self.doorbell.clone() })
    }

    /// A queue pair of this session has been drained and dropped.
    pub(super) fn queue_gone(self: &Arc<Self>, state: &Arc<QueueState>) {
        {
            let mut queues = self.queues.lock();
            self.retired.lock().add_queue(&state.counters);
            queues.retain(|q| !Arc::ptr_eq(q, state));
        }
        self.core.release_pool(&self.tenant, state.pair.bytes);
        self.pool_bytes.fetch_sub(state.pair.bytes, Ordering::Relaxed);
        if self.live_queues.fetch_sub(1, Ordering::AcqRel) == 1 && self.closing() {
            self.clean_up();
        }
    }

    /// Starts the end: no new queues; what was published is executed, then everything is given back.
    pub(super) fn close(self: &Arc<Self>) {
        let queues = self.queues.lock();
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        drop(queues);
        self.core.inbox.send(Message::CloseSession(self.id));
        if self.live_queues.load(Ordering::Acquire) == 0 {
            self.clean_up();
        }
    }

    fn clean_up(self: &Arc<Self>) {
        if self.cleaned.swap(true, Ordering::AcqRel) {
            return;
        }
        self.keys.clear();
        self.core.files.locks.release_session(self.id);
        if self.handles.close_all() {
            self.core.watch_placeholders();
        }
        self.core.session_gone(self, || std::mem::take(&mut *self.retired.lock()));
    }

    /// Everything counted for this session.
    pub fn totals(&self) -> Totals {
        let queues = self.queues.lock();
        let mut sum = self.retired.lock().clone();
        queues.iter().for_each(|q| sum.add_queue(&q.counters));
        sum
    }

    /// Its queue pairs.
    pub(super) fn queues(&self) -> Vec<Arc<QueueState>> {
        self.queues.lock().clone()
    }

    pub(super) fn description(&self, h: Handle) -> Result<Arc<Description<HostFile>>, Errno> {
        self.handles.get(h)
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
            // Those of files that nobody holds any more count until somebody has looked.
            Err(Errno::MFILE) => {
                self.state.core.files.sweep();
                self.state.handles.placeholders(count)
            }
            other => other,
        }
    }

    /// A handle for the description that `fd` stands for, with the grant it was opened with. EBADF, EMFILE, ENODEV.
    pub fn claim(&self, fd: impl AsFd) -> Result<Claimed, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        let (description, placeholder) = self.state.core.files.claimed(fd)?;
        let handle = self.state.handles.reserve()?;
        let (flags, ino, mode) = (description.flags(), description.ino, description.body.mode);
        self.state.handles.fill(handle, description);
        Ok(Claimed { handle, flags, ino: ino.0, mode, placeholder })
    }

    /// All counters and this session's own, as JSON.
    pub fn stats_json(&self) -> String {
        self.state.core.stats(Some(&self.state)).to_json()
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
