//! Media, and the log on them: faults, power cuts, what a record costs.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod log_cost;
#[path = "../support/log_rig.rs"]
mod log_rig;
mod media;
mod power_cut_log;
