//! Crashes, faults and the model, over the real file system.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod bit_flips;
mod catalogue;
mod detectable;
mod fault_sweep;
mod oracle_rules;
mod posix_model;
mod power_cut;
mod states;
mod workloads;
