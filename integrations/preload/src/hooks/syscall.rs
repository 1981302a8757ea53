//! syscall(2) as a function: programs use it for calls that libc had no name for. Calls that name files or descriptors
//! go through the hooks; every other number is the kernel's.

use crate::abi::hook;
use crate::{config, cwd, table};
use libc::{c_char, c_int, c_long};

fn number(a: usize) -> c_int {
    a as c_int
}

fn answer(n: c_int) -> c_long {
    c_long::from(n)
}

/// Calls about a descriptor, where it is ours.
fn on_descriptor(call: c_long, fd: c_int, a: [usize; 6]) -> Option<c_long> {
    Some(match call {
        libc::SYS_read => super::rw::read(fd, a[1] as _, a[2]) as _,
        libc::SYS_write => super::rw::write(fd, a[1] as _, a[2]) as _,
        libc::SYS_pread64 => super::rw::pread64(fd, a[1] as _, a[2], a[3] as _) as _,
        libc::SYS_pwrite64 => super::rw::pwrite64(fd, a[1] as _, a[2], a[3] as _) as _,
        libc::SYS_readv => super::rw::readv(fd, a[1] as _, number(a[2])) as _,
        libc::SYS_writev => super::rw::writev(fd, a[1] as _, number(a[2])) as _,
        libc::SYS_preadv => super::rw::preadv64(fd, a[1] as _, number(a[2]), a[3] as _) as _,
        libc::SYS_pwritev => super::rw::pwritev64(fd, a[1] as _, number(a[2]), a[3] as _) as _,
        libc::SYS_preadv2 => super::rw::preadv64v2(fd, a[1] as _, number(a[2]), a[3] as _, number(a[5])) as _,
        libc::SYS_pwritev2 => super::rw::pwritev64v2(fd, a[1] as _, number(a[2]), a[3] as _, number(a[5])) as _,
        libc::SYS_lseek => super::rw::lseek64(fd, a[1] as _, number(a[2])),
        libc::SYS_close => answer(super::close(fd)),
        libc::SYS_dup => answer(super::open::dup(fd)),
        libc::SYS_dup3 => answer(super::open::dup3(fd, number(a[1]), number(a[2]))),
        libc::SYS_fcntl => answer(super::fcntl::fcntl64(fd, number(a[1]), a[2])),
        libc::SYS_ioctl => answer(super::fcntl::ioctl(fd, a[1] as _, a[2] as _)),
        libc::SYS_flock => answer(super::fcntl::flock(fd, number(a[1]))),
        libc::SYS_fstat => answer(super::stat::fstat64(fd, a[1] as _)),
        libc::SYS_fstatfs => answer(super::stat::fstatfs64(fd, a[1] as _)),
        libc::SYS_ftruncate => answer(super::attr::ftruncate64(fd, a[1] as _)),
        libc::SYS_fchmod => answer(super::attr::fchmod(fd, a[1] as _)),
        libc::SYS_fchown => answer(super::attr::fchown(fd, a[1] as _, a[2] as _)),
        libc::SYS_fallocate => answer(super::sync::fallocate64(fd, number(a[1]), a[2] as _, a[3] as _)),
        // The kernel would say of a placeholder that all of it is written.
        libc::SYS_fsync => answer(super::sync::fsync(fd)),
        libc::SYS_fdatasync => answer(super::sync::fdatasync(fd)),
        libc::SYS_sync_file_range => answer(super::sync::sync_file_range(fd, a[1] as _, a[2] as _, a[3] as _)),
        libc::SYS_syncfs => answer(super::sync::syncfs(fd)),
        libc::SYS_fadvise64 => answer(super::sync::posix_fadvise64(fd, a[1] as _, a[2] as _, number(a[3]))),
        libc::SYS_readahead => super::sync::readahead(fd, a[1] as _, a[2]) as _,
        libc::SYS_getdents64 => super::directory::getdents64(fd, a[1] as _, a[2]) as _,
        libc::SYS_fgetxattr => super::xattr::fgetxattr(fd, a[1] as _, a[2] as _, a[3]) as _,
        libc::SYS_fsetxattr => answer(super::xattr::fsetxattr(fd, a[1] as _, a[2] as _, a[3], number(a[4]))),
        libc::SYS_flistxattr => super::xattr::flistxattr(fd, a[1] as _, a[2]) as _,
        libc::SYS_fremovexattr => answer(super::xattr::fremovexattr(fd, a[1] as _)),
        _ => return None,
    })
}

