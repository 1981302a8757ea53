//! The virtual working directory. While a program stands inside the device, the kernel stands at the same place of a
//! mount; without one, its directory is parked where relative names lead nowhere: whatever un-hooked code does there
//! fails, it never reaches a wrong file. `WELDFS_CWD` carries the virtual one over exec.

use crate::{abi, config, mount, path, sys};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory in which no name can be created and no name but numbers exists.
const PARKING: &std::ffi::CStr = c"/proc/self/fdinfo";

static INSIDE: AtomicBool = AtomicBool::new(false);
/// The kernel's directory is the same one, in a mount.
static STANDING: AtomicBool = AtomicBool::new(false);
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
    let place = mount::kernel_name(&name);
    *NAME.write().unwrap_or_else(|e| e.into_inner()) = name;
    INSIDE.store(true, Ordering::Release);
    let standing = place.is_some_and(|place| sys::chdir(&place).is_ok());
    STANDING.store(standing, Ordering::Release);
    if !standing {
        // Without /proc the kernel directory stays where it was.
        let _ = sys::chdir(PARKING);
    }
}

/// Whether the kernel finds relative names as this library does.
pub fn kernel_stands_there() -> bool {
    !is_inside() || STANDING.load(Ordering::Acquire)
}

/// Where in the device the kernel's directory is, if it is in the mount; `None` also if it is parked, or nowhere.
fn of_kernel() -> Option<Place> {
    let prefix = &config::get().filter(|config| config.mounted)?.prefix;
    let mut room = [0u8; libc::PATH_MAX as usize];
    let here = sys::getcwd(&mut room).ok()?;
    if here.starts_with(b"/proc/") && here.ends_with(b"/fdinfo") || here.first() != Some(&b'/') {
        return None;
    }
    Some(path::inside(prefix, here).map_or(Place::Host, |name| Place::Inside(name.into_owned())))
}

enum Place {
    Host,
    Inside(Vec<u8>),
}

/// Notes that the kernel's own directory counts again.
pub fn left() {
    INSIDE.store(false, Ordering::Release);
}

/// Takes over what the parent process handed down.
pub fn inherit() {
    let Some(config) = config::get() else { return };
    // A program that is not hooked has handed the variable on as it was, and the kernel's directory as it is.
    match of_kernel() {
        Some(Place::Inside(name)) => return enter(name),
        Some(Place::Host) => return,
        None => {}
    }
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
