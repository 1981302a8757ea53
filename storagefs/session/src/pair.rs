//! The device's ends of one queue pair, under a lock: its home core polls the ring, and whichever core ends a command
//! posts the completion.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use weldfs_ciscops::ring::{RingMemory, Word, recall_leases};
use weldfs_ciscops::{CqProducer, Cqe, Errno, QueueMemory, RawCommand, SqConsumer};
use weldfs_locks::{Mutex, MutexGuard};

use super::arrivals::Arrivals;
use super::counters::Depth;
use super::limits::{CQ_BATCH_MAX, SQ_RELEASE_BATCH};

/// The command that nothing may overtake has no slot yet.
const NO_SLOT: u64 = u64::MAX;

/// Calls of [`Ends::outstanding`] for one that looks at a ring which holds commands already.
const LOOKS: u8 = 8;

/// One queue pair. Thread-safe.
pub struct Pair {
    /// The core that polls it.
    pub home: usize,
    /// Bytes of its shared memory.
    pub bytes: u64,
    /// Slot, plus one, of the command that has not placed its tickets yet, and above it which command of that slot it
    /// is: nothing may overtake it. 0: none.
    admitting: AtomicU64,
    /// Commands taken so far, modulo 2^32; and whether one of them waits here. For a look without the lock.
    head: AtomicU32,
    holds: AtomicBool,
    /// Time that cores spent on its commands outside slices, while others waited: charged with the next slice.
    /// Nanoseconds.
    owed: AtomicU64,
    /// Nothing more of it is taken.
    gone: AtomicBool,
    /// The command that has no place yet was posted.
    posting: AtomicBool,
    /// Commands of other rings that wait for some of this one, and whether there are any.
    behind: Mutex<Vec<Waker>>,
    watched: AtomicBool,
    /// How often all of them were let go, whatever they wait for.
    excused: AtomicU32,
    memory: QueueMemory,
    ends: Mutex<Ends>,
}

/// How far a ring was published.
#[derive(Clone, Copy)]
pub struct Mark {
    at: u32,
    excused: u32,
}

/// The ends.
pub struct Ends {
    /// Commands outstanding, over time.
    pub depth: Depth,
    arrivals: Arrivals,
    /// When the command taken last had been seen in the ring, if it had been before it was taken.
    arrived: Option<u64>,
    sq: SqConsumer,
    cq: CqProducer,
    in_flight: u32,
    looks: u8,
    posted: u32,
    /// Commands taken whose entries the client has not got back.
    unreleased: u32,
    /// Times the client was woken since the last `publish`.
    woken: u64,
    /// A command that was taken when its tenant had no room for it.
    held: Option<RawCommand>,
    /// The client had taken too few of its answers for one more, when it was looked last.
    full: bool,
    /// Set when the session ends: this many more commands are executed, without completions.
    drain: Option<u32>,
}

/// A command just taken.
#[derive(Clone, Copy)]
pub struct Fresh {
    /// The entry.
    pub raw: RawCommand,
    /// Whether it is a posted one of a ring that has the lease of its file.
    pub posted: bool,
    /// Whether its tenant has it in its account.
    pub admitted: bool,
    /// When it was seen in the ring, nanoseconds of the device's clock.
    pub seen: u64,
    /// When it was taken from there.
    pub taken: u64,
}

/// What taking a command came to.
pub enum Taken {
    /// A command, copied out once.
    Command(Fresh),
    /// Commands that were over at once, and nothing else.
    Answered,
    /// Nothing waits, or it may not be taken yet.
    Nothing,
    /// The client wrote an impossible index; said once.
    Fault,
}

