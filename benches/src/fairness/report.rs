//! What the experiments report: tables for people, rows as JSON, plots.

use super::chart::Chart;
use super::measure::Run;
use super::simulate::Prediction;
use crate::report::{Machine, Ratio};
use serde::Serialize;
use std::io::{self, Write};
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
    /// 99.9th percentile.
    pub p999_us: f64,
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

/// An aim, what was measured, and whether that meets it.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// What is compared.
    pub aim: String,
    /// The ratio measured; none when it has no bound (tenants came in another order than predicted).
    pub measured: Option<f64>,
    /// `at most` or `at least`.
    pub sense: &'static str,
    /// The bound.
    pub bound: f64,
    /// `met`, `missed`, or `not judged` in a quick run, whose intervals count whatever happened in them.
    pub verdict: &'static str,
}

impl Verdict {
    fn new(r: Ratio, quick: bool) -> Verdict {
        let verdict = match (quick, r.holds) {
            (true, _) => "not judged",
            (false, true) => "met",
            (false, false) => "missed",
        };
        let measured = r.measured.is_finite().then_some(r.measured);
        Verdict { aim: r.what, measured, sense: r.sense, bound: r.bound, verdict }
    }
}

/// The finished experiments. As JSON: machine, profile, whether it was a quick run, rows and verdicts.
#[derive(Serialize)]
pub struct FairnessReport {
    /// Which machine.
    pub machine: Machine,
    /// Emulated hardware in force.
    pub profile: String,
    /// Whether it was to be tried out only.
    pub quick: bool,
    /// The figures.
    pub rows: Vec<FairnessRow>,
    /// The aims.
    pub verdicts: Vec<Verdict>,
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
        p999_us: us(t.latency.percentile(0.999)),
        slowdown: r.slowdown[at],
    });
    let tenants = tenants.collect();
    FairnessRow { experiment: r.experiment.clone(), policy: r.policy.to_string(), tenants, jain: r.run.jain() }
}

impl FairnessReport {
    pub(super) fn new(machine: Machine, profile: String, quick: bool, parts: Vec<Part>) -> FairnessReport {
        let rows = parts.iter().flat_map(|p| p.rows.iter().map(row)).collect();
        let predicted = parts.iter().flat_map(|p| p.predicted.iter().map(Prediction::ratio));
        let ratios = parts.iter().flat_map(|p| p.ratios.iter().cloned()).chain(predicted);
        let verdicts = ratios.map(|r| Verdict::new(r, quick)).collect();
        FairnessReport { machine, profile, quick, rows, verdicts, parts }
    }

    /// Prints everything for people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let m = &self.machine;
        writeln!(
            out,
            "{} ({} cores), kernel {}, {} build, profile {}",
            m.cpu, m.cores, m.kernel, m.build, self.profile
        )?;
        for part in &self.parts {
            writeln!(out, "\n{}: {}", part.name, part.what)?;
            part.rows.iter().try_for_each(|row| print_row(out, row))?;
            Prediction::print(out, &part.predicted)?;
        }
        writeln!(out, "\n{:<72} {:>9} {:>16}  verdict", "aim", "measured", "bound")?;
        for v in &self.verdicts {
            let measured = v.measured.unwrap_or(f64::INFINITY);
            writeln!(out, "{:<72} {measured:>8.4} {:>9} {:>6.2}  {}", v.aim, v.sense, v.bound, v.verdict)?;
        }
        Ok(())
    }

    /// Writes each plot as an SVG file into `dir`, which is made if it is not there.
    pub fn plot(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let charts = self.parts.iter().flat_map(|p| &p.charts);
        charts.into_iter().try_for_each(|(name, chart)| std::fs::write(dir.join(format!("{name}.svg")), chart.svg()))
    }
}

fn print_row(out: &mut dyn Write, r: &PolicyRun) -> io::Result<()> {
    let (run, (counted, all)) = (&r.run, r.run.intervals);
    writeln!(
        out,
        "\n  {}, {}: Jain {:.4} ({}), device {:.0} % busy, {counted} of {all} intervals count",
        r.experiment,
        r.policy,
        run.jain(),
        run.jains.iter().map(|j| format!("{j:.4}")).collect::<Vec<_>>().join(" "),
        run.utilisation * 100.0
    )?;
    writeln!(
        out,
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
    )?;
    for (at, t) in run.tenants.iter().enumerate() {
        writeln!(
            out,
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
            t.wall_p99_ns() / 1e3,
            r.slowdown[at],
            t.depth
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::measure::Measured;
    use super::*;

    #[test]
    fn the_json_is_machine_profile_rows_and_verdicts() {
        let tenant = Measured {
            name: "a".into(),
            weight: 200,
            ops: 50,
            device_ns: 7,
            slices: 60,
            latency: Default::default(),
            depth: 33.0,
            walls_ns: vec![(1, 2)],
        };
        let run = Run { tenants: vec![tenant], time_ns: 1_000_000_000, jains: vec![1.0], ..Run::default() };
        let row =
            || PolicyRun { experiment: "x".into(), policy: PolicyKind::Rr, run: run.clone(), slowdown: vec![2.0] };
        let ratios = vec![Ratio::at_least("a", 1.0, 1.0, 0.9), Ratio::at_most("b", 1.0, 0.0, 1.2)];
        let part = || Part { rows: vec![row()], ratios: ratios.clone(), ..Part::new("x", "") };
        let report = |quick| FairnessReport::new(Machine::here(), "slow".into(), quick, vec![part()]);
        let json = serde_json::to_value(report(false)).expect("it is JSON");
        let keys: Vec<_> = json.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["machine", "profile", "quick", "rows", "verdicts"]);
        let verdict = |aim, measured, sense, bound, verdict| {
            serde_json::json!({ "aim": aim, "measured": measured,
            "sense": sense, "bound": bound, "verdict": verdict })
        };
        let met = verdict("a", Some(1.0), "at least", 0.9, "met");
        assert_eq!(json["verdicts"], serde_json::json!([met, verdict("b", None, "at most", 1.2, "missed")]));
        let json_quick = serde_json::to_value(report(true)).expect("it is JSON");
        assert_eq!(json_quick["verdicts"][0]["verdict"], "not judged");
        let want = serde_json::json!([{ "experiment": "x", "policy": "rr", "jain": 1.0, "tenants": [{ "name": "a",
            "weight": 200, "ops_per_s": 50.0, "device_ns": 7, "p50_us": 0.0, "p99_us": 0.0,
            "p999_us": 0.0, "slowdown": 2.0 }] }]);
        assert_eq!(json["rows"], want);
    }
}
