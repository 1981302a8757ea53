//! FPGA slots: the part of the device that computes on streams of bytes, beside its cores.
//!
//! * `kernel`: what a kernel is (bytes in, bytes out, parameters), whichever back-end runs it.
//! * `flit`: the 64-byte unit that its FIFOs carry.
//! * `xrt`: kernels on a real card, through a helper process.
//!
//! What it may touch: `weldfs-ciscops` for errnos; it never sees a file, a name or a journal. A kernel issues no request
//! of its own: the file system checks permission, reads, writes, and streams bytes through.
// What runs foreign code, `host`, has a few calls.
#![deny(unsafe_code)]

pub mod bandwidth;
pub mod card;
pub mod clock;
pub mod config;
pub mod error;
pub mod flit;
pub mod flow;
pub mod host;
pub mod kernel;
pub mod manifest;
pub mod package;
pub mod session;
pub mod simulate;
mod slot;
pub mod status;
mod worker;
pub mod xrt;
