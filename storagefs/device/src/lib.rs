//! The device: threads, queue pairs, sessions, and the way of a command through them.
//!
//! * This file starts and ends it; `config` says how, `core` is what its parts share, `limits` bounds everything.
//! * `thread` is the run loop of a device thread: poll rings, run slots, post completions, sleep in one call; `rtc`
//!   runs what waits for nothing where it is found. `slots` holds the op futures and their wakers, `board` says which
//!   are to run. `serve` is the op future itself, `opcode` what an opcode asks for, `dataplane` a transaction from
//!   its tickets to its outcome; `opcx` what a command has at hand, `done` what it ends with and what it moved; `batch`
//!   one that runs several commands, `session_ops` those without a transaction, `staged` those of several commands.
//!   `held` is how a command comes to hold inodes, `aside` the order of those that gave theirs up, `leases` what was
//!   published before, by clients that do not wait, `watches` what clients may answer by themselves, `grants` which
//!   opens have either, `tries` what one try finds out for the next, `lent` how a program lends inodes while it
//!   computes. `open` is what a description holds open, `opening` how it comes to that. `virt` is about files that
//!   stream through a kernel, which see each command before `opcode` does, `stream` what such a stream is.
//! * `session` is an attached client (what it has apart from a medium is of `weldfs-session`), `sessions` all of them,
//!   `lifecycle` how they and their queue pairs come and go, `control` what the control plane has of one; `pools` is
//!   how much memory is shared with clients, `memory` who may use how much of the device's own.
//! * `card` is the FPGA slots beside the cores, `packet` a stage in one, `placed` which commands compute in them.
//! * `room` is how a command waits for space; `maintainer` does what belongs to no command, and `maintenance` is what
//!   it is asked for; `io` reads what is cold. `model` says when things would happen on the hardware that a profile
//!   describes, `emulated` holds both.
//! * `stats` and `trace` say what happened, and when.
//!
//! No module uses one that uses it: `tidy.toml` has their order. What needs the whole device lies above `core`; what
//! `core` holds does not know it.
//!
//! Nothing a client writes is believed: entries are copied out once and decoded, indices are checked against private
//! ones, the queue a command arrives on says whose it is. Nothing on a device thread blocks.

mod aside;
mod batch;
mod board;
mod card;
mod checksum;
mod config;
mod control;
mod core;
mod dataplane;
mod departed;
mod detect;
mod done;
mod due;
mod emulated;
mod grants;
mod held;
mod io;
mod leases;
mod lent;
mod lifecycle;
pub mod limits;
mod lost;
mod mail;
mod maintainer;
mod maintenance;
mod memory;
mod message;
mod model;
mod near;
mod opcode;
mod opcx;
mod open;
mod opening;
mod pace;
mod packet;
mod placed;
mod pools;
mod room;
mod rtc;
pub mod runq;
mod seat;
mod serve;
mod session;
mod session_ops;
mod sessions;
mod slice;
mod slicer;
mod slots;
mod staged;
mod starved;
mod stats;
mod stream;
mod sync;
mod thread;
pub mod trace;
mod tries;
mod tune;
mod virt;
mod watches;
mod wishes;

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use weldfs_ciscops::{Cqe, Errno, RawCommand, Sqe};
use weldfs_locks::Mutex;

use self::core::Core;
use self::message::Message;
use weldfs_session::clock;
use weldfs_session::tenants::{Tenant, TenantToken};
use weldfs_store::Store;

