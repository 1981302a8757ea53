//! `b-weights`: shares follow weights, whatever the commands cost.

use super::chart;
use super::device::Plan;
use super::load::{Kind, Load};
use super::report::{Part, PolicyRun};
use super::simulate;
use super::{Bench, SLICES_US};
use crate::report::Ratio;
use std::io;
use weldfs_scheduler::PolicyKind;

fn tenants(weights: [u32; 3]) -> Vec<Plan> {
    let loads = [Load::busy(Kind::Random, 4096), Load::busy(Kind::Append, 64 << 10), Load::busy(Kind::Read, 16 << 10)];
    let names = ["random 4K", "append 64K", "read 16K"];
    let plan = |((load, name), weight): ((Load, &str), u32)| Plan {
        name: format!("{}-{weight}", name.replace(' ', "-")),
        weight,
        load,
    };
    loads.into_iter().zip(names).zip(weights).map(plan).collect()
}

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Part> {
    let mut part = Part::new("b-weights", "random 4 KiB, append 64 KiB, read 16 KiB, with equal weights and 1:2:4");
    for (name, weights) in [("b-weights, 1:1:1", [100, 100, 100]), ("b-weights, 1:2:4", [100, 200, 400])] {
        for policy in bench.policies() {
            let setup = bench.setup(policy, SLICES_US, tenants(weights));
            let run = bench.measure(name, &setup)?;
            let slowdown = bench.slowdowns(&setup, &run)?;
            if bench.options.simulate {
                part.predicted.push(simulate::predict(name, &setup, &run));
            }
            part.ratios.push(worst(name, policy, &run));
            part.rows.push(PolicyRun { experiment: name.into(), policy, run, slowdown });
        }
    }
    part.charts = vec![("fairness-b-weights".into(), chart::by_weight("b-weights: device time by weight", &part.rows))];
    Ok(part)
}

/// How far the tenant farthest from its share is off, as a factor above 1.
fn worst(name: &str, policy: PolicyKind, run: &super::Run) -> Ratio {
    let all: u32 = run.tenants.iter().map(|t| t.weight).sum();
    let off = run.tenants.iter().enumerate().map(|(at, t)| {
        let due = f64::from(t.weight) / f64::from(all);
        (run.share(at) / due).max(due / run.share(at).max(1e-9))
    });
    let what = format!("{name}, {policy}: the tenant farthest from its share");
    Ratio::at_most(&what, off.fold(1.0, f64::max), 1.0, 1.02)
}
