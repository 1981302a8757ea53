//! `weldfs bench engines`: RocksDB, LevelDB and SQLite on WeldFS and on the host's file systems, in one run.
//!
//! Hypothesis: an engine's commit is a sequence of calls that one fused command stands for, so what must be durable is
//! a multiple faster, and what need not is no slower. Unit: operations (transactions) per second. The drivers
//! (`integrations/engines`) are programs of their own: each run is one workload on one database, and checks every value
//! that it reads. In each round a cell is measured on all systems, one right after the other, in an order that turns; a
//! figure is the median of the rounds, and the least and the most of them are kept. Before a clock starts the driver
//! has read all that was loaded (a device in its process begins with nothing cached) and waits until the machine is at
//! rest, and the counters of disk and device are read at both of its ends: of a device in its process by the driver.
//!
//! * `plan` the cells; `systems` on what; `driver` the processes; `count` flushes and bytes.
//! * `report` rows, tables, plots; `verdicts` the aims.

mod count;
mod driver;
pub mod plan;
mod report;
mod systems;
mod verdicts;

use crate::busy::company::{Company, Kind};
use crate::chosen::{Chosen, Failed, nothing_chosen};
use crate::micro::Watch;
use crate::peers::Peer;
use crate::report::Machine;
use crate::settle;
use count::{Cost, Look};
use driver::{Answer, Ends};
use plan::{Cell, Engine, Group, Plan, SQLITE_BATCH};
pub use report::EnginesReport;
use report::Samples;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
pub use systems::{MEDIA, SYSTEMS};
use systems::{System, Systems, Way};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weldfs` binary: makes images, serves, removes databases.
    pub program: PathBuf,
    /// Where the drivers are; none: beside the program.
    pub drivers: Option<PathBuf>,
    /// Which cells.
    pub plan: Plan,
    /// Kinds of images, as in [`MEDIA`].
    pub media: Vec<String>,
    /// The directory of block images; none: that of the first peer on a disk.
    pub dir: Option<PathBuf>,
    /// Directories to compare with.
    pub peers: Vec<Peer>,
    /// Mounts ext4, xfs and tmpfs over RAM as peers as well. Needs root.
    pub prepare: bool,
    /// Which systems, as in [`SYSTEMS`], and which of those file systems.
    pub chosen: Chosen,
    /// Rounds behind each median.
    pub rounds: usize,
    /// How long a sample takes at most.
    pub time: Duration,
    /// Bytes of an engine's own cache.
    pub cache: u64,
    /// Busy processes beside it, from the beginning to the end.
    pub busy: u32,
    /// Arguments with which the program is a busy process, before its kind.
    pub company_args: Vec<String>,
    /// Shows that everything works, and no figures.
    pub quick: bool,
}

/// Seconds that a sample takes besides its own, about.
const AROUND: f64 = 1.0;

/// What is there to drive an engine with.
struct Drivers {
    of: HashMap<&'static str, PathBuf>,
    extension: Option<PathBuf>,
    /// What is left out for want of a driver that few can build.
    skipped: Option<String>,
}

impl Drivers {
    /// Those that are there; the others are failed, with what to do about it.
    fn find(o: &Options, failed: &mut Vec<Failed>) -> Drivers {
        let mut drivers = Drivers { of: HashMap::new(), extension: None, skipped: None };
        let find = |name| driver::of(name, o.drivers.as_deref(), &o.program);
        let mut missing = |engine: Engine, error: String| {
            let cell = format!("{}: not measured", engine.name());
            failed.push(Failed { system: "all systems".into(), cell, error });
        };
        for &engine in &o.plan.engines {
            match find(engine.name()) {
                Ok(path) => drivers.of.insert(engine.name(), path),
                Err(why) => {
                    missing(engine, why);
                    None
                }
            };
        }
        if o.plan.groups().iter().any(|g| g.cells[0].driver() == SQLITE_BATCH) {
            match find(SQLITE_BATCH) {
                Ok(path) => drivers.of.extend([(SQLITE_BATCH, path)]),
                Err(why) => drivers.skipped = Some(format!("SQLite with batch atomic writes: {why}")),
            }
        }
        let plugins = [Way::Inline, Way::Served].iter().any(|way| o.chosen.system(way.name()));
        if drivers.of.contains_key(Engine::Sqlite.name()) && plugins {
            match driver::extension(o.drivers.as_deref(), &o.program) {
                Ok(path) => drivers.extension = Some(path),
                Err(why) => {
                    drivers.of.retain(|name, _| ![Engine::Sqlite.name(), SQLITE_BATCH].contains(name));
                    missing(Engine::Sqlite, why);
                }
            }
        }
        drivers
    }
}

struct Bench<'a> {
    o: &'a Options,
    watch: &'a mut dyn Watch,
    drivers: Drivers,
    systems: Systems,
    /// Names the next database.
    serial: u64,
    all: HashMap<(Cell, usize), Samples>,
    failed: Vec<((Cell, usize), Failed)>,
}

/// Runs the experiment. A cell that fails is in the report as failed, and not tried again, as is an engine without its
/// driver; when `watch` ends it early, the report holds what was measured until then.
///
/// # Errors
/// `Interrupted` when `watch` says so before there is anything to measure; those of starting devices and of mounting.
pub fn run(o: &Options, watch: &mut dyn Watch) -> io::Result<EnginesReport> {
    let mut missing = Vec::new();
    let drivers = Drivers::find(o, &mut missing);
    let mut groups = o.plan.groups();
    groups.retain(|g| drivers.of.contains_key(g.cells[0].driver()));
    if groups.is_empty() && missing.is_empty() {
        let none = || "none of the engines that were chosen has any of these workloads".to_owned();
        return Err(io::Error::other(drivers.skipped.clone().unwrap_or_else(none)));
    }
    let mut systems = Systems::start(o, watch)?;
    systems.skipped.extend(drivers.skipped.clone());
    if systems.all.is_empty() {
        return Err(nothing_chosen());
    }
    let company = Company::start(&o.program, &o.company_args, Kind::Spin, o.busy)?;
    let mut bench = Bench { o, watch, drivers, systems, serial: 0, all: HashMap::new(), failed: Vec::new() };
    let cells: Vec<Cell> = groups.iter().flat_map(|g| &g.cells).copied().collect();
    let samples: usize = cells.iter().map(|c| bench.systems.all.iter().filter(|s| s.takes(c)).count()).sum();
    bench.watch.plan((samples * o.rounds) as u64, o.time.as_secs_f64() + AROUND);
    let interrupted = match bench.rounds(&groups) {
        Ok(()) => false,
        Err(_) if bench.watch.stop() => true,
        Err(e) => return Err(e),
    };
    company.end()?;
    let mut rows = Vec::new();
    for cell in &cells {
        for (at, system) in bench.systems.all.iter().enumerate() {
            rows.extend(bench.all.remove(&(*cell, at)).map(|samples| samples.row(cell, system)));
        }
    }
    missing.extend(bench.failed.iter().map(|(_, failed)| failed.clone()));
    Ok(EnginesReport::new(Machine::here(), o, &bench.systems, interrupted, missing, rows))
}

/// The two ends of a driver's clock, seen from here.
struct Between<'a> {
    system: &'a System,
    calm: Duration,
    restless: bool,
    begin: Option<Look>,
    cost: Cost,
}

impl Ends for Between<'_> {
    fn ready(&mut self) -> io::Result<()> {
        self.system.rest()?;
        self.restless = !settle::settle(self.calm);
        self.begin = Some(Look::now(self.system.stat.as_deref(), self.system.client.as_ref())?);
        Ok(())
    }

    fn done(&mut self) -> io::Result<()> {
        let end = Look::now(self.system.stat.as_deref(), self.system.client.as_ref())?;
        self.cost = self.begin.as_ref().map(|begin| begin.until(&end)).unwrap_or_default();
        Ok(())
    }
}

/// A sample.
struct Sample {
    answer: Answer,
    cost: Cost,
    restless: bool,
}

impl Bench<'_> {
    /// Every round of every cell. `Interrupted` when `watch` ended it.
    fn rounds(&mut self, groups: &[Group]) -> io::Result<()> {
        for (round, (number, group)) in (0..self.o.rounds).flat_map(|r| groups.iter().enumerate().map(move |g| (r, g)))
        {
            let turn: Vec<usize> =
                (0..self.systems.all.len()).map(|i| (i + round + number) % self.systems.all.len()).collect();
            let mut loaded: HashMap<usize, String> = HashMap::new();
            for &at in turn.iter().filter(|_| group.loads()) {
                if let Some(db) = self.load(group, at, round)? {
                    loaded.insert(at, db);
                }
            }
            for (place, cell) in group.cells.iter().enumerate() {
                for i in 0..turn.len() {
                    let at = turn[(i + place) % turn.len()];
                    self.cell(cell, at, loaded.get(&at).map(String::as_str), round)?;
                }
            }
            for (at, db) in loaded {
                self.systems.all[at].remove(&self.o.program, &db, group.cells[0].engine)?;
            }
        }
        Ok(())
    }

    fn name(&mut self) -> String {
        self.serial += 1;
        format!("db-{}", self.serial)
    }

    /// A database with all keys, for the cells of a group that a system has; none where it has none, or fails.
    fn load(&mut self, group: &Group, at: usize, round: usize) -> io::Result<Option<String>> {
        let system = &self.systems.all[at];
        let needs = |c: &&Cell| !c.workload.fresh() && system.takes(c) && !self.has_failed(c, at);
        let cells: Vec<Cell> = group.cells.iter().filter(needs).copied().collect();
        let Some(cell) = cells.first().copied() else { return Ok(None) };
        let what = format!("{}, {}: loading", self.describe(at), cell.engine.name());
        self.watch.at(&what, false);
        let db = self.name();
        match self.drive(&cell, "load", at, &db, round) {
            Ok(_) => Ok(Some(db)),
            Err(e) if self.watch.stop() => Err(e),
            Err(e) => {
                cells.iter().for_each(|cell| self.fail(cell, at, &format!("loading: {e}")));
                // What it left takes space and is of no use; if it left nothing, there is nothing to remove.
                let _ = self.systems.all[at].remove(&self.o.program, &db, cell.engine);
                Ok(None)
            }
        }
    }

    fn has_failed(&self, cell: &Cell, at: usize) -> bool {
        self.failed.iter().any(|(key, _)| *key == (*cell, at))
    }

    fn describe(&self, at: usize) -> String {
        let system = &self.systems.all[at];
        format!("{} ({})", system.name, system.medium)
    }

    fn fail(&mut self, cell: &Cell, at: usize, error: &str) {
        self.all.remove(&(*cell, at));
        let failed = Failed { system: self.describe(at), cell: cell.describe(), error: error.to_owned() };
        self.failed.push(((*cell, at), failed));
    }

    /// One sample of one cell on one system.
    fn cell(&mut self, cell: &Cell, at: usize, loaded: Option<&str>, round: usize) -> io::Result<()> {
        if !self.systems.all[at].takes(cell) {
            return Ok(());
        }
        let what = format!("round {} of {}: {}: {}", round + 1, self.o.rounds, self.describe(at), cell.describe());
        self.watch.at(&what, true);
        if self.watch.stop() {
            return Err(crate::micro::interrupted());
        }
        let fresh = cell.workload.fresh();
        let db = match loaded {
            _ if self.has_failed(cell, at) => return Ok(()),
            _ if fresh => self.name(),
            Some(db) => db.to_owned(),
            None => return Ok(()),
        };
        match self.drive(cell, cell.workload.name(), at, &db, round) {
            Ok(sample) => self.all.entry((*cell, at)).or_default().add(sample),
            Err(e) if self.watch.stop() => return Err(e),
            Err(e) => self.fail(cell, at, &e.to_string()),
        }
        if fresh {
            // A sample that failed may have left nothing.
            let removed = self.systems.all[at].remove(&self.o.program, &db, cell.engine);
            return if self.has_failed(cell, at) { Ok(()) } else { removed };
        }
        Ok(())
    }

    /// Runs the driver, with a handshake at both ends of its clock.
    fn drive(&mut self, cell: &Cell, workload: &str, at: usize, db: &str, round: usize) -> io::Result<Sample> {
        let driver = self.drivers.of.get(cell.driver()).ok_or_else(|| io::Error::other("no driver"))?;
        let (o, system, load) = (self.o, &self.systems.all[at], workload == "load");
        let mut command = system.command(&o.program, driver, db);
        let keys = o.plan.keys_of(cell.value).to_string();
        let mut with = |name: &str, value: &str| {
            command.args([name, value]);
        };
        with("--workload", workload);
        with("--keys", &keys);
        with("--operations", &keys);
        with("--value-size", &cell.value.to_string());
        with("--threads", &if load { 1 } else { cell.threads }.to_string());
        with("--cache", &o.cache.to_string());
        // The same steps on every system, others in every round.
        with("--seed", &(round + 1).to_string());
        with("--warm", "on");
        with("--progress", "on");
        with("--handshake", "on");
        if !load {
            with("--milliseconds", &o.time.as_millis().to_string());
        }
        if cell.handoff {
            with("--handoff", "on");
        }
        if cell.engine == Engine::Sqlite {
            with("--journal", cell.journal);
        }
        if let (Engine::Sqlite, Some(extension)) = (cell.engine, &self.drivers.extension) {
            command.arg("--extension").arg(extension);
        }
        let calm = if o.quick || load || o.busy > 0 { Duration::ZERO } else { settle::MOST };
        let mut between = Between { system, calm, restless: false, begin: None, cost: Cost::default() };
        let mut answer = driver::run(&mut command, &mut between, self.watch)?;
        // A device in the driver's process answers no other one.
        let inside = answer.device();
        let cost = Cost { device: between.cost.device.or(inside), ..between.cost };
        Ok(Sample { answer, cost, restless: between.restless })
    }
}
