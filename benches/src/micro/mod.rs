//! `weldfs bench micro`: every operation, size, depth and number of threads, on WeldFS and on the host, in one run.
//!
//! Hypothesis: several steps in one command cost less than the steps one by one. Unit: nanoseconds per operation (wall
//! time over operations, all threads together). Systems are interleaved: in every round each cell of the matrix is
//! measured on all systems, one right after the other, in an order that turns from round to round; a figure is the
//! median of the rounds. All systems do the same number of the same operations on the same files (`files`), and what
//! they did is read back and compared outside of the clock.
//!
//! Compared are equals: volatile with volatile, durable with durable, emulated pmem with a file system over RAM, a
//! `block` image with a file system on the same disk.
//!
//! * `cell` what is measured; `files` on what; `sample` with which counters.
//! * `weld` and `lane` WeldFS; `posix` plain calls; `uring` and `chains` linked requests.
//! * `catalogue` the operations that travel as programs, on all of these systems.
//! * `report` rows and tables; `targets` the aims; `reasons` why a row is slow.

mod catalogue;
pub mod cell;
pub mod chains;
pub(crate) mod files;
mod lane;
mod posix;
mod reasons;
pub mod report;
pub(crate) mod sample;
pub(crate) mod systems;
pub(crate) mod targets;
mod uring;
mod weld;

