//! How the device of an image is found by the image: whoever holds its lock and serves it answers, at an abstract
//! socket named after the image's device and inode number, with the path of the socket it listens at.
//!
//! The answer stands from when the lock is taken until the image is let go of, so also while a device starts, and
//! vanishes with the process. Such names are free to take, so an answer counts only from the process that holds
//! the lock, as the kernel says (SO_PEERCRED and /proc/locks). Abstract sockets belong to a network namespace: from
//! another one there is no answer.

use std::fs::Metadata;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::closer::Closer;

/// First bytes of an answer; the socket's path follows, up to the end.
const GREETING: &[u8] = b"weldfs-device 1 ";
/// Longest answer that is read.
const ANSWER_MAX: u64 = 8192;
/// How long an answer may take: it is sent by a thread that does nothing else.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

fn name(image: &Metadata) -> String {
    format!("weldfs-device:{:x}:{:x}", image.dev(), image.ino())
}

/// Answers as long as it lives.
pub(crate) struct Announcement {
    over: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Announcement {
    /// Says that `image`, whose lock this process holds, is served at `socket`.
    pub(crate) fn start(image: &Path, socket: &Path) -> io::Result<Announcement> {
        let address = SocketAddr::from_abstract_name(name(&std::fs::metadata(image)?))?;
        let answer = [GREETING, absolute(socket)?.as_os_str().as_bytes()].concat();
        let listener = UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        let over = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let told = over.clone();
        let thread = std::thread::Builder::new()
            .name("weldfs-announce".into())
            .spawn(move || answer_all(&listener, &told, &answer))?;
        Ok(Announcement { over, thread: Some(thread) })
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // A counter that is full has been rung already.
        let _ = rustix::io::write(&*self.over, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that announces the device had panicked");
        }
    }
}

fn answer_all(listener: &UnixListener, over: &OwnedFd, answer: &[u8]) {
    let closer = Closer::default();
    loop {
        let mut fds = [PollFd::new(over, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return tracing::warn!("the device is no longer announced: {e}"),
        }
        if !fds[0].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((mut caller, _)) => {
                // It fits into the socket's buffer, so a caller that does not read holds no other up; nor does one that
                // has sent something.
                let _ = caller.set_nonblocking(true).and_then(|()| caller.write_all(answer));
                let uid = rustix::net::sockopt::socket_peercred(&caller).map_or(u32::MAX, |peer| peer.uid.as_raw());
                closer.part(uid, caller.into());
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // Out of descriptors, most likely.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The same path for any working directory. The socket need not be there yet.
fn absolute(socket: &Path) -> io::Result<PathBuf> {
    let folder = socket.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(folder.canonicalize()?.join(socket.file_name().ok_or(io::ErrorKind::InvalidFilename)?))
}

/// A device that serves an image, or is starting to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it listens, or will.
    pub socket: PathBuf,
    /// Its process.
    pub pid: u32,
}

/// The device that holds the lock of `image` and serves it; none where no answer can be believed. The image
/// is not opened. Errors: `image` cannot be looked at.
pub fn device_of(image: &Path) -> io::Result<Option<Found>> {
    let meta = std::fs::metadata(image)?;
    Ok(ask(image, &meta).unwrap_or_else(|e| {
        tracing::debug!("{}: asking for its device: {e}", image.display());
        None
    }))
}

fn ask(image: &Path, meta: &Metadata) -> io::Result<Option<Found>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name(meta).as_bytes())?) {
        Ok(()) => {}
        Err(rustix::io::Errno::CONNREFUSED) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    let peer = rustix::net::sockopt::socket_peercred(&socket)?;
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    let believed = match weldfs_media::holder(image) {
        Some(holder) => holder.pid == pid,
        // Where the kernel does not tell who holds the lock (another namespace): who could have taken it rightfully.
        None => {
            let uid = peer.uid.as_raw();
            uid == 0 || uid == meta.uid() || uid == rustix::process::geteuid().as_raw()
        }
    };
    if !believed {
        tracing::warn!("{}: process {pid} claims to serve it and does not hold its lock", image.display());
        return Ok(None);
    }
    let mut answer = Vec::new();
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    let path = answer.strip_prefix(GREETING).filter(|path| path.starts_with(b"/"));
    Ok(path.map(|path| Found { socket: std::ffi::OsString::from_vec(path.to_vec()).into(), pid }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;
    use weldfs_media::{ImageKind, OpenMode};

    /// Asks with a descriptor that takes seconds to close, and hangs up.
    fn ask_with_a_descriptor(image: &Path) -> std::net::TcpStream {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let (far, _) = tcp.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 1 << 16]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&near, Some(Duration::from_secs(8))).unwrap();
        let address = SocketAddr::from_abstract_name(name(&std::fs::metadata(image).unwrap())).unwrap();
        let riders = [near.as_fd()];
        // A caller that was answered and parted from before it could send comes again.
        loop {
            let caller = UnixStream::connect_addr(&address).unwrap();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&riders)));
            match rustix::net::sendmsg(&caller, &[io::IoSlice::new(b"x")], &mut control, SendFlags::empty()) {
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {}
                sent => {
                    assert_eq!(sent, Ok(1));
                    break;
                }
            }
        }
        far
    }

    #[test]
    fn what_takes_long_to_close_keeps_no_other_from_finding_the_device_nor_it_from_ending() {
        let dir = tempfile::tempdir().unwrap();
        let (image, socket) = (dir.path().join("i"), dir.path().join("s"));
        let _lock = weldfs_media::create(&image, ImageKind::Pmem, 256 << 10, false).unwrap();
        let announced = Announcement::start(&image, &socket).unwrap();
        // Accepted at once or not: a caller that has hung up by then is the worse one.
        let held: Vec<_> = (0..4).map(|_| ask_with_a_descriptor(&image)).collect();
        let start = std::time::Instant::now();
        assert!(device_of(&image).unwrap().is_some());
        drop(announced);
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        drop(held);
    }

    #[test]
    fn the_holder_of_the_lock_is_found_and_nobody_else_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let (image, socket) = (dir.path().join("i"), dir.path().join("s"));
        let lock = weldfs_media::create(&image, ImageKind::Pmem, 256 << 10, false).unwrap();
        assert_eq!(device_of(&image).unwrap(), None, "nobody answers");
        let announced = Announcement::start(&image, &socket).unwrap();
        let found = Found { socket: dir.path().canonicalize().unwrap().join("s"), pid: std::process::id() };
        assert_eq!(device_of(&image).unwrap(), Some(found.clone()));
        // By whatever name.
        std::fs::hard_link(&image, dir.path().join("other")).unwrap();
        assert_eq!(device_of(&dir.path().join("other")).unwrap(), Some(found));
        drop(announced);
        assert_eq!(device_of(&image).unwrap(), None, "it ends with its announcement");

        // Another process has the lock: this process announces what is not its own.
        drop(lock);
        let mut other = std::process::Command::new("flock")
            .args(["--no-fork", "--exclusive"])
            .arg(&image)
            .args(["sh", "-c", "echo locked; exec sleep 60"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 7];
        other.stdout.take().unwrap().read_exact(&mut line).unwrap();
        let _false = Announcement::start(&image, &socket).unwrap();
        let believed = device_of(&image).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&other), rustix::process::Signal::KILL).unwrap();
        other.wait().unwrap();
        assert!(weldfs_media::open(&image, ImageKind::Pmem, OpenMode::Snapshot).is_ok());
        assert_eq!(believed, None);
        assert!(device_of(&dir.path().join("none")).is_err());
    }
}
