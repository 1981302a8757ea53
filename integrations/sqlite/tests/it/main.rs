//! SQLite on devices: the system's shell with the loadable extension, and a SQLite with batch commits in this process.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod commits;
mod crash;
mod errors;
mod kept;
mod kills;
mod memory;
mod programs;
mod rig;
#[path = "../../../../kernel-shim/tests/served/mod.rs"]
mod served;
mod shell;
#[path = "../../../../kernel-shim/tests/skips/mod.rs"]
mod skips;
mod wal;
