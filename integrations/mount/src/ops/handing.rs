//! Files that a program has open at the device itself, handed to the kernel: two names in the root, which no listing
//! shows. `.weldfs-fd-N` is the file behind descriptor N of whoever looks, if that stands for an open file of the
//! device; `.weldfs-map-N` is the same, to be mapped, and says so on the board that programs of this run look at.
//!
//! The preload library opens them. It is the descriptor that counts, and not a name of the file: one without a name,
//! or whose names are out of the opener's reach by now, is handed over as any other, with the access it was opened
//! with. Between the look-up and the open the file is kept for the thread that asks.

use crate::files::OpenFile;
use crate::fs::{Fs, Keeping, Out, Said};
use crate::session::Session;
use crate::who;
use crate::wire::{InHeader, ROOT};
use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs::OpenFlags;
use weldfs_ciscops::mapped::Board;
use weldfs_ciscops::{Errno, StatBody};
use weldfs_locks::Mutex;

const FILE: &[u8] = b".weldfs-fd-";
const MAPPING: &[u8] = b".weldfs-map-";
/// Files between look-up and open, at most.
const PENDING_MAX: usize = 4096;
/// How long one is kept there: whoever asked for it has died.
const PENDING_FOR: Duration = Duration::from_secs(10);

/// A file that was looked up, and is about to be opened.
struct Pending {
    node: u64,
    thread: u32,
    mapping: bool,
    since: Instant,
    file: Arc<OpenFile>,
}

/// What is handed over.
pub struct Handing {
    board: Arc<Mutex<Board>>,
    pending: Mutex<Vec<Pending>>,
}

/// A mapping's line on the board, for as long as the kernel has the file open for it.
pub struct Listed {
    board: Arc<Mutex<Board>>,
    ino: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.board.lock().remove(self.ino);
    }
}

impl Handing {
    pub fn new(board: Board) -> Handing {
        Handing { board: Arc::new(Mutex::new(board)), pending: Mutex::default() }
    }

    fn list(&self, ino: u64) -> Result<Listed, Errno> {
        self.board.lock().add(ino)?;
        Ok(Listed { board: self.board.clone(), ino })
    }

    /// Files that are still waiting are closed.
    pub fn end(&self) {
        let pending = std::mem::take(&mut *self.pending.lock());
        drop(pending);
    }
}

/// The number at the end of such a name, as programs write it, and whether it is one of a mapping.
fn number(name: &[u8]) -> Option<(RawFd, bool)> {
    let (digits, mapping) = match name.strip_prefix(FILE) {
        Some(digits) => (digits, false),
        None => (name.strip_prefix(MAPPING)?, true),
    };
    let fd: RawFd = std::str::from_utf8(digits).ok()?.parse().ok().filter(|fd| *fd >= 0)?;
    (fd.to_string().as_bytes() == digits).then_some((fd, mapping))
}

impl Fs {
    /// The answer to a look-up of one of these names; none where it is a name as any other: in another directory, in a
    /// mount without a board, of a number that is no open file of the device for its caller.
    pub(crate) fn handed(
        &self,
        head: &InHeader,
        name: &[u8],
        session: &Arc<Session>,
        out: &mut Out,
    ) -> Option<Result<Said, Errno>> {
        let handing = self.handing.as_ref().filter(|_| head.nodeid == ROOT)?;
        let (fd, mapping) = number(name)?;
        let theirs = who::placeholder(head.pid, fd)?;
        let claimed = session.raw().claim_anew(theirs.as_fd()).ok()?;
        let held = session.hold(claimed.handle);
        let stat = session.raw().stat(held.handle()).ok().filter(|stat| stat.mode & libc::S_IFMT == libc::S_IFREG)?;
        if claimed.flags.contains(OpenFlags::PATH) || session.raw().is_virtual(held.handle(), b"", false) {
            return None;
        }
        let handle = Arc::into_inner(held).map(crate::session::Held::into_handle)?;
        let node = self.nodes.lock().told(&stat);
        let file = OpenFile::new(session.clone(), handle, node, claimed.flags.to_linux() as u32, false);
        let since = Instant::now();
        let pending = Pending { node, thread: head.pid, mapping, since, file: Arc::new(file) };
        let (over, full) = {
            let mut all = handing.pending.lock();
            // The kernel asks twice where the name led to another file before; a thread opens one at a time.
            let is_over = |p: &mut Pending| p.thread == head.pid || p.since.elapsed() >= PENDING_FOR;
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
        if full {
            return Some(Err(Errno(libc::ENFILE)));
        }
        // The next look is another's, or after another file got the number.
        let keeping = Keeping { entries: Duration::ZERO, ..self.keeping };
        Some(out.put(&keeping.entry(node, &stat)))
    }

    /// Opens what this thread has just looked up under such a name; none: it has not.
    pub(crate) fn open_handed(
        &self,
        head: &InHeader,
        session: &Arc<Session>,
        flags: u32,
    ) -> Option<Result<(OpenFile, StatBody), Errno>> {
        let handing = self.handing.as_ref()?;
        let found = {
            let mut all = handing.pending.lock();
            let theirs = |p: &Pending| (p.node, p.thread) == (head.nodeid, head.pid);
            // A thread's number may be another user's by now.
            let at = all.iter().rposition(|p| theirs(p) && Arc::ptr_eq(&p.file.session, session))?;
            all.remove(at)
        };
        let open = || {
            let access = |flags: u32| OpenFlags::from_linux(flags as i32) & (OpenFlags::READ | OpenFlags::WRITE);
            if !access(found.file.flags).contains(access(flags)) {
                return Err(Errno::ACCES);
            }
            let ino = found.file.session.raw().stat(found.file.handle)?.ino;
            let listed = if found.mapping { Some(handing.list(ino)?) } else { None };
            // What was written by whoever did not see it listed is seen in this.
            let stat = found.file.session.raw().stat(found.file.handle)?;
            Ok((OpenFile::sharing(found.file.clone(), flags).listed(listed), stat))
        };
        Some(open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_only_as_it_is_written() {
        assert_eq!(number(b".weldfs-fd-0"), Some((0, false)));
        assert_eq!(number(b".weldfs-map-768"), Some((768, true)));
        for other in [&b".weldfs-fd-"[..], b".weldfs-fd-07", b".weldfs-fd--1", b".weldfs-map-+1", b"weldfs-fd-1", b"x"]
        {
            assert_eq!(number(other), None, "{other:?}");
        }
        assert_eq!(number(b".weldfs-fd-99999999999"), None);
    }
}
