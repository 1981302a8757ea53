//! Extended attributes.

use super::ours;
use crate::abi::{self, Res, count, done, hook};
use crate::device;
use crate::names::{route, route_file};
use libc::{c_char, c_int, c_void};
use weldfs_ciscops::Handle;
use weldfs_ciscops::flags::XattrFlags;

const HERE: c_int = libc::AT_FDCWD;
/// Bytes of a value that the kernel takes at most.
const XATTR_SIZE_MAX: usize = 65_536;

/// Whose attributes: a name, or a handle with an empty name.
struct Whose<'a> {
    base: Handle,
    path: &'a [u8],
    nofollow: bool,
}

/// An attribute's name: ERANGE for one that is empty or too long.
fn attribute<'a>(name: *const c_char) -> Res<&'a [u8]> {
    let name = abi::text(name)?;
    if [&b"user."[..], b"trusted.", b"security."].contains(&name) {
        return Err(libc::EINVAL);
    }
    if name.is_empty() || name.len() > weldfs_ciscops::limits::XATTR_NAME_MAX { Err(libc::ERANGE) } else { Ok(name) }
}

/// A buffer that is too small because its end is not there is a bad one.
fn fitting(whole: bool, answer: Res<usize>) -> Res<usize> {
    answer.map_err(|code| if code == libc::ERANGE && !whole { libc::EFAULT } else { code })
}

impl<'a> Whose<'a> {
    fn named(spot: &'a crate::names::Spot<'_>, nofollow: bool) -> Res<Whose<'a>> {
        spot.check_named(0)?;
        Ok(Whose { base: spot.base, path: &spot.path, nofollow })
    }

    fn open(base: Handle) -> Whose<'static> {
        Whose { base, path: b"", nofollow: false }
    }

    fn get(&self, name: *const c_char, value: *mut c_void, n: usize) -> Res<usize> {
        let (name, room) = (attribute(name)?, abi::room(value, n)?);
        let whole = room.len() == n;
        fitting(whole, device::on(|d| d.get_xattr(self.base, self.path, self.nofollow, name, room)))
    }

    fn set(&self, name: *const c_char, value: *const c_void, n: usize, flags: c_int) -> Res<()> {
        if n > XATTR_SIZE_MAX {
            return Err(libc::E2BIG);
        }
        let (name, value) = (attribute(name)?, abi::all_bytes(value, n)?);
        let flags = u8::try_from(flags).ok().and_then(XattrFlags::from_bits).ok_or(libc::EINVAL)?;
        device::on(|d| d.set_xattr(self.base, self.path, self.nofollow, name, value, flags))
    }

    fn list(&self, list: *mut c_char, n: usize) -> Res<usize> {
        let room = abi::room(list.cast(), n)?;
        let whole = room.len() == n;
        fitting(whole, device::on(|d| d.list_xattr(self.base, self.path, self.nofollow, room)))
    }

    fn remove(&self, name: *const c_char) -> Res<()> {
        let name = attribute(name)?;
        device::on(|d| d.remove_xattr(self.base, self.path, self.nofollow, name))
    }
}

hook! { real;
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, n: usize) -> isize {
        let host = |_, path| real(path, name, value, n);
        route_file((HERE, path, false), host, |s| Whose::named(s, false)?.get(name, value, n).map(|n| n as isize))
    }
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, n: usize) -> isize {
        let host = |_, path| real(path, name, value, n);
        route(HERE, path, host, |s| Whose::named(s, true)?.get(name, value, n).map(|n| n as isize))
    }
    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, n: usize) -> isize {
        let h = ours!(fd, else real(fd, name, value, n));
        count(Whose::open(h).get(name, value, n))
    }
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, n: usize, flags: c_int) -> c_int {
        let host = |_, path| real(path, name, value, n, flags);
        route_file((HERE, path, false), host, |s| Whose::named(s, false)?.set(name, value, n, flags).map(|()| 0))
    }
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, n: usize, flags: c_int) -> c_int {
        let host = |_, path| real(path, name, value, n, flags);
        route(HERE, path, host, |s| Whose::named(s, true)?.set(name, value, n, flags).map(|()| 0))
    }
    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, n: usize, flags: c_int) -> c_int {
        let h = ours!(fd, else real(fd, name, value, n, flags));
        done(Whose::open(h).set(name, value, n, flags))
    }
    fn listxattr(path: *const c_char, list: *mut c_char, n: usize) -> isize {
        let host = |_, path| real(path, list, n);
        route_file((HERE, path, false), host, |s| Whose::named(s, false)?.list(list, n).map(|n| n as isize))
    }
    fn llistxattr(path: *const c_char, list: *mut c_char, n: usize) -> isize {
        let host = |_, path| real(path, list, n);
        route(HERE, path, host, |s| Whose::named(s, true)?.list(list, n).map(|n| n as isize))
    }
    fn flistxattr(fd: c_int, list: *mut c_char, n: usize) -> isize {
        let h = ours!(fd, else real(fd, list, n));
        count(Whose::open(h).list(list, n))
    }
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
        let host = |_, path| real(path, name);
        route_file((HERE, path, false), host, |s| Whose::named(s, false)?.remove(name).map(|()| 0))
    }
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
        route(HERE, path, |_, path| real(path, name), |s| Whose::named(s, true)?.remove(name).map(|()| 0))
    }
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        let h = ours!(fd, else real(fd, name));
        done(Whose::open(h).remove(name))
    }
}
