//! Crash harness: the POSIX model, the oracle, and the power-cut runners.

pub mod model;
pub mod powercut;
