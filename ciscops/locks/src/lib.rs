//! The locks that a device's threads and its clients' threads wait on.
//!
//! What lives here: [`Mutex`], [`RwLock`] and [`Condvar`] over those of the standard library, without poisoning (a
//! thread that panicked has said so elsewhere: a medium is poisoned, a task's completion is EIO), and with a guard that
//! waits in place.
//! What may be touched: nothing but the locks.
//! What flows through: every wait of a thread of ours that is neither for a command nor for the host's kernel.
//!
//! Why not `parking_lot`, which has the same shape: a process may fork and have a device of its own in the child, while
//! its parent's device has threads that wait. What `parking_lot` knows of waiting threads stands in one table of the
//! process, in memory of the threads themselves, and the child inherits it; the C library gives the stacks of the
//! threads that are not there any more to the child's new ones, and so the table's lists lead through memory that is
//! another thread's: wake-ups are lost. A lock of the standard library is on Linux one word, and its waiters are known
//! to the kernel only (futex(2)), which knows the child to have none.
//!
//! All are safe to use from any thread; a lock taken twice by one thread is a deadlock.

mod condvar;
mod mutex;
mod rwlock;

pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(test)]
mod tests;
