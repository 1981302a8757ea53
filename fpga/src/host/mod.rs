//! Kernels that are shared objects: each runs in a process of its own, which may do nothing but compute.
//!
//! * `launch`: how such a process is started, and found.
//! * `process`: a process that was started, and its end.
//! * `child`: a running one, seen from the card: a kernel like any other.
//! * `serve`: what that process does.
//! * `wire`: what the two say to each other.
//! * `memory`: the buffers that both of them map.
//! * `library`: the shared object, behind its C interface.
//! * `sandbox`: what is taken away from the process before foreign code runs in it.
//!
//! The card trusts nothing that comes out of the process: every number is checked, every byte is copied once.

mod child;
mod launch;
#[allow(unsafe_code)] // dlopen, and calls of foreign functions
mod library;
#[allow(unsafe_code)] // mmap, and copies from and to memory that another process writes
mod memory;
mod process;
#[allow(unsafe_code)] // close_range
mod sandbox;
mod serve;
mod wire;

pub use child::Child;
pub(crate) use launch::program;
pub use launch::{Launch, Stall};
pub(crate) use process::Process;
pub use serve::serve;
