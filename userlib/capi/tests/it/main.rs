//! The C interface: its header, and programs built against what is installed.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod header;
mod programs;
#[path = "../../../../kernel-shim/tests/skips/mod.rs"]
mod skips;
