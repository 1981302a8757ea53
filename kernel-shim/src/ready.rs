//! A descriptor that whoever starts a device hands to it, to be told when it is ready (`--ready-fd`, as supervisors
//! such as s6 do it): one line is written, and the descriptor is closed.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The descriptor, until readiness has been told. Closed without a line, it says that nothing will be ready.
pub struct ReadyFd(File);

impl ReadyFd {
    /// Takes descriptor `number` over. To be called once for a number, before this process opens anything of its own:
    /// a descriptor that was not handed to it is EBADF then, and not one of its own. Standard input, output and error
    /// are duplicated and stay open.
    pub fn take(number: i32) -> io::Result<ReadyFd> {
        if number < 0 {
            return Err(rustix::io::Errno::BADF.into());
        }
        // SAFETY: asks the kernel about a number; an open descriptor is not closed meanwhile, as the caller
        // has opened nothing yet and the standard library closes none of those it was started with.
        let handed = unsafe { BorrowedFd::borrow_raw(number) };
        let own = rustix::io::fcntl_dupfd_cloexec(handed, 3)?;
        if handed.as_raw_fd() > 2 {
            // SAFETY: it is open (it was just duplicated), was handed to this process to be taken over, and nothing
            // else in it knows of it.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
        Ok(ReadyFd(File::from(own)))
    }

    /// Tells it: the socket's path, and a newline.
    pub fn tell(mut self, socket: &Path) -> io::Result<()> {
        self.0.write_all(&[socket.as_os_str().as_bytes(), b"\n"].concat())
    }
}
