//! Slots that change hands: a session that is between two calls of its user may have to make room for others.
//!
//! A stream keeps its slot as long as it lasts, so a user who does not go on with it, or who has as many as there are
//! slots, would keep all others waiting. Whoever holds such a session says on which terms it rests; the card takes
//! its slot where another waits, and the holder learns of it when it goes on: it begins anew, or fails.

use crate::config::Want;
use crate::kernel::Fault;
use crate::manifest::Region;
use crate::session::Session;
use crate::slot::{Loaded, Resting, Shared, Slot, State, VIRTUAL_BITS};
use std::time::Duration;

/// On which terms a session rests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// After so long without a call, anyone who waits may have its slot.
    pub idle: Duration,
    /// Once the session has had its slot for so long, it may be taken at once for another tenant that has waited for
    /// `idle`, and has no slot, or fewer for its weight than this one's tenant even after that. A session of more
    /// weight than the one that waits has its slot for as many times longer, up to ten. `None`: not at all.
    pub turn: Option<Duration>,
}

/// How many times longer than one of less weight a session has its slot, at most.
const TURNS_MAX: u128 = 10;

impl Session {
    /// No call is under way until [`Session::resume`]: the slot may be given to others, on these terms. What was pushed
    /// goes on being computed.
    pub fn rest(&self, terms: Rest) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        let now = shared.config.clock.now();
        let Some(sess) = state.sess(self.slot(), self.epoch()) else { return };
        sess.rest = Some(Resting { since: now, idle: ns(terms.idle), turn: terms.turn.map(ns) });
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
            let Ok(loaded) = self.find(state, &want) else { continue };
            if coming > 0 && !self.barred(state, &want, &loaded.package.manifest().region) {
                coming -= 1;
            } else {
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

    /// A packet that runs as a whole cannot make room, and slot time is what its kernel counts: one that takes little
    /// at a time has a slot for as long as it likes. So where another tenant has waited for the watchdog's time, the
    /// packet that has had a slot for longest is lost, if that is as long.
    pub fn end_overlong(&self, state: &mut State) {
        let (now, most) = (self.config.clock.now(), ns(self.config.watchdog));
        let waited = |since: u64| now.saturating_sub(since) >= most;
        let long: Vec<Want> =
            state.waiters.iter().filter(|w| w.answer.is_none() && waited(w.since)).map(|w| w.want.clone()).collect();
        // Of the slots that are about to be free, those that others of them will have.
        let mut served = 0;
        for want in long {
            let Ok(loaded) = self.find(state, &want) else { continue };
            let region = loaded.package.manifest().region;
            let large = || state.slots.iter().enumerate().filter(|(_, s)| s.fits(&region));
            // One that was lost leaves its slot when its user has heard of it.
            let leaves = |s: &Slot| s.session.as_ref().is_some_and(|s| s.whole && s.fault.is_some());
            let leaving = large().filter(|(_, s)| leaves(s)).count() + state.coming();
            if leaving > served {
                served += 1;
                continue;
            }
            let held = large().filter_map(|(i, s)| {
                let sess = s.session.as_ref().filter(|s| s.whole && s.fault.is_none() && s.tenant != want.tenant)?;
                waited(sess.since).then_some((sess.since, i, s.epoch))
            });
            if let Some((_, slot, epoch)) = held.min() {
                let said = format!("it had its slot for {:?} while others waited", self.config.watchdog);
                self.lose(state, slot, epoch, Fault::Lost(said));
                served += 1;
            }
        }
    }

    /// A packet that had its slot for long has kept others from it, whatever its kernel counts: its tenant is behind
    /// them in the next queue by as much. What it is charged is slot time all the same.
    pub fn charge_held(&self, state: &mut State, slot: usize) {
        let least = u64::try_from(self.config.watchdog.as_nanos() / 100).unwrap_or(u64::MAX);
        let Some(sess) = state.slots[slot].session.as_ref().filter(|s| s.whole) else { return };
        let held = self.config.clock.now().saturating_sub(sess.since);
        let (more, tenant) = (held.saturating_sub(sess.usage.slot_ns), sess.tenant);
        if held >= least {
            let tenant = state.tenants.entry(tenant).or_default();
            tenant.virtual_time += (u128::from(more) << VIRTUAL_BITS) / u128::from(tenant.weight.max(1));
        }
    }

    /// Whether a session has to wait because others of its kind, whose slots are not taken from them, have all of the
    /// slots that are large enough for it but one. That one is for sessions that end soon, or can begin anew.
    pub fn barred(&self, state: &State, want: &Want, region: &Region) -> bool {
        if !want.keeps {
            return false;
        }
        let large = || state.slots.iter().filter(|s| s.fits(region));
        let kept = large().filter(|s| s.session.as_ref().is_some_and(|s| s.keeps)).count();
        let all = large().count();
        all > 1 && kept + 1 >= all
    }

    /// The slot whose session makes room: of those that may begin anew soonest, the one that has rested for longest.
    fn victim(&self, state: &State, want: &Want, loaded: &Loaded, waited: u64) -> Option<usize> {
        let now = self.config.clock.now();
        let region = loaded.package.manifest().region;
        let barred = self.barred(state, want, &region);
        let usable = |s: &Slot| s.fits(&region) || s.loaded.as_ref().is_some_and(|l| l.name == loaded.name);
        let of = |tenant: u64| {
            let has = |s: &&Slot| usable(s) && s.session.as_ref().is_some_and(|s| s.tenant == tenant);
            state.slots.iter().filter(has).count() as u64
        };
        let own = of(want.tenant);
        let resting = state.slots.iter().enumerate().filter(|(_, s)| usable(s)).filter_map(|(i, s)| {
            let sess = s.session.as_ref().filter(|sess| !barred || s.locked || sess.keeps)?;
            let rest = sess.rest.as_ref()?;
            let idle = now.saturating_sub(rest.since) >= rest.idle;
            let (mine, theirs) = (u64::from(want.weight()), u64::from(sess.weight));
            let fewer = || own == 0 || (own + 1) * theirs <= (of(sess.tenant) - 1) * mine;
            let over = |turn: u64| {
                let turn = u128::from(turn);
                let longest = (turn * u128::from(theirs) / u128::from(mine)).clamp(turn, turn * TURNS_MAX);
                u128::from(now.saturating_sub(sess.since)) >= longest
            };
            let crowded = || sess.tenant != want.tenant && waited >= rest.idle && fewer();
            let crowded = || rest.turn.is_some_and(over) && crowded();
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
