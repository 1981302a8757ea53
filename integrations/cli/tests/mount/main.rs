//! Mounts: real processes over real mounts. Without a /dev/fuse that this process may mount with, each is a skip.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod damaged;
mod doors;
mod life;
mod posix;
mod preloaded;
mod rig;
mod run;
mod sharing;
#[path = "../../../../kernel-shim/tests/skips/mod.rs"]
mod skips;
mod streams;
mod suites;
