//! `weldfs bench recovery`: what a crash within fused appends costs until every file is verified and durable.
//!
//! 64 files of 16 records of 1 MiB (data, then its CRC32C); on each of them the last record was being appended when the
//! device died, at a named point. Each arm is a fresh process that starts with the image as the crash left it; its time
//! ends when all 64 last records are whole, verified and durable. Arms:
//!
//! * *micro*: the append ran as a MicroTx. The mount finishes what it finds; the application looks at each file's last
//!   record (the device verifies it against its checksum) and appends it anew only where it is missing.
//! * *redo*: it ran as a MacroTx, so that nothing of it is there. The application looks, and submits the append again
//!   with its data, which it reads from where it keeps it.
//! * *app*: the application wrote data and checksum itself, by plain writes over WeldFS. It reads all of every file,
//!   recomputes every record's CRC32C, and writes what is missing; all processors, 1 MiB at a time.
//! * *host*: the same over plain files in the same place, without WeldFS.
//! * *tail*: as *app*, for an application that knows where its last record begins and reads only that.

mod arm;
mod image;

use crate::report::{Machine, Ratio, median};
use serde::Serialize;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

pub use arm::{Arm, run_arm};

/// Files.
pub const FILES: usize = 64;
/// Records of each, the interrupted one included.
pub const RECORDS: u64 = 16;
/// Bytes of a record, its checksum included.
pub const RECORD: u64 = 1 << 20;
/// Bytes of a record's data.
pub const DATA: usize = (1 << 20) - 4;

/// Where the append was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// Before anything of it was in the log.
    BeforeBegin,
    /// Its begin record was, and the data it names.
    AfterBegin,
    /// The micro-commit of the data was.
    AfterData,
    /// That of the trailer was; only the end record is missing.
    AfterTrailer,
}

/// All of them.
pub(crate) const POINTS: [Point; 4] = [Point::BeforeBegin, Point::AfterBegin, Point::AfterData, Point::AfterTrailer];

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `weldfs` binary.
    pub program: PathBuf,
    /// Arguments that turn it into an arm's process (arm, image or folder, and sources are added).
    pub arm_args: Vec<String>,
    /// Where images go: the medium that is measured.
    pub place: PathBuf,
    /// Rounds behind each median.
    pub rounds: usize,
    /// Files; fewer only in tests.
    pub files: usize,
}

/// One arm at one crash point.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The crash point.
    pub point: Point,
    /// The arm.
    pub arm: Arm,
    /// From process start to all files verified and durable; median, milliseconds.
    pub total_ms: f64,
    /// Of it, until the file system was mounted and recovered.
    pub mount_ms: f64,
    /// Of that, replay of the log.
    pub replay_ms: f64,
    /// Of that, finishing open transactions.
    pub finish_ms: f64,
    /// Of the total, what the application did afterwards.
    pub app_ms: f64,
    /// Transactions that the mount finished.
    pub finished: u64,
    /// Files to which the application wrote.
    pub written: u64,
    /// Least and most of the total over the rounds.
    pub range_ms: (f64, f64),
}

/// A finished experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Which machine.
    pub machine: Machine,
    /// Where the images were.
    pub medium: String,
    /// Files and rounds.
    pub files: usize,
    /// Rounds behind each median.
    pub rounds: usize,
    /// The figures.
    pub rows: Vec<Row>,
    /// The comparisons.
    pub ratios: Vec<Ratio>,
}

/// Runs the experiment, the arms interleaved round by round; `note` is told what is being measured.
///
/// # Errors
/// Those of the operating system; an arm that did not find what it must.
pub fn run(options: &Options, note: &mut dyn FnMut(&str)) -> io::Result<Report> {
    let folder = tempfile::Builder::new().prefix("weldfs-recovery-").tempdir_in(&options.place)?;
    note("making the files");
    let images = image::Images::make(folder.path(), options.files)?;
    let mut samples: Vec<(Point, Arm, Vec<arm::Done>)> = Vec::new();
    for round in 0..options.rounds {
        for point in POINTS {
            note(&format!("round {} of {}: {point:?}", round + 1, options.rounds));
            for arm in Arm::ALL {
                let target = images.lay(point, arm)?;
                let done = measure(options, arm, &target, images.sources())?;
                match samples.iter_mut().find(|s| (s.0, s.1) == (point, arm)) {
                    Some((_, _, all)) => all.push(done),
                    None => samples.push((point, arm, vec![done])),
                }
            }
        }
    }
    let rows: Vec<Row> = samples.iter().map(|(point, arm, all)| row(*point, *arm, all)).collect();
    let ratios = ratios(&rows);
    let medium = format!("pmem image file in {}", options.place.display());
    Ok(Report { machine: Machine::here(), medium, files: options.files, rounds: options.rounds, rows, ratios })
}