pub use config::DeviceConfig;
pub use control::Session;
pub use model::{MediaModel, on_modelled};
pub use runq::CostModel;
pub use seat::Seated;
pub use tune::{Setting, TuneError};
pub use weldfs_fpga::config::CardConfig;
pub use weldfs_scheduler::PolicyKind;
pub use weldfs_session::counters::{CoreTotals, Totals};
pub use weldfs_session::departures::Departures;
pub use weldfs_session::profile::{
    Core as ProfileCore, Link as ProfileLink, Media as ProfileMedia, Pcie, Profile, ProfileError, SlotSize,
    Slots as ProfileSlots, Timed,
};
pub use weldfs_session::rings::{Claimed, QueueParts};
pub use weldfs_session::stats::{
    CoreStats, Crossings, DeviceFacts, DeviceStats, InodeQueueStats, LogFacts, MemoryStats, SchedulerStats,
    SessionStats, SlotStats, TenantStats, Usage,
};
pub use weldfs_session::tenants::{Identity, TenantReport, TenantsConfig};
pub use weldfs_store::LogEnd;
pub use weldfs_store::lograte::LogRate;

/// A running device. Thread-safe; dropping it shuts it down.
pub struct Device {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Device {
    /// Starts the threads of a device over a mounted store.
    pub fn start(store: Arc<Store>, config: DeviceConfig) -> std::io::Result<Device> {
        // Calibrated before the first command, not during it.
        clock::now_ns();
        let core = Core::new(store, config)?;
        let device = Device { core: core.clone(), threads: Mutex::default() };
        let (tell, ready) = std::sync::mpsc::channel();
        let cores = core.clone();
        device.spawn("weld-dev-0".into(), move || {
            if catch_unwind(AssertUnwindSafe(|| thread::run(&cores, &tell))).is_err() {
                cores.abandon();
            }
            if cores.is_abandoned() {
                cores.bury();
            }
        })?;
        // A sender that is dropped without a word has panicked.
        ready.recv().unwrap_or_else(|_| Err(std::io::Error::other("the device's cores do not start")))?;
        device.spawn("weld-maint".into(), move || {
            if catch_unwind(AssertUnwindSafe(|| maintainer::run(&core))).is_err() {
                core.poison();
                core.maintenance.abandon();
            }
        })?;
        Ok(device)
    }

