//! Who the kernel says the peer of a socket is. Nothing here is taken from a message.
//!
//! A cgroup is read through the peer's process number, which could have gone to another process since the peer
//! connected. So the number is used under a pidfd of the peer that the kernel took when it connected (SO_PEERPIDFD):
//! if that process still runs after the reading, the number was its own all the time; if not, it has no cgroup here
//! and is known by its uid. A process that moves to another cgroup later keeps the tenant it attached as.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weldfs_ciscops::Errno;
use weldfs_device::Identity;
use weldfs_fs::Cred;

/// Groups the kernel lets a process have (NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;

/// The process at the other end, as it was when it connected; its cgroup as it is now.
pub fn of_peer(socket: &OwnedFd) -> io::Result<Identity> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    let groups = peer_groups(socket)?;
    let cred = Cred { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), groups: groups.as_slice().into() };
    Ok(Identity { cgroup: peer_cgroup(socket, peer.pid.as_raw_nonzero().get()), ..Identity::from(cred) })
}

/// Whether a user with this uid may change a device's settings and see its tokens: root, and who runs it.
pub fn governs(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Who may end a device by asking it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRight {
    /// No user: it ends with the program that it belongs to.
    Nobody,
    /// Who governs it, and the owner of its image.
    Governors {
        /// The owner, where there is an image.
        owner: Option<u32>,
    },
}

impl StopRight {
    /// EPERM: this uid may not. EOPNOTSUPP: none may.
    pub fn of(self, uid: u32) -> Result<(), Errno> {
        match self {
            StopRight::Nobody => Err(Errno::OPNOTSUPP),
            StopRight::Governors { owner } if governs(uid) || owner == Some(uid) => Ok(()),
            StopRight::Governors { .. } => Err(Errno::PERM),
        }
    }
}

/// The peer's cgroup below the v2 root; none where the kernel cannot vouch for it.
fn peer_cgroup(socket: &OwnedFd, pid: i32) -> Option<String> {
    let process = peer_pidfd(socket).ok()?;
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mut end = [PollFd::new(&process, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let runs = poll(&mut end, Some(&at_once)).is_ok_and(|ended| ended == 0);
    if runs { v2_path(&text) } else { None }
}

/// The line of the unified hierarchy in a `/proc/PID/cgroup`.
fn v2_path(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

fn peer_pidfd(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `fd` is one int and `len` says so; both outlive the call, and the descriptor is open.
    let rc = unsafe {
        let out = (&raw mut fd).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERPIDFD, out, &raw mut len)
    };
    if rc != 0 || fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nothing else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Credentials of this process (embedded mode).
pub fn of_self() -> Cred {
    let groups: Vec<u32> =
        rustix::process::getgroups().map(|g| g.iter().map(|g| g.as_raw()).collect()).unwrap_or_default();
    Cred {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.as_slice().into(),
    }
}

fn peer_groups(socket: &OwnedFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut len = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: `groups` has room for `len` bytes of plain integers, and `len` tells the kernel so; both outlive the
        // call, and the descriptor is open.
        let rc = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if rc == 0 {
            groups.truncate(len as usize / size_of::<u32>());
            return Ok(groups);
        }
        let e = io::Error::last_os_error();
        if e.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS_MAX {
            return Err(e);
        }
        groups.resize((groups.len() * 4).min(GROUPS_MAX), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (a, _b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (peer, own) = (of_peer(&a).unwrap(), of_self());
        assert_eq!((peer.cred.uid, peer.cred.gid), (own.uid, own.gid));
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        assert_eq!(peer.cgroup, v2_path(&text));
    }

    #[test]
    fn only_the_unified_hierarchy_counts() {
        let hybrid = "9:name=systemd:/x\n4:memory:/y\n0::/user.slice/a:b\n";
        assert_eq!(v2_path(hybrid).as_deref(), Some("/user.slice/a:b"));
        assert_eq!(v2_path("4:memory:/y\n"), None);
    }

    #[test]
    fn a_peer_that_has_ended_has_no_cgroup() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])";
        let Ok(mut child) = std::process::Command::new("python3").args(["-c", script]).arg(&path).spawn() else {
            return;
        };
        child.wait().unwrap();
        let (socket, _) = listener.accept().unwrap();
        assert!(of_peer(&OwnedFd::from(socket)).unwrap().cgroup.is_none());
    }
}
