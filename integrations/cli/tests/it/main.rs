//! The command line: real processes, real images, real programs.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod arguments;
mod atomic;
mod bench_doors;
mod bench_insider;
mod bench_smoke;
mod conformance;
mod copies;
mod crash_verb;
mod demo;
mod documents;
mod exec;
mod families;
mod file_verbs;
mod hostdir;
mod images;
mod integrity;
mod json_names;
mod kernel;
mod life;
mod merging;
mod messages;
mod observing;
mod pipes;
mod preload;
mod programs;
mod read_only;
mod reading;
mod readme;
mod safety;
mod serve_config;
#[path = "../../../../kernel-shim/tests/skips/mod.rs"]
mod skips;
mod squatted;
mod tenants;
mod version;
mod virt;
