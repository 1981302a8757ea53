//! Data in and out: read, write, their positioned, vectored and fortified forms, and lseek.

use super::ours;
use crate::abi::{self, Res, count, fail, give, hook};
use crate::device;
use libc::{c_int, c_void, iovec, off_t};
use std::io::{IoSlice, IoSliceMut};
use weldfs_ciscops::Handle;
use weldfs_ciscops::command::At;
use weldfs_ciscops::flags::Whence;

fn offset(off: off_t) -> Res<At> {
    u64::try_from(off).map(At::Offset).map_err(|_| libc::EINVAL)
}

/// Reads into a C buffer.
#[inline]
pub fn read_at(h: Handle, at: Res<At>, buf: *mut c_void, n: usize) -> isize {
    count(at.and_then(|at| {
        let room = abi::room(buf, n)?;
        device::on(|d| d.read(h, at, room))
    }))
}

/// Writes from a C buffer.
#[inline]
pub fn write_at(h: Handle, at: Res<At>, buf: *const c_void, n: usize) -> isize {
    count(at.and_then(|at| {
        let bytes = abi::bytes(buf, n)?;
        device::on(|d| d.write(h, at, bytes)).map(|w| w.len)
    }))
}

fn readv_at(h: Handle, at: Res<At>, iov: *const iovec, n: c_int) -> isize {
    let go = || -> Res<usize> {
        let at = at?;
        let mut parts = Vec::new();
        for part in abi::vector(iov, n)? {
            parts.push(IoSliceMut::new(abi::room(part.iov_base, part.iov_len)?));
        }
        device::on(|d| d.read(h, at, &mut parts[..]))
    };
    count(go())
}

fn writev_at(h: Handle, at: Res<At>, iov: *const iovec, n: c_int) -> isize {
    let go = || -> Res<usize> {
        let at = at?;
        let mut parts = Vec::new();
        for part in abi::vector(iov, n)? {
            parts.push(IoSlice::new(abi::bytes(part.iov_base, part.iov_len)?));
        }
        device::on(|d| d.write(h, at, &parts[..])).map(|w| w.len)
    };
    count(go())
}

/// preadv2 and pwritev2: -1 means the current offset; of the flags only those that change nothing are known.
fn offset_or_current(off: off_t, flags: c_int) -> Res<At> {
    let harmless = libc::RWF_HIPRI;
    if flags & !harmless != 0 {
        return Err(crate::report::refuse(libc::EOPNOTSUPP, "preadv2/pwritev2 flags"));
    }
    if off == -1 { Ok(At::Current) } else { offset(off) }
}

/// A fortified call whose buffer is too small for what was asked: libc's own would abort, and so do we.
fn fortified(n: usize, size: usize) {
    if n > size {
        crate::report::fatal(&["buffer overflow detected"]);
    }
}

fn seek(h: Handle, off: off_t, whence: c_int) -> off_t {
    let Some(whence) = u64::try_from(whence).ok().and_then(Whence::from_wire) else { return fail(libc::EINVAL) };
    give(device::on(|d| d.seek(h, whence, off)).map(|n| n as off_t))
}

hook! { real;
    fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
        let h = ours!(fd, else real(fd, buf, n));
        read_at(h, Ok(At::Current), buf, n)
    }
    fn __read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
        let h = ours!(fd, else real(fd, buf, n));
        read_at(h, Ok(At::Current), buf, n)
    }
    fn __read_chk(fd: c_int, buf: *mut c_void, n: usize, size: usize) -> isize {
        let h = ours!(fd, else real(fd, buf, n, size));
        fortified(n, size);
        read_at(h, Ok(At::Current), buf, n)
    }
    fn pread(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        read_at(h, offset(off), buf, n)
    }
    fn pread64(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        read_at(h, offset(off), buf, n)
    }
    fn __pread64(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        read_at(h, offset(off), buf, n)
    }
    fn __pread_chk(fd: c_int, buf: *mut c_void, n: usize, off: off_t, size: usize) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off, size));
        fortified(n, size);
        read_at(h, offset(off), buf, n)
    }
    fn __pread64_chk(fd: c_int, buf: *mut c_void, n: usize, off: off_t, size: usize) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off, size));
        fortified(n, size);
        read_at(h, offset(off), buf, n)
    }
    fn readv(fd: c_int, iov: *const iovec, n: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n));
        readv_at(h, Ok(At::Current), iov, n)
    }
    fn preadv(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off));
        readv_at(h, offset(off), iov, n)
    }
    fn preadv64(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off));
        readv_at(h, offset(off), iov, n)
    }
    fn preadv2(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off, flags));
        readv_at(h, offset_or_current(off, flags), iov, n)
    }
    fn preadv64v2(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off, flags));
        readv_at(h, offset_or_current(off, flags), iov, n)
    }
    fn write(fd: c_int, buf: *const c_void, n: usize) -> isize {
        let h = ours!(fd, else real(fd, buf, n));
        write_at(h, Ok(At::Current), buf, n)
    }
    fn __write(fd: c_int, buf: *const c_void, n: usize) -> isize {
        let h = ours!(fd, else real(fd, buf, n));
        write_at(h, Ok(At::Current), buf, n)
    }
    fn pwrite(fd: c_int, buf: *const c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        write_at(h, offset(off), buf, n)
    }
    fn pwrite64(fd: c_int, buf: *const c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        write_at(h, offset(off), buf, n)
    }
    fn __pwrite64(fd: c_int, buf: *const c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        write_at(h, offset(off), buf, n)
    }
    fn writev(fd: c_int, iov: *const iovec, n: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n));
        writev_at(h, Ok(At::Current), iov, n)
    }
    fn pwritev(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off));
        writev_at(h, offset(off), iov, n)
    }
    fn pwritev64(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off));
        writev_at(h, offset(off), iov, n)
    }
    fn pwritev2(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off, flags));
        writev_at(h, offset_or_current(off, flags), iov, n)
    }
    fn pwritev64v2(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off, flags));
        writev_at(h, offset_or_current(off, flags), iov, n)
    }
    fn lseek(fd: c_int, off: off_t, whence: c_int) -> off_t {
        let h = ours!(fd, else real(fd, off, whence));
        seek(h, off, whence)
    }
    fn lseek64(fd: c_int, off: off_t, whence: c_int) -> off_t {
        let h = ours!(fd, else real(fd, off, whence));
        seek(h, off, whence)
    }
    fn __lseek(fd: c_int, off: off_t, whence: c_int) -> off_t {
        let h = ours!(fd, else real(fd, off, whence));
        seek(h, off, whence)
    }
}
