//! What wakers, cores and ops tell each other: the state of every op slot, who is idle, and the run queue.
//!
//! A slot is *idle* (no command), *queued* (in the run queue), *running* (one core polls its op), *notified* (woken
//! while running: it is queued again instead of left waiting) or *waiting* (for a waker). Only the transitions below
//! happen, each by one compare-and-swap, so an op is in the run queue at most once and no wake-up is lost, whichever
//! core polls it and whichever thread wakes it:
//!
//! ```text
//! idle -> queued -> running -> waiting -> queued      running -> queued (gave way)      running -> idle (ended)
//!              running -> notified -> queued
//! ```
//!
//! Sleep: a core announces it in its inbox and in `asleep`, then looks at the run queue once more; whoever queues an op
//! looks at `asleep` afterwards (both with sequentially consistent fences between), so one of the two sees the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::task::{Wake, Waker};

use smallvec::SmallVec;
use weldfs_locks::Mutex;
use weldfs_scheduler::{Entry, TenantId, Token};

use super::message::Message;
use super::runq::RunQueue;
use super::starved::Starved;
use crate::limits::DRAIN_SHARE;
use weldfs_session::inbox::Inbox;

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const NOTIFIED: u8 = 3;
const WAITING: u8 = 4;

/// Cores that ran something of an inode, remembered by a hash of its number.
const LAST_RAN: usize = 256;

/// One slot as every core may see it; what the op and the core that polls it tell each other.
#[derive(Default)]
pub struct SlotState {
    state: AtomicU8,
    /// For the run queue: who pays, and the op's primary inode.
    tenant: AtomicU32,
    pub primary: AtomicU64,
    /// Set by an op that gives way: it is to be queued again.
    pub yielded: AtomicBool,
    /// Set by an op once its tickets are placed.
    pub admitted: AtomicBool,
    /// Set by an op that waits for a moment: it is run again then. 0: none.
    pub pause: AtomicU64,
    /// When the slice began, nanoseconds.
    pub begin: AtomicU64,
    /// The micro-op that the last slice reached, for traces.
    pub micro: AtomicU32,
    /// Core that ran the last slice, plus one.
    last_core: AtomicU32,
    /// How many commands have been in this slot.
    generation: AtomicU32,
    /// Tenant, plus one, in whose place it may be picked: the first of `waiters`. 0: none.
    lender: AtomicU32,
    /// Whose commands wait for what this op holds, each as often as it has such commands.
    waiters: Mutex<SmallVec<[TenantId; 4]>>,
}

