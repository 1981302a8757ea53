//! The core of an embedded device: callers do its turns, and its own thread what they leave.

use super::*;
use crate::seat::{Lending, Turns};

/// Turns of a caller after which flushes are no longer left until it leaves: more than a command of one slice needs.
const ATTENDED_TURNS: u32 = 8;

/// What the core's own thread does next.
enum Next {
    Turn,
    /// It has announced that it sleeps: wait for so long at most.
    Sleep(Option<rustix::event::Timespec>),
    End,
}

/// Runs a core whose turns callers do.
pub(super) fn run<'d, F, M>(mut core_loop: Loop<'_, 'd, F, M>)
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    let (core, epoll) = (core_loop.core, core_loop.epoll.clone());
    core_loop.meter = Meter::of_any_thread();
    core.seat.lend(&mut core_loop, |lending| keep(lending, &epoll));
}

/// The core's own thread: it is there when something is left, and sleeps.
fn keep<'d, F, M>(lending: &Lending<'_, Loop<'_, 'd, F, M>>, epoll: &OwnedFd)
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    loop {
        match lending.with(Loop::step) {
            Next::Turn => {}
            Next::End => return,
            Next::Sleep(timeout) => {
                let woken = rest::wait(epoll, timeout.as_ref());
                lending.with(|l| l.woken(&woken));
            }
        }
    }
}

impl<'d, F, M> Loop<'_, 'd, F, M>
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    fn is_over(&self) -> bool {
        self.abandoned || self.stop && self.queues.is_empty()
    }

    /// A turn, or the announcement that this core sleeps.
    fn step(&mut self) -> Next {
        if self.is_over() {
            return Next::End;
        }
        if self.turn() {
            return Next::Turn;
        }
        if !self.announce() {
            self.withdraw();
            return Next::Turn;
        }
        let timeout = self.before_sleep();
        (self.asleep, self.rung) = (true, false);
        Next::Sleep(timeout)
    }

    fn woken(&mut self, woken: &rest::Woken) {
        self.asleep = false;
        self.after_sleep(woken);
        self.me.inbox.awake();
        self.core.board.awake(self.index);
        self.withdraw();
    }

    /// A caller's turn panicked: no other thread does a turn of what is left.
    fn fail(&mut self) {
        self.abandoned = true;
        self.core.abandon();
    }

    /// A caller has done what it came for. What is left is for the core's own thread: commands of others, timers that
    /// are due before it wakes by itself, mail.
    fn leave(&mut self) {
        self.publish();
        let due = self.delayed.at().into_iter().chain(self.paused.at()).min();
        let sooner = due.is_some_and(|at| self.wakes_at.is_none_or(|wakes| at < wakes));
        // What a core that goes to sleep writes (how far the last flush went) is written when it is time for that.
        self.core.maintenance.note_volatile();
        let left = self.ending || self.is_over() || self.direct.is_some() || self.again.is_some();
        let quiet = self.core.board.prepare_sleep(self.index);
        // What was not taken, for want of a slot or of room for its completion, is looked after by the core's thread.
        let rings = !quiet || sooner || left || self.queues.iter().any(|q| q.pair.is_waited_for());
        // Once for each of its sleeps: then it is about to look.
        if rings && !std::mem::replace(&mut self.rung, true) {
            self.me.inbox.ring();
        }
    }
}

impl<'d, F, M> Turns for Loop<'_, 'd, F, M>
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    fn until(&mut self, done: &mut dyn FnMut() -> bool) {
        let turns = catch_unwind(AssertUnwindSafe(|| {
            // Meanwhile wake-ups of commands need not wake the core's own thread.
            if self.asleep {
                self.core.board.awake(self.index);
            }
            // Flushes that are wanted from here on are looked after by the caller when it has left the seat.
            let journal = self.core.store.journal();
            journal.attend();
            journal.announce_led();
            let mut turns = 0;
            while !self.is_over() && self.turn() && !done() {
                turns += 1;
                if turns == ATTENDED_TURNS {
                    // It may go on for long: the flushes of others do not wait for that.
                    journal.leave(false);
                }
            }
            if self.asleep {
                self.leave();
            }
        }));
        if turns.is_err() {
            self.fail();
        }
    }

    fn call(&mut self, pair: (u64, u32), raw: &RawCommand) -> Option<Cqe> {
        if self.is_over() {
            return None;
        }
        let called = catch_unwind(AssertUnwindSafe(|| self.call_past_ring(pair, raw)));
        called.unwrap_or_else(|_| {
            self.fail();
            None
        })
    }
}
