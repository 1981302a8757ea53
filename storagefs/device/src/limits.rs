//! Every bound of the device's cores, with its unit; with those of sessions.

pub(crate) use weldfs_session::limits::*;

/// Rings that a core looks at between two slices.
pub(crate) const SWEEP_LOOKS_MAX: usize = 256;
/// Rings from which it takes a command then.
pub(crate) const SWEEP_MAX: usize = 16;
/// Rings at which it looks closely then and finds nothing that may be taken: commands of a tenant at its limits.
pub(crate) const SWEEP_VAIN_MAX: usize = 32;
/// What such a look is charged while others wait, nanoseconds: a lock, and its tenant's accounts.
pub(crate) const VAIN_LOOK_NS: u64 = 200;
/// Device time after which a running command gives way to others, nanoseconds, unless said otherwise.
pub(crate) const QUANTUM_NS: u64 = 100_000;
/// The shortest quantum, nanoseconds.
pub(crate) const QUANTUM_NS_MIN: u64 = 1_000;
/// The longest quantum, nanoseconds.
pub(crate) const QUANTUM_NS_MAX: u64 = 1_000_000_000;
/// Longest a core naps while its emulated one is busy, nanoseconds: rings are read in between.
pub(crate) const GATED_NAP_NS: u64 = 50_000;
/// While the emulated core is busy for no longer than this, nanoseconds, a core spins and offers the host's core to
/// others instead of napping.
pub(crate) const GATED_SPIN_NS: u64 = 500_000;
/// Payload bytes from which on a command is long: what was posted is published before it.
pub(crate) const PUBLISH_BYTES: u64 = 16 << 10;
/// Free slots that a core keeps at hand.
pub(crate) const SLOTS_AT_HAND: usize = 4;
/// The part of the slots that commands of ending sessions may have: one of so many.
pub(crate) const DRAIN_SHARE: usize = 8;
/// Changes of an inode set before the command takes the namespace lock.
pub(crate) const SET_RETRIES_MAX: u32 = 8;
/// How long a device thread has had nothing to do when it gives back what its allocator keeps, nanoseconds.
pub(crate) const AT_REST_NS: u64 = 1_000_000_000;
/// A look for dead placeholders because a client is at its limit is due when as many as this part of those there are
/// were handed out since the last one,
pub(crate) const SWEEP_SHARE: usize = 8;
/// or after so many nanoseconds.
pub(crate) const SWEEP_AGAIN_NS: u64 = 50_000_000;
/// Threads that read cold pages from a block medium.
pub(crate) const IO_THREADS: usize = 4;
/// Nanoseconds after which a volatile effect is flushed at the latest.
pub(crate) const FLUSH_DEADLINE_NS: u64 = 5_000_000_000;
/// Nanoseconds by which reclaim waits for more of the same.
pub(crate) const RECLAIM_DELAY_NS: u64 = 20_000_000;
/// Nanoseconds in which a checkpoint moves 1 KiB of log, until it was measured.
pub(crate) const PACE_NS_PER_KIB: u64 = 8_000;
/// Nanoseconds that back-pressure charges one command, at most.
pub(crate) const PACE_NS_MAX: u64 = 5_000_000;
/// Nanoseconds after which a session that no longer changes anything has no share of what back-pressure lets through.
pub(crate) const PACE_RECENT_NS: u64 = 1_000_000;
/// Rounds of making room that one command waits for before it is told ENOSPC.
pub(crate) const ROOM_RETRIES_MAX: u32 = 64;
/// After so long a command that fits but for what others were promised looks whether they are over, nanoseconds; each
/// time after twice as long, at first.
pub(crate) const PLANS_LOOK_NS: u64 = 100_000;
/// How often that doubles.
pub(crate) const PLANS_LOOK_DOUBLINGS: u32 = 4;
/// For so long it looks, before it asks for checkpoints as others do who lack room, nanoseconds.
pub(crate) const PLANS_WAIT_NS_MAX: u64 = 10_000_000_000;
/// Open file descriptions of one device that live in placeholders only or in handles.
pub(crate) const OPEN_FILES_MAX: usize = 1 << 20;
