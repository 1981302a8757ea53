//! `weldfs crash`: every state that a power cut may leave of short workloads, through real recoveries and the oracle.

use crate::failure::{Doing, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use weldfs_crash_harness::states::generate::ModeChoice;
use weldfs_crash_harness::states::report::Report;
use weldfs_crash_harness::states::run::{Config, JOBS_MAX, Nothing, Progress, Set, run as run_states};
use weldfs_media::CrashModel;

/// Exit code when a state was bad.
const BAD: u8 = 1;
/// Exit code when a signal ended the run before a state was bad.
const INTERRUPTED: u8 = 130;

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    /// Every workload of one operation
    OneOp,
    /// Workloads of two operations, all or as many as --limit says
    TwoOp,
    /// Samples of three operations
    ThreeOp,
    /// Long ones with checkpoints and unmounts, until --states or --limit
    Random,
    /// One operation, then a checkpoint or an unmount
    Checkpoint,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// Sectors of 512 bytes, flushes
    Block,
    /// Words of 8 bytes, write-backs and fences
    Pmem,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Fused operations all or nothing
    Macro,
    /// Fused operations step by step, finished by recovery
    Micro,
    /// Both
    All,
}

/// Arguments of `weldfs crash`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What runs before the power is cut
    #[arg(long, value_enum, default_value = "one-op")]
    workload: Workload,
    /// What a cut can do to what was not flushed
    #[arg(long, value_enum, default_value = "block")]
    medium: Medium,
    /// Transaction modes of fused operations
    #[arg(long, value_enum, default_value = "all")]
    mode: Mode,
    /// Stop after so many different states
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    states: Option<u64>,
    /// What samples and torn stores are drawn by
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Run only so many workloads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Power cuts in a row: 1 is none during a recovery
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    depth: u32,
    /// Threads, up to 256 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=JOBS_MAX as i64))]
    jobs: Option<u16>,
    /// Run this one workload instead, or one state of it: what a failure names
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["workload", "limit"])]
    trace: Option<String>,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs them.
pub fn run(args: &Args) -> Outcome {
    let config = config(args)?;
    let json = args.json.as_deref().map(Json::open).transpose()?;
    let interrupt = Interrupt::catch()?;
    let bar = bar(args);
    let report = run_states(&config, interrupt.flag(), &|p| show(&bar, p));
    bar.finish_and_clear();
    let report = match report {
        Ok(report) => report,
        Err(e) => {
            if let Some(json) = json {
                json.forget();
            }
            return Err(match e {
                Nothing::NoSuchState(why) => Failure::usage(format!("--trace: {why}")),
                Nothing::Setup(_) => Failure::new(e.to_string()),
            });
        }
    };
    if let Some(json) = json {
        json.write(&report)?;
    }
    output::even_unread(output::facts(|out| print(out, &report)))?;
    Ok(match &report {
        r if r.bad > 0 => BAD,
        r if r.interrupted => INTERRUPTED,
        _ => 0,
    })
}

/// Where the report goes, opened before the run: a path that cannot be written must not cost the results.
struct Json<'a> {
    file: File,
    path: &'a Path,
    /// Whether the file was not there before.
    new: bool,
}

impl Json<'_> {
    fn open(path: &Path) -> Result<Json<'_>, Failure> {
        let (file, new) = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => (file, true),
            // What is there stays until there is something to put in its place.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                (OpenOptions::new().write(true).open(path).doing("write", path)?, false)
            }
            Err(e) => return Err(e).doing("write", path),
        };
        Ok(Json { file, path, new })
    }

    fn write(mut self, report: &Report) -> Result<(), Failure> {
        let bytes = serde_json::to_vec_pretty(report).doing("encode", self.path)?;
        if self.file.metadata().is_ok_and(|m| m.is_file()) {
            self.file.set_len(0).doing("write", self.path)?;
        }
        self.file.write_all(&bytes).doing("write", self.path)
    }

    /// There is no report: an empty file would look like one.
    fn forget(self) {
        if self.new {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

fn config(args: &Args) -> Result<Config, Failure> {
    let set = match (&args.trace, args.workload) {
        (Some(line), _) => Set::of_trace(line).map_err(|e| Failure::usage(format!("--trace: {e}")))?,
        (None, Workload::OneOp) => Set::OneOp,
        (None, Workload::TwoOp) => Set::TwoOp,
        (None, Workload::ThreeOp) => Set::ThreeOp,
        (None, Workload::Random) => Set::Random,
        (None, Workload::Checkpoint) => Set::Checkpoint,
    };
    if set == Set::Random && args.states.is_none() && args.limit.is_none() {
        return Err(Failure::usage("--workload random has no end: say --states or --limit"));
    }
    Ok(Config {
        set,
        model: match args.medium {
            Medium::Block => CrashModel::Block,
            Medium::Pmem => CrashModel::Pmem,
        },
        modes: match args.mode {
            Mode::Macro => ModeChoice::Macro,
            Mode::Micro => ModeChoice::Micro,
            Mode::All => ModeChoice::Both,
        },
        states: args.states,
        limit: args.limit,
        seed: args.seed,
        depth: args.depth,
        jobs: args.jobs.map(usize::from).unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
    })
}

fn bar(args: &Args) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = match args.limit.or(args.states) {
        Some(n) => ProgressBar::new(n),
        None => ProgressBar::new_spinner(),
    };
    match ProgressStyle::with_template("{wide_bar} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn show(bar: &ProgressBar, p: Progress) {
    let done = match p.of {
        Some(of) => {
            bar.set_length(of);
            p.workloads
        }
        None => p.unique,
    };
    bar.set_position(done);
    bar.set_message(format!("{} workloads, {} states, {} different, {} bad", p.workloads, p.states, p.unique, p.bad));
}

fn print(out: &mut dyn Write, r: &Report) -> std::io::Result<()> {
    if r.interrupted {
        writeln!(out, "stopped; until then:")?;
    }
    writeln!(
        out,
        "{} on {}, mode {}, seed {}, depth {}: {} workloads, {} states, {} different, {} bad, \
         {} moments with a choice of subsets",
        r.workload, r.medium, r.mode, r.seed, r.depth, r.workloads, r.states, r.unique_states, r.bad, r.capped
    )?;
    writeln!(
        out,
        "{} different states of crashed recoveries; {} of all were mounted read-only, too, \
         {} showed the middle of a transaction",
        r.recovery_states, r.read_only, r.middles
    )?;
    writeln!(out, "{:.1} s, {:.0} us of processor time per different state", r.seconds, r.us_per_state)?;
    for f in &r.failures {
        let detail = f.detail.replace('\n', "\n  ");
        writeln!(out, "BAD, {}: {}\n  {detail}\n  {}", f.rule_and_title(), f.trace, r.command(f))?;
    }
    Ok(())
}
