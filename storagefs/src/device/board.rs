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

use weldfs_scheduler::{Entry, TenantId, Token};

use super::core::Message;
use super::runq::RunQueue;
use super::slots::Inbox;

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const NOTIFIED: u8 = 3;
const WAITING: u8 = 4;

/// Cores that ran something of an inode, remembered by a hash of its number.
const LAST_RAN: usize = 256;

/// One slot as everybody may see it; what the op and the core that polls it tell each other.
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
    /// Tenant, plus one, in whose place it is to be picked: it waits for what this op holds.
    boosted: AtomicU32,
}

impl SlotState {
    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    fn swap(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
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
    starved: AtomicBool,
    last_ran: Box<[AtomicU32]>,
}

impl Board {
    pub fn new(runq: RunQueue, slots: usize, inboxes: impl IntoIterator<Item = Arc<Inbox<Message>>>) -> Board {
        let core = |inbox| CoreState { inbox, asleep: AtomicBool::new(false), running: AtomicBool::new(false) };
        Board {
            runq,
            slots: (0..slots).map(|_| SlotState::default()).collect(),
            cores: inboxes.into_iter().map(core).collect(),
            asleep: AtomicUsize::new(0),
            spinning: AtomicUsize::new(0),
            starved: AtomicBool::new(false),
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

    /// A command of `tenant` on `inode` (0: not known yet) has been put into an idle slot.
    pub fn fill(&self, at: u32, tenant: TenantId, inode: u64) {
        let s = self.slot(at);
        debug_assert!(s.is(IDLE));
        s.tenant.store(tenant.0, Ordering::Relaxed);
        s.primary.store(inode, Ordering::Relaxed);
        s.last_core.store(0, Ordering::Relaxed);
        s.boosted.store(0, Ordering::Relaxed);
        s.micro.store(0, Ordering::Relaxed);
    }

    /// Queues a freshly filled slot.
    pub fn queue(&self, at: u32) {
        if self.slot(at).swap(IDLE, QUEUED) {
            self.push(at);
        }
    }

    fn push(&self, at: u32) {
        self.runq.enqueue(self.entry(at));
        let boosted = self.slot(at).boosted.load(Ordering::Acquire);
        if boosted != 0 {
            self.runq.boost(Token(at), TenantId(boosted - 1));
        }
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
        self.slot(at).state.store(IDLE, Ordering::Release);
    }

    /// Wakes a slot's op. A late wake-up of one that has ended finds nothing, or somebody who looks and waits on.
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

    /// A command of `waiter` waits for what the op in this slot holds, or will hold before it: until it ends, it is
    /// picked in the waiter's place.
    pub fn boost(&self, at: u32, waiter: TenantId) {
        let s = self.slot(at);
        if s.tenant() != waiter && !s.is(IDLE) {
            s.boosted.store(waiter.0 + 1, Ordering::Release);
            // Where it is not queued now, it will be with the boost.
            self.runq.boost(Token(at), waiter);
        }
    }

    /// The op in this slot has given back what others waited for.
    pub fn unboost(&self, at: u32) {
        self.slot(at).boosted.store(0, Ordering::Relaxed);
    }

    /// Whether the op in this slot is picked in another tenant's place.
    pub fn is_boosted(&self, at: u32) -> bool {
        self.slot(at).boosted.load(Ordering::Relaxed) != 0
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
    pub fn offer(&self, home: usize) {
        if self.cores[home].asleep.load(Ordering::SeqCst) || !self.is_running(home) {
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

    /// Lets a core look at its rings and mail.
    pub fn ring(&self, core: usize) {
        self.cores[core].inbox.ring();
    }

    /// A command stays in its ring until something else ends.
    pub fn note_starved(&self) {
        self.starved.store(true, Ordering::SeqCst);
    }

    /// Something ended: whoever was starved looks again.
    pub fn feed(&self) {
        if self.starved.load(Ordering::Relaxed) && self.starved.swap(false, Ordering::SeqCst) {
            self.cores.iter().for_each(|c| c.inbox.ring());
        }
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
    use crate::device::runq::CostModel;
    use weldfs_scheduler::PolicyKind;

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
        assert_eq!(b.runq.pick().unwrap().token, Token(3));
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
        assert_eq!(b.runq.pick().unwrap().token, Token(1));
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

    #[test]
    fn an_op_that_moves_to_another_core_is_noticed() {
        let b = board(2);
        b.fill(1, TenantId(0), 7);
        assert!(!b.start(1, 0));
        assert!(!b.start(1, 0));
        assert!(b.start(1, 1));
    }
}
