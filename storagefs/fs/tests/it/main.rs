//! The file system without a device: recovery, semantics, damage, a full image.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod cold_reads;
mod full;
mod integrity;
mod micro_tx;
mod posix_semantics;
mod scrub;
