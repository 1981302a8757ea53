//! Where the program stands: chdir, getcwd, realpath.

use super::ours_or_path;
use crate::abi::{self, Res, fail, give, hook};
use crate::names::{self, Walked, route};
use crate::{config, cwd, device, path, report};
use libc::{c_char, c_int};
use weldfs_ciscops::Handle;
use weldfs_ciscops::flags::AccessMask;

const HERE: c_int = libc::AT_FDCWD;

/// Moves the working directory to a name inside the device.
fn enter(name: &[u8]) -> Res<c_int> {
    let Walked::Inside(real) = names::walk(name, true)? else { return Err(libc::EXDEV) };
    check(&real)?;
    cwd::enter(real);
    Ok(0)
}

/// Whether a process may stand at a name.
pub fn check(real: &[u8]) -> Res<()> {
    let body = device::on(|d| d.statat(Handle::ROOT, real, false))?;
    if body.mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(libc::ENOTDIR);
    }
    device::on(|d| d.accessat(Handle::ROOT, real, AccessMask::EXEC, false))
}

/// The kernel's own chdir; when it worked, the program stands on the host again.
fn host_move(answer: c_int) -> c_int {
    if answer == 0 {
        cwd::left();
    }
    answer
}

/// The working directory's host name, if it is inside the device.
fn here() -> Option<Vec<u8>> {
    Some(path::outside(&config::get()?.prefix, &cwd::inside()?))
}

/// getcwd's contract: a buffer of the caller's, or a malloc'd one of at least `size` bytes.
fn give_name(buf: *mut c_char, size: usize, name: &[u8]) -> *mut c_char {
    give(if buf.is_null() {
        if size != 0 && size <= name.len() { Err(libc::ERANGE) } else { abi::malloc_text(name) }
    } else if size == 0 {
        Err(libc::EINVAL)
    } else {
        abi::put_text(buf, size, name).map(|()| buf)
    })
}

/// realpath for a name inside the device.
fn resolved(
    spot: &names::Spot<'_>,
    out: *mut c_char,
    host: impl FnOnce(*const c_char) -> *mut c_char,
) -> Res<*mut c_char> {
    let name = spot.absolute().ok_or(libc::ENOENT)?;
    if name.is_empty() {
        return Err(libc::ENOENT);
    }
    match names::walk(&name, true)? {
        Walked::Host(outer) => {
            let outer = std::ffi::CString::new(outer).map_err(|_| libc::EINVAL)?;
            Ok(host(outer.as_ptr()))
        }
        Walked::Inside(real) => {
            if name.ends_with(b"/") {
                let body = device::on(|d| d.statat(Handle::ROOT, &real, false))?;
                if body.mode & libc::S_IFMT != libc::S_IFDIR {
                    return Err(libc::ENOTDIR);
                }
            }
            let full = path::outside(&config::get().ok_or(libc::ENODEV)?.prefix, &real);
            if out.is_null() {
                return abi::malloc_text(&full);
            }
            abi::put_text(out, libc::PATH_MAX as usize, &full).map_err(|_| libc::ENAMETOOLONG)?;
            Ok(out)
        }
    }
}

fn real_path(name: *const c_char, out: *mut c_char, real: impl Fn(*const c_char) -> *mut c_char) -> *mut c_char {
    route(HERE, name, |_, name| real(name), |spot| resolved(spot, out, &real))
}

hook! { real;
    fn chdir(path: *const c_char) -> c_int {
        if let Some(fd) = abi::text(path).ok().and_then(crate::fdname::of) {
            return fchdir(fd);
        }
        route(HERE, path, |_, path| host_move(real(path)), |spot| enter(&spot.absolute().ok_or(libc::ENOENT)?))
    }
    fn fchdir(fd: c_int) -> c_int {
        let _ = ours_or_path!(fd, else host_move(real(fd)));
        give(names::directory(fd).and_then(|name| enter(&name)))
    }
    fn chroot(path: *const c_char) -> c_int {
        route(HERE, path, |_, path| real(path), |_| Err(report::refuse(libc::EPERM, "chroot")))
    }
    fn getcwd(buf: *mut c_char, size: usize) -> *mut c_char {
        match here() {
            Some(name) => give_name(buf, size, &name),
            None => real(buf, size),
        }
    }
    fn __getcwd_chk(buf: *mut c_char, size: usize, room: usize) -> *mut c_char {
        match here() {
            Some(name) => give_name(buf, size.min(room), &name),
            None => real(buf, size, room),
        }
    }
    fn get_current_dir_name() -> *mut c_char {
        match here() {
            Some(name) => give(abi::malloc_text(&name)),
            None => real(),
        }
    }
    fn __getwd_chk(buf: *mut c_char, room: usize) -> *mut c_char {
        match here() {
            Some(name) => give_name(buf, room.min(libc::PATH_MAX as usize), &name),
            None => real(buf, room),
        }
    }
    fn getwd(buf: *mut c_char) -> *mut c_char {
        match here() {
            Some(name) if buf.is_null() => { drop(name); fail(libc::EINVAL) }
            Some(name) => give_name(buf, libc::PATH_MAX as usize, &name),
            None => real(buf),
        }
    }
    fn realpath(name: *const c_char, out: *mut c_char) -> *mut c_char {
        real_path(name, out, |name| real(name, out))
    }
    fn __realpath_chk(name: *const c_char, out: *mut c_char, size: usize) -> *mut c_char {
        real_path(name, out, |name| real(name, out, size))
    }
    fn canonicalize_file_name(name: *const c_char) -> *mut c_char {
        real_path(name, std::ptr::null_mut(), real)
    }
}
