//! Kernels of the device: what it has, loading and unloading, debug ports.

use crate::boundary::{Fault, call, copy_text, count, give, given, misuse, on, on_both, path, text};
use crate::client::weldfs_client;
use libc::{c_char, c_int};

/// A kernel's name. Whatever is in it, the device looks for it in its list.
fn named<'a>(name: *const c_char) -> Result<&'a str, Fault> {
    text(name)?.to_str().map_err(|_| misuse("no kernel has such a name"))
}

/// The device's slots, kernels and what tenants used of them, as a JSON object: as much of it as fits into `size`
/// bytes, NUL-terminated. Returns the bytes that all of it has, without the NUL; `size` 0 asks for that alone.
/// docs/SLOTS.md has the fields.
///
/// Errors: -EOPNOTSUPP on a directory of the host, which has no kernels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_kernels_json(client: Option<&weldfs_client>, json: *mut c_char, size: usize) -> i64 {
    count("weldfs_kernels_json", || copy_text(given(client)?.client.kernels_json()?.as_bytes(), json, size))
}

/// Loads a kernel's package: `folder` is a folder of the host with a kernel.toml, given by its absolute path, that the
/// device's process can read. Its name is put into `size` bytes at `name`, NUL-terminated, as much of it as fits (32
/// bytes are enough). Returns the name's length. It cannot be used before weldfs_kernel_activate.
///
/// Errors: -EPERM (only root and the user that runs the device may), -EINVAL (it is no package), -ENOENT (a file is
/// missing), -EACCES, -EEXIST (the device has another kernel of that name, or of that id), -EOPNOTSUPP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_kernel_load(
    client: Option<&weldfs_client>,
    folder: *const c_char,
    name: *mut c_char,
    size: usize,
) -> i64 {
    count(on("weldfs_kernel_load", folder), || {
        let loaded = given(client)?.client.load_kernel(path(folder)?)?;
        copy_text(loaded.as_bytes(), name, size)
    })
}

/// From now on the kernel can be used.
///
/// Errors: -ENOENT (the device has no such kernel), -EPERM, -EOPNOTSUPP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_kernel_activate(client: Option<&weldfs_client>, name: *const c_char) -> c_int {
    call(on("weldfs_kernel_activate", name), || Ok(given(client)?.client.activate_kernel(named(name)?)?))
}

/// From now on the kernel cannot be used.
///
/// Errors: -EBUSY (a stream or command has it in a slot), -ENOENT, -EPERM, -EOPNOTSUPP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_kernel_deactivate(client: Option<&weldfs_client>, name: *const c_char) -> c_int {
    call(on("weldfs_kernel_deactivate", name), || Ok(given(client)?.client.deactivate_kernel(named(name)?)?))
}

/// Takes a kernel that was loaded, and is not active, out of the device's list.
///
/// Errors: -EBUSY (it is active), -ENOENT, -EPERM (also: the device brings it), -EOPNOTSUPP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_kernel_unload(client: Option<&weldfs_client>, name: *const c_char) -> c_int {
    call(on("weldfs_kernel_unload", name), || Ok(given(client)?.client.unload_kernel(named(name)?)?))
}

/// Chooses the back-end (model, rtl, hls, xrt) of a kernel that runs where none is named.
///
/// Errors: -ENOENT (no such kernel; nothing is called a back-end so), -EINVAL (the kernel has none of that kind),
/// -EPERM, -EOPNOTSUPP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_kernel_prefer(
    client: Option<&weldfs_client>,
    name: *const c_char,
    backend: *const c_char,
) -> c_int {
    call(on_both("weldfs_kernel_prefer", name, backend), || {
        Ok(given(client)?.client.prefer_kernel(named(name)?, named(backend)?)?)
    })
}

/// The value of a debug port, by its number, of a kernel that is in a slot: that of the last packet.
///
/// Errors: -ENOENT (it is in no slot, or has no such port), -EPERM, -EOPNOTSUPP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_kernel_peek(
    client: Option<&weldfs_client>,
    name: *const c_char,
    port: u32,
    value: *mut u32,
) -> c_int {
    call(on("weldfs_kernel_peek", name), || {
        give(value, || Ok(given(client)?.client.peek_kernel(named(name)?, port)?))
    })
}
