//! Sessions: one attached process, with the credentials the control plane gave it, its handles and its queue pairs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use weldfs_ciscops::limits::{HANDLES_MAX, QUEUES_MAX};
use weldfs_ciscops::{Errno, Handle, OpenFlags, QueueLayout, QueueMemory, SessionLimits, SharedRegion};

use super::core::{Core, Message};
use super::counters::{QueueCounters, Totals};
use super::keys::Keys;
use super::limits::POOL_BYTES_SESSION_MAX;
use super::ofd::Handles;
use super::pair::Pair;
use super::tenants::{Load, Tenant};
use crate::error::Miss;
use weldfs_functions::cipher::Key;

use crate::fs::{Cred, Fetching, HandleTable, OpenFile, SessionView, Staged, StagedTable};

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
}

impl QueueState {
    /// Whether a command of `bytes` payload may be taken from the ring; then it is in the accounts of session and
    /// tenant.
    #[inline]
    pub(super) fn try_admit(&self, bytes: u64) -> bool {
        self.tenant.try_admit(&self.session.load, bytes)
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
            queues: Mutex::new(Vec::new()),
            next_queue: AtomicU32::new(0),
            live_queues: AtomicUsize::new(0),
            pool_bytes: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            cleaned: AtomicBool::new(false),
            retired: Mutex::new(Totals::default()),
        })
    }

    /// True once the session is ending.
    pub fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn new_queue(self: &Arc<Self>, depth: u32, pool_bytes: u32, shared: bool) -> Result<QueueParts, Errno> {
        let layout = QueueLayout::new(depth, pool_bytes)?;
        let mut queues = self.queues.lock();
        if self.closing() {
            return Err(Errno::NODEV);
        }
        if queues.len() >= QUEUES_MAX as usize {
            return Err(Errno::MFILE);
        }
        let bytes = u64::from(layout.total_bytes);
        self.take_bytes(bytes)?;
        if let Err(e) = self.core.charge_pool(&self.tenant, bytes) {
            self.give_bytes(bytes);
            return Err(e);
        }
        let made = make_region(&layout, shared);
        let (memfd, memory) = match made {
            Ok(m) => m,
            Err(e) => {
                self.core.release_pool(&self.tenant, bytes);
                self.give_bytes(bytes);
                return Err(e);
            }
        };
        let index = self.next_queue.fetch_add(1, Ordering::Relaxed);
        let region = memory.region().clone();
        let pool = memory.pool(&layout)?;
        let state = Arc::new(QueueState {
            session: self.clone(),
            tenant: self.tenant.clone(),
            index,
            pool,
            limits: SessionLimits { pool_bytes },
            counters: QueueCounters::default(),
            pair: Pair::new(memory, self.core.home_of_next()),
        });
        queues.push(state.clone());
        self.live_queues.fetch_add(1, Ordering::AcqRel);
        self.core.place_queue(state);
        Ok(QueueParts { index, layout, region, memfd, doorbell: self.doorbell.clone() })
    }

    /// Takes memory for pools or transactions, of which a session has so much and no more.
    fn take_bytes(&self, bytes: u64) -> Result<(), Errno> {
        let fits = |n: u64| n.checked_add(bytes).filter(|n| *n <= POOL_BYTES_SESSION_MAX);
        self.pool_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map(drop).map_err(|_| Errno::NOMEM)
    }

    fn give_bytes(&self, bytes: u64) {
        self.pool_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Charges memory in which a transaction is collected: it counts as pool memory, here and everywhere. ENOMEM.
    pub(super) fn charge_staged(&self, bytes: u64) -> Result<(), Errno> {
        self.take_bytes(bytes)?;
        self.core.charge_staged(&self.tenant, bytes).inspect_err(|_| self.give_bytes(bytes))
    }

    /// Gives it back.
    pub(super) fn release_staged(&self, bytes: u64) {
        self.core.release_staged(&self.tenant, bytes);
        self.give_bytes(bytes);
    }

    /// Called by a device thread that has drained and dropped a queue of this session.
    pub(super) fn queue_gone(self: &Arc<Self>, state: &Arc<QueueState>, bytes: u64) {
        {
            // Under one lock: whoever sums up meanwhile counts it once.
            let mut queues = self.queues.lock();
            self.retired.lock().add_queue(&state.counters);
            queues.retain(|q| !Arc::ptr_eq(q, state));
        }
        self.core.release_pool(&self.tenant, bytes);
        self.give_bytes(bytes);
        if self.live_queues.fetch_sub(1, Ordering::AcqRel) == 1 && self.closing() {
            self.clean_up();
        }
    }

    /// Starts the end: no new queues; the device threads drain what was published, then everything is given back.
    pub(super) fn close(self: &Arc<Self>) {
        let queues = self.queues.lock();
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        drop(queues);
        self.core.broadcast(|| Message::CloseSession(self.id));
        if self.live_queues.load(Ordering::Acquire) == 0 {
            self.clean_up();
        }
    }

    fn clean_up(self: &Arc<Self>) {
        if self.cleaned.swap(true, Ordering::AcqRel) {
            return;
        }
        self.keys.clear();
        super::staged::clear(self);
        self.core.files.locks.release_session(self.id);
        if self.handles.close_all() {
            self.core.maintenance.watch_placeholders();
        }
        self.core.note_reclaim();
        self.core.session_gone(self, || std::mem::take(&mut *self.retired.lock()));
    }

    /// Its transactions.
    pub(super) fn staged_table(&self) -> MutexGuard<'_, StagedTable> {
        self.staged.lock()
    }

    /// Everything counted for this session.
    pub fn totals(&self) -> Totals {
        let queues = self.queues.lock();
        let mut sum = self.retired.lock().clone();
        queues.iter().for_each(|q| sum.add_queue(&q.counters));
        sum
    }

    /// Queue pairs alive, and the bytes of their shared memory and of transactions that are being collected.
    pub fn queues(&self) -> (usize, u64) {
        (self.live_queues.load(Ordering::Acquire), self.pool_bytes.load(Ordering::Relaxed))
    }
}