impl Pair {
    /// Over the memory of a fresh queue pair.
    pub fn new(memory: QueueMemory, home: usize) -> Pair {
        let bytes = memory.region().len() as u64;
        let (sq, cq) = (SqConsumer::new(memory.clone()), CqProducer::new(memory.clone()));
        let ends = Ends {
            depth: Depth::default(),
            arrivals: Arrivals::default(),
            arrived: None,
            sq,
            cq,
            in_flight: 0,
            looks: 0,
            posted: 0,
            unreleased: 0,
            woken: 0,
            held: None,
            full: false,
            drain: None,
        };
        Pair {
            home,
            bytes,
            admitting: AtomicU64::new(0),
            head: AtomicU32::new(0),
            holds: AtomicBool::new(false),
            owed: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            posting: AtomicBool::new(false),
            behind: Mutex::default(),
            watched: AtomicBool::new(false),
            excused: AtomicU32::new(0),
            memory,
            ends: Mutex::new(ends),
        }
    }

    /// Notes time that a core spent on taking, checking, refusing or answering its commands.
    #[inline]
    pub fn owe(&self, ns: u64) {
        self.owed.fetch_add(ns, Ordering::Relaxed);
    }

    /// What was noted since the last call.
    #[inline]
    pub fn take_owed(&self) -> u64 {
        if self.owed.load(Ordering::Relaxed) == 0 { 0 } else { self.owed.swap(0, Ordering::Relaxed) }
    }

    /// Whether it is worth the lock to look for a command: the client's index is not where it was, or a command waits
    /// here, and the one before it has its place. What the index says is checked under the lock.
    #[inline]
    pub fn is_worth_a_look(&self) -> bool {
        (self.has_entries() || self.holds.load(Ordering::Relaxed)) && !self.is_admitting()
    }

    /// Whether there is a command that was not taken, whatever the reason.
    pub fn is_waited_for(&self) -> bool {
        self.has_entries() || self.holds.load(Ordering::Relaxed)
    }

    /// Whether the client's index is not where it was.
    #[inline]
    pub fn has_entries(&self) -> bool {
        self.memory.load(Word::SqTail, Ordering::Acquire) != self.head.load(Ordering::Relaxed)
    }

    /// Whether it has commands that are not taken, or a posted one that is not over.
    #[inline]
    pub fn is_pending(&self) -> bool {
        (self.is_waited_for() || self.is_posting()) && !self.gone.load(Ordering::Acquire)
    }

    fn is_posting(&self) -> bool {
        self.posting.load(Ordering::Relaxed) && self.is_admitting()
    }

    /// How far the client has published now. `None`: its index lies, and it is not waited for.
    pub fn mark(&self) -> Option<Mark> {
        let mut ends = self.ends();
        let waiting = ends.sq.poll_now().ok()?;
        Some(Mark { at: ends.sq.taken().wrapping_add(waiting), excused: self.excused.load(Ordering::Relaxed) })
    }

    /// Whether the posted commands before it are over, as far as they are waited for.
    pub fn is_past(&self, mark: Mark) -> bool {
        let beyond = self.head.load(Ordering::Relaxed).wrapping_sub(mark.at) as i32;
        let under_way = self.holds.load(Ordering::Relaxed) || self.is_posting();
        // Taken, and none of those that are waited for: what is behind it is not, either.
        let other = self.is_admitting() && !self.posting.load(Ordering::Relaxed);
        let excused = self.excused.load(Ordering::Relaxed) != mark.excused;
        excused || other || !self.is_pending() || beyond > 0 || beyond == 0 && !under_way
    }

