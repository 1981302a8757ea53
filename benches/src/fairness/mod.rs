//! `weldfs bench fairness`: whether tenants get what is theirs of the device.
//!
//! Each tenant is a process of its own with 56 commands outstanding, known to the device by a token; the device's
//! cores are
//! slowed by a profile until they are what all wait for. Figures come from the device's counters, over the
//! intervals in which every busy tenant had at least 32 commands queued; each setup runs several rounds, each on a
//! fresh
//! device. Jain's index is that of device time over weight, the median over the rounds; *slow-down* is the rate of
//! the same
//! load alone on the same device over the rate here.
//!
//! * `a-mix` small random I/O against fused appends of 64 KiB; `b-weights` shares of 1:1:1 and 1:2:4; `c-many-files`
//!   256
//!   files against one; `d-memory` 8 MiB of scratch per command under a tight budget, accounted for or not; `e-latency`
//!   a reader with one command outstanding beside hogs.

mod a_mix;
mod b_weights;
mod c_files;
mod chart;
pub mod client;
mod d_memory;
mod device;
mod e_latency;
mod load;
mod measure;
mod report;
mod simulate;

use crate::report::Machine;
use device::{Plan, Setup};
use load::Load;
use measure::{Pace, Run};
pub use report::FairnessReport;
use report::Part;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use weldfs_scheduler::PolicyKind;

/// Quantum under which commands of the sizes used run whole, as under a policy without slices, microseconds.
const WHOLE_US: u64 = 1000;
/// Quantum under which commands of 64 KiB and more run in slices, microseconds.
const SLICES_US: u64 = 200;
/// Seconds for which a load runs alone, at most.
const ALONE_SECONDS: f64 = 1.5;

type Experiment = fn(&mut Bench<'_>) -> io::Result<Part>;

/// Policies that share by weight: under the others the experiment would show nothing.
const FAIR: &[PolicyKind] = &[PolicyKind::Cfs, PolicyKind::Eevdf];

/// The experiments, in order, each with the policies that make sense in it.
const ALL: [(&str, Experiment, &[PolicyKind]); 5] = [
    ("a-mix", a_mix::run, &PolicyKind::ALL),
    ("b-weights", b_weights::run, FAIR),
    ("c-many-files", c_files::run, &PolicyKind::ALL),
    ("d-memory", d_memory::run, FAIR),
    ("e-latency", e_latency::run, &PolicyKind::ALL),
];

/// The experiments' names.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, ..)| *name)
}

/// Says which experiment that is asked for would run under none of the policies that are asked for.
pub fn idle(only: &[String], policies: &[PolicyKind]) -> Option<String> {
    let runs = |sensible: &[PolicyKind]| policies.is_empty() || policies.iter().any(|p| sensible.contains(p));
    let of = ALL.iter().find(|(name, _, sensible)| only.iter().any(|o| o == name) && !runs(sensible));
    of.map(|(name, _, sensible)| {
        let known: Vec<String> = sensible.iter().map(ToString::to_string).collect();
        format!("{name} says something under {} only", known.join(" and "))
    })
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `weldfs` binary: serves, and is a tenant's process with `client_args`.
    pub program: PathBuf,
    /// Arguments that turn the binary into a tenant's process (socket, load and name are added).
    pub client_args: Vec<String>,
    /// Policies; empty: those of each experiment.
    pub policies: Vec<PolicyKind>,
    /// Experiments by name; empty: all.
    pub only: Vec<String>,
    /// Seconds of a round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: u32,
    /// Cores of the device.
    pub cores: u32,
    /// Speed of a core relative to the host's.
    pub speed: f64,
    /// Device time after which a command gives way, microseconds; by default what suits the experiment.
    pub quantum_us: Option<u64>,
    /// Predict each run of `a-mix` and `b-weights` with the simulator, too.
    pub simulate: bool,
    /// Only to see that it runs: rounds may be short, every interval counts, and no aim is judged.
    pub quick: bool,
}

/// What decides how fast a load is alone: the load, and the device's cores, quantum, memory and accounting of it.
type Alone = (Load, u32, u64, String, bool);

