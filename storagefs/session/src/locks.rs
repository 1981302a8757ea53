//! Advisory locks: POSIX byte ranges (owner = process), OFD byte ranges and flock (owner = open file description).
//!
//! Nothing waits here: a conflicting request answers EAGAIN and the client library asks again. Process locks and OFD
//! locks conflict with each other (as on Linux); flock lives in a space of its own. Locks of a session go when it ends,
//! process locks of a (session, owner) when it closes any handle of the inode, locks of a description with it.

use std::collections::HashMap;
use std::sync::Arc;

use weldfs_ciscops::{Errno, InodeNo};
use weldfs_locks::Mutex;

use super::limits::{LOCKS_MAX, LOCKS_MIN, LOCKS_PER_INODE_MAX, LOCKS_PER_INODE_MIN};

/// Entries that one request can add: a lock in the middle of another one of its owner.
const ADDED_MAX: usize = 2;

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
    /// The tenant that took it.
    pub tenant: u32,
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

/// What the memory of a tenant's locks is charged to. Locks have bounds of their own, so that it refuses none: however
/// much memory others have taken, every tenant has its first locks.
pub trait Payer: Send + Sync {
    /// One lock more.
    fn charge_lock(&self);
    /// One less.
    fn give_lock(&self);
}

/// A tenant's part.
struct Share {
    locks: usize,
    payer: Arc<dyn Payer>,
}

/// How many locks there are, and how many of them each tenant has that has any.
#[derive(Default)]
struct Tally {
    tenants: HashMap<u32, Share>,
    all: usize,
}

impl Tally {
    fn of(&self, tenant: u32) -> usize {
        self.tenants.get(&tenant).map_or(0, |share| share.locks)
    }

    fn add(&mut self, tenant: u32, payer: &Arc<dyn Payer>) {
        payer.charge_lock();
        self.tenants.entry(tenant).or_insert_with(|| Share { locks: 0, payer: payer.clone() }).locks += 1;
        self.all += 1;
    }

    /// The same lock in two.
    fn split(&mut self, held: &Held) {
        if let Some(payer) = self.tenants.get(&held.tenant).map(|share| share.payer.clone()) {
            self.add(held.tenant, &payer);
        }
    }

    fn remove(&mut self, held: &Held) {
        self.all -= 1;
        if let Some(share) = self.tenants.get_mut(&held.tenant) {
            share.payer.give_lock();
            share.locks -= 1;
            if share.locks == 0 {
                self.tenants.remove(&held.tenant);
            }
        }
    }
}

#[derive(Default)]
struct Table {
    inodes: HashMap<InodeNo, InodeLocks>,
    tally: Tally,
}

