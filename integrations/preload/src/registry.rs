//! The registry of the run's mount: which files the kernel has mapped (`weldfs_ciscops::mapped`).

use crate::{config, mount, report, sys};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use weldfs_ciscops::mapped::RegistryView;

static REGISTRY: OnceLock<Option<RegistryView>> = OnceLock::new();

/// Finds the registry, when this process comes to the device (under the lock of that).
pub fn begin() {
    let Some(config) = config::get().filter(|_| mount::at_prefix()) else { return };
    let Some(path) = config.registry.as_ref().and_then(|path| std::ffi::CString::new(&path[..]).ok()) else { return };
    let view = sys::open(&path, libc::O_RDONLY).and_then(|fd| RegistryView::open(fd.as_fd()).map_err(|_| libc::EIO));
    if view.is_err() {
        report::warn(&["files that other programs map are not seen: cannot read WELDFS_MAPPED"]);
    }
    let _ = REGISTRY.set(view.ok());
}

/// The registry, if there is one.
#[inline]
pub fn registry() -> Option<&'static RegistryView> {
    REGISTRY.get()?.as_ref()
}

/// As of when it is known what is mapped; 0 without a registry.
#[inline]
pub fn stamp() -> u64 {
    registry().map_or(0, RegistryView::stamp)
}

/// Whether any file is mapped.
pub fn any() -> bool {
    registry().is_some_and(RegistryView::any)
}
