//! Policies and books, from the outside.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod fairness;
mod golden;
mod threads;
