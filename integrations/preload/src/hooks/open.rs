//! Descriptors come and go: open, creat, close, dup.

use crate::abi::{self, Res, done, fail, give, hook};
use crate::names::{Spot, route};
use crate::table::{self, Gone};
use crate::{atomic, counts, device, fdname, merge, promote, registry, report, stdio, sys};
use libc::{c_char, c_int, c_uint, mode_t};
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs::kept;
use weldfs_ciscops::Handle;
use weldfs_ciscops::flags::OpenFlags;

/// Set by the first POSIX lock: from then on closing any descriptor of a file drops this process's locks on it.
pub static LOCKS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Opens a name inside the device.
pub fn open_spot(spot: &Spot<'_>, flags: c_int, mode: mode_t) -> Res<c_int> {
    // The name is remembered for fchdir and /proc/self/fd; a relative one is worth the walk only for directories.
    let name = match spot.dirfd {
        Some(_) if flags & libc::O_DIRECTORY == 0 => None,
        _ => spot.absolute(),
    };
    // What another name loses is not lost before what was renamed is there.
    if flags & libc::O_TRUNC != 0
        && atomic::any()
        && device::on(|d| d.statat(spot.base, &spot.path, false)).is_ok_and(|st| st.size > 0)
    {
        atomic::make();
    }
    let fd =
        open_cut(flags, |flags| device::open(spot.base, &spot.path, flags, mode, name.as_deref().unwrap_or_default()))?;
    stdio::number_taken(fd);
    promote::opened(fd);
    Ok(fd)
}

/// Opens by `open`. As long as any file is mapped, O_TRUNC is a cut of its own, which the kernel does if it is the one:
/// else pages of the mapping beyond the new end could come back. (With O_RDONLY, whose cut POSIX leaves open, the
/// device does it.)
pub fn open_cut(flags: c_int, open: impl FnOnce(c_int) -> Res<c_int>) -> Res<c_int> {
    let cuts = flags & libc::O_TRUNC != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
    let apart = cuts && promote::any();
    let before = registry::stamp();
    let fd = open(if apart { flags & !libc::O_TRUNC } else { flags })?;
    if !apart && (!cuts || registry::stamp() == before) {
        return Ok(fd);
    }
    match cut(fd) {
        Ok(()) => Ok(fd),
        Err(code) => {
            let_go(fd);
            Err(code)
        }
    }
}

/// Empties the file behind a descriptor of ours, where its pages are.
fn cut(fd: c_int) -> Res<()> {
    let handle = device::handle(fd).ok_or(libc::EBADF)??;
    if super::attr::truncate_fd(fd, handle, 0) == 0 {
        return Ok(());
    }
    match abi::errno() {
        // A virtual file has no bytes of its own.
        libc::EOPNOTSUPP => Ok(()),
        code => Err(code),
    }
}

/// Closes a descriptor that the program has never seen: its locks on the file stay.
pub fn let_go(fd: c_int) {
    let gone = {
        let _numbers = table::numbers();
        let gone = table::remove(fd);
        let _ = sys::close(fd);
        gone
    };
    let _ = end(&gone);
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
    match own_descriptor(path, flags) {
        Ok(None) => route(dirfd, path, host, |spot| open_spot(spot, flags, mode)),
        Ok(Some(fd)) => give(open_again(fd, flags, mode)),
        Err(code) => fail(code),
    }
}

/// The descriptor of ours that a name to be opened means (`/dev/stdin`). The kernel knows the errors of a link that
/// must not be followed and of a name that must not exist.
pub fn own_descriptor(path: *const c_char, flags: c_int) -> Res<Option<c_int>> {
    let new = libc::O_CREAT | libc::O_EXCL;
    let Ok(name) = abi::text(path) else { return Ok(None) };
    if flags & libc::O_NOFOLLOW != 0 || flags & new == new {
        return Ok(None);
    }
    fdname::refuse_foreign(name)?;
    Ok(fdname::of(name))
}

