//! Calls about names that the device does not have: sockets, watches, file handles. Un-hooked, the kernel would look
//! at the host, where the prefix may well be a directory; so they are refused here.

use super::directory::touches;
use crate::abi::{self, fail, hook};
use crate::names::{Place, Spot, locate};
use crate::{config, device, fdname, report, table};
use libc::{c_char, c_int, c_uint, c_void, sa_family_t, sockaddr, socklen_t};
use weldfs_ciscops::flags::AccessMask;

/// The name in the device that an address has. Names that begin with NUL are no files.
fn socket_inside<'a>(address: *const sockaddr, n: socklen_t) -> Option<Spot<'a>> {
    config::get()?;
    let bytes = abi::all_bytes(address.cast(), n as usize).ok()?;
    let name = bytes.strip_prefix(&(libc::AF_UNIX as sa_family_t).to_ne_bytes())?;
    let name = name.split(|b| *b == 0).next().filter(|name| !name.is_empty())?;
    match locate(libc::AT_FDCWD, name) {
        Ok(Place::Device(spot)) => Some(spot),
        _ => None,
    }
}

/// Whether a name seen from a directory descriptor is the device's, or an empty one means a descriptor of ours.
fn inside_at(dirfd: c_int, path: *const c_char) -> bool {
    if config::get().is_none() {
        return false;
    }
    let Ok(name) = abi::text(path) else { return false };
    if name.is_empty() {
        return table::ours(dirfd);
    }
    fdname::of(name).is_some() || matches!(locate(dirfd, name), Ok(Place::Device(_)))
}

fn watched() -> c_int {
    fail(report::decline(libc::EOPNOTSUPP, "inotify and fanotify"))
}

hook! { real;
    fn bind(fd: c_int, address: *const sockaddr, n: socklen_t) -> c_int {
        if socket_inside(address, n).is_some() {
            return fail(report::refuse(libc::EPERM, "bind of a socket"));
        }
        real(fd, address, n)
    }
    fn connect(fd: c_int, address: *const sockaddr, n: socklen_t) -> c_int {
        let Some(spot) = socket_inside(address, n) else { return real(fd, address, n) };
        // What is there is no socket.
        let found = device::on(|d| d.accessat(spot.base, &spot.path, AccessMask::WRITE, false));
        fail(found.err().unwrap_or(libc::ECONNREFUSED))
    }
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int {
        if touches(path) { watched() } else { real(fd, path, mask) }
    }
    fn fanotify_mark(fd: c_int, flags: c_uint, mask: u64, dirfd: c_int, path: *const c_char) -> c_int {
        let by_fd = path.is_null() && table::ours(dirfd);
        if by_fd || inside_at(dirfd, path) { watched() } else { real(fd, flags, mask, dirfd, path) }
    }
    fn name_to_handle_at(
        dirfd: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int,
    ) -> c_int {
        if inside_at(dirfd, path) {
            return fail(report::decline(libc::EOPNOTSUPP, "name_to_handle_at"));
        }
        real(dirfd, path, handle, mount, flags)
    }
    fn swapon(path: *const c_char, flags: c_int) -> c_int {
        if touches(path) { fail(report::refuse(libc::EINVAL, "swapon")) } else { real(path, flags) }
    }
    fn acct(path: *const c_char) -> c_int {
        if touches(path) { fail(report::refuse(libc::EACCES, "acct")) } else { real(path) }
    }
    fn mount(
        what: *const c_char, target: *const c_char, kind: *const c_char, flags: libc::c_ulong, data: *const c_void,
    ) -> c_int {
        let bound = flags & (libc::MS_BIND | libc::MS_MOVE) != 0 && touches(what);
        if bound || touches(target) {
            return fail(report::refuse(libc::EPERM, "mount"));
        }
        real(what, target, kind, flags, data)
    }
    fn umount(target: *const c_char) -> c_int {
        if touches(target) { fail(report::refuse(libc::EPERM, "umount")) } else { real(target) }
    }
    fn umount2(target: *const c_char, flags: c_int) -> c_int {
        if touches(target) { fail(report::refuse(libc::EPERM, "umount")) } else { real(target, flags) }
    }
    fn pivot_root(new: *const c_char, old: *const c_char) -> c_int {
        if touches(new) || touches(old) { fail(report::refuse(libc::EPERM, "pivot_root")) } else { real(new, old) }
    }
    fn ftok(path: *const c_char, id: c_int) -> libc::key_t {
        if !touches(path) {
            return real(path, id);
        }
        let mut st: libc::stat = abi::zeroed();
        if super::stat::stat64(path, &raw mut st) < 0 {
            return -1;
        }
        (st.st_ino & 0xffff) as c_int | ((st.st_dev & 0xff) as c_int) << 16 | ((id & 0xff) << 24)
    }
}