impl SlotState {
    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    fn swap(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// In whose place the op may be picked, if in another tenant's than its own.
    fn lender(&self) -> Option<TenantId> {
        self.lender.load(Ordering::Acquire).checked_sub(1).map(TenantId)
    }

    /// How many commands have been in this slot, the one in it included.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The tenant that pays.
    pub fn tenant(&self) -> TenantId {
        TenantId(self.tenant.load(Ordering::Relaxed))
    }
}

/// What one core shows to the others.
struct CoreState {
    inbox: Arc<Inbox<Message>>,
    asleep: AtomicBool,
    running: AtomicBool,
}

/// The switchboard of one device. Thread-safe.
pub struct Board {
    /// Runnable ops.
    pub runq: RunQueue,
    slots: Box<[SlotState]>,
    cores: Box<[CoreState]>,
    asleep: AtomicUsize,
    spinning: AtomicUsize,
    /// Some core left a command in its ring for want of a slot or of its tenant's share.
    starved: Starved,
    /// Slots with commands of sessions that are ending.
    drains: AtomicUsize,
    last_ran: Box<[AtomicU32]>,
}

impl Board {
    pub fn new(runq: RunQueue, slots: usize, inboxes: impl IntoIterator<Item = Arc<Inbox<Message>>>) -> Board {
        let core = |inbox| CoreState { inbox, asleep: AtomicBool::new(false), running: AtomicBool::new(false) };
        let cores: Box<[_]> = inboxes.into_iter().map(core).collect();
        let starved = Starved::new(cores.len() > 1);
        Board {
            runq,
            slots: (0..slots).map(|_| SlotState::default()).collect(),
            cores,
            asleep: AtomicUsize::new(0),
            spinning: AtomicUsize::new(0),
            starved,
            drains: AtomicUsize::new(0),
            last_ran: (0..LAST_RAN).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Slots of the device.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// One slot.
    pub fn slot(&self, at: u32) -> &SlotState {
        &self.slots[at as usize]
    }

    /// Whether there is more than one core.
    pub fn is_shared(&self) -> bool {
        self.cores.len() > 1
    }

    fn entry(&self, at: u32) -> Entry {
        let s = self.slot(at);
        Entry {
            tenant: s.tenant(),
            inode: s.primary.load(Ordering::Relaxed),
            token: Token(at),
            request_ns: self.runq.quantum_ns(),
        }
    }

    /// A command of `tenant` on `inode` (0: not known yet) has been put into an idle slot: the so-manyth in it.
    pub fn fill(&self, at: u32, tenant: TenantId, inode: u64) -> u32 {
        let s = self.slot(at);
        debug_assert!(s.is(IDLE));
        s.tenant.store(tenant.0, Ordering::Relaxed);
        s.primary.store(inode, Ordering::Relaxed);
        s.last_core.store(0, Ordering::Relaxed);
        s.micro.store(0, Ordering::Relaxed);
        let generation = s.generation.load(Ordering::Relaxed).wrapping_add(1);
        s.generation.store(generation, Ordering::Relaxed);
        generation
    }

    /// Queues a freshly filled slot.
    pub fn queue(&self, at: u32) {
        if self.slot(at).swap(IDLE, QUEUED) {
            self.push(at);
        }
    }

    fn push(&self, at: u32) {
        self.runq.enqueue(self.entry(at), || self.slot(at).lender());
        self.call_for_work(self.slot(at).primary.load(Ordering::Relaxed));
    }

    /// The slot's op is about to be polled on `core`; true when it ran on another one before. From the run queue, or
    /// freshly filled.
    pub fn start(&self, at: u32, core: usize) -> bool {
        let s = self.slot(at);
        // A full barrier, as in `wake`: either the waker sees that the op runs, or the op sees what it was woken for.
        s.state.swap(RUNNING, Ordering::SeqCst);
        s.yielded.store(false, Ordering::Relaxed);
        s.admitted.store(false, Ordering::Relaxed);
        let me = core as u32 + 1;
        if !self.is_shared() {
            return false;
        }
        let before = s.last_core.swap(me, Ordering::Relaxed);
        self.ran(s.primary.load(Ordering::Relaxed)).store(me, Ordering::Relaxed);
        before != 0 && before != me
    }

    /// The op waits for a waker; queued again at once if it was woken meanwhile.
    pub fn wait(&self, at: u32) {
        let s = self.slot(at);
        if !s.swap(RUNNING, WAITING) {
            s.state.store(QUEUED, Ordering::Release);
            self.push(at);
        }
    }

    /// The op gave way: queued again.
    pub fn give_way(&self, at: u32) {
        self.slot(at).state.store(QUEUED, Ordering::Release);
        self.push(at);
    }

    /// The op ended.
    pub fn end(&self, at: u32) {
        self.unboost(at);
        self.slot(at).state.store(IDLE, Ordering::Release);
    }

    /// Wakes a slot's op. A late wake-up of one that has ended finds nothing, or an op that looks and waits on.
    pub fn wake(&self, at: u32) {
        let s = self.slot(at);
        fence(Ordering::SeqCst);
        loop {
            match s.state.load(Ordering::Acquire) {
                WAITING if s.swap(WAITING, QUEUED) => return self.push(at),
                RUNNING if s.swap(RUNNING, NOTIFIED) => return,
                WAITING | RUNNING => {}
                _ => return,
            }
        }
    }

    /// For a command of `waiter` that waits for others.
    pub fn boosts(&self, waiter: TenantId) -> Boosts<'_> {
        Boosts { board: self, waiter, holders: SmallVec::new() }
    }

    /// The op in this slot has given back what others waited for, or is over.
    #[inline]
    pub fn unboost(&self, at: u32) {
        if self.slot(at).lender.load(Ordering::Relaxed) != 0 {
            self.change_waiters(at, SmallVec::clear);
        }
    }

    /// Changes who waits for the op in a slot, and tells the policy of it.
    #[cold]
    fn change_waiters(&self, at: u32, change: impl FnOnce(&mut SmallVec<[TenantId; 4]>)) {
        let s = self.slot(at);
        let mut waiters = s.waiters.lock();
        change(&mut waiters);
        let first = waiters.first().map_or(0, |t| t.0 + 1);
        if s.lender.swap(first, Ordering::AcqRel) == first {
            return;
        }
        // Under the lock: the policy is told of changes in their order. Where the op is not queued now, it will be with
        // what stands here.
        match waiters.first() {
            Some(first) => drop(self.runq.boost(Token(at), *first)),
            None => self.runq.unboost(Token(at)),
        }
    }

    fn ran(&self, inode: u64) -> &AtomicU32 {
        let hash = inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        &self.last_ran[hash as usize % LAST_RAN]
    }

    /// Something is runnable that the calling thread may not take at once: a sleeping core is woken unless one is
    /// looking already; the one that last ran the inode if it sleeps.
    pub fn call_for_work(&self, inode: u64) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) == 0 || self.spinning.load(Ordering::Relaxed) > 0 {
            return;
        }
        let last = self.ran(inode).load(Ordering::Relaxed) as usize;
        let known = self.cores.get(last.wrapping_sub(1)).filter(|c| c.asleep.load(Ordering::Relaxed));
        if let Some(c) = known.or_else(|| self.cores.iter().find(|c| c.asleep.load(Ordering::Relaxed))) {
            c.inbox.ring();
        }
    }

