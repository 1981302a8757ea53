//! The device: commands, cores, tenants and hostile clients, attached through the control plane.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod batch;
mod catalogue;
mod catalogue_transforms;
mod chains;
mod checksums;
mod cores;
mod crowd;
mod detect;
mod greedy_client;
mod hints;
mod hostdir;
mod hostdir_differential;
mod hostdir_neighbour;
mod hostile_client;
mod leases;
mod lending;
mod lent;
mod merging;
mod neighbour;
mod observing;
mod order;
#[path = "../support/posting.rs"]
mod posting;
mod profiles;
#[path = "../../../../kernel-shim/tests/skips/mod.rs"]
mod skips;
mod slot_time;
mod slots;
mod tenants;
mod transactions;
mod two_ways;
mod virt;
mod watched_reads;
mod watches;
