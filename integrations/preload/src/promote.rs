//! Promotion: a descriptor of the device becomes the kernel's own, of the same file, opened through a mount of the same
//! device. For what only the kernel can do with a file: map it shared, move it between pipes.
//!
//! It holds for a file, and for as long as the process lives: every descriptor of it that the process has is promoted,
//! and so is each that it opens later, or the process would see its file by two ways, of which one keeps pages. What
//! is left with the device are the locks: they were taken by this process's session, and stay there.

use crate::abi::Res;
use crate::table::Open;
use crate::{config, device, path, report, sys, table};
use libc::c_int;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs_ciscops::flags::{OpenFlags, Whence};
use weldfs_locks::{Mutex, MutexGuard};

/// Files that a process may promote.
const FILES_MAX: usize = 4096;

/// The files of this process that are promoted, by inode number. One promotion at a time holds it.
static FILES: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// Whether there is any.
static ANY: AtomicBool = AtomicBool::new(false);
/// The mount as stat(2) knows it.
static DEVICE: OnceLock<Option<u64>> = OnceLock::new();

/// Whether there is a mount of the device.
#[inline]
pub fn possible() -> bool {
    mount().is_some()
}

fn mount() -> Option<&'static [u8]> {
    config::get()?.mount.as_deref()
}

/// The name by which the kernel finds what lies at an absolute name inside the device; none without a mount.
pub fn kernel_name(inner: &[u8]) -> Option<CString> {
    CString::new(path::outside(mount()?, inner)).ok()
}

/// Whether the kernel finds everything under the names that this library gives it.
pub fn same_names() -> bool {
    config::get().is_some_and(|c| c.mount.as_deref() == Some(&*c.prefix))
}

/// The number that files have as st_dev: the mount's, where there is one, so that a file is one file whichever way it
/// is looked at; else the one that the device says.
pub fn st_dev(said: u64) -> u64 {
    if !possible() {
        return said;
    }
    let of_mount = || Some(looked_at(&open(&kernel_name(b"/")?, libc::O_PATH | libc::O_CLOEXEC).ok()?).ok()?.st_dev);
    DEVICE.get_or_init(of_mount).unwrap_or(said)
}

fn open(name: &CStr, flags: c_int) -> Res<OwnedFd> {
    let at = [libc::AT_FDCWD as usize, name.as_ptr() as usize, flags as usize, 0, 0, 0];
    let fd = sys::checked(libc::SYS_openat, at)?;
    // SAFETY: the descriptor just made, which nothing else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

fn looked_at(fd: &OwnedFd) -> Res<libc::stat> {
    let mut st: libc::stat = crate::abi::zeroed();
    sys::checked(libc::SYS_fstat, [fd.as_raw_fd() as usize, &raw mut st as usize, 0, 0, 0, 0])?;
    Ok(st)
}

/// Promotes the file behind a descriptor. ENODEV where that cannot be: no mount, no name by which this process knows
/// the file, or another file has that name now.
pub fn promote(fd: c_int) -> Res<()> {
    if !possible() {
        return Err(libc::ENODEV);
    }
    let mut files = FILES.lock();
    if table::promoted(fd).is_some() {
        return Ok(());
    }
    let body = device::on_fd(fd, |d, h| d.stat(h))?;
    if body.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(libc::ENODEV);
    }
    // First of all: what another thread opens from now on waits here, and is promoted then.
    if !files.contains(&body.ino) {
        if files.len() >= FILES_MAX {
            return Err(libc::ENODEV);
        }
        files.push(body.ino);
        ANY.store(true, Ordering::SeqCst);
    }
    for (open, fd) in table::opens() {
        // One that another thread has closed meanwhile is no error of this call's.
        if device::on_fd(fd, |d, h| d.stat(h)).is_ok_and(|body_of| body_of.ino == body.ino) {
            become_the_kernels(open, fd, body.ino).map_err(as_refusal)?;
        }
    }
    report::promoted();
    Ok(())
}

/// What a call that needs a promotion fails with.
fn as_refusal(code: c_int) -> c_int {
    if matches!(code, libc::EMFILE | libc::ENFILE | libc::ENOMEM) { code } else { libc::ENODEV }
}

/// After an open: a file that is promoted is promoted by this descriptor, too.
pub fn opened(fd: c_int) -> Res<()> {
    if !ANY.load(Ordering::SeqCst) {
        return Ok(());
    }
    let files = FILES.lock();
    let Some(open) = table::entry(fd) else { return Ok(()) };
    let body = device::on_fd(fd, |d, h| d.stat(h))?;
    if body.mode & libc::S_IFMT != libc::S_IFREG || !files.contains(&body.ino) {
        return Ok(());
    }
    become_the_kernels(open, fd, body.ino).map_err(|code| report::refuse(code, "opening a file that is mapped shared"))
}

/// Puts the kernel's own open file under every number of one of ours.
fn become_the_kernels(open_file: &'static Open, fd: c_int, ino: u64) -> Res<()> {
    let flags = OpenFlags::from_bits_truncate(open_file.flags.load(Ordering::Relaxed) as u16);
    if flags.contains(OpenFlags::PATH) {
        // It reads and writes nothing.
        return Ok(());
    }
    let name = open_file.name().ok_or(libc::ENODEV)?;
    let name = kernel_name(&name).ok_or(libc::ENODEV)?;
    // Looked at before it is opened: whatever has that name by now is not to be touched.
    let place = open(&name, libc::O_PATH | libc::O_CLOEXEC)?;
    let found = looked_at(&place)?;
    if found.st_ino != ino || found.st_dev != st_dev(0) {
        return Err(libc::ENODEV);
    }
    let once = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC | OpenFlags::TMPFILE | OpenFlags::NOFOLLOW;
    let name = CString::new(format!("/proc/self/fd/{}", place.as_raw_fd())).map_err(|_| libc::EINVAL)?;
    let real = open(&name, flags.difference(once).to_linux() | libc::O_CLOEXEC)?;
    let at = device::on_fd(fd, |d, h| d.seek(h, Whence::Cur, 0))?;
    sys::checked(libc::SYS_lseek, [real.as_raw_fd() as usize, at as usize, libc::SEEK_SET as usize, 0, 0, 0])?;
    table::promote(open_file, |number| put_at(&real, number))
}

/// Makes `number` a descriptor of `real`; whether exec closes it stays as it is.
fn put_at(real: &OwnedFd, number: c_int) -> Res<()> {
    let flags = sys::checked(libc::SYS_fcntl, [number as usize, libc::F_GETFD as usize, 0, 0, 0, 0])?;
    let cloexec = if flags as c_int & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    sys::checked(libc::SYS_dup3, [real.as_raw_fd() as usize, number as usize, cloexec as usize, 0, 0, 0]).map(drop)
}

/// A duplicate that was made of a descriptor while it was being promoted is made again.
pub fn duplicated(old: c_int, new: c_int) -> Res<()> {
    if table::promoted(new).is_none() {
        return Ok(());
    }
    let flags = sys::checked(libc::SYS_fcntl, [new as usize, libc::F_GETFD as usize, 0, 0, 0, 0])?;
    let cloexec = if flags as c_int & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    sys::checked(libc::SYS_dup3, [old as usize, new as usize, cloexec as usize, 0, 0, 0]).map(drop)
}

/// This module's lock while the process forks.
pub type Held = MutexGuard<'static, Vec<u64>>;

/// Takes it before a fork, and before the locks of the table, so that the child finds it free.
pub fn before_fork() -> Held {
    FILES.lock()
}
