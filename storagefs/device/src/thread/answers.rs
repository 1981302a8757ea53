//! Commands that are over where they are taken from their ring: what touches nothing but the completion ring, and what
//! runs to completion (`rtc`). Only where nothing else waits for the core; each is counted like every other command.

use super::*;
use crate::leases::note_failure;
use crate::rtc::merged::Together;
use crate::wishes::is_placed;
use weldfs_ciscops::interp::MERGED;
use weldfs_ciscops::limits::POSTED_MAX;
use weldfs_ciscops::{Durability, Op};
use weldfs_fs::optimistic::only_looks;
use weldfs_fs::straight;

/// The part of a quantum that the spells of one sweep over the rings may take together: completions wait for the end of
/// a spell, unless a batch of them is full before, and other rings wait, too. After that commands go into slots.
const SPELLS: u64 = 5;
/// What the record of a slice says of a command that had no slot.
const NO_SLOT: u32 = u32::MAX;

/// Commands of one ring that are over at once, one after the other.
#[derive(Default)]
pub(super) struct Spell {
    /// When the last of them was over; 0: there was none.
    now: u64,
}

impl Spell {
    /// One more begins where the one before ended.
    fn next(&mut self) -> u64 {
        if self.now == 0 {
            self.now = now_ns();
        }
        self.now
    }

    /// When the last of them was over, if one took any time.
    pub(super) fn over(&self) -> Option<u64> {
        (self.now != 0).then_some(self.now)
    }
}

