//! Where back-ends of kernels lie that are built apart, and how a device gets them.

use std::io;
use std::path::{Path, PathBuf};
use weldfs::Client;

/// Back-ends beside the model of this program: what their shared objects are called, and what makes them.
pub(super) const KINDS: [(&str, &str); 2] = [("rtl", "fpga/rtl/build.py"), ("hls", "fpga/hls/build.py")];

/// Folders with shared objects of kernels: the one that `WELDFS_KERNELS` names, or those that builds of this source
/// tree write to.
fn folders() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("WELDFS_KERNELS") {
        return vec![named.into()];
    }
    let built = |program: PathBuf| program.parent()?.parent().map(|target| target.join("kernels"));
    let own = std::env::current_exe().ok().and_then(built);
    own.into_iter().chain([Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kernels")]).collect()
}

/// The shared object of a back-end of a kernel, if one was built.
pub(super) fn library(kernel: &str, kind: &str) -> Option<PathBuf> {
    folders().iter().find_map(|folder| folder.join(format!("lib{kind}_{kernel}.so")).canonicalize().ok())
}

/// Gives the device a back-end of a kernel that it brings: its name there is `KERNEL:KIND`. `scratch`: a folder for the
/// package.
///
/// # Errors
/// Those of files, and of loading a kernel (docs/SLOTS.md).
pub(super) fn offer(client: &Client, scratch: &Path, kernel: &str, kind: &str, library: &Path) -> io::Result<()> {
    let manifest = weldfs_kernels::packages().iter().find(|(name, _)| *name == kernel).map(|(_, text)| *text);
    let package = scratch.join(kernel);
    std::fs::create_dir_all(&package)?;
    std::fs::write(package.join("kernel.toml"), manifest.ok_or(io::ErrorKind::NotFound)?)?;
    std::fs::copy(library, package.join(format!("lib{kind}_{kernel}.so")))?;
    let loaded = client.load_kernel(package.canonicalize()?);
    loaded.map(drop).map_err(|e| io::Error::other(format!("{} cannot be loaded: {e}", library.display())))
}
