//! Kernel packages, and the catalogue of those that a card knows from the start.

use crate::kernel::Kernel;
use crate::manifest::{Kind, MANIFEST_BYTES_MAX, Manifest, PackageError};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Makes a kernel that is built in.
pub type Factory = fn() -> Box<dyn Kernel>;

/// A kernel package: a manifest, and the folder that its paths are relative to.
#[derive(Clone, Debug)]
pub struct Package {
    manifest: Manifest,
    /// None for one that is built in.
    folder: Option<PathBuf>,
}

fn file_error(path: &Path, why: impl std::fmt::Display) -> PackageError {
    // Without the number that Rust adds to the system's words.
    let why = why.to_string();
    let words = why.split_once(" (os error ").map_or(why.as_str(), |(words, _)| words).to_owned();
    PackageError::File { path: path.display().to_string(), why: words }
}

impl Package {
    /// Reads `folder/kernel.toml`. Shared objects are looked at when a kernel is loaded.
    pub fn open(folder: &Path) -> Result<Package, PackageError> {
        let folder = folder.canonicalize().map_err(|e| file_error(folder, e))?;
        let path = folder.join("kernel.toml");
        // A pipe would have the opener wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| file_error(&path, io::Error::from(e)))?;
        let file = std::fs::File::from(opened);
        if !file.metadata().map_err(|e| file_error(&path, e))?.is_file() {
            return Err(file_error(&path, "not a regular file"));
        }
        let mut text = String::new();
        let limit = MANIFEST_BYTES_MAX as u64 + 1;
        file.take(limit).read_to_string(&mut text).map_err(|e| file_error(&path, e))?;
        Ok(Package { manifest: Manifest::parse(&text)?, folder: Some(folder) })
    }

    /// A package without a folder: its model must be built in, or a chain.
    pub fn builtin(manifest: Manifest) -> Result<Package, PackageError> {
        let builtin = manifest.backend.model.as_ref().is_some_and(|m| m.builtin.is_some() || m.chain.is_some());
        match builtin {
            true => Ok(Package { manifest, folder: None }),
            false => Err(PackageError::NoBackend { name: manifest.name, kind: "model that is built in".into() }),
        }
    }

    /// Whether it is the folder of `builtin`, which has none.
    pub(crate) fn adds_to(&self, builtin: &Package) -> bool {
        self.folder.is_some() && builtin.folder.is_none() && self.manifest == builtin.manifest
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where it was read; none for one that is built in.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Whether the file of a back-end is there, where it has one.
    pub(crate) fn has_file(&self, kind: Kind) -> Result<(), PackageError> {
        let model = self.manifest.backend.model.as_ref();
        match kind {
            Kind::Model if model.is_some_and(|m| m.library.is_none()) => Ok(()),
            Kind::Xrt => self.image().map(drop),
            _ => self.library(kind).map(drop),
        }
    }

    /// The shared object of a back-end: a regular file in the package's folder, links followed.
    pub fn library(&self, kind: Kind) -> Result<PathBuf, PackageError> {
        self.file("library", kind, self.manifest.backend.library(kind))
    }

    /// The image for a card, as [`Package::library`].
    pub fn image(&self) -> Result<PathBuf, PackageError> {
        self.file("xclbin", Kind::Xrt, self.manifest.backend.xrt.as_ref().map(|x| x.xclbin.as_path()))
    }

    fn file(&self, key: &'static str, kind: Kind, path: Option<&Path>) -> Result<PathBuf, PackageError> {
        let name = || self.manifest.name.clone();
        let path = path.ok_or_else(|| PackageError::NoBackend { name: name(), kind: kind.name().into() })?;
        let folder = self.folder.as_ref();
        let folder = folder.ok_or_else(|| PackageError::NoFolder { name: name(), kind: kind.name() })?;
        let joined = folder.join(path);
        let real = joined.canonicalize().map_err(|e| file_error(&joined, e))?;
        if !real.starts_with(folder) {
            return Err(PackageError::Outside { key, path: path.display().to_string() });
        }
        match real.metadata() {
            Ok(meta) if meta.is_file() => Ok(real),
            Ok(_) => Err(file_error(&real, "not a regular file")),
            Err(e) => Err(file_error(&real, e)),
        }
    }
}

/// The kernels that a card has from the start, and what makes the built-in ones.
#[derive(Clone, Default)]
pub struct Catalogue {
    factories: BTreeMap<String, Factory>,
    packages: BTreeMap<String, Package>,
}

impl Catalogue {
    /// An empty one.
    pub fn new() -> Catalogue {
        Catalogue::default()
    }

    /// Adds a kernel that is built in, under the name of its manifest's `backend.model.builtin`.
    pub fn add_builtin(&mut self, manifest: Manifest, make: Factory) -> Result<(), PackageError> {
        let package = Package::builtin(manifest)?;
        let builtin = package.manifest.backend.model.as_ref().and_then(|m| m.builtin.clone());
        self.factories.insert(builtin.unwrap_or_default(), make);
        self.add(package)
    }

    /// Adds a package. It takes the place of one with the same name and id, as of a built-in one whose folder has more
    /// back-ends; a name or id that belongs to another is an error.
    pub fn add(&mut self, package: Package) -> Result<(), PackageError> {
        let (name, id) = (package.manifest.name.clone(), package.manifest.id);
        let other = self.packages.values().find(|p| (p.manifest.name == name) != (p.manifest.id == id));
        if other.is_some() {
            return Err(PackageError::Taken(format!("another kernel has the name {name}, or its id")));
        }
        self.packages.insert(name, package);
        Ok(())
    }

    /// Its packages, by name.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.values()
    }

    /// What makes the built-in kernels, by name.
    pub(crate) fn factories(&self) -> BTreeMap<String, Factory> {
        self.factories.clone()
    }

    /// What makes the built-in kernel of a name.
    pub(crate) fn factory(&self, builtin: &str) -> Option<Factory> {
        self.factories.get(builtin).copied()
    }
}
