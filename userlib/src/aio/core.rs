//! What an asynchronous queue keeps under its lock: every command in flight, who waits for it, and which pool
//! memory belongs to it until then.

use super::{Completed, OnDone};
use crate::queue::Queue;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use weldfs_ciscops::{Command, Cqe, Errno, Handle, Op, PoolRange};

/// Operands of one command in the pool that are not its own room, at most: four inputs, and a lent room.
pub(super) const HOLDS_MAX: usize = 5;
/// Wakers taken out per turn under the lock: the list then stays on the stack.
const WAKES_MAX: usize = 32;
/// How often a queue that is only polled asks whether the device's connection still stands.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// Wakers to wake once the lock is given up.
pub(super) type Wakes = SmallVec<[Waker; WAKES_MAX]>;

/// Pool memory that a command in flight uses.
#[derive(Clone, Copy, Default)]
pub(super) enum Hold {
    #[default]
    None,
    /// Staged for this command; free when it has completed.
    Owned(PoolRange),
    /// Part of a caller's buffer, which stays the caller's.
    Lent(PoolRange),
}

/// What is told of a completion.
pub(super) enum Hearer {
    /// A future (or a blocked thread), with the waker of its last poll.
    Future(Option<Waker>),
    /// A callback, run by whoever reaps.
    Call(Arc<dyn OnDone>, u64),
    /// Whoever reaps.
    List(u64),
    /// Nothing: what the command gave is given back.
    Nobody,
}

enum Phase {
    Free,
    Flying,
    Landed(Result<Cqe, Errno>),
}

struct Slot {
    sequence: u64,
    phase: Phase,
    hearer: Hearer,
    holds: [Hold; HOLDS_MAX],
    out: PoolRange,
    /// Its first result is a handle, which must not be lost.
    opens: bool,
}

/// One submission, operands staged.
pub(super) struct Order {
    pub(super) holds: [Hold; HOLDS_MAX],
    pub(super) out: PoolRange,
    pub(super) opens: bool,
}

/// How completions are noticed when nothing polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Watch {
    /// They are not: callers poll or block.
    Nobody,
    /// A thread reaps them: wakes futures, runs callbacks.
    Reap,
    /// A thread makes the eventfd readable and leaves them for the caller.
    Signal,
}

/// A completion that its hearer is owed.
pub(super) enum Due {
    Call(Arc<dyn OnDone>, u64, Result<(Cqe, PoolRange), Errno>),
    List(u64, u64, Result<(Cqe, PoolRange), Errno>),
}

pub(super) struct Core {
    pub(super) queue: Queue,
    slots: Box<[Slot]>,
    /// Commands submitted that have not landed.
    pub(super) flying: u32,
    /// Of these, futures that were polled, and callbacks.
    awaited: u32,
    calls_flying: u32,
    /// Landed and to be delivered, oldest first.
    calls: VecDeque<u64>,
    listed: VecDeque<u64>,
    /// Lent holds in flight, and lent buffers that their owners dropped meanwhile.
    lent: u32,
    orphans: Vec<PoolRange>,
    /// Handles that were not taken, to be closed as soon as the ring has room.
    closing: Vec<Handle>,
    room: Vec<Waker>,
    /// Counts what was freed, and says how far it was when a submission was refused.
    pub(super) freed: u64,
    pub(super) refused_at: u64,
    /// Threads blocked until there is room.
    pub(super) blocked: u32,
    /// Counts completions.
    pub(super) landings: u64,
    /// A thread sleeps on the ring's futex; others wait for that thread.
    pub(super) sleeper: bool,
    pub(super) followers: u32,
    pub(super) watch: Watch,
    /// The eventfd has been made readable, and the queue has not been found empty since.
    pub(super) signalled: bool,
    asked: Instant,
}

