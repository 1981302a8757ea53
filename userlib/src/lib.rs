//! WeldFS as a library: files that live inside the storage device, and fused operations on them.
//!
//! What lives here, from the application down to the ring:
//! * `client` (an attachment), `fs` (calls on names), `file`, `dir`, `fused`, `options`, `meta`: the API.
//! * `catalogue`: fused operations that travel as programs.
//! * `raw`: one method per operation, on handles and byte paths, errno out; all of the above is written on it.
//! * `batch`: many operations in one command; `txn`: writes to several files, all or nothing.
//! * `virt`: files that stream other files through a kernel in the drive.
//! * `outcome`: what became of a command, asked after a crash.
//! * `call`: one call becomes one command; `buf`: its operands, ordinary memory or zero-copy pool buffers.
//! * `channel`: each thread's queue pair; `queue`: commands in, completions out; `spin`, `slab`, `fork` help it.
//! * `posting`, `lease`: changes that are published and not waited for. `look`, `listing`, `watched`: what came along
//!   with an open, a directory, and what reads brought, as long as the device vouches for it; `asked` asks for them.
//! * `aio`: asynchronous submission: futures, callbacks, an eventfd, on queue pairs of their own.
//! * `connector`: the seam to the control plane; `socket`: the connector to a serving device; `kept`: the descriptors
//!   that are this library's own.
//!
//! What flows through: paths and payload are copied into a queue pair's pool once (not at all for a [`PoolBuf`]),
//! the device copies payload once, a completion comes back. Nothing here decides: size, content and permissions
//! live in the device. This crate knows `ciscops` only, and trusts the device as a program trusts its kernel.

pub mod aio;
mod asked;
mod batch;
mod buf;
mod call;
pub mod catalogue;
mod channel;
mod client;
pub mod connector;
mod control;
mod dir;
mod file;
mod fork;
mod fs;
pub mod fused;
pub mod kept;
mod lease;
mod listing;
mod look;
mod meta;
mod options;
mod outcome;
mod posting;
mod queue;
pub mod raw;
mod slab;
pub mod socket;
mod spin;
mod txn;
mod virt;
mod watched;

pub use aio::{AsyncQueue, Pending, QueueBuf};
pub use batch::Batch;
pub use buf::{Payload, PoolBuf, Room};
pub use catalogue::Placement;
pub use client::{Client, ClientOptions};
pub use connector::{
    AttachOptions, Claimed, Connector, DEVICE_USER_VARIABLE, Here, Placeholder, QueueParts, SessionInfo,
    TOKEN_VARIABLE, Transport, WAIT_DEFAULT, WAIT_VARIABLE, device_user_from_env, parse_device_user, parse_wait,
    wait_from_env,
};
pub use dir::{Dir, DirEntry, Entries};
pub use file::File;
pub use fork::{PerProcess, Process};
pub use fused::{Change, Done, Exchanged, Sealed, Summed};
pub use lease::{Lease, take_merged};
pub use listing::{Listed, Listing};
pub use look::Look;
pub use meta::Metadata;
pub use options::OpenOptions;
pub use outcome::{CommandId, Execution, Tag};
pub use posting::{Brought, POSTED_MAX, Wishes};
pub use queue::{Queue, Ticket};
pub use raw::{Raw, Written};
pub use socket::{FD_HIGH, SocketConnector};
pub use txn::{ItemFault, Transaction};
pub use virt::{VirtFile, VirtFound, VirtList};
pub use watched::{Kept, Watched};
/// The operations that [`Raw::fused`] and [`AsyncQueue::fused`] run, with their operands and what they answer.
pub use weldfs_ciscops::catalogue as template;
pub use weldfs_ciscops::flags::SetAttrMask;
pub use weldfs_ciscops::flags::{
    AccessMask, ChecksumKind, FallocMode, LockKind, LockSpace, OpenFlags, RenameFlags, Whence, XattrFlags,
};
pub use weldfs_ciscops::{
    At, Command, Cqe, Direction, Durability, Errno, Handle, Hints, Life, LockBody, Op, PoolRange, Priority,
    SetAttrBody, StatBody, StatfsBody, TxnMode, VirtRange, VirtSpec, WireTime,
};

/// The examples of docs/API.md, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/API.md")]
struct ApiExamples;
