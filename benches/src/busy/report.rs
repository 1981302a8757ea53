//! Rows, verdicts and tables of `busy`.

use super::company::Kind;
use crate::report::{Machine, Ratio, print_aims};
use crate::table::{Table, ratio};
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;

/// The busy processes with which the aims are compared.
const AIM_BUSY: u32 = 2;
/// An embedded device's median over its idle one, at most, beside the host's own slow-down.
const EMBEDDED_MAX: f64 = 2.0;
/// A served one's median over the host's calls with the same company, and what it may take besides, microseconds.
const SERVED_MAX: (f64, f64) = (4.0, 20.0);

/// Latencies of one cell, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Operations behind them, all rounds.
    pub ops: u64,
    /// Median of the rounds' medians.
    pub p50: f64,
    /// The same of the 99th percentiles.
    pub p99: f64,
    /// The same of the 99.9th percentiles.
    pub p999: f64,
    /// Processor time of client and device per operation, microseconds.
    pub cpu: f64,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct Busy {
    /// The operation.
    pub op: &'static str,
    /// Operations in flight.
    pub depth: u32,
    /// "host", "served", "embedded", "inline".
    pub system: &'static str,
    /// Busy processes.
    pub busy: u32,
    /// What was measured.
    #[serde(flatten)]
    pub figures: Figures,
    /// Median over that with no busy process.
    pub to_idle: Option<f64>,
}

/// The finished experiment.
#[derive(Clone, Debug, Serialize)]
pub struct BusyReport {
    /// Which machine.
    pub machine: Machine,
    /// Where the bytes of WeldFS live, which class, and which emulated hardware.
    pub medium: &'static str,
    /// The directory of the host.
    pub peer: String,
    /// What the busy processes do.
    pub load: Kind,
    /// The scheduler's tick, microseconds.
    pub tick: f64,
    /// Whether it was ended early.
    pub interrupted: bool,
    /// The rows.
    pub rows: Vec<Busy>,
    /// The aims.
    pub ratios: Vec<Ratio>,
}

/// The period of the scheduler's tick: that of the clock that only ticks.
fn tick() -> Duration {
    let t = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs() as u32)
}

impl BusyReport {
    pub(super) fn new(machine: Machine, peer: String, load: Kind, interrupted: bool, rows: Vec<Busy>) -> BusyReport {
        let tick = tick().as_secs_f64() * 1e6;
        let ratios = aims(&rows, tick);
        let medium = "emulated pmem, volatile, profile none";
        BusyReport { machine, medium, peer, load, tick, interrupted, rows, ratios }
    }

    /// Prints the tables for people.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let m = &self.machine;
        writeln!(out, "{} ({} cores), kernel {}, {} build", m.cpu, m.cores, m.kernel, m.build)?;
        let (load, tick) = (self.load.name(), self.tick);
        writeln!(out, "{}; host: {}; busy processes: {load}; scheduler tick {tick:.0} us\n", self.medium, self.peer)?;
        let head =
            ["operation", "depth", "system", "busy", "p50 us", "p99 us", "p99.9 us", "p50 to idle", "CPU us/op", "ops"];
        let mut table = Table::new(head);
        for row in &self.rows {
            let f = &row.figures;
            let us = |v: f64| format!("{v:.2}");
            table.line([
                row.op.to_owned(),
                row.depth.to_string(),
                row.system.to_owned(),
                row.busy.to_string(),
                us(f.p50),
                us(f.p99),
                us(f.p999),
                row.to_idle.map(ratio).unwrap_or_default(),
                us(f.cpu),
                f.ops.to_string(),
            ]);
        }
        write!(out, "{}", table.render(false))?;
        print_aims(&self.ratios, out, false)
    }
}

/// What is promised for two busy processes at depth 1.
fn aims(rows: &[Busy], tick: f64) -> Vec<Ratio> {
    let find = |like: &Busy, system: &str, busy: u32| {
        rows.iter().find(|r| (r.op, r.depth, r.system, r.busy) == (like.op, like.depth, system, busy))
    };
    let mut ratios = Vec::new();
    for row in rows.iter().filter(|r| r.depth == 1 && r.busy == AIM_BUSY && r.system != "host") {
        let (Some(host), Some(idle)) = (find(row, "host", AIM_BUSY), find(row, row.system, 0)) else { continue };
        let (op, f, host) = (row.op, &row.figures, host.figures);
        if matches!(row.system, "embedded" | "inline") {
            let slowed = find(row, "host", 0).map_or(0.0, |h| (host.p50 - h.figures.p50).max(0.0));
            let bound = EMBEDDED_MAX * idle.figures.p50 + slowed;
            ratios.push(Ratio::at_most(
                &format!("{op}, {}, p50 to 2x idle + the host's slow-down", row.system),
                f.p50,
                bound,
                1.0,
            ));
        } else {
            let bound = SERVED_MAX.0 * host.p50 + SERVED_MAX.1;
            ratios.push(Ratio::at_most(&format!("{op}, served, p50 to 4x the host's + 20 us"), f.p50, bound, 1.0));
            ratios.push(Ratio::at_most(&format!("{op}, served, p99 to a tick"), f.p99, tick, 1.0));
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: &'static str, busy: u32, p50: f64) -> Busy {
        let figures = Figures { ops: 1, p50, p99: 2.0 * p50, p999: p50, cpu: 1.0 };
        Busy { op: "read", depth: 1, system, busy, figures, to_idle: None }
    }

    #[test]
    fn aims_are_held_against_the_host_in_the_same_company() {
        let mut rows = vec![row("host", 0, 5.0), row("host", 2, 10.0), row("served", 0, 8.0), row("embedded", 0, 6.0)];
        rows.extend([row("served", 2, 59.0), row("embedded", 2, 18.0)]);
        let all = aims(&rows, 4000.0);
        assert_eq!(all.iter().map(|r| r.holds).collect::<Vec<_>>(), [true, true, false], "60 and 17 us");
        assert!(!aims(&rows, 100.0)[1].holds, "a p99 of 118 us");
        assert!(aims(&rows[..3], 4000.0).is_empty());
        assert!(tick() >= Duration::from_micros(100));
    }
}