    /// The ring of a pair whose home this is holds commands, and its home may be inside an op or asleep.
    ///
    /// The caller has cleared the ring's mark; the home, when it leaves an op, says that it runs no more, announces on
    /// its rings that it sleeps (a full fence), and passes over those with a mark. With the fence here one of the two
    /// sees the other: the home finds the mark gone, or this finds that it runs no more, and rings.
    pub fn offer(&self, home: usize) {
        fence(Ordering::SeqCst);
        if self.cores[home].asleep.load(Ordering::Relaxed) || !self.is_running(home) {
            self.ring(home);
        } else if self.spinning.load(Ordering::Relaxed) == 0
            && let Some(c) = self.cores.iter().find(|c| c.asleep.load(Ordering::Relaxed))
        {
            c.inbox.ring();
        }
    }

    /// A core looks for work without having any.
    pub fn spin(&self, begins: bool) {
        if self.is_shared() {
            match begins {
                true => self.spinning.fetch_add(1, Ordering::SeqCst),
                false => self.spinning.fetch_sub(1, Ordering::SeqCst),
            };
        }
    }

    /// Announces a core's sleep; false when something is runnable (and the announcement is withdrawn).
    pub fn prepare_sleep(&self, core: usize) -> bool {
        self.cores[core].asleep.store(true, Ordering::Relaxed);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.runq.is_empty() {
            return true;
        }
        self.awake(core);
        false
    }

