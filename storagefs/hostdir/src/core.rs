//! What the threads that serve one directory share.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use weldfs_ciscops::{Durability, InodeNo, Op};
use weldfs_locks::{Condvar, Mutex};

use super::budget::Budget;
use super::computing::{Beat, Computing};
use super::config::HostDirConfig;
use super::long::Long;
use super::lookout::{Lookout, Message};
use super::namelock::NameLock;
use super::power;
use super::processors::Processors;
use super::session::{HostFile, QueueState, SessionState};
use super::work::Work;
use weldfs_session::counters::{CoreCounters, several_writers};
use weldfs_session::departed;
use weldfs_session::departures::Departures;
use weldfs_session::inbox::Inbox;
use weldfs_session::leavings::Leavings;
use weldfs_session::limits::{PLACEHOLDERS_MAX, QUEUES_MAX, SESSIONS_MAX};
use weldfs_session::ofd::OpenFiles;
use weldfs_session::sets::SetTable;
use weldfs_session::tenants::{DeviceStock, TenantTable, TenantsConfig};

/// Descriptors of this process that files never get: sockets, doorbells, threads.
const FDS_KEPT: usize = 64;

/// The shared part.
pub struct Core {
    pub(super) config: HostDirConfig,
    /// The directory; nothing above it is ever reached.
    pub(super) root: OwnedFd,
    /// Its st_dev and st_ino.
    pub(super) root_id: (u64, u64),
    pub(super) power_safe: bool,
    /// All of its files lie in memory, and nowhere else.
    pub(super) in_memory: bool,
    pub(super) durable_default: bool,
    /// This process may act with its callers' rights, and does; else it serves its own user only.
    pub(super) for_others: bool,
    /// The user this process acts for unless told otherwise.
    pub(super) uid: u32,
    /// Tickets on inodes.
    pub(super) sets: SetTable,
    /// Held shared while a name is resolved, exclusively while one changes. Before tickets, never after.
    pub(super) names: NameLock,
    /// Commands that hold an inode exclusively: begun, and ended.
    pub(super) exclusive: (AtomicU64, AtomicU64),
    pub(super) files: Arc<OpenFiles<HostFile>>,
    pub(super) inbox: Inbox<Message>,
    /// Whoever has it looks at the rings.
    pub(super) lookout: Mutex<Lookout>,
    /// Commands that take long.
    pub(super) long: Long,
    /// Threads that compute.
    pub(super) computing: Arc<Computing>,
    /// Where they do so.
    pub(super) processors: Arc<Processors>,
    /// What the thread that looks at rings does.
    pub(super) beat: Beat,
    pub(super) workers: Vec<CoreCounters>,
    pub(super) tenants: TenantTable,
    /// Calls that waited until the host had made something durable.
    pub(super) flushes: AtomicU64,
    /// Placeholders alone hold files: look now and then whether any process holds the placeholders.
    pub(super) watch: AtomicBool,
    pub(super) sessions: Mutex<Sessions>,
    /// Clients of several tenants are attached.
    pub(super) several: AtomicBool,
    pub(super) no_sessions: Condvar,
    pub(super) departures: Departures,
    pub(super) next_session: AtomicU64,
    /// Of queue pairs.
    pub(super) budget: Arc<Budget>,
    pub(super) leavings: Leavings,
    /// When it began to end, nanoseconds of the device's clock; 0: it does not.
    pub(super) ending_since: AtomicU64,
    poisoned: AtomicBool,
    /// Readable once it is.
    failure: OwnedFd,
    #[cfg(test)]
    pub(super) faults: super::tests::Faults,
}

/// Those that are attached.
#[derive(Default)]
pub(super) struct Sessions {
    pub live: HashMap<u64, Arc<SessionState>>,
    /// Of each tenant that has any.
    pub of_tenants: HashMap<u32, usize>,
    pub refuse: bool,
}

/// Descriptors that this process may have.
fn descriptors() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.map_or(1 << 20, |n| n as usize).min(1 << 20)
}