    /// Lets all that wait for it go on: a command is taken that is no posted one, and a client that keeps the rules has
    /// published nothing behind it; or it keeps none.
    pub fn excuse(&self) {
        // Under the lock of the ends.
        self.excused.store(self.excused.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.tell();
    }

    /// Has a command of another ring told when this one has got further.
    pub fn watch(&self, waker: &Waker) {
        let mut behind = self.behind.lock();
        if !behind.iter().any(|w| w.will_wake(waker)) {
            behind.push(waker.clone());
        }
        self.watched.store(true, Ordering::Release);
    }

    /// Whether any is to be told.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// Tells them.
    #[inline]
    pub fn tell(&self) {
        if self.is_watched() {
            self.tell_all();
        }
    }

    #[cold]
    fn tell_all(&self) {
        let mut behind = self.behind.lock();
        self.watched.store(false, Ordering::Release);
        let wakers = std::mem::take(&mut *behind);
        drop(behind);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Tells its client that its leases are taken back; what it has published by then is found by a look after this.
    pub fn recall(&self) {
        recall_leases(&self.memory);
    }

    /// See [`QueueMemory::begin_watch`].
    pub fn begin_watch(&self, watch: u32) {
        self.memory.begin_watch(watch);
    }

    /// See [`QueueMemory::end_watch`].
    pub fn end_watch(&self, watch: u32) {
        self.memory.end_watch(watch);
    }

    /// Nothing more of it is taken: none waits for it.
    pub fn leave(&self) {
        self.gone.store(true, Ordering::Release);
        self.tell();
    }

    /// The ends.
    pub fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock()
    }

    /// The ends, if no other core is at them.
    pub fn try_ends(&self) -> Option<MutexGuard<'_, Ends>> {
        self.ends.try_lock()
    }

    /// Wakes the client, which has been found asleep ([`Ends::publish_asleep`]).
    pub fn wake(&self) {
        self.memory.rouse();
    }

    /// Whether a command has not got its place yet.
    #[inline]
    pub fn is_admitting(&self) -> bool {
        self.admitting.load(Ordering::Acquire) != 0
    }

    /// A command has been taken, and has no slot yet: nothing may overtake it. Under the lock under which it was taken,
    /// or another core could take the next one before this one has its place.
    fn taken(&self) {
        self.posting.store(false, Ordering::Relaxed);
        self.admitting.store(NO_SLOT, Ordering::Relaxed);
    }

    /// The command taken is in this slot, as its so-manyth; a posted one stays there until it is over.
    pub fn admit(&self, slot: u32, generation: u32, posted: bool) {
        self.posting.store(posted, Ordering::Relaxed);
        self.admitting.store(mark(slot, generation), Ordering::Relaxed);
    }

    /// The command taken is over without a slot.
    pub fn settled(&self) {
        self.admitting.store(0, Ordering::Release);
    }

    /// The so-manyth command of this slot has its place, or is over; true when it had not had it before. Not by the
    /// slot alone: when a command has ended, another core may take its slot for the next one of this very ring, which
    /// has no place yet. While the mark is this command's, nothing else changes it.
    pub fn admitted(&self, slot: u32, generation: u32) -> bool {
        let now = self.admitting.load(Ordering::Relaxed) == mark(slot, generation);
        if now {
            self.admitting.store(0, Ordering::Release);
        }
        now
    }
}

fn mark(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | (u64::from(slot) + 1)
}

impl Ends {
    /// The next command, if one waits and its completion has room. Then either `hold`, `start` or `answer` it.
    pub fn next(&mut self, pair: &Pair) -> Result<RawCommand, Taken> {
        match self.held.take() {
            Some(raw) => {
                pair.holds.store(false, Ordering::Relaxed);
                Ok(raw)
            }
            None => {
                let taken = self.take_fresh();
                pair.head.store(self.sq.taken(), Ordering::Relaxed);
                taken
            }
        }
    }

    /// It waits here from `now` on: its tenant has no room for it.
    pub fn hold(&mut self, pair: &Pair, raw: RawCommand, now: u64) {
        self.held = Some(raw);
        self.arrived.get_or_insert(now);
        pair.holds.store(true, Ordering::Relaxed);
    }

    /// It is in the device from `now` on, and nothing may overtake it until it has its place. When it was seen first.
    pub fn start(&mut self, pair: &Pair, now: u64) -> u64 {
        self.in_flight += 1;
        pair.taken();
        // It may take long: a client that looks whether all that it published is taken need not wait for its end.
        if matches!(self.sq.poll(), Ok(0)) {
            self.release();
        }
        self.seen(now)
    }

