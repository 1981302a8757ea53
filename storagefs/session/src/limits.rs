//! Bounds of sessions, rings, descriptions, locks and tenants, with their units.

/// Commands in flight on one device thread.
pub const SLOTS_PER_THREAD: usize = 256;
/// Commands taken from one queue pair before the next one gets its turn.
pub const BATCH_PER_QUEUE: u32 = 32;
/// Completions held back for one publication of the completion queue.
pub(crate) const CQ_BATCH_MAX: u32 = 16;
/// Nanoseconds for which a completion may wait to be published together with others of its ring that follow.
pub const PUBLISH_NS: u64 = 20_000;
/// Commands taken from a ring before their entries are given back, if no completion is published first.
pub(crate) const SQ_RELEASE_BATCH: u32 = 8;
/// Times a program starts over because others changed what it had lent, before it is EAGAIN.
pub const LOST_MAX: u32 = 16;
/// Shards of the set table; a power of two.
pub(crate) const SET_SHARDS: usize = 64;
/// Polls of all queues between two looks at the clock while there is no work.
pub const SPIN_MIN: u32 = 16;
/// Nanoseconds a device thread spins without offering its core to others.
pub const SPIN_ALONE_NS: u64 = 4_000;
/// Nanoseconds a device thread spins without work before it goes to sleep, at most.
pub const SPIN_NS_MAX: u64 = 50_000;
/// The same, at least: what it falls to while spinning does not pay.
pub const SPIN_NS_MIN: u64 = 16_000;
/// Nanoseconds between looks at a client that leaves its completion ring full, at most.
pub const REAP_WAIT_NS_MAX: u64 = 128_000_000;
/// Bytes of memory for commands and caches, at least, whatever the device is told to do with: two payloads.
pub const MEMORY_MIN: u64 = 2 << 20;
/// Tenants of one device, those by uid included.
pub(crate) const TENANTS_MAX: usize = 1024;
/// Sessions of one device.
pub const SESSIONS_MAX: usize = 1024;
/// Queue pairs of one device.
pub const QUEUES_MAX: usize = 4096;
/// Advisory locks of one inode.
pub(crate) const LOCKS_PER_INODE_MAX: usize = 4096;
/// Advisory locks of one device.
pub(crate) const LOCKS_MAX: usize = 1 << 18;
/// Memory that a lock is charged as, bytes: its entry, twice over because a list grows by doubling, and what lists
/// cost.
pub(crate) const LOCK_BYTES: u64 = 128;
/// Locks that every tenant may have of one inode, however many others have.
pub(crate) const LOCKS_PER_INODE_MIN: usize = 64;
/// The same of one device.
pub(crate) const LOCKS_MIN: usize = 1024;
/// Placeholders of one device, where its process may have as many descriptors.
pub const PLACEHOLDERS_MAX: usize = 1 << 18;
/// Placeholders that a session may hold without having opened anything on them.
pub(crate) const PLACEHOLDERS_UNBOUND_MAX: usize = 256;
/// Milliseconds between looks at whether placeholders are still held by a process.
pub const LIVENESS_POLL_MS: u64 = 1000;
/// Bytes of shared memory of one session, and of transactions that it collects.
pub const POOL_BYTES_SESSION_MAX: u64 = 512 << 20;

const _: () = assert!(SET_SHARDS.is_power_of_two() && SLOTS_PER_THREAD.is_multiple_of(64));
