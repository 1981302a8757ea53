//! The socket connector: attaches to a serving device over its Unix socket (SOCK_SEQPACKET, one message per packet,
//! descriptors by SCM_RIGHTS).
//!
//! Every descriptor of this library is moved out of the low numbers, which programs and shells believe to be theirs.

use crate::connector::{
    AttachOptions, Claimed, Connector, Placeholder, QueueParts, SessionInfo, Transport, WAIT_DEFAULT,
    device_user_from_env,
};
use crate::kept::Kept;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Uid;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weldfs_ciscops::attach::{self, Hello, NewQueue, PROTOCOL_VERSION, Reply, Request, Share};
use weldfs_ciscops::flags::OpenFlags;
use weldfs_ciscops::limits::{ATTACH_MESSAGE_MAX, PLACEHOLDERS_MAX};
use weldfs_ciscops::{Errno, Handle, SharedRegion};
use weldfs_locks::Mutex;

/// Lowest number that descriptors of this library itself take, where the limit of the process allows.
pub const FD_HIGH: i32 = 768;

/// Links that are followed to a socket, as the kernel does.
const LINKS_MAX: u32 = 40;

/// Attaches over a Unix socket.
#[derive(Debug, Clone)]
pub struct SocketConnector {
    path: PathBuf,
    of: Option<Expected>,
    /// A stranger whose device is believed by a socket's path, wherever that leads.
    user: Option<u32>,
    /// No other stranger's is.
    only: bool,
}

/// Who the device must be.
#[derive(Debug, Clone)]
struct Expected {
    owner: Option<u32>,
    uuid: Option<[u8; 16]>,
}

impl SocketConnector {
    /// To the device that listens at `path`. It is believed if root or the calling user runs it; another user's is, if
    /// no third one could have made that socket, or a folder on its way: where the way leads through one like /tmp,
    /// which all may write to and which is sticky, what lies in it must be root's, the calling user's, or that
    /// folder's owner's. EPERM.
    pub fn new(path: impl Into<PathBuf>) -> SocketConnector {
        SocketConnector { path: path.into(), of: None, user: None, only: false }
    }

    /// The same, if this user, root or the calling user runs the device, wherever its socket lies; EPERM if it is any
    /// other. `None`: as the path says.
    pub fn run_by(self, user: Option<u32>) -> SocketConnector {
        SocketConnector { user, only: user.is_some(), ..self }
    }

    /// To the device that listens at `path`, as [`SocketConnector::new`], or one of the user that the environment names
    /// ([`crate::DEVICE_USER_VARIABLE`]). EINVAL when it names none.
    pub fn from_env(path: impl Into<PathBuf>) -> io::Result<SocketConnector> {
        Ok(SocketConnector { user: device_user_from_env()?, ..SocketConnector::new(path) })
    }

    /// Who runs the device that is attached to, if it is believed. Errors as those of an attach.
    pub fn device_user(&self, wait: Duration) -> io::Result<u32> {
        Ok(rustix::net::sockopt::socket_peercred(&self.dial(wait)?)?.uid.as_raw())
    }

    /// To the device that listens at `path`, if it is the one of an image: run by root, by the calling user or by the
    /// image's `owner`, and of the file system `uuid`, where these are known. Anything else is EPERM, and no request
    /// but the one that asks for the UUID has been sent.
    pub fn of_image(path: impl Into<PathBuf>, owner: Option<u32>, uuid: Option<[u8; 16]>) -> SocketConnector {
        SocketConnector { path: path.into(), of: Some(Expected { owner, uuid }), user: None, only: false }
    }

    /// A connection to a device whose user may be one: any process can listen where it may make a file.
    fn dial(&self, wait: Duration) -> io::Result<OwnedFd> {
        let socket = dial(&self.path, wait)?;
        let device = rustix::net::sockopt::socket_peercred(&socket)?.uid;
        if device.is_root() || device == rustix::process::geteuid() {
            return Ok(socket);
        }
        match (&self.of, self.user) {
            (Some(of), _) if of.owner == Some(device.as_raw()) => Ok(socket),
            (None, Some(user)) if user == device.as_raw() => Ok(socket),
            (None, _) if !self.only => dial_in_folder(&self.path, device, wait),
            _ => Err(Errno::PERM.into()),
        }
    }

