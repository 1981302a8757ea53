//! The experiment runner as a library that the command line calls.
//!
//! What lives here: the floor (a bare ring between two spinning processes), the peers (plain system calls on a host
//! directory, or on an ext4 that `prepare` mounts over RAM), and the experiments that compare them with WeldFS in one
//! interleaved run. What it may touch: the client library and the control plane, as any user would.
//!
//! What flows through: an experiment gives rows; a row names its medium, durability and profile; the caller prints a
//! table or JSON. Ratios are medians of interleaved rounds; nothing here gates on wall time.

mod apart;
pub mod base;
pub mod busy;
pub mod chosen;
pub mod commit;
pub mod doors;
pub mod engines;
pub mod fairness;
pub mod floor;
pub mod head;
pub mod insider;
pub mod macro_bench;
pub mod micro;
pub mod mount;
mod own;
pub mod peers;
pub mod plot;
pub mod recovery;
pub mod report;
pub mod served;
mod settle;
pub mod shm;
pub mod stall;
pub mod table;
