//! The kernels against independent oracles: what they give for packets of every awkward length, cut anywhere. And
//! back-ends that are shared objects against the kernels.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod aes128;
mod chains;
mod checks;
mod compare;
mod crc32c;
mod grep;
mod hls;
mod integrate;
mod lz4;
mod packages;
mod parse;
mod pass_through;
mod rle;
mod rtl;
mod select;
mod shared_object;
mod sql;
mod statistics;
mod subjects;
mod support;

use weldfs_fpga::kernel::Kernel;

/// A kernel of the table.
fn builtin(name: &str) -> Box<dyn Kernel> {
    weldfs_kernels::make(name).expect("a kernel that comes with this")
}