/// Calls about a name seen from a directory descriptor, which the hooks send to the side that has it.
fn on_name(call: c_long, dir: c_int, a: [usize; 6]) -> Option<c_long> {
    let path = a[1] as *const c_char;
    Some(match call {
        libc::SYS_openat => answer(super::open::openat64(dir, path, number(a[2]), a[3] as _)),
        libc::SYS_statx => answer(super::stat::statx(dir, path, number(a[2]), a[3] as _, a[4] as _)),
        libc::SYS_newfstatat => answer(super::stat::fstatat64(dir, path, a[2] as _, number(a[3]))),
        libc::SYS_faccessat => answer(super::stat::faccessat(dir, path, number(a[2]), 0)),
        libc::SYS_faccessat2 => answer(super::stat::faccessat(dir, path, number(a[2]), number(a[3]))),
        libc::SYS_fchmodat => answer(super::attr::fchmodat(dir, path, a[2] as _, 0)),
        libc::SYS_fchmodat2 => answer(super::attr::fchmodat(dir, path, a[2] as _, number(a[3]))),
        libc::SYS_fchownat => answer(super::attr::fchownat(dir, path, a[2] as _, a[3] as _, number(a[4]))),
        libc::SYS_utimensat if !path.is_null() => answer(super::attr::utimensat(dir, path, a[2] as _, number(a[3]))),
        libc::SYS_utimensat => answer(super::attr::futimens(dir, a[2] as _)),
        libc::SYS_unlinkat => answer(super::names::unlinkat(dir, path, number(a[2]))),
        libc::SYS_mkdirat => answer(super::names::mkdirat(dir, path, a[2] as _)),
        libc::SYS_mknodat => answer(super::names::mknodat(dir, path, a[2] as _, a[3] as _)),
        libc::SYS_readlinkat => super::names::readlinkat(dir, path, a[2] as _, a[3]) as _,
        libc::SYS_symlinkat => answer(super::names::symlinkat(a[0] as _, number(a[1]), a[2] as _)),
        libc::SYS_linkat => answer(super::names::linkat(dir, path, number(a[2]), a[3] as _, number(a[4]))),
        libc::SYS_renameat2 => answer(super::names::renameat2(dir, path, number(a[2]), a[3] as _, a[4] as _)),
        libc::SYS_execveat => answer(super::exec::execveat(dir, path, a[2] as _, a[3] as _, number(a[4]))),
        libc::SYS_name_to_handle_at => {
            answer(super::unheld::name_to_handle_at(dir, path, a[2] as _, a[3] as _, number(a[4])))
        }
        libc::SYS_inotify_add_watch => answer(super::unheld::inotify_add_watch(dir, path, a[2] as _)),
        libc::SYS_copy_file_range => {
            super::copy::copy_file_range(dir, a[1] as _, number(a[2]), a[3] as _, a[4], a[5] as _) as _
        }
        libc::SYS_sendfile => super::copy::sendfile64(dir, number(a[1]), a[2] as _, a[3]) as _,
        libc::SYS_splice => super::copy::splice(dir, a[1] as _, number(a[2]), a[3] as _, a[4], a[5] as _) as _,
        libc::SYS_close_range => answer(super::open::close_range(a[0] as _, a[1] as _, number(a[2]))),
        _ => return None,
    })
}

/// Calls about a name seen from the working directory.
fn on_path(call: c_long, a: [usize; 6]) -> Option<c_long> {
    let path = a[0] as *const c_char;
    Some(match call {
        libc::SYS_truncate => answer(super::attr::truncate64(path, a[1] as _)),
        libc::SYS_statfs => answer(super::stat::statfs64(path, a[1] as _)),
        libc::SYS_getcwd if cwd::is_inside() => {
            let name = super::cwd::getcwd(a[0] as _, a[1]);
            crate::memory::text_len(name).map_or(-1, |n| 1 + n as c_long)
        }
        libc::SYS_umask => c_long::from(super::open::umask(a[0] as _)),
        libc::SYS_exit_group => {
            super::ending::leave();
            return None;
        }
        libc::SYS_chdir => answer(super::cwd::chdir(path)),
        libc::SYS_fchdir => answer(super::cwd::fchdir(number(a[0]))),
        libc::SYS_chroot => answer(super::cwd::chroot(path)),
        libc::SYS_execve => answer(super::exec::execve(path, a[1] as _, a[2] as _)),
        libc::SYS_getxattr => super::xattr::getxattr(path, a[1] as _, a[2] as _, a[3]) as _,
        libc::SYS_lgetxattr => super::xattr::lgetxattr(path, a[1] as _, a[2] as _, a[3]) as _,
        libc::SYS_setxattr => answer(super::xattr::setxattr(path, a[1] as _, a[2] as _, a[3], number(a[4]))),
        libc::SYS_lsetxattr => answer(super::xattr::lsetxattr(path, a[1] as _, a[2] as _, a[3], number(a[4]))),
        libc::SYS_listxattr => super::xattr::listxattr(path, a[1] as _, a[2]) as _,
        libc::SYS_llistxattr => super::xattr::llistxattr(path, a[1] as _, a[2]) as _,
        libc::SYS_removexattr => answer(super::xattr::removexattr(path, a[1] as _)),
        libc::SYS_lremovexattr => answer(super::xattr::lremovexattr(path, a[1] as _)),
        _ => return None,
    })
}

