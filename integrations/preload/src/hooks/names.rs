//! The namespace: mkdir, unlink, rename, link, symlink, readlink, mknod.

use crate::abi::{self, Res, count, hook};
use crate::names::{self, Spot, Walked, route, route_pair};
use crate::{atomic, config, device, fdname, path, report, table};
use libc::{c_char, c_int, c_uint, dev_t, mode_t};
use std::sync::OnceLock;
use weldfs_ciscops::flags::{AccessMask, OpenFlags, RenameFlags};

const HERE: c_int = libc::AT_FDCWD;

fn mkdir_spot(spot: &Spot<'_>, mode: mode_t) -> Res<c_int> {
    device::on(|d| d.mkdirat(spot.base, &spot.path, mode & !device::umask())).map(|()| 0)
}

fn unlink_spot(spot: &Spot<'_>, flags: c_int) -> Res<c_int> {
    atomic::make();
    let call = |d: weldfs::Raw<'_>| match flags {
        0 => d.unlinkat(spot.base, &spot.path),
        libc::AT_REMOVEDIR => d.rmdirat(spot.base, &spot.path),
        _ => Err(weldfs_ciscops::Errno::INVAL),
    };
    device::on(call).map(|()| 0)
}

/// remove(3): a file or an empty directory.
fn remove_spot(spot: &Spot<'_>) -> Res<c_int> {
    match unlink_spot(spot, 0) {
        Err(libc::EISDIR | libc::EPERM) => unlink_spot(spot, libc::AT_REMOVEDIR),
        answer => answer,
    }
}

/// What a directory is called without links on the way to it, as it was at the first rename.
fn called(said: &'static [u8]) -> &'static [u8] {
    static NAME: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let walked = || match names::walk(said, true) {
        Ok(Walked::Inside(name)) => Some(name),
        _ => None,
    };
    // A thread that walks holds up no other, nor a child that has no such thread.
    if NAME.get().is_none() {
        let _ = NAME.set(walked());
    }
    NAME.get().and_then(Option::as_deref).unwrap_or(said)
}

fn rename_spots(from: &Spot<'_>, to: &Spot<'_>, flags: c_uint) -> Res<c_int> {
    let flags = u8::try_from(flags).ok().and_then(RenameFlags::from_bits).ok_or(libc::EINVAL)?;
    if flags.is_empty()
        && let Some(said) = atomic::said()
        && atomic::keeps(from.absolute().as_deref(), to.absolute().as_deref(), [said, called(said)])
    {
        return Ok(0);
    }
    atomic::make();
    device::on(|d| d.renameat(from.base, &from.path, to.base, &to.path, flags)).map(|()| 0)
}

fn link_spots(from: &Spot<'_>, to: &Spot<'_>, flags: c_int) -> Res<c_int> {
    if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
        return Err(libc::EINVAL);
    }
    if from.path.is_empty() && flags & libc::AT_EMPTY_PATH == 0 {
        return Err(libc::ENOENT);
    }
    let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
    atomic::make();
    device::on(|d| d.linkat(from.base, &from.path, to.base, &to.path, follow)).map(|()| 0)
}

/// linkat of `/proc/self/fd/N` (how O_TMPFILE files get a name) where N is ours: the file itself is linked.
fn through_proc(from: *const c_char, flags: c_int) -> Option<c_int> {
    if flags & libc::AT_SYMLINK_FOLLOW == 0 { None } else { fdname::of(abi::text(from).ok()?) }
}

fn link_by_fd(fd: c_int, to_dir: c_int, to: *const c_char) -> c_int {
    let outside = |_, _| abi::fail(libc::EXDEV);
    route(to_dir, to, outside, |to| {
        let base = device::handle(fd).ok_or(libc::EBADF)??;
        device::on(|d| d.linkat(base, b"", to.base, &to.path, false)).map(|()| 0)
    })
}

