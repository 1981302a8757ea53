//! Descriptors come and go: open, creat, close, dup.

use crate::abi::{Res, done, fail, hook};
use crate::names::{Spot, route};
use crate::table::{self, Gone};
use crate::{device, stdio, sys};
use libc::{c_char, c_int, c_uint, mode_t};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by the first POSIX lock: from then on closing any descriptor of a file drops this process's locks on it.
pub static LOCKS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Opens a name inside the device.
pub fn open_spot(spot: &Spot<'_>, flags: c_int, mode: mode_t) -> Res<c_int> {
    // The name is remembered for fchdir and /proc/self/fd; a relative one is worth the walk only for directories.
    let name = match spot.dirfd {
        Some(_) if flags & libc::O_DIRECTORY == 0 => None,
        _ => spot.absolute(),
    };
    let fd = device::open(spot.base, &spot.path, flags, mode, name.as_deref().unwrap_or_default())?;
    stdio::number_taken(fd);
    Ok(fd)
}

fn open_any(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    real: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    let host = |dirfd, path| {
        let fd = real(dirfd, path);
        stdio::number_taken(fd);
        fd
    };
    route(dirfd, path, host, |spot| open_spot(spot, flags, mode))
}

/// Closes a descriptor, whoever owns it.
fn close_any(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    match forget(fd) {
        None => real(),
        Some(result) => {
            let closed = sys::close(fd);
            stdio::number_taken(fd);
            done(result.and(closed))
        }
    }
}

/// Says goodbye to the device for one descriptor (the kernel's part is left to the caller); `None`: not ours.
fn forget(fd: c_int) -> Option<Res<()>> {
    if !table::ours(fd) {
        return None;
    }
    if LOCKS_IN_USE.load(Ordering::Relaxed)
        && let Some(Ok(handle)) = device::handle(fd)
    {
        super::fcntl::drop_locks(handle);
    }
    Some(match table::remove(fd) {
        Gone::NotOurs => return None,
        Gone::Shared => Ok(()),
        Gone::Last(handle) => device::on(|d| d.close(handle)),
    })
}

/// After the kernel made `new` a duplicate of `old`: the table follows. `new` may have been open before.
fn follow_dup(old: c_int, new: c_int) -> c_int {
    if new < 0 || new == old {
        return new;
    }
    // The kernel has closed what the number meant before; an error of that close is lost there, too.
    let _ = forget(new);
    if let Err(code) = table::share(old, new) {
        let _ = sys::close(new);
        return fail(code);
    }
    stdio::number_taken(new);
    new
}

hook! { real;
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(libc::AT_FDCWD, path, flags, mode, |_, path| real(path, flags, mode))
    }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(libc::AT_FDCWD, path, flags, mode, |_, path| real(path, flags, mode))
    }
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(libc::AT_FDCWD, path, flags, mode, |_, path| real(path, flags, mode))
    }
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(libc::AT_FDCWD, path, flags, mode, |_, path| real(path, flags, mode))
    }
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        open_any(libc::AT_FDCWD, path, flags, 0, |_, path| real(path, flags))
    }
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        open_any(libc::AT_FDCWD, path, flags, 0, |_, path| real(path, flags))
    }
    fn openat(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(dirfd, path, flags, mode, |dirfd, path| real(dirfd, path, flags, mode))
    }
    fn openat64(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(dirfd, path, flags, mode, |dirfd, path| real(dirfd, path, flags, mode))
    }
    fn __openat_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        open_any(dirfd, path, flags, 0, |dirfd, path| real(dirfd, path, flags))
    }
    fn __openat64_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        open_any(dirfd, path, flags, 0, |dirfd, path| real(dirfd, path, flags))
    }
    fn creat(path: *const c_char, mode: mode_t) -> c_int {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        open_any(libc::AT_FDCWD, path, flags, mode, |_, path| real(path, mode))
    }
    fn creat64(path: *const c_char, mode: mode_t) -> c_int {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        open_any(libc::AT_FDCWD, path, flags, mode, |_, path| real(path, mode))
    }
    fn close(fd: c_int) -> c_int {
        close_any(fd, || real(fd))
    }
    fn __close(fd: c_int) -> c_int {
        close_any(fd, || real(fd))
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
            table::each(first, last, |fd| {
                let _ = forget(fd);
            });
        }
        let answer = real(first, last, flags);
        (0..=2).for_each(stdio::number_taken);
        answer
    }
    fn closefrom(first: c_int) -> () {
        table::each(first.max(0) as c_uint, c_uint::MAX, |fd| {
            let _ = forget(fd);
        });
        real(first);
        (0..=2).for_each(stdio::number_taken);
    }
    fn dup(old: c_int) -> c_int {
        let new = real(old);
        follow_dup(old, new)
    }
    fn dup2(old: c_int, new: c_int) -> c_int {
        follow_dup(old, real(old, new))
    }
    fn __dup2(old: c_int, new: c_int) -> c_int {
        follow_dup(old, real(old, new))
    }
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        follow_dup(old, real(old, new, flags))
    }
    fn umask(mask: mode_t) -> mode_t {
        device::set_umask(mask);
        real(mask)
    }
}

/// F_DUPFD and F_DUPFD_CLOEXEC on a descriptor of ours.
pub fn dup_from(fd: c_int, least: c_int, cloexec: bool) -> c_int {
    match sys::dup_from(fd, least, cloexec) {
        Ok(new) => follow_dup(fd, new),
        Err(code) => fail(code),
    }
}
