//! One sample: how long the operations of one run took, and what was counted meanwhile.

use serde::Serialize;
use std::io;
use std::ops::AddAssign;
use weldfs::Client;

/// What was counted during a run, all threads together. For WeldFS these are the device's counters, and the system
/// calls that the client's queue pairs made. For the host they are counted where the call is made: one copy for each
/// read and write, one name for each open, one flush for each sync.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Times the boundary was crossed: commands, or system calls.
    pub crossings: u64,
    /// Payload copied across it.
    pub payload_copies: u64,
    /// Names and attributes copied across it.
    pub metadata_copies: u64,
    /// System calls of the client.
    pub syscalls: u64,
    /// Bytes across it, both ways: entries, names and payload, or payload alone for the host.
    pub link_bytes: u64,
    /// Flushes or fences of the log, or calls that sync.
    pub flushes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Bytes of log written.
    pub log_bytes: u64,
    /// Bytes that the device wrote to its medium: log, data and checkpoints.
    pub medium_bytes: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, o: Counts) {
        self.crossings += o.crossings;
        self.payload_copies += o.payload_copies;
        self.metadata_copies += o.metadata_copies;
        self.syscalls += o.syscalls;
        self.link_bytes += o.link_bytes;
        self.flushes += o.flushes;
        self.checkpoints += o.checkpoints;
        self.log_bytes += o.log_bytes;
        self.medium_bytes += o.medium_bytes;
    }
}

impl Counts {
    /// What was counted after an earlier look.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            crossings: self.crossings.saturating_sub(earlier.crossings),
            payload_copies: self.payload_copies.saturating_sub(earlier.payload_copies),
            metadata_copies: self.metadata_copies.saturating_sub(earlier.metadata_copies),
            syscalls: self.syscalls.saturating_sub(earlier.syscalls),
            link_bytes: self.link_bytes.saturating_sub(earlier.link_bytes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            checkpoints: self.checkpoints.saturating_sub(earlier.checkpoints),
            log_bytes: self.log_bytes.saturating_sub(earlier.log_bytes),
            medium_bytes: self.medium_bytes.saturating_sub(earlier.medium_bytes),
        }
    }
}

/// A run, or several of them added up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Operations, all threads.
    pub ops: u64,
    /// Nanoseconds from the first thread's start to the last one's end.
    pub wall_ns: u64,
    /// Nanoseconds of each operation.
    pub latencies: Vec<u32>,
    /// What was counted.
    pub counts: Counts,
    /// Runs that began while the machine had other work.
    pub restless: u64,
}

impl Sample {
    pub(crate) fn add(&mut self, mut o: Sample) {
        self.ops += o.ops;
        self.wall_ns += o.wall_ns;
        self.latencies.append(&mut o.latencies);
        self.counts += o.counts;
        self.restless += o.restless;
    }

    pub(crate) fn ns_per_op(&self) -> f64 {
        self.wall_ns as f64 / self.ops.max(1) as f64
    }

    /// Median and 99th percentile of the latencies, nanoseconds.
    pub(crate) fn percentiles(&mut self) -> (f64, f64) {
        self.latencies.sort_unstable();
        let at = |share: f64| {
            let n = self.latencies.len();
            self.latencies.get(((n as f64 * share) as usize).min(n.saturating_sub(1))).map_or(f64::NAN, |v| *v as f64)
        };
        (at(0.5), at(0.99))
    }
}

/// Bytes over the link of a NOP: its entry and its completion.
const NOP_BYTES: u64 = 64 + 32;

/// A device's counters at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    commands: u64,
    nops: u64,
    counts: Counts,
}

impl Seen {
    pub(crate) fn now(client: &Client) -> io::Result<Seen> {
        Ok(Seen::of(&serde_json::from_str(&client.stats_json()?).map_err(io::Error::other)?))
    }

    /// Of a device's statistics.
    pub(crate) fn of(stats: &serde_json::Value) -> Seen {
        let total = |name: &str| stats["total"][name].as_u64().unwrap_or(0);
        let log = |name: &str| stats["log"][name].as_u64().unwrap_or(0);
        let counts = Counts {
            crossings: 0,
            payload_copies: total("payload_copies"),
            metadata_copies: total("metadata_copies"),
            syscalls: 0,
            link_bytes: total("link_bytes_in") + total("link_bytes_out"),
            flushes: log("flushes"),
            checkpoints: log("checkpoints"),
            log_bytes: log("bytes"),
            medium_bytes: log("bytes") + log("checkpoint_bytes") + total("data_bytes"),
        };
        let nops = stats["total"]["commands_by_opcode"]["nop"].as_u64().unwrap_or(0);
        Seen { commands: total("commands"), nops, counts }
    }

    /// What was counted since, without the NOPs that only keep the device awake.
    pub(crate) fn until(&self, later: &Seen) -> Counts {
        let nops = later.nops.saturating_sub(self.nops);
        let counts = later.counts.since(&self.counts);
        Counts {
            crossings: later.commands.saturating_sub(self.commands).saturating_sub(nops),
            link_bytes: counts.link_bytes.saturating_sub(nops * NOP_BYTES),
            ..counts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_add_up_and_percentiles_are_of_all() {
        let mut sum = Sample::default();
        for base in [100, 200] {
            let latencies = (0..100).map(|i| base + i).collect();
            sum.add(Sample {
                ops: 100,
                wall_ns: 5_000,
                latencies,
                counts: Counts { syscalls: 3, ..Counts::default() },
                restless: 1,
            });
        }
        assert_eq!((sum.ops, sum.counts.syscalls, sum.restless, sum.ns_per_op()), (200, 6, 2, 50.0));
        assert_eq!(sum.percentiles(), (200.0, 298.0));
    }

    #[test]
    fn nops_count_neither_as_crossings_nor_as_bytes() {
        let counts = |link_bytes| Counts { link_bytes, ..Counts::default() };
        let before = Seen { commands: 10, nops: 4, counts: counts(1000) };
        let after = Seen { commands: 30, nops: 14, counts: counts(1000 + 10 * 96 + 500) };
        let d = before.until(&after);
        assert_eq!((d.crossings, d.link_bytes), (10, 500));
    }
}
