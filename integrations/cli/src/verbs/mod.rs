//! One file per verb (a few small ones share a file). Each takes its parsed arguments and returns an exit code.

pub mod bench;
pub mod cat;
pub mod copy;
pub mod crash;
pub mod demo;
pub mod exec;
pub mod fsck;
pub mod info;
pub mod ls;
pub mod mkfs;
pub mod names;
pub mod run;
pub mod scrub;
pub mod serve;
pub mod stat;
pub mod stats;
pub mod tenants;
pub mod top;
pub mod trace;
pub mod tune;
