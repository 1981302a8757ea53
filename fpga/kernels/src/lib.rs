//! The kernels that come with WeldFS, in Rust: the reference of every other back-end of theirs, and fast enough to be
//! used as they are.
//!
//! One file a kernel, which says what it computes to the last byte; [`BUILTINS`] is the table. What it may touch:
//! `weldfs-fpga`. Bytes in, bytes out: no file, no clock, no thread.
#![forbid(unsafe_code)]

mod convolve;
mod equalise;
mod gzip;
mod knn;
mod pass_through;
mod records;
mod relief;
mod smith_waterman;
mod stencil;

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
pub const BUILTINS: &[Builtin] = &[
    Builtin { name: "convolve", cycles_per_flit: 1.0, make: || model::<convolve::Convolve>(1.0) },
    Builtin { name: "equalise", cycles_per_flit: 2.0, make: || model::<equalise::Equalise>(2.0) },
    Builtin { name: "gzip", cycles_per_flit: 16.0, make: || model::<gzip::Gzip>(16.0) },
    Builtin { name: "knn", cycles_per_flit: 1.0, make: || model::<knn::Knn>(1.0) },
    Builtin { name: "pass-through", cycles_per_flit: 1.0, make: || model::<pass_through::PassThrough>(1.0) },
    Builtin { name: "relief", cycles_per_flit: 1.0, make: || model::<relief::Relief>(1.0) },
    Builtin { name: "smith-waterman", cycles_per_flit: 22.0, make: || model::<smith_waterman::SmithWaterman>(22.0) },
    Builtin { name: "stencil", cycles_per_flit: 1.0, make: || model::<stencil::Stencil>(1.0) },
];

/// The one of a name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|b| b.name == name)
}
