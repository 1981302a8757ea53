//! What happens without a lock, under every interleaving that loom finds. Empty without `--cfg loom`.
#![cfg(loom)]

mod board;
mod leases;
mod wakeup;
