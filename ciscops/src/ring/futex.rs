//! The two futex calls, on the CQ tail of a shared mapping (so never PRIVATE).

use super::{CqConsumer, CqProducer, QueueMemory, Sleep, Word};
use rustix::thread::{Timespec, futex};
use std::time::Duration;

impl QueueMemory {
    /// Client side: sleeps while the CQ tail holds `tail`, at most `timeout`; may return early for no reason. For a
    /// client whose consumer lies behind a lock: `CqConsumer::prepare_sleep` with the lock held, this without it,
    /// `CqConsumer::awake` with it again. One thread of a queue pair sleeps at a time, for the device wakes one.
    pub fn sleep_on(&self, tail: u32, timeout: Duration) {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // EAGAIN (the tail moved), EINTR and ETIMEDOUT all mean: look again.
        let _ = futex::wait(self.atomic(Word::CqTail), futex::Flags::empty(), tail, Some(&timeout));
    }

    /// Wakes the thread in [`QueueMemory::sleep_on`], if there is one already: from the client's side, or from the
    /// device's when `CqProducer::publish` said so.
    pub fn rouse(&self) {
        let _ = futex::wake(self.atomic(Word::CqTail), futex::Flags::empty(), 1);
    }
}

impl CqProducer<QueueMemory> {
    /// Wakes the client; when `publish` said so, and after `close`.
    pub fn wake(&self) {
        // That nothing waits is no error, and there is no other that the caller could act on.
        let _ = futex::wake(self.memory().atomic(Word::CqTail), futex::Flags::empty(), 1);
    }
}

impl CqConsumer<QueueMemory> {
    /// Sleeps until the device posts, closes the queue, or `timeout` passes; may return early for no reason. The
    /// caller bounds `timeout` (`limits::CLIENT_SLEEP_MS_MAX`) and looks for a dead device between sleeps.
    pub fn wait(&mut self, timeout: Duration) {
        if let Sleep::On(tail) = self.prepare_sleep() {
            self.memory().sleep_on(tail, timeout);
            self.awake();
        }
    }
}
