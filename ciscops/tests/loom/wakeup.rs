//! Wake-up never gets lost, in either direction, in any interleaving and memory order that loom can produce. The ends
//! are the shipped ones over a loom memory. `fences: false` takes out the sequentially consistent fences, and then
//! loom must find the lost wake-up: the model can fail.
//!
//! RUSTFLAGS="--cfg loom" cargo test -p weldfs-ciscops --release --test loom wakeup::
#![allow(clippy::unwrap_used)] // a test may panic

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use weldfs_ciscops::ring::Word;
use weldfs_ciscops::*;

const DEPTH: u32 = 4;

/// Header words and slots under loom's eyes, and the two things the kernel provides.
pub struct Model {
    words: [AtomicU32; 8],
    sq: [UnsafeCell<Sqe>; DEPTH as usize],
    cq: [UnsafeCell<Cqe>; DEPTH as usize],
    fences: bool,
    /// The eventfd: its counter.
    doorbell: Mutex<u32>,
    doorbell_rung: Condvar,
    /// The futex's hash bucket.
    futex: Mutex<()>,
    futex_woken: Condvar,
}

#[derive(Clone)]
pub struct Shared(Arc<Model>);

impl Shared {
    pub fn new(fences: bool) -> Shared {
        Shared(Arc::new(Model {
            words: core::array::from_fn(|_| AtomicU32::new(0)),
            sq: core::array::from_fn(|_| UnsafeCell::new(Sqe::default())),
            cq: core::array::from_fn(|_| UnsafeCell::new(Cqe::default())),
            fences,
            doorbell: Mutex::new(0),
            doorbell_rung: Condvar::new(),
            futex: Mutex::new(()),
            futex_woken: Condvar::new(),
        }))
    }

    pub fn ring_doorbell(&self) {
        *self.0.doorbell.lock().unwrap() += 1;
        self.0.doorbell_rung.notify_one();
    }

    /// Blocks until the counter is not zero, then drains it: poll + read.
    pub fn wait_doorbell(&self) {
        let mut count = self.0.doorbell.lock().unwrap();
        while *count == 0 {
            count = self.0.doorbell_rung.wait(count).unwrap();
        }
        *count = 0;
    }

    fn futex_wait(&self, value: u32) {
        let bucket = self.0.futex.lock().unwrap();
        if self.load(Word::CqTail, Ordering::Relaxed) == value {
            drop(self.0.futex_woken.wait(bucket).unwrap());
        }
    }

    fn futex_wake(&self) {
        let _bucket = self.0.futex.lock().unwrap();
        self.0.futex_woken.notify_all();
    }
}

fn index(w: Word) -> usize {
    if w == Word::Recalls { 7 } else { w.offset() / 128 - 1 }
}

impl RingMemory for Shared {
    fn depth(&self) -> u32 {
        DEPTH
    }
    fn load(&self, w: Word, order: Ordering) -> u32 {
        self.0.words[index(w)].load(order)
    }
    fn store(&self, w: Word, value: u32, order: Ordering) {
        self.0.words[index(w)].store(value, order)
    }
    fn fence(&self) {
        if self.0.fences {
            fence(Ordering::SeqCst);
        }
    }
    fn read_sqe(&self, slot: u32) -> Sqe {
        // SAFETY: loom's cell has checked that nothing else accesses the slot now.
        self.0.sq[slot as usize].with(|p| unsafe { *p })
    }
    fn write_sqe(&self, slot: u32, sqe: &Sqe) {
        // SAFETY: loom's cell has checked that nothing else accesses the slot now.
        self.0.sq[slot as usize].with_mut(|p| unsafe { *p = *sqe })
    }
    fn read_cqe(&self, slot: u32) -> Cqe {
        // SAFETY: loom's cell has checked that nothing else accesses the slot now.
        self.0.cq[slot as usize].with(|p| unsafe { *p })
    }
    fn write_cqe(&self, slot: u32, cqe: &Cqe) {
        // SAFETY: loom's cell has checked that nothing else accesses the slot now.
        self.0.cq[slot as usize].with_mut(|p| unsafe { *p = *cqe })
    }
}

pub fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut b = loom::model::Builder::new();
    b.preemption_bound = Some(3);
    b.check(f);
}

