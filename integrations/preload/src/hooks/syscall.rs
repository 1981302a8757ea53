//! syscall(2) as a function: programs use it for calls that libc had no name for. The common ones that name files or
//! descriptors go through the hooks; every other number is the kernel's.

use crate::abi::hook;
use crate::table;
use libc::{c_int, c_long};

fn number(a: usize) -> c_int {
    a as c_int
}

/// The calls we know; `None` for the rest.
fn known(call: c_long, a: [usize; 6]) -> Option<c_long> {
    let fd = number(a[0]);
    Some(match call {
        libc::SYS_read if table::ours(fd) => super::rw::read(fd, a[1] as _, a[2]) as _,
        libc::SYS_write if table::ours(fd) => super::rw::write(fd, a[1] as _, a[2]) as _,
        libc::SYS_pread64 if table::ours(fd) => super::rw::pread64(fd, a[1] as _, a[2], a[3] as _) as _,
        libc::SYS_pwrite64 if table::ours(fd) => super::rw::pwrite64(fd, a[1] as _, a[2], a[3] as _) as _,
        libc::SYS_close if table::ours(fd) => c_long::from(super::close(fd)),
        libc::SYS_openat => c_long::from(super::open::openat64(fd, a[1] as _, number(a[2]), a[3] as _)),
        libc::SYS_statx => c_long::from(super::stat::statx(fd, a[1] as _, number(a[2]), a[3] as _, a[4] as _)),
        libc::SYS_renameat2 => c_long::from(super::names::renameat2(fd, a[1] as _, number(a[2]), a[3] as _, a[4] as _)),
        libc::SYS_unlinkat => c_long::from(super::names::unlinkat(fd, a[1] as _, number(a[2]))),
        libc::SYS_mkdirat => c_long::from(super::names::mkdirat(fd, a[1] as _, a[2] as _)),
        libc::SYS_getdents64 => super::directory::getdents64(fd, a[1] as _, a[2]) as _,
        libc::SYS_copy_file_range => {
            super::copy::copy_file_range(fd, a[1] as _, number(a[2]), a[3] as _, a[4], a[5] as _) as _
        }
        libc::SYS_faccessat2 => c_long::from(super::stat::faccessat(fd, a[1] as _, number(a[2]), number(a[3]))),
        libc::SYS_fchmodat2 => c_long::from(super::attr::fchmodat(fd, a[1] as _, a[2] as _, number(a[3]))),
        libc::SYS_fallocate => c_long::from(super::sync::fallocate64(fd, number(a[1]), a[2] as _, a[3] as _)),
        // The kernel would say of a placeholder that all of it is written.
        libc::SYS_fsync if table::ours(fd) => c_long::from(super::sync::fsync(fd)),
        libc::SYS_fdatasync if table::ours(fd) => c_long::from(super::sync::fdatasync(fd)),
        libc::SYS_syncfs if table::ours(fd) => c_long::from(super::sync::syncfs(fd)),
        libc::SYS_sync_file_range if table::ours(fd) => {
            c_long::from(super::sync::sync_file_range(fd, a[1] as _, a[2] as _, a[3] as _))
        }
        libc::SYS_syncfs | libc::SYS_sync => {
            super::sync::sync_device("sync");
            return None;
        }
        // Only what is ours: another library's mmap may itself be made of this call (tcmalloc's is), and be asked.
        libc::SYS_mmap if number(a[3]) & libc::MAP_ANONYMOUS == 0 && table::ours(number(a[4])) => {
            super::map::mmap(a[0] as _, a[1], number(a[2]), number(a[3]), number(a[4]), a[5] as _) as _
        }
        libc::SYS_close_range => c_long::from(super::open::close_range(a[0] as _, a[1] as _, number(a[2]))),
        // openat2's constraints have no counterpart; refusing sends programs to openat.
        libc::SYS_openat2 if touches(fd, a[1]) => crate::abi::fail(libc::ENOSYS),
        libc::SYS_ioctl | libc::SYS_fcntl | libc::SYS_lseek if table::ours(fd) => match call {
            libc::SYS_lseek => super::rw::lseek64(fd, a[1] as _, number(a[2])),
            libc::SYS_fcntl => c_long::from(super::fcntl::fcntl64(fd, number(a[1]), a[2])),
            _ => c_long::from(super::fcntl::ioctl(fd, a[1] as _, a[2] as _)),
        },
        _ => return None,
    })
}

/// Whether a raw call names something of ours.
fn touches(dirfd: c_int, path: usize) -> bool {
    let Ok(name) = crate::abi::text(path as *const libc::c_char) else { return false };
    matches!(crate::names::locate(dirfd, name), Ok(crate::names::Place::Device(_)))
}

hook! { real;
    fn syscall(call: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        // Before the settings are read (they are read by us, without this function) nothing is ours.
        known(call, [a, b, c, d, e, f]).unwrap_or_else(|| real(call, a, b, c, d, e, f))
    }
}
