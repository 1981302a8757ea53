//! `weldfs bench NAME`: the experiments of the benches crate.

mod busy;
mod doors;
mod engines;
mod insider;
mod macros;
mod micro;
pub(super) mod watch;

use crate::failure::{Failure, Outcome, reason};
use crate::output::{self, say};
use clap::builder::PossibleValuesParser;
use std::io;
use std::path::{Path, PathBuf};
use weldfs_benches::busy::company::Kind;
use weldfs_benches::chosen::Failed;
use weldfs_benches::{base, commit, fairness, floor, mount, peers::Peer, recovery, stall};
use weldfs_device::PolicyKind;

/// Arguments of `weldfs bench`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    which: Which,
}

#[derive(clap::Subcommand, Debug)]
enum Which {
    /// The device against the bare ring, and fused operations against the host's steps, in one interleaved run
    Base(Base),
    /// Every operation in every size, fused and step by step, against plain system calls and io_uring on directories of
    /// this host
    Micro(micro::Args),
    /// A mail server, a file server, a web server and a web proxy (after Filebench), against directories of this host
    Macro(macros::Args),
    /// RocksDB, LevelDB and SQLite with the published workloads (db_bench, YCSB, transactions), through the plug-ins,
    /// through `weldfs run`, and on file systems of this host
    Engines(engines::Args),
    /// What a commit costs: both transaction modes, shared flushes, flushes and writes of one durable append
    Commit(Commit),
    /// Latencies of single operations while checkpoints run, below and above the checkpoints' speed
    Stall(Stall),
    /// Latencies while busy processes want the processors: served, embedded, and the host's own calls
    Busy(busy::Args),
    /// Calls, tar and git at every door to a device's files (the API, `weldfs run`, mounts), and on directories of this
    /// host
    Doors(doors::Args),
    /// The seven applications of INSIDER (ATC 2019), on the host and with kernels in the drive: bytes over the link,
    /// modelled speed-ups, three kernels at once
    Insider(insider::Args),
    /// Bytes over the link when a text is searched: by a host that reads it, and by reading a virtual file of it
    /// through grep
    VirtualCat(insider::CatArgs),
    /// A fused append interrupted on each of 64 files: until all are verified and durable, by who recovers them
    Recovery(Recovery),
    /// Mounting after a crash that left the log full, with few and with many files
    Mount(Mount),
    /// Whether tenants get what is theirs: shares, weights, files, memory, latency, each with processes of their own
    Fairness(Fairness),
    /// One arm's process (started by `recovery`)
    #[command(hide = true)]
    RecoveryArm { arm: String, target: PathBuf, sources: PathBuf, files: usize },
    /// A busy process (started by `busy`)
    #[command(hide = true)]
    Company {
        #[arg(value_parser = busy::parse_kind)]
        kind: Kind,
    },
    /// A process at a door (started by `doors`)
    #[command(hide = true)]
    Door(doors::WorkerArgs),
    /// A client process (started by `commit`)
    #[command(hide = true)]
    Worker { socket: PathBuf, file: String, depth: u64, millis: u64 },
    /// A tenant's process (started by `fairness`)
    #[command(hide = true)]
    Tenant { socket: PathBuf, load: String, name: String },
    /// The spinning server of the floor (started by `base`)
    #[command(hide = true)]
    Floor { region: String },
}