/// Starts the arm's process and waits until it says that it is done; what it does then is not counted.
fn measure(options: &Options, arm: Arm, target: &Path, sources: &Path) -> io::Result<arm::Done> {
    let mut command = Command::new(&options.program);
    command.args(&options.arm_args).arg(arm.name()).arg(target).arg(sources).arg(options.files.to_string());
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
    BufReader::new(out).read_line(&mut line)?;
    let total = start.elapsed();
    let ended = child.wait()?;
    let mut done: arm::Done = serde_json::from_str(&line)
        .map_err(|e| io::Error::other(format!("the process of arm {} ({ended}) said {line:?}: {e}", arm.name())))?;
    done.total_ms = total.as_secs_f64() * 1000.0;
    Ok(done)
}

fn row(point: Point, arm: Arm, all: &[arm::Done]) -> Row {
    let of = |f: fn(&arm::Done) -> f64| median(&all.iter().map(f).collect::<Vec<_>>());
    let totals = all.iter().map(|d| d.total_ms);
    Row {
        point,
        arm,
        total_ms: of(|d| d.total_ms),
        mount_ms: of(|d| d.mount_ms),
        replay_ms: of(|d| d.replay_ms),
        finish_ms: of(|d| d.finish_ms),
        app_ms: of(|d| d.app_ms),
        finished: all.last().map_or(0, |d| d.finished),
        written: all.last().map_or(0, |d| d.written),
        range_ms: (totals.clone().fold(f64::INFINITY, f64::min), totals.fold(0.0, f64::max)),
    }
}

fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let f = |point, arm| rows.iter().find(|r| r.point == point && r.arm == arm).map_or(f64::NAN, |r| r.total_ms);
    let mut all = Vec::new();
    for point in POINTS {
        for other in [Arm::App, Arm::Host, Arm::Tail, Arm::Redo] {
            let what = format!("{point:?}: {} over micro", other.name());
            // The promise is made for a crash after the data's commit, against the application that reads everything.
            let bound = if point == Point::AfterData && other == Arm::App { 2.65 } else { 0.0 };
            all.push(Ratio::at_least(&what, f(point, other), f(point, Arm::Micro), bound));
        }
    }
    all
}

impl Report {
    /// Prints both tables for people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{} ({} cores), {} build", self.machine.cpu, self.machine.cores, self.machine.build)?;
        writeln!(out, "{}: {} files of 16 MiB, medians of {} rounds\n", self.medium, self.files, self.rounds)?;
        writeln!(
            out,
            "{:<13} {:<6} {:>9} {:>17} {:>9} {:>9} {:>9} {:>9} {:>8} {:>7}",
            "crash", "arm", "total ms", "least..most", "mount", "replay", "finish", "app", "finished", "written"
        )?;
        for r in &self.rows {
            let range = format!("{:.0}..{:.0}", r.range_ms.0, r.range_ms.1);
            let point = format!("{:?}", r.point);
            writeln!(
                out,
                "{point:<13} {:<6} {:>9.1} {range:>17} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>8} {:>7}",
                r.arm.name(),
                r.total_ms,
                r.mount_ms,
                r.replay_ms,
                r.finish_ms,
                r.app_ms,
                r.finished,
                r.written
            )?;
        }
        writeln!(out, "\n{:<44} {:>9} {:>9}", "ratio (medians of interleaved rounds)", "measured", "aim")?;
        for r in &self.ratios {
            let aim = if r.bound > 0.0 { format!("{:.2}x", r.bound) } else { "-".to_owned() };
            writeln!(out, "{:<44} {:>8.2}x {aim:>9}", r.what, r.measured)?;
        }
        Ok(())
    }
}
