//! Who runs next.
//!
//! What lives here: the [`Policy`] trait and its four kinds ([`PolicyKind`]: FIFO, RR, CFS, EEVDF), and [`InodeQueue`],
//! the queue of tickets that commands hold on one inode (the unit of ordering).
//! What may be touched: policies may be added freely; the order rules of [`InodeQueue`] carry the file system's
//! atomicity and must be changed only together with `storagefs/session/src/sets.rs`.
//! What flows through: tenant ids, inode numbers, slot tokens and measured costs. Never a payload, a handle or a name.
//! What must not appear: I/O, threads, clocks. Time comes in as numbers, so a simulation can drive every decision.
// Not `forbid`: the adapter macro of intrusive-collections allows it for its own expansion.
#![deny(unsafe_code)]

mod fair;
mod fifo;
mod inode_queue;
mod kind;
mod memory;
mod policy;
mod queues;
mod rr;
pub mod sim;
mod weights;

pub use inode_queue::{InodeQueue, Mode, Seq, State};
pub use kind::{PolicyKind, UnknownPolicy, switch};
pub use memory::{Broker, Changed, Grant, ShareError};
pub use policy::{
    Cost, Entry, Policy, PolicyState, QueueState, Queued, TenantId, TenantState, Token, WEIGHT_DEFAULT, WEIGHT_MAX,
};
