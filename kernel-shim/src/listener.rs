//! The listening socket: taking over a stale path, refusing a live one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Gid, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::ServeError;

/// Connections the kernel keeps waiting for us.
const BACKLOG: i32 = 128;

/// Where a device listens, and who may connect. Every process that may is served under its own credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAt {
    /// The socket's path.
    pub path: PathBuf,
    /// Permission bits of the socket file; to connect, a process must be allowed to write.
    pub mode: u32,
    /// Its group (gid); by default that of the process, or of the folder where that is set-group-id.
    pub group: Option<u32>,
}

impl SocketAt {
    /// A path that every user who can reach it may connect to.
    pub fn open_to_all(path: impl Into<PathBuf>) -> SocketAt {
        SocketAt { path: path.into(), mode: 0o666, group: None }
    }
}

/// A bound socket; the path goes when it is dropped, if it is still ours.
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    inode: (u64, u64),
}

/// An address for `path`, also where it is longer than a socket address holds: then by way of its opened folder, which
/// the second value keeps open.
fn address(path: &Path) -> io::Result<(SocketAddrUnix, Option<OwnedFd>)> {
    match SocketAddrUnix::new(path) {
        Ok(address) => Ok((address, None)),
        Err(rustix::io::Errno::NAMETOOLONG) => {
            let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(io::ErrorKind::InvalidFilename.into());
            };
            let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            let near = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
            Ok((SocketAddrUnix::new(near)?, Some(dir)))
        }
        Err(e) => Err(e.into()),
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Whether a device listens at `path`.
fn alive(path: &Path) -> io::Result<bool> {
    let (address, _dir) = address(path)?;
    match rustix::net::connect(socket()?, &address) {
        Ok(()) | Err(rustix::io::Errno::AGAIN) => Ok(true),
        Err(_) => Ok(false),
    }
}

impl Listener {
    /// Binds and listens at the socket's path. A dead socket there is replaced; a live one and anything that is not a
    /// socket are errors.
    pub fn bind(at: &SocketAt) -> Result<Listener, ServeError> {
        let path = at.path.as_path();
        let sys = |what| move |source: io::Error| ServeError::Socket { path: path.to_owned(), what, source };
        match rustix::fs::lstat(path) {
            Err(rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(sys("cannot use the path")(e.into())),
            Ok(s) if FileType::from_raw_mode(s.st_mode) != FileType::Socket => {
                return Err(ServeError::InTheWay(path.to_owned()));
            }
            Ok(_) if alive(path).map_err(sys("cannot open a socket"))? => {
                return Err(ServeError::AlreadyServed(path.to_owned()));
            }
            Ok(_) => rustix::fs::unlink(path).map_err(|e| sys("cannot remove the stale socket")(e.into()))?,
        }
        let socket = socket().map_err(sys("cannot open a socket"))?;
        let (address, _dir) = address(path).map_err(sys("cannot use the path"))?;
        match rustix::net::bind(&socket, &address) {
            Err(rustix::io::Errno::ADDRINUSE) => return Err(ServeError::AlreadyServed(path.to_owned())),
            other => other.map_err(|e| sys("cannot make the socket")(e.into()))?,
        }
        // No client can connect before `listen`. The group first: the mode is not to hold for another one.
        if let Some(group) = at.group {
            rustix::fs::chown(path, None, Some(Gid::from_raw(group)))
                .map_err(|e| sys("cannot give the socket to its group")(e.into()))?;
        }
        rustix::fs::chmod(path, Mode::from_raw_mode(at.mode)).map_err(|e| sys("cannot set the mode")(e.into()))?;
        let s = rustix::fs::lstat(path).map_err(|e| sys("cannot use the path")(e.into()))?;
        rustix::net::listen(&socket, BACKLOG).map_err(|e| sys("cannot listen")(e.into()))?;
        Ok(Listener { socket, path: path.to_owned(), inode: (s.st_dev, s.st_ino) })
    }

    /// The socket, for polling.
    pub fn fd(&self) -> &OwnedFd {
        &self.socket
    }

    /// The next connection, if one waits.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(fd) => Ok(Some(fd)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = rustix::fs::lstat(&self.path).is_ok_and(|s| (s.st_dev, s.st_ino) == self.inode);
        if ours {
            // A path that is gone already is as good.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(path: &Path) -> Result<Listener, ServeError> {
        Listener::bind(&SocketAt { mode: 0o600, ..SocketAt::open_to_all(path) })
    }

    #[test]
    fn a_live_socket_is_refused_a_stale_one_replaced_and_a_file_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = bind(&path).unwrap();
        assert!(matches!(bind(&path), Err(ServeError::AlreadyServed(_))));
        drop(first);
        assert!(!path.exists());
        // A socket file whose process died: bound, never unlinked.
        let dead = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        drop(dead);
        assert!(path.exists());
        drop(bind(&path).unwrap());
        std::fs::write(&path, b"precious").unwrap();
        assert!(matches!(bind(&path), Err(ServeError::InTheWay(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_path_longer_than_a_socket_address_works() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("d".repeat(120));
        std::fs::create_dir(&long).unwrap();
        let path = long.join("socket");
        let listener = bind(&path).unwrap();
        assert!(alive(&path).unwrap());
        drop(listener);
        assert!(!path.exists());
    }
}
