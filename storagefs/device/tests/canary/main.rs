//! Planted bugs are found. A bug is planted in the whole process: these tests take turns, in a program of their own.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod merging;
#[path = "../support/posting.rs"]
mod posting;
mod racing_writer;

/// Held while a bug is planted.
static TURN: weldfs_locks::Mutex<()> = weldfs_locks::Mutex::new(());
