//! A core that has nothing to do.

use super::intake::{admit, bytes_of};
use super::*;
use crate::limits::AT_REST_NS;
use rustix::event::Timespec;
use smallvec::SmallVec;
use weldfs_ciscops::limits::NAP_NS;

/// Events taken at a time.
const EVENTS: usize = 16;

/// A core that was awake for less than this share of a while was at rest: what asks after the device now and then does
/// not keep it from that.
const AWAKE_SHARE: u64 = 64;

/// How much a core was awake of late.
#[derive(Debug)]
pub(super) struct Quiet {
    /// Since when, and for how much of that until its last sleep.
    since: u64,
    awake: u64,
    /// When it woke last.
    woke: u64,
}

impl Quiet {
    pub(super) fn new(now: u64) -> Quiet {
        Quiet { since: now, awake: 0, woke: now }
    }

    fn wakes(&mut self, now: u64) {
        self.woke = now;
    }

    /// It goes to sleep: nanoseconds for which it must have next to nothing to do yet until it counts as at rest; 0
    /// when it does, and a new while begins.
    fn sleeps(&mut self, now: u64) -> u64 {
        self.awake += now.saturating_sub(self.woke);
        self.woke = now;
        let span = now.saturating_sub(self.since);
        let busy = self.awake > AT_REST_NS / AWAKE_SHARE;
        if busy || span >= AT_REST_NS {
            *self = Quiet::new(now);
        }
        if busy { AT_REST_NS } else { AT_REST_NS.saturating_sub(span) }
    }
}

/// How a sleep ended.
pub(super) struct Woken {
    /// Who rang: sessions, or 0 for the inbox. None: it was time.
    by: SmallVec<[u64; EVENTS]>,
    /// Nanoseconds.
    slept: u64,
}

/// Sleeps until a bell rings, or it is time.
pub(super) fn wait(epoll: &OwnedFd, timeout: Option<&Timespec>) -> Woken {
    let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS];
    let before = now_ns();
    let n = epoll::wait(epoll, &mut events, timeout).unwrap_or(0);
    Woken { by: events[..n].iter().map(|e| e.data.u64()).collect(), slept: now_ns().wrapping_sub(before) }
}

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
        if self.announce() {
            self.block();
            self.me.inbox.awake();
            self.core.board.awake(self.index);
        }
        self.withdraw();
    }

    /// Announces sleep everywhere; false when there is something to do, and only the rings still say so.
    pub(super) fn announce(&mut self) -> bool {
        let mut work = false;
        self.unreaped = false;
        // What is posted soon after work is posted without a bell; a nap that finds nothing is followed by a sleep.
        self.naps = (self.core.leases.any() || self.core.watches.any()) && self.napped != self.worked;
        self.napped = self.worked;
        let naps = self.naps;
        self.queues.iter().for_each(|q| q.pair.ends().prepare_sleep(naps));
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
        if work || !self.core.board.prepare_sleep(self.index) {
            return false;
        }
        if !self.me.inbox.prepare_sleep() {
            self.core.board.awake(self.index);
            return false;
        }
        // What is gone meanwhile is not kept by a core that sleeps.
        self.all = (0, Vec::new());
        true
    }

    /// Says on every ring that it is looked at again.
    pub(super) fn withdraw(&mut self) {
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
            let room = admit(queue, bytes);
            if room {
                queue.done(bytes);
            }
            room
        });
        room && self.has_slot() && (!self.must_leave_slot() || held.is_some_and(|raw| self.is_posted(queue, raw)))
    }

    /// Whether it worked since it last gave back what it had freed.
    fn keeps_memory(&self) -> bool {
        self.core.config.at_rest.is_some() && self.gave_back != self.worked
    }

    pub(super) fn give_back(&mut self) {
        if let Some(at_rest) = self.core.config.at_rest {
            self.rest(|| {
                weldfs_functions::codec::give_back();
                at_rest();
            });
        }
    }

    /// Gives memory back where the core is at rest; how long it must rest yet, where it has any to give.
    fn rests(&mut self) -> Option<u64> {
        if !self.keeps_memory() {
            return None;
        }
        let left = self.quiet.sleeps(now_ns());
        if left > 0 {
            return Some(left);
        }
        self.give_back();
        self.gave_back = self.worked;
        // What was freed here and allocated there lies in the heaps of those threads until they look.
        let others = self.core.threads.iter().enumerate().filter(|(index, _)| *index != self.index);
        others.for_each(|(_, other)| other.inbox.send(Message::GiveBack));
        self.core.io.give_back();
        self.core.maintenance.note_rest();
        None
    }

    fn block(&mut self) {
        let timeout = self.before_sleep();
        let woken = wait(&self.epoll, timeout.as_ref());
        self.after_sleep(&woken);
    }

    /// What is done before a sleep, and how long that may be.
    pub(super) fn before_sleep(&mut self) -> Option<Timespec> {
        let journal = self.core.store.journal();
        journal.idle();
        if journal.next_deadline().is_some() {
            self.core.maintenance.note_volatile();
        }
        let due = self.delayed.at().into_iter().chain(self.paused.at()).min();
        self.wakes_at = due;
        let due = due.map(|at| at.saturating_sub(now_ns()));
        // A client that does not reap has no way to ring when it does: look again, less and less often.
        self.reap_wait_ns = if self.unreaped { (self.reap_wait_ns * 2).clamp(1 << 20, REAP_WAIT_NS_MAX) } else { 0 };
        let look = self.unreaped.then_some(self.reap_wait_ns);
        let rest = self.rests();
        self.me.counters.sleeps.add(1);
        due.into_iter()
            .chain(self.naps.then_some(NAP_NS))
            .chain(look)
            .chain(rest)
            .min()
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ })
    }

    /// What is done after one.
    pub(super) fn after_sleep(&mut self, woken: &Woken) {
        self.meter.rested(woken.slept);
        self.me.counters.wakes.add(1);
        if self.keeps_memory() {
            self.quiet.wakes(now_ns());
        } else {
            // What it frees from here on is given back when it has rested for a while again.
            self.quiet = Quiet::new(now_ns());
        }
        for id in woken.by.iter().copied() {
            if let Some(q) = self.queues.iter().find(|q| id != 0 && q.session.id == id) {
                q.counters.doorbells.add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Sleeps of a core that wakes every `every` ms for `awake` us, until it is at rest or so many seconds are over.
    fn rests_after(every: u64, awake: u64, seconds: u64) -> Option<u64> {
        let mut quiet = Quiet::new(0);
        // It had much to do.
        let (mut now, begin) = (500 * MS, 500 * MS);
        while now < begin + seconds * 1000 * MS {
            let left = quiet.sleeps(now);
            if left == 0 {
                return Some((now - begin) / MS);
            }
            now += left.min(every * MS);
            quiet.wakes(now);
            now += awake * 1000;
        }
        None
    }

    #[test]
    fn a_core_is_at_rest_after_a_second_though_it_is_asked_something_now_and_then() {
        assert_eq!(rests_after(60_000, 0, 5), Some(1000));
        assert!(
            rests_after(200, 500, 5).is_some_and(|ms| (1000..1300).contains(&ms)),
            "{:?}",
            rests_after(200, 500, 5)
        );
        assert_eq!(rests_after(1, 100, 20), None, "a tenth of the time is work");
    }
}