fn symlink_spot(target: *const c_char, spot: &Spot<'_>) -> Res<c_int> {
    let target = abi::text(target)?;
    if target.is_empty() {
        return Err(libc::ENOENT);
    }
    device::on(|d| d.symlinkat(target, spot.base, &spot.path)).map(|()| 0)
}

fn readlink_spot(spot: &Spot<'_>, buf: *mut c_char, n: usize) -> Res<isize> {
    if n == 0 {
        return Err(libc::EINVAL);
    }
    let mut target = [0u8; libc::PATH_MAX as usize];
    let found = device::on(|d| d.readlinkat(spot.base, &spot.path, &mut target))?.min(n);
    let room = abi::room(buf.cast(), found)?;
    if room.len() < found {
        return Err(libc::EFAULT);
    }
    room.copy_from_slice(&target[..found]);
    Ok(found as isize)
}

/// readlink on the host, where `/proc/self/fd/N` (or a name like it) of a file in the device names that file.
fn readlink_host(path: *const c_char, buf: *mut c_char, n: usize, real: impl FnOnce() -> isize) -> isize {
    let inner = abi::text(path).ok().and_then(|name| table::entry(fdname::link(name)?)?.name());
    let (Some(inner), Some(config)) = (inner, config::get()) else { return real() };
    let full = path::outside(&config.prefix, &inner);
    let len = full.len().min(n);
    count(abi::room(buf.cast(), len).and_then(|room| {
        if room.len() < len {
            return Err(libc::EFAULT);
        }
        room.copy_from_slice(&full[..len]);
        Ok(len)
    }))
}

/// Regular files only: the device has no nodes of other kinds.
fn mknod_spot(spot: &Spot<'_>, mode: mode_t) -> Res<c_int> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => {
            let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
            let mode = mode & 0o7777 & !device::umask();
            let h = device::on(|d| d.openat(spot.base, &spot.path, flags, mode, 0))?.handle;
            device::on(|d| d.close(h)).map(|()| 0)
        }
        libc::S_IFDIR => Err(libc::EPERM),
        libc::S_IFCHR | libc::S_IFBLK => {
            could_be_made(spot)?;
            Err(report::refuse(libc::EPERM, "mknod of a device node"))
        }
        libc::S_IFIFO | libc::S_IFSOCK => {
            could_be_made(spot)?;
            Err(report::refuse(libc::EOPNOTSUPP, "mknod of a FIFO or socket"))
        }
        _ => Err(libc::EINVAL),
    }
}

/// What is wrong with a name for a new file, before what is wrong with the file.
fn could_be_made(spot: &Spot<'_>) -> Res<()> {
    match device::on(|d| d.statat(spot.base, &spot.path, true)) {
        Ok(_) => return Err(libc::EEXIST),
        Err(libc::ENOENT) => {}
        Err(code) => return Err(code),
    }
    let (above, _, _) = path::split_last(&spot.path);
    let above = if above.is_empty() { b"." } else { above };
    device::on(|d| d.accessat(spot.base, above, AccessMask::WRITE | AccessMask::EXEC, false))
}

fn no_fifo(spot: &Spot<'_>) -> Res<c_int> {
    could_be_made(spot)?;
    Err(report::refuse(libc::EOPNOTSUPP, "mkfifo"))
}

