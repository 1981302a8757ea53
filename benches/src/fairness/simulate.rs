//! What the scheduler's simulator predicts for a setup, from nothing but what the commands of the run cost.

use super::device::Setup;
use super::measure::Run;
use crate::report::Ratio;
use std::io::{self, Write};
use weldfs_scheduler::WEIGHT_DEFAULT;
use weldfs_scheduler::sim::{CostModel, SimClient, SimConfig, simulate};

/// A prediction beside what was measured.
pub(super) struct Prediction {
    what: String,
    /// By tenant: name, part of the device time and commands per second, measured and predicted.
    tenants: Vec<Pair>,
}

struct Pair {
    name: String,
    share: (f64, f64),
    rate: (f64, f64),
}

/// Runs the simulator with the costs and slices of each tenant's commands as measured.
pub(super) fn predict(what: &str, setup: &Setup, run: &Run) -> Prediction {
    let clients = setup.tenants.iter().zip(&run.tenants).map(|(plan, t)| SimClient {
        name: plan.name.clone(),
        weight: (u64::from(plan.weight) * u64::from(WEIGHT_DEFAULT) / 100) as u32,
        depth: plan.load.depth,
        files: plan.load.files,
        cost: CostModel::Fixed(t.device_ns / t.ops.max(1)),
        slices: (t.slices as f64 / t.ops.max(1) as f64).round().max(1.0) as u32,
        ..SimClient::default()
    });
    let clients: Vec<SimClient> = clients.collect();
    let config = SimConfig {
        cores: setup.cores as usize,
        policy: setup.policy,
        // The slices measured are all there were, for the quantum and for tickets: each gives way.
        quantum_ns: 1,
        duration_ns: run.time_ns.max(1_000_000_000),
        ..SimConfig::default()
    };
    let predicted = simulate(&config, &clients);
    let all: u64 = predicted.tenants.iter().map(|t| t.device_ns).sum();
    let pairs = run.tenants.iter().zip(&predicted.tenants).enumerate().map(|(at, (t, p))| Pair {
        name: t.name.clone(),
        share: (run.share(at), p.device_ns as f64 / all.max(1) as f64),
        rate: (run.rate(at), p.ops_per_s),
    });
    Prediction { what: format!("{what}, {}", setup.policy), tenants: pairs.collect() }
}

impl Prediction {
    /// Prints both beside each other.
    pub fn print(out: &mut dyn Write, all: &[Prediction]) -> io::Result<()> {
        for p in all {
            writeln!(
                out,
                "\n  {}: simulated beside measured{}",
                p.what,
                if p.same_order() { "" } else { "; the ORDER differs" }
            )?;
            writeln!(
                out,
                "  {:<16} {:>12} {:>12} {:>12} {:>12}",
                "tenant", "share", "simulated", "ops/s", "simulated"
            )?;
            for t in &p.tenants {
                writeln!(
                    out,
                    "  {:<16} {:>11.1}% {:>11.1}% {:>12.1} {:>12.1}",
                    t.name,
                    t.share.0 * 100.0,
                    t.share.1 * 100.0,
                    t.rate.0,
                    t.rate.1
                )?;
            }
        }
        Ok(())
    }

    /// Whether the tenants' shares come in the same order; those within a twentieth of each other have none.
    fn same_order(&self) -> bool {
        let apart = |a: f64, b: f64| a > b * 1.05;
        let pairs = self.tenants.iter().flat_map(|a| self.tenants.iter().map(move |b| (a, b)));
        let mut wrong = pairs.filter(|(a, b)| apart(a.share.0, b.share.0) && apart(b.share.1, a.share.1));
        wrong.next().is_none()
    }

    /// The largest factor between a share and its prediction; unbounded when the order is another one.
    pub fn ratio(&self) -> Ratio {
        let what = format!("{}: shares, simulated against measured", self.what);
        let off = self.tenants.iter().map(|t| {
            let (real, predicted) = (t.share.0.max(1e-9), t.share.1.max(1e-9));
            (real / predicted).max(predicted / real)
        });
        let worst = if self.same_order() { off.fold(1.0, f64::max) } else { f64::INFINITY };
        Ratio::at_most(&what, worst, 1.0, 1.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction(shares: &[(f64, f64)]) -> Prediction {
        let pair = |share: &(f64, f64)| Pair { name: String::new(), share: *share, rate: *share };
        Prediction { what: String::new(), tenants: shares.iter().map(pair).collect() }
    }

    #[test]
    fn a_prediction_in_another_order_never_holds_and_one_within_a_fifth_does() {
        assert!(prediction(&[(0.5, 0.52), (0.3, 0.28), (0.2, 0.2)]).ratio().holds);
        assert!(!prediction(&[(0.52, 0.46), (0.48, 0.54)]).ratio().holds);
        assert!(!prediction(&[(0.6, 0.8), (0.4, 0.2)]).ratio().holds);
        assert!(prediction(&[(0.50, 0.49), (0.50, 0.51)]).ratio().holds, "equals have no order");
    }
}
