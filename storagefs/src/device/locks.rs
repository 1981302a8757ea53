//! Advisory locks: POSIX byte ranges (owner = process), OFD byte ranges and flock (owner = open file description).
//!
//! Nothing waits here: a conflicting request answers EAGAIN and the client library asks again. Process locks and OFD
//! locks conflict with each other (as on Linux); flock lives in a space of its own. Locks of a session go when it ends,
//! process locks of a (session, owner) when it closes any handle of the inode, locks of a description with it.

use std::collections::HashMap;

use parking_lot::Mutex;
use weldfs_ciscops::{Errno, InodeNo};

use super::limits::LOCKS_PER_INODE_MAX;

/// Whose a lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A process: the session, and the number it gives itself (a process id by custom).
    Process {
        /// Session number.
        session: u64,
        /// Number within the session.
        owner: u64,
    },
    /// An open file description.
    File(u64),
}

/// A byte range, `start..end`; `end == u64::MAX` is "to the end of the file, however it grows".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Span {
    /// The whole file.
    pub const ALL: Span = Span { start: 0, end: u64::MAX };

    /// From fcntl's start and length (0 = to the end). EINVAL when empty or past the end of the number space.
    pub fn new(start: u64, len: u64) -> Result<Span, Errno> {
        let end = if len == 0 { u64::MAX } else { start.checked_add(len).ok_or(Errno::INVAL)? };
        if start < end { Ok(Span { start, end }) } else { Err(Errno::INVAL) }
    }

    /// Length as fcntl reports it.
    pub fn length(&self) -> u64 {
        if self.end == u64::MAX { 0 } else { self.end - self.start }
    }

    fn overlaps(&self, other: &Span) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// One lock held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Who holds it.
    pub owner: Owner,
    /// Which bytes.
    pub span: Span,
    /// Exclusive or shared.
    pub exclusive: bool,
}

#[derive(Default)]
struct InodeLocks {
    ranges: Vec<Held>,
    whole: Vec<Held>,
}

/// Which table a request speaks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// fcntl: process and OFD byte ranges.
    Ranges,
    /// flock.
    Whole,
}

/// All advisory locks of one device. Thread-safe.
#[derive(Default)]
pub struct LockTable {
    inodes: Mutex<HashMap<InodeNo, InodeLocks>>,
}

impl InodeLocks {
    fn list(&mut self, space: Space) -> &mut Vec<Held> {
        match space {
            Space::Ranges => &mut self.ranges,
            Space::Whole => &mut self.whole,
        }
    }
}

fn conflict(list: &[Held], want: &Held) -> Option<Held> {
    list.iter()
        .filter(|h| h.owner != want.owner && h.span.overlaps(&want.span) && (h.exclusive || want.exclusive))
        .min_by_key(|h| h.span.start)
        .copied()
}

fn may_set(list: &[Held], want: &Held) -> Result<(), Errno> {
    if conflict(list, want).is_some() {
        return Err(Errno::AGAIN);
    }
    if list.len() + 2 > LOCKS_PER_INODE_MAX { Err(Errno::NOLCK) } else { Ok(()) }
}

/// Cuts `span` out of what `owner` holds.
fn carve(list: &mut Vec<Held>, owner: Owner, span: Span) {
    let mut rest = Vec::new();
    list.retain(|h| {
        if h.owner != owner || !h.span.overlaps(&span) {
            return true;
        }
        if h.span.start < span.start {
            rest.push(Held { span: Span { start: h.span.start, end: span.start }, ..*h });
        }
        if span.end < h.span.end {
            rest.push(Held { span: Span { start: span.end, end: h.span.end }, ..*h });
        }
        false
    });
    list.append(&mut rest);
}

/// Joins neighbours of one owner and kind, so that a program that locks a file piece by piece costs one entry.
fn join(list: &mut Vec<Held>, owner: Owner) {
    list.sort_unstable_by_key(|h| h.span.start);
    let mut i = 0;
    while i < list.len() {
        let next = (i + 1..list.len()).find(|&j| {
            list[j].owner == owner && list[j].exclusive == list[i].exclusive && list[j].span.start == list[i].span.end
        });
        match next {
            Some(j) if list[i].owner == owner => {
                list[i].span.end = list[j].span.end;
                list.remove(j);
            }
            _ => i += 1,
        }
    }
}

impl LockTable {
    /// The first lock that stands in the way of `want`, if any.
    pub fn test(&self, ino: InodeNo, space: Space, want: &Held) -> Option<Held> {
        self.inodes.lock().get_mut(&ino).and_then(|l| conflict(l.list(space), want))
    }

    /// Takes (or changes the kind of) a lock. EAGAIN when another owner's stands in the way, ENOLCK at the limit.
    pub fn set(&self, ino: InodeNo, space: Space, want: Held) -> Result<(), Errno> {
        let mut inodes = self.inodes.lock();
        let list = inodes.entry(ino).or_default().list(space);
        let allowed = may_set(list, &want);
        if allowed.is_ok() {
            carve(list, want.owner, want.span);
            list.push(want);
            join(list, want.owner);
        } else {
            tidy(&mut inodes, ino);
        }
        allowed
    }