hook! { real;
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
        route(HERE, path, |_, path| real(path, mode), |spot| mkdir_spot(spot, mode))
    }
    fn mkdirat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
        route(dirfd, path, |dirfd, path| real(dirfd, path, mode), |spot| mkdir_spot(spot, mode))
    }
    fn rmdir(path: *const c_char) -> c_int {
        route(HERE, path, |_, path| real(path), |spot| unlink_spot(spot, libc::AT_REMOVEDIR))
    }
    fn unlink(path: *const c_char) -> c_int {
        route(HERE, path, |_, path| real(path), |spot| unlink_spot(spot, 0))
    }
    fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        route(dirfd, path, |dirfd, path| real(dirfd, path, flags), |spot| unlink_spot(spot, flags))
    }
    fn remove(path: *const c_char) -> c_int {
        route(HERE, path, |_, path| real(path), remove_spot)
    }
    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        let host = |(_, from), (_, to)| real(from, to);
        route_pair((HERE, from), (HERE, to), host, |a, b| rename_spots(a, b, 0))
    }
    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int {
        let host = |(from_dir, from), (to_dir, to)| real(from_dir, from, to_dir, to);
        route_pair((from_dir, from), (to_dir, to), host, |a, b| rename_spots(a, b, 0))
    }
    fn renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int {
        let host = |(from_dir, from), (to_dir, to)| real(from_dir, from, to_dir, to, flags);
        route_pair((from_dir, from), (to_dir, to), host, |a, b| rename_spots(a, b, flags))
    }
    fn link(from: *const c_char, to: *const c_char) -> c_int {
        let host = |(_, from), (_, to)| real(from, to);
        route_pair((HERE, from), (HERE, to), host, |a, b| link_spots(a, b, 0))
    }
    fn linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int {
        if let Some(fd) = through_proc(from, flags) {
            return link_by_fd(fd, to_dir, to);
        }
        let host = |(from_dir, from), (to_dir, to)| real(from_dir, from, to_dir, to, flags);
        route_pair((from_dir, from), (to_dir, to), host, |a, b| link_spots(a, b, flags))
    }
    fn symlink(target: *const c_char, path: *const c_char) -> c_int {
        route(HERE, path, |_, path| real(target, path), |spot| symlink_spot(target, spot))
    }
    fn symlinkat(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
        route(dirfd, path, |dirfd, path| real(target, dirfd, path), |spot| symlink_spot(target, spot))
    }
    fn readlink(path: *const c_char, buf: *mut c_char, n: usize) -> isize {
        let host = |_, path| readlink_host(path, buf, n, || real(path, buf, n));
        route(HERE, path, host, |spot| readlink_spot(spot, buf, n))
    }
    fn readlinkat(dirfd: c_int, path: *const c_char, buf: *mut c_char, n: usize) -> isize {
        let host = |dirfd, path| readlink_host(path, buf, n, || real(dirfd, path, buf, n));
        route(dirfd, path, host, |spot| readlink_spot(spot, buf, n))
    }
    fn __readlink_chk(path: *const c_char, buf: *mut c_char, n: usize, size: usize) -> isize {
        let host = |_, path| readlink_host(path, buf, n, || real(path, buf, n, size));
        route(HERE, path, host, |spot| readlink_spot(spot, buf, n.min(size)))
    }
    fn __readlinkat_chk(dirfd: c_int, path: *const c_char, buf: *mut c_char, n: usize, size: usize) -> isize {
        let host = |dirfd, path| readlink_host(path, buf, n, || real(dirfd, path, buf, n, size));
        route(dirfd, path, host, |spot| readlink_spot(spot, buf, n.min(size)))
    }
    fn mknod(path: *const c_char, mode: mode_t, dev: dev_t) -> c_int {
        route(HERE, path, |_, path| real(path, mode, dev), |spot| mknod_spot(spot, mode))
    }
    fn mknodat(dirfd: c_int, path: *const c_char, mode: mode_t, dev: dev_t) -> c_int {
        route(dirfd, path, |dirfd, path| real(dirfd, path, mode, dev), |spot| mknod_spot(spot, mode))
    }
    fn __xmknod(version: c_int, path: *const c_char, mode: mode_t, dev: *mut dev_t) -> c_int {
        route(HERE, path, |_, path| real(version, path, mode, dev), |spot| mknod_spot(spot, mode))
    }
    fn __xmknodat(version: c_int, dirfd: c_int, path: *const c_char, mode: mode_t, dev: *mut dev_t) -> c_int {
        route(dirfd, path, |dirfd, path| real(version, dirfd, path, mode, dev), |spot| mknod_spot(spot, mode))
    }
    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
        route(HERE, path, |_, path| real(path, mode), no_fifo)
    }
    fn mkfifoat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
        route(dirfd, path, |dirfd, path| real(dirfd, path, mode), no_fifo)
    }
}
