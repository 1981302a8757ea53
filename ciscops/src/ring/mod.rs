//! Rings: two single-producer single-consumer queues in shared memory, and the two ends of each.
//!
//! Indices are free-running u32s, masked with a size each side keeps for itself. Each end keeps a private copy of its
//! own index and a cached copy of its peer's; entries cross by one copy. A peer whose index is more than `depth` away
//! has lied: the end reports `QueueFault` and whoever owns it closes the session.

mod cq;
mod futex;
mod layout;
mod memory;
mod sq;

pub use cq::{CqConsumer, CqProducer, Sleep};
pub use layout::{HEADER_BYTES, QUEUE_MAGIC, QueueLayout, word};
pub use memory::{QueueMemory, RingMemory, Word};
pub use sq::{Full, SqConsumer, SqProducer, recall_leases};

/// The peer's index makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFault {
    /// Which word it was.
    pub word: Word,
    /// What it said.
    pub value: u32,
}

impl core::fmt::Display for QueueFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "queue index {:?} = {} is out of range", self.word, self.value)
    }
}

impl std::error::Error for QueueFault {}

impl From<QueueFault> for crate::Errno {
    fn from(_: QueueFault) -> Self {
        crate::Errno::PROTO
    }
}

/// The next sleep ticket: any number but 0, which means awake; odd where the device looks at its rings by itself soon.
fn next_ticket(ticket: u32, naps: bool) -> u32 {
    (((ticket >> 1) + 1) & (u32::MAX >> 1)).max(1) << 1 | u32::from(naps)
}
