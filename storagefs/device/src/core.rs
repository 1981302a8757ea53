//! What all parts of one device share.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use weldfs_ciscops::{Durability, InodeNo};
use weldfs_fpga::card::Card;
use weldfs_journal::{Clock, MediumKind};
use weldfs_locks::Mutex;
use weldfs_scheduler::{WEIGHT_DEFAULT, WEIGHT_MAX};
use weldfs_session::clock::now_ns;
use weldfs_session::counters::{CoreCounters, several_writers};
use weldfs_session::departures::Departures;
use weldfs_session::inbox::Inbox;
use weldfs_session::leavings::Leavings;
use weldfs_session::sets::SetTable;
use weldfs_session::tenants::{DeviceStock, TenantTable};
use weldfs_store::Store;

use super::board::Board;
use super::config::DeviceConfig;
use super::emulated::Emulated;
use super::io::IoPool;
use super::leases::Leases;
use super::maintenance::Maintenance;
use super::memory::Memory;
use super::message::Message;
use super::pace::Pace;
use super::pools::PoolBudget;
use super::runq::RunQueue;
use super::seat::Seat;
use super::session::QueueState;
use super::sessions::Sessions;
use super::trace::Trace;
use super::watches::Watches;
use crate::limits::{
    OPEN_FILES_MAX, PLACEHOLDERS_MAX, QUEUES_MAX, SESSIONS_MAX, SLOTS_PER_THREAD, SWEEP_AGAIN_NS, SWEEP_SHARE,
};
use crate::open::{OpenFiles, Virtuals};

/// One device thread as others see it.
pub(super) struct ThreadState {
    pub inbox: Arc<Inbox<Message>>,
    pub counters: CoreCounters,
    pub queues: AtomicUsize,
}

/// The shared part of a device.
pub struct Core {
    pub(super) config: DeviceConfig,
    pub(super) store: Arc<Store>,
    pub(super) durable_default: bool,
    pub(super) sets: SetTable,
    pub(super) files: Arc<OpenFiles>,
    pub(super) leases: Leases,
    pub(super) watches: Arc<Watches>,
    pub(super) virtuals: Virtuals,
    pub(super) io: Arc<IoPool>,
    pub(super) maintenance: Maintenance,
    pub(super) pace: Pace,
    pub(super) card: Arc<Card>,
    pub(super) threads: Vec<ThreadState>,
    pub(super) board: Arc<Board>,
    pub(super) memory: Memory,
    pub(super) trace: Trace,
    /// The core, where callers run it.
    pub(super) seat: Seat,
    pub(super) emulated: Emulated,
    all_queues: Mutex<Vec<Arc<QueueState>>>,
    queues_version: AtomicU64,
    /// When dead placeholders were last looked for on demand, and how many were handed out since.
    swept: AtomicU64,
    placed: AtomicUsize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tenants: TenantTable,
    pub(super) sessions: Sessions,
    pub(super) departures: Departures,
    pub(super) pools: Arc<PoolBudget>,
    pub(super) leavings: Leavings,
    /// When the device began to end, on its clock; 0: it has not.
    ending_since: AtomicU64,
    poisoned: AtomicBool,
    abandoned: AtomicBool,
    /// An eventfd: readable once the device is abandoned.
    failure: OwnedFd,
}

/// A tenant's weight as policies count: 100, the usual one, is theirs.
pub(super) fn policy_weight(weight: u32) -> u32 {
    (u64::from(weight) * u64::from(WEIGHT_DEFAULT) / 100).clamp(1, u64::from(WEIGHT_MAX)) as u32
}

/// Sessions, which have a socket and a doorbell each, and placeholders for which a process with so many descriptors
/// has enough: a third of them, or two thousand, are left for the device itself, for connections that have not
/// attached, and for what clients send. So none of them runs out, and of each a tenant leaves as much to others as it
/// has.
fn stock_of(descriptors: usize) -> (usize, usize) {
    let placeholders = descriptors.saturating_sub(4 * SESSIONS_MAX).clamp(descriptors / 4, PLACEHOLDERS_MAX);
    ((descriptors / 5).clamp(1, SESSIONS_MAX), placeholders)
}

