//! What the experiments report: tables for people, rows as JSON, plots.

use super::chart::Chart;
use super::measure::Run;
use super::simulate::Prediction;
use crate::report::{Machine, Ratio};
use serde::Serialize;
use std::io;
use std::path::Path;
use weldfs_scheduler::PolicyKind;

/// One setup measured under one policy.
pub(super) struct PolicyRun {
    pub experiment: String,
    pub policy: PolicyKind,
    pub run: Run,
    /// By tenant.
    pub slowdown: Vec<f64>,
}

/// One experiment.
pub(super) struct Part {
    name: &'static str,
    what: String,
    pub rows: Vec<PolicyRun>,
    pub ratios: Vec<Ratio>,
    pub predicted: Vec<Prediction>,
    /// By file name.
    pub charts: Vec<(String, Chart)>,
}

impl Part {
    pub fn new(name: &'static str, what: &str) -> Part {
        let (rows, ratios, predicted, charts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Part { name, what: what.to_owned(), rows, ratios, predicted, charts }
    }
}

/// One tenant's figures in one setup.
#[derive(Debug, Clone, Serialize)]
pub struct TenantRow {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Commands completed per second.
    pub ops_per_s: f64,
    /// Device time charged over the intervals that count, nanoseconds.
    pub device_ns: u64,
    /// Median device-side latency, microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Commands per second alone over those here.
    pub slowdown: f64,
}

/// One setup.
#[derive(Debug, Clone, Serialize)]
pub struct FairnessRow {
    /// The experiment, and which variant of it.
    pub experiment: String,
    /// The policy in force.
    pub policy: String,
    /// The tenants.
    pub tenants: Vec<TenantRow>,
    /// Jain's index of device time over weight, median over the rounds.
    pub jain: f64,
}

/// The finished experiments. As JSON: machine, profile and rows.
#[derive(Serialize)]
pub struct FairnessReport {
    /// Which machine.
    pub machine: Machine,
    /// Emulated hardware in force.
    pub profile: String,
    /// The figures.
    pub rows: Vec<FairnessRow>,
    #[serde(skip)]
    parts: Vec<Part>,
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn row(r: &PolicyRun) -> FairnessRow {
    let tenants = r.run.tenants.iter().enumerate().map(|(at, t)| TenantRow {
        name: t.name.clone(),
        weight: t.weight,
        ops_per_s: r.run.rate(at),
        device_ns: t.device_ns,
        p50_us: us(t.latency.percentile(0.5)),
        p99_us: us(t.latency.percentile(0.99)),
        slowdown: r.slowdown[at],
    });
    let tenants = tenants.collect();
    FairnessRow { experiment: r.experiment.clone(), policy: r.policy.to_string(), tenants, jain: r.run.jain() }
}

impl FairnessReport {
    pub(super) fn new(machine: Machine, profile: String, parts: Vec<Part>) -> FairnessReport {
        let rows = parts.iter().flat_map(|p| p.rows.iter().map(row)).collect();
        FairnessReport { machine, profile, rows, parts }
    }

    /// Prints everything for people.
    pub fn print(&self) {
        let m = &self.machine;
        println!("{} ({} cores), kernel {}, {} build, profile {}", m.cpu, m.cores, m.kernel, m.build, self.profile);
        for part in &self.parts {
            println!("\n{}: {}", part.name, part.what);
            part.rows.iter().for_each(print_row);
            Prediction::print(&part.predicted);
        }
        println!("\n{:<72} {:>9} {:>16}  holds", "target", "measured", "bound");
        let predicted = self.parts.iter().flat_map(|p| p.predicted.iter().map(Prediction::ratio));
        let ratios: Vec<Ratio> = self.parts.iter().flat_map(|p| p.ratios.iter().cloned()).chain(predicted).collect();
        for r in &ratios {
            let holds = if r.holds { "yes" } else { "NO" };
            println!("{:<72} {:>8.4} {:>9} {:>6.2}  {holds}", r.what, r.measured, r.sense, r.bound);
        }
    }

    /// Writes each plot as an SVG file into `dir`, which is made if it is not there.
    pub fn plot(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let charts = self.parts.iter().flat_map(|p| &p.charts);
        charts.into_iter().try_for_each(|(name, chart)| std::fs::write(dir.join(format!("{name}.svg")), chart.svg()))
    }
}

fn print_row(r: &PolicyRun) {
    let (run, (counted, all)) = (&r.run, r.run.intervals);
    println!(
        "\n  {}, {}: Jain {:.4} ({}), device {:.0} % busy, {counted} of {all} intervals count",
        r.experiment,
        r.policy,
        run.jain(),
        run.jains.iter().map(|j| format!("{j:.4}")).collect::<Vec<_>>().join(" "),
        run.utilisation * 100.0
    );
    println!(
        "  {:<16} {:>6} {:>10} {:>7} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "tenant",
        "weight",
        "ops/s",
        "share",
        "us/op",
        "slices",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "wall p99",
        "slow-down",
        "queued"
    );
    for (at, t) in run.tenants.iter().enumerate() {
        println!(
            "  {:<16} {:>6} {:>10.1} {:>6.1}% {:>8.1} {:>8.2} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.2} {:>8.1}",
            t.name,
            t.weight,
            run.rate(at),
            run.share(at) * 100.0,
            us(t.device_ns) / t.ops.max(1) as f64,
            t.slices as f64 / t.ops.max(1) as f64,
            us(t.latency.percentile(0.5)),
            us(t.latency.percentile(0.99)),
            us(t.latency.percentile(0.999)),
            us(t.wall_ns.1),
            r.slowdown[at],
            t.depth
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::Measured;
    use super::*;

    #[test]
    fn the_json_is_machine_profile_and_rows() {
        let tenant = Measured {
            name: "a".into(),
            weight: 200,
            ops: 50,
            device_ns: 7,
            slices: 60,
            latency: Default::default(),
            depth: 33.0,
            wall_ns: (1, 2),
        };
        let run = Run { tenants: vec![tenant], time_ns: 1_000_000_000, jains: vec![1.0], ..Run::default() };
        let row = PolicyRun { experiment: "x".into(), policy: PolicyKind::Rr, run, slowdown: vec![2.0] };
        let part = Part { rows: vec![row], ..Part::new("x", "") };
        let report = FairnessReport::new(Machine::here(), "slow".into(), vec![part]);
        let json = serde_json::to_value(&report).expect("it is JSON");
        assert_eq!(json.as_object().expect("an object").keys().collect::<Vec<_>>(), ["machine", "profile", "rows"]);
        let want = serde_json::json!([{ "experiment": "x", "policy": "rr", "jain": 1.0, "tenants": [{ "name": "a",
            "weight": 200, "ops_per_s": 50.0, "device_ns": 7, "p50_us": 0.0, "p99_us": 0.0, "slowdown": 2.0 }] }]);
        assert_eq!(json["rows"], want);
    }
}