    /// When the command taken last was seen in the ring; now, if it was not before it was taken. Another core may have
    /// seen it, whose clock may be ahead by a few nanoseconds.
    pub fn seen(&self, now: u64) -> u64 {
        self.arrived.unwrap_or(now).min(now)
    }

    /// It is over without having been anywhere.
    pub fn answer(&mut self, cqe: &Cqe) {
        self.in_flight += 1;
        self.post(cqe);
    }

    fn take_fresh(&mut self) -> Result<RawCommand, Taken> {
        self.full = false;
        let waiting = match (self.drain, self.sq.poll()) {
            (Some(left), Ok(n)) => left.min(n),
            (None, Ok(n)) => n,
            (_, Err(_)) => return Err(self.fault()),
        };
        if waiting == 0 {
            return Err(Taken::Nothing);
        }
        if self.drain.is_none() {
            match self.cq.reserve() {
                Ok(true) => {}
                Ok(false) => {
                    self.full = true;
                    return Err(Taken::Nothing);
                }
                Err(_) => return Err(self.fault()),
            }
        }
        let Some(raw) = self.sq.take() else { return Err(Taken::Nothing) };
        self.arrived = self.arrivals.take();
        self.unreleased += 1;
        if self.unreleased >= SQ_RELEASE_BATCH {
            self.release();
        }
        if let Some(left) = &mut self.drain {
            *left -= 1;
        }
        Ok(raw)
    }

    /// The entry `at` behind the one that is taken next, as far as it was seen in the ring and its completion has room:
    /// copied out once. What is done on its word is done before it is taken ([`Ends::next`]), and then by this copy.
    pub fn ahead(&mut self, at: u32) -> Option<RawCommand> {
        let room = self.cq.free().is_ok_and(|free| free > at);
        if room && self.drain.is_none() { self.sq.ahead(at) } else { None }
    }

    /// Whether the client had taken too few of its answers for one more.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Commands taken that are not over.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether commands wait, in the ring or here.
    pub fn has_waiting(&mut self) -> bool {
        self.held.is_some() || self.drain != Some(0) && !matches!(self.sq.poll(), Ok(0))
    }

    /// The command that waits here for room.
    pub fn held(&self) -> Option<&RawCommand> {
        self.held.as_ref()
    }

    /// Commands outstanding: in the ring, where those that are new are seen by this, or in the device. What was put
    /// into a ring that is not empty is seen one of `LOOKS` times: the client's index is a cache line of another
    /// processor.
    pub fn outstanding(&mut self, now: u64) -> u32 {
        self.looks = self.looks.wrapping_add(1);
        let fresh = self.looks.is_multiple_of(LOOKS);
        let waiting = if fresh { self.sq.poll_now() } else { self.sq.poll() };
        let waiting = waiting.unwrap_or(0);
        self.arrivals.look(waiting, || now);
        self.in_flight + u32::from(self.held.is_some()) + waiting
    }

    fn release(&mut self) {
        self.unreleased = 0;
        self.sq.release();
    }

    /// The client lied about an index: nothing more of this queue is executed.
    fn fault(&mut self) -> Taken {
        if self.drain == Some(0) {
            return Taken::Nothing;
        }
        self.drain = Some(0);
        self.cq.close(Errno::PROTO);
        self.cq.wake();
        Taken::Fault
    }

    /// Reads the entry taken last once more (see `SqConsumer::again`).
    pub fn again(&self) -> RawCommand {
        self.sq.again()
    }

    /// Writes a completion; the client sees it after `publish`, at once when a batch is full.
    pub fn post(&mut self, cqe: &Cqe) {
        self.in_flight -= 1;
        // A command taken while draining has no slot reserved; its client is gone.
        if self.cq.reserved() > 0 {
            self.cq.post(cqe);
            self.posted += 1;
            if self.posted >= CQ_BATCH_MAX {
                self.publish_posted();
            }
        }
    }

