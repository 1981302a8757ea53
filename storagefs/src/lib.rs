//! The file system in the device.
//!
//! What lives here, from the medium up: `media` (what bytes persist on), `geometry` and `superblock` (what an image
//! is), `tree` and `zone` (the checkpointed state: immutable pages and where they live), `effect`, `micro`
//! (transactions of several records), `overlay`, `alloc`, `outcomes` and `store` (what is committed), `checkpoint`,
//! `mount`, `reclaim`, `fsck`, `scrub`, `integrity` (damage), `lograte` (how much is logged of it); `card` (FPGA
//! slots), `fs` (POSIX), `device` (threads, sessions, rings).
//! What may be touched: the medium only through the journal crate's `Medium`, clock and randomness through its traits.
//! What flows through: a command plans effects, the journal commits them, the overlay holds them, a checkpoint merges
//! them into the tree, a superblock names the new root.
//! Errors: `error` holds every failure and the one table to errno; `limits` every bound with its unit.

pub mod alloc;
pub mod blockcache;
mod card;
pub mod checkpoint;
pub mod codec;
pub mod cred;
pub mod device;
pub mod effect;
pub mod error;
pub mod fs;
pub mod fsck;
pub mod geometry;
pub mod integrity;
pub mod limits;
mod lograte;
pub mod media;
pub mod micro;
pub mod mount;
pub mod outcomes;
pub mod overlay;
pub mod reclaim;
pub mod record;
mod scratch;
pub mod scrub;
mod shares;
pub mod store;
pub mod superblock;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod zone;
