//! `e-latency`: a reader with one command outstanding beside tenants that want the whole device.
//!
//! The baseline is the reader alone on a device slowed to its share: what a device of its own would give it.

use super::chart::{self, Chart};
use super::device::{Plan, Setup};
use super::load::{Kind, Load};
use super::measure;
use super::report::{Part, PolicyRun};
use super::{Bench, SLICES_US};
use crate::report::Ratio;
use std::io;
use weldfs_scheduler::PolicyKind;

/// Tenants beside the reader.
const HOGS: usize = 3;

fn reader() -> Plan {
    Plan::new("reader", Load { kind: Kind::Read, bytes: 4096, files: 1, depth: 1 })
}

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Part> {
    let mut part = Part::new("e-latency", "a reader of 4 KiB, one outstanding, beside three tenants of 64 KiB appends");
    let share = 1.0 / (HOGS + 1) as f64;
    let alone = bench.setup(PolicyKind::Eevdf, SLICES_US, vec![reader()]);
    let alone = Setup { speed: alone.speed * share, ..alone };
    (bench.note)("e-latency, baseline");
    let baseline = measure::run(&bench.pace(bench.options.seconds, bench.options.rounds), &alone)?;
    let bound = baseline.tenants[0].latency.percentile(0.99) as f64;
    for policy in bench.policies() {
        let mut tenants = vec![reader()];
        let hog = Load::busy(Kind::Append, 64 << 10);
        tenants.extend((0..HOGS).map(|i| Plan::new(format!("hog-{i}"), hog)));
        let setup = bench.setup(policy, SLICES_US, tenants);
        let run = bench.measure("e-latency", &setup)?;
        let slowdown = bench.slowdowns(&setup, &run)?;
        if policy == PolicyKind::Eevdf {
            let p99 = run.tenants[0].latency.percentile(0.99) as f64;
            part.ratios.push(Ratio::at_most("e-latency, eevdf: the reader's p99 over its baseline", p99, bound, 2.0));
        }
        part.rows.push(PolicyRun { experiment: "e-latency".into(), policy, run, slowdown });
    }
    let chart = chart(&part, &baseline);
    let full = bench.setup(PolicyKind::Eevdf, SLICES_US, vec![reader()]);
    let slowdown = bench.slowdowns(&full, &baseline)?;
    let experiment = "e-latency, baseline".to_owned();
    let row = PolicyRun { experiment, policy: PolicyKind::Eevdf, run: baseline, slowdown };
    part.rows.insert(0, row);
    part.charts = vec![("fairness-e-latency".into(), chart)];
    Ok(part)
}

/// Which part of the reader's commands took at most so long.
fn chart(part: &Part, baseline: &super::Run) -> Chart {
    let of = |run: &super::Run| chart::cumulated(&run.tenants[0].latency);
    let mut lines = vec![("alone, slowed to its share".to_owned(), of(baseline))];
    lines.extend(part.rows.iter().map(|r| (r.policy.to_string(), of(&r.run))));
    Chart::Lines {
        title: "e-latency: the reader's device-side latency".into(),
        x: "microseconds".into(),
        y: "of its commands, at most".into(),
        lines,
    }
}