/// Opens the file behind a descriptor of ours once more. As on Linux this is a new open file at offset 0 wherever the
/// file can be opened by a name; the device cannot open by handle, so otherwise it is a duplicate of `fd`.
pub fn open_again(fd: c_int, flags: c_int, mode: mode_t) -> Res<c_int> {
    let handle = device::handle(fd).ok_or(libc::EBADF)??;
    let name = table::entry(fd).and_then(table::Open::name).unwrap_or_default();
    let file = device::on(|d| d.stat(handle))?;
    if file.mode & libc::S_IFMT == libc::S_IFDIR {
        let new = device::open(handle, b".", flags, mode, &name)?;
        stdio::number_taken(new);
        return Ok(new);
    }
    if flags & libc::O_DIRECTORY != 0 {
        return Err(libc::ENOTDIR);
    }
    let empties = flags & libc::O_TRUNC != 0 && flags & libc::O_PATH == 0;
    if empties && flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(libc::EACCES);
    }
    let plain = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
    let new = match open_by_name(&name, file.ino, plain) {
        Some(new) => new,
        None => share_again(fd, plain)?,
    };
    if empties && let Err(code) = cut(new) {
        close(new);
        return Err(code);
    }
    promote::opened(new);
    Ok(new)
}

/// Opens `name` if it still names the file `ino`.
fn open_by_name(name: &[u8], ino: u64, flags: c_int) -> Option<c_int> {
    // Asked first because opening and closing another file by mistake would drop this process's locks on it.
    if name.is_empty() || device::on(|d| d.statat(Handle::ROOT, name, false)).ok()?.ino != ino {
        return None;
    }
    let new = device::open(Handle::ROOT, name, flags, 0, name).ok()?;
    stdio::number_taken(new);
    let same = device::handle(new)?.and_then(|h| device::on(|d| d.stat(h))).is_ok_and(|s| s.ino == ino);
    if same {
        return Some(new);
    }
    close(new);
    None
}

/// A duplicate of `fd`, if that may do what `flags` ask for.
fn share_again(fd: c_int, flags: c_int) -> Res<c_int> {
    let has = table::entry(fd).ok_or(libc::EBADF)?.flags.load(Ordering::Relaxed);
    let has = OpenFlags::from_bits_truncate(has as u16);
    let wanted = OpenFlags::from_linux(flags) & (OpenFlags::READ | OpenFlags::WRITE);
    if !has.contains(wanted) || (has.contains(OpenFlags::PATH) && !wanted.is_empty()) {
        return Err(report::refuse(libc::EACCES, "more access by a descriptor's name than the descriptor has"));
    }
    let new = dup_from(fd, 0, flags & libc::O_CLOEXEC != 0);
    if new < 0 { Err(abi::errno()) } else { Ok(new) }
}

/// Closes a descriptor, whoever owns it. What the library has for itself is not there for the program.
fn close_any(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if kept::is_kept(fd) {
        return fail(libc::EBADF);
    }
    if !table::ours(fd) {
        return real();
    }
    unlock(fd);
    // The kernel's part, and then the device's: while the placeholder is there, the device takes the open file for one
    // that another process may yet claim, and keeps what it holds.
    let (gone, closed) = {
        let _numbers = table::numbers();
        match table::remove(fd) {
            Gone::NotOurs => return real(),
            gone => (gone, sys::close(fd)),
        }
    };
    counts::served();
    stdio::number_taken(fd);
    done(end(&gone).and(closed))
}

/// Closing any descriptor of a file drops the process's locks on it. Asks the device: not under the table's lock.
fn unlock(fd: c_int) {
    if !table::ours(fd) {
        return;
    }
    if LOCKS_IN_USE.load(Ordering::Relaxed)
        && let Some(Ok(handle)) = device::handle(fd)
    {
        super::fcntl::drop_locks(handle);
    }
}

/// What the number meant was closed, and the number given away, by libc itself.
pub fn replaced(fd: c_int) {
    unlock(fd);
    let gone = {
        let _numbers = table::numbers();
        table::remove(fd)
    };
    let _ = end(&gone);
}

/// Says goodbye to the device.
fn end(gone: &Gone) -> Res<()> {
    match *gone {
        Gone::NotOurs | Gone::Shared => Ok(()),
        Gone::Last(ref last) => merge::close(last),
    }
}

/// Closes every descriptor of ours from `first` to `last`, where `real` closes them all for the kernel.
fn close_many<T>(first: c_uint, last: c_uint, real: impl FnOnce() -> T) -> T {
    let mut gone = Vec::new();
    if LOCKS_IN_USE.load(Ordering::Relaxed) {
        table::each(first, last, unlock);
    }
    let answer = {
        let _numbers = table::numbers();
        table::each(first, last, |fd| {
            if !kept::is_kept(fd) {
                gone.push(table::remove(fd));
            }
        });
        real()
    };
    if !gone.is_empty() {
        counts::served();
    }
    for one in &gone {
        let _ = end(one);
    }
    (0..=2).for_each(stdio::number_taken);
    answer
}

