//! mmap of a file in the device. A shared mapping is the kernel's, through the mount (`promote`). A private one, and
//! where there is no mount, is a mapping of a copy, which is made when the file is mapped.
//!
//! The copy lies in a memfd of its own, not in anonymous memory, so that what the kernel does with a mapped file still
//! holds: pages given up by madvise come back with the file's bytes, and beyond the file's last page there is SIGBUS.
//! It does not follow the file. A private mapping need not; a shared one that can be written to must, and is refused
//! without a mount; a shared one through a descriptor that can only read is granted, and its memory can never be made
//! writable.

use crate::abi::{self, Res, fail, hook};
use crate::{device, mount, promote, report, sys, table};
use libc::{c_int, c_void, off_t};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use weldfs_ciscops::Handle;
use weldfs_ciscops::flags::OpenFlags;

const PAGE: u64 = 4096;
/// What may not be done to a copy any more: also make a read-only mapping of it writable (Linux 5.1).
const SEALS: c_int = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;

/// What a program asks of mmap, but for the address.
#[derive(Clone, Copy)]
struct Wanted {
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    off: off_t,
}

/// Whether a mapping like this can be a copy.
fn check(wanted: &Wanted) -> Res<()> {
    let open = table::entry(wanted.fd).ok_or(libc::EBADF)?;
    let may = OpenFlags::from_bits_truncate(open.flags.load(std::sync::atomic::Ordering::Relaxed) as u16);
    if !may.contains(OpenFlags::READ) || may.contains(OpenFlags::PATH) {
        return Err(libc::EACCES);
    }
    match wanted.flags & libc::MAP_TYPE {
        libc::MAP_PRIVATE => Ok(()),
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => {
            // Through a descriptor that can write, the program expects to see what it writes.
            let changes = wanted.prot & libc::PROT_WRITE != 0 || may.contains(OpenFlags::WRITE);
            if changes {
                Err(report::refuse_unmounted(libc::ENODEV, "a shared mmap that can change the file"))
            } else {
                Ok(())
            }
        }
        _ => Err(libc::EINVAL),
    }
}

/// The kernel's own file for a shared mapping.
fn of_mount(wanted: &Wanted) -> Option<Res<OwnedFd>> {
    let shared = matches!(wanted.flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    if !shared || !mount::at_prefix() || super::is_path(wanted.fd) {
        return None;
    }
    match promote::to_map(wanted.fd) {
        // It does not know the file, or has as many mapped as it lists: as without a mount.
        Err(libc::ENODEV | libc::ENFILE) => None,
        answer => Some(answer),
    }
}

/// A memfd with the file's bytes from `start` on, at most `len` of them.
fn copy(fd: c_int, h: Handle, start: u64, len: usize) -> Res<OwnedFd> {
    let size = device::on(|d| d.stat(h))?.size;
    let there = usize::try_from(size.saturating_sub(start)).map_or(len, |there| there.min(len));
    let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
    let made = sys::checked(libc::SYS_memfd_create, [c"weldfs-map".as_ptr() as usize, flags, 0, 0, 0, 0])?;
    // SAFETY: the descriptor just made, which nothing else knows.
    let copy = unsafe { OwnedFd::from_raw_fd(made as c_int) };
    if there > 0 {
        sys::checked(libc::SYS_ftruncate, [made, there, 0, 0, 0, 0])?;
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let at = sys::checked(libc::SYS_mmap, [0, there, prot as usize, flags as usize, made, 0])?;
        let filled = abi::room(at as *mut c_void, there).and_then(|room| fill(fd, room, start));
        let _ = sys::checked(libc::SYS_munmap, [at, there, 0, 0, 0, 0]);
        filled?;
    }
    sys::checked(libc::SYS_fcntl, [made, libc::F_ADD_SEALS as usize, SEALS as usize, 0, 0, 0])?;
    Ok(copy)
}

/// A file that became shorter meanwhile ends in zeros.
fn fill(fd: c_int, mut room: &mut [u8], mut off: u64) -> Res<()> {
    while !room.is_empty() {
        let n = super::rw::pread64(fd, room.as_mut_ptr().cast(), room.len(), off as off_t);
        let n = usize::try_from(n).map_err(|_| abi::errno())?;
        if n == 0 {
            return Ok(());
        }
        room = &mut room[n..];
        off += n as u64;
    }
    Ok(())
}

/// `real(fd, off)` is mmap with the rest as the caller said it.
fn map(wanted: Wanted, real: impl FnOnce(c_int, off_t) -> *mut c_void) -> *mut c_void {
    // Claimed first, if it was inherited: what it may do is known then.
    if matches!(device::handle(wanted.fd), Some(Ok(_)))
        && let Some(file) = of_mount(&wanted)
    {
        return match file {
            Ok(file) => {
                report::promoted();
                real(file.as_raw_fd(), wanted.off)
            }
            Err(code) => {
                let _: *mut c_void = fail(code);
                libc::MAP_FAILED
            }
        };
    }
    let go = || -> Res<OwnedFd> {
        let handle = device::handle(wanted.fd).ok_or(libc::EBADF)??;
        check(&wanted)?;
        let start = u64::try_from(wanted.off).ok().filter(|o| *o % PAGE == 0).ok_or(libc::EINVAL)?;
        if wanted.len == 0 {
            return Err(libc::EINVAL);
        }
        copy(wanted.fd, handle, start, wanted.len)
    };
    match go() {
        Ok(copy) => real(copy.as_raw_fd(), 0),
        Err(code) => {
            let _: *mut c_void = fail(code);
            libc::MAP_FAILED
        }
    }
}

hook! { real;
    fn mmap(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, off: off_t) -> *mut c_void {
        if flags & libc::MAP_FIXED != 0 {
            crate::memory::changed();
        }
        if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || !table::ours(fd) {
            return real(addr, len, prot, flags, fd, off);
        }
        map(Wanted { len, prot, flags, fd, off }, |fd, off| real(addr, len, prot, flags, fd, off))
    }
    fn mmap64(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, off: off_t) -> *mut c_void {
        if flags & libc::MAP_FIXED != 0 {
            crate::memory::changed();
        }
        if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || !table::ours(fd) {
            return real(addr, len, prot, flags, fd, off);
        }
        map(Wanted { len, prot, flags, fd, off }, |fd, off| real(addr, len, prot, flags, fd, off))
    }
}
