//! Runs tenants beside each other, and counts only what happened while all of them had commands queued.

use super::device::{Device, Process, Setup};
use super::load::DEPTH_MIN;
use crate::report::median;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use weldfs_device::TenantStats;
use weldfs_scheduler::sim::jain;
use weldfs_session::latency::Snapshot;

/// Before figures are taken.
const WARM_UP: Duration = Duration::from_millis(400);
/// Intervals that are counted or not as a whole.
const INTERVAL: Duration = Duration::from_millis(250);
/// Part of an interval in which a busy tenant has commands outstanding, at least.
const BACKLOGGED: f64 = 0.999;

/// One tenant's figures over the intervals that count.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// Its weight; 100 is usual.
    pub weight: u32,
    /// Commands completed.
    pub ops: u64,
    /// Device time charged, nanoseconds.
    pub device_ns: u64,
    /// Slices run.
    pub slices: u64,
    /// Device-side latency, entry seen to completion written.
    pub latency: Snapshot,
    /// Mean commands outstanding.
    pub depth: f64,
    /// What the client saw over a whole round: median and 99th percentile, nanoseconds, by round.
    pub walls_ns: Vec<(u64, u64)>,
}

impl Measured {
    /// The client's 99th percentile, nanoseconds: the median of the rounds.
    pub fn wall_p99_ns(&self) -> f64 {
        median(&self.walls_ns.iter().map(|(_, p99)| *p99 as f64).collect::<Vec<_>>())
    }
}

/// Figures of all tenants.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// By tenant, in the order of the setup.
    pub tenants: Vec<Measured>,
    /// Time that counts, nanoseconds.
    pub time_ns: u64,
    /// Intervals that count, and all.
    pub intervals: (u32, u32),
    /// Jain's index of device time over weight, by round.
    pub jains: Vec<f64>,
    /// Device time of all tenants over the time of the device's cores.
    pub utilisation: f64,
}

impl Run {
    /// Median over the rounds.
    pub fn jain(&self) -> f64 {
        median(&self.jains)
    }

    /// Commands per second of a tenant.
    pub fn rate(&self, at: usize) -> f64 {
        self.tenants[at].ops as f64 * 1e9 / self.time_ns.max(1) as f64
    }

    /// A tenant's part of the device time.
    pub fn share(&self, at: usize) -> f64 {
        let all: u64 = self.tenants.iter().map(|t| t.device_ns).sum();
        self.tenants[at].device_ns as f64 / all.max(1) as f64
    }

    /// Figures of several rounds together.
    fn join(&mut self, other: Run) {
        if self.tenants.is_empty() {
            *self = other;
            return;
        }
        let (before, after) = (self.time_ns as f64, other.time_ns as f64);
        let mean = |a: f64, b: f64| (a * before + b * after) / (before + after).max(1.0);
        for (t, o) in self.tenants.iter_mut().zip(&other.tenants) {
            t.ops += o.ops;
            t.device_ns += o.device_ns;
            t.slices += o.slices;
            t.latency.merge(&o.latency);
            t.depth = mean(t.depth, o.depth);
            t.walls_ns.extend(&o.walls_ns);
        }
        self.utilisation = mean(self.utilisation, other.utilisation);
        self.time_ns += other.time_ns;
        self.intervals = (self.intervals.0 + other.intervals.0, self.intervals.1 + other.intervals.1);
        self.jains.extend(other.jains);
    }
}

/// Who runs it, and how long.
#[derive(Clone, Debug)]
pub struct Pace<'a> {
    /// The `weldfs` binary.
    pub program: &'a Path,
    /// Arguments that turn it into a tenant's process.
    pub client_args: &'a [String],
    /// Seconds of a round.
    pub seconds: f64,
    /// Rounds, each on a fresh device.
    pub rounds: u32,
    /// Every interval counts, whoever had too little to do in it.
    pub quick: bool,
}

/// Measures a setup.
pub fn run(pace: &Pace<'_>, setup: &Setup) -> io::Result<Run> {
    let mut all = Run::default();
    for _ in 0..pace.rounds {
        all.join(round(pace, setup)?);
    }
    Ok(all)
}

fn round(pace: &Pace<'_>, setup: &Setup) -> io::Result<Run> {
    let device = Device::start(pace.program, setup)?;
    let processes = setup.tenants.iter().map(|t| device.process(pace.client_args, t));
    let mut processes = processes.collect::<io::Result<Vec<Process>>>()?;
    processes.iter_mut().try_for_each(Process::go)?;
    std::thread::sleep(WARM_UP);
    let (start, mut run) = (Instant::now(), Run::default());
    let mut before = device.stats()?;
    while start.elapsed().as_secs_f64() < pace.seconds {
        std::thread::sleep(INTERVAL);
        let after = device.stats()?;
        run.intervals.1 += 1;
        let time_ns = after.time_ns - before.time_ns;
        if let Some(interval) = interval(setup, time_ns, &before.tenants, &after.tenants, pace.quick) {
            let counted = (run.intervals.0 + 1, run.intervals.1);
            run.join(interval);
            run.intervals = counted;
        }
        before = after;
    }
    if run.intervals.0 == 0 {
        let what = "the device is not the bottleneck, or the host too busy: no interval counts";
        return Err(io::Error::other(what));
    }
    let shallow = shallow(setup, &run).filter(|_| !pace.quick);
    shallow.map_or(Ok(()), |what| Err(io::Error::other(what)))?;
    for (t, process) in run.tenants.iter_mut().zip(processes) {
        t.walls_ns = vec![process.stop()?];
    }
    let by_weight: Vec<f64> = run.tenants.iter().map(|t| t.device_ns as f64 / f64::from(t.weight)).collect();
    run.jains = vec![jain(&by_weight)];
    Ok(run)
}

