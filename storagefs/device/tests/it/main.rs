//! The file system without a device: store, media, recovery, semantics.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod cold_reads;
mod full;
mod integrity;
mod log_cost;
#[path = "../support/log_rig.rs"]
mod log_rig;
mod media;
mod micro_tx;
mod posix_semantics;
mod power_cut_log;
mod profiles;
mod scrub;
