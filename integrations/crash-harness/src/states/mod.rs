//! Crash states, complete: short workloads over a tiny tree, every state that a power cut can leave of them, and an
//! oracle that knows which trees may be found.
//!
//! * `workload.rs`, `trace.rs`: the language of workloads. `generate.rs`: all of one and two operations, samples of
//!   more. `shrink.rs`: the smallest workload that still fails.
//! * `commands.rs`: what a step does in terms of the model's operations. `perform.rs`: runs a workload on the real
//!   store over a recording medium, beside the model.
//! * `oracle.rs`: which trees a crash at an event may leave, and what is wrong with one that may not be.

pub mod generate;
pub mod oracle;
pub mod perform;
pub mod shrink;
mod trace;
pub mod workload;

pub use oracle::{Bad, History};
pub use perform::{Performed, Setup, mount_options, perform, read_tree};
pub use workload::Workload;

/// The whole logical tree: what the oracle compares.
pub type Tree = crate::model::TreeImage;
