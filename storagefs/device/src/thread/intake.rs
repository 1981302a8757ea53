//! From the rings into slots: taking commands, believing them or not, making them runnable.

use super::answers::Spell;
use super::*;
use weldfs_ciscops::Op;
use weldfs_ciscops::limits::POSTED_MAX;

/// What a look at a ring came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// No command, or one that must wait for the one before it.
    Empty,
    /// A command that may not be taken now.
    Vain,
    /// A command.
    Command,
}

impl<'d, F, M> Loop<'_, 'd, F, M>
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    /// Takes the next command of each ring of this core, of some of them when there are many. Whether there was one.
    /// Rings without one are passed over quickly, so that a tenant with many rings does not hide those of others. Those
    /// whose command may not be taken cost more: of them there are fewer in a turn.
    pub(super) fn sweep(&mut self) -> bool {
        let (mut found, mut vain, mut first, mut crowded) = (0, 0, None, false);
        self.spells_ns.set(0);
        for _ in 0..self.queues.len().min(SWEEP_LOOKS_MAX) {
            let at = if self.next < self.queues.len() { self.next } else { 0 };
            self.next = at + 1;
            match self.look(self.queues[at].pair.home, at) {
                Seen::Empty => {}
                Seen::Vain => vain += 1,
                Seen::Command => {
                    found += 1;
                    let tenant = self.queues[at].tenant.id;
                    crowded |= *first.get_or_insert(tenant) != tenant;
                }
            }
            if found == SWEEP_MAX || vain == SWEEP_VAIN_MAX {
                break;
            }
        }
        self.crowded = crowded;
        found > 0
    }

    /// While other cores are inside ops, their rings are looked at by cores that have nothing to do: some of them in a
    /// turn, for this core's own are not looked at meanwhile.
    pub(super) fn sweep_others(&mut self) -> bool {
        let version = self.core.queues_version();
        if version != self.all.0 {
            self.all = self.core.all_queues();
        }
        let mut found = false;
        for _ in 0..self.all.1.len().min(SWEEP_LOOKS_MAX) {
            let at = if self.next_other < self.all.1.len() { self.next_other } else { 0 };
            self.next_other = at + 1;
            let home = self.all.1[at].pair.home;
            if home != self.index && self.core.board.is_running(home) {
                found |= self.look(home, at) == Seen::Command;
            }
        }
        found
    }

    /// Looks at the ring that the last slice was for before others get that core: however many rings there are
    /// besides, its next command is among those that are picked from, so its tenant does not seem to have slept.
    pub(super) fn look_again(&mut self) -> bool {
        let Some(queue) = self.again.take() else { return false };
        if !queue.pair.is_worth_a_look() {
            return false;
        }
        self.keep_slot();
        match self.take(&queue, queue.pair.home == self.index) {
            Taken::Nothing => return false,
            Taken::Answered => self.worked += 1,
            Taken::Fault => self.fault(&queue),
            Taken::Command(fresh) => {
                self.accept(queue.clone(), &fresh);
                self.owe(&queue, fresh.taken);
            }
        }
        true
    }

    /// Notes what taking commands of a ring has cost since `taken`, if another waits: one look at the clock for all of
    /// them. While this thread waited for a processor of the host it cost nothing, as in a slice.
    pub(super) fn owe(&mut self, queue: &QueueState, taken: u64) {
        if self.is_contended() {
            queue.pair.owe(self.meter.beside(taken, now_ns()));
        }
    }

    /// Whether another waits while a command is looked at.
    fn is_contended(&self) -> bool {
        self.crowded || !self.core.board.runq.is_empty()
    }

    /// A client that lied about its ring is served no more.
    pub(super) fn fault(&mut self, queue: &QueueState) {
        self.ending = true;
        let (session, index) = (queue.session.id, queue.index);
        // A liar may come back as often as it likes.
        if queue.tenant.log.permits() {
            tracing::warn!("session {session} ends: queue {index} holds an impossible index");
        }
        self.core.kill_session(session);
    }

    /// Takes the next command of one ring; more of them while they are over at once and none waits, but not for ever:
    /// a client may write them faster than they are refused.
    pub(super) fn look(&mut self, home: usize, at: usize) -> Seen {
        let mut found = Seen::Empty;
        for _ in 0..BATCH_PER_QUEUE {
            self.keep_slot();
            let queue = if home == self.index { &self.queues[at] } else { &self.all.1[at] };
            if !queue.pair.is_worth_a_look() {
                return found;
            }
            match self.take(queue, home == self.index) {
                Taken::Nothing if found == Seen::Empty => {
                    if self.is_contended() {
                        queue.pair.owe(VAIN_LOOK_NS);
                    }
                    return Seen::Vain;
                }
                Taken::Nothing => return found,
                Taken::Answered => {
                    self.served |= 1 << (queue.index % 64);
                    self.worked += 1;
                    return Seen::Command;
                }
                Taken::Fault => {
                    let queue = queue.clone();
                    self.fault(&queue);
                    return Seen::Command;
                }
                Taken::Command(fresh) => {
                    let queue = queue.clone();
                    found = Seen::Command;
                    let over = self.accept(queue.clone(), &fresh);
                    self.owe(&queue, fresh.taken);
                    if !over || !self.is_alone() {
                        return found;
                    }
                }
            }
        }
        found
    }

    /// Has a free slot at hand, if there is one, before a command is taken: what was taken must have a place.
    fn keep_slot(&mut self) {
        if self.at_hand.is_empty()
            && self.slots.free() > 0
            && let Some(slot) = self.slots.take(&mut self.at_hand)
        {
            self.at_hand.push(slot);
        }
    }

    pub(super) fn has_slot(&self) -> bool {
        !self.at_hand.is_empty() || self.slots.free() > 0
    }

    /// Whether the last slot is left free for posted commands: all others may be those that wait for them.
    pub(super) fn must_leave_slot(&self) -> bool {
        self.core.leases.any() && self.at_hand.len() + self.slots.free() <= 1
    }

    /// Whether an entry is a posted one: of a ring that has the lease of its file, or the close of a handle.
    pub(super) fn is_posted(&self, queue: &QueueState, raw: &RawCommand) -> bool {
        let short = raw.0.length <= POSTED_MAX;
        let asked = short && raw.0.flags & flags::POSTED != 0 && raw.0.opcode != Opcode::Open as u16;
        asked && {
            let h = Handle::from_wire(raw.0.handle);
            self.core.leases.has(queue, h) || raw.0.opcode == Opcode::Close as u16 && self.closes_posted(queue, h)
        }
    }

    /// Whether a close may be posted without a lease: something was granted with the handle, and no other ring has its
    /// lease.
    fn closes_posted(&self, queue: &QueueState, h: Handle) -> bool {
        let granted = queue.session.handles.with(h, |d| d.is_granted().then_some(d.ino)).ok().flatten();
        granted.is_some_and(|ino| !self.core.leases.is_of(queue.session.id, h, ino))
    }

    /// Whether a command that came now would run at once.
    pub(super) fn is_alone(&self) -> bool {
        self.core.board.runq.is_empty() && self.direct.is_none() && !self.is_gated()
    }

    pub(super) fn take(&self, queue: &QueueState, wait: bool) -> Taken {
        let taken = self.take_next(queue, wait);
        if !matches!(taken, Taken::Nothing) {
            queue.pair.tell();
        }
        taken
    }

    fn take_next(&self, queue: &QueueState, wait: bool) -> Taken {
        let ends = if wait { Some(queue.pair.ends()) } else { queue.pair.try_ends() };
        let Some(mut ends) = ends else { return Taken::Nothing };
        // Another core may have taken one between the look and the lock.
        if queue.pair.is_admitting() || self.at_hand.is_empty() {
            if self.at_hand.is_empty() {
                self.core.board.note_starved();
            }
            return Taken::Nothing;
        }
        // No limit of a tenant holds up what a client had published before it went; only that of all such clients.
        if ends.is_draining() && !queue.pair.is_watched() && self.core.board.drains_enough() {
            self.core.board.note_starved();
            if self.core.board.drains_enough() {
                return Taken::Nothing;
            }
        }
        // Beside others who have commands in their rings, nothing is answered past the run queue.
        let alone = !self.crowded && self.is_alone() && self.may_answer() && !self.spells_last();
        let mut spell = Spell::default();
        let mut answered = 0;
        while answered < BATCH_PER_QUEUE {
            let fresh = ends.held().is_none();
            let raw = match ends.next(&queue.pair) {
                Ok(raw) => raw,
                Err(Taken::Nothing) if answered > 0 => break,
                Err(nothing) => {
                    // It does not take its answers, and others wait for what it has published.
                    if ends.is_full() && (queue.pair.is_watched() || self.core.leases.is_recalled(queue)) {
                        self.core.leases.void(queue);
                    }
                    return nothing;
                }
            };
            let mut posted = self.is_posted(queue, &raw);
            if posted && ends.in_flight() > 0 {
                // Behind one that is waited for: it has no rights that others wait for.
                self.core.leases.void(queue);
                posted = false;
            }
            if !posted {
                queue.pair.excuse();
            }
            let limited = !ends.is_draining();
            // What a client goes on without tends to come in rows.
            let at_once = alone && fresh && limited;
            let over = if at_once { self.answer_some(queue, &mut ends, (&raw, posted), &mut spell) } else { 0 };
            if over > 0 {
                answered += over;
                if self.spells_last() { break } else { continue }
            }
            if !posted && self.must_leave_slot() || limited && !admit(queue, bytes_of(&raw)) {
                ends.hold(&queue.pair, raw, now_ns());
                queue.counters.admission_waits.add(u64::from(fresh));
                self.core.board.note_starved();
                if answered > 0 {
                    break;
                }
                return Taken::Nothing;
            }
            if answered > 0 {
                // This one may take long.
                self.note_spell(queue, &mut ends, &spell);
                queue.counters.client_wakes.add(ends.publish());
            }
            if !limited {
                self.core.board.drain();
            }
            let taken = now_ns();
            let seen = ends.start(&queue.pair, taken);
            self.note_depth(queue, &mut ends, taken);
            return Taken::Command(Fresh { raw, posted, admitted: limited, seen, taken });
        }
        self.note_spell(queue, &mut ends, &spell);
        queue.counters.client_wakes.add(ends.publish());
        Taken::Answered
    }

    /// The same after commands that were over at once, if they took any time.
    fn note_spell(&self, queue: &QueueState, ends: &mut Ends, spell: &Spell) {
        if let Some(over) = spell.over() {
            self.note_depth(queue, ends, over);
        }
    }

    /// Looks at how many commands a queue pair has outstanding.
    pub(super) fn note_depth(&self, queue: &QueueState, ends: &mut Ends, now: u64) {
        let depth = ends.outstanding(now);
        ends.depth.set(depth, &queue.counters, &queue.tenant.backlog, || now);
    }

    /// Believes a command, or not, and makes it runnable; true when it is over already.
    pub(super) fn accept(&mut self, queue: Arc<QueueState>, fresh: &Fresh) -> bool {
        self.served |= 1 << (queue.index % 64);
        let raw = &fresh.raw;
        let mut notes = Notes {
            admitted: fresh.admitted.then(|| bytes_of(raw)),
            queue,
            sequence: raw.0.sequence,
            opcode: raw.0.opcode,
            seen: fresh.seen,
            arrived: fresh.taken,
            first_run: 0,
            device_ns: 0,
            media: 0,
            fused: false,
            priority: Priority::Normal,
            uncontended: false,
            refused: None,
        };
        let queue = &notes.queue;
        let checked = if self.core.is_poisoned() { Err(Errno::IO) } else { validate(raw, &queue.limits) };
        let mut cmd = match checked {
            Ok(cmd) => cmd,
            Err(errno) => {
                let leased = fresh.posted && self.core.leases.has(queue, Handle::from_wire(raw.0.handle));
                if leased && !planted(Canary::PostedErrorSwallowed) {
                    let _ = queue.session.handles.with(Handle::from_wire(raw.0.handle), |d| d.fail(errno));
                }
                return self.refuse(notes, errno);
            }
        };
        cmd.posted &= fresh.posted || matches!(cmd.op, Op::Open { .. });
        if !fresh.admitted && !departed::begins(self.core, &queue.session, &cmd.op, cmd.is_posted()) {
            return self.over_at_once(notes, opcx::failed(Errno::INTR));
        }
        if planted(Canary::SqeReadTwice) {
            self.look_twice(queue, &queue.pair.ends());
        }
        near(&cmd.op, &queue.pool);
        let free = self.is_alone();
        notes.priority = cmd.hints.priority;
        queue.counters.hinted(cmd.hints);
        notes.fused = cmd.op.opcode().spec().fused;
        let paths = match Paths::fetch(&cmd, &queue.pool) {
            Ok(paths) => paths,
            Err(errno) => return self.refuse(notes, errno),
        };
        let Some(slot) = self.slots.take(&mut self.at_hand) else {
            // Never: there was one at hand when the command was taken.
            return self.over_at_once(notes, opcx::failed(Errno::NOMEM));
        };
        let board = &self.core.board;
        let generation = board.fill(slot, queue.tenant.id, primary(queue, raw, free));
        queue.pair.admit(slot, generation, cmd.is_posted());
        let (place, taken) = (opcx::Place::Alone, Default::default());
        let (core, position) = (self.core, queue.aside.position());
        let state = board.slot(slot);
        let op = OpCx { core, slot: state, at: slot, queue: queue.clone(), cmd, paths, place, position, taken };
        self.slots.fill(slot, op, notes);
        if free {
            if bytes_of(raw) > PUBLISH_BYTES {
                self.publish();
            }
            self.direct = Some(slot);
        } else {
            board.queue(slot);
        }
        false
    }

    /// What does not decode is over at once, or, when another waits, has to wait for its tenant's turn like everything
    /// else: a client cannot keep a core busy with nonsense.
    pub(super) fn refuse(&mut self, mut notes: Notes, errno: Errno) -> bool {
        {
            let _ends = notes.queue.pair.ends();
            notes.queue.counters.malformed.add(1);
        }
        if self.is_contended()
            && let Some(slot) = self.slots.take(&mut self.at_hand)
        {
            notes.refused = Some(errno);
            let generation = self.core.board.fill(slot, notes.queue.tenant.id, 0);
            notes.queue.pair.admit(slot, generation, false);
            self.slots.note(slot, notes);
            self.core.board.queue(slot);
            return false;
        }
        self.over_at_once(notes, opcx::failed(errno))
    }

    /// A command that never had a slot.
    pub(super) fn over_at_once(&mut self, notes: Notes, done: Done) -> bool {
        notes.queue.pair.settled();
        if notes.queue.pair.home != self.index {
            self.core.offer_next(&notes.queue);
        }
        let now = notes.arrived;
        self.complete(notes, done, now);
        self.core.board.feed();
        true
    }
}

/// Whether a command may be taken, and is in the accounts then. What others wait for may, whatever limit its tenant is
/// at: they may be those that have brought it there.
pub(super) fn admit(queue: &QueueState, bytes: u64) -> bool {
    queue.try_admit(bytes) || queue.pair.is_watched() && queue.admit_anyway(bytes)
}

/// Payload bytes that a command holds while it is in flight, as far as it says so itself: for admission only.
pub(super) fn bytes_of(raw: &RawCommand) -> u64 {
    u64::from(raw.0.length.min(ATOMIC_WRITE_MAX))
}

/// The inode that a command's handle names, for the policy, until its set is known; not worth knowing when nothing is
/// going to be queued.
pub(super) fn primary(queue: &QueueState, raw: &RawCommand, alone: bool) -> u64 {
    if alone {
        return 0;
    }
    queue.session.handles.with(Handle::from_wire(raw.0.handle), |d| d.ino.0).unwrap_or(0)
}