#[derive(clap::Args, Debug)]
struct Base {
    /// Rounds behind each median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Compare with a directory of this host, NAME=DIR, instead of an ext4 mounted over RAM (which needs root)
    #[arg(long, value_name = "NAME=DIR", value_parser = parse_peer)]
    peer: Option<Peer>,
    /// Leave out what takes minutes: large directories, many files, ten log lengths, idle time
    #[arg(long)]
    quick: bool,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct Commit {
    /// Rounds behind each median
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Directory on the disk to be measured, for the image and for the host's own files
    #[arg(long, value_name = "DIR", default_value = ".")]
    disk: PathBuf,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct Stall {
    /// Seconds of each row
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Clients of the crowded rows
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    clients: u32,
    /// Log of the image: the smaller, the more checkpoints
    #[arg(long, value_name = "N", default_value = "16M")]
    log: String,
    /// Directory on a disk for an image of the block medium, instead of emulated pmem
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct Recovery {
    /// Rounds behind each median
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Files (64 for figures; fewer to try it out)
    #[arg(long, default_value_t = recovery::FILES as u32, value_parser = clap::value_parser!(u32).range(1..=64))]
    files: u32,
    /// Directory for the images: the medium that is measured
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    place: PathBuf,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct Mount {
    /// Rounds behind each median
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Files in the tree, several times
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1000, 1_000_000])]
    files: Vec<u64>,
    /// Log of the image
    #[arg(long, value_name = "N", default_value = "64M", value_parser = crate::output::parse_bytes)]
    log: u64,
    /// Directory for the image: the medium that is measured
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    place: PathBuf,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct Fairness {
    /// Policies, several times; by default those of each experiment
    #[arg(long, value_delimiter = ',', value_name = "fifo|rr|cfs|eevdf")]
    policy: Vec<PolicyKind>,
    /// Experiments, several times; all by default
    #[arg(long, value_delimiter = ',', value_name = "ID", value_parser = PossibleValuesParser::new(fairness::names()))]
    only: Vec<String>,
    /// Seconds of a round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Rounds of each setup, each on a fresh device
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Cores of the device; 1 by default, 2 with --simulate
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    cores: Option<u32>,
    /// Speed of a core, relative to the host's
    #[arg(long, default_value_t = 0.05, value_parser = parse_speed)]
    speed: f64,
    /// Device time after which a command gives way, microseconds; by default what suits each experiment
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    quantum: Option<u64>,
    /// Predict a-mix and b-weights with the simulator, from what their commands cost, and compare
    #[arg(long)]
    simulate: bool,
    /// One round of a second, in which every interval counts, and no verdicts: to see that it runs
    #[arg(long, conflicts_with_all = ["seconds", "rounds"])]
    quick: bool,
    /// Write plots as SVG into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|e| e.to_string())?;
    if speed > 0.0 && speed <= 1.0 { Ok(speed) } else { Err("a speed is above 0 and at most 1".into()) }
}

fn parse_peer(text: &str) -> Result<Peer, String> {
    let (name, dir) = text.split_once('=').ok_or("expected NAME=DIR")?;
    let dir = PathBuf::from(dir);
    if !dir.is_dir() {
        return Err(format!("{} is not a directory", dir.display()));
    }
    Ok(Peer { name: name.to_owned(), dir, medium: "host directory".to_owned() })
}

/// Exit code of arguments that make no sense together.
const USAGE: u8 = 2;
/// Exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Runs an experiment.
pub fn run(args: &Args) -> Outcome {
    if let Which::Fairness(args) = &args.which
        && let Some(why) = fairness::idle(&args.only, &args.policy)
    {
        return Err(Failure::new(format!("nothing to run: {why}")).code(USAGE));
    }
    let ended = match &args.which {
        Which::Floor { region } => floor::serve(region),
        Which::Base(args) => base(args),
        Which::Micro(args) => micro::run(args),
        Which::Macro(args) => macros::run(args),
        Which::Engines(args) => engines::run(args),
        Which::Commit(args) => commits(args),
        Which::Stall(args) => stalls(args),
        Which::Busy(args) => busy::run(args),
        Which::Doors(args) => doors::run(args),
        Which::Door(args) => doors::work(args),
        Which::Company { kind } => weldfs_benches::busy::company::keep_busy(*kind),
        Which::Insider(args) => insider::run(args),
        Which::VirtualCat(args) => insider::run_cat(args),
        Which::Recovery(args) => recoveries(args),
        Which::Mount(args) => mounts(args),
        Which::Fairness(args) => fair(args),
        Which::Tenant { socket, load, name } => fairness::client::run(socket, load, name),
        Which::RecoveryArm { arm, target, sources, files } => recovery::run_arm(arm, target, sources, *files),
        Which::Worker { socket, file, depth, millis } => commit::worker(socket, file, *depth, *millis),
    };
    ended.map(|()| 0).map_err(|e| match e.kind() {
        io::ErrorKind::Interrupted => Failure::new("the experiment was interrupted").code(INTERRUPTED),
        _ => Failure::new(format!("the experiment failed: {}", reason(&e))),
    })
}

fn fair(args: &Fairness) -> io::Result<()> {
    let options = fairness::Options {
        program: std::env::current_exe()?,
        client_args: vec!["bench".to_owned(), "tenant".to_owned()],
        policies: args.policy.clone(),
        only: args.only.clone(),
        seconds: if args.quick { 1.0 } else { args.seconds.into() },
        rounds: if args.quick { 1 } else { args.rounds },
        cores: args.cores.unwrap_or(if args.simulate { 2 } else { 1 }),
        speed: args.speed,
        quantum_us: args.quantum,
        simulate: args.simulate,
        quick: args.quick,
    };
    let report = fairness::run(&options, &mut |what| say!("bench: {what}"))?;
    show(|out| report.print(out))?;
    if let Some(dir) = &args.svg {
        report.plot(dir)?;
    }
    save(args.json.as_deref(), &report)
}

fn base(args: &Base) -> io::Result<()> {
    let options = base::Options {
        program: std::env::current_exe()?,
        floor_args: vec!["bench".to_owned(), "floor".to_owned()],
        rounds: args.rounds as usize,
        peer: args.peer.clone(),
        quick: args.quick,
    };
    let report = base::run(&options, &mut |what| say!("bench: {what}"))?;
    show(|out| report.print(out))?;
    save(args.json.as_deref(), &report)
}

/// Prints; what was measured is saved even if nothing reads the text.
fn show(print: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> io::Result<()> {
    output::even_unread(output::facts(print)).map_err(|failure| io::Error::other(failure.to_string()))
}

fn save(path: Option<&Path>, report: &impl serde::Serialize) -> io::Result<()> {
    path.map_or(Ok(()), |path| std::fs::write(path, serde_json::to_vec_pretty(report)?))
}

/// How a run of cells ended, after its report was written.
fn ended(interrupted: bool, failed: &[Failed]) -> io::Result<()> {
    if interrupted {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
    }
    match failed {
        [] => Ok(()),
        [one] => Err(io::Error::other(format!("a cell failed: {}: {}: {}", one.system, one.cell, one.error))),
        [one, ..] => Err(io::Error::other(format!(
            "{} cells failed, the first one was {}: {}: {}",
            failed.len(),
            one.system,
            one.cell,
            one.error
        ))),
    }
}

fn commits(args: &Commit) -> io::Result<()> {
    let options = commit::Options {
        program: std::env::current_exe()?,
        worker_args: vec!["bench".to_owned(), "worker".to_owned()],
        rounds: args.rounds as usize,
        disk: args.disk.clone(),
    };
    let report = commit::run(&options, &mut |what| say!("bench: {what}"))?;
    show(|out| report.print(out))?;
    save(args.json.as_deref(), &report)
}

fn stalls(args: &Stall) -> io::Result<()> {
    let options = stall::Options {
        program: std::env::current_exe()?,
        seconds: args.seconds,
        clients: args.clients as usize,
        medium: if args.disk.is_some() { "block" } else { "pmem" },
        place: args.disk.clone().unwrap_or_else(|| PathBuf::from("/dev/shm")),
        log: args.log.clone(),
    };
    let report = stall::run(&options, &mut |what| say!("bench: {what}"))?;
    show(|out| report.print(out))?;
    save(args.json.as_deref(), &report)
}

fn recoveries(args: &Recovery) -> io::Result<()> {
    let options = recovery::Options {
        program: std::env::current_exe()?,
        arm_args: vec!["bench".to_owned(), "recovery-arm".to_owned()],
        place: args.place.clone(),
        rounds: args.rounds as usize,
        files: args.files as usize,
    };
    let report = recovery::run(&options, &mut |what| say!("bench: {what}"))?;
    show(|out| report.print(out))?;
    save(args.json.as_deref(), &report)
}

fn mounts(args: &Mount) -> io::Result<()> {
    let options = mount::Options {
        place: args.place.clone(),
        files: args.files.clone(),
        log: args.log,
        rounds: args.rounds as usize,
    };
    let report = mount::run(&options, &mut |what| say!("bench: {what}"))?;
    show(|out| report.print(out))?;
    save(args.json.as_deref(), &report)
}
