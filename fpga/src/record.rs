//! What slots did, and when: sessions, steps of kernels, loading. Off, it costs an event one look at a field under a
//! lock that is held anyway; on, an event is put into a buffer whose room was taken at the start.

use crate::card::Card;
use crate::kernel::Step;
use crate::slot::{Shared, State};
use crate::status::Usage;
use weldfs_ciscops::trace::{SlotSpan, slot_flag, slot_kind};

/// Of one slot, what a recording's events come to: those without room included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotFacts {
    /// Sessions that began and ended during the recording.
    pub sessions: u64,
    /// Slot time that these used, ns.
    pub slot_ns: u64,
    /// Events for which there was no room.
    pub dropped: u64,
}

/// A recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// What began and ended during it, in the order of the ends.
    pub spans: Vec<SlotSpan>,
    /// Names of kernels, which [`SlotSpan::kernel`] counts.
    pub kernels: Vec<String>,
    /// By slot, slot 0 first.
    pub slots: Vec<SlotFacts>,
}

/// A recording under way.
pub(crate) struct Recorder {
    /// What began earlier, by the card's clock, belongs to no recording; the asker's clock then.
    since: u64,
    clock: u64,
    limit: usize,
    recording: Recording,
}

/// What a recording says of a session beside what the session knows.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    /// When it got its slot, ns of the card's clock; None where nothing was recorded then.
    pub since: Option<u64>,
    /// How long it had waited for it, ns.
    pub waited: u64,
    /// How long its input waited for credits, ns; since when it does.
    credits: u64,
    lacking: Option<u64>,
    pub failed: bool,
    pub taken: bool,
}

impl From<Option<u64>> for Seen {
    fn from(since: Option<u64>) -> Seen {
        Seen { since, ..Seen::default() }
    }
}

impl Card {
    /// Records at most `limit` events from now on, which is `now` on the asker's clock, ns. One that is under way is
    /// begun anew.
    pub fn record(&self, limit: usize, now: u64) {
        let shared = self.shared();
        let spans = Vec::with_capacity(limit);
        let mut state = shared.state.lock();
        let slots = vec![SlotFacts::default(); state.slots.len()];
        let recording = Recording { spans, slots, kernels: Vec::new() };
        state.recorder = Some(Box::new(Recorder { since: shared.config.clock.now(), clock: now, limit, recording }));
    }

    /// Ends the recording that is under way; empty where there is none.
    pub fn recorded(&self) -> Recording {
        let recorder = self.shared().state.lock().recorder.take();
        recorder.map(|r| r.recording).unwrap_or_default()
    }
}

impl Recorder {
    /// Keeps a span whose times are the card's.
    fn keep(&mut self, span: SlotSpan, kernel: &str) {
        if span.start_ns < self.since {
            return;
        }
        let Recording { spans, kernels, slots } = &mut self.recording;
        let Some(facts) = slots.get_mut(usize::from(span.slot)) else { return };
        if span.kind == slot_kind::SESSION {
            (facts.sessions, facts.slot_ns) = (facts.sessions + 1, facts.slot_ns + span.slot_ns);
        }
        if spans.len() == self.limit {
            facts.dropped += 1;
            return;
        }
        let known = kernels.iter().position(|k| k == kernel);
        let kernel = known.unwrap_or_else(|| {
            kernels.push(kernel.into());
            kernels.len() - 1
        });
        let there = |ns: u64| self.clock.saturating_add(ns - self.since);
        let end_ns = there(span.end_ns.max(span.start_ns));
        spans.push(SlotSpan { start_ns: there(span.start_ns), end_ns, kernel: kernel as u16, ..span });
    }
}

fn span(slot: usize, kind: u8, usage: &Usage) -> SlotSpan {
    SlotSpan {
        slot: slot as u16,
        kind,
        slot_ns: usage.slot_ns,
        cycles: usage.cycles,
        bytes_in: usage.bytes_in,
        bytes_out: usage.bytes_out,
        ..SlotSpan::default()
    }
}

impl Shared {
    /// The session of a slot ends.
    pub(crate) fn note_session(&self, state: &mut State, slot: usize) {
        let now = self.config.clock.now();
        let State { slots, recorder, .. } = state;
        let (Some(recorder), s) = (recorder, &slots[slot]) else { return };
        let (Some(sess), Some(loaded)) = (&s.session, &s.loaded) else { return };
        let seen = &sess.seen;
        let Some(since) = seen.since else { return };
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let span = SlotSpan {
            start_ns: since,
            end_ns: now,
            session: s.epoch,
            tenant: sess.tenant as u32,
            waited_ns: seen.waited,
            credit_wait_ns: seen.credits + seen.lacking.map_or(0, |since| now.saturating_sub(since)),
            flags: flag(seen.failed, slot_flag::FAILED) | flag(seen.taken, slot_flag::TAKEN),
            ..span(slot, slot_kind::SESSION, &sess.usage)
        };
        recorder.keep(span, &loaded.name);
    }

    /// A kernel has made a step for its session, from `begun` until now.
    pub(crate) fn note_step(&self, state: &mut State, slot: usize, epoch: u64, begun: u64, step: &Step, slot_ns: u64) {
        let State { slots, recorder, .. } = state;
        let (Some(recorder), s) = (recorder, &slots[slot]) else { return };
        let (Some(sess), Some(loaded)) = (s.session.as_ref().filter(|_| s.epoch == epoch), &s.loaded) else { return };
        let (bytes_in, bytes_out) = (step.taken as u64, step.made as u64);
        let usage = Usage { slot_ns, cycles: step.cycles, bytes_in, bytes_out };
        let span = SlotSpan {
            start_ns: begun,
            end_ns: self.config.clock.now(),
            session: epoch,
            tenant: sess.tenant as u32,
            ..span(slot, slot_kind::STEP, &usage)
        };
        recorder.keep(span, &loaded.name);
    }

    /// A kernel has been loaded: from when on, and how long that takes.
    pub(crate) fn note_load(&self, state: &mut State, slot: usize, kernel: &str, (from, takes): (u64, u64)) {
        let State { slots, recorder, .. } = state;
        let Some(recorder) = recorder else { return };
        let s = &slots[slot];
        let (tenant, session) = s.session.as_ref().map_or((0, 0), |sess| (sess.tenant as u32, s.epoch));
        let usage = Usage { slot_ns: takes, ..Usage::default() };
        let end_ns = self.config.clock.now();
        recorder
            .keep(SlotSpan { start_ns: from, end_ns, tenant, session, ..span(slot, slot_kind::LOAD, &usage) }, kernel);
    }

    /// Input of a session has been issued, or its kernel has taken some: whether the rest waits for credits.
    pub(crate) fn note_credits(&self, state: &mut State, slot: usize) {
        if state.recorder.is_none() {
            return;
        }
        let lacks = state.scheduler.lacks(slot);
        let Some(sess) = &mut state.slots[slot].session else { return };
        let (seen, now) = (&mut sess.seen, self.config.clock.now());
        match (lacks, seen.lacking) {
            (true, None) => seen.lacking = Some(now),
            (false, Some(since)) => {
                (seen.credits, seen.lacking) = (seen.credits + now.saturating_sub(since), None);
            }
            _ => {}
        }
    }
}
