//! Runs sets of workloads: each on the real store, then every crash state of it through recovery and oracle.

use super::check::{Checker, Counts, panicked};
use super::enumerate::{Chosen, Places, states};
use super::generate::{self, ModeChoice};
use super::oracle::History;
use super::report::{FAILURES_MAX, Failure, Report};
use super::workload::{Background, Step, Sync as After};
use super::{Bad, Performed, Setup, Tree, Workload, perform, shrink};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use weldfs_locks::Mutex;
use weldfs_media::{CowImage, CowMedium, CrashModel, Replayer};
use weldfs_store::superblock::Superblock;

/// Failures that are made smaller; the others are reported as they came.
const SHRUNK_MAX: usize = 3;
/// Operations of a random workload.
const RANDOM_OPS: usize = 40;
/// States tried at each moment of a random workload.
const RANDOM_STATES: u64 = 12;

/// Threads at most.
pub const JOBS_MAX: usize = 256;

/// Why a run says nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Nothing {
    /// The image that workloads start from cannot be made.
    #[error("the experiment failed: {0}")]
    Setup(String),
    /// There is no such state, so none was tried.
    #[error("{0}")]
    NoSuchState(String),
}

/// Which workloads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Set {
    /// Every one of one operation.
    OneOp,
    /// Those of two operations.
    TwoOp,
    /// Samples of three.
    ThreeOp,
    /// Long ones, with a few states at each moment.
    Random,
    /// One operation and a checkpoint or an unmount after it.
    Checkpoint,
    /// A single one; with a moment and a state number, only that state.
    Trace(Workload, Option<(u64, u64)>),
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which workloads.
    pub set: Set,
    /// On which medium.
    pub model: CrashModel,
    /// Transaction modes of fused operations.
    pub modes: ModeChoice,
    /// Different images of workloads after which the run ends.
    pub states: Option<u64>,
    /// Workloads, drawn by the seed, instead of all.
    pub limit: Option<u64>,
    /// For samples and tears.
    pub seed: u64,
    /// Power cuts in a row: 1 means none within a recovery.
    pub depth: u32,
    /// Threads, up to [`JOBS_MAX`].
    pub jobs: usize,
}

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Workloads done.
    pub workloads: u64,
    /// Workloads in all, when that is known.
    pub of: Option<u64>,
    /// Different images of workloads.
    pub unique: u64,
    /// States judged.
    pub states: u64,
    /// Bad ones.
    pub bad: u64,
}

impl Set {
    /// As `--workload` takes it.
    pub fn name(&self) -> &'static str {
        match self {
            Set::OneOp => "one-op",
            Set::TwoOp => "two-op",
            Set::ThreeOp => "three-op",
            Set::Random => "random",
            Set::Checkpoint => "checkpoint",
            Set::Trace(..) => "trace",
        }
    }

    /// Reads a trace: a workload, or a workload and one of its states.
    ///
    /// # Errors
    /// What is not understood.
    pub fn of_trace(line: &str) -> Result<Set, String> {
        let Some((line, at)) = line.rsplit_once('@') else { return Ok(Set::Trace(Workload::parse(line)?, None)) };
        let number = |s: &str| s.trim().parse::<u64>().map_err(|_| format!("{s} is not a number"));
        let (cut, state) = at.split_once('.').ok_or("after @ stand a moment, a dot and the number of a state")?;
        Ok(Set::Trace(Workload::parse(line)?, Some((number(cut)?, number(state)?))))
    }
}

type Workloads = Box<dyn Iterator<Item = Workload> + Send>;

struct Run<'a> {
    config: &'a Config,
    setup: Setup,
    places: Places,
    checker: Checker,
    stop: &'a AtomicBool,
    workloads: AtomicU64,
    states: AtomicU64,
    bad: AtomicU64,
    capped: AtomicU64,
    failures: Mutex<Vec<Failure>>,
}

