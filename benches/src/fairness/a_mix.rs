//! `a-mix`: tenants of cheap commands against tenants of dear ones.
//!
//! Hypothesis: a policy that measures gives each the same device time; one that takes inode queues in turn gives
//! more to
//! whoever's slices are longer; first come, first served gives what the commands cost.

use super::chart::{self, Chart};
use super::device::Plan;
use super::load::{Kind, Load};
use super::report::{Part, PolicyRun};
use super::simulate;
use super::{Bench, WHOLE_US};
use crate::report::Ratio;
use std::io;
use weldfs_scheduler::PolicyKind;

/// Tenants of each kind.
const EACH: usize = 2;

fn tenants() -> Vec<Plan> {
    let small = (0..EACH).map(|i| Plan::new(format!("small-{i}"), Load::busy(Kind::Random, 4096)));
    let append = (0..EACH).map(|i| Plan::new(format!("append-{i}"), Load::busy(Kind::Append, 64 << 10)));
    small.chain(append).collect()
}

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Part> {
    let mut part = Part::new("a-mix", "4 KiB random I/O against append_checksum_write of 64 KiB");
    for policy in bench.policies() {
        let setup = bench.setup(policy, WHOLE_US, tenants());
        let run = bench.measure("a-mix", &setup)?;
        let slowdown = bench.slowdowns(&setup, &run)?;
        if bench.options.simulate {
            part.predicted.push(simulate::predict("a-mix", &setup, &run));
        }
        part.rows.push(PolicyRun { experiment: "a-mix".into(), policy, run, slowdown });
    }
    part.ratios = fair_and_unfair("a-mix", &part.rows);
    part.charts = vec![chart(&part)];
    Ok(part)
}

/// The bounds that `a-mix` and `c-many-files` share: fair policies are, and one that is not is found out.
pub(super) fn fair_and_unfair(name: &str, rows: &[PolicyRun]) -> Vec<Ratio> {
    let each = rows.iter().filter_map(|r| {
        let what = format!("{name}, {}: Jain's index of device time", r.policy);
        match r.policy {
            PolicyKind::Cfs | PolicyKind::Eevdf => Some(Ratio::at_least(&what, r.run.jain(), 1.0, 0.99)),
            PolicyKind::Rr => Some(Ratio::at_most(&what, r.run.jain(), 1.0, 0.85)),
            PolicyKind::Fifo => None,
        }
    });
    each.collect()
}

fn chart(part: &Part) -> (String, Chart) {
    ("fairness-a-mix".into(), chart::shares("a-mix: device time by tenant", &part.rows))
}