    /// Withdraws the announcement.
    pub fn awake(&self, core: usize) {
        if self.cores[core].asleep.swap(false, Ordering::Relaxed) {
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether a core is inside an op, and so does not look at its rings.
    pub fn is_running(&self, core: usize) -> bool {
        self.cores[core].running.load(Ordering::Relaxed)
    }

    /// Says so.
    pub fn set_running(&self, core: usize, yes: bool) {
        if self.is_shared() {
            self.cores[core].running.store(yes, Ordering::Relaxed);
        }
    }

    /// Whether commands of sessions that are ending, which no limit of a tenant holds up, have their part of the slots:
    /// an eighth. However many such sessions there are, others have the rest; and however many commands others have,
    /// those that ended get on.
    pub fn drains_enough(&self) -> bool {
        self.drains.load(Ordering::Relaxed) >= (self.len() / DRAIN_SHARE).max(1)
    }

    /// A command of such a session has been taken.
    pub fn drain(&self) {
        self.drains.fetch_add(1, Ordering::Relaxed);
    }

    /// It is over.
    pub fn drained(&self) {
        self.drains.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets a core look at its rings and mail.
    pub fn ring(&self, core: usize) {
        self.cores[core].inbox.ring();
    }

    /// A command stays in its ring until something else ends. To be said before the look that decides about it.
    pub fn note_starved(&self) {
        self.starved.note();
    }

    /// Something ended, and what it held has been given back: whoever was starved looks again.
    pub fn feed(&self) {
        if self.starved.take() {
            self.cores.iter().for_each(|c| c.inbox.ring());
        }
    }
}

/// What one waiting command has boosted; taken back when this is dropped, so when it waits no more, for whatever
/// reason.
pub struct Boosts<'b> {
    board: &'b Board,
    waiter: TenantId,
    /// Slots, and which of their commands: a later one in the same slot owes nothing to this waiter.
    holders: SmallVec<[(u32, u32); 4]>,
}

impl Boosts<'_> {
    /// The command waits for what the op in this slot holds, or will hold before it: that may be picked in the waiter's
    /// place. Only while the op cannot end, so under the lock of the inode queue in which both have tickets.
    pub fn add(&mut self, at: u32) {
        let (s, waiter) = (self.board.slot(at), self.waiter);
        if s.tenant() != waiter {
            self.holders.push((at, s.generation()));
            self.board.change_waiters(at, |waiters| waiters.push(waiter));
        }
    }

    /// Takes all back, before those are named anew that the command waits for.
    pub fn clear(&mut self) {
        let (board, waiter) = (self.board, self.waiter);
        for (at, generation) in self.holders.drain(..) {
            let s = board.slot(at);
            board.change_waiters(at, |waiters| {
                let mine = waiters.iter().position(|t| *t == waiter);
                if let Some(mine) = mine.filter(|_| s.generation() == generation) {
                    waiters.remove(mine);
                }
            });
        }
    }
}

impl Drop for Boosts<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

struct SlotWaker {
    board: Arc<Board>,
    slot: u32,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.board.wake(self.slot);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.board.wake(self.slot);
    }
}

