//! What is left for a thread that polls rings, and how it is woken.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use weldfs_locks::Mutex;

/// What other threads leave for a core. Thread-safe.
pub struct Inbox<M> {
    any: AtomicBool,
    sleeping: AtomicBool,
    messages: Mutex<Vec<M>>,
    bell: OwnedFd,
}

impl<M> Inbox<M> {
    /// An empty inbox. EMFILE when no eventfd is to be had.
    pub fn new() -> std::io::Result<Inbox<M>> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Inbox {
            any: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            messages: Mutex::new(Vec::new()),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The eventfd to watch while asleep (edge-triggered; it is never read).
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Leaves a message and wakes the core.
    pub fn send(&self, message: M) {
        self.messages.lock().push(message);
        self.ring();
    }

    /// A core that is awake looks at everything at its next turn; one that sleeps is left asleep.
    pub fn note(&self) {
        self.any.store(true, Ordering::Release);
    }

    /// Wakes the core: it looks at everything.
    pub fn ring(&self) {
        self.note();
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            // A full counter (EAGAIN) has rung already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// True when something was left since the last look.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes the messages left.
    pub fn collect(&self) -> Vec<M> {
        self.any.swap(false, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        std::mem::take(&mut *self.messages.lock())
    }

    /// Announces sleep; false when mail is there already (and the announcement is withdrawn).
    pub fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.has_mail() {
            self.awake();
            return false;
        }
        true
    }

    /// Withdraws the announcement.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_before_sleep_prevents_it_and_mail_during_sleep_rings() {
        let inbox = Inbox::<u8>::new().unwrap();
        inbox.send(1);
        assert!(!inbox.prepare_sleep());
        assert_eq!(inbox.collect(), [1]);
        assert!(inbox.prepare_sleep());
        inbox.send(2);
        let mut counter = [0; 8];
        assert_eq!(rustix::io::read(inbox.bell(), &mut counter), Ok(8));
    }
}
