//! The journal over media that record, fail and lie.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod commit_rules;
mod common;
mod hand_over;
mod log_bytes_and_scan;
