//! Who the kernel says the peer of a socket is. Nothing here is taken from a message.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use weldfs_storagefs::fs::Cred;

/// Groups the kernel lets a process have (NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;

/// Credentials of the process at the other end, as they were when it connected.
pub fn of_peer(socket: &OwnedFd) -> io::Result<Cred> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    let groups = peer_groups(socket)?;
    Ok(Cred { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), groups: groups.as_slice().into() })
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
        assert_eq!((peer.uid, peer.gid), (own.uid, own.gid));
    }
}
