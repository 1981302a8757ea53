//! A mount namespace of our own. The only `unsafe` besides shared memory and request rings.

use std::io;

/// Moves the calling thread into a new mount namespace. Needs root.
pub(crate) fn mount_namespace() -> io::Result<()> {
    // SAFETY: the call takes no pointer. It separates this thread's mounts, root and working directory from those of
    // the other threads; no descriptor changes, and nothing in this process relies on threads sharing a working
    // directory.
    let done = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
