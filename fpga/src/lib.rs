//! FPGA slots: the part of the device that computes on streams of bytes, beside its cores.
//!
//! * `kernel`: what a kernel is (bytes in, bytes out, parameters), whichever back-end runs it; `chain`: several of
//!   them as one.
//! * `flit`: the 64-byte unit that its FIFOs carry.
//! * `xrt`: kernels on a real card, through a helper process.
//! * `manifest`, `package`: what a kernel package says of itself; the kernels that a card has from the start.
//! * `config`, `card`, `session`, `status`, `error`: the card as the device uses it. `slot` has its state, which is
//!   behind one lock, `worker` its threads, `clock` its time.
//! * `quick`: a short packet on the caller's thread, without a session of its own. `record`: what slots did, and when.
//! * `needs`: files and cards that kernels need.
//! * `lend`: sessions that make room for others while nothing works on them.
//! * `flow`, `bandwidth`: credits of a kernel's input, and whose data is moved next; `simulate` runs them in modelled
//!   time.
//! * `host`: kernels that are shared objects, each in a process of its own.
//!
//! Threads: one a slot, and one that keeps time. All calls may be made from any thread; futures need no runtime.
//!
//! What it may touch: `weldfs-ciscops` for errnos; it never sees a file, a name or a journal. A kernel issues no
//! request of its own: the file system checks permission, reads, writes, and streams bytes through.
// What runs foreign code, `host`, has a few calls.
#![deny(unsafe_code)]

mod bandwidth;
pub mod card;
pub mod chain;
pub mod clock;
pub mod config;
pub mod error;
mod flit;
mod flow;
pub mod host;
pub mod kernel;
pub mod lend;
pub mod manifest;
mod needs;
pub mod package;
pub mod quick;
pub mod record;
pub mod session;
pub mod simulate;
mod slot;
pub mod status;
mod supply;
mod worker;
pub mod xrt;
