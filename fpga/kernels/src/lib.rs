//! The kernels that come with WeldFS, in Rust: the reference of every other back-end of theirs, and fast enough to be
//! used as they are.
//!
//! One file a kernel, which says what it computes to the last byte; [`BUILTINS`] is the table. What it may touch:
//! `weldfs-fpga`. Bytes in, bytes out: no file, no clock, no thread.
#![forbid(unsafe_code)]

mod aes128;
mod blocks;
mod crc32c;
mod grep;
mod lanes;
mod pass_through;
mod rle;
mod sql;
mod statistics;

use weldfs_fpga::kernel::{Kernel, Model, Stream};

/// A kernel of this crate.
pub struct Builtin {
    /// Its name, also that of its package in `fpga/packages/`.
    pub name: &'static str,
    /// Cycles that the modelled hardware takes for a flit of input, at 250 MHz.
    pub cycles_per_flit: f64,
    /// Makes one.
    pub make: fn() -> Box<dyn Kernel>,
}

fn model<S: Stream + Default + 'static>(cycles_per_flit: f64) -> Box<dyn Kernel> {
    Box::new(Model::new(S::default(), cycles_per_flit))
}

/// All of them, by name.
#[rustfmt::skip] // one line a kernel
pub const BUILTINS: &[Builtin] = &[
    Builtin { name: "aes128", cycles_per_flit: 1.0, make: || model::<aes128::Aes>(1.0) },
    Builtin { name: "crc32c", cycles_per_flit: 1.0, make: || model::<crc32c::Crc32c>(1.0) },
    Builtin { name: "grep", cycles_per_flit: 1.0, make: || model::<grep::Grep>(1.0) },
    Builtin { name: "pass-through", cycles_per_flit: 1.0, make: || model::<pass_through::PassThrough>(1.0) },
    Builtin { name: "rle", cycles_per_flit: 1.0, make: || model::<rle::Rle>(1.0) },
    Builtin { name: "sql", cycles_per_flit: 1.0, make: || model::<sql::Sql>(1.0) },
    Builtin { name: "statistics", cycles_per_flit: 1.0, make: || model::<statistics::Statistics>(1.0) },
];

/// The one of a name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|b| b.name == name)
}
