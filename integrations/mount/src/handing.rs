//! Files that a program has open at the device itself, between the look-up and the open by which the kernel is handed
//! them (`ops/handing`).

use crate::files::OpenFile;
use crate::mapped::Listing;
use crate::session::Session;
use crate::wire::InHeader;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs_ciscops::mapped::Registry;
use weldfs_ciscops::{Errno, WireTime};
use weldfs_locks::Mutex;

const FILE: &[u8] = b".weldfs-fd-";
const MAPPING: &[u8] = b".weldfs-map-";
const HOLD: &[u8] = b".weldfs-hold-";
/// Files between look-up and open, at most.
const PENDING_MAX: usize = 4096;
/// How long one is kept there: whoever asked for it has died.
const PENDING_FOR: Duration = Duration::from_secs(10);

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To be read and written through the kernel.
    Use,
    /// To be mapped.
    Map,
    /// To be written while no mapping of it begins.
    HoldOff,
}

/// A file that was looked up, and is about to be opened.
pub struct Pending {
    pub node: u64,
    pub thread: u32,
    pub purpose: Purpose,
    /// Its time of modification as the kernel was told it.
    pub mtime: WireTime,
    pub file: Arc<OpenFile>,
    since: Instant,
}

impl Pending {
    pub fn new((node, thread): (u64, u32), purpose: Purpose, mtime: WireTime, file: OpenFile) -> Pending {
        Pending { node, thread, purpose, mtime, file: Arc::new(file), since: Instant::now() }
    }
}

/// What is handed over.
pub struct Handing {
    listing: Listing,
    pending: Mutex<Vec<Pending>>,
}

impl Handing {
    pub fn new(registry: Registry) -> Handing {
        Handing { listing: Listing::new(registry), pending: Mutex::default() }
    }

    /// What is mapped.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Keeps a file for its open. ENFILE: too many are waiting.
    pub fn keep(&self, pending: Pending) -> Result<(), Errno> {
        let (over, full) = {
            let mut all = self.pending.lock();
            // The kernel asks twice where the name led to another file before; a thread opens one at a time.
            let is_over = |p: &mut Pending| p.thread == pending.thread || p.since.elapsed() >= PENDING_FOR;
            let mut over = all.extract_if(.., is_over).collect::<Vec<_>>();
            let full = all.len() >= PENDING_MAX;
            if full {
                over.push(pending)
            } else {
                all.push(pending)
            }
            (over, full)
        };
        // Closed here, without the lock.
        drop(over);
        if full { Err(Errno(libc::ENFILE)) } else { Ok(()) }
    }

    /// What a thread has looked up, in a session: its number may be another user's by now.
    pub fn take(&self, head: &InHeader, session: &Arc<Session>) -> Option<Pending> {
        let mut all = self.pending.lock();
        let theirs = |p: &Pending| (p.node, p.thread) == (head.nodeid, head.pid);
        let at = all.iter().rposition(|p| theirs(p) && Arc::ptr_eq(&p.file.session, session))?;
        Some(all.remove(at))
    }

    /// Files that are still waiting are closed.
    pub fn end(&self) {
        let pending = std::mem::take(&mut *self.pending.lock());
        drop(pending);
    }
}

/// The number at the end of such a name, as programs write it, and what the name is for.
pub fn number(name: &[u8]) -> Option<(RawFd, Purpose)> {
    let names = [(FILE, Purpose::Use), (MAPPING, Purpose::Map), (HOLD, Purpose::HoldOff)];
    let (digits, purpose) = names.iter().find_map(|(front, purpose)| Some((name.strip_prefix(*front)?, *purpose)))?;
    let fd: RawFd = std::str::from_utf8(digits).ok()?.parse().ok().filter(|fd| *fd >= 0)?;
    (fd.to_string().as_bytes() == digits).then_some((fd, purpose))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_only_as_it_is_written() {
        assert_eq!(number(b".weldfs-fd-0"), Some((0, Purpose::Use)));
        assert_eq!(number(b".weldfs-map-768"), Some((768, Purpose::Map)));
        assert_eq!(number(b".weldfs-hold-9"), Some((9, Purpose::HoldOff)));
        for other in [&b".weldfs-fd-"[..], b".weldfs-fd-07", b".weldfs-fd--1", b".weldfs-map-+1", b"weldfs-fd-1", b"x"]
        {
            assert_eq!(number(other), None, "{other:?}");
        }
        assert_eq!(number(b".weldfs-fd-99999999999"), None);
    }
}
