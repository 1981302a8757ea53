//! What the device's cores tell each other without a lock is not lost, in any interleaving and memory order that loom
//! can produce. `starved` is the shipped file over loom's atomics; the other protocol is the board's, step by step.
//! Without its fence each must fail: the models can.
//!
//! RUSTFLAGS="--cfg loom" cargo test -p weldfs-ciscops --release --test loom board::

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32};
use loom::thread;

/// What the shipped file gets: loom's atomics, and a fence that a test can leave out.
mod sync {
    pub use loom::sync::atomic::{AtomicBool, Ordering};

    pub static FENCES: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);

    pub fn fence(order: Ordering) {
        if FENCES.load(std::sync::atomic::Ordering::SeqCst) {
            loom::sync::atomic::fence(order);
        }
    }
}

#[path = "../../../storagefs/device/src/starved.rs"]
mod starved;

use starved::Starved;
use sync::{FENCES, Ordering, fence};

/// One at a time: the fences are switched for all.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn with(fences: bool, model: impl Fn() + Send + Sync + 'static) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    FENCES.store(fences, std::sync::atomic::Ordering::SeqCst);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loom::model(model))).is_err();
    FENCES.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(failed, !fences, "with fences it holds, without them it does not");
}

/// A core finds no slot free, says so, looks once more and goes to sleep; another one gives a slot back meanwhile.
fn starve() {
    let (starved, free, rung) =
        (Arc::new(Starved::new(true)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let giver = {
        let (starved, free, rung) = (starved.clone(), free.clone(), rung.clone());
        thread::spawn(move || {
            free.store(1, Ordering::Relaxed);
            if starved.take() {
                rung.store(true, Ordering::Relaxed);
            }
        })
    };
    starved.note();
    let found = free.load(Ordering::Relaxed) > 0;
    giver.join().unwrap();
    assert!(found || rung.load(Ordering::Relaxed), "it sleeps beside a free slot");
}

/// The home of a ring leaves an op, announces its sleep on its rings and passes over the one with a mark; the core
/// whose command had the mark clears it and decides from what it sees of the home whether to ring.
fn offer() {
    let (running, mark) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let other = {
        let (running, mark) = (running.clone(), mark.clone());
        thread::spawn(move || {
            // `Pair::admitted`, `Board::offer`.
            mark.store(false, Ordering::Release);
            fence(Ordering::SeqCst);
            !running.load(Ordering::Relaxed)
        })
    };
    // `Board::set_running`, `SqConsumer::prepare_sleep`, `Pair::is_admitting`.
    running.store(false, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let passed = mark.load(Ordering::Acquire);
    let rung = other.join().unwrap();
    assert!(!passed || rung, "it sleeps over a command that may be taken");
}

#[test]
fn who_is_starved_hears_of_what_is_given_back() {
    with(true, starve);
}

#[test]
fn without_the_fence_who_is_starved_sleeps_on() {
    with(false, starve);
}

#[test]
fn a_command_behind_an_admitted_one_is_seen_by_its_home_or_offered_to_it() {
    with(true, offer);
}

#[test]
fn without_the_fence_an_offered_command_is_left() {
    with(false, offer);
}