/// Calls that newer machines do not have.
#[cfg(target_arch = "x86_64")]
fn old(call: c_long, a: [usize; 6]) -> Option<c_long> {
    let path = a[0] as *const c_char;
    Some(match call {
        libc::SYS_open => answer(super::open::open64(path, number(a[1]), a[2] as _)),
        libc::SYS_creat => answer(super::open::creat64(path, a[1] as _)),
        libc::SYS_stat => answer(super::stat::stat64(path, a[1] as _)),
        libc::SYS_lstat => answer(super::stat::lstat64(path, a[1] as _)),
        libc::SYS_access => answer(super::stat::access(path, number(a[1]))),
        libc::SYS_mkdir => answer(super::names::mkdir(path, a[1] as _)),
        libc::SYS_rmdir => answer(super::names::rmdir(path)),
        libc::SYS_unlink => answer(super::names::unlink(path)),
        libc::SYS_rename => answer(super::names::rename(path, a[1] as _)),
        libc::SYS_renameat => answer(super::names::renameat(number(a[0]), a[1] as _, number(a[2]), a[3] as _)),
        libc::SYS_link => answer(super::names::link(path, a[1] as _)),
        libc::SYS_symlink => answer(super::names::symlink(path, a[1] as _)),
        libc::SYS_readlink => super::names::readlink(path, a[1] as _, a[2]) as _,
        libc::SYS_mknod => answer(super::names::mknod(path, a[1] as _, a[2] as _)),
        libc::SYS_chmod => answer(super::attr::chmod(path, a[1] as _)),
        libc::SYS_chown => answer(super::attr::chown(path, a[1] as _, a[2] as _)),
        libc::SYS_lchown => answer(super::attr::lchown(path, a[1] as _, a[2] as _)),
        libc::SYS_utime => answer(super::attr::utime(path, a[1] as _)),
        libc::SYS_utimes => answer(super::attr::utimes(path, a[1] as _)),
        libc::SYS_futimesat => answer(super::attr::futimesat(number(a[0]), a[1] as _, a[2] as _)),
        libc::SYS_fork | libc::SYS_vfork => {
            crate::hooks::before_others();
            crate::promotion::born();
            return None;
        }
        libc::SYS_dup2 => answer(super::open::dup2(number(a[0]), number(a[1]))),
        _ => return None,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn old(_: c_long, _: [usize; 6]) -> Option<c_long> {
    None
}

/// The calls we know; `None` for the rest.
fn known(call: c_long, a: [usize; 6]) -> Option<c_long> {
    let fd = number(a[0]);
    match call {
        libc::SYS_sync => {
            super::sync::sync();
            return Some(0);
        }
        libc::SYS_syncfs => return Some(answer(super::sync::syncfs(fd))),
        // Only what is ours: another library's mmap may itself be made of this call (tcmalloc's is), and be asked.
        libc::SYS_mmap => {
            let file = number(a[3]) & libc::MAP_ANONYMOUS == 0 && table::ours(number(a[4]));
            return file
                .then(|| super::map::mmap(a[0] as _, a[1], number(a[2]), number(a[3]), number(a[4]), a[5] as _) as _);
        }
        libc::SYS_io_setup | libc::SYS_io_uring_setup => {
            let answer = crate::promote::may_ring().and_then(|()| crate::sys::checked(call, a));
            if answer.is_ok() {
                crate::promote::rings();
            }
            return Some(crate::abi::count(answer) as c_long);
        }
        libc::SYS_close if weldfs::kept::is_kept(fd) => return Some(answer(super::open::close(fd))),
        libc::SYS_clone | libc::SYS_clone3 => {
            crate::hooks::before_others();
            crate::promotion::born();
            return None;
        }
        libc::SYS_sendmsg => return Some(super::process::sendmsg(fd, a[1] as _, number(a[2])) as _),
        libc::SYS_sendmmsg => return Some(answer(super::process::sendmmsg(fd, a[1] as _, a[2] as _, number(a[3])))),
        libc::SYS_setrlimit | libc::SYS_prlimit64 => {
            let answer = crate::sys::checked(call, a);
            crate::limit::learn();
            return Some(crate::abi::count(answer) as c_long);
        }
        libc::SYS_dup3 => return Some(answer(super::open::dup3(fd, number(a[1]), number(a[2])))),
        libc::SYS_openat2 => {
            return super::openat2::openat2(fd, a[1] as _, a[2], a[3]).map(|fd| answer(crate::abi::give(fd)));
        }
        _ => {}
    }
    if table::ours(fd)
        && let Some(answer) = on_descriptor(call, fd, a)
    {
        return Some(answer);
    }
    on_name(call, fd, a).or_else(|| on_path(call, a)).or_else(|| old(call, a))
}

hook! { real;
    fn syscall(call: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        // Before the settings are read (they are read by us, without this function) nothing is ours.
        if config::get().is_none() {
            return real(call, a, b, c, d, e, f);
        }
        known(call, [a, b, c, d, e, f]).unwrap_or_else(|| real(call, a, b, c, d, e, f))
    }
}
