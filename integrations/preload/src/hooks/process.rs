//! Birth of processes: what a new one must be told, and what a forked one must forget.

use crate::abi::{self, hook};
use crate::{config, cwd, device, fdname, hooks, promote, stdio, sys, table};
use libc::{c_char, c_int, pid_t};
use std::cell::Cell;
use std::ffi::CString;
use std::mem::ManuallyDrop;

/// Runs when the library is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Outside `weldfs run` this is all that ever happens.
#[cfg_attr(test, allow(dead_code))]
extern "C" fn start() {
    if config::get().is_none() {
        return;
    }
    hooks::find_what_allocators_call();
    // A lazy allocator sets itself up now and registers its own handlers of fork, which must run after ours in the
    // parent: a thread may hold a lock of ours while it waits for memory, so ours are taken first.
    std::hint::black_box(Box::new(0u64));
    adopt_inherited();
    cwd::inherit();
    // SAFETY: three functions of the right type that live for ever.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child)) };
    (0..=2).for_each(stdio::number_taken);
}

thread_local! {
    /// The locks of four modules, in the order they are taken, while this thread forks. Without a destructor: a
    /// program's thread ends without a call of this library.
    static HELD: Cell<ManuallyDrop<Option<(promote::Held, table::Held, device::Held, stdio::Held)>>> =
        const { Cell::new(ManuallyDrop::new(None)) };
}

extern "C" fn before_fork() {
    let held = (promote::before_fork(), table::before_fork(), device::before_fork(), stdio::before_fork());
    HELD.set(ManuallyDrop::new(Some(held)));
}

extern "C" fn after_fork_parent() {
    after_fork(false);
}

extern "C" fn after_fork_child() {
    after_fork(true);
}

fn after_fork(child: bool) {
    let held = HELD.replace(ManuallyDrop::new(None));
    if let Some((promote, table, device, stdio)) = ManuallyDrop::into_inner(held) {
        drop(stdio);
        device::after_fork(device, child);
        table::after_fork(table, child);
        drop(promote);
    }
}

/// Notes every inherited descriptor that stands for a file in the device.
fn adopt_inherited() {
    let mut room = [0u8; 8192];
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let at = [libc::AT_FDCWD as usize, c"/proc/self/fd".as_ptr() as usize, flags as usize, 0, 0, 0];
    let Ok(dir) = sys::checked(libc::SYS_openat, at) else { return };
    loop {
        let args = [dir, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
        let n = sys::checked(libc::SYS_getdents64, args).unwrap_or(0);
        if n == 0 {
            break;
        }
        let mut entries = &room[..n];
        while let Some((name, rest)) = next_name(entries) {
            if let Some(fd) = std::str::from_utf8(name).ok().and_then(|s| s.parse().ok()) {
                adopt(fd);
            }
            entries = rest;
        }
    }
    let _ = sys::close(dir as c_int);
}

/// The name of the first entry of a getdents64 buffer, and what follows the entry.
fn next_name(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    const NAME: usize = 19;
    let len = usize::from(u16::from_ne_bytes([*entries.get(16)?, *entries.get(17)?]));
    let (entry, rest) = (entries.get(NAME..len)?, entries.get(len..)?);
    let end = entry.iter().position(|b| *b == 0)?;
    Some((&entry[..end], rest))
}

/// Notes one descriptor if it is a placeholder.
pub fn adopt(fd: c_int) {
    let mut room = [0u8; 64];
    if sys::fd_target(fd, &mut room).is_ok_and(|target| target == fdname::PLACEHOLDER) {
        let _ = table::insert(fd, None, b"");
    }
}

/// Before libc starts a shell by itself: the environment says where we stand.
fn tell_environment() {
    const NAME: &std::ffi::CStr = c"WELDFS_CWD";
    let here = cwd::inside().and_then(|name| CString::new(name).ok());
    // SAFETY: setenv and unsetenv as the program itself might call them here.
    unsafe {
        match &here {
            Some(name) => drop(libc::setenv(NAME.as_ptr(), name.as_ptr(), 1)),
            None if abi::env(NAME).is_some() => drop(libc::unsetenv(NAME.as_ptr())),
            None => {}
        }
    }
}

hook! { real;
    fn vfork() -> pid_t {
        // A child that borrows its parent's memory would confuse the two's tables.
        // SAFETY: fork has no precondition.
        unsafe { libc::fork() }
    }
    fn __vfork() -> pid_t {
        // SAFETY: as above.
        unsafe { libc::fork() }
    }
    fn system(command: *const c_char) -> c_int {
        tell_environment();
        real(command)
    }
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        tell_environment();
        real(command, mode)
    }
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
        let n = real(fd, message, flags);
        if n >= 0 && config::get().is_some() {
            adopt_received(message);
        }
        n
    }
}

/// Descriptors that came over a socket may be placeholders, too.
fn adopt_received(message: *mut libc::msghdr) {
    // SAFETY: the kernel has just filled the message; the macros walk what it says is there.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            if (*at).cmsg_level == libc::SOL_SOCKET && (*at).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*at).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let fds: *const c_int = libc::CMSG_DATA(at).cast();
                for i in 0..bytes / size_of::<c_int>() {
                    adopt(fds.add(i).read_unaligned());
                }
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_entries_of_the_kernel_are_parsed_to_the_end_and_no_further() {
        let mut raw = vec![0u8; 24];
        (raw[16], raw[19], raw[20]) = (24, b'1', b'2');
        let (name, rest) = next_name(&raw).unwrap();
        assert_eq!((name, rest.len()), (&b"12"[..], 0));
        assert_eq!(next_name(rest), None);
        raw[16] = 200;
        assert_eq!(next_name(&raw), None);
    }
}
