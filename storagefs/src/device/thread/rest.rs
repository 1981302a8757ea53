//! A core that has nothing to do.

use super::intake::bytes_of;
use super::*;
use crate::device::limits::AT_REST_NS;

impl<'d, F, M> Loop<'_, 'd, F, M>
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    /// Gives the host's core away for a while, between slices.
    pub(super) fn rest(&mut self, away: impl FnOnce()) {
        let before = now_ns();
        away();
        self.meter.rested(now_ns().wrapping_sub(before));
    }

    /// The sleep protocol: announce on every ring, on the board and in the inbox, look once more, block.
    pub(super) fn sleep(&mut self) {
        let mut work = false;
        self.unreaped = false;
        self.queues.iter().for_each(|q| q.pair.ends().prepare_sleep());
        for q in &self.queues {
            let mut ends = q.pair.ends();
            if ends.is_draining() {
                work |= ends.is_drained();
                continue;
            }
            if q.pair.is_admitting() {
                continue;
            }
            let (waiting, room) = ends.recheck();
            work |= waiting && room && self.could_take(q, ends.held());
            self.unreaped |= waiting && !room;
        }
        if !work && self.core.board.prepare_sleep(self.index) {
            if self.me.inbox.prepare_sleep() {
                // What is gone meanwhile is not kept by a core that sleeps.
                self.all = (0, Vec::new());
                self.block();
                self.me.inbox.awake();
            }
            self.core.board.awake(self.index);
        }
        self.queues.iter().for_each(|q| q.pair.ends().awake());
    }

    /// Whether a command that waits could be taken now; if not, whoever gives something back says so.
    pub(super) fn could_take(&self, queue: &QueueState, held: Option<&RawCommand>) -> bool {
        if self.has_slot() && held.is_none() {
            return true;
        }
        self.core.board.note_starved();
        let room = held.is_none_or(|raw| {
            let bytes = bytes_of(raw);
            let room = queue.try_admit(bytes);
            if room {
                queue.done(bytes);
            }
            room
        });
        room && self.has_slot()
    }

    pub(super) fn block(&mut self) {
        let journal = self.core.store.journal();
        journal.idle();
        if journal.next_deadline().is_some() {
            self.core.maintenance.note_volatile();
        }
        let due = self.delayed.at().into_iter().chain(self.paused.at()).min();
        let due = due.map(|at| at.saturating_sub(now_ns()));
        // A client that does not reap has no way to ring when it does: look again, less and less often.
        self.reap_wait_ns = if self.unreaped { (self.reap_wait_ns * 2).clamp(1 << 20, REAP_WAIT_NS_MAX) } else { 0 };
        let look = self.unreaped.then_some(self.reap_wait_ns);
        let at_rest = self.core.config.at_rest.filter(|_| !self.rested);
        let rest = at_rest.map(|_| AT_REST_NS);
        let timeout = due.into_iter().chain(look).chain(rest).min().map(|ns| rustix::event::Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        self.me.counters.sleeps.add(1);
        let before = now_ns();
        let n = epoll::wait(&self.epoll, &mut events, timeout.as_ref()).unwrap_or(0);
        let slept = now_ns().wrapping_sub(before);
        self.meter.rested(slept);
        self.me.counters.wakes.add(1);
        match at_rest {
            Some(at_rest) if n == 0 && slept >= AT_REST_NS => {
                self.rest(at_rest);
                self.rested = true;
            }
            _ => self.rested &= n == 0,
        }
        for e in &events[..n] {
            let id = e.data.u64();
            if let Some(q) = self.queues.iter().find(|q| id != 0 && q.session.id == id) {
                q.counters.doorbells.add(1);
            }
        }
    }
}