/// The waker of one slot.
pub fn waker(board: &Arc<Board>, slot: u32) -> Waker {
    Waker::from(Arc::new(SlotWaker { board: board.clone(), slot }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runq::CostModel;
    use weldfs_scheduler::{Cost, PolicyKind};

    impl Board {
        /// From the run queue through a slice, and back.
        fn give_way_for_tests(&self, at: u32) {
            self.start(at, 0);
            self.give_way(at);
        }
    }

    fn board(cores: usize) -> Arc<Board> {
        let inboxes: Vec<_> = (0..cores).map(|_| Arc::new(Inbox::new().unwrap())).collect();
        Arc::new(Board::new(RunQueue::new(PolicyKind::Fifo, 64, 100_000, CostModel::Measured), 64, inboxes))
    }

    #[test]
    fn a_slot_is_queued_once_however_often_it_is_woken() {
        let b = board(1);
        b.fill(3, TenantId(0), 7);
        b.queue(3);
        (0..5).for_each(|_| b.wake(3));
        assert_eq!(b.runq.pick().unwrap().0.token, Token(3));
        assert!(b.runq.pick().is_none());
        b.start(3, 0);
        b.wait(3);
        (0..5).for_each(|_| b.wake(3));
        assert_eq!(b.runq.len(), 1);
    }

    #[test]
    fn a_wake_up_during_the_slice_is_not_lost() {
        let b = board(1);
        b.fill(1, TenantId(0), 7);
        b.start(1, 0);
        b.wake(1);
        assert!(b.runq.is_empty(), "it runs: nobody else may poll it");
        b.wait(1);
        assert_eq!(b.runq.pick().unwrap().0.token, Token(1));
    }

    #[test]
    fn an_ended_op_is_not_woken() {
        let b = board(1);
        b.fill(1, TenantId(0), 7);
        b.start(1, 0);
        b.wake(1);
        b.end(1);
        b.wake(1);
        assert!(b.runq.is_empty());
    }

    #[test]
    fn a_core_does_not_sleep_over_a_runnable_op_and_a_sleeping_one_is_rung() {
        let b = board(2);
        assert!(b.prepare_sleep(1));
        b.fill(1, TenantId(0), 7);
        b.queue(1);
        assert!(b.cores[1].inbox.has_mail() && !b.cores[0].inbox.has_mail());
        assert!(!b.prepare_sleep(0));
        assert_eq!(b.asleep.load(Ordering::Relaxed), 1);
    }

    /// A board under CFS with ops of tenants 0, 1 and 2 in slots 0, 1 and 2: tenant 0 is far ahead of the others.
    fn contended() -> Arc<Board> {
        let b = board(1);
        b.runq.set_policy(PolicyKind::Cfs);
        // One of tenant 5, who waits from then on.
        b.fill(3, TenantId(5), 7);
        b.queue(3);
        b.runq.pick();
        for at in 0..3 {
            b.fill(at, TenantId(at), 7);
            b.queue(at);
        }
        b.runq.account(TenantId(0), 7, Cost { time_ns: 50_000_000, ..Cost::default() });
        b
    }

    fn next(b: &Board) -> (u32, Option<u32>) {
        let (entry, lender) = b.runq.pick().unwrap();
        (entry.token.0, lender.map(|t| t.0))
    }

    #[test]
    fn a_holder_is_picked_in_the_place_of_its_waiter_until_that_is_gone() {
        let b = contended();
        let mut boosts = b.boosts(TenantId(5));
        boosts.add(0);
        assert_eq!(next(&b), (1, None), "among equals those that were there come first");
        b.give_way_for_tests(1);
        b.runq.account(TenantId(1), 7, Cost { time_ns: 100_000, ..Cost::default() });
        b.runq.account(TenantId(2), 7, Cost { time_ns: 100_000, ..Cost::default() });
        assert_eq!(next(&b), (0, Some(5)));
        // It gives way: as long as the waiter waits, it is boosted again.
        b.give_way_for_tests(0);
        assert_eq!(next(&b), (0, Some(5)));
        b.give_way_for_tests(0);
        drop(boosts);
        let order: Vec<_> = (0..3).map(|_| next(&b)).collect();
        assert_eq!(order, [(2, None), (1, None), (0, None)], "nobody waits for it any more");
    }

    #[test]
    fn a_boost_of_an_op_that_has_ended_is_none_of_the_next_op_in_its_slot() {
        let b = contended();
        let mut stale = b.boosts(TenantId(5));
        stale.add(0);
        while b.runq.pick().is_some() {}
        b.end(0);
        assert_eq!(b.slot(0).lender(), None, "over");
        b.fill(0, TenantId(0), 8);
        assert_eq!(b.slot(0).lender(), None);
        // A command of the same tenant waits for the new one, and the old waiter goes.
        let mut fresh = b.boosts(TenantId(5));
        fresh.add(0);
        drop(stale);
        assert_eq!(b.slot(0).lender(), Some(TenantId(5)));
        drop(fresh);
        assert_eq!(b.slot(0).lender(), None);
    }

    #[test]
    fn of_several_waiters_the_next_lends_its_place_when_the_first_is_gone() {
        let b = contended();
        let (mut first, mut second, mut own) = (b.boosts(TenantId(5)), b.boosts(TenantId(6)), b.boosts(TenantId(0)));
        [&mut first, &mut second, &mut own].into_iter().for_each(|boosts| boosts.add(0));
        let lender = || b.slot(0).lender().map(|t| t.0);
        assert_eq!(lender(), Some(5));
        first.clear();
        assert_eq!(lender(), Some(6));
        first.add(0);
        assert_eq!(lender(), Some(6));
        drop((first, second));
        assert_eq!(lender(), None, "its own tenant has nothing to lend it");
        let mut late = b.boosts(TenantId(6));
        late.add(0);
        b.unboost(0);
        assert_eq!(lender(), None, "it has given back what was waited for");
    }

    #[test]
    fn an_op_that_moves_to_another_core_is_noticed() {
        let b = board(2);
        b.fill(1, TenantId(0), 7);
        assert!(!b.start(1, 0));
        assert!(!b.start(1, 0));
        assert!(b.start(1, 1));
    }
}
