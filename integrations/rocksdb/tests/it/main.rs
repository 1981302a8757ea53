//! RocksDB on devices: the plug-in under the system's RocksDB and its tools, by a C++ program (`../cpp`) whose parts
//! are run over images in the process and over devices, killed, and given what is wrong.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod errors;
mod kills;
mod parts;
mod rig;
#[path = "../../../../kernel-shim/tests/served/mod.rs"]
mod served;
#[path = "../../../../kernel-shim/tests/skips/mod.rs"]
mod skips;
mod tools;