use crate::chosen::{Chosen, Failed, nothing_chosen};
use crate::peers::Peer;
use crate::report::{Machine, median};
use crate::settle;
use cell::{Cell, Matrix, MicroOp, Phase};
pub use report::MicroReport;
use report::Row;
use sample::{Counts, Sample};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use systems::Systems;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weldfs` binary: makes images and serves.
    pub program: PathBuf,
    /// Which cells.
    pub matrix: Matrix,
    /// Directories to compare with.
    pub peers: Vec<Peer>,
    /// Mounts ext4, xfs and tmpfs over RAM as peers as well. Needs root.
    pub prepare: bool,
    /// Which systems, and which of those file systems.
    pub chosen: Chosen,
    /// Rounds behind each median.
    pub rounds: usize,
    /// Milliseconds that the slowest system's burst may take; the others do as many operations as it can do in that.
    pub millis: u64,
    /// A few operations of each cell on small images: shows that everything works, and no figures.
    pub quick: bool,
    /// Size of an image, as mkfs takes it. Two of them may be there at once.
    pub image: String,
}

/// Whoever looks on: is told how far it is, and may end it.
pub trait Watch {
    /// So many samples will be taken, each in about so many seconds.
    fn plan(&mut self, samples: u64, seconds: f64);
    /// The next sample, or something that takes a while before the first one.
    fn at(&mut self, what: &str, is_sample: bool);
    /// How far a sample, or what takes a while before it, is: from 0 to 1. Said by those that take long.
    fn part(&mut self, _share: f64) {}
    /// Whether to stop; asked between samples. The experiment then tidies up, and ends with what was measured.
    fn stop(&self) -> bool;
}

/// A way to do the operations.
trait System {
    /// As in the JSON.
    fn name(&self) -> &str;
    /// Where the bytes live.
    fn medium(&self) -> String;
    /// Whether what is durable here survives a power cut.
    fn power_safe(&self) -> bool;
    /// Whether it has this cell.
    fn takes(&self, cell: &Cell) -> bool;
    /// Bytes of the log that its steady phase goes round in; 0 without one.
    fn log(&self) -> u64 {
        0
    }
    /// Prepares, runs `count` operations (shared by the threads), verifies, clears.
    fn run(&mut self, cell: &Cell, run: u64, count: u64) -> io::Result<Sample>;
    /// Writes back what its runs left: nothing of it goes on beside the next system's.
    fn rest(&mut self) -> io::Result<()>;
}

/// Operations of a probe, per thread.
const PROBE: u64 = 64;
/// Operations of a burst, at least and at most, all threads together.
const BURST: (u64, u64) = (128, 16_384);
/// A steady sample is so many times as long as a burst, in operations at least and in time at most.
const STEADY_OPS: u64 = 8;
const STEADY_TIME: u64 = 40;
/// Log lengths that a steady sample goes over.
const LOG_LENGTHS: u64 = 10;
/// Bytes of payload between two clearings.
const CHUNK_BYTES: u64 = 32 << 20;
/// Bursts during which a checkpoint ended are done again, so often.
const RETRIES: usize = 3;

/// The rounds of one system in one cell.
#[derive(Default)]
struct Rounds {
    ns: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    ops: u64,
    counts: Counts,
    restless: usize,
}

struct Bench<'a> {
    options: &'a Options,
    watch: &'a mut dyn Watch,
    systems: Systems,
    /// Serial number of the next run: names its folders and marks its records.
    serial: u64,
    counts: HashMap<Cell, u64>,
    /// Operations that a system said it does not have.
    refused: Vec<(usize, MicroOp)>,
    /// Cells that a system failed in.
    failed: Vec<((usize, Cell), Failed)>,
}

pub(crate) fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "interrupted")
}

/// Runs the experiment. A cell that a system fails in, or in which it did not do its work, is in the report as failed;
/// when `watch` ends it early, the report holds what was measured until then.
///
/// # Errors
/// `Interrupted` when `watch` says so before there is anything to measure; those of starting devices and of mounting.
pub fn run(options: &Options, watch: &mut dyn Watch) -> io::Result<MicroReport> {
    let systems = Systems::start(options, watch)?;
    if systems.len() == 0 {
        return Err(nothing_chosen());
    }
    let cells = options.matrix.cells();
    let mut bench =
        Bench { options, watch, systems, serial: 0, counts: HashMap::new(), refused: Vec::new(), failed: Vec::new() };
    let taken = cells.iter().map(|c| bench.takers(c).len() as f64);
    let (samples, seconds) = taken.zip(&cells).fold((0.0, 0.0), |(samples, seconds), (takers, cell)| {
        (samples + takers, seconds + takers * options.seconds(cell))
    });
    bench.watch.plan((samples as usize * options.rounds) as u64, seconds / f64::max(samples, 1.0));
    let mut all: HashMap<(usize, usize), Rounds> = HashMap::new();
    let interrupted = match bench.rounds(&cells, &mut all) {
        Ok(()) => false,
        Err(_) if bench.watch.stop() => true,
        Err(e) => return Err(e),
    };
    let mut rows = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        for system in bench.takers(cell) {
            if let Some(rounds) = all.remove(&(number, system)) {
                rows.push(rounds.row(cell, bench.systems.get(system)));
            }
        }
    }
    let failed = bench.failed.iter().map(|(_, failed)| failed.clone()).collect();
    let ended = report::Ended { interrupted, failed, skipped: bench.skipped() };
    Ok(MicroReport::new(Machine::here(), options.quick, bench.systems.peers(), ended, rows))
}

impl Options {
    /// How long a clock waits for the machine to be at rest.
    fn calm(&self) -> Duration {
        if self.quick { Duration::ZERO } else { settle::MOST }
    }

    /// Gives the cores of the device in process `pid` their processor. Where nothing is measured the scheduler may
    /// place them: several such runs may be under way at once.
    fn keep_apart(&self, pid: u32) {
        if !self.quick {
            crate::apart::device(pid);
        }
    }

    /// About how long a sample takes, files made and checked.
    fn seconds(&self, cell: &Cell) -> f64 {
        let (millis, around) = (self.millis as f64 / 1000.0, 0.06);
        match cell.phase {
            _ if self.quick => 0.02,
            Phase::Burst => millis * 0.7 + around,
            Phase::Steady => millis * STEADY_OPS as f64 + 2.0 * around,
        }
    }
}

impl Bench<'_> {
    /// Every round of every cell. `Interrupted` when `watch` ended it.
    fn rounds(&mut self, cells: &[Cell], all: &mut HashMap<(usize, usize), Rounds>) -> io::Result<()> {
        for (round, number) in (0..self.options.rounds).flat_map(|r| (0..cells.len()).map(move |n| (r, n))) {
            let cell = &cells[number];
            let count = self.count(cell)?;
            let mut takers = self.takers(cell);
            let turn = (round + number) % takers.len().max(1);
            takers.rotate_left(turn);
            for system in takers {
                match self.attempt(system, cell, |b| b.sample(system, cell, count))? {
                    Some(sample) => all.entry((number, system)).or_default().add(sample),
                    None => drop(all.remove(&(number, system))),
                }
            }
        }
        Ok(())
    }

    /// The systems that have this cell, and did not fail in it.
    fn takers(&self, cell: &Cell) -> Vec<usize> {
        (0..self.systems.len()).filter(|s| self.systems.get(*s).takes(cell) && !self.is_out(*s, cell)).collect()
    }

    fn is_out(&self, system: usize, cell: &Cell) -> bool {
        self.refused.contains(&(system, cell.op)) || self.failed.iter().any(|(key, _)| *key == (system, *cell))
    }

    /// What was not measured, and why.
    fn skipped(&self) -> Vec<String> {
        let refused = self
            .refused
            .iter()
            .map(|(system, op)| format!("{}: {}: not supported there", self.systems.get(*system).name(), op.name()));
        self.systems.skipped().into_iter().chain(refused).collect()
    }

    /// What `f` gives; none, and the system is out of this cell, where it does not have the operation or fails.
    /// `Interrupted` when `watch` says so.
    fn attempt<T>(
        &mut self,
        system: usize,
        cell: &Cell,
        f: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        if self.is_out(system, cell) {
            return Ok(None);
        }
        match f(self) {
            Ok(done) => return Ok(Some(done)),
            Err(_) if self.watch.stop() => return Err(interrupted()),
            Err(e) if e.kind() == io::ErrorKind::Unsupported => self.refused.push((system, cell.op)),
            Err(e) => {
                let name = self.systems.get(system).name().to_owned();
                let failed = Failed { system: name, cell: cell.to_string(), error: e.to_string() };
                self.failed.push(((system, *cell), failed));
            }
        }
        Ok(None)
    }

    fn run(&mut self, system: usize, cell: &Cell, count: u64) -> io::Result<Sample> {
        if self.watch.stop() {
            return Err(interrupted());
        }
        self.serial += 1;
        self.systems.get_mut(system).run(cell, self.serial, count)
    }

    /// Operations of every system in this cell: as many as the slowest does in its time, found by trying it.
    fn count(&mut self, cell: &Cell) -> io::Result<u64> {
        if let Some(count) = self.counts.get(cell) {
            return Ok(*count);
        }
        let threads = u64::from(cell.threads);
        let unit = threads * 32;
        let mut count = unit * 2;
        if !self.options.quick {
            let (mut slowest, mut rounds) = (1.0f64, 0);
            for system in self.takers(cell) {
                let probe = self.attempt(system, cell, |b| {
                    let probe = b.run(system, cell, PROBE * threads)?;
                    b.systems.get_mut(system).rest().map(|()| probe)
                })?;
                let Some(probe) = probe else { continue };
                slowest = slowest.max(probe.ns_per_op());
                // So many operations go once over the log.
                let log = self.systems.get(system).log() * probe.ops;
                rounds = rounds.max(log.checked_div(probe.counts.log_bytes).unwrap_or(0));
            }
            let burst = (self.options.millis as f64 * 1e6 / slowest) as u64;
            count = burst.clamp(BURST.0, BURST.1);
            if cell.phase == Phase::Steady {
                count = (count * STEADY_OPS).max(rounds * LOG_LENGTHS);
            }
        }
        let count = count.next_multiple_of(unit);
        self.counts.insert(*cell, count);
        Ok(count)
    }

    /// One sample: a burst in one piece, a steady one in pieces between which files are cleared.
    fn sample(&mut self, system: usize, cell: &Cell, count: u64) -> io::Result<Sample> {
        let name = self.systems.get(system).name().to_owned();
        self.watch.at(&format!("{name}: {cell}"), true);
        let piece = (CHUNK_BYTES / u64::from(cell.size)).clamp(64, 8192) * u64::from(cell.threads);
        let limit = match cell.phase {
            Phase::Burst => Duration::MAX,
            Phase::Steady => Duration::from_millis(self.options.millis * STEADY_TIME),
        };
        let mut retries = if self.options.quick { 0 } else { RETRIES };
        loop {
            let mut sum = Sample::default();
            while sum.ops < count && Duration::from_nanos(sum.wall_ns) < limit {
                sum.add(self.run(system, cell, piece.min(count - sum.ops))?);
            }
            if cell.phase == Phase::Steady || sum.counts.checkpoints == 0 || retries == 0 {
                self.systems.get_mut(system).rest()?;
                return Ok(sum);
            }
            retries -= 1;
        }
    }
}

impl Rounds {
    fn add(&mut self, mut sample: Sample) {
        self.ns.push(sample.ns_per_op());
        let (p50, p99) = sample.percentiles();
        self.p50.push(p50);
        self.p99.push(p99);
        self.ops += sample.ops;
        self.restless += usize::from(sample.restless > 0);
        self.counts += sample.counts;
    }

    fn row(&self, cell: &Cell, system: &dyn System) -> Row {
        let per_op = |count: u64| count as f64 / self.ops.max(1) as f64;
        let ns_per_op = median(&self.ns);
        Row {
            bench: "micro".into(),
            system: system.name().to_owned(),
            op: cell.op.name().to_owned(),
            size: cell.size,
            depth: cell.depth,
            threads: cell.threads,
            phase: cell.phase,
            medium: system.medium(),
            durability: cell.class,
            power_safe: system.power_safe(),
            ns_per_op,
            ops_per_s: 1e9 / ns_per_op,
            p50_ns: median(&self.p50),
            p99_ns: median(&self.p99),
            crossings: per_op(self.counts.crossings),
            payload_copies: per_op(self.counts.payload_copies),
            metadata_copies: per_op(self.counts.metadata_copies),
            syscalls: per_op(self.counts.syscalls),
            link_bytes: per_op(self.counts.link_bytes),
            flushes: per_op(self.counts.flushes),
            ops: self.ops,
            rounds: self.ns.len(),
            restless: self.restless,
            checkpoints: self.counts.checkpoints,
            log_lengths: match system.log() {
                0 => 0.0,
                log => self.counts.log_bytes as f64 / log as f64 / self.ns.len().max(1) as f64,
            },
        }
    }
}
