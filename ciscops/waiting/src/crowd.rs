//! The sampled answer, shared by all threads of a process.

use crate::load::{processors, runnable};
use rustix::fs::{Mode, OFlags};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Nanoseconds for which a look counts: a look takes 2 to 5 us, so that one in this time costs a thousandth.
const LOOK_EVERY_NS: u64 = 4_000_000;
/// Longer than a spinning thread takes between two looks at the clock, nanoseconds, unless another one had its
/// processor meanwhile.
const LOST_NS: u64 = 300_000;
/// Nanoseconds for which losing the processor counts.
const LOST_FOR_NS: u64 = 50_000_000;

/// Whether others want the processors.
#[derive(Debug)]
pub struct Crowd {
    start: Instant,
    /// Processors of the machine; 0: not known.
    processors: u32,
    /// When the next look is due, nanoseconds since the start.
    next_look: AtomicU64,
    crowded: AtomicBool,
    /// Threads of this process that spin.
    spinning: AtomicU32,
    /// Peers in other processes that run because of this one, and are no crowd.
    peers: AtomicU32,
}

/// This process's own.
pub fn crowd() -> &'static Crowd {
    static CROWD: OnceLock<Crowd> = OnceLock::new();
    CROWD.get_or_init(Crowd::new)
}

impl Crowd {
    fn new() -> Crowd {
        let machine = read("/sys/devices/system/cpu/online", processors);
        // What this process may use: less by affinity or by a quota.
        let ours = std::thread::available_parallelism().map_or(0, |n| n.get() as u32);
        Crowd {
            start: Instant::now(),
            // On one processor whoever spins keeps the peer from running.
            processors: if ours == 1 { 1 } else { machine.unwrap_or(ours) },
            next_look: AtomicU64::new(0),
            crowded: AtomicBool::new(false),
            spinning: AtomicU32::new(0),
            peers: AtomicU32::new(1),
        }
    }

    /// Whether more threads want a processor than there are, and not all of them are those that wait for each other
    /// here. The calling thread is about to spin. Takes some nanoseconds, every four milliseconds a few microseconds.
    pub fn is_there(&self) -> bool {
        if self.processors == 1 {
            return true;
        }
        let now = self.now();
        let due = self.next_look.load(Relaxed);
        if now >= due && self.next_look.compare_exchange(due, now + LOOK_EVERY_NS, Relaxed, Relaxed).is_ok() {
            // Where the kernel does not say it, what is lost by spinning does.
            let wanted = read("/proc/loadavg", runnable).unwrap_or(0);
            let ours = 1 + self.spinning.load(Relaxed) + self.peers.load(Relaxed);
            self.crowded.store(wanted > self.processors && wanted > ours, Relaxed);
        }
        self.crowded.load(Relaxed)
    }

    /// How many peers in other processes run while a thread of this one waits: for a client its device, for a device
    /// those of its clients that sent something lately. At first 1.
    pub fn expect(&self, peers: u32) {
        self.peers.store(peers, Relaxed);
    }

    /// Counts the calling thread as one that spins until what is returned is dropped.
    pub fn spin(&self) -> Spinning<'_> {
        self.spinning.fetch_add(1, Relaxed);
        Spinning(self)
    }

    /// Tells how long nothing was seen by a thread that spins, nanoseconds; whether it had lost its processor.
    pub fn missed(&self, ns: u64) -> bool {
        if ns < LOST_NS {
            return false;
        }
        self.crowded.store(true, Relaxed);
        self.next_look.fetch_max(self.now() + LOST_FOR_NS, Relaxed);
        true
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A thread that spins, for as long as this lives.
#[derive(Debug)]
pub struct Spinning<'a>(&'a Crowd);

impl Drop for Spinning<'_> {
    fn drop(&mut self) {
        self.0.spinning.fetch_sub(1, Relaxed);
    }
}

/// What a small file of the kernel says. No descriptor is kept, and nothing is allocated: the caller may be any program
/// that the preload library is in.
fn read(path: &str, parse: impl Fn(&str) -> Option<u32>) -> Option<u32> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0u8; 256];
    let len = rustix::io::read(&file, &mut bytes).ok()?;
    parse(std::str::from_utf8(&bytes[..len]).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_lost_its_processor_makes_a_crowd_for_a_while() {
        let crowd = Crowd { processors: 1000, ..Crowd::new() };
        assert!(!crowd.is_there(), "a thousand processors");
        assert!(!crowd.missed(LOST_NS - 1));
        assert!(!crowd.is_there());
        assert!(crowd.missed(LOST_NS));
        assert!(crowd.is_there());
        assert!(crowd.next_look.load(Relaxed) >= crowd.now() + LOST_FOR_NS / 2);
    }

    #[test]
    fn busy_threads_are_a_crowd_and_those_that_spin_here_are_none() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let crowd = Crowd { processors: 2, ..Crowd::new() };
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(crowd.is_there(), "four busy threads on two processors");
            let known = Crowd { processors: 2, ..Crowd::new() };
            known.expect(1000);
            assert!(!known.is_there(), "all of them are known");
            stop.store(true, Relaxed);
        });
    }

    #[test]
    fn on_one_processor_no_thread_spins() {
        let crowd = Crowd { processors: 1, ..Crowd::new() };
        crowd.expect(1000);
        assert!(crowd.is_there());
    }
}