impl Core {
    pub(super) fn new(queue: Queue) -> Core {
        let depth = queue.depth() as usize;
        let slot = |_| Slot {
            sequence: 0,
            phase: Phase::Free,
            hearer: Hearer::Nobody,
            holds: [Hold::None; HOLDS_MAX],
            out: PoolRange::EMPTY,
            opens: false,
        };
        Core {
            queue,
            slots: (0..depth).map(slot).collect(),
            flying: 0,
            awaited: 0,
            calls_flying: 0,
            calls: VecDeque::with_capacity(depth),
            listed: VecDeque::with_capacity(depth),
            lent: 0,
            orphans: Vec::new(),
            closing: Vec::new(),
            room: Vec::new(),
            freed: 0,
            refused_at: 0,
            blocked: 0,
            landings: 0,
            sleeper: false,
            followers: 0,
            watch: Watch::Nobody,
            signalled: false,
            asked: Instant::now(),
        }
    }

    /// Room in the pool. EAGAIN when there may be some later, ENOMEM when there never will.
    pub(super) fn alloc(&mut self, len: usize) -> Result<PoolRange, Errno> {
        let len = u32::try_from(len).map_err(|_| Errno::NOMEM)?;
        self.queue.alloc(len).map_err(|e| match self.queue.pool_used() {
            0 => e,
            _ => self.refuse(),
        })
    }

    /// Says EAGAIN, and remembers since when.
    fn refuse(&mut self) -> Errno {
        self.refused_at = self.freed;
        Errno::AGAIN
    }

    /// Puts a command into the ring. The holds and the room of `order` are the command's from here on.
    pub(super) fn submit(&mut self, command: &Command, order: Order, hearer: Hearer) -> Result<u64, Errno> {
        self.close_strays();
        let ticket = match self.queue.submit(command) {
            Err(Errno::AGAIN) => return Err(self.refuse()),
            done => done?,
        };
        let sequence = ticket.sequence();
        self.lent += order.holds.iter().filter(|h| matches!(h, Hold::Lent(_))).count() as u32;
        self.flying += 1;
        let at = self.queue.slot_of(sequence);
        let Order { holds, out, opens } = order;
        self.slots[at] = Slot { sequence, phase: Phase::Flying, hearer, holds, out, opens };
        Ok(sequence)
    }

    /// Takes what the device has completed off the ring; wakers to wake go to `wakes`. True when there is more, which
    /// waits until these are woken.
    pub(super) fn land(&mut self, wakes: &mut Wakes) -> bool {
        while wakes.len() < WAKES_MAX {
            match self.queue.land() {
                Ok(Some(cqe)) => self.landed(cqe.sequence, Ok(cqe), wakes),
                Ok(None) => {
                    if self.flying > 0 && self.is_gone() {
                        self.fail_all(wakes);
                    }
                    self.close_strays();
                    return false;
                }
                Err(_) => {
                    self.fail_all(wakes);
                    return false;
                }
            }
        }
        true
    }

    fn is_gone(&mut self) -> bool {
        let now = Instant::now();
        let asks = now.duration_since(self.asked) >= ASK_EVERY;
        if asks {
            self.asked = now;
        }
        self.queue.look_after(asks)
    }

    /// The device died: nothing will answer what is still in flight.
    #[cold]
    fn fail_all(&mut self, wakes: &mut Wakes) {
        let mut flying: Vec<u64> = self.slots.iter().filter_map(Slot::flying).collect();
        flying.sort_unstable();
        for sequence in flying {
            self.landed(sequence, Err(Errno::IO), wakes);
        }
        self.closing.clear();
    }

    fn landed(&mut self, sequence: u64, result: Result<Cqe, Errno>, wakes: &mut Wakes) {
        let at = self.queue.slot_of(sequence);
        self.flying -= 1;
        self.landings += 1;
        for hold in std::mem::take(&mut self.slots[at].holds) {
            match hold {
                Hold::None => {}
                Hold::Owned(range) => self.queue.free(range),
                Hold::Lent(range) => self.returned(range),
            }
        }
        self.slots[at].phase = Phase::Landed(result);
        match &mut self.slots[at].hearer {
            Hearer::Future(waker) => {
                if let Some(waker) = waker.take() {
                    self.awaited -= 1;
                    // Many futures of one task: it is woken once.
                    if !wakes.last().is_some_and(|last| last.will_wake(&waker)) {
                        wakes.push(waker);
                    }
                }
            }
            Hearer::Call(..) => {
                self.calls_flying -= 1;
                self.calls.push_back(sequence);
            }
            Hearer::List(_) => self.listed.push_back(sequence),
            Hearer::Nobody => self.discard(sequence),
        }
        self.made_room(wakes);
    }