    /// Makes visible what was posted; the times the client slept and was woken since the last call.
    pub fn publish(&mut self) -> u64 {
        if self.posted > 0 {
            self.publish_posted();
        }
        std::mem::take(&mut self.woken)
    }

    /// Makes visible what was posted, and says whether the client sleeps: then the caller wakes it ([`Pair::wake`])
    /// when it has let go of the ends. Where a client that wakes has the processor at once, whoever wakes it would keep
    /// others from the ends meanwhile.
    #[must_use]
    pub fn publish_asleep(&mut self) -> bool {
        if std::mem::take(&mut self.posted) == 0 {
            return false;
        }
        self.release();
        self.cq.publish()
    }

    fn publish_posted(&mut self) {
        // First the room, then the completion: who has seen a completion finds room for the next entry.
        if self.publish_asleep() {
            self.woken += 1;
            self.cq.wake();
        }
    }

    /// The session ends: what was published before is executed; what a lying index says is not believed.
    pub fn start_drain(&mut self) {
        if self.drain.is_none() {
            self.drain = Some(self.sq.poll_now().unwrap_or(0));
        }
    }

    /// Whether the session is ending.
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Whether everything that was published has been executed. A client that takes back what it had published (its
    /// index is its own to write) has not published it: nothing waits for that.
    pub fn is_drained(&mut self) -> bool {
        if let Some(left) = self.drain.filter(|left| *left > 0) {
            self.drain = Some(left.min(self.sq.poll_now().unwrap_or(0)));
        }
        self.drain == Some(0) && self.in_flight == 0 && self.held.is_none()
    }

    /// While it is drained: whether there is something to do for whoever looks, which no other thread tells: a command
    /// to be taken, or the end.
    pub fn drains_on(&mut self) -> bool {
        self.is_drained() || (self.in_flight == 0 && self.drain.is_some_and(|left| left > 0))
    }

    /// The device is out of service: nothing more of this queue is executed, and what was taken is not waited for. The
    /// client gets EIO at once.
    pub fn abandon(&mut self) {
        (self.drain, self.held, self.in_flight) = (Some(0), None, 0);
        self.cq.close(Errno::IO);
        self.cq.wake();
    }

    /// The end: nothing is taken or posted any more.
    pub fn close(&mut self) {
        self.cq.close(Errno::NODEV);
        self.cq.wake();
    }

    /// Announces on the ring that no core polls it.
    /// `naps`: for so short a time that what is not waited for needs no bell.
    pub fn prepare_sleep(&mut self, naps: bool) {
        self.release();
        if naps { self.sq.prepare_nap() } else { self.sq.prepare_sleep() }
    }

    /// After the announcement: whether commands wait, and whether their completions have room.
    pub fn recheck(&mut self) -> (bool, bool) {
        let held = self.held.is_some();
        (self.sq.recheck().unwrap_or(true) || held, held || self.cq.free().unwrap_or(1) > 0)
    }

    /// Withdraws the announcement.
    pub fn awake(&mut self) {
        self.sq.awake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_ciscops::ring::SqProducer;
    use weldfs_ciscops::{QueueLayout, SharedRegion, Sqe};

    #[test]
    fn commands_put_into_a_ring_that_is_not_empty_are_outstanding_soon() {
        let layout = QueueLayout::new(64, 4096).unwrap();
        let memory = QueueMemory::new(SharedRegion::heap(layout.total_bytes as usize), &layout).unwrap();
        let pair = Pair::new(memory.clone(), 0);
        let (mut client, mut ends) = (SqProducer::new(memory), pair.ends());
        let mut put = |n: usize| {
            (0..n).for_each(|_| client.push(&Sqe::default()).unwrap());
            client.publish();
        };
        put(8);
        assert_eq!(ends.outstanding(1), 8);
        put(32);
        let seen: Vec<u32> = (0..LOOKS).map(|_| ends.outstanding(2)).collect();
        assert_eq!((seen[0], *seen.last().unwrap()), (8, 40), "{seen:?}");
    }
}
