//! mmap of a file in the device. A private mapping is ordinary memory that is filled with the file's bytes once; a
//! shared one would have to follow the file, so it is refused.

use super::ours;
use crate::abi::{self, Res, fail, hook};
use crate::{device, report};
use libc::{c_int, c_void, off_t};
use weldfs_ciscops::Handle;
use weldfs_ciscops::command::At;

const PAGE: u64 = 4096;

type Mmap<'a> = dyn Fn(c_int, c_int, c_int, off_t) -> *mut c_void + 'a;

/// `real(prot, flags, fd, off)` is mmap with the caller's address and length.
fn map(h: Handle, len: usize, prot: c_int, flags: c_int, off: off_t, real: &Mmap<'_>) -> Res<*mut c_void> {
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        return Err(report::refuse(libc::ENODEV, "a shared mmap"));
    }
    let start = u64::try_from(off).ok().filter(|o| *o % PAGE == 0).ok_or(libc::EINVAL)?;
    if len == 0 {
        return Err(libc::EINVAL);
    }
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let at = real(writable, flags | libc::MAP_ANONYMOUS, -1, 0);
    if at == libc::MAP_FAILED {
        return Err(abi::errno());
    }
    let filled = abi::room(at, len).and_then(|room| fill(h, room, start));
    // SAFETY: the mapping just made, of `len` bytes; nobody else knows of it yet.
    unsafe {
        if let Err(code) = filled {
            libc::munmap(at, len);
            return Err(code);
        }
        if prot != writable && libc::mprotect(at, len, prot) != 0 {
            let code = abi::errno();
            libc::munmap(at, len);
            return Err(code);
        }
    }
    Ok(at)
}

fn fill(h: Handle, mut room: &mut [u8], mut off: u64) -> Res<()> {
    while !room.is_empty() {
        let n = device::on(|d| d.read(h, At::Offset(off), &mut *room))?;
        if n == 0 {
            return Ok(());
        }
        room = &mut room[n..];
        off += n as u64;
    }
    Ok(())
}

fn map_or_fail(h: Handle, len: usize, prot: c_int, flags: c_int, off: off_t, real: &Mmap<'_>) -> *mut c_void {
    match map(h, len, prot, flags, off, real) {
        Ok(at) => at,
        Err(code) => {
            let _: *mut c_void = fail(code);
            libc::MAP_FAILED
        }
    }
}

hook! { real;
    fn mmap(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, off: off_t) -> *mut c_void {
        if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || !crate::table::ours(fd) {
            return real(addr, len, prot, flags, fd, off);
        }
        let h = ours!(fd, else libc::MAP_FAILED);
        map_or_fail(h, len, prot, flags, off, &|prot, flags, fd, off| real(addr, len, prot, flags, fd, off))
    }
    fn mmap64(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, off: off_t) -> *mut c_void {
        if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || !crate::table::ours(fd) {
            return real(addr, len, prot, flags, fd, off);
        }
        let h = ours!(fd, else libc::MAP_FAILED);
        map_or_fail(h, len, prot, flags, off, &|prot, flags, fd, off| real(addr, len, prot, flags, fd, off))
    }
}
