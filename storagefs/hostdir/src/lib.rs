//! A directory of the host in place of a medium: the same commands, rings, wake-ups, sessions and interpreter, over the
//! host's own file system. One crossing for a client's fused command; what it does becomes calls of the host.
//!
//! * This file starts and ends it, `config` says how; `core` is what its threads share; `session` is a client,
//!   `sessions` how one comes and goes, `control` the control plane's hold on it, `budget` the memory of them all.
//! * `lookout` is what the one thread knows that looks at the rings, `polling` how it looks, `rings` at which next.
//! * `hand` runs commands on its own stack, where calls of the host may block, with the `scratch` memory of its thread;
//!   `long` says how many threads do so, and whose turn it is; `pace` what the commands of a ring usually take, `cost`
//!   what one may.
//! * `work` is a command under way; `sequence` runs an entry of a ring, which may be several, `command` one of them,
//!   `listing` a directory with attributes.
//! * `txn` is a command's transaction, `target` its use as a `Target`; `prepare` says what a command holds, `program`
//!   what a program does; `namelock` is the lock of all names, tenants in turn.
//! * `walk` resolves names below the directory and nowhere else, `resolve` along links and long paths, as far as `way`
//!   lets it; `names`, `data`, `attr` are the calls; `sys` holds the few that need raw pointers; `power` finds out what
//!   the bytes lie on.
//! * `rehearsal` runs programs that compute, before they hold anything: `foresight` is what is known of one by then,
//!   `imagined` what it does to files meanwhile. `computing` says how many compute at a time, and `processors` where.
//!
//! What is promised between clients is what the device promises: a command holds its inodes, shared or exclusive, and
//! commands of one ring on one inode run in order. Other programs of the host are not held off, nothing is rolled back,
//! and what a crash leaves is what the host's file system leaves.

mod attr;
mod budget;
mod command;
mod computing;
mod config;
mod control;
mod core;
mod cost;
mod data;
mod foresight;
mod hand;
mod imagined;
mod listing;
mod long;
mod lookout;
mod namelock;
mod names;
mod pace;
mod polling;
pub mod power;
mod prepare;
mod processors;
mod program;
mod rehearsal;
mod resolve;
mod rings;
mod scratch;
mod sequence;
mod session;
mod sessions;
mod stats;
mod sys;
mod target;
mod txn;
mod walk;
mod way;
mod work;

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use weldfs_ciscops::Errno;
use weldfs_locks::Mutex;

use self::core::Core;
use weldfs_session::departures::Departures;
use weldfs_session::stats::{DeviceFacts, DeviceStats, Usage};
use weldfs_session::tenants::{Identity, TenantReport};

pub use config::{HostDirConfig, THREADS};
pub use control::HostSession;

/// A directory being served. Thread-safe; dropping it shuts it down.
pub struct HostDir {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl HostDir {
    /// Starts the threads that serve a directory. Fails when it is none, or cannot be read.
    pub fn start(config: HostDirConfig) -> std::io::Result<HostDir> {
        weldfs_session::clock::now_ns();
        let core = Core::new(config)?;
        let served = HostDir { core: core.clone(), threads: Mutex::default() };
        for index in 0..core.workers.len() {
            let core = core.clone();
            let body = move || {
                if catch_unwind(AssertUnwindSafe(|| hand::run(&core, index))).is_err() {
                    core.poison();
                }
            };
            served.threads.lock().push(std::thread::Builder::new().name(format!("weld-host-{index}")).spawn(body)?);
        }
        Ok(served)
    }

    /// A session for a client whose identity the control plane vouches for. EACCES: this process acts with its own
    /// rights only, and they are not the client's. EMFILE at the limit, ENODEV while it shuts down.
    pub fn attach(&self, who: impl Into<Identity>, client_id: [u8; 16]) -> Result<HostSession, Errno> {
        HostSession::attach(&self.core, who.into(), client_id)
    }

    /// The sessions of a user that are ending, as of a device.
    pub fn departing(&self, uid: u32) -> Vec<u64> {
        self.core.departing(uid)
    }

    /// Whether a session is there, if only to end.
    pub fn has_session(&self, id: u64) -> bool {
        self.core.has_session(id)
    }

    /// Tells when sessions have gone.
    pub fn departures(&self) -> &Departures {
        &self.core.departures
    }

    /// The tenants, by number.
    pub fn tenants(&self) -> Vec<TenantReport> {
        self.core.tenants.list().iter().map(|t| t.report(0)).collect()
    }

    /// Facts that belong beside every figure.
    pub fn facts(&self) -> DeviceFacts {
        self.core.facts()
    }

    /// Identifies the directory: its device and inode numbers.
    pub fn uuid(&self) -> [u8; 16] {
        self.core.uuid()
    }

    /// Handles one session may have.
    pub fn handles_max(&self) -> u32 {
        self.core.config.handles_max
    }

    /// All counters.
    pub fn stats(&self) -> DeviceStats {
        self.core.stats(None)
    }

    /// What is in use now; back to zero when all clients are gone.
    pub fn usage(&self) -> Usage {
        self.core.usage()
    }

    /// True after a command panicked: nothing is served any more.
    pub fn is_poisoned(&self) -> bool {
        self.core.is_poisoned()
    }

    /// Readable from then on.
    pub fn failure(&self) -> BorrowedFd<'_> {
        self.core.failure().as_fd()
    }

    /// Ends all sessions (published commands are executed first) and all threads. Idempotent.
    pub fn shutdown(&self) {
        let threads: Vec<_> = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        self.core.end();
        for t in threads {
            if t.join().is_err() {
                tracing::error!("a thread of the host directory panicked");
            }
        }
        self.core.files.forget();
    }
}

impl Drop for HostDir {
    fn drop(&mut self) {
        self.shutdown();
    }
}

#[cfg(test)]
mod tests;
