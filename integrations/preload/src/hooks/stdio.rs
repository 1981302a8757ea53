//! FILE streams: fopen, fdopen, freopen, fileno.

use super::ours;
use crate::abi::{self, Res, fail, give, hook};
use crate::names::{Place, Spot, locate, route};
use crate::{fdname, report, stdio, table};
use libc::{FILE, c_char, c_int};
use std::sync::atomic::Ordering;
use weldfs_ciscops::flags::OpenFlags;

const HERE: c_int = libc::AT_FDCWD;

fn open_stream(path: *const c_char, mode: *const c_char, real: impl FnOnce(*const c_char) -> *mut FILE) -> *mut FILE {
    let flags = abi::text(mode).and_then(stdio::open_flags);
    match super::open::own_descriptor(path, flags.unwrap_or(0)) {
        Ok(None) => {}
        Ok(Some(fd)) => return give(flags.and_then(|flags| stream_over(super::open::open_again(fd, flags, 0), mode))),
        Err(code) => return fail(code),
    }
    let inner = |spot: &Spot<'_>| stream_over(super::open::open_spot(spot, flags?, 0o666), mode);
    route(HERE, path, |_, path| real(path), inner)
}

/// A stream over a descriptor of ours that was opened for it.
fn stream_over(fd: Res<c_int>, mode: *const c_char) -> Res<*mut FILE> {
    let fd = fd?;
    let stream = abi::text(mode).and_then(|mode| stdio::stream(fd, stdio::cookie_mode(mode)));
    if stream.is_err() {
        super::close(fd);
    }
    stream
}

/// fdopen: the mode must be one that the descriptor can do. Appending is the descriptor's from here on.
fn stream_on(fd: c_int, mode: *const c_char) -> Res<*mut FILE> {
    let mode = abi::text(mode)?;
    let flags = stdio::open_flags(mode)?;
    let has = table::entry(fd).ok_or(libc::EBADF)?.flags.load(Ordering::Relaxed);
    let has = OpenFlags::from_bits_truncate(has as u16);
    if !has.contains(OpenFlags::from_linux(flags) & (OpenFlags::READ | OpenFlags::WRITE)) {
        return Err(libc::EINVAL);
    }
    if flags & libc::O_APPEND != 0 && !has.contains(OpenFlags::APPEND) {
        let now = super::fcntl::fcntl64(fd, libc::F_GETFL, 0);
        if now < 0 || super::fcntl::fcntl64(fd, libc::F_SETFL, (now | libc::O_APPEND) as usize) < 0 {
            return Err(abi::errno());
        }
    }
    stdio::stream(fd, stdio::cookie_mode(mode))
}

/// freopen where the stream or the new file is the device's: the new file takes over the old one's number, so that
/// the stream goes on over it. For the standard streams the answer may be another FILE than the one given.
fn reopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> Res<*mut FILE> {
    let standard = stdio::standard_number(file);
    let number = standard.or_else(|| stdio::descriptor(file));
    let flags = stdio::open_flags(abi::text(mode)?)?;
    // SAFETY: the caller's live stream.
    unsafe { libc::fflush(file) };
    let Some(number) = number else { return take_over(path, mode, (flags, file)) };
    let fd = if path.is_null() { again(number, flags) } else { super::open::open64(path, flags, 0o666) };
    if fd < 0 {
        return Err(abi::errno());
    }
    if fd != number {
        let moved = super::open::dup2(fd, number);
        super::close(fd);
        if moved < 0 {
            return Err(abi::errno());
        }
    }
    let now = if standard.is_some() { stdio::current(number) } else { file };
    // SAFETY: a live stream.
    unsafe { libc::clearerr(now) };
    Ok(now)
}

/// The file behind a stream of ours, opened anew: what freopen without a name does.
fn again(number: c_int, flags: c_int) -> c_int {
    give(super::open::open_again(number, flags & !libc::O_EXCL, 0))
}

/// A stream of libc's over a host file becomes one over a device file. libc opens it anew first, on nothing: what it
/// held of the old file is then gone, and its number free.
fn take_over(path: *const c_char, mode: *const c_char, (flags, file): (c_int, *mut FILE)) -> Res<*mut FILE> {
    let fd = super::open::open64(path, flags, 0o666);
    if fd < 0 {
        let code = abi::errno();
        // SAFETY: the caller's live stream, which a failed freopen closes.
        unsafe { libc::fclose(file) };
        return Err(code);
    }
    let answer = stdio::take_over(file, fd, abi::text(mode)?);
    if let Err(code) = answer {
        super::close(fd);
        return Err(if code == libc::ENOTSUP {
            report::refuse(code, "freopen of this stream of the host")
        } else {
            code
        });
    }
    Ok(file)
}

/// Whether freopen concerns us.
fn reopen_is_ours(path: *const c_char, file: *mut FILE) -> bool {
    if crate::config::get().is_none() {
        return false;
    }
    let inside = |p| fdname::of(p).is_some() || matches!(locate(HERE, p), Ok(Place::Device(_) | Place::HostAt(_)));
    abi::text(path).is_ok_and(inside) || stdio::descriptor(file).is_some()
}

hook! { real;
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        open_stream(path, mode, |path| real(path, mode))
    }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        open_stream(path, mode, |path| real(path, mode))
    }
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        let _ = ours!(fd, else real(fd, mode));
        give(stream_on(fd, mode))
    }
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        let _ = ours!(fd, else real(fd, mode));
        give(stream_on(fd, mode))
    }
    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        open_stream(path, mode, |path| real(path, mode))
    }
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
        if reopen_is_ours(path, file) { give(reopen(path, mode, file)) } else { real(path, mode, file) }
    }
    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
        if reopen_is_ours(path, file) { give(reopen(path, mode, file)) } else { real(path, mode, file) }
    }
    fn fileno(file: *mut FILE) -> c_int {
        stdio::descriptor(file).unwrap_or_else(|| real(file))
    }
    fn fileno_unlocked(file: *mut FILE) -> c_int {
        stdio::descriptor(file).unwrap_or_else(|| real(file))
    }
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, args: *mut libc::c_void) -> c_int {
        if !table::ours(fd) {
            return real(fd, flag, format, args);
        }
        print_to(fd, format, args)
    }
    fn vdprintf(fd: c_int, format: *const c_char, args: *mut libc::c_void) -> c_int {
        if !table::ours(fd) {
            return real(fd, format, args);
        }
        print_to(fd, format, args)
    }
}

unsafe extern "C" {
    fn vasprintf(out: *mut *mut c_char, format: *const c_char, args: *mut libc::c_void) -> c_int;
}

fn print_to(fd: c_int, format: *const c_char, args: *mut libc::c_void) -> c_int {
    let mut text: *mut c_char = std::ptr::null_mut();
    // SAFETY: the caller's format and arguments, passed on as they came.
    let n = unsafe { vasprintf(&raw mut text, format, args) };
    if n < 0 {
        return fail(libc::ENOMEM);
    }
    let put = super::rw::write(fd, text.cast(), n as usize);
    // SAFETY: malloc'd by vasprintf.
    unsafe { libc::free(text.cast()) };
    put as c_int
}
