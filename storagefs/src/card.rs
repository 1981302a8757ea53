//! The card: FPGA slots, with the kernels that come with this project.

use std::io::{Error, ErrorKind};
use std::sync::Arc;

use weldfs_fpga::card::Card;
use weldfs_fpga::config::CardConfig;
use weldfs_fpga::error::CardError;
use weldfs_fpga::manifest::Manifest;
use weldfs_fpga::package::Catalogue;

/// A card with the kernels that come with it.
///
/// # Errors
/// EINVAL: a value of the configuration is out of its range.
pub(crate) fn make(config: CardConfig) -> std::io::Result<Arc<Card>> {
    let bad = |e: CardError| Error::new(ErrorKind::InvalidInput, format!("the card: {e}"));
    let mut catalogue = Catalogue::new();
    for (name, manifest) in weldfs_kernels::packages() {
        let Some(builtin) = weldfs_kernels::find(name) else { continue };
        let manifest = Manifest::parse(manifest).map_err(|e| bad(e.into()))?;
        catalogue.add_builtin(manifest, builtin.make).map_err(|e| bad(e.into()))?;
    }
    Card::new(config, catalogue).map_err(bad)
}
