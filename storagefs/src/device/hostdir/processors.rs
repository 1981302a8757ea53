//! Which processors threads run on, while clients of several users are attached and threads have turns at computing:
//! these keep to one half of them, and the thread that looks at rings to the other.
//!
//! No more threads have a turn than half of the processors (`computing`), so the host could always find another one for
//! the thread that all short commands wait for. It often does not: a thread is woken where it ran last, or where its
//! waker runs, and stays there while another processor has nothing to do, until the host balances its queues, some
//! milliseconds later.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use super::sys::with_right_to_nice;
use crate::device::clock::now_ns;

/// Nanoseconds without a turn after which the thread that looks at rings may run everywhere again.
const QUIET_NS: u64 = 20_000_000;

/// See the module. Thread-safe.
pub(super) struct Processors {
    /// Those that the process may use, as it began; and what those that compute, and the one that looks, may of them.
    /// None: there is but one.
    halves: Option<Halves>,
    /// The thread that looks; 0: none.
    looks: AtomicU32,
    /// It is kept to its half.
    kept: AtomicBool,
    /// When the last turn began.
    last: AtomicU64,
}

struct Halves {
    all: CpuSet,
    compute: CpuSet,
    look: CpuSet,
}

impl Halves {
    fn new() -> Option<Halves> {
        let all = sched_getaffinity(None).ok()?;
        let of: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
        let set = |of: &[usize]| {
            let mut set = CpuSet::new();
            of.iter().for_each(|cpu| set.set(*cpu));
            set
        };
        let (look, compute) = of.split_at(of.len().div_ceil(2));
        (!compute.is_empty()).then(|| Halves { all, compute: set(compute), look: set(look) })
    }
}

impl Processors {
    pub fn new() -> Processors {
        let (looks, kept, last) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
        Processors { halves: Halves::new(), looks, kept, last }
    }

    /// The calling thread has a turn. `there`: whether it is in its half. Where the host refuses something, threads run
    /// where they ran.
    pub fn compute(&self, there: &mut bool) {
        let Some(halves) = &self.halves else { return };
        self.last.store(now_ns(), Ordering::Relaxed);
        if !std::mem::replace(there, true) {
            let _ = sched_setaffinity(None, &halves.compute);
        }
        if self.kept.load(Ordering::Relaxed) || self.kept.swap(true, Ordering::AcqRel) {
            return;
        }
        let looks = self.looks.load(Ordering::Acquire).cast_signed();
        if let Some(looks) = Pid::from_raw(looks)
            && sched_setaffinity(Some(looks), &halves.look).is_err()
        {
            // It acts with the rights of another client.
            with_right_to_nice(|| _ = sched_setaffinity(Some(looks), &halves.look));
        }
    }

    /// The calling thread looks at the rings from here on.
    pub fn look(&self, there: &mut bool) {
        let Some(halves) = &self.halves else { return };
        if std::mem::take(there) {
            let _ = sched_setaffinity(None, &halves.all);
        }
        self.looks.store(gettid().as_raw_nonzero().get().cast_unsigned(), Ordering::Release);
        // It is kept to its half by the next turn.
        self.kept.store(false, Ordering::Release);
    }

    /// The calling thread looks at them no more.
    pub fn leave(&self) {
        self.looks.store(0, Ordering::Release);
        self.release();
    }

    /// The thread that looks has nothing to do.
    pub fn rest(&self) {
        if self.kept.load(Ordering::Relaxed) && now_ns().saturating_sub(self.last.load(Ordering::Relaxed)) > QUIET_NS {
            self.release();
        }
    }

    fn release(&self) {
        if let Some(halves) = &self.halves
            && self.kept.swap(false, Ordering::AcqRel)
        {
            let _ = sched_setaffinity(None, &halves.all);
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
            let (ask, asked) = std::sync::mpsc::channel::<fn(&Processors)>();
            let (tell, told) = std::sync::mpsc::channel();
            let on = &processors;
            scope.spawn(move || {
                // It has computed before.
                let mut there = true;
                on.look(&mut there);
                assert!(!there);
                tell.send(mine()).unwrap();
                for act in asked {
                    act(on);
                    tell.send(mine()).unwrap();
                }
            });
            assert_eq!(told.recv().unwrap(), all);
            let look = |act: fn(&Processors)| {
                ask.send(act).unwrap();
                told.recv().unwrap()
            };
            let compute = || {
                let mut there = false;
                on.compute(&mut there);
                assert!(there);
                mine()
            };
            let computes = scope.spawn(compute).join().unwrap();
            let looks = look(|_| ());
            assert!(!computes.is_empty() && !looks.is_empty() && computes.iter().all(|cpu| !looks.contains(cpu)));
            assert_eq!(computes.len() + looks.len(), all.len());
            assert_eq!(look(Processors::rest), looks, "a turn began a moment ago");
            std::thread::sleep(std::time::Duration::from_nanos(2 * QUIET_NS));
            assert_eq!(look(Processors::rest), all);
            scope.spawn(compute).join().unwrap();
            assert_eq!(look(Processors::leave), all);
            scope.spawn(compute).join().unwrap();
            assert_eq!(look(|_| ()), all, "it looks no more");
            drop(ask);
        });
    }
}