/// Whether a change that says nothing about it is durable before its answer.
fn is_durable(asked: Durability, medium: MediumKind) -> bool {
    match asked {
        Durability::Durable => true,
        Durability::Volatile => false,
        Durability::Default => medium != MediumKind::Block,
    }
}

impl Core {
    pub(super) fn new(store: Arc<Store>, config: DeviceConfig) -> std::io::Result<Arc<Core>> {
        let durable_default = is_durable(config.durability, store.medium().info().kind);
        if config.cores > 1 {
            several_writers();
        }
        let threads = (0..config.cores.max(1))
            .map(|_| {
                Ok(ThreadState {
                    inbox: Arc::new(Inbox::new()?),
                    counters: CoreCounters::default(),
                    queues: AtomicUsize::new(0),
                })
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        let slots = config.cores.max(1) * SLOTS_PER_THREAD;
        let runq = RunQueue::new(config.policy, slots, config.quantum_ns, config.cost);
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let (sessions, placeholders) = stock_of(descriptors.map_or(PLACEHOLDERS_MAX, |n| n as usize));
        let has = DeviceStock {
            cores: threads.len(),
            slots,
            sessions,
            queue_pairs: QUEUES_MAX,
            pool_bytes: config.pool_bytes_max,
            handles: OPEN_FILES_MAX,
            placeholders,
        };
        let board = Arc::new(Board::new(runq, slots, threads.iter().map(|t| t.inbox.clone())));
        let memory = Memory::new(store.clone(), board.clone());
        let tenants = TenantTable::new(config.tenants.clone(), has, &weldfs_journal::SystemRandom);
        for tenant in tenants.list() {
            let bad = |e| std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("tenant {}: {e}", tenant.name));
            memory.set_share(&tenant).map_err(bad)?;
            // Until it has a session, others are guaranteed what was not promised to it.
            memory.forget(&tenant);
            board.runq.set_weight(tenant.id, || policy_weight(tenant.weight()));
        }
        let pools = Arc::new(PoolBudget::new(config.pool_bytes_max));
        let emulated = Emulated::new(&config, threads.len())?;
        let card = emulated.card().clone();
        let watches = Watches::of(&store);
        Ok(Arc::new(Core {
            files: crate::open::files_of(&store),
            leases: Leases::default(),
            watches,
            io: Arc::new(IoPool::start(store.clone(), config.at_rest)?),
            maintenance: Maintenance::default(),
            leavings: Leavings::default(),
            pace: Pace::default(),
            trace: Trace::new(threads.len(), card.clone()),
            card,
            clock: store.clock().clone(),
            tenants,
            board,
            memory,
            seat: Seat::default(),
            emulated,
            all_queues: Mutex::default(),
            queues_version: AtomicU64::new(1),
            swept: AtomicU64::new(0),
            placed: AtomicUsize::new(0),
            config,
            store,
            durable_default,
            sets: SetTable::default(),
            virtuals: Virtuals::default(),
            threads,
            sessions: Sessions::new(),
            departures: Departures::new()?,
            pools,
            ending_since: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            failure: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        }))
    }

    /// The device begins to end.
    pub(super) fn begin_to_end(&self) {
        self.ending_since.store(now_ns().max(1), Ordering::Relaxed);
    }

    /// Since when the device ends, if it does.
    pub(super) fn ending_since(&self) -> Option<u64> {
        Some(self.ending_since.load(Ordering::Relaxed)).filter(|since| *since != 0)
    }

    /// The core with the fewest queue pairs: the home of the next one.
    pub(super) fn home_of_next(&self) -> usize {
        let least = (0..self.threads.len()).min_by_key(|i| self.threads[*i].queues.load(Ordering::Relaxed));
        least.expect("a device has at least one core")
    }

    /// Hands a queue pair to its home.
    pub(super) fn place_queue(&self, queue: Arc<QueueState>) {
        let home = &self.threads[queue.pair.home];
        home.queues.fetch_add(1, Ordering::Relaxed);
        self.all_queues.lock().push(queue.clone());
        self.queues_version.fetch_add(1, Ordering::Release);
        home.inbox.send(Message::Queue(queue));
    }

    /// A queue pair was dropped by its home.
    pub(super) fn queue_gone(&self, queue: &Arc<QueueState>) {
        self.threads[queue.pair.home].queues.fetch_sub(1, Ordering::Relaxed);
        self.all_queues.lock().retain(|q| !Arc::ptr_eq(q, queue));
        self.queues_version.fetch_add(1, Ordering::Release);
        // A core that has had something to do ever since it last looked at the rings of others knows it, too, and its
        // memory would stay. One that sleeps knows none.
        self.threads.iter().for_each(|t| t.inbox.note());
    }

    /// Lets go of placeholders that nothing holds any more, for a client at its limit: whether it looked. Not for a
    /// client that only asks again and again, which would keep the control plane busy: where little has been handed out
    /// since the last look, measured by what there is to look at, a while must have passed.
    pub(super) fn look_for_dead_placeholders(&self) -> bool {
        let (now, last) = (now_ns(), self.swept.load(Ordering::Relaxed));
        let fresh = self.placed.swap(0, Ordering::Relaxed);
        let due = fresh >= self.files.bound() / SWEEP_SHARE || now.saturating_sub(last) >= SWEEP_AGAIN_NS;
        if due {
            self.swept.store(now, Ordering::Relaxed);
            self.files.sweep();
        } else {
            self.placed.fetch_add(fresh, Ordering::Relaxed);
        }
        due
    }

    /// So many placeholders were handed out.
    pub(super) fn note_placeholders(&self, count: usize) {
        self.placed.fetch_add(count, Ordering::Relaxed);
    }

    /// Changes whenever the list of queue pairs does.
    #[inline]
    pub(super) fn queues_version(&self) -> u64 {
        self.queues_version.load(Ordering::Acquire)
    }

    /// All queue pairs, with a version of the list that is not newer.
    pub(super) fn all_queues(&self) -> (u64, Vec<Arc<QueueState>>) {
        (self.queues_version(), self.all_queues.lock().clone())
    }

    /// The command in this slot has its place in all its queues: the next one of its ring may follow, on another core
    /// if there is one without work.
    pub(super) fn admitted(&self, queue: &QueueState, slot: u32) {
        let now = queue.pair.admitted(slot, self.board.slot(slot).generation());
        queue.pair.tell();
        if now && self.board.is_shared() {
            self.offer_next(queue);
        }
    }

    /// Nothing stands before the next command of a ring any more: its home may have gone to sleep over that.
    pub(super) fn offer_next(&self, queue: &QueueState) {
        let more = queue.pair.try_ends().is_none_or(|mut ends| ends.has_waiting());
        if more {
            self.board.offer(queue.pair.home);
        }
    }

    /// Device time of so much time of the host's core, nanoseconds.
    #[inline]
    pub(super) fn scaled(&self, host_ns: u64) -> u64 {
        (u128::from(host_ns) * u128::from(self.emulated.stretch()) / 1024) as u64
    }

    pub(super) fn broadcast(&self, message: impl Fn() -> Message) {
        self.threads.iter().for_each(|t| t.inbox.send(message()));
    }

    /// Whether commands run on the threads that call.
    pub(super) fn is_inline(&self) -> bool {
        self.emulated.is_fixed()
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

    /// Takes the device out of service: a core has failed outside an operation, so commands may be lost that it had
    /// taken, and its rings are polled by no core. Every client is told at once, also one that sleeps; whoever serves
    /// the device sees [`Core::failure`]. What is left is given back by `Core::bury`, when all cores have ended.
    pub(super) fn abandon(&self) {
        self.poison();
        if self.abandoned.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::error!("the device is out of service until it is started again");
        self.sessions.refuse();
        let queues = self.all_queues.lock().clone();
        queues.iter().for_each(|q| {
            q.pair.ends().abandon();
            q.pair.leave();
        });
        self.broadcast(|| Message::Abandon);
        // A counter that is full has not been read and is readable.
        let _ = rustix::io::write(&self.failure, &1u64.to_ne_bytes());
    }

    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Readable once the device is out of service.
    pub(super) fn failure(&self) -> &OwnedFd {
        &self.failure
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

#[cfg(test)]
mod tests;
