//! Slots that change hands: a session that is between two calls of its user may have to make room for others.
//!
//! A stream keeps its slot as long as it lasts, so a user who does not go on with it, or who has as many as there are
//! slots, would keep all others waiting. Whoever holds such a session says on which terms it rests; the card takes
//! its slot where another waits, and the holder learns of it when it goes on: it begins anew, or fails.

use crate::config::Want;
use crate::session::Session;
use crate::slot::{Loaded, Resting, Shared, Slot, State};
use std::time::Duration;

/// On which terms a session rests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// After so long without a call, anyone who waits may have its slot.
    pub idle: Duration,
    /// It may also be taken at once, for another tenant that has waited for `idle`, and has no slot, or at least two
    /// fewer than this one's tenant.
    pub willing: bool,
}

impl Session {
    /// No call is under way until [`Session::resume`]: the slot may be given to others, on these terms. What was pushed
    /// goes on being computed.
    pub fn rest(&self, terms: Rest) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        let now = shared.config.clock.now();
        let Some(sess) = state.sess(self.slot(), self.epoch()) else { return };
        sess.rest = Some(Resting { since: now, idle: ns(terms.idle), willing: terms.willing });
        if state.waits() {
            shared.take_back(&mut state);
            shared.timer.notify_one();
        }
    }

    /// A call is under way again. False where the slot has been given to others: the session is over.
    pub fn resume(&self) -> bool {
        let mut state = self.shared().state.lock();
        if self.taken().get().is_some() {
            return false;
        }
        if let Some(sess) = state.sess(self.slot(), self.epoch()) {
            sess.rest = None;
        }
        true
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    /// Whether a session waits for a slot.
    fn waits(&self) -> bool {
        self.waiters.iter().any(|w| w.answer.is_none())
    }

    /// Tickets of those that wait, in the order in which they get slots.
    pub fn turns(&self) -> Vec<u64> {
        let mut order: Vec<(u128, u64)> = (self.waiters.iter().filter(|w| w.answer.is_none()))
            .map(|w| (self.tenants.get(&w.want.tenant).map_or(0, |t| t.virtual_time), w.ticket))
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(_, ticket)| ticket).collect()
    }

    /// Slots that are about to be free: a thread is still busy with what their last session left.
    fn coming(&self) -> usize {
        let coming = |s: &&Slot| {
            !s.locked && s.session.is_none() && !s.stuck && (s.computing.is_some() || s.reconfiguring.is_some())
        };
        self.slots.iter().filter(coming).count()
    }
}

impl Shared {
    /// Takes slots of sessions that rest for those that wait.
    pub fn take_back(&self, state: &mut State) {
        let now = self.config.clock.now();
        let mut coming = state.coming();
        for ticket in state.turns() {
            let Some(waiter) = state.waiters.iter().find(|w| w.ticket == ticket && w.answer.is_none()) else {
                continue;
            };
            let (want, waited) = (waiter.want.clone(), now.saturating_sub(waiter.since));
            if coming > 0 {
                coming -= 1;
            } else if let Ok(loaded) = self.find(state, &want) {
                self.take_one(state, &want, &loaded, waited);
            }
        }
    }

    /// Takes the slot of one session, if there is one that has to make room. It may take until a step has ended.
    pub fn take_one(&self, state: &mut State, want: &Want, loaded: &Loaded, waited: u64) {
        let Some(slot) = self.victim(state, want, loaded, waited) else { return };
        let s = &mut state.slots[slot];
        s.counts.taken += 1;
        let epoch = s.epoch;
        if let Some(sess) = &mut s.session {
            sess.seen.taken = true;
            if let Some(taken) = &sess.taken {
                // Only once: a session has one slot.
                let _ = taken.set(sess.usage);
            }
        }
        self.close(state, slot, epoch);
    }

    /// The slot whose session makes room: of those that may begin anew soonest, the one that has rested for longest.
    fn victim(&self, state: &State, want: &Want, loaded: &Loaded, waited: u64) -> Option<usize> {
        let now = self.config.clock.now();
        let region = loaded.package.manifest().region;
        let usable =
            |s: &Slot| !s.locked && s.region.holds(&region) || s.loaded.as_ref().is_some_and(|l| l.name == loaded.name);
        let of = |tenant: u64| {
            let has = |s: &&Slot| usable(s) && s.session.as_ref().is_some_and(|s| s.tenant == tenant);
            state.slots.iter().filter(has).count()
        };
        let own = of(want.tenant);
        let resting = state.slots.iter().enumerate().filter(|(_, s)| usable(s)).filter_map(|(i, s)| {
            let sess = s.session.as_ref()?;
            let rest = sess.rest.as_ref()?;
            let idle = now.saturating_sub(rest.since) >= rest.idle;
            let fewer = || own == 0 || own + 2 <= of(sess.tenant);
            let crowded = || rest.willing && waited >= rest.idle && sess.tenant != want.tenant && fewer();
            (idle || crowded()).then_some((rest.idle, rest.since, i))
        });
        resting.min().map(|(_, _, slot)| slot)
    }

    /// When a session that rests will have done so for long enough, if one waits for its slot.
    pub fn next_idle(&self, state: &State, now: u64) -> Option<u64> {
        if !state.waits() {
            return None;
        }
        let rests = state.slots.iter().filter_map(|s| s.session.as_ref()?.rest.as_ref());
        rests.map(|r| r.since.saturating_add(r.idle)).filter(|due| *due > now).min()
    }
}
