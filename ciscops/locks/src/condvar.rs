//! Waiting for a condition.

use std::sync::{self, PoisonError};
use std::time::{Duration, Instant};

use crate::MutexGuard;

/// A place where threads wait until another one has changed what a mutex guards. A wait may end without a call, and
/// several threads may wait with several mutexes.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A place where no thread waits.
    pub const fn new() -> Self {
        Condvar(sync::Condvar::new())
    }

    /// Lets the hold go, waits for a call, and takes the hold again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        MutexGuard::pass(guard, |held| self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Like [`wait`](Self::wait), for `most` at longest.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, most: Duration) {
        MutexGuard::pass(guard, |held| self.0.wait_timeout(held, most).unwrap_or_else(PoisonError::into_inner).0);
    }

    /// Like [`wait`](Self::wait), until `end` at latest.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, end: Instant) {
        self.wait_for(guard, end.saturating_duration_since(Instant::now()));
    }

    /// Calls one of the threads that wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Calls all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
