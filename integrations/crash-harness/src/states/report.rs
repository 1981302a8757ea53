//! What a run found, in the words of `weldfs crash`.

use serde::Serialize;

/// Failures listed at most; all are counted.
pub const FAILURES_MAX: usize = 50;

/// A bad state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure {
    /// The workload, `@`, events before the power cut, `.`, number of the state there: what `--trace` takes.
    pub trace: String,
    /// Which of the eight rules; 0 when store and model went apart without a crash.
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
    /// Workloads run.
    pub workloads: u64,
    /// Crash states judged, equal images at several moments included.
    pub states: u64,
    /// Different images, each mounted, read and checked.
    pub unique_states: u64,
    /// Bad states.
    pub bad: u64,
    /// Moments at which there were too many subsets to try all.
    pub capped: u64,
    /// Wall time.
    pub seconds: f64,
    /// Processor time per different image, all checks included, microseconds.
    pub us_per_state: f64,
    /// The first of the bad states, the smallest workloads that show them.
    pub failures: Vec<Failure>,
}
