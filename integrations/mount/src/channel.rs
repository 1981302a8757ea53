//! The connection with the kernel: mounting, requests in, answers out. Nothing here knows what a file is.

use crate::wire::{InHeader, OutHeader};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use std::ffi::CString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weldfs_ciscops::Errno;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the longest read and write of one request.
pub const IO_MAX: usize = 1 << 20;
/// Bytes of the longest request: a write with its header, and the longest names.
pub const REQUEST_MAX: usize = IO_MAX + (16 << 10);

/// How the kernel is to treat the mount.
#[derive(Clone, Debug)]
pub struct MountFlagSet {
    /// Every change is EROFS before it is asked for.
    pub read_only: bool,
    /// Set-user-ID programs keep that right.
    pub suid: bool,
    /// No program of it is executed.
    pub no_exec: bool,
    /// Users other than the one that mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permission bits, too, which it must where it keeps names.
    pub default_permissions: bool,
    /// What the list of mounts shows as its source.
    pub source: String,
}

/// An open connection. Thread-safe: any thread may take a request, any may answer one.
pub struct Channel {
    fd: OwnedFd,
}

/// A request: its header, and what follows.
pub struct Request<'a> {
    pub head: InHeader,
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The fixed part of the body, and what follows it. EIO for a body that is shorter, which no kernel sends.
    pub fn split<T: FromBytes>(&self) -> Result<(T, &'a [u8]), Errno> {
        T::read_from_prefix(self.body).map_err(|_| Errno::IO)
    }

    /// The fixed part of the body.
    pub fn fixed<T: FromBytes>(&self) -> Result<T, Errno> {
        self.split().map(|(fixed, _)| fixed)
    }

    /// The fixed part, and the name that follows it.
    pub fn named<T: FromBytes>(&self) -> Result<(T, &'a [u8]), Errno> {
        let (fixed, rest) = self.split()?;
        Ok((fixed, name(rest).0))
    }
}

/// A string that ends with NUL, and what follows it.
pub fn name(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|b| *b == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

impl Channel {
    /// Mounts at `dir`: by mount(2) where this process may, else by the set-user-ID program fusermount3.
    pub fn mount(dir: &Path, flags: &MountFlagSet) -> io::Result<Channel> {
        let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        match mount_here(&fd, dir, flags) {
            Ok(()) => Ok(Channel { fd }),
            Err(rustix::io::Errno::PERM) => Ok(Channel { fd: mount_helped(dir, flags)? }),
            Err(e) => Err(e.into()),
        }
    }

    /// The next request, in `buffer`; none when the mount is over.
    pub fn next<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Request<'a>>> {
        let len = loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(len) => break len,
                // Not there any more: it was interrupted before it was read.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                // The second where the connection was aborted (Linux kernel documentation, "FUSE").
                Err(rustix::io::Errno::NODEV | rustix::io::Errno::CONNABORTED) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        };
        let buffer = &buffer[..len];
        let (head, body) = InHeader::read_from_prefix(buffer).map_err(|_| io::Error::from(rustix::io::Errno::IO))?;
        let extensions = usize::from(head.total_extlen) * 8;
        let end = body.len().saturating_sub(extensions);
        Ok(Some(Request { head, body: &body[..end] }))
    }

    /// Answers a request.
    pub fn answer(&self, unique: u64, body: &[u8]) {
        let head = OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error: 0, unique };
        self.send(&[IoSlice::new(head.as_bytes()), IoSlice::new(body)]);
    }

    /// Fails a request.
    pub fn fail(&self, unique: u64, errno: Errno) {
        let head = OutHeader { len: size_of::<OutHeader>() as u32, error: -errno.0, unique };
        self.send(&[IoSlice::new(head.as_bytes())]);
    }

    fn send(&self, parts: &[IoSlice<'_>]) {
        loop {
            match rustix::io::writev(&self.fd, parts) {
                Err(rustix::io::Errno::INTR) => {}
                // ENOENT: whoever asked was killed meanwhile. ENODEV: the mount is over.
                Ok(_) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => return,
                Err(e) => {
                    tracing::warn!("an answer was refused by the kernel: {e}");
                    return;
                }
            }
        }
    }
}

