//! What is committed: the state of the file system on a medium, its log over its checkpoint.
//!
//! What lives here, from the medium up: `geometry` and `superblock` (what an image is), `tree` and `zone` (the
//! checkpointed state: immutable pages and where they live), `record` and `effect` (what is stored, and what a command
//! changes of it), `overlay` (what changed since), `alloc`, `outcomes` (of detectable commands), `micro` (transactions
//! of several records), `store` (all of it together), `checkpoint`, `mount`, `reclaim`; `fsck` and `scrub` look at all
//! of it; `integrity` is the damage that is known, `lograte` how much is logged of it.
//! What may be touched: the medium only through the journal crate's `Medium`, clock and randomness through its traits.
//! What flows through: a command plans effects, the journal commits them, the overlay holds them, a checkpoint merges
//! them into the tree, a superblock names the new root. What names, permissions and files mean is no concern of this
//! crate: `weldfs-fs` does that, and finishes interrupted transactions when it mounts.
//! Errors: `error` holds every failure and the one table to errno; `limits` every bound with its unit.

pub mod alloc;
pub mod blockcache;
pub mod checkpoint;
pub mod codec;
pub mod cred;
pub mod effect;
pub mod error;
pub mod fsck;
pub mod geometry;
pub mod integrity;
pub mod limits;
pub mod lograte;
pub mod micro;
pub mod mount;
pub mod outcomes;
pub mod overlay;
pub mod reclaim;
pub mod record;
pub mod scratch;
pub mod scrub;
mod shares;
mod store;
pub mod superblock;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod zone;

pub use store::*;
