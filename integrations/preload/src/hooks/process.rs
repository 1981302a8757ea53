//! Birth of processes: what a new one must be told, and what a forked one must forget.

use super::{ending, library, spawn};
use crate::abi::{self, hook};
use crate::{atomic, config, counts, cwd, device, fdname, hooks, limit, memory, promote, promotion, stdio, sys, table};
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
    let Some(settings) = config::get() else { return };
    memory::learn(abi::environment() as usize);
    limit::learn();
    device::note_process();
    hooks::find_what_allocators_call();
    // A lazy allocator sets itself up now and registers its own handlers of fork, which must run after ours in the
    // parent: a thread may hold a lock of ours while it waits for memory, so ours are taken first.
    std::hint::black_box(Box::new(0u64));
    adopt_inherited();
    cwd::inherit();
    if settings.counting {
        ending::begin();
    }
    // SAFETY: three functions of the right type that live for ever.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child)) };
    (0..=2).for_each(stdio::number_taken);
}

/// Every lock that a thread may hold while another forks, in the order they are taken.
type Held =
    (table::Held, device::Held, stdio::Held, spawn::Held, library::Held, promote::Held, device::Sharing, atomic::Held);

thread_local! {
    /// The locks, while this thread forks. Without a destructor: a program's thread ends without a call of this
    /// library.
    static HELD: Cell<ManuallyDrop<Option<Held>>> =
        const { Cell::new(ManuallyDrop::new(None)) };
}

extern "C" fn before_fork() {
    // Those whose holders may wait for the device come first.
    let streams = (stdio::before_fork(), spawn::before_fork(), library::before_fork(), promote::before_fork());
    let renames = atomic::before_fork();
    let sharing = device::share_before_fork();
    let (table, device) = (table::before_fork(), device::before_fork());
    let held = (table, device, streams.0, streams.1, streams.2, streams.3, sharing, renames);
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
    if let Some((table, device, stdio, spawn, library, promote, sharing, renames)) = ManuallyDrop::into_inner(held) {
        promote::after_fork(promote, child);
        drop((library, spawn, stdio));
        device::after_fork(device, child);
        table::after_fork(table, child);
        if child {
            atomic::born(&renames);
        }
        drop((sharing, renames));
    }
    if child {
        counts::forget();
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
    crate::hooks::before_others();
    promotion::born();
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
    fn _Fork() -> pid_t {
        crate::hooks::before_others();
        promotion::born();
        real()
    }
    fn system(command: *const c_char) -> c_int {
        tell_environment();
        real(command)
    }
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        tell_environment();
        real(command, mode)
    }
    fn daemon(stay: c_int, keep: c_int) -> c_int {
        let answer = real(stay, keep);
        if answer == 0 && stay == 0 {
            cwd::left();
        }
        standard_numbers_changed();
        answer
    }
    fn login_tty(fd: c_int) -> c_int {
        let answer = real(fd);
        standard_numbers_changed();
        answer
    }
    fn forkpty(
        terminal: *mut c_int, name: *mut c_char, modes: *const libc::termios, size: *const libc::winsize,
    ) -> pid_t {
        let pid = real(terminal, name, modes, size);
        if pid == 0 {
            standard_numbers_changed();
        }
        pid
    }
    fn recvmmsg(
        fd: c_int, messages: *mut libc::mmsghdr, n: libc::c_uint, flags: c_int, timeout: *mut libc::timespec,
    ) -> c_int {
        let got = real(fd, messages, n, flags, timeout);
        if got > 0 && config::get().is_some() {
            for i in 0..got as usize {
                // SAFETY: the kernel has just filled the first `got` of the caller's messages.
                adopt_received(unsafe { &raw mut (*messages.add(i)).msg_hdr });
            }
        }
        got
    }
    fn pidfd_getfd(process: c_int, fd: c_int, flags: libc::c_uint) -> c_int {
        let new = real(process, fd, flags);
        if new >= 0 && config::get().is_some() {
            adopt(new);
        }
        new
    }
    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
        if config::get().is_some() && abi::get(message).is_ok_and(|m| gives_away(&m)) {
            crate::hooks::before_others();
            promotion::born();
        }
        real(fd, message, flags)
    }
    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, n: libc::c_uint, flags: c_int) -> c_int {
        if config::get().is_some()
            && let Ok(all) = abi::array(messages.cast_const(), n as usize)
            && all.iter().any(|m| gives_away(&m.msg_hdr))
        {
            crate::hooks::before_others();
            promotion::born();
        }
        real(fd, messages, n, flags)
    }
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
        let n = real(fd, message, flags);
        if n >= 0 && config::get().is_some() {
            adopt_received(message);
        }
        n
    }
}

/// libc has given 0, 1 and 2 another meaning by calls of its own.
fn standard_numbers_changed() {
    if config::get().is_none() {
        return;
    }
    for fd in 0..=2 {
        let mut room = [0u8; 64];
        let inside = sys::fd_target(fd, &mut room).is_ok_and(|target| target == fdname::PLACEHOLDER);
        if table::ours(fd) && !inside {
            super::open::replaced(fd);
        }
        stdio::number_taken(fd);
    }
}

/// Whether descriptors may go with a message: it has room for one beside its data.
fn gives_away(message: &libc::msghdr) -> bool {
    // SAFETY: a computation.
    let least = unsafe { libc::CMSG_LEN(size_of::<c_int>() as u32) } as usize;
    !message.msg_control.is_null() && message.msg_controllen >= least
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
