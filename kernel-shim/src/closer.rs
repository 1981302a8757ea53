//! Closing what clients have sent, away from every thread that serves others.
//!
//! To close a descriptor can take as long as its sender likes: a socket that lingers over what its peer does not read,
//! a file of a file system that the sender answers for. The same is true of a socket in which such descriptors wait to
//! be received. So none of these is closed by the thread that talks to all clients: each user has a thread for them,
//! which exists while there are any. A connection that has none is closed at once, so that whoever keeps to the
//! protocol never waits behind anything.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::Shutdown;

use crate::lanes::{Lanes, OF_NONE};

/// Descriptors that the kernel lets one packet carry. What there is no room for, the kernel closes in the receiving
/// thread.
pub(crate) const RIGHTS_MAX: usize = 253;
/// Descriptors of one user that wait to be closed, beyond which a connection that sends more of them is dropped.
pub(crate) const UNCLOSED_MAX: usize = 256;
/// Closes descriptors elsewhere. Thread-safe.
pub(crate) struct Closer {
    lanes: Lanes<OwnedFd>,
    most: usize,
}

impl Default for Closer {
    fn default() -> Closer {
        Closer::new(UNCLOSED_MAX)
    }
}

impl Closer {
    /// So many descriptors of one user may wait, but no more than `UNCLOSED_MAX`.
    pub fn new(most: usize) -> Closer {
        Closer { lanes: Lanes::new("weldfs-closer", drop), most: most.min(UNCLOSED_MAX) }
    }

    /// Whether so many of this user's wait that nothing more is to be received from any of its connections: before that
    /// those that send descriptors are cut off alone, where there are enough of them for both. Where many users send
    /// them, so many of all of theirs: one process may have as many users' numbers as it was given.
    pub fn is_full(&self, uid: u32) -> bool {
        let waiting = self.lanes.waiting(uid);
        waiting > 0 && is_full_of(waiting, self.lanes.total(), unclosed_of_all(self.most))
    }

    /// Takes descriptors that `uid` has sent. False when too many of this user's are not closed yet: they are taken
    /// nevertheless, and no more is to be received from that connection.
    pub fn close(&self, uid: u32, fds: impl IntoIterator<Item = OwnedFd>) -> bool {
        let mut fds = fds.into_iter().peekable();
        fds.peek().is_none() || self.lanes.take(uid, fds) <= self.most
    }

    /// Closes the socket that was listened at, in which connections wait that nothing has looked at yet, and in those
    /// descriptors.
    pub fn retire<L: AsFd>(&self, listening: L) {
        // What else goes with it goes here, and the last reference there. Without one to spare it takes as long as it
        // takes.
        let last = listening.as_fd().try_clone_to_owned();
        drop(listening);
        self.close(OF_NONE, last);
    }

    /// Ends a connection: the peer sees it at once, and the socket is closed here only if it holds nothing that could
    /// make that take long.
    pub fn part(&self, uid: u32, socket: OwnedFd) {
        if !shut(&socket) {
            self.close(uid, [socket]);
        }
    }
}

/// Descriptors of one user that wait beyond which none of its connections is received from, where `most` are beyond
/// which one of them is dropped.
pub(crate) fn unclosed_of_all(most: usize) -> usize {
    if most < UNCLOSED_MAX { most } else { 2 * UNCLOSED_MAX }
}

/// Whether so many of a user's that wait, and of all, are too many where `most` of one user's may.
fn is_full_of(waiting: usize, total: usize, most: usize) -> bool {
    waiting > most || (waiting > 0 && total > 2 * most)
}

/// Shuts a connection down; true when no descriptor waits in it to be received, by what the kernel says. Nothing more
/// can come then.
fn shut(socket: &OwnedFd) -> bool {
    if rustix::net::shutdown(socket, Shutdown::Both).is_err() {
        return false;
    }
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", socket.as_raw_fd())).unwrap_or_default();
    told.lines().find_map(|line| line.strip_prefix("scm_fds:")).is_some_and(|n| n.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, socketpair,
    };
    use std::io::IoSlice;
    use std::mem::MaybeUninit;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_socket_in_which_descriptors_wait_is_told_from_one_without() {
        let (near, far) = pair();
        rustix::net::send(&far, b"bytes", SendFlags::empty()).unwrap();
        assert!(shut(&near), "bytes only");
        assert!(rustix::net::send(&far, b"more", SendFlags::NOSIGNAL).is_err(), "nothing follows");
        let (near, far) = pair();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let riders = [far.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&riders)));
        rustix::net::send(&far, b"", SendFlags::empty()).unwrap();
        rustix::net::sendmsg(&far, &[IoSlice::new(b"")], &mut control, SendFlags::empty()).unwrap();
        assert!(!shut(&near), "behind a packet without bytes");
        let (near, far) = pair();
        drop(far);
        assert!(shut(&near), "its peer is gone");
    }

    #[test]
    fn what_waits_in_a_socket_that_is_listened_at_no_more_is_closed_elsewhere() {
        use std::io::Write;
        use std::time::{Duration, Instant};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listening = crate::listener::Listener::bind(&crate::listener::SocketAt::open_to_all(&path)).unwrap();
        // A connection that nothing accepts, with one in it that lingers over what its peer does not read.
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let _far = tcp.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 1 << 16]).is_ok() || {
            std::thread::sleep(Duration::from_millis(20));
            near.write(&[7; 1 << 16]).is_ok()
        } {}
        rustix::net::sockopt::set_socket_linger(&near, Some(Duration::from_secs(8))).unwrap();
        let client = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::connect(&client, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let riders = [near.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&riders)));
        rustix::net::sendmsg(&client, &[IoSlice::new(b"hello")], &mut control, SendFlags::empty()).unwrap();
        drop(near);
        let (closer, start) = (Closer::default(), Instant::now());
        closer.retire(listening);
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        assert!(!path.exists());
    }

    #[test]
    fn many_users_with_some_descriptors_each_are_bounded_and_those_without_any_are_not() {
        let most = unclosed_of_all(16);
        assert!(!is_full_of(most, 2 * most, most) && is_full_of(most + 1, most + 1, most));
        assert!(is_full_of(1, 2 * most + 1, most), "one of many");
        assert!(!is_full_of(0, 100 * most, most), "it has sent none");
    }

    #[test]
    fn a_user_with_many_descriptors_is_told_and_all_are_closed() {
        let closer = Closer::default();
        let many = |n: usize| (0..n).map(|_| OwnedFd::from(std::fs::File::open("/dev/null").unwrap())).collect();
        let all: Vec<OwnedFd> = many(UNCLOSED_MAX + 1);
        assert!(closer.close(7, []));
        assert!(!closer.close(7, all));
        let fd: Vec<OwnedFd> = many(1);
        assert!(closer.close(8, fd), "another user");
        let start = std::time::Instant::now();
        while !closer.lanes.is_idle() {
            assert!(start.elapsed() < std::time::Duration::from_secs(20), "they are closed");
            std::thread::yield_now();
        }
    }
}
