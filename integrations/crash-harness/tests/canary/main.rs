//! Planted bugs are found. A bug is planted in the whole process: these tests take turns, in a program of their own.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod canary;
mod canary_log;

/// Held while a bug is planted.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
