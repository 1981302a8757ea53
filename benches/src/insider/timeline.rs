//! Simultaneous multiprocessing: three kernels on one drive, as in INSIDER's figure 11, through the bandwidth scheduler
//! of the slots, in simulated time. The scheduler does not know how fast a kernel is: credits are all that it sees.

use serde::Serialize;
use weldfs_fpga::simulate::{Drive, Load, fair_shares, timeline};

/// Nanoseconds of a point of the curves.
const BIN_NS: u64 = 20_000_000;
/// What a plateau may be away from its ideal.
pub const WITHIN: f64 = 0.03;
/// Points after a start and before an end that belong to no plateau.
const SETTLE: usize = 1;
/// When the figure ends, nanoseconds.
const END_NS: u64 = 2_700_000_000;

/// The kernels of the paper: name, GB/s, and tenths of seconds at which they begin and end. The figure begins with the
/// first one running.
const KERNELS: [(&str, f64, u64, u64); 3] =
    [("statistics", 12.0, 0, 15), ("sql", 6.4, 4, 24), ("pass-through", 8.0, 8, 26)];

const TENTH_NS: u64 = 100_000_000;

/// A kernel of the figure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Kernel {
    /// Its name.
    pub name: &'static str,
    /// What it can take, bytes per second.
    pub rate: f64,
    /// When it begins, seconds.
    pub from: f64,
    /// When it ends, seconds.
    pub to: f64,
}

/// A time in which the same kernels run.
#[derive(Clone, Debug, Serialize)]
pub struct Plateau {
    /// Seconds.
    pub from: f64,
    /// Seconds.
    pub to: f64,
    /// Max-min fair bandwidth of each kernel, bytes per second.
    pub ideal: Vec<f64>,
    /// What each got.
    pub got: Vec<f64>,
    /// The largest distance, as a part of the ideal.
    pub off: f64,
}

/// The experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// Bytes per second of the drive.
    pub drive: f64,
    /// The kernels.
    pub loads: Vec<Kernel>,
    /// Seconds, and each kernel's bytes per second around then.
    pub points: Vec<(f64, Vec<f64>)>,
    /// What was compared.
    pub plateaus: Vec<Plateau>,
}

impl Timeline {
    /// Whether every plateau is as near to the ideal as it should be.
    pub fn holds(&self) -> bool {
        self.plateaus.iter().all(|p| p.off <= WITHIN)
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The experiment.
pub fn run() -> Timeline {
    let load = |(_, rate, from, to): &(&str, f64, u64, u64)| Load {
        bytes_per_s: rate * 1e9,
        weight: 1,
        start_ns: from * TENTH_NS,
        end_ns: to * TENTH_NS,
    };
    let loads: Vec<Load> = KERNELS.iter().map(load).collect();
    let bins = timeline(&Drive::INSIDER, &loads, BIN_NS, END_NS);
    let mut moments: Vec<u64> = loads.iter().flat_map(|l| [l.start_ns, l.end_ns]).collect();
    moments.sort_unstable();
    let plateaus = moments.windows(2).map(|w| plateau(&loads, &bins, w[0], w[1])).collect();
    let kernel = |(k, l): (&(&'static str, f64, u64, u64), &Load)| Kernel {
        name: k.0,
        rate: l.bytes_per_s,
        from: seconds(l.start_ns),
        to: seconds(l.end_ns),
    };
    Timeline {
        drive: Drive::INSIDER.bytes_per_s,
        loads: KERNELS.iter().zip(&loads).map(kernel).collect(),
        points: bins.into_iter().enumerate().map(|(at, got)| ((at as f64 + 0.5) * seconds(BIN_NS), got)).collect(),
        plateaus,
    }
}

fn plateau(loads: &[Load], bins: &[Vec<f64>], from: u64, to: u64) -> Plateau {
    let runs = |l: &Load| l.start_ns <= from && to <= l.end_ns;
    let wants: Vec<_> = loads.iter().map(|l| (if runs(l) { l.bytes_per_s } else { 0.0 }, l.weight)).collect();
    let ideal = fair_shares(Drive::INSIDER.bytes_per_s, &wants);
    let inside = &bins[(from / BIN_NS) as usize + SETTLE..(to / BIN_NS) as usize - SETTLE];
    let mean = |lane: usize| inside.iter().map(|bin| bin[lane]).sum::<f64>() / inside.len() as f64;
    let got: Vec<f64> = (0..loads.len()).map(mean).collect();
    let off = |(ideal, got): (&f64, &f64)| if *ideal > 0.0 { (got / ideal - 1.0).abs() } else { 0.0 };
    let off = ideal.iter().zip(&got).map(off).fold(0.0, f64::max);
    Plateau { from: seconds(from), to: seconds(to), ideal, got, off }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plateau_is_near_its_max_min_share() {
        let timeline = run();
        assert_eq!(timeline.plateaus.len(), 5);
        assert!(timeline.holds(), "{:#?}", timeline.plateaus);
        let first = &timeline.plateaus[0];
        assert!((first.got[0] / 12e9 - 1.0).abs() < WITHIN && first.got[1..] == [0.0, 0.0], "{first:?}");
        assert_eq!(timeline.plateaus[1].ideal, [9.6e9, 6.4e9, 0.0]);
    }
}
