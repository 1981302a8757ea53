//! The C interface of the client library: `userlib/include/weldfs.h`, generated from this crate.
//!
//! * `boundary`: what crosses it. Every function's body runs in `call` or `count`, which turn errors into negative
//!   errno values and stop panics; pointers become slices, strings and structures in one place.
//! * `types`: the structures and constants; `client`, `file`, `names`, `dir`, `fused`: calls that wait; `sums`,
//!   `fields`, `moves` (with transactions), `transforms` (with keys), `catalogue` (those that are submitted, too):
//!   operations of the catalogue; `batch`: many in one; `program`, `steps`, `namesteps`: programs; `virt`, `kernels`:
//!   files that stream through kernels, and those; `queue`, `submit`, `gather` (of several pieces), `jobs`: calls that
//!   do not wait.
//!
//! What flows through: a C caller's arguments become a call of `weldfs` (the Rust library), whose result comes back as
//! a number. Nothing is decided here. The functions are unsafe in Rust's sense: what a caller must promise is what the
//! header's first page says of pointers, which no check can see.
#![allow(non_camel_case_types)] // C's names
#![allow(clippy::missing_safety_doc)] // the header's first page states it once for all functions

mod batch;
mod boundary;
mod catalogue;
mod client;
mod dir;
mod fields;
mod file;
mod fused;
mod gather;
mod jobs;
mod kernels;
mod moves;
mod names;
mod namesteps;
mod program;
mod queue;
mod steps;
mod submit;
mod sums;
mod transforms;
mod types;
mod virt;

pub use client::{weldfs_client, wrap};
pub use types::*;
