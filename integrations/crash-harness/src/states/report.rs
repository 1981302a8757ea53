//! What a run found, in the words of `weldfs crash`.

use super::Bad;
use serde::Serialize;

/// Failures listed at most; all are counted.
pub(crate) const FAILURES_MAX: usize = 50;

/// A bad state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure {
    /// The workload, `@`, events before the power cut, `.`, number of the state there: what `--trace` takes. The
    /// workload alone when no crash was needed.
    pub trace: String,
    /// Which of the eight rules; 0 when store and model differed without a crash.
    pub rule: u8,
    /// What was found.
    pub detail: String,
}

/// What a run found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// one-op, two-op, three-op, random, checkpoint, or trace.
    pub workload: String,
    /// block or pmem.
    pub medium: String,
    /// macro, micro or all.
    pub mode: String,
    /// What samples and tears were drawn by.
    pub seed: u64,
    /// Power cuts in a row.
    pub depth: u32,
    /// Workloads run.
    pub workloads: u64,
    /// Crash states judged, equal images at several moments included.
    pub states: u64,
    /// Different images among them, each mounted, read and checked: never more than `states`.
    pub unique_states: u64,
    /// Different images that power cuts within recoveries left, recovered and checked in their turn.
    pub recovery_states: u64,
    /// Different images of both kinds whose recovery finished a transaction: each was mounted read-only as well.
    pub read_only: u64,
    /// Of these, those in which the read-only mount showed the transaction half way.
    pub middles: u64,
    /// Bad states.
    pub bad: u64,
    /// Moments at which there were too many subsets to try all.
    pub capped: u64,
    /// Wall time.
    pub seconds: f64,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
    /// Processor time per different image of both kinds, all checks included, microseconds.
    pub us_per_state: f64,
    /// The first of the bad states, the smallest workloads that show them.
    pub failures: Vec<Failure>,
}

impl Failure {
    /// The rule with its title, as people read it.
    pub fn rule_and_title(&self) -> String {
        format!("rule {} ({})", self.rule, Bad::title(self.rule))
    }
}

impl Report {
    /// The command that repeats a failure of this run.
    pub fn command(&self, failure: &Failure) -> String {
        let Report { medium, mode, seed, depth, .. } = self;
        format!(
            "weldfs crash --medium {medium} --mode {mode} --seed {seed} --depth {depth} --trace '{}'",
            failure.trace
        )
    }
}
