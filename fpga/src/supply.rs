//! What the drive gives the slots: requests are issued in the order that the scheduler says, and their data lands in
//! the FIFOs.

use crate::slot::{Flight, Shared, State};

impl Shared {
    /// Moves what the drive has for the slots, in the order that the scheduler says.
    pub fn pump(&self, state: &mut State) {
        let modelled = state.pace.timed || state.pace.drive_bytes_per_s != 0;
        let now = if modelled { self.config.clock.now() } else { 0 };
        let was_flying = !state.flights.is_empty();
        loop {
            let due = state.flights.front().map(|f| f.due).filter(|due| *due <= now);
            if due.is_some() {
                self.land(state);
            }
            // The drive went on when the last one was through, however late this thread sees it.
            if !self.issue_all(state, due.unwrap_or(now)) && due.is_none() {
                break;
            }
        }
        if !state.flights.is_empty() && !was_flying {
            self.timer.notify_one();
        }
    }

    /// Issues what the drive is given at this time: whether there was anything.
    fn issue_all(&self, state: &mut State, at: u64) -> bool {
        let mut any = false;
        while let Some(slot) = state.scheduler.issue() {
            let (bytes, epoch) = (self.issue(state, slot), state.slots[slot].epoch);
            let due = match state.pace.drive_bytes_per_s {
                0 => at,
                rate => {
                    let takes = bytes as u128 * 1_000_000_000 + u128::from(state.drive_rest);
                    state.drive_rest = (takes % u128::from(rate)) as u64;
                    state.drive_free = state.drive_free.max(at) + (takes / u128::from(rate)) as u64;
                    state.drive_free
                }
            };
            state.flights.push_back(Flight { due, bytes, slot, epoch });
            any = true;
        }
        any
    }

    /// Takes in what the drive has given by now.
    pub fn pump_due(&self, state: &mut State) {
        if !state.flights.is_empty() {
            self.pump(state);
        }
    }

    /// Takes the next request out of a session's input: at most C bytes of one piece.
    fn issue(&self, state: &mut State, slot: usize) -> usize {
        let Some(sess) = state.slots[slot].session.as_mut() else { return 0 };
        let c = sess.credits.request_bytes() as usize;
        let Some(piece) = sess.input.iter_mut().find(|p| !p.end_issued) else { return 0 };
        let bytes = c.min(piece.bytes.len() - piece.issued);
        piece.issued += bytes;
        piece.end_issued = piece.issued == piece.bytes.len();
        bytes
    }

    /// The oldest request's bytes are in the FIFO.
    fn land(&self, state: &mut State) {
        let Some(flight) = state.flights.pop_front() else { return };
        let before = state.scheduler.credits(flight.slot).held();
        let lane = state.scheduler.dispatch(flight.bytes as u64);
        debug_assert_eq!(lane, Some(flight.slot), "data goes to the slot that asked for it");
        let Some(sess) = state.sess(flight.slot, flight.epoch).filter(|s| s.fault.is_none()) else {
            // A lane that is closed, or is another's by now, has kept nothing of it.
            return;
        };
        if before == 0 {
            sess.goes_on(flight.due);
        }
        sess.last_at = flight.due;
        if let Some(piece) = sess.input.iter_mut().find(|p| !p.end_arrived) {
            piece.arrived += flight.bytes;
            piece.end_arrived = piece.arrived == piece.bytes.len();
        }
        self.bells[flight.slot].notify_one();
    }
}
