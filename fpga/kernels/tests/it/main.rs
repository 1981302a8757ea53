//! The kernels against independent oracles: what they give for packets of every awkward length, cut anywhere.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod aes128;
mod crc32c;
mod grep;
mod integrate;
mod lz4;
mod packages;
mod parse;
mod rle;
mod select;
mod sql;
mod statistics;
mod support;

use weldfs_fpga::kernel::Kernel;

/// A kernel of the table.
fn builtin(name: &str) -> Box<dyn Kernel> {
    (weldfs_kernels::find(name).expect("a kernel of the table").make)()
}
