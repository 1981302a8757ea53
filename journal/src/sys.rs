//! Time and randomness: the two remaining seams of non-determinism.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use weldfs_locks::Mutex;

/// Time. LSNs order things, never clocks: time feeds timestamps and deadlines only. Thread-safe.
pub trait Clock: Send + Sync {
    /// Monotonic nanoseconds.
    fn now_ns(&self) -> u64;
    /// Monotonic nanoseconds, possibly some milliseconds old but cheaper to ask.
    fn coarse_ns(&self) -> u64 {
        self.now_ns()
    }
    /// Seconds since the epoch, and nanoseconds within the second.
    fn wall(&self) -> (i64, u32);
}

/// Unpredictable bytes, for salts and identifiers. Thread-safe.
pub trait Random: Send + Sync {
    /// Fills `buf`.
    fn fill(&self, buf: &mut [u8]);

    /// A number that is not 0.
    fn nonzero_u64(&self) -> u64 {
        loop {
            let mut b = [0; 8];
            self.fill(&mut b);
            let n = u64::from_le_bytes(b);
            if n != 0 {
                return n;
            }
        }
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

fn monotonic(id: rustix::time::ClockId) -> u64 {
    let t = rustix::time::clock_gettime(id);
    (t.tv_sec as u64) * 1_000_000_000 + t.tv_nsec as u64
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        monotonic(rustix::time::ClockId::Monotonic)
    }

    fn coarse_ns(&self) -> u64 {
        monotonic(rustix::time::ClockId::MonotonicCoarse)
    }

    fn wall(&self) -> (i64, u32) {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(d) => (d.as_secs() as i64, d.subsec_nanos()),
            Err(_) => (0, 0),
        }
    }
}

/// The operating system's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buf: &mut [u8]) {
        getrandom::fill(buf).expect("the kernel provides random bytes");
    }
}

/// A clock that moves only when told: for simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    ns: AtomicU64,
}

impl ManualClock {
    /// Starts at `ns`.
    pub fn new(ns: u64) -> ManualClock {
        ManualClock { ns: AtomicU64::new(ns) }
    }

    /// Moves on by `ns`.
    pub fn advance(&self, ns: u64) {
        self.ns.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.ns.load(Ordering::SeqCst)
    }

    fn wall(&self) -> (i64, u32) {
        let ns = self.now_ns();
        (1_700_000_000 + (ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32)
    }
}

/// Reproducible numbers from a seed (splitmix64): for simulation only, they can be predicted.
#[derive(Debug)]
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom { state: Mutex::new(seed) }
    }
}

impl Random for SeededRandom {
    fn fill(&self, buf: &mut [u8]) {
        let mut state = self.state.lock();
        for chunk in buf.chunks_mut(8) {
            *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            chunk.copy_from_slice(&z.to_le_bytes()[..chunk.len()]);
        }
    }
}
