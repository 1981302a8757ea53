//! Crash states, complete: short workloads over a tiny tree, every state that a power cut can leave of them, and an
//! oracle that knows which trees may be found.
//!
//! * `workload.rs`, `trace.rs`: the language of workloads. `generate.rs`: all of one and two operations, samples of
//!   more. `shrink.rs`: the smallest workload that still fails.
//! * `commands.rs`: what a step does in terms of the model's operations. `perform.rs`: runs a workload on the real
//!   store over a recording medium, beside the model.
//! * `enumerate.rs`: every image that a power cut may leave at one moment of a recording. `check.rs`, `usable.rs`: what
//!   an image recovers to, and whether that is sound by itself. `run.rs`, `report.rs`: sets of workloads, on threads.
//! * `oracle.rs`: which trees a crash at an event may leave, and what is wrong with one that may not be.

pub mod check;
mod commands;
pub mod enumerate;
pub mod generate;
pub mod oracle;
pub mod perform;
pub mod report;
pub mod run;
pub mod shrink;
mod trace;
mod usable;
pub mod workload;

pub use oracle::{Bad, History};
pub use perform::{Performed, Setup, mount_options, perform, read_tree};
pub use workload::Workload;

/// splitmix64: a short stream of numbers from a seed, the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when there is none.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

/// The whole logical tree: what the oracle compares.
pub type Tree = crate::model::TreeImage;