/// All advisory locks of one device. Thread-safe.
#[derive(Default)]
pub struct LockTable {
    table: Mutex<Table>,
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

/// Whether a tenant with `own` of `taken` locks may have what one request can add: it has no more than there are left,
/// so that one tenant takes half of what there is, and each further one half of what is left; but `least` it may always
/// have, or a dozen tenants that work together would leave nothing to others.
fn leaves_room(own: usize, taken: usize, total: usize, least: usize) -> bool {
    let left = total.saturating_sub(taken);
    own + ADDED_MAX <= left.max(least + ADDED_MAX - 1)
}

fn may_set(list: &[Held], tally: &Tally, want: &Held) -> Result<(), Errno> {
    if conflict(list, want).is_some() { Err(Errno::AGAIN) } else { may_grow(list, tally, want.tenant) }
}

/// Whether a tenant may have what one request can add. ENOLCK.
fn may_grow(list: &[Held], tally: &Tally, tenant: u32) -> Result<(), Errno> {
    let here = list.iter().filter(|h| h.tenant == tenant).count();
    let room = leaves_room(here, list.len(), LOCKS_PER_INODE_MAX, LOCKS_PER_INODE_MIN)
        && leaves_room(tally.of(tenant), tally.all, LOCKS_MAX, LOCKS_MIN);
    if room { Ok(()) } else { Err(Errno::NOLCK) }
}

/// Whether `owner` may give back `span`: what is left of a lock on both sides of it is one more than before (fcntl(2)
/// names ENOLCK for that, too), or else one lock and its unlocked bytes would be locks without a bound.
fn may_carve(list: &[Held], tally: &Tally, owner: Owner, span: Span) -> Result<(), Errno> {
    let around = |h: &&Held| h.owner == owner && h.span.start < span.start && span.end < h.span.end;
    list.iter().find(around).map_or(Ok(()), |split| may_grow(list, tally, split.tenant))
}

/// Cuts `span` out of what `owner` holds.
fn carve(list: &mut Vec<Held>, tally: &mut Tally, owner: Owner, span: Span) {
    let mut behind = None;
    list.retain_mut(|h| {
        if h.owner != owner || !h.span.overlaps(&span) {
            return true;
        }
        let whole = h.span;
        let rest = |from, to| (from < to).then_some(Span { start: from, end: to });
        let (before, after) = (rest(whole.start, span.start), rest(span.end, whole.end));
        if let (Some(_), Some(after)) = (before, after) {
            behind = Some(Held { span: after, ..*h });
        }
        match before.or(after) {
            Some(left) => h.span = left,
            None => tally.remove(h),
        }
        before.is_some() || after.is_some()
    });
    if let Some(behind) = behind {
        tally.split(&behind);
        list.push(behind);
    }
}

/// Adds a lock to those of its owner, none of which it overlaps any more. Neighbours of one owner and kind are joined,
/// so that a program that locks a file piece by piece costs one entry. Each list is joined already: nothing but the new
/// lock's own two neighbours can have become one with it, and one pass finds them.
fn insert(list: &mut Vec<Held>, tally: &mut Tally, mut new: Held, payer: &Arc<dyn Payer>) {
    tally.add(new.tenant, payer);
    list.retain(|h| {
        let touches = h.span.end == new.span.start || h.span.start == new.span.end;
        let joins = touches && h.owner == new.owner && h.exclusive == new.exclusive;
        if joins {
            new.span = Span { start: h.span.start.min(new.span.start), end: h.span.end.max(new.span.end) };
            tally.remove(h);
        }
        !joins
    });
    list.push(new);
}

/// Takes away what `gone` names.
fn shed(list: &mut Vec<Held>, tally: &mut Tally, gone: impl Fn(&Owner) -> bool) {
    list.retain(|h| {
        let goes = gone(&h.owner);
        if goes {
            tally.remove(h);
        }
        !goes
    });
}

impl LockTable {
    /// The first lock that stands in the way of `want`, if any.
    pub fn test(&self, ino: InodeNo, space: Space, want: &Held) -> Option<Held> {
        self.table.lock().inodes.get_mut(&ino).and_then(|l| conflict(l.list(space), want))
    }

    /// Takes (or changes the kind of) a lock. EAGAIN when another owner's stands in the way, ENOLCK at the limit.
    pub fn set(&self, ino: InodeNo, space: Space, want: Held, payer: &Arc<dyn Payer>) -> Result<(), Errno> {
        let Table { inodes, tally } = &mut *self.table.lock();
        let list = inodes.entry(ino).or_default().list(space);
        let allowed = may_set(list, tally, &want);
        if allowed.is_ok() {
            carve(list, tally, want.owner, want.span);
            insert(list, tally, want, payer);
        } else {
            tidy(inodes, ino);
        }
        allowed
    }

    /// What `set` would answer now.
    pub(crate) fn may_set(&self, ino: InodeNo, space: Space, want: &Held) -> Result<(), Errno> {
        let Table { inodes, tally } = &mut *self.table.lock();
        may_set(inodes.get_mut(&ino).map_or(&[], |l| l.list(space)), tally, want)
    }

    /// A lock that `owner` holds.
    pub fn held_by(&self, ino: InodeNo, space: Space, owner: Owner) -> Option<Held> {
        let mut table = self.table.lock();
        table.inodes.get_mut(&ino).and_then(|l| l.list(space).iter().find(|h| h.owner == owner).copied())
    }

