//! `weldfs bench macro`.

use super::micro::peers;
use super::watch::Watcher;
use super::{ended, parse_peer, save};
use crate::output;
use clap::builder::PossibleValuesParser;
use std::io;
use std::path::PathBuf;
use weldfs_benches::chosen::{self, Chosen};
use weldfs_benches::macro_bench::personality::Personality;
use weldfs_benches::macro_bench::{self, Options};
use weldfs_benches::peers::Peer;

/// Arguments of `weldfs bench macro`.
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
          value_parser = PossibleValuesParser::new(chosen::MACRO))]
    systems: Vec<String>,
    /// Of the file systems that --prepare mounts only these, several times
    #[arg(long, value_delimiter = ',', value_name = "FS", requires = "prepare",
          value_parser = PossibleValuesParser::new(chosen::PREPARED))]
    peers: Vec<String>,
    /// Only these servers, several times
    #[arg(long, value_delimiter = ',', value_name = "SERVER",
          value_parser = PossibleValuesParser::new(Personality::ALL.map(Personality::name)))]
    only: Vec<String>,
    /// Threads, several times
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,2,4,8,16",
          value_parser = clap::value_parser!(u32).range(1..=32))]
    threads: Vec<u32>,
    /// Seconds of a cell: one server, one number of threads, one system
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Repeats behind each median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    repeats: u32,
    /// Bytes of the files that exist at the start (16M to 1G): a smaller set is sooner made before each cell, and says
    /// less
    #[arg(long, value_name = "N", default_value = "1G", value_parser = parse_set)]
    set: u64,
    /// Where the random numbers start; the same seed gives the same steps
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A few hundred files and a moment per cell, one repeat: shows that everything works, and no figures
    #[arg(long, conflicts_with_all = ["seconds", "repeats", "set"])]
    quick: bool,
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

fn parse_set(text: &str) -> Result<u64, String> {
    match output::parse_bytes(text)? {
        bytes if (16 << 20..=macro_bench::SET).contains(&bytes) => Ok(bytes),
        _ => Err("a set has 16M to 1G".into()),
    }
}

/// Seconds of a quick cell.
const QUICK_SECONDS: f64 = 0.15;

pub(super) fn run(args: &Args) -> io::Result<()> {
    let wanted = |p: &Personality| args.only.is_empty() || args.only.iter().any(|name| name == p.name());
    let options = Options {
        program: std::env::current_exe()?,
        personalities: Personality::ALL.into_iter().filter(wanted).collect(),
        threads: args.threads.clone(),
        peers: peers(&args.peer, args.prepare),
        prepare: args.prepare,
        chosen: Chosen { systems: args.systems.clone(), prepared: args.peers.clone() },
        seconds: if args.quick { QUICK_SECONDS } else { f64::from(args.seconds) },
        repeats: if args.quick { 1 } else { args.repeats as usize },
        set: args.set,
        seed: args.seed,
        quick: args.quick,
    };
    let mut watcher = Watcher::new("bench")?;
    let report = macro_bench::run(&options, &mut watcher)?;
    drop(watcher);
    let text = report.text(args.markdown);
    super::show(|out| out.write_all(text.as_bytes()))?;
    if let Some(dir) = &args.svg {
        report.plot(dir)?;
    }
    save(args.json.as_deref(), &report)?;
    ended(report.interrupted, &report.failed)
}
