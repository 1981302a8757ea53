//! From names to descriptors, below the served directory and nowhere else: `openat2` resolves absolute paths and `..`
//! as if that directory were the root, and refuses other mounts and links; `way` follows those.
//!
//! A name in a directory that is open already is used as it stands only when nothing in it could lead further: one
//! component, not `.` or `..`, no slash behind it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2, readlinkat};
use weldfs_ciscops::{Errno, Handle};

use super::core::Core;
use super::session::{HostFile, SessionState};
use weldfs_session::ofd::Description;

/// Times a walk is begun again because something else on the host was renamed meanwhile.
const AGAIN_MAX: usize = 64;

/// Where a walk starts.
#[derive(Clone)]
pub(super) enum Start<'c> {
    /// At the served directory.
    Root(BorrowedFd<'c>),
    /// At a directory behind a handle.
    At(Arc<Description<HostFile>>),
}

/// A directory, and a name in it that the call to come must not follow.
pub(super) struct Place<'c, 'p> {
    pub dir: Dir<'c>,
    /// The last component, with any slashes behind it.
    pub name: &'p [u8],
}

/// A directory on a way.
pub(super) enum Dir<'c> {
    /// Where it began.
    Start(Start<'c>),
    /// Opened on it.
    Own(OwnedFd),
    /// The same, of which the command will have need again.
    Known(Rc<OwnedFd>),
}

impl AsFd for Start<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Start::Root(fd) => *fd,
            Start::At(d) => d.body.fd.as_fd(),
        }
    }
}

impl<'c> Start<'c> {
    /// The served directory.
    pub fn root(core: &'c Core) -> Start<'c> {
        Start::Root(core.root.as_fd())
    }
}

impl Dir<'_> {
    /// Tells where walks begin from each other, as long as the command lasts.
    pub fn start_id(&self) -> usize {
        match self {
            Dir::Start(Start::At(d)) => Arc::as_ptr(d) as usize,
            _ => 0,
        }
    }

    /// Its descriptor.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Dir::Start(start) => start.as_fd(),
            Dir::Own(fd) => fd.as_fd(),
            Dir::Known(fd) => fd.as_fd(),
        }
    }
}

impl Place<'_, '_> {
    /// The directory.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Whether the name can be given to a call that would follow `.`, `..` or a link before a slash.
    pub(crate) fn is_plain(&self) -> bool {
        is_plain(self.name)
    }
}

fn is_plain(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/')
}

/// The path of a descriptor in `/proc`, for calls that take paths only. It leads to the very object, whatever became of
/// its names.
pub(super) fn by_proc(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn open_at(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    bound: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let how = bound | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let mut tries = 0;
    loop {
        match openat2(dir, path, flags | OFlags::CLOEXEC, mode, how) {
            // `..` met a rename somewhere on the host: the kernel cannot say where it stood.
            Err(rustix::io::Errno::AGAIN) if tries < AGAIN_MAX => tries += 1,
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Opens what `path` names from `at`, along no link: ELOOP. `extra` gets the components of the way down from the served
/// directory, where it leads up from `at` first.
pub(super) fn open(
    core: &Core,
    at: &Dir<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    extra: &mut usize,
) -> Result<OwnedFd, Errno> {
    if let Dir::Start(Start::Root(root)) = at {
        return Ok(open_at(*root, path, flags, mode, ResolveFlags::IN_ROOT)?);
    }
    match open_at(at.as_fd(), path, flags, mode, ResolveFlags::BENEATH) {
        // Upwards: where that leads is for the root to decide.
        Err(rustix::io::Errno::XDEV) => {
            let whole = [&below_root(core, at.as_fd())?, b"/".as_slice(), path].concat();
            *extra += whole.iter().filter(|b| **b == b'/').count();
            Ok(open_at(core.root.as_fd(), &whole, flags, mode, ResolveFlags::IN_ROOT)?)
        }
        other => Ok(other?),
    }
}

/// The path of an open directory from the served one. ENOENT when it is not below it any more.
fn below_root(core: &Core, dir: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let path = |fd: BorrowedFd<'_>| readlinkat(CWD, by_proc(fd), Vec::new()).map(std::ffi::CString::into_bytes);
    let (root, dir) = (path(core.root.as_fd())?, path(dir)?);
    let root = root.strip_suffix(b"/").unwrap_or(&root);
    let rest = dir.strip_prefix(root).filter(|rest| rest.is_empty() || rest[0] == b'/').ok_or(Errno::NOENT)?;
    Ok(rest.to_vec())
}

/// Where a path begins.
pub(super) fn start<'c>(core: &'c Core, session: &SessionState, base: Handle, path: &[u8]) -> Result<Start<'c>, Errno> {
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    if path[0] == b'/' || base == Handle::ROOT {
        return Ok(Start::root(core));
    }
    session.description(base).map(Start::At)
}
