//! Locks on bytes of a file of the host that belong to the open file description: `F_OFD_SETLK`.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Which lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// With other readers.
    Shared,
    /// Alone.
    Exclusive,
    /// None.
    Free,
}

/// Sets or clears it, without waiting; whether it could be had.
pub fn set(file: &File, lock: Lock, start: i64, len: i64) -> io::Result<bool> {
    let kind = match lock {
        Lock::Shared => libc::F_RDLCK,
        Lock::Exclusive => libc::F_WRLCK,
        Lock::Free => libc::F_UNLCK,
    };
    let flock = libc::flock {
        l_type: kind as _,
        l_whence: libc::SEEK_SET as _,
        l_start: start,
        l_len: len,
        // Must be zero for locks of descriptions.
        l_pid: 0,
    };
    // SAFETY: a descriptor that `file` keeps open, and a structure of the type that the command takes, which it reads.
    let done: c_int = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const flock) };
    if done == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        e => Err(e),
    }
}
