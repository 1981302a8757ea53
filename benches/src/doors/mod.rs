//! `weldfs bench doors`: what calls and programs cost at each of the doors to a device's files, beside directories of
//! this host.
//!
//! Hypothesis: a door costs what its crossings cost. A call through the API is one command; under `weldfs run` it is
//! that and a look at a table; at a mount it is a request of the kernel to another process, and a command there; the
//! host's page cache is one system call. Programs of many small files (tar, git) add up all of these. A worker process
//! at each door makes the calls, the same code at all but the API's; each sample is taken at every door right after the
//! other, and a figure is the median of the rounds.
//!
//! * `worker` the process at a door, `files` its calls; `sets` what tar and git work on; `systems` devices, mounts and
//!   workers; `report` rows, aims, tables.

mod files;
mod report;
mod sets;
mod systems;
pub mod worker;

use crate::busy::company::{Company, Kind};
use crate::chosen::Failed;
use crate::micro::Watch;
use crate::peers::Peer;
use crate::report::{Machine, median};
pub use report::DoorsReport;
use report::{About, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use systems::Systems;
pub use systems::{DOORS, MEDIA};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weldfs` binary: makes images, serves, mounts, runs, and is the workers and the busy processes.
    pub program: PathBuf,
    /// Arguments with which it is a busy process; the kind follows.
    pub company_args: Vec<String>,
    /// Arguments with which it is a worker; door and target follow.
    pub worker_args: Vec<String>,
    /// Doors, as in [`DOORS`]; none named means all.
    pub doors: Vec<String>,
    /// Directories of the host to compare with.
    pub peers: Vec<Peer>,
    /// "pmem" or "block".
    pub medium: String,
    /// Where images lie.
    pub dir: PathBuf,
    /// Whether changes are durable before calls return, as the devices' default; the host's calls do not sync.
    pub durable: bool,
    /// Operations.
    pub ops: Vec<Op>,
    /// Numbers of busy processes.
    pub busy: Vec<u32>,
    /// How long a sample of calls takes.
    pub time: Duration,
    /// Rounds behind each median.
    pub rounds: usize,
    /// Small sets, for a try-out.
    pub quick: bool,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Op {
    /// Attributes by name.
    Getattr,
    /// Opening a file, reading 4 KiB, closing it; through the API one command.
    OpenReadClose,
    /// 4 KiB of an open file.
    Read,
    /// 4 KiB into an open file, over what is there.
    Write,
    /// A new file with 4 KiB; through the API one command.
    Create,
    /// All names of a directory of 10,000.
    Readdir,
    /// A file of 64 MiB, over what is there, 1 MiB a call.
    SequentialWrite,
    /// The same, read.
    SequentialRead,
    /// tar unpacks 5,000 files.
    Tar,
    /// git clones a repository.
    Git,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 10] = [
        Op::Getattr,
        Op::OpenReadClose,
        Op::Read,
        Op::Write,
        Op::Create,
        Op::Readdir,
        Op::SequentialWrite,
        Op::SequentialRead,
        Op::Tar,
        Op::Git,
    ];

    /// Name in JSON, in `--only`, and to a worker.
    pub fn name(self) -> &'static str {
        match self {
            Op::Getattr => "getattr",
            Op::OpenReadClose => "open_read_close",
            Op::Read => "read_4k",
            Op::Write => "write_4k",
            Op::Create => "create_write_close",
            Op::Readdir => "readdir",
            Op::SequentialWrite => "write_1m",
            Op::SequentialRead => "read_1m",
            Op::Tar => "tar_x",
            Op::Git => "git_clone",
        }
    }

    /// The operation of that name.
    pub fn named(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name() == name)
    }

    /// Whether a program of its own does it: there is none that uses the API.
    pub(crate) fn is_program(self) -> bool {
        matches!(self, Op::Tar | Op::Git)
    }

    /// The unit of its figures, and what nanoseconds of one operation are in it.
    pub(crate) fn figure(self, ns: f64) -> (&'static str, f64) {
        match self {
            Op::SequentialWrite | Op::SequentialRead => ("MiB/s", 1e9 / ns),
            Op::Readdir | Op::Tar | Op::Git => ("ms", ns / 1e6),
            _ => ("us", ns / 1e3),
        }
    }
}

/// Runs the experiment; `watch` may end it between samples, and the report holds what was measured until then. A door
/// that cannot be used here, or a program that is missing, is in the report as skipped, and why.
///
/// # Errors
/// Those of starting devices, workers and busy processes. An operation that fails at a door is in the report.
pub fn run(options: &Options, watch: &mut dyn Watch) -> io::Result<DoorsReport> {
    watch.at("making what tar and git work on", false);
    let sets = sets::Sets::make(options.quick, |op| options.ops.contains(&op))?;
    let mut systems = Systems::start(options, &sets, watch)?;
    let skipped: Vec<String> = sets.skipped.iter().chain(&systems.skipped).cloned().collect();
    if systems.all.is_empty() {
        return Err(crate::chosen::nothing_chosen());
    }
    let ops: Vec<Op> = options.ops.iter().copied().filter(|op| sets.has(*op)).collect();
    let cells: usize = ops.iter().map(|op| systems.all.iter().filter(|s| s.takes(*op)).count()).sum();
    watch.plan((cells * options.busy.len() * options.rounds) as u64, options.time.as_secs_f64() + 0.05);
    let mut all: BTreeMap<(Op, usize, u32), Vec<f64>> = BTreeMap::new();
    let (mut failed, mut given_up, mut interrupted) = (Vec::new(), BTreeSet::new(), false);
    'all: for _ in 0..options.rounds {
        for &busy in &options.busy {
            let company = Company::start(&options.program, &options.company_args, Kind::Spin, busy)?;
            for &op in &ops {
                for (number, system) in systems.all.iter_mut().enumerate().filter(|(_, s)| s.takes(op)) {
                    if watch.stop() {
                        interrupted = true;
                        break 'all;
                    }
                    watch.at(&format!("{}, {busy} busy, {}", op.name(), system.name), true);
                    if given_up.contains(&(op, number)) {
                        continue;
                    }
                    match system.sample(op, options.time) {
                        Ok(ns) => all.entry((op, number, busy)).or_default().push(ns),
                        // The device's process may have been told to end, too.
                        Err(_) if watch.stop() => {
                            interrupted = true;
                            break 'all;
                        }
                        Err(error) => {
                            let (system, cell) = (system.name.clone(), op.name().to_owned());
                            failed.push(Failed { system, cell, error: error.to_string() });
                            given_up.insert((op, number));
                        }
                    }
                }
            }
            company.end()?;
        }
    }
    let rows = all.into_iter().map(|((op, number, busy), samples)| {
        let (system, (unit, value)) = (&systems.all[number], op.figure(median(&samples)));
        Row {
            op: op.name(),
            system: system.name.clone(),
            busy,
            unit,
            value,
            rounds: samples.len(),
            medium: system.medium.clone(),
            durability: system.durability,
            power_safe: system.power_safe,
        }
    });
    let names = systems.all.iter().map(|system| system.name.clone()).collect();
    let about = About { load: load_average(), sets: sets.describe(), names };
    Ok(DoorsReport::new(Machine::here(), about, interrupted, rows.collect(), skipped, failed))
}

/// Processes that wanted a processor in the last minute, at the end of a run: what it was disturbed by, and its own.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_found_by_their_names_and_have_their_units() {
        assert!(Op::ALL.into_iter().all(|op| Op::named(op.name()) == Some(op)));
        assert_eq!(Op::named("fsync"), None);
        assert_eq!(Op::Read.figure(1500.0), ("us", 1.5));
        assert_eq!(Op::SequentialRead.figure(1e6), ("MiB/s", 1000.0));
        assert_eq!(Op::Tar.figure(2e9), ("ms", 2000.0));
    }
}