    /// A lent part came back. The buffer itself is freed here if its owner has dropped it meanwhile.
    fn returned(&mut self, part: PoolRange) {
        self.lent -= 1;
        let Some(at) = self.orphans.iter().position(|whole| holds(*whole, part)) else { return };
        let whole = self.orphans[at];
        if !self.is_lent(whole) {
            self.orphans.swap_remove(at);
            self.queue.free(whole);
        }
    }

    /// Whether a command in flight reads from this buffer.
    pub(super) fn is_lent(&self, whole: PoolRange) -> bool {
        let reads = |hold: &Hold| matches!(hold, Hold::Lent(part) if holds(whole, *part));
        self.lent > 0 && self.slots.iter().any(|slot| slot.flying().is_some() && slot.holds.iter().any(reads))
    }

    /// A buffer's owner drops it.
    pub(super) fn free(&mut self, range: PoolRange, wakes: &mut Wakes) {
        if self.is_lent(range) {
            return self.orphans.push(range);
        }
        self.queue.free(range);
        self.made_room(wakes);
    }

    /// Tells those who wait for room.
    pub(super) fn made_room(&mut self, wakes: &mut Wakes) {
        self.freed += 1;
        wakes.extend(self.room.drain(..));
    }

    /// Whether there may be room since the last refusal; EAGAIN when no command is left that could make some.
    pub(super) fn has_room(&self) -> Option<Result<(), Errno>> {
        match (self.freed != self.refused_at, self.queue.taken()) {
            (true, _) => Some(Ok(())),
            (false, 0) => Some(Err(Errno::AGAIN)),
            _ => None,
        }
    }

    /// Remembers who waits for room, if waiting helps.
    pub(super) fn await_room(&mut self, waker: &Waker) -> bool {
        let waits = self.has_room().is_none();
        if waits && !self.room.iter().any(|known| known.will_wake(waker)) {
            self.room.push(waker.clone());
        }
        waits
    }

    /// A landed completion; its slot is free again.
    pub(super) fn take(&mut self, sequence: u64) -> Option<Result<(Cqe, PoolRange), Errno>> {
        let slot = &mut self.slots[self.queue.slot_of(sequence)];
        if slot.sequence != sequence {
            return Some(Err(Errno::INVAL));
        }
        let Phase::Landed(result) = slot.phase else { return None };
        (slot.phase, slot.hearer) = (Phase::Free, Hearer::Nobody);
        self.queue.forget(sequence);
        Some(result.map(|cqe| (cqe, slot.out)))
    }

    /// Remembers whom to wake.
    pub(super) fn await_with(&mut self, sequence: u64, waker: &Waker) {
        let slot = &mut self.slots[self.queue.slot_of(sequence)];
        let Hearer::Future(known) = &mut slot.hearer else { return };
        match known {
            Some(known) if known.will_wake(waker) => {}
            Some(known) => known.clone_from(waker),
            None => {
                *known = Some(waker.clone());
                self.awaited += 1;
            }
        }
    }

    /// Hands a command over from its future to another hearer. One that landed is due at once.
    pub(super) fn hand_to(&mut self, sequence: u64, hearer: Hearer, wakes: &mut Wakes) {
        let at = self.queue.slot_of(sequence);
        let slot = &mut self.slots[at];
        if matches!(slot.hearer, Hearer::Future(Some(_))) && slot.flying().is_some() {
            self.awaited -= 1;
        }
        let (calls, landed) = (matches!(hearer, Hearer::Call(..)), matches!(slot.phase, Phase::Landed(_)));
        let nobody = matches!(hearer, Hearer::Nobody);
        slot.hearer = hearer;
        match (landed, calls) {
            (true, _) if nobody => {
                self.discard(sequence);
                self.made_room(wakes);
            }
            (true, true) => self.calls.push_back(sequence),
            (true, false) => self.listed.push_back(sequence),
            (false, true) => self.calls_flying += 1,
            (false, false) => {}
        }
    }

