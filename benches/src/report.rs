//! Rows, medians and tables that all experiments share.

use crate::table::{Table, ratio};
use serde::Serialize;
use std::io::{self, Write};

/// One figure: what was done, by whom, on what, and how long one of it took.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The operation.
    pub bench: String,
    /// Who did it: "floor", "weldfs", "ext4-ram", ...
    pub system: String,
    /// Commands or calls in flight.
    pub depth: u32,
    /// "burst" (within one log), "steady" (over ten log lengths, checkpoints included) or "-".
    pub phase: String,
    /// Where the bytes live.
    pub medium: String,
    /// "volatile", "durable" or "-".
    pub durability: String,
    /// Whether durable here survives a power cut.
    pub power_safe: bool,
    /// Median nanoseconds per operation over the rounds.
    pub ns_per_op: f64,
    /// Rounds behind the median.
    pub rounds: usize,
}

/// A claim about two figures, and whether it held in this run.
#[derive(Debug, Clone, Serialize)]
pub struct Ratio {
    /// What is compared.
    pub what: String,
    /// The ratio measured.
    pub measured: f64,
    /// The bound.
    pub bound: f64,
    /// "at most" or "at least".
    pub sense: &'static str,
    /// Whether it held.
    pub holds: bool,
}

impl Ratio {
    /// `a / b` must be at most `bound`.
    pub fn at_most(what: &str, a: f64, b: f64, bound: f64) -> Ratio {
        let measured = a / b;
        Ratio { what: what.to_owned(), measured, bound, sense: "at most", holds: measured <= bound }
    }

    /// `a / b` must be at least `bound`.
    pub(crate) fn at_least(what: &str, a: f64, b: f64, bound: f64) -> Ratio {
        let measured = a / b;
        Ratio { what: what.to_owned(), measured, bound, sense: "at least", holds: measured >= bound }
    }
}

/// The table of aims, below another one; nothing where there are none.
pub(crate) fn print_aims(aims: &[Ratio], out: &mut dyn Write, markdown: bool) -> io::Result<()> {
    if aims.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(["aim", "measured", "bound", "holds"]);
    for aim in aims {
        let (bound, holds) = (format!("{} {}", aim.sense, ratio(aim.bound)), if aim.holds { "yes" } else { "NO" });
        table.line([aim.what.clone(), ratio(aim.measured), bound, holds.to_owned()]);
    }
    write!(out, "\n{}", table.render(markdown))
}

/// Collects samples under a name until the medians are taken.
#[derive(Default)]
pub(crate) struct Samples(Vec<(Row, Vec<f64>)>);

impl Samples {
    pub(crate) fn add(&mut self, row: Row, ns: f64) {
        let same =
            |r: &Row| (&r.bench, &r.system, r.depth, &r.phase) == (&row.bench, &row.system, row.depth, &row.phase);
        match self.0.iter_mut().find(|(r, _)| same(r)) {
            Some((_, all)) => all.push(ns),
            None => self.0.push((row, vec![ns])),
        }
    }

    pub(crate) fn rows(self) -> Vec<Row> {
        let finish = |(row, all): (Row, Vec<f64>)| Row { ns_per_op: median(&all), rounds: all.len(), ..row };
        self.0.into_iter().map(finish).collect()
    }
}

/// A row without its figure: "burst", not power-safe.
pub(crate) fn row(bench: &str, system: &str, depth: u32, medium: &str, durability: &str) -> Row {
    Row {
        bench: bench.to_owned(),
        system: system.to_owned(),
        depth,
        phase: "burst".to_owned(),
        medium: medium.to_owned(),
        durability: durability.to_owned(),
        power_safe: false,
        ns_per_op: 0.0,
        rounds: 0,
    }
}

/// Median of the samples; NaN of none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// What machine and build a report comes from.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Processors that may be used.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// "release" or "debug".
    pub build: &'static str,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(':').nth(1));
        Machine {
            cpu: model.unwrap_or("unknown").trim().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

/// A finished experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Which machine.
    pub machine: Machine,
    /// Emulated hardware in force.
    pub profile: String,
    /// The figures.
    pub rows: Vec<Row>,
    /// The comparisons.
    pub ratios: Vec<Ratio>,
}

impl Report {
    /// Prints both tables for people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{} ({} cores), kernel {}, {} build, profile {}",
            self.machine.cpu, self.machine.cores, self.machine.kernel, self.machine.build, self.profile
        )?;
        writeln!(
            out,
            "\n{:<30} {:<10} {:>5} {:<7} {:<16} {:<9} {:<10} {:>12} {:>6}",
            "bench", "system", "depth", "phase", "medium", "class", "power-safe", "ns/op", "rounds"
        )?;
        for r in &self.rows {
            let safe = if r.power_safe { "yes" } else { "no" };
            writeln!(
                out,
                "{:<30} {:<10} {:>5} {:<7} {:<16} {:<9} {:<10} {:>12.0} {:>6}",
                r.bench, r.system, r.depth, r.phase, r.medium, r.durability, safe, r.ns_per_op, r.rounds
            )?;
        }
        writeln!(out, "\n{:<66} {:>9} {:>16}  holds", "ratio (medians of interleaved rounds)", "measured", "bound")?;
        for r in &self.ratios {
            writeln!(
                out,
                "{:<66} {:>8.2}x {:>8} {:>6.2}x  {}",
                r.what,
                r.measured,
                r.sense,
                r.bound,
                if r.holds { "yes" } else { "NO" }
            )?;
        }
        Ok(())
    }
}