impl Core {
    pub(super) fn new(config: HostDirConfig) -> std::io::Result<Arc<Core>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &config.dir, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        if config.threads > 1 {
            several_writers();
        }
        // A socket and a doorbell each for sessions; of the rest half for files, a quarter for placeholders.
        let fds = descriptors().saturating_sub(FDS_KEPT);
        let sessions = (fds / 8).clamp(1, SESSIONS_MAX);
        let has = DeviceStock {
            cores: config.threads.max(1),
            slots: config.threads.max(1),
            sessions,
            queue_pairs: QUEUES_MAX,
            pool_bytes: config.pool_bytes_max,
            handles: (fds / 2).max(1),
            placeholders: (fds / 4).clamp(1, PLACEHOLDERS_MAX),
        };
        let inbox = Inbox::new()?;
        let lookout = Lookout::new(&inbox, config.spin_ns_max)?;
        let uid = rustix::process::geteuid().as_raw();
        let processors = Arc::new(Processors::new());
        Ok(Arc::new(Core {
            power_safe: power::is_safe(&root),
            in_memory: power::in_memory(&root),
            durable_default: config.durability == Durability::Durable,
            for_others: uid == 0,
            uid,
            root_id: (stat.st_dev, stat.st_ino),
            root,
            sets: SetTable::default(),
            names: NameLock::default(),
            exclusive: Default::default(),
            files: OpenFiles::new((fds / 2).max(1)),
            inbox,
            lookout: Mutex::new(lookout),
            long: Long::new(config.threads.max(1)),
            computing: Computing::new(std::thread::available_parallelism().map_or(1, usize::from)),
            processors: processors.clone(),
            beat: Beat::default(),
            workers: (0..config.threads.max(1)).map(|_| CoreCounters::default()).collect(),
            tenants: TenantTable::new(TenantsConfig::default(), has, &weldfs_journal::SystemRandom),
            flushes: AtomicU64::new(0),
            watch: AtomicBool::new(false),
            sessions: Mutex::default(),
            several: AtomicBool::new(false),
            no_sessions: Condvar::new(),
            departures: Departures::new()?,
            next_session: AtomicU64::new(1),
            budget: Arc::default(),
            leavings: Leavings::beginning(move || processors.roam(&mut true)),
            ending_since: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            failure: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            #[cfg(test)]
            faults: Default::default(),
            config,
        }))
    }

    /// The number under which an inode's tickets and locks are kept. On the directory's own file system it is the
    /// inode's; two inodes of one number would exclude each other more than they need to, and nothing worse.
    pub(super) fn key(&self, dev: u64, ino: u64) -> InodeNo {
        InodeNo(ino ^ (dev ^ self.root_id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.root_id.0.to_be_bytes());
        uuid[8..].copy_from_slice(&self.root_id.1.to_be_bytes());
        uuid
    }

    /// Whether clients of several tenants are attached.
    pub(super) fn has_several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    pub(super) fn watch_placeholders(&self) {
        if !self.watch.swap(true, Ordering::AcqRel) {
            self.inbox.ring();
        }
    }

    /// A command has its place among those of its inode, or is over.
    pub(super) fn settle(&self, work: &Work) {
        if work.settles {
            self.settle_mark(&work.queue, work.mark);
        }
    }

    /// The command has its place among those of its inode, or is over: the next one of its ring may be taken.
    pub(super) fn settle_mark(&self, queue: &QueueState, mark: u32) {
        // It may have been said before: then the mark is the next command's, which has no place yet.
        if !queue.pair.admitted(0, mark) {
            return;
        }
        // Whoever sleeps skipped this ring because of the mark: its entries, too, are looked at after the mark is gone.
        fence(Ordering::SeqCst);
        if queue.is_worth_a_look() {
            self.inbox.ring();
        }
    }

    /// After a panic in a command: clients are told, and nothing is served any more.
    pub(super) fn poison(&self) {
        if self.poisoned.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::error!("a command of the host directory panicked: it is not served any more");
        let sessions: Vec<_> = {
            let mut sessions = self.sessions.lock();
            sessions.refuse = true;
            sessions.live.values().cloned().collect()
        };
        sessions.iter().flat_map(|s| s.queues()).for_each(|q| q.pair.ends().close());
        self.inbox.send(Message::Stop);
        self.long.end();
        // A counter that is full has not been read and is readable.
        let _ = rustix::io::write(&self.failure, &1u64.to_ne_bytes());
    }

    /// Readable once nothing is served any more.
    pub(super) fn failure(&self) -> &OwnedFd {
        &self.failure
    }

    /// Whether this command of this session is begun, or gone on with: not for ever where its client is gone.
    pub(super) fn goes_on(&self, session: &SessionState, op: &Op, begun: bool) -> bool {
        let Some(gone) = session.closed_at() else { return true };
        let ending = Some(self.ending_since.load(Ordering::Relaxed)).filter(|since| *since != 0);
        (begun || !matches!(op, Op::Batch { .. })) && departed::goes_on_since(gone, ending, op, begun)
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }
}
