//! Pipelined driving of one queue pair: keeps `depth` commands in flight and measures nanoseconds per command.

use std::io;
use std::time::{Duration, Instant};
use weldfs::{Client, Command, Errno, PoolRange, Queue};

/// Bytes of the buffer pool: 64 payloads of 4 KiB with names, and room to spare.
const POOL: u32 = 1 << 20;

/// A queue pair with one staged payload per position in flight.
pub struct Driver {
    queue: Queue,
    payload: Vec<PoolRange>,
    data: Vec<u8>,
}

impl Driver {
    /// A driver of at most 64 commands in flight, with `payload` staged for each.
    pub fn new(client: &Client, data: &[u8]) -> io::Result<Driver> {
        let mut queue = client.queue(64, POOL.max(80 * data.len() as u32))?;
        let payload = (0..64).map(|_| queue.stage(data)).collect::<Result<_, Errno>>()?;
        Ok(Driver { queue, payload, data: data.to_vec() })
    }

    /// The queue itself, for staging names.
    pub fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// As `run`, for as long as `time`; gives the number of commands and the nanoseconds they took.
    pub fn run_for(
        &mut self,
        time: Duration,
        depth: u64,
        make: impl FnMut(u64, PoolRange) -> Command,
    ) -> io::Result<(u64, u64)> {
        let start = Instant::now();
        let count = self.pump(depth, make, |_| start.elapsed() < time)?;
        Ok((count, start.elapsed().as_nanos() as u64))
    }

    /// Runs `count` commands made by `make(number, payload)`, at most `depth` in flight; nanoseconds per command. The
    /// payload is copied into the pool for each command, as an application's would be. The first errno ends it.
    pub fn run(&mut self, count: u64, depth: u64, make: impl FnMut(u64, PoolRange) -> Command) -> io::Result<f64> {
        let start = Instant::now();
        self.pump(depth, make, |sent| sent < count)?;
        Ok(start.elapsed().as_nanos() as f64 / count as f64)
    }

    fn pump(
        &mut self,
        depth: u64,
        mut make: impl FnMut(u64, PoolRange) -> Command,
        mut more: impl FnMut(u64) -> bool,
    ) -> io::Result<u64> {
        let (mut sent, mut done) = (0u64, 0u64);
        loop {
            let mut fresh = false;
            while sent - done < depth && more(sent) {
                let room = self.payload[(sent % 64) as usize];
                self.queue.pool().slice(room)?.copy_from(&self.data);
                let command = make(sent, room);
                self.queue.submit(&command)?;
                sent += 1;
                fresh = true;
            }
            if fresh {
                self.queue.flush();
            }
            if sent == done {
                return Ok(done);
            }
            self.queue.await_any()?;
            while let Some(cqe) = self.queue.reap()? {
                if cqe.status != 0 {
                    return Err(io::Error::from_raw_os_error(cqe.status));
                }
                done += 1;
            }
        }
    }
}
