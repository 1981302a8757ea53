//! One queue pair, low level: commands in, completions out, many in flight. The client above uses it one command at a
//! time; benchmarks and engines that pipeline use it directly.

mod posts;

use crate::client::Session;
use crate::connector::{Here, QueueParts, Transport};
use crate::fork;
use crate::lease::Posted;
use crate::look::{Looks, Watch};
use crate::slab::Slab;
use crate::spin::Spin;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weldfs_ciscops::limits::CLIENT_SLEEP_MS_MAX;
use weldfs_ciscops::ring::{CqConsumer, QueueMemory, SqProducer};
use weldfs_ciscops::{Command, Cqe, Errno, PoolRange, SharedRegion, Sqe};

/// While another thread runs an embedded device: tries to be the next one, and looks at the ring between two of them.
/// Some twenty microseconds in all: then the device's own thread is woken, which waits for its turn asleep.
const TAKEN_LOOKS: u32 = 32;
const LOOKS_PER_TRY: u32 = 16;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A command in flight: redeem it once, with [`Queue::wait`] or [`Queue::poll`], on the queue that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

impl Ticket {
    /// The sequence number its completion carries.
    pub fn sequence(self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy)]
enum Slot {
    Free,
    Flying(u64),
    Landed(Cqe),
}

/// One queue pair. `Send`: it may move between threads, but one uses it at a time.
///
/// Up to [`Queue::depth`] commands may be unredeemed. The device may complete them in any order, except that
/// commands on one inode run in the order they were submitted. In a forked child every call gives EBADF.
pub struct Queue {
    sq: SqProducer,
    cq: CqConsumer,
    pool: SharedRegion,
    slab: Slab,
    slots: Box<[Slot]>,
    /// By slot, what flies and is not waited for; and how many of them there are.
    posted: Box<[Option<Posted>]>,
    posts: u32,
    looks: Looks,
    next: u64,
    flying: u32,
    /// Slots that are not free.
    taken: u32,
    /// Commands pushed and not yet published.
    unflushed: bool,
    /// Where commands run on the calling thread, one that is alone waits here: it may go past the ring.
    alone: Option<Sqe>,
    /// What it was answered.
    answer: Option<Cqe>,
    past_ring: bool,
    unreleased: u32,
    spin: Spin,
    /// System calls made so far, without those of `spin`.
    calls: u64,
    dead: bool,
    doorbell: Arc<OwnedFd>,
    peer: Arc<dyn Transport>,
    /// Commands run on the thread that waits for them.
    inline: bool,
    index: u32,
    /// Different for each queue pair that this process, or one it was forked from, ever had.
    id: u64,
    generation: u32,
    /// Who keeps it for the next user when it is dropped.
    home: Weak<Session>,
}

impl Queue {
    /// Takes the client's end of a queue pair. EPROTO or EINVAL when layout and memory do not fit.
    pub fn new(parts: QueueParts, peer: Arc<dyn Transport>) -> Result<Queue, Errno> {
        let memory = QueueMemory::new(parts.region, &parts.layout)?;
        let pool = memory.pool(&parts.layout)?;
        Ok(Queue {
            sq: SqProducer::new(memory.clone()),
            cq: CqConsumer::new(memory),
            pool,
            slab: Slab::new(parts.layout.pool_bytes),
            slots: vec![Slot::Free; parts.layout.depth as usize].into_boxed_slice(),
            posted: (0..parts.layout.depth).map(|_| None).collect(),
            posts: 0,
            looks: Looks::default(),
            next: first_sequence(),
            flying: 0,
            taken: 0,
            unflushed: false,
            alone: None,
            answer: None,
            past_ring: peer.is_inline(),
            unreleased: 0,
            spin: Spin::default(),
            calls: 0,
            dead: false,
            doorbell: parts.doorbell,
            inline: peer.is_inline(),
            peer,
            index: parts.index,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            generation: fork::generation(),
            home: Weak::new(),
        })
    }

    /// The same; dropped, it goes back to `session`.
    pub(crate) fn of(session: &Arc<Session>, mut queue: Queue) -> Queue {
        queue.home = Arc::downgrade(session);
        queue
    }

    /// For who looks at the rings by other means: every command goes through them.
    pub(crate) fn keep_to_the_ring(&mut self) {
        self.past_ring = false;
    }