/// Commands below which a mean depth says nothing: the device adds to it when a command comes or ends.
const COUNTED_MIN: u64 = 50;

/// Says which busy tenant had too few commands queued, over a whole round.
fn shallow(setup: &Setup, run: &Run) -> Option<String> {
    let of = setup
        .tenants
        .iter()
        .zip(&run.tenants)
        .find(|(p, t)| p.load.is_busy() && t.ops >= COUNTED_MIN && t.depth < DEPTH_MIN);
    of.map(|(_, t)| format!("{} had {:.1} commands queued, too few: the host is too busy", t.name, t.depth))
}

/// What happened between two looks; `None` unless all busy tenants had their commands queued all the time, or that is
/// not asked for.
fn interval(
    setup: &Setup,
    time_ns: u64,
    before: &[TenantStats],
    after: &[TenantStats],
    all_count: bool,
) -> Option<Run> {
    let mut run = Run { time_ns, intervals: (1, 1), ..Run::default() };
    for plan in &setup.tenants {
        let named = |t: &&TenantStats| t.name == plan.name;
        let (was, is) = (before.iter().find(named)?, after.iter().find(named)?);
        let did = is.totals.since(&was.totals);
        let backlogged = (is.backlogged_ns - was.backlogged_ns) as f64 / time_ns as f64;
        let depth = did.depth_ns as f64 / time_ns as f64;
        if plan.load.is_busy() && backlogged < BACKLOGGED && !all_count {
            return None;
        }
        run.tenants.push(Measured {
            name: plan.name.clone(),
            weight: plan.weight,
            ops: did.commands,
            device_ns: did.device_ns,
            slices: did.slices,
            latency: is.latency.since(&was.latency).total,
            depth,
            walls_ns: Vec::new(),
        });
    }
    let used: u64 = run.tenants.iter().map(|t| t.device_ns).sum();
    run.utilisation = used as f64 / time_ns as f64 / f64::from(setup.cores);
    Some(run)
}

#[cfg(test)]
mod tests {
    use super::super::device::Plan;
    use super::super::load::{Kind, Load};
    use super::*;
    use weldfs_scheduler::PolicyKind;

    const SECOND: u64 = 1_000_000_000;

    fn setup() -> Setup {
        let busy = Load::busy(Kind::Random, 4096);
        let tenants = vec![Plan::new("one", busy), Plan::new("two", Load { depth: 1, ..busy })];
        let (speed, quantum_us, memory) = (0.5, 100, "64M".to_owned());
        Setup { policy: PolicyKind::Cfs, cores: 2, speed, quantum_us, memory, accounting: true, tenants }
    }

    /// After `seconds` in which `one` had `depth` commands outstanding, all the time or half of it.
    fn stats(seconds: u64, depth: u64, always: bool) -> Vec<TenantStats> {
        let tenant = |name: &str, depth: u64, device_ns: u64| {
            let totals = serde_json::json!({ "commands": 100 * seconds, "depth_ns": depth * seconds * SECOND,
                "device_ns": device_ns * seconds });
            let backlogged_ns = seconds * SECOND / if always { 1 } else { 2 };
            let totals = serde_json::from_value(totals).expect("counters");
            TenantStats { name: name.into(), backlogged_ns, totals, ..TenantStats::default() }
        };
        vec![tenant("one", depth, SECOND), tenant("two", 1, SECOND / 2)]
    }

    fn between(depth: u64, always: bool) -> Option<Run> {
        interval(&setup(), 2 * SECOND, &stats(1, depth, always), &stats(3, depth, always), false)
    }

    #[test]
    fn only_intervals_in_which_every_busy_tenant_is_backlogged_count() {
        let run = between(40, true).expect("it counts");
        assert_eq!((run.time_ns, run.tenants[0].ops, run.tenants[1].device_ns), (2 * SECOND, 200, SECOND));
        assert_eq!((run.utilisation, run.rate(0), run.tenants[0].depth), (0.75, 100.0, 40.0));
        assert!((run.share(0) - 2.0 / 3.0).abs() < 1e-9);
        assert!(shallow(&setup(), &run).is_none());
        assert!(shallow(&setup(), &between(31, true).expect("it counts")).is_some(), "too few queued");
        assert!(between(80, false).is_none(), "idle for half of it");
        let strange = Setup { tenants: vec![Plan::new("three", Load::busy(Kind::Read, 1))], ..setup() };
        assert!(interval(&strange, SECOND, &stats(1, 40, true), &stats(2, 40, true), true).is_none());
        let idle = (stats(1, 40, false), stats(3, 40, false));
        assert!(interval(&setup(), 2 * SECOND, &idle.0, &idle.1, true).is_some(), "a quick run counts everything");
    }

    #[test]
    fn rounds_add_up_and_keep_their_own_index() {
        let round = |index, p99| {
            let mut run = Run { jains: vec![index], ..between(40, true).expect("it counts") };
            run.tenants[0].walls_ns = vec![(1, p99)];
            run
        };
        let mut both = round(0.9, 30);
        both.join(round(0.7, 1000));
        both.join(round(0.8, 20));
        assert_eq!(both.tenants[0].wall_p99_ns(), 30.0, "the median of the rounds, not the worst");
        assert_eq!((both.tenants[0].ops, both.time_ns, both.intervals, both.jain()), (600, 6 * SECOND, (3, 3), 0.8));
    }
}
