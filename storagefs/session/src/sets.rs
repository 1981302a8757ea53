//! Inode sets: the tickets a command holds on every inode it touches, and the waiting for them.
//!
//! The rules of order are `scheduler::InodeQueue`'s; this file adds the table of queues (sharded, so that commands on
//! different inodes do not meet), atomic placement over several queues, and wakers. A command's sequence number is
//! drawn when it arrives and kept for its whole life, so a command that has to change its set keeps its place.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;
use weldfs_locks::{Mutex, MutexGuard};
use weldfs_scheduler::{InodeQueue, Mode, Seq, Token};

use super::limits::SET_SHARDS;

/// The inodes of one command, each once, sorted by shard and number.
pub type Members = SmallVec<[(u64, Mode); 4]>;

/// Inode numbers are already well spread by one multiplication.
#[derive(Default)]
pub struct InoHasher(u64);

impl Hasher for InoHasher {
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = spread(v);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

fn spread(v: u64) -> u64 {
    let x = v.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 32)
}

fn shard_of(ino: u64) -> usize {
    (spread(ino) as usize >> 7) & (SET_SHARDS - 1)
}

/// Sorts a set into the order in which its shards are locked, and joins double mentions to the stronger wish.
pub fn members(list: impl IntoIterator<Item = (u64, Mode)>) -> Members {
    let mut out = Members::new();
    for (ino, mode) in list {
        match out.iter_mut().find(|(i, _)| *i == ino) {
            Some((_, m)) => *m = m.max(mode),
            None => out.push((ino, mode)),
        }
    }
    if out.len() > 1 {
        out.sort_unstable_by_key(|(ino, _)| (shard_of(*ino), *ino));
    }
    out
}

type Queues = HashMap<u64, InodeQueue<Waker>, BuildHasherDefault<InoHasher>>;

/// Some of the queues.
#[derive(Default)]
struct Shard {
    queues: Mutex<Queues>,
    /// How many there are, for a look without the lock.
    len: AtomicU32,
}

impl Shard {
    fn lock(&self) -> LockedShard<'_> {
        LockedShard { queues: self.queues.lock(), len: &self.len }
    }
}

/// A shard under its lock. When it is given back, the number of its queues is said.
struct LockedShard<'a> {
    queues: MutexGuard<'a, Queues>,
    len: &'a AtomicU32,
}

impl Deref for LockedShard<'_> {
    type Target = Queues;

    fn deref(&self) -> &Queues {
        &self.queues
    }
}

impl DerefMut for LockedShard<'_> {
    fn deref_mut(&mut self) -> &mut Queues {
        &mut self.queues
    }
}

impl Drop for LockedShard<'_> {
    fn drop(&mut self) {
        self.len.store(self.queues.len() as u32, Ordering::Release);
    }
}

/// The inode queues of one device. Thread-safe.
pub struct SetTable {
    shards: Box<[Shard]>,
    next: AtomicU64,
    names: NamespaceGate,
}

impl Default for SetTable {
    fn default() -> Self {
        SetTable {
            shards: (0..SET_SHARDS).map(|_| Shard::default()).collect(),
            next: AtomicU64::new(1),
            names: NamespaceGate::default(),
        }
    }
}

