//! One file per family of libc functions. A hook finds out whose the name or descriptor is, then either calls libc's
//! own function or says the same thing to the device.

use weldfs_ciscops::flags::OpenFlags;

mod aio;
mod attr;
mod copy;
mod cwd;
mod directory;
mod ending;
mod exec;
mod fcntl;
mod fts;
mod ftw;
mod library;
mod limits;
mod map;
mod names;
mod needed;
mod open;
mod openat2;
mod process;
mod rings;
mod rw;
mod spawn;
mod stat;
mod stdio;
mod sync;
mod syscall;
mod temp;
mod unheld;
mod unmap;
mod variadic;
mod xattr;

/// Looks up libc's own functions behind those hooks that an allocator may call, so that no such call has to: a lookup
/// waits for the dynamic linker's lock, whose holder may be waiting for the allocator.
pub(crate) fn find_what_allocators_call() {
    macro_rules! find {
        ($($family:ident: $($name:ident)+;)+) => {
            $($(crate::abi::find(&$family::slots::$name, concat!(stringify!($name), "\0"));)+)+
        };
    }
    // Not all there are: each lookup is paid for by every program that starts.
    find! {
        map: mmap mmap64;
        unmap: munmap mprotect mremap madvise;
        open: open open64 openat close;
        rw: read write pread lseek;
        fcntl: fcntl fcntl64 ioctl;
        names: readlink unlink;
        stat: access stat fstat;
        syscall: syscall;
    }
}

/// Before another process may come to have what this one has: its renames are made, and its open files can be found.
pub(crate) fn before_others() {
    crate::atomic::make();
    crate::device::share_all();
}

/// This session's handle behind a descriptor of any kind; returns from the hook when the descriptor is the kernel's or
/// its claim failed.
macro_rules! ours_or_path {
    ($fd:expr, else $host:expr) => {
        match $crate::device::handle($fd) {
            None => return $host,
            Some(Ok(handle)) => handle,
            Some(Err(code)) => return $crate::abi::fail(code),
        }
    };
}
pub(crate) use ours_or_path;

/// As `ours_or_path`, for calls that neither use nor move an offset.
macro_rules! named_alone {
    ($fd:expr, else $host:expr) => {
        match $crate::device::handle_alone($fd) {
            None => return $host,
            Some(Ok(handle)) => handle,
            Some(Err(code)) => return $crate::abi::fail(code),
        }
    };
}
pub(crate) use named_alone;

/// As `ours`, for such calls.
macro_rules! ours_alone {
    ($fd:expr, else $host:expr) => {{
        let handle = $crate::hooks::named_alone!($fd, else $host);
        if $crate::hooks::is_path($fd) {
            return $crate::abi::fail(libc::EBADF);
        }
        handle
    }};
}
pub(crate) use ours_alone;

/// As `ours_or_path`, for calls that a descriptor opened with O_PATH does not have: EBADF.
macro_rules! ours {
    ($fd:expr, else $host:expr) => {{
        let handle = $crate::hooks::ours_or_path!($fd, else $host);
        if $crate::hooks::is_path($fd) {
            return $crate::abi::fail(libc::EBADF);
        }
        handle
    }};
}
pub(crate) use ours;

/// The flags that a descriptor of ours was opened with, or given since, as far as this process knows.
fn flags_of(fd: libc::c_int) -> OpenFlags {
    crate::table::entry(fd).map_or(OpenFlags::empty(), |open| open.status())
}

/// Whether a descriptor of ours only names a file (O_PATH).
#[inline]
pub(crate) fn is_path(fd: libc::c_int) -> bool {
    flags_of(fd).contains(OpenFlags::PATH)
}

pub(crate) use open::{close, dup2};
pub(crate) use rw::{lseek64, read, write};