    /// Gives back what `owner` holds in `span`. ENOLCK at the limit when that is the middle of a lock.
    pub fn unlock(&self, ino: InodeNo, space: Space, owner: Owner, span: Span) -> Result<(), Errno> {
        let Table { inodes, tally } = &mut *self.table.lock();
        let Some(l) = inodes.get_mut(&ino) else { return Ok(()) };
        may_carve(l.list(space), tally, owner, span)?;
        carve(l.list(space), tally, owner, span);
        tidy(inodes, ino);
        Ok(())
    }

    /// What `unlock` would answer now.
    pub fn may_unlock(&self, ino: InodeNo, space: Space, owner: Owner, span: Span) -> Result<(), Errno> {
        let Table { inodes, tally } = &mut *self.table.lock();
        inodes.get_mut(&ino).map_or(Ok(()), |l| may_carve(l.list(space), tally, owner, span))
    }

    /// Gives back the locks of one inode that `gone` names.
    pub fn release(&self, ino: InodeNo, gone: impl Fn(&Owner) -> bool) {
        let Table { inodes, tally } = &mut *self.table.lock();
        if let Some(l) = inodes.get_mut(&ino) {
            shed(&mut l.ranges, tally, &gone);
            shed(&mut l.whole, tally, &gone);
            tidy(inodes, ino);
        }
    }

    /// Gives back every process lock of a session.
    pub fn release_session(&self, session: u64) {
        let Table { inodes, tally } = &mut *self.table.lock();
        inodes.retain(|_, l| {
            shed(&mut l.ranges, tally, |o| matches!(o, Owner::Process { session: s, .. } if *s == session));
            !(l.ranges.is_empty() && l.whole.is_empty())
        });
    }

    /// Locks held.
    pub fn len(&self) -> usize {
        self.table.lock().tally.all
    }

