//! Calls on names. Paths are resolved from the device's root, with or without a leading slash. Changes have the
//! client's durability.

use crate::boundary::{call, count, give, given, misuse, on, on_both, path, room};
use crate::client::weldfs_client;
use crate::file::{owner, stamps};
use crate::types::*;
use libc::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use weldfs::{AccessMask, Handle, RenameFlags};

/// stat(2): of what a final symbolic link names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_stat_path(
    client: Option<&weldfs_client>,
    name: *const c_char,
    stat: *mut weldfs_stat,
) -> c_int {
    call(on("weldfs_stat_path", name), || give(stat, || Ok(given(client)?.client.metadata(path(name)?)?.into())))
}

/// lstat(2): of a final symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_lstat_path(
    client: Option<&weldfs_client>,
    name: *const c_char,
    stat: *mut weldfs_stat,
) -> c_int {
    call(on("weldfs_lstat_path", name), || {
        give(stat, || Ok(given(client)?.client.symlink_metadata(path(name)?)?.into()))
    })
}

/// access(2), with F_OK, R_OK, W_OK, X_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_access(client: Option<&weldfs_client>, name: *const c_char, mask: c_int) -> c_int {
    call(on("weldfs_access", name), || {
        let mask = u8::try_from(mask).ok().and_then(AccessMask::from_bits).ok_or(misuse("no such mask"))?;
        Ok(given(client)?.client.access(path(name)?, mask)?)
    })
}

/// truncate(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_truncate(client: Option<&weldfs_client>, name: *const c_char, bytes: u64) -> c_int {
    call(on("weldfs_truncate", name), || Ok(given(client)?.client.set_len(path(name)?, bytes)?))
}

/// chmod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_chmod(client: Option<&weldfs_client>, name: *const c_char, mode: u32) -> c_int {
    call(on("weldfs_chmod", name), || Ok(given(client)?.client.set_permissions(path(name)?, mode)?))
}

/// lchown(2): of a final symbolic link itself. UINT32_MAX leaves owner or group as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_lchown(
    client: Option<&weldfs_client>,
    name: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    call(on("weldfs_lchown", name), || Ok(given(client)?.client.set_attributes(path(name)?, true, &owner(uid, gid))?))
}

/// utimensat(2): `times` points to two: last access, and last change of the content. NULL: now, both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_utimens(
    client: Option<&weldfs_client>,
    name: *const c_char,
    times: *const weldfs_time,
) -> c_int {
    call(on("weldfs_utimens", name), || {
        Ok(given(client)?.client.set_attributes(path(name)?, false, &stamps(times)?)?)
    })
}

/// mkdir(2); `mode` less the umask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_mkdir(client: Option<&weldfs_client>, name: *const c_char, mode: u32) -> c_int {
    call(on("weldfs_mkdir", name), || {
        let client = &given(client)?.client;
        Ok(client.create_dir_with(path(name)?, mode)?)
    })
}

/// rmdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_rmdir(client: Option<&weldfs_client>, name: *const c_char) -> c_int {
    call(on("weldfs_rmdir", name), || Ok(given(client)?.client.remove_dir(path(name)?)?))
}

/// unlink(2). The file lives on while it is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_unlink(client: Option<&weldfs_client>, name: *const c_char) -> c_int {
    call(on("weldfs_unlink", name), || Ok(given(client)?.client.remove_file(path(name)?)?))
}

/// renameat2(2): `flags` 0, RENAME_NOREPLACE or RENAME_EXCHANGE. Atomic.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_rename(
    client: Option<&weldfs_client>,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    call(on_both("weldfs_rename", from, to), || {
        let flags = u8::try_from(flags).ok().and_then(RenameFlags::from_bits).ok_or(misuse("no such flags"))?;
        Ok(given(client)?.client.rename_with(path(from)?, path(to)?, flags)?)
    })
}

/// link(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_link(client: Option<&weldfs_client>, from: *const c_char, to: *const c_char) -> c_int {
    call(on_both("weldfs_link", from, to), || Ok(given(client)?.client.hard_link(path(from)?, path(to)?)?))
}

/// symlink(2): makes `name` a symbolic link that says `target`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_symlink(
    client: Option<&weldfs_client>,
    target: *const c_char,
    name: *const c_char,
) -> c_int {
    call(on_both("weldfs_symlink", target, name), || Ok(given(client)?.client.symlink(path(target)?, path(name)?)?))
}

/// readlink(2): returns the bytes put into `target`, cut to `size`, without a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_readlink(
    client: Option<&weldfs_client>,
    name: *const c_char,
    target: *mut c_void,
    size: usize,
) -> i64 {
    count(on("weldfs_readlink", name), || {
        let name = path(name)?.as_os_str().as_bytes();
        Ok(given(client)?.client.raw().readlinkat(Handle::ROOT, name, room(target, size)?)? as i64)
    })
}
