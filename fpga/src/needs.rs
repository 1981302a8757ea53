//! What kernels need beside this program: files, and cards.

use crate::error::CardError;
use crate::manifest::Kind;
use crate::package::Package;
use crate::slot::{Shared, State, named};
use std::sync::Arc;

impl Shared {
    /// What a kernel, or a stage of it, needs beside this program: the files of these back-ends. Nothing where all of
    /// it is built in.
    pub fn needs(&self, state: &State, kernel: &str) -> Vec<(Arc<Package>, Kind)> {
        let Ok((name, kind)) = named(kernel) else { return Vec::new() };
        let Some(program) = state.programs.get(name) else { return Vec::new() };
        let (backend, kind) = (&program.package.manifest().backend, kind.unwrap_or(program.prefer));
        match kind {
            // No stage is a chain.
            Kind::Model if backend.library(Kind::Model).is_none() => {
                backend.chain().iter().flat_map(|s| self.needs(state, &s.kernel)).collect()
            }
            _ if !backend.has(kind) => Vec::new(),
            _ => vec![(program.package.clone(), kind)],
        }
    }

    /// Whether that is there. Files are looked at: without the card's lock.
    pub fn there(&self, needs: &[(Arc<Package>, Kind)]) -> Result<(), CardError> {
        needs.iter().try_for_each(|(package, kind)| match kind {
            Kind::Xrt => self.config.place.ready().map(drop),
            kind => Ok(package.has_file(*kind)?),
        })
    }
}