fn mount_here(fd: &OwnedFd, dir: &Path, flags: &MountFlagSet) -> Result<(), rustix::io::Errno> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", fd.as_raw_fd());
    for (set, word) in [(flags.allow_other, ",allow_other"), (flags.default_permissions, ",default_permissions")] {
        if set {
            data.push_str(word);
        }
    }
    let mut bits = MountFlags::NODEV;
    bits.set(MountFlags::NOSUID, !flags.suid);
    bits.set(MountFlags::NOEXEC, flags.no_exec);
    bits.set(MountFlags::RDONLY, flags.read_only);
    let data = CString::new(data).map_err(|_| rustix::io::Errno::INVAL)?;
    rustix::mount::mount(flags.source.as_str(), dir, "fuse.weldfs", bits, data.as_c_str())
}

/// The words that fusermount3 knows.
fn words(flags: &MountFlagSet) -> String {
    let source = flags.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = format!("fsname={source},subtype=weldfs,nodev");
    for (set, word) in [
        (flags.allow_other, "allow_other"),
        (flags.default_permissions, "default_permissions"),
        (flags.read_only, "ro"),
        (!flags.suid, "nosuid"),
        (flags.no_exec, "noexec"),
    ] {
        if set {
            words.push(',');
            words.push_str(word);
        }
    }
    words
}

/// Lets fusermount3 mount, and takes the descriptor that it sends over a socket.
fn mount_helped(dir: &Path, flags: &MountFlagSet) -> io::Result<OwnedFd> {
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
    let mut child = Command::new("fusermount3")
        .arg("-o")
        .arg(words(flags))
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .spawn()
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                io::ErrorKind::PermissionDenied,
                "this user may not mount, and there is no fusermount3 (package fuse3) that could do it for him",
            ),
            _ => e,
        })?;
    drop(theirs);
    let received = receive(&ours);
    let status = child.wait()?;
    match received? {
        Some(fd) if status.success() => Ok(fd),
        _ => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("fusermount3 refused ({status})"))),
    }
}

fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// How a mount is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Only if no process uses it: EBUSY otherwise.
    Idle,
    /// Out of the tree of names at once; it ends with its last user.
    Lazy,
}

/// Ends the mount at `dir`: by umount(2) where this process may, else by fusermount3. EINVAL: nothing is mounted there.
pub fn unmount(dir: &Path, how: How) -> io::Result<()> {
    let flags = match how {
        How::Idle => UnmountFlags::NOFOLLOW,
        How::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => {
            let mut command = Command::new("fusermount3");
            command.arg("-u");
            if how == How::Lazy {
                command.arg("-z");
            }
            let status = command.arg("--").arg(dir).stdin(Stdio::null()).status()?;
            if status.success() { Ok(()) } else { Err(rustix::io::Errno::BUSY.into()) }
        }
        Err(e) => Err(e.into()),
    }
}

/// What is mounted at `dir`, as the list of mounts of this process says: its source and its type.
pub fn mounted_at(dir: &Path) -> io::Result<Option<(String, String)>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(text.lines().rev().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let place = plain(front.split(' ').nth(4)?);
        let mut back = back.split(' ');
        let (kind, source) = (back.next()?, back.next()?);
        (place == dir).then(|| (plain(source).display().to_string(), kind.to_owned()))
    }))
}

/// A word of that list without its octal escapes.
fn plain(word: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = word.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        match octal.and_then(|o| u8::from_str_radix(std::str::from_utf8(o).ok()?, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_the_list_of_mounts() {
        assert_eq!(plain("/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(plain("/plain\\"), Path::new("/plain\\"));
    }

    #[test]
    fn a_name_ends_with_nul() {
        assert_eq!(name(b"ab\0cd\0"), (&b"ab"[..], &b"cd\0"[..]));
        assert_eq!(name(b"ab"), (&b"ab"[..], &b""[..]));
    }
}
