//! `weldfs bench micro`.

use super::watch::Watcher;
use super::{ended, parse_peer, save};
use crate::output;
use clap::builder::PossibleValuesParser;
use std::io;
use std::path::{Path, PathBuf};
use weldfs_benches::chosen::{self, Chosen};
use weldfs_benches::micro::cell::{Class, Matrix, MicroOp, Phase};
use weldfs_benches::micro::{self, Options};
use weldfs_benches::peers::Peer;

/// Arguments of `weldfs bench micro`.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Compare with a directory of this host, several times; without one and without --prepare: the tmpfs at /dev/shm
    #[arg(long, value_name = "NAME=DIR", value_parser = parse_peer)]
    peer: Vec<Peer>,
    /// Mount an ext4, an xfs and a tmpfs over RAM and compare with them (as root; no others see these mounts, and
    /// they go with this process)
    #[arg(long)]
    prepare: bool,
    /// Only these systems, several times
    #[arg(long, value_delimiter = ',', value_name = "SYSTEM",
          value_parser = PossibleValuesParser::new(chosen::MICRO))]
    systems: Vec<String>,
    /// Of the file systems that --prepare mounts only these, several times
    #[arg(long, value_delimiter = ',', value_name = "FS", requires = "prepare",
          value_parser = PossibleValuesParser::new(chosen::PREPARED))]
    peers: Vec<String>,
    /// Only these operations, several times
    #[arg(long, value_delimiter = ',', value_name = "OP", value_parser = PossibleValuesParser::new(names()))]
    only: Vec<String>,
    /// Bytes of payload, record or file, several times (256 to 64K)
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "256,1K,4K,16K,64K",
          value_parser = parse_size)]
    sizes: Vec<u32>,
    /// The same for the steady phase
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "4K", value_parser = parse_size)]
    steady_sizes: Vec<u32>,
    /// Operations in flight per thread, several times
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,32",
          value_parser = clap::value_parser!(u32).range(1..=32))]
    depths: Vec<u32>,
    /// Client threads, several times
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,2",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    threads: Vec<u32>,
    /// burst (no checkpoint meanwhile) or steady (over ten lengths of a small log); both by default
    #[arg(long, value_delimiter = ',', value_name = "PHASE",
          value_parser = PossibleValuesParser::new(["burst", "steady"]))]
    phases: Vec<String>,
    /// Durability classes; both by default
    #[arg(long, value_delimiter = ',', value_name = "CLASS",
          value_parser = PossibleValuesParser::new(["volatile", "durable"]))]
    classes: Vec<String>,
    /// Rounds behind each median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Milliseconds of a burst of the slowest system; the others do as many operations as it can do meanwhile
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    millis: u64,
    /// A few operations of each kind in one size and one round, on small images: shows in seconds that everything
    /// works, and no figures
    #[arg(long, conflicts_with_all = ["sizes", "steady_sizes", "threads", "rounds", "millis"])]
    quick: bool,
    /// Only the table of copies, system calls and crossings per sequence
    #[arg(long, conflicts_with_all = ["only", "sizes", "steady_sizes", "depths", "threads", "phases"])]
    sequences: bool,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write plots as SVG into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn names() -> [&'static str; MicroOp::ALL.len()] {
    MicroOp::ALL.map(MicroOp::name)
}

fn parse_size(text: &str) -> Result<u32, String> {
    match output::parse_bytes(text)? {
        bytes @ 256..=65_536 if bytes.is_power_of_two() => Ok(bytes as u32),
        _ => Err("sizes are powers of two from 256 to 64K".into()),
    }
}

fn chosen<T: Copy>(given: &[String], all: &[(&str, T)]) -> Vec<T> {
    let wanted = |name: &str| given.is_empty() || given.iter().any(|g| g == name);
    all.iter().filter(|(name, _)| wanted(name)).map(|(_, value)| *value).collect()
}

fn matrix(args: &Args) -> Matrix {
    let all: Vec<(&str, MicroOp)> = MicroOp::ALL.into_iter().map(|op| (op.name(), op)).collect();
    let mut matrix = Matrix {
        ops: chosen(&args.only, &all),
        sizes: args.sizes.clone(),
        steady_sizes: args.steady_sizes.clone(),
        depths: args.depths.clone(),
        threads: args.threads.clone(),
        phases: chosen(&args.phases, &[("burst", Phase::Burst), ("steady", Phase::Steady)]),
        classes: chosen(&args.classes, &[("volatile", Class::Volatile), ("durable", Class::Durable)]),
    };
    if args.quick {
        matrix.sizes = vec![4096];
        matrix.steady_sizes = vec![4096];
        matrix.threads = vec![1];
    }
    if args.sequences {
        matrix.ops = vec![MicroOp::ReadModifyWrite, MicroOp::AppendChecksumWrite, MicroOp::OpenWriteClose];
        (matrix.sizes, matrix.depths, matrix.threads) = (vec![4096], vec![1], vec![1]);
        matrix.phases = vec![Phase::Burst];
    }
    matrix
}

/// Peers as asked for; by default the memory that every Linux has mounted.
pub(super) fn peers(given: &[Peer], prepare: bool) -> Vec<Peer> {
    let shm = Path::new("/dev/shm");
    if given.is_empty() && !prepare && shm.is_dir() {
        return vec![Peer { name: "tmpfs".into(), dir: shm.to_owned(), medium: "tmpfs".into() }];
    }
    given.to_vec()
}

pub(super) fn run(args: &Args) -> io::Result<()> {
    let options = Options {
        program: std::env::current_exe()?,
        matrix: matrix(args),
        peers: peers(&args.peer, args.prepare),
        prepare: args.prepare,
        chosen: Chosen { systems: args.systems.clone(), prepared: args.peers.clone() },
        rounds: if args.quick { 1 } else { args.rounds as usize },
        millis: args.millis,
        quick: args.quick,
        image: if args.quick { "256M" } else { "2G" }.to_owned(),
    };
    let mut watcher = Watcher::new("bench")?;
    let report = micro::run(&options, &mut watcher)?;
    drop(watcher);
    let text = if args.sequences { report.sequences_text(args.markdown) } else { report.text(args.markdown) };
    super::show(|out| out.write_all(text.as_bytes()))?;
    if let Some(dir) = &args.svg {
        report.plot(dir)?;
    }
    save(args.json.as_deref(), &report)?;
    ended(report.interrupted, &report.failed)
}