    /// Asks the device to end cleanly, and waits until it has: on return its sessions have ended and its image is
    /// closed, clean and no longer locked. Errors: ENOENT / ECONNREFUSED (no device there), EPERM (only root, the
    /// user that runs the device and the owner of its image may), EOPNOTSUPP (it ends with the program it belongs to),
    /// ETIMEDOUT (it was sent the request and has not ended within `timeout`), EAGAIN (it was not reached within
    /// `timeout`, and was sent nothing), ENODEV (it was gone before it could answer), EIO (it ended,
    /// and not cleanly).
    pub fn stop(&self, timeout: Duration) -> io::Result<()> {
        let late_to_connect = |e: io::Error| match e.raw_os_error().map(Errno) {
            Some(Errno::TIMEDOUT) => Errno::AGAIN.into(),
            _ => e,
        };
        // Nothing is given to it: root ends whatever listens there.
        let root = rustix::process::geteuid().is_root();
        let dial = if root { dial(&self.path, timeout) } else { self.dial(timeout) };
        let socket = dial.map_err(late_to_connect)?;
        converse(&socket, &Request::Stop, None).map_err(late)?;
        Ok(())
    }
}

impl Connector for SocketConnector {
    fn attach(&self, options: &AttachOptions) -> io::Result<Box<dyn Transport>> {
        let socket = move_high(self.dial(options.wait.unwrap_or(WAIT_DEFAULT))?);
        let hello = Hello {
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            client_id: options.client_id,
            ..Hello::default()
        };
        if let Some(token) = options.token {
            converse(&socket, &Request::Join(token), None).map_err(late)?;
        }
        let request = Request::Hello { hello, prefix: options.prefix.clone() };
        let (reply, mut fds) = converse(&socket, &request, None).map_err(late)?;
        let (Reply::Welcome(welcome), Some(doorbell)) = (reply, fds.pop()) else { return Err(Errno::PROTO.into()) };
        if self.of.as_ref().and_then(|of| of.uuid).is_some_and(|uuid| uuid != welcome.uuid) {
            return Err(Errno::PERM.into());
        }
        patience(&socket, None)?;
        Ok(Box::new(SocketTransport {
            info: SessionInfo::from(&*welcome),
            _kept: Kept::new(&doorbell),
            doorbell: Arc::new(doorbell),
            socket: Mutex::new(Some((Kept::new(&socket), socket))),
        }))
    }
}

/// Connects to a stranger's device, if the socket's path says that it is the one: no third user can have made the
/// socket, a folder on its way, or a link that leads there. The folder is opened once, and the socket taken from there,
/// so that nothing that is moved or made meanwhile leads elsewhere. EPERM.
fn dial_in_folder(path: &Path, device: Uid, wait: Duration) -> io::Result<OwnedFd> {
    let (folder, name) = resolve(path)?;
    let there = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(there.st_mode) != FileType::Socket {
        return Err(Errno::PERM.into());
    }
    believe(&folder, device)?;
    let socket = connect_in(&folder, &name, wait)?;
    match rustix::net::sockopt::socket_peercred(&socket)?.uid == device {
        true => Ok(socket),
        false => Err(Errno::PERM.into()),
    }
}

/// The folder that a path leads to, through links that no stranger can have made, and the name there.
fn resolve(path: &Path) -> io::Result<(OwnedFd, OsString)> {
    // Last one first.
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let (mut at, mut left, mut links) = (open_folder(CWD, ".")?, parts(path), 0);
    while let Some(part) = left.pop() {
        let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = match rustix::fs::openat(&at, &part, how, Mode::empty()) {
            // It is not opened that is asked for, and it is looked for there.
            Err(_) if left.is_empty() => return Ok((at, part)),
            next => next?,
        };
        let meta = rustix::fs::fstat(&next)?;
        match FileType::from_raw_mode(meta.st_mode) {
            FileType::Symlink => {
                believe(&at, Uid::from_raw(meta.st_uid))?;
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno(libc::ELOOP).into());
                }
                let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
                left.extend(parts(Path::new(OsStr::from_bytes(target.as_bytes()))));
            }
            _ if left.is_empty() => return Ok((at, part)),
            _ => at = next,
        }
    }
    Err(Errno::NOENT.into())
}