    /// What `set` would answer now.
    pub fn may_set(&self, ino: InodeNo, space: Space, want: &Held) -> Result<(), Errno> {
        self.inodes.lock().get_mut(&ino).map_or(Ok(()), |l| may_set(l.list(space), want))
    }

    /// A lock that `owner` holds.
    pub fn held_by(&self, ino: InodeNo, space: Space, owner: Owner) -> Option<Held> {
        let mut inodes = self.inodes.lock();
        inodes.get_mut(&ino).and_then(|l| l.list(space).iter().find(|h| h.owner == owner).copied())
    }

    /// Gives back what `owner` holds in `span`.
    pub fn unlock(&self, ino: InodeNo, space: Space, owner: Owner, span: Span) {
        let mut inodes = self.inodes.lock();
        if let Some(l) = inodes.get_mut(&ino) {
            carve(l.list(space), owner, span);
            tidy(&mut inodes, ino);
        }
    }

    /// Gives back the locks of one inode that `gone` names.
    pub fn release(&self, ino: InodeNo, gone: impl Fn(&Owner) -> bool) {
        let mut inodes = self.inodes.lock();
        if let Some(l) = inodes.get_mut(&ino) {
            l.ranges.retain(|h| !gone(&h.owner));
            l.whole.retain(|h| !gone(&h.owner));
            tidy(&mut inodes, ino);
        }
    }

    /// Gives back every process lock of a session.
    pub fn release_session(&self, session: u64) {
        self.inodes.lock().retain(|_, l| {
            l.ranges.retain(|h| !matches!(h.owner, Owner::Process { session: s, .. } if s == session));
            !(l.ranges.is_empty() && l.whole.is_empty())
        });
    }

    /// True when nobody holds a lock: the close path then skips the table.
    pub fn len(&self) -> usize {
        self.inodes.lock().values().map(|l| l.ranges.len() + l.whole.len()).sum()
    }

    /// True when no lock is held.
    pub fn is_empty(&self) -> bool {
        self.inodes.lock().is_empty()
    }
}

fn tidy(inodes: &mut HashMap<InodeNo, InodeLocks>, ino: InodeNo) {
    if inodes.get(&ino).is_some_and(|l| l.ranges.is_empty() && l.whole.is_empty()) {
        inodes.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: InodeNo = InodeNo(9);

    fn process(owner: u64) -> Owner {
        Owner::Process { session: 1, owner }
    }

    fn held(owner: Owner, start: u64, len: u64, exclusive: bool) -> Held {
        Held { owner, span: Span::new(start, len).unwrap(), exclusive }
    }

    #[test]
    fn readers_share_and_a_writer_is_refused() {
        let t = LockTable::default();
        t.set(INO, Space::Ranges, held(process(1), 0, 10, false)).unwrap();
        t.set(INO, Space::Ranges, held(process(2), 5, 10, false)).unwrap();
        assert_eq!(t.set(INO, Space::Ranges, held(process(3), 9, 1, true)), Err(Errno::AGAIN));
        assert_eq!(t.set(INO, Space::Ranges, held(Owner::File(3), 9, 1, true)), Err(Errno::AGAIN));
        t.set(INO, Space::Ranges, held(process(3), 15, 0, true)).unwrap();
        t.set(INO, Space::Whole, held(Owner::File(3), 0, 0, true)).unwrap();
    }

    #[test]
    fn unlocking_the_middle_splits_a_range_and_relocking_joins_it() {
        let t = LockTable::default();
        t.set(INO, Space::Ranges, held(process(1), 0, 100, true)).unwrap();
        t.unlock(INO, Space::Ranges, process(1), Span::new(40, 20).unwrap());
        assert_eq!(t.len(), 2);
        t.set(INO, Space::Ranges, held(process(2), 40, 20, true)).unwrap();
        assert!(t.test(INO, Space::Ranges, &held(process(2), 39, 1, false)).is_some());
        t.unlock(INO, Space::Ranges, process(2), Span::ALL);
        t.set(INO, Space::Ranges, held(process(1), 40, 20, true)).unwrap();
        assert_eq!(t.len(), 1);
    }

    #[test]
    fn an_owner_changes_the_kind_of_its_own_lock() {
        let t = LockTable::default();
        t.set(INO, Space::Ranges, held(process(1), 0, 10, true)).unwrap();
        t.set(INO, Space::Ranges, held(process(1), 0, 10, false)).unwrap();
        t.set(INO, Space::Ranges, held(process(2), 0, 10, false)).unwrap();
        assert_eq!(t.set(INO, Space::Ranges, held(process(1), 0, 10, true)), Err(Errno::AGAIN));
    }

    #[test]
    fn a_dead_session_leaves_no_lock() {
        let t = LockTable::default();
        t.set(INO, Space::Ranges, held(process(1), 0, 10, true)).unwrap();
        t.set(InodeNo(10), Space::Whole, held(Owner::File(1), 0, 0, true)).unwrap();
        t.release_session(1);
        t.release(InodeNo(10), |o| *o == Owner::File(1));
        assert!(t.is_empty());
    }

    #[test]
    fn empty_and_overflowing_ranges_are_refused() {
        assert_eq!(Span::new(5, u64::MAX), Err(Errno::INVAL));
        assert_eq!(Span::new(u64::MAX, 0), Err(Errno::INVAL));
    }
}
