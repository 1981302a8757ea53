//! The card: FPGA slots, with the kernels that come with this project.

use std::io::{Error, ErrorKind};
use std::sync::Arc;

use weldfs_fpga::card::Card;
use weldfs_fpga::config::CardConfig;
use weldfs_fpga::error::CardError;
use weldfs_fpga::manifest::Manifest;
use weldfs_fpga::package::{Catalogue, Factory, Package};

/// A card with the kernels that come with it.
///
/// # Errors
/// EINVAL: a value of the configuration is out of its range.
pub fn make(config: CardConfig) -> std::io::Result<Arc<Card>> {
    with(config, catalogue(|_, make| make)?)
}

/// A card with the kernels of `catalogue`.
///
/// # Errors
/// EINVAL: a value of the configuration is out of its range.
pub fn with(config: CardConfig, catalogue: Catalogue) -> std::io::Result<Arc<Card>> {
    Card::new(config, catalogue).map_err(bad)
}

/// The kernels that come with this project. Each that is built in is made by what `of` says to its name and to what
/// makes it otherwise.
///
/// # Errors
/// EINVAL: a manifest is not one.
pub fn catalogue(of: impl Fn(&str, Factory) -> Factory) -> std::io::Result<Catalogue> {
    let mut catalogue = Catalogue::new();
    for (name, manifest) in weldfs_kernels::packages() {
        let manifest = Manifest::parse(manifest).map_err(|e| bad(e.into()))?;
        let added = match weldfs_kernels::find(name) {
            Some(builtin) => catalogue.add_builtin(manifest, of(name, builtin.make)),
            // A chain of those.
            None => Package::builtin(manifest).and_then(|package| catalogue.add(package)),
        };
        added.map_err(|e| bad(e.into()))?;
    }
    Ok(catalogue)
}

fn bad(e: CardError) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("the card: {e}"))
}