    /// The queue pair for another user, who finds the whole pool free; this one is of no use any more.
    fn hand_over(&mut self) -> Queue {
        Queue {
            sq: self.sq.hand_over(),
            cq: self.cq.hand_over(),
            pool: self.pool.clone(),
            slab: Slab::new(self.pool.len() as u32),
            slots: std::mem::take(&mut self.slots),
            posted: std::mem::take(&mut self.posted),
            looks: std::mem::take(&mut self.looks),
            spin: Spin::default(),
            calls: 0,
            doorbell: self.doorbell.clone(),
            peer: self.peer.clone(),
            home: Weak::new(),
            past_ring: self.inline,
            ..*self
        }
    }

    /// Looks for the completions of commands that the last user left in flight; true when there are no more. Until then
    /// the device may use the pool for them.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        while let Ok(Some(_)) = self.reap() {}
        // What landed and was never asked for.
        for slot in self.slots.iter_mut().filter(|slot| matches!(slot, Slot::Landed(_))) {
            *slot = Slot::Free;
            self.taken -= 1;
        }
        self.taken == 0 && self.flying == 0 && !self.dead
    }

    /// Commands that may be unredeemed at a time.
    pub fn depth(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The device's number for this queue pair.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The sequence that the next command submitted will have. Sequences go up (past those whose slot a command still
    /// unredeemed holds); a queue pair starts above those of all queue pairs made before, so that the outcome of a
    /// command is never taken for that of another.
    pub fn next_sequence(&self) -> u64 {
        let free = |sequence: &u64| matches!(self.slots[self.slot_of(*sequence)], Slot::Free);
        (self.next..).take(self.slots.len()).find(free).unwrap_or(self.next)
    }

    /// The slot of the table that keeps a command, by its sequence; below [`Queue::depth`].
    #[inline]
    pub(crate) fn slot_of(&self, sequence: u64) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }

    /// Commands submitted whose completion has not been seen.
    pub fn in_flight(&self) -> u32 {
        self.flying
    }

    /// Commands whose slot is taken: in flight, or landed and not yet redeemed.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// The buffer pool; ranges from [`Queue::alloc`] name its bytes.
    pub fn pool(&self) -> &SharedRegion {
        &self.pool
    }

    /// Whether the device behind it is known to be gone.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// System calls made for this queue pair since it was made: doorbells, sleeps with their look at the device's
    /// health, and turns given away while spinning. For measurements.
    pub fn system_calls(&self) -> u64 {
        self.calls + self.spin.yields()
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Room for `len` bytes in the pool, aligned to its size rounded up to a power of two. ENOMEM when none is left.
    /// Give it back with [`Queue::free`].
    #[inline]
    pub fn alloc(&mut self, len: u32) -> Result<PoolRange, Errno> {
        if len == 0 {
            return Ok(PoolRange::EMPTY);
        }
        loop {
            match self.slab.alloc(len) {
                Some(off) => return Ok(PoolRange::new(off, len)),
                // What is posted gives its room back in a moment.
                None if self.posts > 0 && self.is_ours() => self.await_posted()?,
                None => return Err(Errno::NOMEM),
            }
        }
    }

    /// Gives a range from [`Queue::alloc`] back. No command in flight may name it.
    #[inline]
    pub fn free(&mut self, range: PoolRange) {
        // After a device died mid-command it may still be writing: such a pool is never reused.
        if range.len != 0 && !self.dead {
            self.slab.free(range.off, range.len);
        }
    }

    /// Copies `bytes` into a fresh range. ENOMEM when there is no room.
    pub fn stage(&mut self, bytes: &[u8]) -> Result<PoolRange, Errno> {
        let range = self.alloc(u32::try_from(bytes.len()).map_err(|_| Errno::NOMEM)?)?;
        self.pool.slice(range)?.copy_from(bytes);
        Ok(range)
    }

    /// Takes a command (its sequence number is chosen here). The device sees it at the next
    /// [`Queue::flush`] or wait. EAGAIN when `depth` commands are unredeemed, ENODEV when the device is gone.
    #[inline]
    pub fn submit(&mut self, command: &Command) -> Result<Ticket, Errno> {
        self.submit_sqe(command.encode())
    }

    /// The same with an entry made by hand; its sequence number is overwritten.
    #[inline]
    pub fn submit_sqe(&mut self, mut sqe: Sqe) -> Result<Ticket, Errno> {
        if self.dead || !self.is_ours() {
            return Err(if self.dead { Errno::NODEV } else { Errno::BADF });
        }
        if self.taken == self.depth() {
            return Err(Errno::AGAIN);
        }
        let sequence = self.next_sequence();
        sqe.sequence = sequence;
        if self.past_ring && self.taken == 0 {
            self.alone = Some(sqe);
        } else {
            if let Some(first) = &self.alone {
                self.sq.push(first).map_err(|_| Errno::AGAIN)?;
                self.alone = None;
            }
            self.sq.push(&sqe).map_err(|_| Errno::AGAIN)?;
        }
        self.next = sequence + 1;
        Ok(self.flies(sequence))
    }

    /// Notes a command that is on its way, and not published.
    #[inline]
    fn flies(&mut self, sequence: u64) -> Ticket {
        let at = self.slot_of(sequence);
        self.slots[at] = Slot::Flying(sequence);
        self.flying += 1;
        self.taken += 1;
        self.unflushed = true;
        Ticket(sequence)
    }

    /// Makes submitted commands visible to the device, and wakes it if it sleeps (one system call then). Where the
    /// device runs on the thread that calls it, those that wait for nothing are over when this returns.
    #[inline]
    pub fn flush(&mut self) {
        if self.inline {
            return self.flush_here(false);
        }
        // What was published before has been rung for, if it had to be.
        if !std::mem::take(&mut self.unflushed) {
            return;
        }
        self.sq.publish();
        self.ring();
    }

    /// Wakes the device if it sleeps.
    #[inline]
    fn ring(&mut self) {
        if self.sq.needs_doorbell() {
            self.write_doorbell();
        }
    }

    fn write_doorbell(&mut self) {
        // An eventfd takes 2^64 - 2 rings before it refuses one, and then it is ringing already.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        self.calls += 1;
    }

    /// Waits for one command: spins for a bounded, adaptive time, then sleeps. EIO when the device dies first (its
    /// outcome is unknown) or speaks nonsense; EINVAL for a ticket already redeemed.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Cqe, Errno> {
        if self.inline {
            self.flush_here(true)
        } else {
            self.flush()
        }
        loop {
            if let Some(cqe) = self.poll(ticket)? {
                return Ok(cqe);
            }
            self.await_any()?;
        }
    }

    /// The completion of one command if it is there. Submitted commands are not flushed. Errors as [`Queue::wait`].
    #[inline]
    pub fn poll(&mut self, ticket: Ticket) -> Result<Option<Cqe>, Errno> {
        let at = self.slot_of(ticket.0);
        loop {
            match self.slots[at] {
                Slot::Landed(cqe) if cqe.sequence == ticket.0 => {
                    self.release_slot(at);
                    return Ok(Some(cqe));
                }
                Slot::Flying(sequence) if sequence == ticket.0 => {}
                _ => return Err(Errno::INVAL),
            }
            if !self.land_next()? {
                return if self.dead { Err(Errno::IO) } else { Ok(None) };
            }
        }
    }

    /// The next completion of any command, redeemed; `None` when none is there. Errors as [`Queue::wait`].
    #[inline]
    pub fn reap(&mut self) -> Result<Option<Cqe>, Errno> {
        let Some(cqe) = self.pop()? else { return if self.dead { Err(Errno::IO) } else { Ok(None) } };
        self.release_slot(self.slot_of(cqe.sequence));
        Ok(Some(cqe))
    }

    #[inline]
    fn release_slot(&mut self, at: usize) {
        self.slots[at] = Slot::Free;
        self.taken -= 1;
    }

    /// Waits until a completion is there to be polled or reaped. EIO when the device dies first; EBUSY in a signal
    /// handler that interrupted its thread while that ran an embedded device.
    pub fn await_any(&mut self) -> Result<(), Errno> {
        if !self.is_ours() {
            return Err(Errno::BADF);
        }
        if self.inline && self.flying > 0 && !self.has_completions() {
            if self.peer.is_inside() {
                return Err(Errno::BUSY);
            }
            if !self.run_here() && self.sq.pending() > 0 {
                self.ring();
            }
        }
        if self.flying == 0 || self.has_completions() || self.spin.run(|| self.cq.available() > 0) {
            return Ok(());
        }
        self.sleep()
    }

    /// As [`Queue::flush`], where the device runs on the calling thread: until a completion is there, or while
    /// something that was published is taken. The device is not woken for what this thread, or the one that runs it
    /// now, does in a moment.
    fn flush_here(&mut self, waits: bool) {
        if !self.is_ours() || !std::mem::take(&mut self.unflushed) || self.call_past_ring() {
            return;
        }
        self.sq.publish();
        // A signal handler on a thread that runs the device: that one comes back to it.
        let ran = !self.peer.is_inside() && if waits { self.run_here() } else { self.run_taken() };
        // A completion that was there before says nothing of what was published now.
        if !ran || self.sq.pending() > 0 {
            self.ring();
        }
    }

    /// Runs the command that is alone past the ring; otherwise it goes into it.
    #[inline]
    fn call_past_ring(&mut self) -> bool {
        let Some(entry) = self.alone.take() else { return false };
        if !self.peer.is_inside() {
            self.answer = self.peer.call_here(self.index, &entry);
        }
        // A ring from which all was answered has room, or the device speaks nonsense.
        self.dead |= self.answer.is_none() && self.sq.push(&entry).is_err();
        self.answer.is_some()
    }

    /// Runs the device until a completion is there, or waits for a moment while another thread does. True when nothing
    /// is left for the device to be woken for.
    fn run_here(&mut self) -> bool {
        let (cq, peer) = (&mut self.cq, &self.peer);
        run_until(&**peer, || cq.available() > 0 || cq.closed().is_some())
    }

    /// The same as long as each turn takes some of what was published: what takes long, or must wait until others are
    /// over, is not waited for.
    fn run_taken(&mut self) -> bool {
        let (sq, cq, peer) = (&mut self.sq, &mut self.cq, &self.peer);
        for _ in 0..TAKEN_LOOKS {
            let mut left = sq.pending();
            let mut took_none = || {
                let before = std::mem::replace(&mut left, sq.pending());
                left == 0 || left == before || cq.closed().is_some()
            };
            match peer.run_here(&mut took_none) {
                Here::Ran => return true,
                Here::Elsewhere => return sq.pending() == 0,
                Here::Taken => {}
            }
            // The thread that has the core takes them.
            for _ in 0..LOOKS_PER_TRY {
                if sq.pending() == 0 || cq.closed().is_some() {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        false
    }

    /// Submits one command, flushes and waits for it: what every synchronous call does. EBUSY in a signal handler that
    /// interrupted its thread while that ran an embedded device: nothing was submitted.
    #[inline]
    pub fn execute(&mut self, command: &Command) -> Result<Cqe, Errno> {
        if self.inline && self.peer.is_inside() {
            return Err(Errno::BUSY);
        }
        if self.past_ring && self.taken == 0 && !self.dead && self.is_ours() {
            return self.execute_alone(command);
        }
        self.execute_in_ring(command)
    }

    /// With nothing in flight beside it, where commands run on the calling thread: past the ring, with no slot taken
    /// for it, unless the device has it put into the ring.
    fn execute_alone(&mut self, command: &Command) -> Result<Cqe, Errno> {
        let sequence = self.next;
        let entry = Sqe { sequence, ..command.encode() };
        self.next = sequence + 1;
        match self.peer.call_here(self.index, &entry) {
            Some(cqe) if cqe.sequence == sequence => Ok(cqe),
            None if self.sq.push(&entry).is_ok() => {
                let ticket = self.flies(sequence);
                self.wait(ticket)
            }
            // It answered another command; or a ring from which all was answered has no room.
            _ => {
                self.dead = true;
                Err(Errno::IO)
            }
        }
    }

    fn execute_in_ring(&mut self, command: &Command) -> Result<Cqe, Errno> {
        let ticket = loop {
            match self.submit(command) {
                Err(Errno::AGAIN) if self.flying > 0 => {
                    self.flush();
                    self.await_any()?;
                    self.land_next()?;
                }
                other => break other?,
            }
        };
        self.wait(ticket)
    }

    /// Its number among all queue pairs of this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The number of a watch of this queue pair that may be asked for again.
    pub(crate) fn again(&self, watch: &Watch) -> Option<u32> {
        self.looks.again(self.memory(), watch)
    }

    /// Its watches.
    pub(crate) fn looks(&mut self) -> &mut Looks {
        &mut self.looks
    }

    /// The memory of its rings.
    pub(crate) fn memory(&self) -> &QueueMemory {
        self.sq.memory()
    }

    /// Whether commands run on the calling thread.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline
    }

    /// How often the device has taken back this ring's write leases.
    pub(crate) fn recalls(&self) -> u32 {
        self.sq.recalls()
    }

    /// Takes one completion off the ring into its slot; false when none is there.
    #[inline]
    fn land_next(&mut self) -> Result<bool, Errno> {
        Ok(self.land()?.is_some())
    }

    /// Takes one completion off the ring; its slot stays taken until [`Queue::poll`] or [`Queue::forget`].
    #[inline]
    pub(crate) fn land(&mut self) -> Result<Option<Cqe>, Errno> {
        let Some(cqe) = self.pop()? else { return Ok(None) };
        let at = self.slot_of(cqe.sequence);
        self.slots[at] = Slot::Landed(cqe);
        Ok(Some(cqe))
    }

    /// Frees the slot of a completion that landed, and nothing else.
    #[inline]
    pub(crate) fn forget(&mut self, sequence: u64) {
        let at = self.slot_of(sequence);
        if matches!(self.slots[at], Slot::Landed(cqe) if cqe.sequence == sequence) {
            self.release_slot(at);
        }
    }

    /// Whether a completion waits.
    #[inline]
    pub(crate) fn has_completions(&mut self) -> bool {
        self.answer.is_some() || self.cq.available() > 0
    }

    /// The ring's consumer, for who sleeps by other means than [`Queue::await_any`].
    pub(crate) fn completions(&mut self) -> &mut CqConsumer {
        &mut self.cq
    }

    /// Sleeps for a completion until `end`, or half a second; false when the device is gone.
    pub(crate) fn nap(&mut self, end: Instant) -> bool {
        if !self.has_completions() {
            self.cq.wait(end.saturating_duration_since(Instant::now()).min(Duration::from_millis(CLIENT_SLEEP_MS_MAX)));
        }
        !self.look_after(true)
    }

    pub(crate) fn spin(&mut self) -> &mut Spin {
        &mut self.spin
    }

    /// Bytes of pool handed out, in whole buffers.
    pub(crate) fn pool_used(&self) -> u32 {
        self.slab.used()
    }

    /// Whether the device is gone; looks (the one system call is left out unless `asks`). Completions that it left
    /// behind come first.
    pub(crate) fn look_after(&mut self, asks: bool) -> bool {
        if !self.dead && self.is_ours() && (self.cq.closed().is_some() || (asks && self.peer.hung_up())) {
            self.dead = !self.has_completions();
        }
        self.dead
    }

    /// Takes one completion off the ring, checked to answer a command of ours.
    #[inline]
    fn pop(&mut self) -> Result<Option<Cqe>, Errno> {
        if !self.is_ours() {
            return Err(Errno::BADF);
        }
        while let Some(cqe) = self.answer.take().or_else(|| self.pop_ring()) {
            let at = self.slot_of(cqe.sequence);
            if !matches!(self.slots[at], Slot::Flying(sequence) if sequence == cqe.sequence) {
                self.dead = true;
                return Err(Errno::IO);
            }
            self.flying -= 1;
            let Some(posted) = self.posted[at].take() else { return Ok(Some(cqe)) };
            self.release_slot(at);
            self.over(posted, &cqe);
        }
        Ok(None)
    }

    #[inline]
    fn pop_ring(&mut self) -> Option<Cqe> {
        let cqe = self.cq.pop()?;
        self.unreleased += 1;
        if self.unreleased >= self.depth() / 2 {
            self.unreleased = 0;
            self.cq.release();
        }
        Some(cqe)
    }

    /// Sleeps until a completion comes, looking after the device's health between naps.
    #[cold]
    fn sleep(&mut self) -> Result<(), Errno> {
        let start = Instant::now();
        while self.cq.available() == 0 {
            // To ask after the device's health, and to sleep.
            self.calls += 2;
            if self.cq.closed().is_some() || self.peer.hung_up() {
                // What it completed before it died still counts.
                if self.cq.available() > 0 {
                    break;
                }
                self.dead = true;
                return Err(Errno::IO);
            }
            self.cq.wait(Duration::from_millis(CLIENT_SLEEP_MS_MAX));
        }
        self.spin.slept(start.elapsed());
        Ok(())
    }
}

/// Nanoseconds since 1970: no client submits a command per nanosecond, so what is made later starts higher.
fn first_sequence() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or_default().max(1)
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.is_ours() {
            // A child's copy: the memory is not mapped here, and the addresses may belong to something else by now.
            std::mem::forget(self.pool.clone());
        } else if let Some(session) = std::mem::take(&mut self.home).upgrade() {
            session.keep(self.hand_over());
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue {{ index: {}, depth: {}, in_flight: {} }}", self.index, self.depth(), self.flying)
    }
}

/// Runs an embedded device on this thread until `done`; see [`Queue::run_here`].
fn run_until(peer: &dyn Transport, mut done: impl FnMut() -> bool) -> bool {
    for _ in 0..TAKEN_LOOKS {
        match peer.run_here(&mut done) {
            Here::Ran => return true,
            Here::Elsewhere => return done(),
            Here::Taken => {}
        }
        for _ in 0..LOOKS_PER_TRY {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
    }
    false
}
