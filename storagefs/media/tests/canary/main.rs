//! Planted bugs of the log are found. A bug is planted in the whole process: tests here take turns, in a program of
//! their own.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod flushes;
#[path = "../support/log_rig.rs"]
mod log_rig;

/// Held while a bug is planted.
static TURN: weldfs_locks::Mutex<()> = weldfs_locks::Mutex::new(());