fn open_folder(at: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(at, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Whether what this user made in a folder is where not every user could have made it. In a folder that others may
/// write to, and that keeps them from each other's files only (sticky, /tmp), whoever is neither its owner nor root nor
/// the calling user is a stranger; in any other, leave to write is its owner's to give. So it is up to the root. EPERM.
fn believe(folder: &OwnedFd, maker: Uid) -> io::Result<()> {
    let (mut at, mut maker) = (rustix::io::fcntl_dupfd_cloexec(folder, 0)?, maker);
    loop {
        let here = rustix::fs::fstat(&at)?;
        let owner = Uid::from_raw(here.st_uid);
        let open_to_others = here.st_mode & 0o1000 != 0 && here.st_mode & 0o022 != 0;
        let known = maker == owner || maker.is_root() || maker == rustix::process::geteuid();
        if open_to_others && !known {
            return Err(Errno::PERM.into());
        }
        let above = open_folder(&at, "..")?;
        let up = rustix::fs::fstat(&above)?;
        if (up.st_dev, up.st_ino) == (here.st_dev, here.st_ino) {
            return Ok(());
        }
        (at, maker) = (above, owner);
    }
}

/// Bounds how long the socket is waited for; `None`: not at all.
fn patience(socket: &OwnedFd, wait: Option<Duration>) -> io::Result<()> {
    // None at all would be for ever.
    let wait = wait.map(|wait| wait.max(Duration::from_millis(1)));
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(socket, direction, wait)?;
    }
    Ok(())
}

/// What a wait that was too short looks like.
fn late(errno: Errno) -> Errno {
    if errno == Errno::AGAIN { Errno::TIMEDOUT } else { errno }
}

/// Connects, also where the path is longer than a socket address holds. Answers are waited for up to `wait` each.
fn dial(path: &Path, wait: Duration) -> io::Result<OwnedFd> {
    match SocketAddrUnix::new(path) {
        Ok(address) => connect(&address, wait),
        Err(rustix::io::Errno::NAMETOOLONG) => {
            let (folder, name) = split(path)?;
            connect_in(&open_folder(CWD, folder)?, name, wait)
        }
        Err(e) => Err(e.into()),
    }
}

/// A socket's folder and its name there.
fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = path.file_name().ok_or(Errno::NOENT)?;
    Ok((path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")), name))
}

/// Connects to a socket of an open folder.
fn connect_in(folder: &OwnedFd, name: &OsStr, wait: Duration) -> io::Result<OwnedFd> {
    let near = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    connect(&SocketAddrUnix::new(near)?, wait)
}

fn connect(address: &SocketAddrUnix, wait: Duration) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    patience(&socket, Some(wait))?;
    match rustix::net::connect(&socket, address) {
        Ok(()) => Ok(socket),
        // More wait than the kernel lets wait.
        Err(rustix::io::Errno::AGAIN) => Err(Errno::TIMEDOUT.into()),
        Err(e) => Err(e.into()),
    }
}

/// The same descriptor under a high number; the given one where that is refused.
fn move_high(fd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&fd, FD_HIGH).unwrap_or(fd)
}

/// Sends one request (with at most one descriptor) and takes its reply with the descriptors that are attached.
fn converse(
    socket: &OwnedFd,
    request: &Request,
    rider: Option<BorrowedFd<'_>>,
) -> Result<(Reply, Vec<OwnedFd>), Errno> {
    let packet = request.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let riders: [BorrowedFd<'_>; 1];
    if let Some(fd) = rider {
        riders = [fd];
        control.push(SendAncillaryMessage::ScmRights(&riders));
    }
    retry(|| rustix::net::sendmsg(socket, &[IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL))?;
    let mut reply = vec![0; ATTACH_MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PLACEHOLDERS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = retry(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut reply)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(riders) = message {
            fds.extend(riders.map(move_high));
        }
    }
    match got.bytes {
        0 => Err(Errno::NODEV),
        n => Ok((Reply::decode(&reply[..n], request.kind())?, fds)),
    }
}

/// What a memfd holds that came with a reply.
fn contents(fd: OwnedFd) -> Result<Vec<u8>, Errno> {
    use std::io::{Read, Seek};
    let mut file = std::fs::File::from(fd);
    let mut bytes = Vec::new();
    // The offset is the sender's, who has written it.
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.map_err(|e| Errno(e.raw_os_error().unwrap_or(Errno::IO.0)))?;
    Ok(bytes)
}

/// Repeats an interrupted call; a connection that broke means that the device is gone.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET | rustix::io::Errno::NOTCONN) => {
                return Err(Errno::NODEV);
            }
            other => return other.map_err(Errno::from),
        }
    }
}

/// A session over a socket.
struct SocketTransport {
    info: SessionInfo,
    /// The doorbell is.
    _kept: Kept,
    doorbell: Arc<OwnedFd>,
    /// None after detach (or, in a child, abandon).
    socket: Mutex<Option<(Kept, OwnedFd)>>,
}

