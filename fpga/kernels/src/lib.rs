//! The kernels that come with WeldFS, in Rust: the reference of every other back-end of theirs, and fast enough to be
//! used as they are.
//!
//! One file a kernel, which says what it computes to the last byte; [`BUILTINS`] is the table. [`packages`] has their
//! manifests, and those of chains of them. What it may touch:
//! `weldfs-fpga`. Bytes in, bytes out: no file, no clock, no thread.
#![forbid(unsafe_code)]

mod aes128;
mod blocks;
mod convolve;
mod crc32c;
mod equalise;
mod grep;
mod gzip;
mod integrate;
mod knn;
mod lanes;
mod lz4;
mod parse;
mod pass_through;
mod records;
mod relief;
mod rle;
mod select;
mod smith_waterman;
mod sql;
mod statistics;
mod stencil;

use weldfs_fpga::chain::{Chain, Stage};
use weldfs_fpga::kernel::{Kernel, Model, Stream};
use weldfs_fpga::manifest::Manifest;

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
    Builtin { name: "aes128", cycles_per_flit: 1.0, make: || Box::new(aes128::Aes::default()) },
    Builtin { name: "convolve", cycles_per_flit: 1.0, make: || model::<convolve::Convolve>(1.0) },
    Builtin { name: "crc32c", cycles_per_flit: 1.0, make: || model::<crc32c::Crc32c>(1.0) },
    Builtin { name: "equalise", cycles_per_flit: 2.0, make: || model::<equalise::Equalise>(2.0) },
    Builtin { name: "grep", cycles_per_flit: 1.0, make: || model::<grep::Grep>(1.0) },
    Builtin { name: "gzip", cycles_per_flit: 16.0, make: || model::<gzip::Gzip>(16.0) },
    Builtin { name: "integrate", cycles_per_flit: 1.0, make: || model::<integrate::Integrate>(1.0) },
    Builtin { name: "knn", cycles_per_flit: 1.0, make: || model::<knn::Knn>(1.0) },
    Builtin { name: "lz4", cycles_per_flit: 8.0, make: || model::<lz4::Lz4>(8.0) },
    Builtin { name: "parse", cycles_per_flit: 4.0, make: || model::<parse::Parse>(4.0) },
    Builtin { name: "pass-through", cycles_per_flit: 1.0, make: || model::<pass_through::PassThrough>(1.0) },
    Builtin { name: "relief", cycles_per_flit: 1.0, make: || model::<relief::Relief>(1.0) },
    Builtin { name: "rle", cycles_per_flit: 4.0, make: || model::<rle::Rle>(4.0) },
    Builtin { name: "select", cycles_per_flit: 1.0, make: || model::<select::Select>(1.0) },
    Builtin { name: "smith-waterman", cycles_per_flit: 22.0, make: || model::<smith_waterman::SmithWaterman>(22.0) },
    Builtin { name: "sql", cycles_per_flit: 1.0, make: || model::<sql::Sql>(1.0) },
    Builtin { name: "statistics", cycles_per_flit: 1.0, make: || model::<statistics::Statistics>(1.0) },
    Builtin { name: "stencil", cycles_per_flit: 1.0, make: || model::<stencil::Stencil>(1.0) },
];

/// Makes the kernel of a name: one of the table, or a chain of those.
pub fn make(name: &str) -> Option<Box<dyn Kernel>> {
    if let Some(builtin) = find(name) {
        return Some((builtin.make)());
    }
    let chain = manifest(name)?;
    let stages = chain.backend.chain().iter().map(|stage| {
        let of = manifest(&stage.kernel)?;
        Some(Stage {
            name: of.name,
            kernel: (find(&stage.kernel)?.make)(),
            params: stage.params.clone(),
            words: of.params.min as usize..=of.params.max as usize,
            ports: of.ports.peek.len() as u32,
        })
    });
    Some(Box::new(Chain::new(stages.collect::<Option<_>>()?)))
}

/// The manifest of the package of a name.
pub fn manifest(name: &str) -> Option<Manifest> {
    let (_, text) = packages().iter().find(|(n, _)| *n == name)?;
    Manifest::parse(text).ok()
}

/// The kernel of the table that has a name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|b| b.name == name)
}

/// The manifests of the packages in `fpga/packages/`, by name: of the table's kernels, and of chains of them. The
/// device has them without any file.
#[rustfmt::skip] // one line a package
pub const fn packages() -> &'static [(&'static str, &'static str)] {
    &[
        ("aes128", include_str!("../../packages/aes128/kernel.toml")),
        ("convolve", include_str!("../../packages/convolve/kernel.toml")),
        ("crc32c", include_str!("../../packages/crc32c/kernel.toml")),
        ("equalise", include_str!("../../packages/equalise/kernel.toml")),
        ("grep", include_str!("../../packages/grep/kernel.toml")),
        ("gzip", include_str!("../../packages/gzip/kernel.toml")),
        ("integrate", include_str!("../../packages/integrate/kernel.toml")),
        ("knn", include_str!("../../packages/knn/kernel.toml")),
        ("lz4", include_str!("../../packages/lz4/kernel.toml")),
        ("lz4-grep", include_str!("../../packages/lz4-grep/kernel.toml")),
        ("parse", include_str!("../../packages/parse/kernel.toml")),
        ("parse-select", include_str!("../../packages/parse-select/kernel.toml")),
        ("pass-through", include_str!("../../packages/pass-through/kernel.toml")),
        ("relief", include_str!("../../packages/relief/kernel.toml")),
        ("rle", include_str!("../../packages/rle/kernel.toml")),
        ("select", include_str!("../../packages/select/kernel.toml")),
        ("smith-waterman", include_str!("../../packages/smith-waterman/kernel.toml")),
        ("sql", include_str!("../../packages/sql/kernel.toml")),
        ("statistics", include_str!("../../packages/statistics/kernel.toml")),
        ("stencil", include_str!("../../packages/stencil/kernel.toml")),
    ]
}
