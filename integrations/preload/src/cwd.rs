//! The virtual working directory. The kernel cannot stand inside the device, so while a program does, its kernel
//! directory is parked where relative names lead nowhere: whatever un-hooked code does there fails, it never reaches
//! a wrong file. `WELDFS_CWD` carries the virtual one over exec.

use crate::{abi, config, sys};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory in which no name can be created and no name but numbers exists.
const PARKING: &std::ffi::CStr = c"/proc/self/fdinfo";

static INSIDE: AtomicBool = AtomicBool::new(false);
static NAME: RwLock<Vec<u8>> = RwLock::new(Vec::new());

/// Whether the working directory is inside the device.
#[inline]
pub fn is_inside() -> bool {
    INSIDE.load(Ordering::Acquire)
}

/// The working directory inside the device (absolute, normal form), if it is there.
pub fn inside() -> Option<Vec<u8>> {
    if !is_inside() {
        return None;
    }
    Some(NAME.read().unwrap_or_else(|e| e.into_inner()).clone())
}

/// Moves into the device; `name` is absolute and in normal form.
pub fn enter(name: Vec<u8>) {
    *NAME.write().unwrap_or_else(|e| e.into_inner()) = name;
    INSIDE.store(true, Ordering::Release);
    // Without /proc the kernel directory stays where it was.
    let _ = sys::chdir(PARKING);
}

/// Notes that the kernel's own directory counts again.
pub fn left() {
    INSIDE.store(false, Ordering::Release);
}

/// Takes over what the parent process handed down.
pub fn inherit() {
    let Some(config) = config::get() else { return };
    // A program between that does not have the hooks may have moved on without telling.
    if config.bypass.is_some() && !is_parked() {
        return;
    }
    if let Some(name) = abi::env(c"WELDFS_CWD").filter(|n| n.first() == Some(&b'/')) {
        enter(name.to_vec());
    }
}

/// Whether the kernel's directory is one that `enter` parked it in. It cannot be named when that process has ended.
fn is_parked() -> bool {
    let mut room = [0u8; 64];
    match sys::getcwd(&mut room) {
        Ok(name) => name.starts_with(b"/proc/") && name.ends_with(b"/fdinfo"),
        Err(code) => code != libc::ERANGE,
    }
}
