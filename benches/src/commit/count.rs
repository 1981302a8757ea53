//! What the device counted, per operation.

use serde::Serialize;
use std::io::{self, Write};
use weldfs::Client;

/// Counters that are read before and after.
const NAMES: [&str; 7] = ["flushes", "batches", "log_writes", "data_writes", "records", "watermark_records", "bytes"];

/// Counts of one kind of work per operation, over all rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Count {
    /// The work.
    pub what: String,
    /// Operations behind it.
    pub ops: u64,
    /// Flushes (block) or fences (pmem) per operation.
    pub flushes: f64,
    /// Batches of writes per operation (block).
    pub batches: f64,
    /// Writes of log per operation (block).
    pub log_writes: f64,
    /// Writes of data per operation that were submitted with the log (block).
    pub data_writes: f64,
    /// Log records per operation.
    pub records: f64,
    /// Records per operation that only say how far flushes went.
    pub watermark_records: f64,
    /// Log bytes per operation.
    pub log_bytes: f64,
}

impl Count {
    /// Prints a table for people.
    pub fn print(out: &mut dyn Write, all: &[Count]) -> io::Result<()> {
        writeln!(
            out,
            "\n{:<44} {:>8} {:>8} {:>8} {:>10} {:>11} {:>8} {:>10} {:>9}",
            "counts per operation",
            "ops",
            "flushes",
            "batches",
            "log writes",
            "data writes",
            "records",
            "watermarks",
            "log bytes"
        )?;
        for c in all {
            writeln!(
                out,
                "{:<44} {:>8} {:>8.3} {:>8.3} {:>10.3} {:>11.3} {:>8.3} {:>10.3} {:>9.0}",
                c.what,
                c.ops,
                c.flushes,
                c.batches,
                c.log_writes,
                c.data_writes,
                c.records,
                c.watermark_records,
                c.log_bytes
            )?;
        }
        Ok(())
    }
}

/// The log's counters of a device now.
pub(super) fn read(client: &Client) -> io::Result<[u64; 7]> {
    let stats: serde_json::Value = serde_json::from_str(&client.stats_json()?).map_err(io::Error::other)?;
    Ok(NAMES.map(|n| stats["log"][n].as_u64().unwrap_or(0)))
}

/// Whether what is durable on the device survives a power cut.
pub(super) fn power_safe(client: &Client) -> io::Result<bool> {
    let stats: serde_json::Value = serde_json::from_str(&client.stats_json()?).map_err(io::Error::other)?;
    Ok(stats["device"]["power_safe"].as_bool().unwrap_or(false))
}

#[derive(Default)]
pub(super) struct Counters(Vec<(String, u64, [u64; 7])>);

impl Counters {
    pub(super) fn add(&mut self, what: &str, ops: u64, before: &[u64; 7], after: &[u64; 7]) {
        let at = self.0.iter().position(|c| c.0 == what).unwrap_or_else(|| {
            self.0.push((what.to_owned(), 0, [0; 7]));
            self.0.len() - 1
        });
        let (_, n, sums) = &mut self.0[at];
        *n += ops;
        sums.iter_mut().zip(before.iter().zip(after)).for_each(|(s, (b, a))| *s += a - b);
    }

    pub(super) fn per_op(self) -> Vec<Count> {
        let finish = |(what, ops, sums): (String, u64, [u64; 7])| {
            let [flushes, batches, log_writes, data_writes, records, watermark_records, log_bytes] =
                sums.map(|s| s as f64 / ops.max(1) as f64);
            Count { what, ops, flushes, batches, log_writes, data_writes, records, watermark_records, log_bytes }
        };
        self.0.into_iter().map(finish).collect()
    }
}
