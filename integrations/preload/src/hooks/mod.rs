//! One file per family of libc functions. A hook finds out whose the name or descriptor is, then either calls libc's
//! own function or says the same thing to the device.

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
mod map;
mod names;
mod open;
mod openat2;
mod process;
mod rw;
mod spawn;
mod stat;
mod stdio;
mod sync;
mod syscall;
mod temp;
mod unheld;
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
        open: open open64 openat close;
        rw: read write pread lseek;
        fcntl: fcntl fcntl64 ioctl;
        names: readlink unlink;
        stat: access stat fstat;
        syscall: syscall;
    }
}

/// This session's handle behind a descriptor; returns from the hook when the descriptor is the kernel's or its claim
/// failed.
macro_rules! ours {
    ($fd:expr, else $host:expr) => {
        match $crate::device::handle($fd) {
            None => return $host,
            Some(Ok(handle)) => handle,
            Some(Err(code)) => return $crate::abi::fail(code),
        }
    };
}
pub(crate) use ours;

pub(crate) use open::{close, dup2};
pub(crate) use rw::{lseek64, read, write};