/// What experiments have in common.
struct Bench<'a> {
    options: &'a Options,
    note: &'a mut dyn FnMut(&str),
    /// Commands per second of a load alone, on this device.
    alone: HashMap<Alone, f64>,
    /// Policies that make sense in the experiment that runs.
    sensible: &'static [PolicyKind],
}

impl Bench<'_> {
    fn setup(&self, policy: PolicyKind, quantum_us: u64, tenants: Vec<Plan>) -> Setup {
        let o = self.options;
        let (speed, quantum_us) = (o.speed, o.quantum_us.unwrap_or(quantum_us));
        Setup { policy, cores: o.cores, speed, quantum_us, memory: "256M".into(), accounting: true, tenants }
    }

    /// The policies asked for among those that make sense in this experiment.
    fn policies(&self) -> Vec<PolicyKind> {
        let asked = &self.options.policies;
        self.sensible.iter().copied().filter(|p| asked.is_empty() || asked.contains(p)).collect()
    }

    fn pace(&self, seconds: f64, rounds: u32) -> Pace<'_> {
        let o = self.options;
        Pace { program: &o.program, client_args: &o.client_args, seconds, rounds, quick: o.quick }
    }

    fn measure(&mut self, what: &str, setup: &Setup) -> io::Result<Run> {
        (self.note)(&format!("{what}, {}", setup.policy));
        measure::run(&self.pace(self.options.seconds, self.options.rounds), setup)
            .map_err(|e| io::Error::other(format!("{what}, {}: {e}", setup.policy)))
    }

    /// Commands per second of a tenant's load when it is alone.
    fn alone(&mut self, setup: &Setup, plan: &Plan) -> io::Result<f64> {
        let key = (plan.load, setup.cores, setup.quantum_us, setup.memory.clone(), setup.accounting);
        if let Some(rate) = self.alone.get(&key) {
            return Ok(*rate);
        }
        let only = Setup { tenants: vec![plan.clone()], policy: PolicyKind::Cfs, ..setup.clone() };
        (self.note)(&format!("{} alone", plan.load));
        let run = measure::run(&self.pace(self.options.seconds.min(ALONE_SECONDS), 1), &only)?;
        self.alone.insert(key, run.rate(0));
        Ok(run.rate(0))
    }

    /// Slow-down of each tenant against running alone.
    fn slowdowns(&mut self, setup: &Setup, run: &Run) -> io::Result<Vec<f64>> {
        let each = setup.tenants.iter().enumerate();
        each.map(|(at, plan)| Ok(self.alone(setup, plan)? / run.rate(at).max(1e-9))).collect()
    }
}

/// Runs the experiments; `note` is told what is being measured.
pub fn run(options: &Options, note: &mut dyn FnMut(&str)) -> io::Result<FairnessReport> {
    let mut bench = Bench { options, note, alone: HashMap::new(), sensible: &[] };
    if let Some(why) = idle(&options.only, &options.policies) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut parts = Vec::new();
    for (name, experiment, sensible) in ALL {
        bench.sensible = sensible;
        let asked = options.only.is_empty() || options.only.iter().any(|o| o == name);
        if asked && !bench.policies().is_empty() {
            parts.push(experiment(&mut bench)?);
        }
    }
    let profile = format!("slowed ({} core(s) at {} of the host's)", options.cores, options.speed);
    Ok(FairnessReport::new(Machine::here(), profile, options.quick, parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_that_would_run_under_no_policy_is_named() {
        let only = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(idle(&only(&["a-mix", "e-latency"]), &[PolicyKind::Rr]), None);
        assert_eq!(idle(&only(&["b-weights"]), &[]), None);
        assert_eq!(idle(&only(&["b-weights"]), &[PolicyKind::Rr, PolicyKind::Cfs]), None);
        assert_eq!(idle(&[], &[PolicyKind::Fifo]), None, "the others do something");
        let why = idle(&only(&["a-mix", "d-memory"]), &[PolicyKind::Fifo]);
        assert_eq!(why.as_deref(), Some("d-memory says something under cfs and eevdf only"));
    }
}
