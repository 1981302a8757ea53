//! On whose behalf a request is, and sessions with the device that act as that user.
//!
//! A request names its user and group. Its supplementary groups are read from /proc when it needs them: the kernel
//! does not send them. The device knows a session by the credentials that its socket was connected with; so a thread
//! of a privileged mount takes those of the caller, connects, and ends. Nothing in a message says who acts.

use crate::wire::InHeader;
use rustix::process::{Gid, Pid, PidfdFlags, PidfdGetfdFlags, Uid, pidfd_getfd, pidfd_open};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weldfs::{AttachOptions, Connector, Transport};
use weldfs_ciscops::Errno;

/// A user with groups.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Who {
    /// User.
    pub uid: u32,
    /// Group that new files get.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Who {
    /// Of this process.
    pub(crate) fn this_process() -> Who {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Who {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(|g| g.as_raw()).collect(),
        }
    }

    /// Of a request. Root has no use for groups; a caller whose process cannot be seen from here has none.
    pub(crate) fn of(head: &InHeader) -> Who {
        let groups = if head.uid == 0 { Vec::new() } else { groups_of(head.pid) };
        Who { uid: head.uid, gid: head.gid, groups: groups.into() }
    }
}

/// The supplementary groups of a thread.
fn groups_of(thread: u32) -> Vec<u32> {
    numbers_in(&status_of(thread), "Groups:")
}

/// What /proc has to say of a thread; nothing where it cannot be seen from here.
fn status_of(thread: u32) -> String {
    if thread == 0 {
        return String::new();
    }
    std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default()
}

fn numbers_in(status: &str, field: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// A placeholder of the device among the descriptors of a request's caller; none where this process may not have it, or
/// does not see that one, or it is something else.
pub(crate) fn placeholder(thread: u32, fd: RawFd, closing: &Arc<AtomicUsize>) -> Option<OwnedFd> {
    if closing.load(Ordering::Relaxed) >= CLOSING_MAX {
        return None;
    }
    // The kernel names the thread; a pidfd is of the process, whose descriptors are the thread's.
    let process = numbers_in(&status_of(thread), "Tgid:").first().and_then(|id| Pid::from_raw(*id as i32))?;
    let name = std::fs::read_link(format!("/proc/{}/fd/{fd}", process.as_raw_nonzero())).ok()?;
    if name.as_os_str() != PLACEHOLDER {
        return None;
    }
    let process = pidfd_open(process, PidfdFlags::empty()).ok()?;
    let theirs = pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).ok()?;
    // Whoever put something else there in between may make its close take for ever: that is not this thread's time.
    if rustix::fs::fcntl_get_seals(&theirs).is_ok_and(|seals| !seals.is_empty()) {
        return Some(theirs);
    }
    closing.fetch_add(1, Ordering::Relaxed);
    let done = closing.clone();
    let close = move || {
        drop(theirs);
        done.fetch_sub(1, Ordering::Relaxed);
    };
    let _ = std::thread::Builder::new().name("weldfs-closer".to_owned()).spawn(close);
    None
}

/// Such threads of one user, after which nothing is handed over for it.
const CLOSING_MAX: usize = 8;
/// What `/proc/PID/fd/N` of a placeholder points to.
const PLACEHOLDER: &str = "/memfd:weldfs-file (deleted)";

/// Leads to the device. Thread-safe.
pub trait Door: Send + Sync {
    /// A way to sessions that act as `who`.
    fn acting_as(&self, who: &Who) -> Arc<dyn Connector>;
}

/// The door of a device that listens at a socket.
pub struct SocketDoor {
    inner: Arc<dyn Connector>,
}

impl SocketDoor {
    /// Over the connector to that socket.
    pub fn new(inner: Arc<dyn Connector>) -> SocketDoor {
        SocketDoor { inner }
    }
}

impl Door for SocketDoor {
    fn acting_as(&self, who: &Who) -> Arc<dyn Connector> {
        if *who == Who::this_process() {
            return self.inner.clone();
        }
        Arc::new(Acting { who: who.clone(), inner: self.inner.clone() })
    }
}

/// Attaches, now and whenever it is asked to again, with the credentials of another user.
struct Acting {
    who: Who,
    inner: Arc<dyn Connector>,
}

impl Connector for Acting {
    fn attach(&self, options: &AttachOptions) -> io::Result<Box<dyn Transport>> {
        let attach = || {
            become_thread(&self.who)?;
            self.inner.attach(options)
        };
        // The thread ends with the credentials that it took; the others of this process never had them.
        std::thread::scope(|scope| scope.spawn(attach).join()).unwrap_or_else(|_| Err(Errno::IO.into()))
    }
}

/// Gives the calling thread, and no other, these credentials.
fn become_thread(who: &Who) -> io::Result<()> {
    let (Some(uid), Some(gid)) = (valid(who.uid), valid(who.gid)) else { return Err(Errno::ACCES.into()) };
    let groups: Vec<Gid> = who.groups.iter().filter_map(|g| valid(*g)).map(Gid::from_raw).collect();
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(None, Gid::from_raw(gid), None)?;
    rustix::thread::set_thread_res_uid(None, Uid::from_raw(uid), None)?;
    Ok(())
}

/// 2^32 - 1 means "unchanged" to the calls that set one, and is no user.
fn valid(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_status() {
        let groups = |status| numbers_in(status, "Groups:");
        assert_eq!(groups("Name:\tx\nGroups:\t4 24 1000 \nUid: 0\n"), [4, 24, 1000]);
        assert!(groups("Groups:\t\n").is_empty());
        assert!(groups("").is_empty());
    }
}