impl SocketTransport {
    fn ask(&self, request: &Request, rider: Option<BorrowedFd<'_>>) -> Result<(Reply, Vec<OwnedFd>), Errno> {
        let socket = self.socket.lock();
        converse(&socket.as_ref().ok_or(Errno::NODEV)?.1, request, rider)
    }

    /// So many placeholders, by one request or another.
    fn placeholders_by(&self, request: &Request, wanted: u32) -> Result<Vec<Placeholder>, Errno> {
        let (reply, fds) = self.ask(request, None)?;
        let Reply::Placeholders(attach::PlaceholdersReply { count, ids, .. }) = reply else {
            return Err(Errno::PROTO);
        };
        if count != wanted || count as usize > ids.len() || fds.len() > count as usize {
            return Err(Errno::PROTO);
        }
        if fds.len() < count as usize {
            // The kernel drops those that the process has no number for.
            return Err(Errno::MFILE);
        }
        Ok(ids.iter().zip(fds).map(|(&id, fd)| Placeholder::new(id, fd)).collect())
    }
}

impl Transport for SocketTransport {
    fn info(&self) -> &SessionInfo {
        &self.info
    }

    fn new_queue(&self, depth: u32, pool_bytes: u32) -> io::Result<QueueParts> {
        let (reply, mut fds) = self.ask(&Request::NewQueue(NewQueue { depth, pool_bytes }), None)?;
        let (Reply::Queue(queue), Some(memfd)) = (reply, fds.pop()) else { return Err(Errno::PROTO.into()) };
        let region = SharedRegion::map(&memfd, queue.layout.total_bytes as usize)?;
        Ok(QueueParts { index: queue.index, layout: queue.layout, region, doorbell: self.doorbell.clone() })
    }

    fn placeholders(&self, count: u32) -> Result<Vec<Placeholder>, Errno> {
        self.placeholders_by(&Request::Placeholders { count }, count)
    }

    fn share(&self, open: &[Handle]) -> Result<Vec<Placeholder>, Errno> {
        let mut share = Share { count: open.len() as u32, ..Share::default() };
        if open.is_empty() || open.len() > share.handles.len() {
            return Err(Errno::INVAL);
        }
        share.handles.iter_mut().zip(open).for_each(|(place, handle)| *place = handle.to_wire());
        self.placeholders_by(&Request::Share(share), share.count)
    }

    fn claim(&self, fd: BorrowedFd<'_>, anew: bool) -> Result<Claimed, Errno> {
        let (reply, _) = self.ask(&Request::Claim { anew }, Some(fd))?;
        let Reply::Claimed(c) = reply else { return Err(Errno::PROTO) };
        let flags = OpenFlags::from_bits_truncate(c.flags as u16);
        Ok(Claimed { handle: Handle::from_wire(c.handle), flags, mode: c.mode, placeholder: c.placeholder })
    }

    fn stats_json(&self, detail: u32) -> Result<String, Errno> {
        let Reply::Text(json) = self.control(&Request::Stats { detail })? else { return Err(Errno::PROTO) };
        String::from_utf8(json).map_err(|_| Errno::PROTO)
    }

    fn trace(&self, start: Option<u32>) -> Result<Vec<u8>, Errno> {
        let (_, mut fds) = self.ask(&Request::Trace { start }, None)?;
        match (start, fds.pop()) {
            (None, Some(fd)) => contents(fd),
            (Some(_), None) => Ok(Vec::new()),
            _ => Err(Errno::PROTO),
        }
    }

    fn control(&self, request: &Request) -> Result<Reply, Errno> {
        match self.ask(request, None)? {
            (Reply::Text(text), mut fds) if text.is_empty() => match fds.pop() {
                Some(memfd) => Ok(Reply::Text(contents(memfd)?)),
                None => Ok(Reply::Text(text)),
            },
            (reply, _) => Ok(reply),
        }
    }

    fn hung_up(&self) -> bool {
        // The thread that holds the lock is in conversation and will see the end of it.
        let Some(socket) = self.socket.try_lock() else { return false };
        let Some((_, socket)) = socket.as_ref() else { return true };
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
        poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0) && fds[0].revents().intersects(gone)
    }

    fn detach(&self) {
        if let Some((kept, socket)) = self.socket.lock().take() {
            // The goodbye is a courtesy: closing the socket says the same.
            let _ = converse(&socket, &Request::Detach, None);
            drop(kept);
        }
    }

    fn abandon(&self) {
        if let Some(mut socket) = self.socket.try_lock() {
            socket.take();
        }
    }
}
