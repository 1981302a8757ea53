//! The contract of host and device. docs/COMMANDS.md is its specification.
//!
//! What lives here: queue entries (`sqe`), the op table and decoder (`optable`, `codec`, `decode`), typed commands
//! (`command`, `flags`, `hints`), bodies that travel in the pool (`bodies`, `dirent`, `virt`), shared memory (`pool`),
//! the rings with their wake-up protocol (`ring`), attach messages (`attach`), recorded slices (`trace`), which files a
//! mount's kernel has mapped (`mapped`), the interpreter over an abstract `Target` (`target`, `interp`, `catalogue`),
//! and fused programs (`program`).
//! What may be touched: memory handed in. No files, sockets, threads or clocks; the only system calls are the
//! mapping of a region and of a registry of mapped files, and the futex of a completion ring.
//! What flows through: bytes from a ring become a `RawCommand`, by `validate` a `Command`, by `Paths::fetch` and
//! `interp::run` calls on a `Target` and an `Outcome`, which is posted as a CQE.

pub mod attach;
pub mod bodies;
pub mod catalogue;
mod codec;
pub mod command;
pub mod decode;
pub mod dirent;
pub mod error;
pub mod flags;
pub mod hints;
pub mod ids;
pub mod interp;
pub mod limits;
pub mod mapped;
pub mod optable;
pub mod paths;
pub mod pool;
pub mod program;
pub mod ring;
pub mod sqe;
pub mod target;
pub mod trace;
pub mod virt;

pub use bodies::{LockBody, OutcomeBody, SetAttrBody, StatBody, StatfsBody, WireTime};
pub use codec::{Lane, OffsetHigh, RangeKind};
pub use command::{At, Command, Durability, Modify, Op, Placement, TxnMode};
pub use decode::{SessionLimits, validate};
pub use error::Errno;
pub use flags::{
    Access, AccessMask, ChecksumKind, FallocMode, KeyKind, LockAction, LockKind, LockSpace, OpenFlags, OutcomeState,
    RenameFlags, SetAttrMask, Whence, XattrFlags,
};
pub use hints::{Hints, Life, Priority};
pub use ids::{Handle, InodeNo};
pub use interp::{Outcome, Registers};
pub use optable::{OPS, OpSpec, Opcode};
pub use paths::Paths;
pub use pool::{PoolRange, SharedBytes, SharedRegion, private_memfd};
pub use program::Program;
pub use ring::{
    CqConsumer, CqProducer, Full, QueueFault, QueueLayout, QueueMemory, RingMemory, Sleep, SqConsumer, SqProducer,
};
pub use sqe::{Cqe, RawCommand, Sqe};
pub use target::{Cursor, Kept, Kernel, Opened, Quiet, Sink, Source, Taken, Target, Written};
pub use virt::{Direction, VirtRange, VirtSpec};
pub use weldfs_functions as functions;
pub use weldfs_functions::ChecksumState;