/// Client posts `n` commands; the device sleeps whenever it finds nothing, and must get them all.
fn client_to_device(fences: bool, n: u64) {
    model(move || {
        let memory = Shared::new(fences);
        let device = {
            let memory = memory.clone();
            thread::spawn(move || {
                let mut sq = SqConsumer::new(memory.clone());
                let mut next = 0;
                while next < n {
                    while sq.poll().unwrap() > 0 {
                        assert_eq!(sq.take().unwrap().0.sequence, next);
                        next += 1;
                    }
                    sq.release();
                    if next == n {
                        break;
                    }
                    sq.prepare_sleep();
                    if !sq.recheck().unwrap() {
                        memory.wait_doorbell();
                    }
                    sq.awake();
                }
            })
        };
        let mut sq = SqProducer::new(memory.clone());
        for sequence in 0..n {
            sq.push(&Sqe { sequence, ..Sqe::default() }).unwrap();
            sq.publish();
            if sq.needs_doorbell() {
                memory.ring_doorbell();
            }
        }
        device.join().unwrap();
    });
}

/// Device posts `n` completions; the client sleeps whenever it finds nothing, and must get them all.
fn device_to_client(fences: bool, n: u64) {
    model(move || {
        let memory = Shared::new(fences);
        let client = {
            let memory = memory.clone();
            thread::spawn(move || {
                let mut cq = CqConsumer::new(memory.clone());
                let mut next = 0;
                while next < n {
                    while let Some(cqe) = cq.pop() {
                        assert_eq!(cqe.sequence, next);
                        next += 1;
                    }
                    if next == n {
                        break;
                    }
                    if let Sleep::On(tail) = cq.prepare_sleep() {
                        memory.futex_wait(tail);
                        cq.awake();
                    }
                }
            })
        };
        let mut cq = CqProducer::new(memory.clone());
        for sequence in 0..n {
            assert!(cq.reserve().unwrap());
            cq.post(&Cqe { sequence, ..Cqe::default() });
            if cq.publish() {
                memory.futex_wake();
            }
        }
        client.join().unwrap();
    });
}

#[test]
fn no_doorbell_is_lost() {
    client_to_device(true, 3);
}

#[test]
fn no_futex_wake_is_lost() {
    device_to_client(true, 3);
}

/// Runs this very test in a child, with the model that must fail: loom aborts on a deadlock, so it cannot be caught.
pub fn must_deadlock(test: &str, model: fn()) {
    const CHILD: &str = "WELDFS_LOOM_CANARY";
    if std::env::var_os(CHILD).is_some() {
        return model();
    }
    let exe = std::env::current_exe().unwrap();
    let child = std::process::Command::new(exe)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stderr).into_owned() + &String::from_utf8_lossy(&child.stdout);
    assert!(!child.status.success() && text.contains("deadlock"), "the model cannot fail:\n{text}");
}

#[test]
fn without_the_fence_a_doorbell_is_lost() {
    must_deadlock("wakeup::without_the_fence_a_doorbell_is_lost", || client_to_device(false, 1));
}

#[test]
fn without_the_fence_a_futex_wake_is_lost() {
    must_deadlock("wakeup::without_the_fence_a_futex_wake_is_lost", || device_to_client(false, 1));
}

/// The ring is full, the client waits for room; a slot is never overwritten while it is being read.
#[test]
fn slots_are_reused_only_after_release() {
    const N: u64 = DEPTH as u64 + 1;
    model(|| {
        let memory = Shared::new(true);
        let device = {
            let memory = memory.clone();
            thread::spawn(move || {
                let mut sq = SqConsumer::new(memory);
                let mut next = 0;
                while next < N {
                    if sq.poll().unwrap() == 0 {
                        thread::yield_now();
                        continue;
                    }
                    assert_eq!(sq.take().unwrap().0.sequence, next);
                    sq.release();
                    next += 1;
                }
            })
        };
        let mut sq = SqProducer::new(memory);
        for sequence in 0..N {
            while sq.push(&Sqe { sequence, ..Sqe::default() }).is_err() {
                thread::yield_now();
            }
            sq.publish();
        }
        device.join().unwrap();
    });
}
