//! Durability and space: fsync and its kin, fallocate, advice.

use super::ours;
use crate::abi::{self, Res, done, hook};
use crate::{atomic, config, device, limit, merge, promote, registry, report, sys, table};
use libc::{c_int, c_uint, off_t};
use weldfs::Raw;
use weldfs_ciscops::flags::{FallocMode, OpenFlags};
use weldfs_ciscops::{Errno, Handle};

fn extent(off: off_t, len: off_t) -> Res<(u64, u64)> {
    match (u64::try_from(off), u64::try_from(len)) {
        (Ok(off), Ok(len)) if len > 0 => Ok((off, len)),
        _ => Err(libc::EINVAL),
    }
}

fn allocate(fd: c_int, h: Handle, mode: c_int, off: off_t, len: off_t) -> Res<()> {
    let before = registry::stamp();
    let in_kernel = |file: c_int| {
        let args = [file as usize, mode as usize, off as usize, len as usize, 0, 0];
        sys::checked(libc::SYS_fallocate, args).map(drop)
    };
    if let Some(file) = promote::mapped(fd)? {
        return in_kernel(file);
    }
    let (at, len) = extent(off, len)?;
    let mode = match mode {
        0 => FallocMode::Reserve,
        libc::FALLOC_FL_KEEP_SIZE => FallocMode::KeepSize,
        m if m == libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE => FallocMode::Punch,
        libc::FALLOC_FL_ZERO_RANGE => FallocMode::Zero,
        m if m == libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE => FallocMode::ZeroKeepSize,
        _ => return Err(report::decline(libc::EOPNOTSUPP, "this fallocate mode")),
    };
    if matches!(mode, FallocMode::Punch | FallocMode::Zero | FallocMode::ZeroKeepSize) {
        atomic::make();
    }
    if matches!(mode, FallocMode::Reserve | FallocMode::Zero) && super::flags_of(fd).contains(OpenFlags::WRITE) {
        limit::sizable(at.saturating_add(len), || Some(device::on(|d| d.stat(h)).ok()?.size))?;
    }
    merge::note_place(fd, at.saturating_add(len));
    device::on(|d| d.fallocate(h, mode, at, len))?;
    promote::once_more((fd, h), before, in_kernel);
    Ok(())
}

/// posix_fallocate returns its error instead of setting errno.
fn reserve(fd: c_int, h: Handle, off: off_t, len: off_t) -> c_int {
    allocate(fd, h, 0, off, len).err().unwrap_or(0)
}

/// Makes a file persistent: with what is written to mappings of it, where there are any.
fn persist(
    fd: c_int,
    h: Handle,
    number: i64,
    in_device: impl FnOnce(Raw<'static>, Handle) -> Result<(), Errno>,
) -> c_int {
    let go = || match promote::mapped(fd)? {
        Some(file) => {
            // What is mapped is in its file before that has another name.
            let synced = sys::checked(number, [file as usize, 0, 0, 0, 0, 0]).map(drop);
            let made = if atomic::any() { atomic::sync().and(device::on(|d| d.syncfs())) } else { atomic::sync() };
            synced.and(made)
        }
        None => {
            let made = atomic::sync();
            device::on(|d| in_device(d, h)).and(made)
        }
    };
    done(go())
}

/// Behind the host's own sync of a file system: the device too, whether or not this process has used it. The files
/// that are meant may be another's (`echo x > /weld/f; sync`), and a process that never synchronises pays nothing.
pub fn sync_device(call: &str) -> Res<()> {
    if config::get().is_none() {
        return Ok(());
    }
    promote::write_all_back();
    // sync(2) cannot say what failed: the next one that can does.
    let told = call != "sync";
    if !told {
        atomic::make();
    }
    let made = if told { atomic::sync() } else { Ok(()) };
    device::on(|d| d.syncfs()).inspect_err(|_| report::warn(&[call, ": the device did not answer"])).and(made)
}

hook! { real;
    fn fsync(fd: c_int) -> c_int {
        let h = ours!(fd, else real(fd));
        persist(fd, h, libc::SYS_fsync, |d, h| d.fsync(h))
    }
    fn fdatasync(fd: c_int) -> c_int {
        let h = ours!(fd, else real(fd));
        persist(fd, h, libc::SYS_fdatasync, |d, h| d.fdatasync(h))
    }
    fn syncfs(fd: c_int) -> c_int {
        let _ = ours!(fd, else {
            // The host's file system in any case, which may be the run's mount; what failed of either is said.
            let host = real(fd);
            let code = abi::errno();
            let device = sync_device("syncfs");
            if host == 0 {
                return done(device);
            }
            abi::set_errno(code);
            host
        });
        promote::write_all_back();
        let made = atomic::sync();
        done(device::on(|d| d.syncfs()).and(made))
    }
    fn sync() -> () {
        // What mappings hold is the device's then. There is no way to say what failed.
        real();
        let _ = sync_device("sync");
    }
    fn sync_file_range(fd: c_int, off: off_t, len: off_t, flags: c_uint) -> c_int {
        let h = ours!(fd, else real(fd, off, len, flags));
        persist(fd, h, libc::SYS_fdatasync, |d, h| d.fdatasync(h))
    }
    fn fallocate(fd: c_int, mode: c_int, off: off_t, len: off_t) -> c_int {
        let h = ours!(fd, else real(fd, mode, off, len));
        done(allocate(fd, h, mode, off, len))
    }
    fn fallocate64(fd: c_int, mode: c_int, off: off_t, len: off_t) -> c_int {
        let h = ours!(fd, else real(fd, mode, off, len));
        done(allocate(fd, h, mode, off, len))
    }
    fn posix_fallocate(fd: c_int, off: off_t, len: off_t) -> c_int {
        match device::handle(fd) {
            None => real(fd, off, len),
            Some(Ok(_)) if super::is_path(fd) => libc::EBADF,
            Some(Ok(h)) => reserve(fd, h, off, len),
            Some(Err(code)) => code,
        }
    }
    fn posix_fallocate64(fd: c_int, off: off_t, len: off_t) -> c_int {
        match device::handle(fd) {
            None => real(fd, off, len),
            Some(Ok(_)) if super::is_path(fd) => libc::EBADF,
            Some(Ok(h)) => reserve(fd, h, off, len),
            Some(Err(code)) => code,
        }
    }
    fn posix_fadvise(fd: c_int, off: off_t, len: off_t, advice: c_int) -> c_int {
        if table::ours(fd) { 0 } else { real(fd, off, len, advice) }
    }
    fn posix_fadvise64(fd: c_int, off: off_t, len: off_t, advice: c_int) -> c_int {
        if table::ours(fd) { 0 } else { real(fd, off, len, advice) }
    }
    fn readahead(fd: c_int, off: off_t, n: usize) -> isize {
        if table::ours(fd) { 0 } else { real(fd, off, n) }
    }
    fn isatty(fd: c_int) -> c_int {
        if !table::ours(fd) {
            return real(fd);
        }
        abi::set_errno(libc::ENOTTY);
        0
    }
}
