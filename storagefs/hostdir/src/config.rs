//! What to serve, and how.

use std::path::PathBuf;

use weldfs_ciscops::Durability;

/// Threads unless said otherwise.
pub const THREADS: usize = 4;

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct HostDirConfig {
    /// The directory.
    pub dir: PathBuf,
    /// Threads that look at rings and call the host; at least one. One of them looks at a time.
    pub threads: usize,
    /// What "default durability" means: `Durable`, else volatile.
    pub durability: Durability,
    /// Bytes of shared memory that all queue pairs together may take.
    pub pool_bytes_max: u64,
    /// Handles of one session; each is a descriptor of this process.
    pub handles_max: u32,
    /// Longest a thread spins without work before it sleeps, nanoseconds.
    pub spin_ns_max: u64,
    /// Called by a thread that has computed, which may take much memory, and does no more of it for now.
    pub at_rest: Option<fn()>,
}

impl HostDirConfig {
    /// With defaults for everything but the directory.
    pub fn new(dir: impl Into<PathBuf>) -> HostDirConfig {
        HostDirConfig {
            dir: dir.into(),
            threads: THREADS,
            durability: Durability::Volatile,
            pool_bytes_max: 1 << 30,
            handles_max: weldfs_ciscops::limits::HANDLES_MAX,
            spin_ns_max: weldfs_session::limits::SPIN_NS_MAX,
            at_rest: None,
        }
    }
}
