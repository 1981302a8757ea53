use crate::{Condvar, Mutex, MutexGuard, RwLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::time::{Duration, Instant};

#[test]
fn a_panic_leaves_a_lock_usable() {
    let (mutex, shared) = (Mutex::new(1), RwLock::new(1));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let (mut m, mut s) = (mutex.lock(), shared.write());
        (*m, *s) = (2, 2);
        panic!("with both held");
    }));
    assert!(panicked.is_err());
    assert_eq!(*mutex.lock(), 2);
    assert_eq!(mutex.try_lock().map(|held| *held), Some(2));
    assert_eq!(*shared.read(), 2);
    assert_eq!(*shared.write(), 2);
    assert_eq!((mutex.into_inner(), shared.into_inner()), (2, 2));
}

#[test]
fn what_is_held_is_not_free() {
    let mutex = Mutex::new(());
    let held = mutex.lock();
    assert!(mutex.try_lock().is_none());
    drop(held);
    assert!(mutex.try_lock().is_some());
}

#[test]
fn a_guard_is_without_its_hold_while_it_is_unlocked_and_has_it_again_after_a_panic() {
    let mutex = Mutex::new(0);
    let mut guard = mutex.lock();
    MutexGuard::unlocked(&mut guard, &mutex, || *mutex.lock() += 1);
    assert_eq!(*guard, 1);
    let panicked = catch_unwind(AssertUnwindSafe(|| MutexGuard::unlocked(&mut guard, &mutex, || panic!("unlocked"))));
    assert!(panicked.is_err() && mutex.try_lock().is_none());
    *guard += 1;
    drop(guard);
    assert_eq!(*mutex.lock(), 2);
}

#[test]
fn a_call_ends_a_wait_and_so_does_its_time() {
    let (mutex, bell, start) = (Mutex::new(false), Condvar::new(), Barrier::new(2));
    std::thread::scope(|s| {
        s.spawn(|| {
            start.wait();
            *mutex.lock() = true;
            bell.notify_one();
        });
        let mut rung = mutex.lock();
        start.wait();
        while !*rung {
            bell.wait(&mut rung);
        }
        let (from, most) = (Instant::now(), Duration::from_millis(20));
        while from.elapsed() < most {
            bell.wait_for(&mut rung, most);
        }
        bell.wait_until(&mut rung, from);
        assert!(mutex.try_lock().is_none(), "it is held again");
    });
}