impl<'d, F, M> Loop<'_, 'd, F, M>
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    /// Whether commands may be over where they are taken at all: not on an emulated device, where each takes its time.
    pub(super) fn may_answer(&self) -> bool {
        !self.core.emulated.is_on() && !self.core.is_poisoned()
    }

    /// Whether the spells of this sweep have lasted long enough.
    pub(super) fn spells_last(&self) -> bool {
        self.spells_ns.get() > self.core.board.runq.quantum_ns() / SPELLS
    }

    /// Notes the time that a command took, also one that was given up.
    fn spend(&self, spell: &mut Spell, begin: u64) {
        spell.now = now_ns();
        self.spells_ns.set(self.spells_ns.get() + spell.now.saturating_sub(begin));
    }

    /// Answers a command that is over at once, perhaps with some behind it: how many. The empty case of the queue:
    /// nothing to wait for, nothing to hold; counted like every other command.
    pub(super) fn answer_some(
        &self,
        queue: &QueueState,
        ends: &mut Ends,
        (raw, posted): (&RawCommand, bool),
        spell: &mut Spell,
    ) -> u32 {
        // What a client goes on without tends to come in rows.
        let merged = if posted { self.answer_merged(queue, ends, raw, spell) } else { 0 };
        if merged > 0 { merged } else { self.answer(queue, ends, (raw, posted), spell).into() }
    }

    /// Answers a command that is over at once; false when it is none, or not now. `posted`: one of a lease's holder.
    fn answer(
        &self,
        queue: &QueueState,
        ends: &mut Ends,
        (raw, posted): (&RawCommand, bool),
        spell: &mut Spell,
    ) -> bool {
        if !rtc::may_be(raw.0.opcode) {
            return false;
        }
        let Ok(mut cmd) = validate(raw, &queue.limits) else { return false };
        cmd.posted &= posted || matches!(cmd.op, Op::Open { .. });
        if planted(Canary::SqeReadTwice) {
            self.look_twice(queue, ends);
        }
        if let Some(done) = serve::immediate(&cmd) {
            count_immediate(&queue.counters, &cmd);
            ends.answer(&done.outcome.to_cqe(cmd.seq));
            return true;
        }
        if self.given_up.get() == Some((queue.session.id, queue.index, cmd.seq)) {
            self.given_up.set(None);
            return false;
        }
        let begin = spell.next();
        let done = self.at_once(queue, &cmd);
        self.spend(spell, begin);
        let Some(done) = done else { return false };
        note_failure(queue, &cmd, &done.outcome);
        queue.counters.posted.add(u64::from(cmd.is_posted()));
        self.count_answer(queue, ends.seen(begin), (begin, spell.now), &cmd, &done);
        ends.answer(&done.outcome.to_cqe(cmd.seq));
        true
    }

    /// Answers a posted command with those behind it that were seen in the ring and become part of its record: how
    /// many; 0, and nothing has happened, where none is behind it that might, or it is to be answered otherwise.
    fn answer_merged(&self, queue: &QueueState, ends: &mut Ends, raw: &RawCommand, spell: &mut Spell) -> u32 {
        let tried = self.given_up.get() == Some((queue.session.id, queue.index, raw.0.sequence));
        let Some(first) = joins(queue, raw, None).filter(|_| !tried) else { return 0 };
        let mut second = ends.ahead(0).and_then(|raw| joins(queue, &raw, Some(&first)));
        if second.is_none() {
            return 0;
        }
        let mut at = 0;
        let mut next = || {
            at += 1;
            second.take().or_else(|| ends.ahead(at - 1).and_then(|raw| joins(queue, &raw, Some(&first))))
        };
        let begin = spell.next();
        let run = AssertUnwindSafe(|| rtc::merged::run(self.core, queue, &first, &mut next));
        let together = catch_unwind(run).unwrap_or_else(|_| {
            self.core.poison();
            None
        });
        self.spend(spell, begin);
        let Some(Together { first: done, others, joined }) = together else { return 0 };
        let all = 1 + others.len();
        // Each has a part of the time.
        let (each, mut from) = ((spell.now - begin) / all as u64, begin);
        let mut over = |ends: &mut Ends, cmd: &Command, done: &Done| {
            note_failure(queue, cmd, &done.outcome);
            self.count_answer(queue, ends.seen(begin), (from, from + each), cmd, done);
            from += each;
            ends.answer(&done.outcome.to_cqe(cmd.seq));
        };
        over(ends, &first, &done);
        for (cmd, mut done) in others {
            // It was counted in the ring, and its completion had room, by indices of our own.
            if ends.next(&queue.pair).is_err() {
                // What is done would be done again.
                self.core.poison();
                break;
            }
            done.outcome.result2 |= if done.outcome.is_ok() { MERGED } else { 0 };
            over(ends, &cmd, &done);
        }
        let c = &queue.counters;
        c.posted.add(all as u64);
        c.merged_writes.add(joined.writes);
        c.merged_places.add(joined.places);
        c.merged_attributes.add(joined.attributes);
        all as u32
    }

    /// Runs a command; `None` where it would have to wait.
    fn at_once(&self, queue: &QueueState, cmd: &Command) -> Option<Done> {
        catch_unwind(AssertUnwindSafe(|| rtc::run(self.core, queue, cmd))).unwrap_or_else(|_| {
            self.core.poison();
            Some(opcx::failed(Errno::IO))
        })
    }

    /// Answers a command that its client has not put into its ring, for the client's thread has the core: past the
    /// ring, and counted like every other one. `None`, and nothing has happened, where anything waits in any ring or
    /// elsewhere, or it is not over at once.
    pub(super) fn call_past_ring(&mut self, (session, index): (u64, u32), raw: &RawCommand) -> Option<Cqe> {
        let due = self.paused.at().is_some() || self.delayed.at().is_some();
        let left = self.again.is_some() || !self.dirty.is_empty();
        let quiet = !due && !left && !self.ending && !self.me.inbox.has_mail();
        if !quiet || !rtc::may_be(raw.0.opcode) || !self.is_alone() || !self.may_answer() {
            return None;
        }
        let mut own = None;
        for queue in &self.queues {
            if queue.pair.is_waited_for() {
                return None;
            }
            if (queue.session.id, queue.index) == (session, index) {
                own = Some(queue);
            }
        }
        let queue = own?;
        let ends = queue.pair.ends();
        // What it has in flight may not be passed before it has its place.
        if ends.is_draining() || queue.pair.is_admitting() {
            return None;
        }
        let cmd = validate(raw, &queue.limits).ok()?;
        if let Some(done) = serve::immediate(&cmd) {
            count_immediate(&queue.counters, &cmd);
            return Some(done.outcome.to_cqe(cmd.seq));
        }
        let store = &self.core.store;
        let volatile = cmd.durability != Durability::Durable && straight::waits_for_nothing(store, &cmd.op);
        if !only_looks(&cmd.op) && !store.writes_directly() && !volatile {
            return None;
        }
        let begin = now_ns();
        let Some(done) = self.at_once(queue, &cmd) else {
            // It comes through the ring now, and would be tried in vain once more.
            self.given_up.set(Some((session, index, cmd.seq)));
            return None;
        };
        self.count_answer(queue, begin, (begin, now_ns()), &cmd, &done);
        drop(ends);
        // What a core that goes to sleep writes (how far the last flush went) is written when it is time for that.
        if !only_looks(&cmd.op) && !matches!(cmd.op, Op::Lock { .. }) {
            self.core.maintenance.note_volatile();
        }
        self.worked += 1;
        Some(done.outcome.to_cqe(cmd.seq))
    }

    /// Counts it. Nothing waited, so nothing is charged.
    fn count_answer(&self, queue: &QueueState, seen: u64, (begin, end): (u64, u64), cmd: &Command, done: &Done) {
        let (c, opcode) = (&queue.counters, cmd.op.opcode());
        let fused = opcode.spec().fused;
        done.count(c, opcode as u16, fused);
        c.hinted(cmd.hints);
        let (queue_ns, service_ns) = (begin.saturating_sub(seen), end.saturating_sub(begin));
        c.queue_ns.add(queue_ns);
        c.service_ns.add(service_ns);
        c.uncontended.add(1);
        queue.tenant.latency.record(self.index, queue_ns, service_ns);
        let record = Slice {
            start_ns: begin,
            end_ns: begin + service_ns,
            cost_ns: 0,
            session: queue.session.id,
            inode: 0,
            tenant: queue.tenant.id.0,
            slot: NO_SLOT,
            runnable: 0,
            opcode: opcode as u16,
            micro: if fused { done.outcome.micro_done } else { 0 },
            core: self.index as u16,
            end: slice_end::DONE,
            flags: slice_flag::UNCONTENDED,
            reserved: 0,
        };
        let extra = SliceExtra { migrated: false, corrected_ns: 0, used_ns: service_ns };
        count_slice(&self.me.counters, c, &record, extra);
        self.core.trace.slice(self.index, || record);
    }

    /// The planted bug: an entry that was checked is read once more. If it has changed, what was checked is not what
    /// would run: operands out of bounds, a panic at best.
    pub(super) fn look_twice(&self, queue: &QueueState, ends: &Ends) {
        if validate(&ends.again(), &queue.limits).is_err() {
            self.core.poison();
        }
    }
}

/// A posted command that may be in one record with others, with `first` as the first of them if that is given.
fn joins(queue: &QueueState, raw: &RawCommand, first: Option<&Command>) -> Option<Command> {
    let posted = raw.0.flags & flags::POSTED != 0 && raw.0.length <= POSTED_MAX;
    let cmd = posted.then(|| validate(raw, &queue.limits).ok()).flatten()?;
    // As `may_complete` says, and as the first one.
    let plain = !cmd.after_durable && !cmd.detectable && !is_placed(&cmd);
    let about = |cmd: &Command| straight::concerned(&cmd.op).map(|(h, _)| h);
    let asks = |cmd: &Command| (about(cmd), cmd.durability, cmd.hints);
    let alike = |first: &Command| asks(&cmd) == asks(first);
    (plain && straight::may_join(&cmd.op) && first.is_none_or(alike)).then_some(cmd)
}

/// Counts a command that touched nothing but the completion ring.
fn count_immediate(c: &QueueCounters, cmd: &Command) {
    c.opcode(cmd.op.opcode() as u16);
    c.hinted(cmd.hints);
    c.commands.add(1);
    c.link_bytes_in.add(Sqe::SIZE as u64);
    c.link_bytes_out.add(Cqe::SIZE as u64);
}
