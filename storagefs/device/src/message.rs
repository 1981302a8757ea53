//! What cores and the device tell a device thread.

use std::sync::Arc;

use super::session::QueueState;

/// What is left in a device thread's inbox.
pub(super) enum Message {
    /// Serve this queue pair from now on.
    Queue(Arc<QueueState>),
    /// Drain and drop the queues of this session.
    CloseSession(u64),
    /// End when no queue is left.
    Stop,
    /// Another core has given back what it freed, which this one may have allocated: one that rests does so again.
    GiveBack,
    /// The device is out of service: end at once.
    Abandon,
    /// What no message does by itself: the core panics.
    #[cfg(test)]
    Panic,
}
