//! `d-memory`: commands that need much scratch memory beside small I/O, under a tight budget.
//!
//! Hypothesis: accounted by tenant, the small ones have their memory at once and keep their part of the device; in one
//! queue for all they wait behind requests of 8 MiB, and the device is busy with others.

use super::chart;
use super::device::{Plan, Setup};
use super::load::{Kind, Load};
use super::report::{Part, PolicyRun};
use super::{Bench, SLICES_US};
use crate::report::Ratio;
use std::io;

/// What the device has for commands and changes not yet written.
const MEMORY: &str = "96M";
/// Tenants with scratch.
const HOGS: usize = 2;

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Part> {
    let what = format!("checksum_range of 8 MiB against 4 KiB random I/O, {MEMORY} of device memory");
    let mut part = Part::new("d-memory", &what);
    for policy in bench.policies() {
        for (name, accounting) in [("d-memory, accounted", true), ("d-memory, one queue", false)] {
            let mut tenants = vec![Plan::new("small", Load::busy(Kind::Random, 4096))];
            tenants.extend((0..HOGS).map(|i| Plan::new(format!("sums-{i}"), Load::busy(Kind::Sum, 8 << 20))));
            let setup = Setup { memory: MEMORY.into(), accounting, ..bench.setup(policy, SLICES_US, tenants) };
            let run = bench.measure(name, &setup)?;
            let slowdown = bench.slowdowns(&setup, &run)?;
            let used = run.share(0);
            let due = 1.0 / setup.tenants.len() as f64;
            let what = format!("{name}, {policy}: part of its fair share of device time that small I/O keeps");
            part.ratios.push(match accounting {
                true => Ratio::at_least(&what, used, due, 0.9),
                false => Ratio::at_most(&what, used, due, 0.5),
            });
            part.rows.push(PolicyRun { experiment: name.into(), policy, run, slowdown });
        }
    }
    part.charts = vec![("fairness-d-memory".into(), chart::shares("d-memory: device time by tenant", &part.rows))];
    Ok(part)
}
