//! Who runs next.
//!
//! What lives here: the [`Policy`] trait with the one policy there is today ([`Fifo`]), and [`InodeQueue`], the queue
//! of tickets that commands hold on one inode (the unit of ordering). Later policies (CFS, EEVDF) implement the same
//! trait; nothing here pretends to be one of them yet.
//! What may be touched: policies may be added freely; the order rules of [`InodeQueue`] carry the file system's
//! atomicity and must be changed only together with `storagefs/src/device/sets.rs`.
//! What flows through: tenant ids, inode numbers, slot tokens and measured costs. Never a payload, a handle or a name.
//! What must not appear: I/O, threads, clocks. Time comes in as numbers, so a simulation can drive every decision.
#![forbid(unsafe_code)]

mod fifo;
mod inode_queue;
mod policy;

pub use fifo::Fifo;
pub use inode_queue::{InodeQueue, Mode, Seq, State};
pub use policy::{Cost, Entry, Policy, PolicyKind, TenantId, Token, UnknownPolicy};