/// Closes what the kernel has from `first` to `last`, but for what is the library's. ENOSYS before Linux 5.9.
fn close_around(first: c_uint, last: c_uint, flags: c_int) -> Res<()> {
    let close = |first: c_uint, last: c_uint| {
        sys::checked(libc::SYS_close_range, [first as usize, last as usize, flags as usize, 0, 0, 0]).map(drop)
    };
    let mut first = first;
    while let Some(own) = kept::first_kept(first, last) {
        if own > first {
            close(first, own - 1)?;
        }
        if own == last {
            return Ok(());
        }
        first = own + 1;
    }
    close(first, last)
}

/// The same before Linux 5.9, as far as numbers go.
fn close_one_by_one(first: c_uint) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let args = [0, libc::RLIMIT_NOFILE as usize, 0, &raw mut limit as usize, 0, 0];
    let _ = sys::checked(libc::SYS_prlimit64, args);
    for fd in first..limit.rlim_cur.min(1 << 20) as c_uint {
        if !kept::is_kept(fd as c_int) {
            let _ = sys::close(fd as c_int);
        }
    }
}

/// Whether nothing from `first` to `last` is the library's.
fn none_kept(first: c_uint, last: c_uint) -> bool {
    kept::first_kept(first, last).is_none()
}

/// dup2 and dup3 to a number; EBUSY, as for one that another thread is just opening, where it is the library's.
fn dup_to(old: c_int, new: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if kept::is_kept(new) {
        return fail(libc::EBUSY);
    }
    // What cannot be duplicated closes nothing.
    if new != old && sys::checked(libc::SYS_fcntl, [old as usize, libc::F_GETFD as usize, 0, 0, 0, 0]).is_ok() {
        unlock(new);
    }
    dup_by(old, Some(new), real)
}

/// Makes a duplicate by `real`; the table follows under its lock, so that all numbers of a file are known when it is
/// shared.
fn dup_by(old: c_int, to: Option<c_int>, real: impl FnOnce() -> c_int) -> c_int {
    if !table::ours(old) && !to.is_some_and(table::ours) {
        let new = real();
        if table::ours(new) && new != old {
            // Closed before, where no hook sees it.
            replaced(new);
        }
        stdio::number_taken(new);
        return new;
    }
    let (new, gone, placed) = {
        let _numbers = table::numbers();
        let new = real();
        if new < 0 || new == old {
            return new;
        }
        (new, table::remove(new), table::share(old, new))
    };
    if table::ours(old) {
        counts::served();
    }
    let _ = end(&gone);
    if let Err(code) = placed {
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
        // Where the kernel closes nothing (CLOEXEC, or an error), nothing is forgotten.
        let closes = flags & !(libc::CLOSE_RANGE_UNSHARE as c_int) == 0 && first <= last;
        if !closes {
            // CLOEXEC, say: kept where a number gets its placeholder.
            let _numbers = table::numbers();
            return real(first, last, flags);
        }
        close_many(first, last, || match none_kept(first, last) {
            true => real(first, last, flags),
            false => done(close_around(first, last, flags)),
        })
    }
    fn closefrom(first: c_int) -> () {
        let from = first.max(0) as c_uint;
        close_many(from, c_uint::MAX, || {
            if none_kept(from, c_uint::MAX) {
                real(first);
            } else if close_around(from, c_uint::MAX, 0).is_err() {
                close_one_by_one(from);
            }
        });
    }
    fn dup(old: c_int) -> c_int {
        dup_by(old, None, || real(old))
    }
    fn dup2(old: c_int, new: c_int) -> c_int {
        dup_to(old, new, || real(old, new))
    }
    fn __dup2(old: c_int, new: c_int) -> c_int {
        dup_to(old, new, || real(old, new))
    }
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        dup_to(old, new, || real(old, new, flags))
    }
    fn umask(mask: mode_t) -> mode_t {
        device::set_umask(mask);
        real(mask)
    }
}

/// F_DUPFD and F_DUPFD_CLOEXEC on a descriptor of ours.
pub fn dup_from(fd: c_int, least: c_int, cloexec: bool) -> c_int {
    dup_by(fd, None, || match sys::dup_from(fd, least, cloexec) {
        Ok(new) => new,
        Err(code) => fail(code),
    })
}
