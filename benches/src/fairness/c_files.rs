//! `c-many-files`: more files are no bigger share.

use super::a_mix::fair_and_unfair;
use super::chart;
use super::device::Plan;
use super::load::{Kind, Load};
use super::report::{Part, PolicyRun};
use super::{Bench, SLICES_US};
use std::io;

/// Files of the tenant with many.
const FILES: u32 = 256;

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Part> {
    let mut part =
        Part::new("c-many-files", "random reads of 256 KiB, several slices each, on 256 files against the same on one");
    for policy in bench.policies() {
        let one = Load::busy(Kind::Read, 256 << 10);
        let many = Load { files: FILES, ..one };
        let setup = bench.setup(policy, SLICES_US, vec![Plan::new("many", many), Plan::new("one", one)]);
        let run = bench.measure("c-many-files", &setup)?;
        let slowdown = bench.slowdowns(&setup, &run)?;
        part.rows.push(PolicyRun { experiment: "c-many-files".into(), policy, run, slowdown });
    }
    part.ratios = fair_and_unfair("c-many-files", &part.rows);
    part.charts =
        vec![("fairness-c-many-files".into(), chart::shares("c-many-files: device time by tenant", &part.rows))];
    Ok(part)
}
