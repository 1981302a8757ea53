//! What all parts of one device share.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use weldfs_ciscops::{Durability, Errno, InodeNo};
use weldfs_journal::Clock;
use weldfs_scheduler::PolicyKind;

use super::counters::{Count, Totals};
use super::io::IoPool;
use super::limits::{QUEUES_MAX, SESSIONS_MAX, SLOTS_PER_THREAD};
use super::maintenance::Maintenance;
use super::ofd::OpenFiles;
use super::pace::Pace;
use super::profile::Profile;
use super::session::SessionState;
use super::sets::SetTable;
use super::slots::Inbox;
use super::thread::NewQueue;
use crate::fs::Cred;
use crate::store::Store;

/// How a device is to be run.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// What reports call the file system.
    pub label: String,
    /// Device threads; at least one.
    pub cores: usize,
    /// What "default durability" means: `Volatile` or `Durable`; `Default` = by the medium (durable on pmem and ram).
    pub durability: Durability,
    /// Scheduling policy of each thread.
    pub policy: PolicyKind,
    /// Emulated hardware.
    pub profile: Profile,
    /// Bytes for overlay, page cache and block cache; for whoever mounts the store the device runs on.
    pub memory_bytes: u64,
    /// Bytes of shared memory that all queue pairs together may take.
    pub pool_bytes_max: u64,
    /// Handles of one session.
    pub handles_max: u32,
    /// Longest a device thread spins without work before it sleeps, nanoseconds.
    pub spin_ns_max: u64,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        DeviceConfig {
            label: String::new(),
            cores: 1,
            durability: Durability::Default,
            policy: PolicyKind::Fifo,
            profile: Profile::default(),
            memory_bytes: 512 << 20,
            pool_bytes_max: 1 << 30,
            handles_max: weldfs_ciscops::limits::HANDLES_MAX,
            spin_ns_max: super::limits::SPIN_NS_MAX,
        }
    }
}

/// What is left in a device thread's inbox.
pub(super) enum Message {
    /// Serve this queue pair from now on.
    Queue(Box<NewQueue>),
    /// Drain and drop the queues of this session.
    CloseSession(u64),
    /// End when no queue is left.
    Stop,
}

/// Counters of one device thread.
#[derive(Default)]
pub(super) struct ThreadCounters {
    /// Times it went to sleep in its one blocking call.
    pub sleeps: Count,
    /// Times it woke from it.
    pub wakes: Count,
}

/// One device thread as others see it.
pub(super) struct ThreadState {
    pub inbox: Arc<Inbox<Message>>,
    pub counters: ThreadCounters,
    pub queues: AtomicUsize,
}

/// The shared part of a device.
pub struct Core {
    pub(super) config: DeviceConfig,
    pub(super) store: Arc<Store>,
    pub(super) durable_default: bool,
    pub(super) sets: SetTable,
    pub(super) files: Arc<OpenFiles>,
    pub(super) io: IoPool,
    pub(super) maintenance: Maintenance,
    pub(super) pace: Pace,
    pub(super) threads: Vec<ThreadState>,
    pub(super) modelled: bool,
    pub(super) clock: Arc<dyn Clock>,
    sessions: Mutex<Sessions>,
    no_sessions: Condvar,
    next_session: AtomicU64,
    pool_bytes: AtomicU64,
    queues: AtomicUsize,
    poisoned: AtomicBool,
    retired: Mutex<BTreeMap<u64, Totals>>,
}

#[derive(Default)]
struct Sessions {
    live: HashMap<u64, Arc<SessionState>>,
    refuse: bool,
}

