//! Where things are in the shared region of a queue pair.

use crate::Errno;
use crate::limits::*;
use crate::sqe::{Cqe, Sqe};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Offsets of the index words in the header page, each on its own pair of cache lines.
pub mod word {
    /// u32: entries the client has put in the SQ. Written by the client.
    pub const SQ_TAIL: usize = 128;
    /// u32: entries the device has taken. Written by the device.
    pub const SQ_HEAD: usize = 256;
    /// u32: 0, or the ticket of the device's current sleep. Written by the device.
    pub const DEVICE_SLEEPING: usize = 384;
    /// u32: how often the device has taken back this ring's write leases. Written by the device, and looked at by who
    /// looks whether it sleeps.
    pub const RECALLS: usize = 388;
    /// u32: a bit for each watch of this ring that is over, because what it was about has changed. Written by the
    /// device.
    pub const WATCHES: usize = 392;
    /// u32: entries the device has put in the CQ; also the futex the client sleeps on. Written by the device.
    pub const CQ_TAIL: usize = 512;
    /// u32: entries the client has taken from the CQ. Written by the client.
    pub const CQ_HEAD: usize = 640;
    /// u32: 0, or `head << 1 | 1` while the client sleeps having taken `head` completions. Written by the client.
    pub const CLIENT_SLEEPING: usize = 768;
    /// u32: 0 while the device serves the queue, else the errno it was closed with. Written by the device.
    pub const DEVICE_CLOSED: usize = 896;
}

/// Bytes of the header page.
pub const HEADER_BYTES: u32 = 4096;
/// First bytes of the region, for a reader of dumps: "WELDQP\0\1".
pub const QUEUE_MAGIC: u64 = u64::from_le_bytes(*b"WELDQP\0\x01");

/// Layout of one queue pair's region; travels in `attach::QueueReply` and stands at the region's start (written once
/// by the device, never read back by it).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueueLayout {
    /// `QUEUE_MAGIC`.
    pub magic: u64,
    /// Entries of the SQ and of the CQ; a power of two.
    pub depth: u32,
    /// Bytes of the pool.
    pub pool_bytes: u32,
    /// Offset of the first SQE.
    pub sq_off: u32,
    /// Offset of the first CQE.
    pub cq_off: u32,
    /// Offset of the pool's first byte.
    pub pool_off: u32,
    /// Bytes of the whole region.
    pub total_bytes: u32,
}

const fn page_up(n: u32) -> u32 {
    (n + 4095) & !4095
}

impl QueueLayout {
    /// Lays out a queue; EINVAL when a number is outside the limits.
    pub fn new(depth: u32, pool_bytes: u32) -> Result<QueueLayout, Errno> {
        let depth_ok = depth.is_power_of_two() && (QUEUE_DEPTH_MIN..=QUEUE_DEPTH_MAX).contains(&depth);
        let pool_ok = pool_bytes.is_multiple_of(4096) && (POOL_BYTES_MIN..=POOL_BYTES_MAX).contains(&pool_bytes);
        if !depth_ok || !pool_ok {
            return Err(Errno::INVAL);
        }
        let sq_off = HEADER_BYTES;
        let cq_off = page_up(sq_off + depth * Sqe::SIZE as u32);
        let pool_off = page_up(cq_off + depth * Cqe::SIZE as u32);
        let total_bytes = pool_off + pool_bytes;
        Ok(QueueLayout { magic: QUEUE_MAGIC, depth, pool_bytes, sq_off, cq_off, pool_off, total_bytes })
    }

    /// Whether a layout received is one that `new` makes.
    pub fn validate(&self) -> Result<(), Errno> {
        if QueueLayout::new(self.depth, self.pool_bytes)? == *self { Ok(()) } else { Err(Errno::PROTO) }
    }
}
