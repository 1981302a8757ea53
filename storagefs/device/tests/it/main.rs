//! The device's documents are what the code reads.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod profiles;