impl Core {
    pub(super) fn new(store: Arc<Store>, config: DeviceConfig) -> std::io::Result<Arc<Core>> {
        let info = store.medium().info();
        let durable_default = match config.durability {
            Durability::Durable => true,
            Durability::Volatile => false,
            Durability::Default => info.kind != weldfs_journal::MediumKind::Block,
        };
        let threads = (0..config.cores.max(1))
            .map(|_| {
                Ok(ThreadState {
                    inbox: Arc::new(Inbox::new(SLOTS_PER_THREAD)?),
                    counters: ThreadCounters::default(),
                    queues: AtomicUsize::new(0),
                })
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        let files = OpenFiles::new(store.clone());
        Ok(Arc::new(Core {
            io: IoPool::start(store.clone())?,
            maintenance: Maintenance::default(),
            pace: Pace::default(),
            clock: store.clock().clone(),
            modelled: !config.profile.is_free(),
            config,
            store,
            durable_default,
            sets: SetTable::default(),
            files,
            threads,
            sessions: Mutex::default(),
            no_sessions: Condvar::new(),
            next_session: AtomicU64::new(1),
            pool_bytes: AtomicU64::new(0),
            queues: AtomicUsize::new(0),
            poisoned: AtomicBool::new(false),
            retired: Mutex::default(),
        }))
    }

    /// A new session. EMFILE at the device's limit, ENODEV while it shuts down.
    pub(super) fn attach(
        self: &Arc<Self>,
        cred: Cred,
        client_id: [u8; 16],
        prefix: Vec<u8>,
    ) -> Result<Arc<SessionState>, Errno> {
        let mut sessions = self.sessions.lock();
        if sessions.refuse {
            return Err(Errno::NODEV);
        }
        if sessions.live.len() >= SESSIONS_MAX {
            return Err(Errno::MFILE);
        }
        let id = self.next_session.fetch_add(1, Ordering::Relaxed);
        let state = SessionState::new(self.clone(), id, cred, client_id, prefix)
            .map_err(|e| Errno(e.raw_os_error().unwrap_or(Errno::MFILE.0)))?;
        let state = Arc::new(state);
        sessions.live.insert(id, state.clone());
        Ok(state)
    }

    pub(super) fn session_gone(&self, session: &Arc<SessionState>, totals: Totals) {
        self.retired.lock().entry(session.tenant.0).or_default().add(&totals);
        let mut sessions = self.sessions.lock();
        sessions.live.remove(&session.id);
        if sessions.live.is_empty() {
            self.no_sessions.notify_all();
        }
    }

    /// Ends a session whose client broke the protocol of the rings.
    pub(super) fn kill_session(&self, id: u64) {
        let session = self.sessions.lock().live.get(&id).cloned();
        if let Some(s) = session {
            s.close();
        }
    }

    /// Refuses newcomers, ends all sessions and waits until they are gone.
    pub(super) fn end_sessions(&self) {
        let live: Vec<_> = {
            let mut sessions = self.sessions.lock();
            sessions.refuse = true;
            sessions.live.values().cloned().collect()
        };
        live.iter().for_each(|s| s.close());
        drop(live);
        let mut sessions = self.sessions.lock();
        while !sessions.live.is_empty() {
            self.no_sessions.wait(&mut sessions);
        }
    }

    pub(super) fn live_sessions(&self) -> Vec<Arc<SessionState>> {
        self.sessions.lock().live.values().cloned().collect()
    }

    pub(super) fn retired(&self) -> BTreeMap<u64, Totals> {
        self.retired.lock().clone()
    }

    /// Hands a queue pair to the device thread with the fewest.
    pub(super) fn place_queue(&self, message: Message) {
        let least = self.threads.iter().min_by_key(|t| t.queues.load(Ordering::Relaxed));
        let thread = least.expect("a device has at least one thread");
        thread.queues.fetch_add(1, Ordering::Relaxed);
        thread.inbox.send(message);
    }

    pub(super) fn broadcast(&self, message: impl Fn() -> Message) {
        self.threads.iter().for_each(|t| t.inbox.send(message()));
    }

    /// Takes shared memory for a queue pair. ENOMEM or EMFILE at the device's limits.
    pub(super) fn charge_pool(&self, bytes: u64) -> Result<(), Errno> {
        let before = self.pool_bytes.fetch_add(bytes, Ordering::AcqRel);
        let queues = self.queues.fetch_add(1, Ordering::AcqRel);
        if before + bytes <= self.config.pool_bytes_max && queues < QUEUES_MAX {
            return Ok(());
        }
        self.release_pool(bytes);
        Err(if queues < QUEUES_MAX { Errno::NOMEM } else { Errno::MFILE })
    }

    pub(super) fn release_pool(&self, bytes: u64) {
        self.pool_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.queues.fetch_sub(1, Ordering::AcqRel);
    }

    /// Queue pairs alive, and the bytes of their shared memory.
    pub(super) fn pools(&self) -> (usize, u64) {
        (self.queues.load(Ordering::Acquire), self.pool_bytes.load(Ordering::Acquire))
    }

    /// st_mode of an inode, 0 when it cannot be read at once.
    pub(super) fn mode_of(&self, ino: InodeNo) -> u32 {
        match self.store.inode(ino) {
            Ok(Some(rec)) => rec.mode,
            _ => 0,
        }
    }

    /// After a panic in an op: state in memory may be half changed, so nothing is answered but EIO from now on.
    pub(super) fn poison(&self) {
        if !self.poisoned.swap(true, Ordering::SeqCst) {
            tracing::error!("an operation panicked: the device answers EIO until it is restarted");
            self.store.medium().poison();
            self.maintenance.kick();
        }
    }

    /// Lets the maintenance thread drain what can be reclaimed, if there is anything.
    pub(super) fn note_reclaim(&self) {
        if self.store.reclaim_pending() {
            self.maintenance.note_reclaim();
        }
    }

    #[inline]
    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }
}
