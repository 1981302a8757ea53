//! The mount of the same device that `weldfs run` has made, if it has: there the kernel finds the same files by the
//! same names. What it is used for: programs are executed and libraries loaded as they lie, the kernel stands where the
//! program does, and a file is one file to stat(2) whichever way it is looked at.
//!
//! Descriptors of the device stay what they are, but where a program asks for what only the kernel has (`promote`).

use crate::{config, path, sys};
use libc::c_int;
use std::ffi::CString;
use std::sync::OnceLock;

/// The mount as stat(2) knows it.
static DEVICE: OnceLock<Option<u64>> = OnceLock::new();

/// Whether the kernel finds everything under the prefix by the names that a program uses.
#[inline]
pub fn at_prefix() -> bool {
    config::get().is_some_and(|config| config.mounted)
}

/// The name by which the kernel finds what lies at an absolute name inside the device; none without a mount.
pub fn kernel_name(inner: &[u8]) -> Option<CString> {
    let config = config::get().filter(|config| config.mounted)?;
    CString::new(path::outside(&config.prefix, inner)).ok()
}

/// The number that files have as st_dev: the mount's, where there is one; else the one that the device says.
pub fn st_dev(said: u64) -> u64 {
    if !at_prefix() {
        return said;
    }
    DEVICE.get_or_init(of_mount).unwrap_or(said)
}

fn of_mount() -> Option<u64> {
    let name = kernel_name(b"/")?;
    let mut st: libc::stat = crate::abi::zeroed();
    let at = [libc::AT_FDCWD as usize, name.as_ptr() as usize, &raw mut st as usize, 0, 0, 0];
    sys::checked(libc::SYS_newfstatat as c_int as i64, at).ok()?;
    Some(st.st_dev)
}
