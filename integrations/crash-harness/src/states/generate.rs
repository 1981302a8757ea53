//! Workloads in a fixed order: every one of one operation, every one of two, samples of more.

use super::workload::Workload;

/// Which transaction modes fused operations are run in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeChoice {
    /// MacroTx only.
    Macro,
    /// MicroTx only.
    Micro,
    /// Both, one after the other.
    Both,
}

/// Every workload of one operation.
pub fn one_op(modes: ModeChoice) -> Vec<Workload> {
    let _ = modes;
    Vec::new()
}

/// Every workload of two operations.
pub fn two_op(modes: ModeChoice) -> impl Iterator<Item = Workload> {
    one_op(modes).into_iter()
}

/// `count` workloads of `ops` operations, drawn by a seed.
pub fn sampled(ops: usize, count: usize, seed: u64) -> impl Iterator<Item = Workload> {
    let _ = (ops, count, seed);
    std::iter::empty()
}

/// One long workload of `ops` operations, drawn by a seed: with checkpoints, reclaim and remounts in between.
pub fn random(ops: usize, seed: u64) -> Workload {
    let _ = (ops, seed);
    Workload::default()
}
