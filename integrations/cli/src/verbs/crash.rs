//! `weldfs crash`: every state that a power cut may leave of short workloads, through real recoveries and the oracle.

use crate::failure::{Doing, Failure, Outcome};
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weldfs_crash_harness::states::generate::ModeChoice;
use weldfs_crash_harness::states::report::{Failure as Bad, Report};
use weldfs_crash_harness::states::run::{Config, Progress, Set, run as run_states};
use weldfs_kernel_shim::Signals;
use weldfs_storagefs::media::CrashModel;

/// Exit code when a state was bad.
const BAD: u8 = 1;

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
    #[arg(long, value_name = "N")]
    states: Option<u64>,
    /// What samples and torn stores are drawn by
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Run only so many workloads
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Power cuts in a row: 1 is none during a recovery
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    depth: u32,
    /// Threads [default: one per processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
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
    let signals = Signals::install().doing("catch", "signals")?;
    let stop = AtomicBool::new(false);
    let bar = bar(args);
    let report = run_states(&config, &stop, &|p| {
        let mut count = [0; 8];
        if rustix::io::read(signals.bell(), &mut count).is_ok() {
            stop.store(true, Relaxed);
        }
        show(&bar, p);
    });
    bar.finish_and_clear();
    let report = report.map_err(|e| Failure::new(format!("the experiment failed: {e}")))?;
    if let Some(path) = &args.json {
        let bytes = serde_json::to_vec_pretty(&report).doing("encode", path)?;
        std::fs::write(path, bytes).doing("write", path)?;
    }
    output::facts(|out| print(out, &report, stop.load(Relaxed)))?;
    Ok(if report.bad > 0 { BAD } else { 0 })
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
        jobs: args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
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

fn print(out: &mut dyn Write, r: &Report, stopped: bool) -> std::io::Result<()> {
    let command = |f: &Bad| {
        let Report { medium, mode, seed, .. } = r;
        format!("weldfs crash --medium {medium} --mode {mode} --seed {seed} --trace '{}'", f.trace)
    };
    if stopped {
        writeln!(out, "stopped; until then:")?;
    }
    writeln!(
        out,
        "{} on {}, mode {}, seed {}: {} workloads, {} states, {} different, {} bad, \
         {} moments with a choice of subsets",
        r.workload, r.medium, r.mode, r.seed, r.workloads, r.states, r.unique_states, r.bad, r.capped
    )?;
    writeln!(out, "{:.1} s, {:.0} us of processor time per different state", r.seconds, r.us_per_state)?;
    for f in &r.failures {
        writeln!(out, "BAD, rule {}: {}\n  {}\n  {}", f.rule, f.trace, f.detail.replace('\n', "\n  "), command(f))?;
    }
    Ok(())
}