    /// A device of one core that is the calling thread: `body` gets the device, and what does one turn of the core
    /// (true when there was something to do). Nothing else runs: no checkpoint is taken, nothing is flushed in the
    /// background. For what counts or steps through a command's whole way, from its ring to its completion. All
    /// sessions end with `body`. Errors: the system has no descriptors or memory for it, or `config` is of more than
    /// one core.
    pub fn on_this_thread<R>(
        store: Arc<Store>,
        config: DeviceConfig,
        body: impl FnOnce(&Device, &mut dyn FnMut() -> bool) -> R,
    ) -> std::io::Result<R> {
        if config.cores > 1 {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "one thread is one core"));
        }
        clock::now_ns();
        let device = Device { core: Core::new(store, config)?, threads: Mutex::default() };
        let done = thread::here(&device.core, |turn| body(&device, turn))?;
        device.core.files.forget();
        Ok(done)
    }

    fn spawn(&self, name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let handle = std::thread::Builder::new().name(name).spawn(body)?;
        self.threads.lock().push(handle);
        Ok(())
    }

    /// A session for a client whose identity the control plane vouches for. `prefix` is the host directory under
    /// which the client sees the file system (may be empty). EMFILE at the device's limit, ENODEV while it shuts down.
    pub fn attach(&self, who: impl Into<Identity>, client_id: [u8; 16], prefix: &[u8]) -> Result<Session, Errno> {
        Ok(Session::new(self.core.clone(), self.core.attach(who.into(), client_id, prefix.to_vec())?))
    }

    /// The sessions of a user that are ending: what their clients had published is still being executed, and their
    /// locks are held.
    pub fn departing(&self, uid: u32) -> Vec<u64> {
        self.core.sessions.departing(uid)
    }

    /// Whether a session is there, if only to end.
    pub fn has_session(&self, id: u64) -> bool {
        self.core.sessions.has(id)
    }

    /// Tells when sessions have gone.
    pub fn departures(&self) -> &Departures {
        &self.core.departures
    }

    /// Whoever shows this token has proved to be who it was minted for. EACCES: an unknown one.
    pub fn join(&self, who: &mut Identity, token: &TenantToken) -> Result<(), Errno> {
        who.joined = Some(self.core.tenants.bearer(token).ok_or(Errno::ACCES)?);
        Ok(())
    }

    /// The token of a tenant. ENOENT: no such tenant; EOPNOTSUPP: it has none.
    pub fn token(&self, tenant: &str) -> Result<TenantToken, Errno> {
        self.core.tenants.token(tenant)
    }

    /// The tenants, by number.
    pub fn tenants(&self) -> Vec<TenantReport> {
        let cached = |t: &Tenant| self.core.store.cached_for(t.id.0);
        self.core.tenants.list().iter().map(|t| t.report(cached(t))).collect()
    }

    /// The store it runs.
    pub fn store(&self) -> &Arc<Store> {
        &self.core.store
    }

    /// The run queue, to change its policy, quantum and cost model while it works.
    pub fn run_queue(&self) -> &runq::RunQueue {
        &self.core.board.runq
    }

    /// Facts that belong beside every figure.
    pub fn facts(&self) -> DeviceFacts {
        self.core.facts()
    }

    /// Handles one session may have.
    pub fn handles_max(&self) -> u32 {
        self.core.config.handles_max
    }

    /// All counters.
    pub fn stats(&self) -> DeviceStats {
        self.core.stats(None, 0)
    }

    /// What is in use now; back to zero when all clients are gone.
    pub fn usage(&self) -> Usage {
        self.core.usage()
    }

    /// Takes the device out of service, as a core does that fails outside an operation: every client gets EIO or
    /// ENODEV at once, nothing more is executed, none can attach, and the image is recovered at the next mount. To be
    /// followed by `shutdown`.
    pub fn abandon(&self) {
        self.core.abandon();
    }

    /// Readable once the device is out of service: who serves it should end.
    pub fn failure(&self) -> BorrowedFd<'_> {
        self.core.failure().as_fd()
    }

    /// Runs the device's core on the calling thread until `done`, where its commands run on the threads that call
    /// (`DeviceConfig::inline`), and no other thread is doing so.
    pub fn run_here(&self, done: &mut dyn FnMut() -> bool) -> Seated {
        let journal = self.core.store.journal();
        loop {
            let seated = self.core.seat.run(done);
            journal.announce_led();
            // A caller that would only wait does the flush that it waits for, off the seat: others may have the core.
            if seated != Seated::Ran || !seat::Seat::busy(|| journal.leave(!done())) {
                return seated;
            }
        }
    }

    /// Runs a command of this session and this of its queue pairs on the calling thread, past the ring, where commands
    /// run on the threads that call: if no other thread has the core, nothing waits for it, and the command is over at
    /// once. `None`: nothing has happened, and it is to be put into the ring. The entry is checked like one from there.
    pub fn call_here(&self, pair: (u64, u32), entry: &Sqe) -> Option<Cqe> {
        self.core.seat.call(pair, &RawCommand(*entry))
    }

    /// Whether this thread was interrupted while it ran a device: what it asks of one now is not answered before the
    /// interruption ends.
    pub fn is_inside() -> bool {
        seat::Seat::is_inside()
    }

    /// Whether commands run on the threads that call.
    pub fn is_inline(&self) -> bool {
        self.core.is_inline()
    }

    /// True when it is out of service.
    pub fn is_abandoned(&self) -> bool {
        self.core.is_abandoned()
    }

    /// True after a panic in an operation: the device answers EIO.
    pub fn is_poisoned(&self) -> bool {
        self.core.is_poisoned()
    }

    /// Ends all sessions (published commands are executed first) and all threads. Idempotent. The store stays mounted:
    /// whoever mounted it unmounts it.
    pub fn shutdown(&self) {
        let threads: Vec<_> = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        self.core.end_sessions();
        self.core.broadcast(|| Message::Stop);
        self.core.maintenance.stop();
        for t in threads {
            if t.join().is_err() {
                tracing::error!("a device thread panicked");
            }
        }
        // Descriptions that only placeholders in other processes name end with the device.
        self.core.files.forget();
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shutdown();
    }
}