    /// True when no lock is held: the close path then skips the table.
    pub fn is_empty(&self) -> bool {
        self.table.lock().inodes.is_empty()
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
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const INO: InodeNo = InodeNo(9);

    /// Counts what is charged to it.
    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Payer for Counts {
        fn charge_lock(&self) {
            self.0.fetch_add(1, Relaxed);
        }

        fn give_lock(&self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }

    /// `set`, where it matters to no test who pays.
    trait Sets {
        fn put(&self, ino: InodeNo, space: Space, want: Held) -> Result<(), Errno>;
    }

    impl Sets for LockTable {
        fn put(&self, ino: InodeNo, space: Space, want: Held) -> Result<(), Errno> {
            let payer: Arc<dyn Payer> = Arc::new(Counts::default());
            self.set(ino, space, want, &payer)
        }
    }

    fn process(owner: u64) -> Owner {
        Owner::Process { session: 1, owner }
    }

    fn held(owner: Owner, start: u64, len: u64, exclusive: bool) -> Held {
        Held { owner, tenant: 1, span: Span::new(start, len).unwrap(), exclusive }
    }

    #[test]
    fn readers_share_and_a_writer_is_refused() {
        let t = LockTable::default();
        t.put(INO, Space::Ranges, held(process(1), 0, 10, false)).unwrap();
        t.put(INO, Space::Ranges, held(process(2), 5, 10, false)).unwrap();
        assert_eq!(t.put(INO, Space::Ranges, held(process(3), 9, 1, true)), Err(Errno::AGAIN));
        assert_eq!(t.put(INO, Space::Ranges, held(Owner::File(3), 9, 1, true)), Err(Errno::AGAIN));
        t.put(INO, Space::Ranges, held(process(3), 15, 0, true)).unwrap();
        t.put(INO, Space::Whole, held(Owner::File(3), 0, 0, true)).unwrap();
    }

    #[test]
    fn unlocking_the_middle_splits_a_range_and_relocking_joins_it() {
        let t = LockTable::default();
        t.put(INO, Space::Ranges, held(process(1), 0, 100, true)).unwrap();
        t.unlock(INO, Space::Ranges, process(1), Span::new(40, 20).unwrap()).unwrap();
        assert_eq!(t.len(), 2);
        t.put(INO, Space::Ranges, held(process(2), 40, 20, true)).unwrap();
        assert!(t.test(INO, Space::Ranges, &held(process(2), 39, 1, false)).is_some());
        t.unlock(INO, Space::Ranges, process(2), Span::ALL).unwrap();
        t.put(INO, Space::Ranges, held(process(1), 40, 20, true)).unwrap();
        assert_eq!(t.len(), 1);
    }

    #[test]
    fn an_owner_changes_the_kind_of_its_own_lock() {
        let t = LockTable::default();
        t.put(INO, Space::Ranges, held(process(1), 0, 10, true)).unwrap();
        t.put(INO, Space::Ranges, held(process(1), 0, 10, false)).unwrap();
        t.put(INO, Space::Ranges, held(process(2), 0, 10, false)).unwrap();
        assert_eq!(t.put(INO, Space::Ranges, held(process(1), 0, 10, true)), Err(Errno::AGAIN));
    }

    #[test]
    fn a_dead_session_leaves_no_lock() {
        let t = LockTable::default();
        t.put(INO, Space::Ranges, held(process(1), 0, 10, true)).unwrap();
        t.put(InodeNo(10), Space::Whole, held(Owner::File(1), 0, 0, true)).unwrap();
        t.release_session(1);
        t.release(InodeNo(10), |o| *o == Owner::File(1));
        assert!(t.is_empty());
    }

    #[test]
    fn every_tenant_leaves_as_much_as_it_has_and_gets_back_what_it_gives() {
        let t = LockTable::default();
        let lock = |tenant, at: u64| {
            t.put(INO, Space::Ranges, Held { tenant, ..held(process(tenant.into()), 4 * at, 2, false) })
        };
        let counts: Vec<u64> =
            (1..=20).map(|tenant| (0..).take_while(|at| lock(tenant, *at).is_ok()).count() as u64).collect();
        assert_eq!(counts[0], LOCKS_PER_INODE_MAX as u64 / 2);
        let least = LOCKS_PER_INODE_MIN as u64;
        assert!(counts.windows(2).all(|two| two[1] == (two[0] / 2).max(least)), "half of what is left: {counts:?}");
        // What is cut in two, joined, and given back is counted as what it is.
        t.release(INO, |o| *o != process(1));
        assert_eq!(lock(2, 6000), Ok(()));
        t.unlock(INO, Space::Ranges, process(1), Span::ALL).unwrap();
        t.unlock(INO, Space::Ranges, process(2), Span::ALL).unwrap();
        assert!(t.is_empty() && t.table.lock().tally.tenants.is_empty());
        assert_eq!(t.len(), 0);
        t.put(INO, Space::Ranges, held(process(1), 0, 9, true)).unwrap();
        t.unlock(INO, Space::Ranges, process(1), Span::new(3, 3).unwrap()).unwrap();
        assert_eq!((t.len(), t.table.lock().tally.of(1)), (2, 2));
        t.put(INO, Space::Ranges, held(process(1), 3, 3, true)).unwrap();
        assert_eq!((t.len(), t.table.lock().tally.of(1)), (1, 1));
    }

    #[test]
    fn a_dozen_tenants_that_work_together_leave_every_other_its_locks() {
        let t = LockTable::default();
        let lock = |tenant, ino, at: u64| {
            let want = Held { tenant, ..held(process(tenant.into()), 4 * at, 2, false) };
            t.put(InodeNo(ino), Space::Ranges, want)
        };
        for tenant in 1..=12 {
            // One file to its limit, others by the hundred: until no more are to be had.
            (0..).take_while(|at| lock(tenant, 7, *at).is_ok()).count();
            let files = (0..).map(|i| u64::from(tenant) << 32 | i);
            let hundred = |ino: u64| (0..100).take_while(|at| lock(tenant, ino, *at).is_ok()).count();
            files.map(hundred).take_while(|n| *n == 100).count();
        }
        let taken = t.len();
        assert!(taken > LOCKS_MAX - 12 * LOCKS_MIN, "{taken} of them taken");
        for tenant in [100, 101] {
            let here = (0..).take_while(|at| lock(tenant, 7, *at).is_ok()).count();
            let all: usize =
                (1000..1100).map(|ino| (0..).take_while(|at| lock(tenant, ino, *at).is_ok()).count()).sum();
            assert!(here >= LOCKS_PER_INODE_MIN && here + all >= LOCKS_MIN, "{here} of a file, {} of all", here + all);
        }
    }

    /// Ranges of many owners that all overlap: a join that looked at each pair of them took seconds here.
    #[test]
    fn a_lock_costs_one_pass_over_those_of_its_inode() {
        let t = LockTable::default();
        let begin = std::time::Instant::now();
        let shared = |owner: u64, start, tenant| Held { tenant, ..held(process(owner), start, 0, false) };
        for owner in 0..2000 {
            t.put(INO, Space::Ranges, shared(owner, owner, 1)).unwrap();
        }
        let took = begin.elapsed();
        assert_eq!(t.len(), 2000);
        // Two million looks at a lock; those of the old way were more than a thousand million.
        assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn a_lock_between_two_of_its_owner_becomes_one_with_both_and_with_no_other() {
        let t = LockTable::default();
        let spans = |owner| {
            let table = t.table.lock();
            let own = table.inodes[&INO].ranges.iter().filter(|h| h.owner == process(owner));
            let mut own: Vec<_> = own.map(|h| (h.span.start, h.span.end, h.exclusive)).collect();
            own.sort_unstable();
            own
        };
        for (owner, start, exclusive) in [(1, 0, false), (1, 20, false), (2, 0, false), (1, 40, true), (1, 30, false)] {
            t.put(INO, Space::Ranges, held(process(owner), start, 10, exclusive)).unwrap();
        }
        assert_eq!(spans(1), [(0, 10, false), (20, 40, false), (40, 50, true)]);
        t.put(INO, Space::Ranges, held(process(1), 10, 10, false)).unwrap();
        assert_eq!((spans(1), spans(2)), (vec![(0, 40, false), (40, 50, true)], vec![(0, 10, false)]));
        // The middle of one changes its kind, and back.
        t.put(INO, Space::Ranges, held(process(1), 35, 10, false)).unwrap();
        assert_eq!(spans(1), [(0, 45, false), (45, 50, true)]);
        t.put(INO, Space::Ranges, held(process(1), 20, 5, false)).unwrap();
        assert_eq!(spans(1), [(0, 45, false), (45, 50, true)]);
        assert_eq!(t.len(), 3);
    }

    #[test]
    fn empty_and_overflowing_ranges_are_refused() {
        assert_eq!(Span::new(5, u64::MAX), Err(Errno::INVAL));
        assert_eq!(Span::new(u64::MAX, 0), Err(Errno::INVAL));
    }

    #[test]
    fn bytes_unlocked_one_by_one_make_no_more_locks_than_a_tenant_may_have() {
        let t = LockTable::default();
        let payer = Arc::new(Counts::default());
        let pays: Arc<dyn Payer> = payer.clone();
        t.set(INO, Space::Ranges, held(process(1), 0, 0, false), &pays).unwrap();
        let hole = |at: u64| t.unlock(INO, Space::Ranges, process(1), Span::new(2 * at + 1, 1).unwrap());
        let made = (0..100_000).take_while(|at| hole(*at).is_ok()).count();
        assert_eq!((made + 1, t.len()), (LOCKS_PER_INODE_MAX / 2, LOCKS_PER_INODE_MAX / 2));
        assert_eq!(hole(90_000), Err(Errno::NOLCK));
        assert_eq!(t.may_unlock(INO, Space::Ranges, process(1), Span::new(180_001, 1).unwrap()), Err(Errno::NOLCK));
        assert_eq!(payer.0.load(Relaxed), made + 1, "each is charged");
        // What makes no lock more is allowed: an end of one, a whole one, all of them.
        t.unlock(INO, Space::Ranges, process(1), Span::new(0, 1).unwrap()).unwrap();
        t.unlock(INO, Space::Ranges, process(1), Span::ALL).unwrap();
        assert!(t.is_empty());
        assert_eq!(payer.0.load(Relaxed), 0, "and given back");
        // Also by the end of its owner.
        t.set(INO, Space::Ranges, held(process(1), 0, 9, true), &pays).unwrap();
        t.unlock(INO, Space::Ranges, process(1), Span::new(3, 3).unwrap()).unwrap();
        assert_eq!(payer.0.load(Relaxed), 2);
        t.release_session(1);
        assert_eq!(payer.0.load(Relaxed), 0);
    }
}
