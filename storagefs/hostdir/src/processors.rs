//! Which processors threads run on, while clients of several users are attached and threads do what takes long: these
//! keep to one half of them, and the thread that looks at rings to the other. Commands that are slow, and over within
//! some 0.1 ms, are none of these.
//!
//! No more threads have a turn than half of the processors (`computing`), so the host could always find another one for
//! the thread that all short commands wait for. It often does not: a thread is woken where it ran last, or where its
//! waker runs, and stays there while another processor has nothing to do, until the host balances its queues, some
//! milliseconds later.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use weldfs_locks::Mutex;
use weldfs_waiting::with_right_to_nice;

use weldfs_session::clock::now_ns;
use weldfs_session::processors::part;

/// Nanoseconds without anything that takes long after which the thread that looks at rings may run everywhere again.
const QUIET_NS: u64 = if cfg!(test) { 500_000_000 } else { 20_000_000 };

/// See the module. Thread-safe.
pub(super) struct Processors {
    /// Those that the process may use, as it began; and what those that compute, and the one that looks, may of them.
    /// None: there is but one.
    halves: Option<Halves>,
    looks: Mutex<Looks>,
    /// When something that takes long began last, with [`KEPT`] in it as long as the thread that looks is kept to its
    /// half.
    last: AtomicU64,
}

/// In `Processors::last`.
const KEPT: u64 = 1;

#[derive(Default)]
struct Looks {
    /// The thread that looks.
    thread: Option<Pid>,
    /// It is kept to its half.
    kept: bool,
}

struct Halves {
    all: CpuSet,
    compute: CpuSet,
    look: CpuSet,
}

impl Halves {
    fn new() -> Option<Halves> {
        let all = sched_getaffinity(None).ok()?;
        Some(Halves { all, look: part(&all, 0, 2)?, compute: part(&all, 1, 2)? })
    }

    /// Has a thread run there, unless whoever runs the process has said meanwhile where. Where the host refuses it, it
    /// runs where it ran.
    fn put(&self, thread: Option<Pid>, there: &CpuSet) {
        let Ok(now) = sched_getaffinity(thread) else { return };
        let ours = [&self.all, &self.compute, &self.look].contains(&&now);
        if ours && now != *there && sched_setaffinity(thread, there).is_err() {
            // It acts with the rights of another client.
            with_right_to_nice(|| _ = sched_setaffinity(thread, there));
        }
    }
}

/// As long as it lives, its thread is the one that looks at the rings.
pub(super) struct Looking<'c>(&'c Processors);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let mut looks = self.0.looks.lock();
        looks.thread = None;
        self.0.release(&mut looks);
    }
}

impl Processors {
    pub fn new() -> Processors {
        Processors { halves: Halves::new(), looks: Mutex::default(), last: AtomicU64::new(0) }
    }

    /// The calling thread begins with what takes long. `there`: whether it is in its half.
    pub fn compute(&self, there: &mut bool) {
        let Some(halves) = &self.halves else { return };
        self.go_apart(there);
        let (last, now) = (self.last.load(Ordering::Relaxed), now_ns() | KEPT);
        let order = Ordering::Relaxed;
        if last & KEPT != 0 && self.last.compare_exchange(last, now, order, order).is_ok() {
            return;
        }
        let mut looks = self.looks.lock();
        self.last.store(now, order);
        if let Some(thread) = looks.thread.filter(|_| !std::mem::replace(&mut looks.kept, true)) {
            halves.put(Some(thread), &halves.look);
        }
    }

    fn go_apart(&self, there: &mut bool) {
        if let Some(halves) = self.halves.as_ref().filter(|_| !std::mem::replace(there, true)) {
            halves.put(None, &halves.compute);
        }
    }

    /// What the calling thread does next keeps its processor for a moment only: it runs anywhere, but for where the one
    /// that looks is kept, as long as that is so.
    pub fn keep_out(&self, there: &mut bool) {
        if self.last.load(Ordering::Relaxed) & KEPT == 0 { self.roam(there) } else { self.go_apart(there) }
    }

    /// What the calling thread does next keeps no processor: it runs anywhere.
    pub fn roam(&self, there: &mut bool) {
        if let Some(halves) = self.halves.as_ref().filter(|_| std::mem::take(there)) {
            halves.put(None, &halves.all);
        }
    }

    /// The calling thread looks at the rings.
    pub fn look(&self, there: &mut bool) -> Looking<'_> {
        self.roam(there);
        let mut looks = self.looks.lock();
        *looks = Looks { thread: Some(gettid()), kept: false };
        // It is kept to its half by the next that takes long.
        self.last.fetch_and(!KEPT, Ordering::Relaxed);
        drop(looks);
        Looking(self)
    }

    /// The thread that looks has nothing to do.
    pub fn rest(&self) {
        let last = self.last.load(Ordering::Relaxed);
        if last & KEPT != 0 && now_ns().saturating_sub(last) > QUIET_NS {
            self.release(&mut self.looks.lock());
        }
    }

    /// Has the calling thread, which looks, run anywhere.
    fn release(&self, looks: &mut Looks) {
        self.last.fetch_and(!KEPT, Ordering::Relaxed);
        if let Some(halves) = self.halves.as_ref().filter(|_| std::mem::take(&mut looks.kept)) {
            halves.put(None, &halves.all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
    }

    #[test]
    fn threads_that_compute_and_the_one_that_looks_have_a_half_each_as_long_as_any_computes() {
        let processors = Processors::new();
        let all = mine();
        if all.len() == 1 {
            println!("skipped: halves of the processors, of which there is but one");
            return;
        }
        std::thread::scope(|scope| {
            let (ask, asked) = std::sync::mpsc::channel::<()>();
            let (tell, told) = std::sync::mpsc::channel();
            let on = &processors;
            scope.spawn(move || {
                // It has computed before.
                let mut there = true;
                on.halves.as_ref().unwrap().put(None, &on.halves.as_ref().unwrap().compute);
                let looking = on.look(&mut there);
                assert!(!there);
                tell.send(mine()).unwrap();
                for () in asked {
                    on.rest();
                    tell.send(mine()).unwrap();
                }
                drop(looking);
                tell.send(mine()).unwrap();
            });
            assert_eq!(told.recv().unwrap(), all);
            let looks = || {
                ask.send(()).unwrap();
                told.recv().unwrap()
            };
            let whole = &all;
            let compute = move || {
                let mut there = false;
                on.compute(&mut there);
                assert!(there);
                let half = mine();
                on.roam(&mut there);
                assert_eq!(mine(), *whole);
                half
            };
            let computes = scope.spawn(compute).join().unwrap();
            let half = looks();
            assert!(!computes.is_empty() && !half.is_empty() && computes.iter().all(|cpu| !half.contains(cpu)));
            assert_eq!(computes.len() + half.len(), all.len());
            std::thread::sleep(std::time::Duration::from_nanos(2 * QUIET_NS));
            assert_eq!(looks(), all, "nothing has computed for long");
            scope.spawn(compute).join().unwrap();
            assert_eq!(looks(), half);
            drop(ask);
            assert_eq!(told.recv().unwrap(), all, "it looks no more");
            scope.spawn(compute).join().unwrap();
        });
    }
}
