//! The adaptive bandwidth scheduler: which kernel's data is moved next.
//!
//! INSIDER (USENIX ATC 2019), section 3.6, "Adaptive Bandwidth Scheduler": round over the kernels that have requests
//! pending and a credit left; issue one request of C bytes, take a credit, push the slot's index into a queue; when
//! data comes back, pop an index and dispatch the data to that slot. Added here: weights, by stride scheduling
//! (Waldspurger and Weihl, MIT/LCS/TM-528, 1995), and a bound on the requests that the drive holds, so that a weight
//! decides although every kernel has credits. A kernel that is slower than its share is limited by its credits, and
//! what it leaves goes to the others: the bandwidths are weighted max-min fair, without a kernel's speed ever being
//! measured.

use crate::flow::Credits;
use std::collections::VecDeque;

/// The scale of virtual time: one request of a lane of weight 1.
const STRIDE: u64 = 1 << 20;
/// Weights above this count as this.
pub const WEIGHT_MAX: u32 = 10_000;

#[derive(Clone, Debug)]
struct Lane {
    credits: Credits,
    weight: u32,
    /// Requests that wait to be issued.
    pending: u64,
    /// Virtual time at which it is served next.
    pass: u64,
    open: bool,
    /// Which kernel of the lane it is: counts up.
    kernel: u64,
}

impl Lane {
    fn closed() -> Lane {
        Lane { credits: Credits::new(1, 1, 1), weight: 1, pending: 0, pass: 0, open: false, kernel: 0 }
    }
}

/// The scheduler: one lane a slot. No clock, no thread, no data.
#[derive(Clone, Debug)]
pub struct Scheduler {
    lanes: Vec<Lane>,
    /// Lanes of the requests in flight, and which kernel's they are, oldest first.
    issued: VecDeque<(usize, u64)>,
    /// Virtual time of the last issue.
    now: u64,
    /// Requests that the drive holds at most.
    depth: usize,
}

impl Scheduler {
    /// `lanes` of them, closed; the drive is given at most `depth` requests at once (0 counts as 1). `depth * C` must
    /// cover latency times bandwidth of the drive.
    pub fn new(lanes: usize, depth: usize) -> Scheduler {
        Scheduler { lanes: vec![Lane::closed(); lanes], issued: VecDeque::new(), now: 0, depth: depth.max(1) }
    }

    /// The drive is given at most so many requests at once from now on (0 counts as 1).
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth.max(1);
    }

    /// Has at least so many lanes from now on; new ones are closed.
    pub fn widen(&mut self, lanes: usize) {
        self.lanes.resize(lanes.max(self.lanes.len()), Lane::closed());
    }

    /// A kernel begins in a lane, with an empty FIFO and all of `credits`. What an earlier one has in flight still has
    /// to be dispatched, and is dropped by the caller.
    pub fn open(&mut self, lane: usize, weight: u32, credits: &Credits) {
        let l = &mut self.lanes[lane];
        let weight = weight.clamp(1, WEIGHT_MAX);
        *l = Lane { credits: credits.clone(), weight, pending: 0, pass: self.now, open: true, kernel: l.kernel + 1 };
    }

    /// The kernel of a lane ends: what is pending is forgotten, what is in the FIFO is dropped. What is in flight still
    /// has to be dispatched, and dropped.
    pub fn close(&mut self, lane: usize) {
        let l = &mut self.lanes[lane];
        let held = l.credits.held();
        l.credits.consume(held);
        (l.pending, l.open) = (0, false);
    }

    /// `requests` more of C bytes are wanted.
    pub fn want(&mut self, lane: usize, requests: u64) {
        let now = self.now;
        let l = &mut self.lanes[lane];
        if l.open && requests > 0 {
            if l.pending == 0 {
                // A lane that wanted nothing saves nothing up.
                l.pass = l.pass.max(now);
            }
            l.pending += requests;
        }
    }

    /// Issues the next request: whose it is, or none where no lane has one and a credit, or the drive holds enough.
    pub fn issue(&mut self) -> Option<usize> {
        if self.issued.len() >= self.depth {
            return None;
        }
        let ready = self.lanes.iter().enumerate().filter(|(_, l)| l.open && l.pending > 0 && l.credits.free() > 0);
        let (lane, _) = ready.min_by_key(|(i, l)| (l.pass, *i))?;
        let l = &mut self.lanes[lane];
        l.credits.take();
        self.now = self.now.max(l.pass);
        // A lane that waited for credits has the first turn, and no more than that.
        l.pass = self.now + STRIDE / u64::from(l.weight);
        l.pending -= 1;
        self.issued.push_back((lane, l.kernel));
        Some(lane)
    }

    /// `bytes` of the oldest request arrive: whose they are. None where nothing is in flight.
    pub fn dispatch(&mut self, bytes: u64) -> Option<usize> {
        let (lane, kernel) = self.issued.pop_front()?;
        let l = &mut self.lanes[lane];
        if l.kernel == kernel {
            l.credits.arrive(bytes);
            if !l.open {
                l.credits.consume(bytes);
            }
        }
        Some(lane)
    }

    /// A kernel has taken bytes out of its FIFO.
    pub fn consume(&mut self, lane: usize, bytes: u64) {
        self.lanes[lane].credits.consume(bytes);
    }

    /// Whether requests of a lane wait for a credit.
    pub fn lacks(&self, lane: usize) -> bool {
        let l = &self.lanes[lane];
        l.open && l.pending > 0 && l.credits.free() == 0
    }

    /// The credits of a lane.
    pub fn credits(&self, lane: usize) -> &Credits {
        &self.lanes[lane].credits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_kernel_has_in_flight_costs_the_next_one_of_its_lane_no_credit() {
        let mut scheduler = Scheduler::new(1, usize::MAX);
        let (old, new) = (Credits::new(4, 1 << 20, 64), Credits::new(2, 64, 64));
        scheduler.open(0, 1, &old);
        scheduler.want(0, 9);
        assert_eq!(std::iter::from_fn(|| scheduler.issue()).count(), 4);
        scheduler.close(0);
        assert_eq!(scheduler.dispatch(1 << 20), Some(0), "of one that is closed");
        scheduler.open(0, 1, &new);
        scheduler.want(0, 9);
        assert_eq!(std::iter::from_fn(|| scheduler.issue()).count(), 2);
        for _ in 0..3 {
            assert_eq!(scheduler.dispatch(1 << 20), Some(0), "of the earlier one");
            assert_eq!((scheduler.credits(0).held(), scheduler.credits(0).free()), (0, 0));
        }
        assert_eq!((scheduler.dispatch(64), scheduler.credits(0).held()), (Some(0), 64));
        scheduler.widen(3);
        assert_eq!((scheduler.dispatch(64), scheduler.issue()), (Some(0), None), "lanes are closed at first");
    }
}
