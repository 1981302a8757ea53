//! The kernels against independent oracles: what they give for packets of every awkward length, cut anywhere. And
//! back-ends that are shared objects against the kernels.

#![allow(clippy::unwrap_used)]

mod aes128;
mod compare;
mod crc32c;
mod grep;
mod rle;
mod rtl;
mod shared_object;
mod sql;
mod statistics;
mod support;

use weldfs_fpga::kernel::Kernel;

/// A kernel of the table.
fn builtin(name: &str) -> Box<dyn Kernel> {
    (weldfs_kernels::find(name).expect("a kernel of the table").make)()
}
