//! Mutual exclusion.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};

/// Mutual exclusion. A panic while it is held leaves it usable: its data are what they were then.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

/// A hold on a [`Mutex`]; it ends with the guard.
pub struct MutexGuard<'a, T: ?Sized> {
    /// Nothing only while the guard waits or is [unlocked](Self::unlocked).
    held: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A mutex over `value`.
    pub const fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    /// The value, without the mutex.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the mutex is free, and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { held: Some(take(&self.0)) }
    }

    /// Takes the mutex if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { held: Some(held) })
    }

    /// The value: what has the mutex alone needs no lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[inline]
fn take<T: ?Sized>(mutex: &sync::Mutex<T>) -> sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Runs `f` without the hold, and takes it again, even if `f` panics. `mutex` is the one that is held.
    pub fn unlocked<R>(guard: &mut Self, mutex: &'a Mutex<T>, f: impl FnOnce() -> R) -> R {
        /// Takes the hold again, on every way out of `f`.
        struct Again<'g, 'a, T: ?Sized>(&'g mut MutexGuard<'a, T>, &'a Mutex<T>);
        impl<T: ?Sized> Drop for Again<'_, '_, T> {
            fn drop(&mut self) {
                self.0.held = Some(take(&self.1.0));
            }
        }
        debug_assert!(mutex.try_lock().is_none(), "another mutex than the one that is held");
        guard.held = None;
        let _again = Again(guard, mutex);
        f()
    }

    /// Has the hold pass through `wait`, which lets it go and brings it back.
    #[inline]
    pub(crate) fn pass(guard: &mut Self, wait: impl FnOnce(sync::MutexGuard<'a, T>) -> sync::MutexGuard<'a, T>) {
        guard.held = guard.held.take().map(wait);
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.held {
            Some(held) => held,
            None => unreachable!("a guard is lent out alone while it waits"),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.held {
            Some(held) => held,
            None => unreachable!("a guard is lent out alone while it waits"),
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
