//! The floor: what two spinning processes can do at best over a ring in shared memory, with nothing behind it.
//!
//! Hypothesis: a WeldFS command costs little more than this. Unit: nanoseconds per round trip. A 64-byte entry goes
//! over, a 32-byte entry comes back; in the copying variant the client also copies 4 KiB into the ring's payload area
//! and the server copies it out into private memory. Both sides spin; there is no system call.

use crate::shm::Shared;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SLOTS: u64 = 64;
const PAYLOAD: usize = 4096;
// Words on cache lines of their own: 128 bytes apart, so that adjacent-line prefetch does not couple them.
const SQ_TAIL: usize = 0;
const CQ_TAIL: usize = 16;
const STOP: usize = 32;
const SQ_AT: usize = 4096;
const CQ_AT: usize = SQ_AT + SLOTS as usize * 64;
const POOL_AT: usize = 16384;
const LEN: usize = POOL_AT + SLOTS as usize * PAYLOAD;

/// The spinning server process; killed when dropped.
pub struct Floor {
    shared: Shared,
    server: Child,
    sent: u64,
}

/// The hidden role in which the benchmark binary starts itself as the server.
pub fn serve(path: &str) -> io::Result<()> {
    let shared = Shared::open(path, LEN)?;
    let (mut next, mut entry, mut private) = (0u64, [0u8; 64], vec![0u8; PAYLOAD]);
    let started = Instant::now();
    loop {
        let tail = shared.load(SQ_TAIL);
        if tail == next {
            // A lost parent must not leave a spinning orphan behind.
            if shared.load(STOP) != 0 || (started.elapsed() > Duration::from_secs(600)) {
                return Ok(());
            }
            std::hint::spin_loop();
            continue;
        }
        while next != tail {
            let slot = (next % SLOTS) as usize;
            shared.get(SQ_AT + slot * 64, &mut entry);
            if entry[0] == 1 {
                shared.get(POOL_AT + slot * PAYLOAD, &mut private);
            }
            std::hint::black_box(&private);
            shared.put(CQ_AT + slot * 32, &entry[..32]);
            next += 1;
            shared.store(CQ_TAIL, next);
        }
    }
}

impl Floor {
    /// Starts `program` (this binary) with `args` plus the region's path as the server.
    pub fn start(program: &std::path::Path, args: &[&str]) -> io::Result<Floor> {
        let shared = Shared::create(LEN)?;
        let server = Command::new(program).args(args).arg(shared.path()).stdin(Stdio::null()).spawn()?;
        let mut floor = Floor { shared, server, sent: 0 };
        floor.run(1, 1, false);
        Ok(floor)
    }

    /// Runs `count` round trips with at most `depth` in flight and returns nanoseconds per trip.
    pub fn run(&mut self, count: u64, depth: u64, copy: bool) -> f64 {
        let (mut entry, mut answer, payload) = ([0u8; 64], [0u8; 32], vec![0x5au8; PAYLOAD]);
        entry[0] = u8::from(copy);
        let (start, end) = (Instant::now(), self.sent + count);
        let mut reaped = self.sent;
        while reaped < end {
            while self.sent < end && self.sent - reaped < depth.min(SLOTS) {
                let slot = (self.sent % SLOTS) as usize;
                if copy {
                    self.shared.put(POOL_AT + slot * PAYLOAD, &payload);
                }
                self.shared.put(SQ_AT + slot * 64, &entry);
                self.sent += 1;
                self.shared.store(SQ_TAIL, self.sent);
            }
            let tail = self.shared.load(CQ_TAIL);
            if tail == reaped {
                std::hint::spin_loop();
            }
            while reaped < tail {
                self.shared.get(CQ_AT + (reaped % SLOTS) as usize * 32, &mut answer);
                std::hint::black_box(&answer);
                reaped += 1;
            }
        }
        start.elapsed().as_nanos() as f64 / count as f64
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.shared.store(STOP, 1);
        // The server may be gone already; either way there is nothing left to do about it.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
