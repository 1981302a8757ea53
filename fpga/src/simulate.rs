//! The bandwidth scheduler in modelled time: what each of several kernels gets of a drive, without waiting for it.
//!
//! The scheduler is the card's own (`bandwidth::Scheduler`); the drive and the kernels are two numbers each.
//! Deterministic: the same input gives the same figures on every machine.

use crate::bandwidth::Scheduler;
use crate::flit::FLIT_BYTES;
use crate::flow::Credits;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The drive, and how its data is requested.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drive {
    /// What it gives all kernels together, bytes/s, more than 0.
    pub bytes_per_s: f64,
    /// From a request to its first byte, ns.
    pub latency_ns: u64,
    /// R: requests that a kernel may have in flight or in its FIFO.
    pub credits: u32,
    /// C: bytes of a request.
    pub credit_bytes: u32,
}

impl Drive {
    /// INSIDER's: 16 GB/s, 5 us.
    pub const INSIDER: Drive = Drive { bytes_per_s: 16e9, latency_ns: 5_000, credits: 16, credit_bytes: 64 << 10 };
}

/// A kernel that reads from the drive for a while, as fast as it is given data and can compute.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// What it computes, bytes/s, more than 0.
    pub bytes_per_s: f64,
    /// Its weight.
    pub weight: u32,
    /// When it begins, ns.
    pub start_ns: u64,
    /// When it ends, ns.
    pub end_ns: u64,
}

/// One nanosecond in the simulation's unit.
const NS: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A kernel ends, or begins.
    End(usize),
    Start(usize),
    /// A kernel has computed a chunk.
    Computed(usize),
    /// The oldest request's data has arrived.
    Arrived,
}

struct World {
    scheduler: Scheduler,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    /// When the drive has sent all that was asked of it.
    drive_free: u64,
    /// Which kernels compute now.
    busy: Vec<bool>,
    /// Whose data is on its way: false for that of a kernel that has ended.
    wanted: VecDeque<bool>,
    /// Times of a chunk: in the drive, in each kernel.
    chunk: u64,
    compute: Vec<u64>,
    latency: u64,
    bytes: u64,
}

impl World {
    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    /// Requests what can be requested.
    fn issue(&mut self, now: u64) {
        while self.scheduler.issue().is_some() {
            self.drive_free = self.drive_free.max(now + self.latency) + self.chunk;
            self.wanted.push_back(true);
            self.at(self.drive_free, Event::Arrived);
        }
    }

    fn compute(&mut self, lane: usize, now: u64) {
        if !self.busy[lane] && self.scheduler.credits(lane).held() >= self.bytes {
            self.busy[lane] = true;
            self.at(now + self.compute[lane], Event::Computed(lane));
        }
    }
}

/// Bandwidths of kernels that share a drive, bytes/s: for each interval of `interval_ns` (0 counts as 1) up to
/// `until_ns`, one a kernel.
pub fn timeline(drive: &Drive, loads: &[Load], interval_ns: u64, until_ns: u64) -> Vec<Vec<f64>> {
    let (bytes, interval) = (u64::from(drive.credit_bytes.max(1)), interval_ns.max(1));
    let time = |rate: f64| ((bytes as f64 / rate * 1e9 * NS as f64).round() as u64).max(1);
    let credits = Credits::new(drive.credits.into(), bytes, FLIT_BYTES as u64);
    let delay = (drive.latency_ns as f64 * 1e-9 * drive.bytes_per_s / bytes as f64).ceil() as usize;
    let mut world = World {
        scheduler: Scheduler::new(loads.len(), delay + 2),
        events: BinaryHeap::new(),
        order: 0,
        drive_free: 0,
        busy: vec![false; loads.len()],
        wanted: VecDeque::new(),
        chunk: time(drive.bytes_per_s),
        compute: loads.iter().map(|l| time(l.bytes_per_s)).collect(),
        latency: drive.latency_ns * NS,
        bytes,
    };
    for (lane, load) in loads.iter().enumerate() {
        world.at(load.start_ns * NS, Event::Start(lane));
        world.at(load.end_ns * NS, Event::End(lane));
    }
    let mut computed = vec![vec![0u64; loads.len()]; until_ns.div_ceil(interval) as usize];
    while let Some(Reverse((now, _, event))) = world.events.pop() {
        if now >= until_ns * NS {
            break;
        }
        match event {
            Event::Start(lane) => {
                world.scheduler.open(lane, loads[lane].weight, &credits);
                world.scheduler.want(lane, u64::MAX / 2);
            }
            Event::End(lane) => world.scheduler.close(lane),
            Event::Arrived => {
                if let Some(lane) = world.scheduler.dispatch(bytes) {
                    world.compute(lane, now);
                }
            }
            Event::Computed(lane) => {
                world.busy[lane] = false;
                if now < loads[lane].end_ns * NS {
                    world.scheduler.consume(lane, bytes);
                    computed[(now / NS / interval) as usize][lane] += bytes;
                    world.compute(lane, now);
                }
            }
        }
        world.issue(now);
    }
    let rate = |bytes: u64| bytes as f64 / (interval as f64 * 1e-9);
    computed.into_iter().map(|row| row.into_iter().map(rate).collect()).collect()
}