/// Runs it all, or until `stop` is set; `progress` is told now and then, by any of the threads.
///
/// # Errors
/// What kept the run from trying anything; bad states are in the report.
pub fn run(config: &Config, stop: &AtomicBool, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report, Nothing> {
    let setup = match &config.set {
        Set::Trace(workload, _) => Setup::for_workload(config.model, workload),
        _ => Setup::new(config.model),
    };
    let setup = setup.map_err(Nothing::Setup)?;
    let medium = CowMedium::new(setup.image.clone(), config.model);
    let (superblock, _) = Superblock::load(&medium).map_err(|e| Nothing::Setup(e.to_string()))?;
    let places = Places::new(&superblock.geometry, config.model);
    let checker = Checker::new(config.model, places.clone(), config.depth);
    let run = Run {
        config,
        setup,
        places,
        checker,
        stop,
        workloads: AtomicU64::new(0),
        states: AtomicU64::new(0),
        bad: AtomicU64::new(0),
        capped: AtomicU64::new(0),
        failures: Mutex::default(),
    };
    let (workloads, of) = workloads(config);
    let (start, cpu) = (Instant::now(), processor_seconds());
    let next = Mutex::new(workloads);
    std::thread::scope(|scope| {
        for _ in 0..config.jobs.clamp(1, JOBS_MAX) {
            scope.spawn(|| run.work(&next, of, progress));
        }
    });
    run.asked_for_something()?;
    run.shrink();
    Ok(run.report(start.elapsed().as_secs_f64(), processor_seconds() - cpu))
}

/// The workloads of a set, and how many there are if that is known.
fn workloads(config: &Config) -> (Workloads, Option<u64>) {
    let (seed, modes) = (config.seed, config.modes);
    let count = |n: u64| config.limit.unwrap_or(n) as usize;
    match &config.set {
        Set::OneOp => listed(generate::one_op(modes), config.limit, seed),
        Set::Checkpoint => listed(checkpoints(modes), config.limit, seed),
        Set::TwoOp if config.limit.is_none() => (Box::new(generate::two_op(modes)), None),
        Set::TwoOp => (Box::new(generate::sampled(2, count(0), seed)), config.limit),
        Set::ThreeOp => (Box::new(generate::sampled(3, count(2000), seed)), Some(count(2000) as u64)),
        Set::Random => {
            let n = config.limit.unwrap_or(u64::MAX);
            (Box::new((0..n).map(move |i| generate::random(RANDOM_OPS, seed.wrapping_add(i)))), config.limit)
        }
        Set::Trace(workload, _) => (Box::new(std::iter::once(workload.clone())), Some(1)),
    }
}

/// Every operation alone, volatile and with nothing after it, then a checkpoint or an unmount: the measured part is
/// what those two write.
fn checkpoints(modes: ModeChoice) -> Vec<Workload> {
    let bare = |s: &Step| !s.durable && s.sync == After::Nothing && s.then == Background::Nothing;
    let plain = |w: &Workload| w.steps.iter().all(bare);
    let with = |w: &Workload, then: Background| {
        let mut w = w.clone();
        if let Some(last) = w.steps.last_mut() {
            last.then = then;
        }
        w
    };
    let all = generate::one_op(modes).into_iter().filter(plain);
    all.flat_map(|w| [with(&w, Background::Checkpoint), with(&w, Background::Remount)]).collect()
}

/// All of them in order, or as many as the limit says, drawn by the seed.
fn listed(all: Vec<Workload>, limit: Option<u64>, seed: u64) -> (Workloads, Option<u64>) {
    let n = all.len() as u64;
    match limit.filter(|l| *l < n) {
        None => (Box::new(all.into_iter()), Some(n)),
        Some(l) => (Box::new(generate::places(n, l, seed).map(move |i| all[i as usize].clone())), Some(l)),
    }
}

/// What the states of one workload came to.
#[derive(Default)]
struct Outcome {
    states: u64,
    capped: u64,
    bad: u64,
    first: Option<(u64, u64, Bad)>,
}

/// What the oracle said of trees at one moment, by the address of the tree: each is kept once.
#[derive(Default)]
struct Judged {
    recovered: HashMap<*const Tree, Option<Bad>>,
    shown: HashMap<*const Tree, Option<Bad>>,
}

impl Run<'_> {
    fn work(&self, next: &Mutex<Workloads>, of: Option<u64>, progress: &(dyn Fn(Progress) + Sync)) {
        while !self.enough() {
            let Some(workload) = next.lock().next() else { return };
            self.one(&workload, &|| progress(self.progress(of)));
        }
    }

    fn enough(&self) -> bool {
        let full = self.config.states.is_some_and(|n| self.checker.counts().images >= n);
        full || self.stop.load(Relaxed) || self.bad.load(Relaxed) >= 10 * FAILURES_MAX as u64
    }

    fn progress(&self, of: Option<u64>) -> Progress {
        Progress {
            workloads: self.workloads.load(Relaxed),
            of,
            unique: self.checker.counts().images,
            states: self.states.load(Relaxed),
            bad: self.bad.load(Relaxed),
        }
    }

    fn one(&self, workload: &Workload, progress: &dyn Fn()) {
        let outcome = self.states_of(workload, progress);
        self.workloads.fetch_add(1, Relaxed);
        self.states.fetch_add(outcome.states, Relaxed);
        self.capped.fetch_add(outcome.capped, Relaxed);
        self.bad.fetch_add(outcome.bad, Relaxed);
        let Some((cut, state, bad)) = outcome.first else { return };
        let mut failures = self.failures.lock();
        if failures.len() < FAILURES_MAX {
            failures.push(failure(workload, cut, state, bad));
        }
    }

    /// Runs a workload and all its crash states.
    fn states_of(&self, workload: &Workload, progress: &dyn Fn()) -> Outcome {
        // A store that panics must not take the run with it.
        let performed = catch_unwind(AssertUnwindSafe(|| perform(&self.setup, workload)));
        let performed = match performed.unwrap_or_else(|panic| Err(panicked(&*panic))) {
            Ok(p) => p,
            Err(e) => return Outcome { bad: 1, first: Some((0, 0, Bad::new(0, e))), ..Outcome::default() },
        };
        let Performed { recording, begun, history } = performed;
        let mut at = Replayer::new(&recording, 0);
        at.goto(begun);
        let mut outcome = Outcome::default();
        loop {
            self.moment(&at, &history, &mut outcome);
            progress();
            if self.stop.load(Relaxed) || !at.advance() {
                return outcome;
            }
        }
    }

    fn moment(&self, at: &Replayer<'_>, history: &History, outcome: &mut Outcome) {
        let (cut, seed) = (at.position(), self.config.seed);
        let mut judged = Judged::default();
        let mut visit = |number: u64, image: CowImage| {
            if self.stop.load(Relaxed) {
                return;
            }
            outcome.states += 1;
            if let Some(bad) = self.state(cut, &image, history, &mut judged) {
                outcome.bad += 1;
                outcome.first.get_or_insert((cut, number, bad));
            }
        };
        let only = match &self.config.set {
            Set::Trace(_, only) => *only,
            _ => None,
        };
        let chosen = match (&self.config.set, only) {
            (_, Some((moment, number))) => {
                states(at, &self.places, seed, &|n| (moment, number) == (cut, n), &mut visit)
            }
            (Set::Random, _) => {
                let Chosen { states: all, .. } = states(at, &self.places, seed, &|_| false, &mut |_, _| {});
                let step = all.div_ceil(RANDOM_STATES).max(1);
                states(at, &self.places, seed, &|n| n.wrapping_add(cut).is_multiple_of(step), &mut visit)
            }
            _ => states(at, &self.places, seed, &|_| true, &mut visit),
        };
        outcome.capped += u64::from(chosen.capped);
    }

    /// Recovers one image and asks the oracle.
    fn state(&self, cut: u64, image: &CowImage, history: &History, judged: &mut Judged) -> Option<Bad> {
        let recovered = self.checker.recover(image);
        if let Some(bad) = recovered.bad.first() {
            return Some(bad.clone());
        }
        let Judged { recovered: made, shown } = judged;
        let judge =
            |tree: &Arc<Tree>| made.entry(Arc::as_ptr(tree)).or_insert_with(|| history.judge(cut, tree).err()).clone();
        let look = |tree: &Arc<Tree>| {
            let read_only = |bad: Bad| Bad::new(bad.rule, format!("mounted read-only: {}", bad.detail));
            let judge = || history.judge_read_only(cut, tree).err().map(read_only);
            shown.entry(Arc::as_ptr(tree)).or_insert_with(judge).clone()
        };
        let bad = recovered.tree.iter().chain(&recovered.others).find_map(judge);
        bad.or_else(|| recovered.shown.iter().find_map(look))
    }

    /// A state that a trace names must be there: where nothing was tried nothing is known to be good.
    fn asked_for_something(&self) -> Result<(), Nothing> {
        let Set::Trace(workload, Some((moment, number))) = &self.config.set else { return Ok(()) };
        let tried = self.states.load(Relaxed) + self.bad.load(Relaxed);
        if tried > 0 || self.stop.load(Relaxed) {
            return Ok(());
        }
        let Performed { recording, begun, .. } = perform(&self.setup, workload).map_err(Nothing::Setup)?;
        let mut at = Replayer::new(&recording, 0);
        let why = if (begun..=recording.len()).contains(moment) {
            at.goto(*moment);
            let there = states(&at, &self.places, self.config.seed, &|_| false, &mut |_, _| {}).states;
            format!("at moment {moment} there are {there}, numbered from 0")
        } else {
            format!("its moments are {begun} to {}", recording.len())
        };
        Err(Nothing::NoSuchState(format!("the workload has no state {moment}.{number}: {why}")))
    }

    /// Replaces the first failures by the smallest workloads that still fail.
    fn shrink(&self) {
        if self.stop.load(Relaxed) || matches!(self.config.set, Set::Trace(_, Some(_))) {
            return;
        }
        let mut failures = self.failures.lock();
        for f in failures.iter_mut().take(SHRUNK_MAX) {
            let Ok(Set::Trace(workload, _)) = Set::of_trace(&f.trace) else { continue };
            let small =
                shrink::shrink(&workload, &mut |w| !self.stop.load(Relaxed) && self.states_of(w, &|| {}).bad > 0);
            if let Some((cut, state, bad)) = self.states_of(&small, &|| {}).first {
                *f = failure(&small, cut, state, bad);
            }
        }
    }

    fn report(self, seconds: f64, processor: f64) -> Report {
        let Counts { images, in_recovery, recovered, read_only, middles, .. } = self.checker.counts();
        Report {
            workload: self.config.set.name().to_owned(),
            medium: if self.config.model == CrashModel::Block { "block" } else { "pmem" }.to_owned(),
            mode: match self.config.modes {
                ModeChoice::Macro => "macro",
                ModeChoice::Micro => "micro",
                ModeChoice::Both => "all",
            }
            .to_owned(),
            seed: self.config.seed,
            depth: self.config.depth,
            workloads: self.workloads.into_inner(),
            states: self.states.into_inner(),
            unique_states: images,
            recovery_states: in_recovery,
            read_only,
            middles,
            bad: self.bad.into_inner(),
            capped: self.capped.into_inner(),
            seconds,
            interrupted: self.stop.load(Relaxed),
            us_per_state: processor * 1e6 / recovered.max(1) as f64,
            failures: self.failures.into_inner(),
        }
    }
}

/// Time that this process has spent on processors.
fn processor_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn failure(workload: &Workload, cut: u64, state: u64, bad: Bad) -> Failure {
    let Bad { rule, detail } = bad;
    let trace = match rule {
        0 => workload.trace(),
        _ => format!("{}@{cut}.{state}", workload.trace()),
    };
    Failure { trace, rule, detail }
}