    /// Gives back what a landed command gave, for nothing takes it.
    fn discard(&mut self, sequence: u64) {
        let opens = self.slots[self.queue.slot_of(sequence)].opens;
        if let Some(Ok((cqe, out))) = self.take(sequence) {
            self.queue.free(out);
            if opens && cqe.status == 0 {
                self.closing.push(Handle::from_wire(cqe.result));
            }
        }
    }

    fn close_strays(&mut self) {
        while let Some(h) = self.closing.pop() {
            match self.queue.submit(&Command::new(0, Op::Close { h })) {
                Ok(ticket) => {
                    let sequence = ticket.sequence();
                    let at = self.queue.slot_of(sequence);
                    let holds = [Hold::None; HOLDS_MAX];
                    let (phase, hearer, out) = (Phase::Flying, Hearer::Nobody, PoolRange::EMPTY);
                    self.slots[at] = Slot { sequence, phase, hearer, holds, out, opens: false };
                    self.flying += 1;
                    self.queue.flush();
                }
                Err(Errno::AGAIN) => return self.closing.push(h),
                // The device is gone, and the handle with it.
                Err(_) => self.closing.clear(),
            }
        }
    }

    /// How many completions there were, and how often something was freed: whether anything has changed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.landings, self.freed)
    }

    /// The next completion to deliver, callbacks first.
    pub(super) fn due(&mut self) -> Option<Due> {
        self.due_call().or_else(|| {
            let sequence = self.listed.pop_front()?;
            let user = match self.slots[self.queue.slot_of(sequence)].hearer {
                Hearer::List(user) => user,
                _ => 0,
            };
            Some(Due::List(sequence, user, self.take(sequence)?))
        })
    }

    /// The next callback to run.
    pub(super) fn due_call(&mut self) -> Option<Due> {
        let sequence = self.calls.pop_front()?;
        let at = self.queue.slot_of(sequence);
        let Hearer::Call(target, user) = std::mem::replace(&mut self.slots[at].hearer, Hearer::Nobody) else {
            return None;
        };
        Some(Due::Call(target, user, self.take(sequence)?))
    }

    pub(super) fn has_due(&self) -> bool {
        !self.calls.is_empty() || !self.listed.is_empty()
    }

    /// Whether the watching thread has something to do, or to wait for.
    pub(super) fn wants_watch(&self) -> bool {
        match self.watch {
            Watch::Nobody => false,
            Watch::Reap => {
                let waiting = self.awaited > 0 || self.calls_flying > 0 || !self.room.is_empty();
                !self.calls.is_empty() || (self.flying > 0 && waiting)
            }
            Watch::Signal => !self.signalled && (self.flying > 0 || self.has_due()),
        }
    }

    /// The queue pair for whoever uses it next; none when commands are still in flight. Nothing of its pool is in use:
    /// every buffer would have kept the queue alive.
    pub(super) fn into_queue(self) -> Option<Queue> {
        (self.flying == 0 && self.closing.is_empty() && self.queue.pool_used() == 0).then_some(self.queue)
    }

    /// Handles that must still be closed, those of answers that were not taken among them.
    pub(super) fn strays(&mut self) -> Vec<Handle> {
        let unheard = self.calls.drain(..).chain(self.listed.drain(..)).collect::<Vec<_>>();
        unheard.into_iter().for_each(|sequence| self.discard(sequence));
        std::mem::take(&mut self.closing)
    }
}

impl Slot {
    fn flying(&self) -> Option<u64> {
        matches!(self.phase, Phase::Flying).then_some(self.sequence)
    }
}

/// Whether `part` begins inside `whole`.
fn holds(whole: PoolRange, part: PoolRange) -> bool {
    part.off >= whole.off && part.off - whole.off < whole.len.max(1)
}

/// What a hearer gets.
pub(super) fn completed(
    result: Result<(Cqe, PoolRange), Errno>,
    room: impl FnOnce(PoolRange) -> super::QueueBuf,
) -> Result<Completed, Errno> {
    result.map(|(cqe, out)| Completed { cqe, room: room(out) })
}