/// The ideal: weighted max-min fair shares of `capacity` among (demand, weight) pairs. None gets more than it wants;
/// what one leaves goes to the others by weight.
pub fn fair_shares(capacity: f64, wants: &[(f64, u32)]) -> Vec<f64> {
    let mut shares = vec![0.0; wants.len()];
    let mut left = capacity;
    let mut open: Vec<usize> = (0..wants.len()).collect();
    while !open.is_empty() {
        let weights: f64 = open.iter().map(|i| f64::from(wants[*i].1.max(1))).sum();
        let level = left / weights;
        let (content, hungry): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|i| wants[**i].0 <= level * f64::from(wants[**i].1.max(1)));
        if content.is_empty() {
            for i in open {
                shares[i] = level * f64::from(wants[i].1.max(1));
            }
            break;
        }
        for i in content {
            shares[i] = wants[i].0;
            left -= wants[i].0;
        }
        open = hungry;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every interval in which no kernel begins or ends, a moment after the last change: within `within` of the ideal.
    fn assert_fair(drive: &Drive, loads: &[Load], interval: u64, until: u64, within: f64) {
        let rows = timeline(drive, loads, interval, until);
        let mut checked = 0;
        for (i, row) in rows.iter().enumerate() {
            let (from, to) = (i as u64 * interval, (i as u64 + 1) * interval);
            let changes = loads.iter().flat_map(|l| [l.start_ns, l.end_ns]);
            if changes.clone().any(|t| t + interval > from && t < to) {
                continue;
            }
            let active: Vec<usize> =
                (0..loads.len()).filter(|i| loads[*i].start_ns < to && loads[*i].end_ns > from).collect();
            let wants: Vec<(f64, u32)> = active.iter().map(|i| (loads[*i].bytes_per_s, loads[*i].weight)).collect();
            for (lane, ideal) in active.iter().zip(fair_shares(drive.bytes_per_s, &wants)) {
                let got = row[*lane];
                assert!(
                    (got - ideal).abs() <= within * ideal,
                    "interval {i}, kernel {lane}: {got:.3e}, not {ideal:.3e}"
                );
            }
            checked += active.len();
        }
        assert!(checked >= loads.len(), "only {checked} plateaus");
    }

    /// INSIDER (ATC 2019), the experiment of section 5.3: 12, 6.4 and 8 GB/s kernels on a 16 GB/s drive.
    #[test]
    fn the_papers_timeline_is_shared_within_3_percent_of_max_min_at_every_plateau() {
        let ms = 1_000_000;
        let load = |rate, start, end| Load { bytes_per_s: rate, weight: 1, start_ns: start * ms, end_ns: end * ms };
        let loads = [load(12e9, 0, 1500), load(6.4e9, 400, 2400), load(8e9, 800, 2600)];
        assert_fair(&Drive::INSIDER, &loads, 50 * ms, 2600 * ms, 0.03);
        let rows = timeline(&Drive::INSIDER, &loads, 100 * ms, 2600 * ms);
        let near = |got: f64, ideal: f64| (got - ideal).abs() < 0.03 * ideal;
        assert!(near(rows[2][0], 12e9) && rows[2][1] == 0.0, "alone");
        assert!(near(rows[6][0], 9.6e9) && near(rows[6][1], 6.4e9), "two: {:?}", rows[6]);
        assert!(rows[12].iter().all(|r| near(*r, 16e9 / 3.0)), "three: {:?}", rows[12]);
        assert!(near(rows[20][1], 6.4e9) && near(rows[20][2], 8e9), "the first has ended: {:?}", rows[20]);
        assert!(near(rows[25][2], 8e9), "the last");
        let weighted = loads.map(|l| Load { weight: if l.bytes_per_s == 8e9 { 2 } else { 1 }, ..l });
        assert_fair(&Drive::INSIDER, &weighted, 50 * ms, 2600 * ms, 0.03);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_kernels_of_any_weights_share_fairly(
            kernels in proptest::collection::vec((0.5f64..20.0, 1u32..5), 1..6),
            credit_kib in 16u32..128,
            capacity in 4.0f64..20.0,
        ) {
            let ms = 1_000_000;
            let load = |(rate, weight): &(f64, u32)|
                Load { bytes_per_s: rate * 1e9, weight: *weight, start_ns: 0, end_ns: 60 * ms };
            let loads: Vec<Load> = kernels.iter().map(load).collect();
            let bytes_per_s = capacity * 1e9;
            let drive = Drive { bytes_per_s, latency_ns: 5_000, credits: 32, credit_bytes: credit_kib << 10 };
            assert_fair(&drive, &loads, 20 * ms, 60 * ms, 0.03);
        }

        #[test]
        fn fair_shares_waste_nothing_and_exceed_nothing(
            wants in proptest::collection::vec((0.1f64..10.0, 1u32..9), 1..8),
            capacity in 1.0f64..30.0,
        ) {
            let shares = fair_shares(capacity, &wants);
            let (given, wanted) = (shares.iter().sum::<f64>(), wants.iter().map(|w| w.0).sum::<f64>());
            prop_assert!((given - capacity.min(wanted)).abs() < 1e-6);
            let level = |i: usize| shares[i] / f64::from(wants[i].1);
            for i in 0..wants.len() {
                prop_assert!(shares[i] <= wants[i].0 + 1e-9);
                let hungry = shares[i] < wants[i].0 - 1e-9;
                let most = (0..wants.len()).all(|j| level(j) <= level(i) + 1e-9);
                prop_assert!(!hungry || most, "the hungriest has most");
            }
        }
    }
}
