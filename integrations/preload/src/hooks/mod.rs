//! One file per family of libc functions. A hook finds out whose the name or descriptor is, then either calls libc's
//! own function or says the same thing to the device.

mod attr;
mod copy;
mod cwd;
mod directory;
mod exec;
mod fcntl;
mod map;
mod names;
mod open;
mod process;
mod rw;
mod stat;
mod stdio;
mod sync;
mod syscall;
mod temp;
mod xattr;

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

pub(crate) use open::close;
pub(crate) use rw::{lseek64, read, write};
