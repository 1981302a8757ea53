//! FILE streams: fopen, fdopen, freopen, fileno.

use super::ours;
use crate::abi::{self, Res, fail, give, hook};
use crate::names::{Place, Spot, locate, route};
use crate::{fdname, report, stdio, table};
use libc::{FILE, c_char, c_int};

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

/// freopen where the stream or the new file is the device's: the new file takes over the old one's number, so that
/// the stream goes on over it. For the standard streams the answer may be another FILE than the one given.
fn reopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> Res<*mut FILE> {
    let standard = stdio::standard_number(file);
    let number = standard.or_else(|| stdio::descriptor(file));
    let Some(number) = number.filter(|_| !path.is_null()) else {
        return Err(report::refuse(libc::ENOTSUP, "freopen of a host stream to the device, or without a name"));
    };
    let flags = stdio::open_flags(abi::text(mode)?)?;
    // SAFETY: the caller's live stream.
    unsafe { libc::fflush(file) };
    let fd = super::open::open64(path, flags, 0o666);
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

/// Whether freopen concerns us.
fn reopen_is_ours(path: *const c_char, file: *mut FILE) -> bool {
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
        let go = || stdio::stream(fd, stdio::cookie_mode(abi::text(mode)?));
        give(go())
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