/// The locked shards of one set, in ascending order (so that two sets never wait for each other).
struct Locked<'a> {
    guards: SmallVec<[(usize, LockedShard<'a>); 4]>,
}

impl<'a> Locked<'a> {
    /// `a` is sorted by shard.
    fn of(table: &'a SetTable, a: &Members) -> Locked<'a> {
        let mut guards: SmallVec<[(usize, LockedShard<'a>); 4]> = SmallVec::new();
        for (ino, _) in a {
            let shard = shard_of(*ino);
            if guards.last().is_none_or(|(last, _)| *last != shard) {
                guards.push((shard, table.shards[shard].lock()));
            }
        }
        Locked { guards }
    }

    /// `a` and `b` are both sorted by shard.
    fn of_both(table: &'a SetTable, a: &Members, b: &Members) -> Locked<'a> {
        let mut wanted: SmallVec<[usize; 8]> = a.iter().chain(b).map(|(ino, _)| shard_of(*ino)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        Locked { guards: wanted.into_iter().map(|s| (s, table.shards[s].lock())).collect() }
    }

    fn shard(&mut self, ino: u64) -> &mut Queues {
        let s = shard_of(ino);
        let at = self.guards.iter().position(|(i, _)| *i == s).expect("every shard of the set was locked");
        &mut self.guards[at].1
    }

    fn start_if_free(&mut self, seq: Seq, members: &Members) -> bool {
        for (ino, _) in members {
            if !self.shard(*ino).get(ino).is_some_and(|q| q.may_run(seq)) {
                return false;
            }
        }
        for (ino, _) in members {
            if let Some(q) = self.shard(*ino).get_mut(ino) {
                q.start(seq);
            }
        }
        true
    }

    fn place(&mut self, seq: Seq, token: Token, members: &Members) {
        for (ino, mode) in members {
            self.shard(*ino).entry(*ino).or_default().place(seq, *mode, token);
        }
    }

    fn remove(&mut self, seq: Seq, members: &Members, woken: &mut SmallVec<[Waker; 4]>) {
        for (ino, _) in members {
            remove(self.shard(*ino), *ino, seq, woken);
        }
    }
}

/// Takes a ticket out of an inode's queue, and the queue away with its last one.
fn remove(shard: &mut Queues, ino: u64, seq: Seq, woken: &mut SmallVec<[Waker; 4]>) {
    if let Entry::Occupied(mut queue) = shard.entry(ino) {
        queue.get_mut().remove(seq, |w| woken.push(w));
        if queue.get().is_empty() {
            queue.remove();
        }
    }
}

impl SetTable {
    /// The next arrival number.
    pub fn arrive(&self) -> Seq {
        Seq(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Places the tickets of one command, which runs in the slot `token`, in all queues of its set at once. Starts at
    /// once when the set is free.
    pub fn place(&self, seq: Seq, token: Token, members: Members) -> Tickets<'_> {
        // Most commands hold one inode, and no other wants it.
        if let [(ino, mode)] = members[..] {
            let mut shard = self.shards[shard_of(ino)].lock();
            let queue = shard.entry(ino).or_default();
            queue.place(seq, mode, token);
            let running = queue.may_run(seq);
            if running {
                queue.start(seq);
            }
            drop(shard);
            return Tickets { table: self, seq, token, members, running };
        }
        let mut locked = Locked::of(self, &members);
        locked.place(seq, token, &members);
        let running = locked.start_if_free(seq, &members);
        drop(locked);
        Tickets { table: self, seq, token, members, running }
    }

    /// Whether no command holds the inode or waits for it.
    #[inline]
    pub fn is_free(&self, ino: u64) -> bool {
        let shard = &self.shards[shard_of(ino)];
        shard.len.load(Ordering::Acquire) == 0 || !shard.lock().contains_key(&ino)
    }

    /// Holds a set that is free, as long as the result lives: no ticket is placed meanwhile in any queue of its shards.
    /// For what is over in microseconds and waits for nothing. `None` when something of it is not free.
    pub fn hold_free(&self, members: &Members) -> Option<impl Sized + use<'_>> {
        let mut locked = Locked::of(self, members);
        members.iter().all(|(ino, _)| !locked.shard(*ino).contains_key(ino)).then_some(locked)
    }

    /// The same of one inode.
    #[inline]
    pub fn hold_free_one(&self, ino: u64) -> Option<impl Sized + use<'_>> {
        let shard = self.shards[shard_of(ino)].lock();
        (shard.is_empty() || !shard.contains_key(&ino)).then_some(shard)
    }

    /// The gate that name-changing commands pass before they resolve.
    pub fn names(&self) -> &NamespaceGate {
        &self.names
    }

    /// Queues that hold a ticket (0 when nothing runs); for leak tests.
    pub fn queues(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }

    /// Tickets of each queue that holds any, and how many of them wait for others, by inode; one shard at a time, so
    /// not all of one moment.
    pub fn tickets(&self) -> HashMap<u64, (u32, u32)> {
        let mut out = HashMap::new();
        for shard in &self.shards {
            out.extend(shard.lock().iter().map(|(&inode, q)| (inode, (q.len() as u32, q.waiting() as u32))));
        }
        out
    }
}

/// The tickets of one command. Dropping them releases the set and wakes whoever may run next.
pub struct Tickets<'a> {
    table: &'a SetTable,
    seq: Seq,
    token: Token,
    members: Members,
    running: bool,
}

impl<'a> Tickets<'a> {
    /// Whether all of the set is held.
    pub fn running(&self) -> bool {
        self.running
    }

    /// The set.
    pub fn members(&self) -> &[(u64, Mode)] {
        &self.members
    }

    /// Waits until the command heads all its queues.
    pub fn start(&mut self) -> Start<'_, 'a> {
        Start { tickets: self }
    }

    /// The commands that this one waits for, by their slots; none of them can end while it is named.
    pub fn blockers(&self, mut each: impl FnMut(Token)) {
        let mut locked = Locked::of(self.table, &self.members);
        for (ino, _) in &self.members {
            if let Some(q) = locked.shard(*ino).get(ino) {
                q.blockers(self.seq).for_each(&mut each);
            }
        }
    }

    /// The commands that wait for this one, by their slots; none of them can end while it is named.
    pub fn kept_waiting(&self, mut each: impl FnMut(Token)) {
        let mut locked = Locked::of(self.table, &self.members);
        for (ino, _) in &self.members {
            if let Some(q) = locked.shard(*ino).get(ino) {
                q.kept_waiting(self.seq).for_each(&mut each);
            }
        }
    }

    /// Keeps no other command waiting until [`Tickets::take_back`], and holds nothing until then.
    pub fn lend(&mut self) {
        debug_assert!(self.running, "what is not held cannot be lent");
        let mut woken: SmallVec<[Waker; 4]> = SmallVec::new();
        let mut locked = Locked::of(self.table, &self.members);
        for (ino, _) in &self.members {
            if let Some(q) = locked.shard(*ino).get_mut(ino) {
                q.lend(self.seq, |w| woken.push(w));
            }
        }
        drop(locked);
        self.running = false;
        woken.into_iter().for_each(Waker::wake);
    }

    /// Queues what was lent again, behind all that wait; [`Tickets::start`] waits until it is held.
    pub fn take_back(&mut self) {
        let new = self.table.arrive();
        let mut locked = Locked::of(self.table, &self.members);
        for (ino, _) in &self.members {
            if let Some(q) = locked.shard(*ino).get_mut(ino) {
                q.take_back(self.seq, new);
            }
        }
        self.seq = new;
        self.running = locked.start_if_free(new, &self.members);
    }

    /// Whether something of the set may have changed while it was lent.
    pub fn was_overtaken(&self) -> bool {
        let mut locked = Locked::of(self.table, &self.members);
        self.members.iter().any(|(ino, _)| locked.shard(*ino).get(ino).is_none_or(|q| q.was_overtaken(self.seq)))
    }

    /// Changes the set: gives the old tickets back and places new ones under the same arrival number.
    pub fn replace(&mut self, members: Members) {
        let mut woken = SmallVec::new();
        let mut locked = Locked::of_both(self.table, &self.members, &members);
        locked.remove(self.seq, &self.members, &mut woken);
        locked.place(self.seq, self.token, &members);
        self.running = locked.start_if_free(self.seq, &members);
        drop(locked);
        self.members = members;
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Tickets<'_> {
    fn drop(&mut self) {
        if self.members.is_empty() {
            return;
        }
        let mut woken = SmallVec::new();
        if let [(ino, _)] = self.members[..] {
            remove(&mut self.table.shards[shard_of(ino)].lock(), ino, self.seq, &mut woken);
        } else {
            let mut locked = Locked::of(self.table, &self.members);
            locked.remove(self.seq, &self.members, &mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Future of [`Tickets::start`].
pub struct Start<'t, 'a> {
    tickets: &'t mut Tickets<'a>,
}

impl Future for Start<'_, '_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let t = &mut *self.tickets;
        if t.running {
            return Poll::Ready(());
        }
        let mut locked = Locked::of(t.table, &t.members);
        if locked.start_if_free(t.seq, &t.members) {
            t.running = true;
            return Poll::Ready(());
        }
        // A waker in every queue: whichever frees last wakes the command, and it looks at all of them again.
        for (ino, _) in &t.members {
            if let Some(q) = locked.shard(*ino).get_mut(ino) {
                q.wait(t.seq, cx.waker().clone());
            }
        }
        Poll::Pending
    }
}

/// The namespace lock: closed by a command whose set kept changing, so that no new name-changing command starts until
/// it got through. Open, it costs one load.
#[derive(Default)]
pub struct NamespaceGate {
    closed: AtomicBool,
    waiters: Mutex<Vec<Waker>>,
}

impl NamespaceGate {
    /// Whether it is open now.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// Waits until the gate is open.
    pub async fn pass(&self) {
        if self.closed.load(Ordering::Acquire) {
            std::future::poll_fn(|cx| self.poll_open(cx)).await;
        }
    }

    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.closed.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut waiters = self.waiters.lock();
        if !self.closed.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        waiters.push(cx.waker().clone());
        Poll::Pending
    }

    /// Closes the gate; waits while another command keeps it closed. Opened when the result is dropped.
    pub async fn close(&self) -> ClosedGate<'_> {
        loop {
            self.pass().await;
            if self.closed.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return ClosedGate { gate: self };
            }
        }
    }
}

/// Proof that the namespace gate is closed by the holder.
pub struct ClosedGate<'a> {
    gate: &'a NamespaceGate,
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        let mut waiters = self.gate.waiters.lock();
        self.gate.closed.store(false, Ordering::Release);
        let woken = std::mem::take(&mut *waiters);
        drop(waiters);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::task::Wake;

    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn set(list: &[(u64, Mode)]) -> Members {
        members(list.iter().copied())
    }

    #[test]
    fn a_free_set_starts_at_once_and_leaves_nothing_behind() {
        let table = SetTable::default();
        let t = table.place(
            table.arrive(),
            Token(0),
            set(&[(1, Mode::Shared), (7, Mode::Exclusive), (1, Mode::Exclusive)]),
        );
        assert!(t.running());
        assert_eq!(t.members().len(), 2);
        assert!(!table.place(table.arrive(), Token(0), set(&[(7, Mode::Shared)])).running());
        assert!(table.place(table.arrive(), Token(0), set(&[(8, Mode::Shared)])).running());
        drop(t);
        assert_eq!(table.queues(), 0);
    }

    #[test]
    fn a_waiting_command_is_woken_when_its_last_inode_is_free() {
        let table = SetTable::default();
        let a = table.place(table.arrive(), Token(0), set(&[(1, Mode::Exclusive)]));
        let b = table.place(table.arrive(), Token(0), set(&[(2, Mode::Shared)]));
        let mut c = table.place(table.arrive(), Token(0), set(&[(1, Mode::Shared), (2, Mode::Exclusive)]));
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(flag.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut c.start()).poll(&mut cx).is_pending());
        drop(a);
        assert!(flag.0.swap(false, Ordering::SeqCst));
        assert!(Pin::new(&mut c.start()).poll(&mut cx).is_pending());
        drop(b);
        assert!(flag.0.load(Ordering::SeqCst));
        assert!(Pin::new(&mut c.start()).poll(&mut cx).is_ready());
    }

    #[test]
    fn a_changed_set_keeps_the_place_of_its_arrival() {
        let table = SetTable::default();
        let holder = table.place(table.arrive(), Token(0), set(&[(3, Mode::Exclusive)]));
        let mut first = table.place(table.arrive(), Token(0), set(&[(1, Mode::Exclusive)]));
        let later = table.place(table.arrive(), Token(0), set(&[(3, Mode::Exclusive)]));
        first.replace(set(&[(3, Mode::Exclusive)]));
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(flag.clone());
        let mut cx = Context::from_waker(&waker);
        drop(holder);
        let mut later = later;
        assert!(Pin::new(&mut later.start()).poll(&mut cx).is_pending(), "the older command goes first");
        assert!(Pin::new(&mut first.start()).poll(&mut cx).is_ready());
    }

    proptest! {
        /// Random commands over few inodes, some changing their set once: exclusion holds and all of them end.
        #[test]
        fn no_deadlock_and_no_overlap(sets in proptest::collection::vec(
            (proptest::collection::vec((0u64..6, any::<bool>()), 1..5),
             proptest::option::of(proptest::collection::vec((0u64..6, any::<bool>()), 1..5))), 1..30)) {
            let mode = |shared: bool| if shared { Mode::Shared } else { Mode::Exclusive };
            let table = SetTable::default();
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            let waker = Waker::from(flag.clone());
            let mut cx = Context::from_waker(&waker);
            let mut live: Vec<_> = sets.iter().map(|(first, change)| {
                let t = table.place(table.arrive(), Token(0), members(first.iter().map(|&(i, s)| (i, mode(s)))));
                (t, change.clone())
            }).collect();
            while !live.is_empty() {
                let mut running = Vec::new();
                for (at, (t, _)) in live.iter_mut().enumerate() {
                    if Pin::new(&mut t.start()).poll(&mut cx).is_ready() {
                        running.push(at);
                    }
                }
                prop_assert!(!running.is_empty(), "nobody can run: deadlock");
                for (i, &a) in running.iter().enumerate() {
                    for &b in &running[i + 1..] {
                        for (ino, m) in live[a].0.members() {
                            let other = live[b].0.members().iter().find(|(o, _)| o == ino);
                            prop_assert!(other.is_none_or(|(_, n)| *m == Mode::Shared && *n == Mode::Shared));
                        }
                    }
                }
                let at = running[running.len() / 2];
                match live[at].1.take() {
                    Some(change) => live[at].0.replace(members(change.into_iter().map(|(i, s)| (i, mode(s))))),
                    None => drop(live.remove(at)),
                }
            }
            prop_assert_eq!(table.queues(), 0);
        }
    }
}