pub(super) fn make_region(layout: &QueueLayout, shared: bool) -> Result<(Option<OwnedFd>, QueueMemory), Errno> {
    let errno = |e: std::io::Error| Errno(e.raw_os_error().unwrap_or(Errno::NOMEM.0));
    if shared {
        let (fd, memory) = QueueMemory::create(layout).map_err(errno)?;
        return Ok((Some(fd), memory));
    }
    Ok((None, QueueMemory::format(SharedRegion::heap(layout.total_bytes as usize), layout)?))
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

/// One queue pair as the device made it.
pub struct QueueParts {
    /// Number within the session.
    pub index: u32,
    /// Where rings and pool lie in `region`.
    pub layout: QueueLayout,
    /// The memory.
    pub region: SharedRegion,
    /// The sealed memfd behind it, to send to another process; none for memory of this process.
    pub memfd: Option<OwnedFd>,
    /// Write to it when the ring says that the device sleeps.
    pub doorbell: Arc<OwnedFd>,
}

/// A description taken over through its placeholder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claimed {
    /// This session's handle for it.
    pub handle: Handle,
    /// Its flags.
    pub flags: OpenFlags,
    /// Inode number.
    pub ino: u64,
    /// st_mode.
    pub mode: u32,
    /// The placeholder's number in the session that made it.
    pub placeholder: u32,
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
            // Those of files closed a moment ago count until somebody has looked: a program that opens thousands of
            // files a second is faster than the regular look.
            Err(Errno::MFILE) if core.look_for_dead_placeholders() => handles.placeholders(count),
            other => other,
        }?;
        core.note_placeholders(made.len());
        Ok(made)
    }

    /// A handle for the description that `fd` stands for. EBADF, EMFILE, ENODEV.
    pub fn claim(&self, fd: impl std::os::fd::AsFd) -> Result<Claimed, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        let (description, placeholder) = self.state.core.files.claimed(fd)?;
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

    /// Starts a recording of at most `limit` slices. EPERM (neither root nor who runs the device), EBUSY, EINVAL.
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
        Ok(weldfs_ciscops::trace::encode(&facts, &recording.slices))
    }

    /// True once the session is ending.
    pub fn is_closing(&self) -> bool {
        self.state.closing()
    }

    /// Handles and queues in use, for leak tests.
    pub fn usage(&self) -> (usize, usize) {
        (self.state.handles.len(), self.state.queues().0)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.state.close();
    }
}
