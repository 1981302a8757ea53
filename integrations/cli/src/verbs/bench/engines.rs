//! `weldfs bench engines`.

use super::watch::Watcher;
use super::{ended, parse_peer, save, show};
use crate::output;
use clap::builder::PossibleValuesParser;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use weldfs_benches::chosen::{self, Chosen};
use weldfs_benches::engines::plan::{Engine, JOURNALS, Plan, Workload};
use weldfs_benches::engines::{self, MEDIA, Options, SYSTEMS};
use weldfs_benches::peers::Peer;

/// Arguments of `weldfs bench engines`.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Only these engines, several times
    #[arg(long, value_delimiter = ',', value_name = "ENGINE",
          value_parser = PossibleValuesParser::new(Engine::ALL.map(Engine::name)))]
    engines: Vec<String>,
    /// Only these workloads, several times
    #[arg(long, value_delimiter = ',', value_name = "WORKLOAD",
          value_parser = PossibleValuesParser::new(Workload::ALL.map(Workload::name)))]
    workloads: Vec<String>,
    /// Only these journals of SQLite, several times
    #[arg(long, value_delimiter = ',', value_name = "JOURNAL", value_parser = PossibleValuesParser::new(JOURNALS))]
    journals: Vec<String>,
    /// Only these systems, several times: the plug-in with the image in the engine's process (inline), the plug-in and
    /// a device process (served), the unmodified engine under `weldfs run` (preload), and directories of this host
    /// (host)
    #[arg(long, value_delimiter = ',', value_name = "SYSTEM", value_parser = PossibleValuesParser::new(SYSTEMS))]
    systems: Vec<String>,
    /// What images stand for, several times; both by default, block where there is a directory on a disk for it
    #[arg(long, value_delimiter = ',', value_name = "MEDIUM", value_parser = PossibleValuesParser::new(MEDIA))]
    medium: Vec<String>,
    /// Compare with a directory of this host, several times: one on a disk is the equal of block images
    #[arg(long, value_name = "NAME=DIR", value_parser = parse_peer)]
    peer: Vec<Peer>,
    /// Mount an ext4, an xfs and a tmpfs over RAM and compare with them (as root; no others see these mounts, and
    /// they go with this process)
    #[arg(long)]
    prepare: bool,
    /// Of the file systems that --prepare mounts only these, several times
    #[arg(long, value_delimiter = ',', value_name = "FS", requires = "prepare",
          value_parser = PossibleValuesParser::new(chosen::PREPARED))]
    peers: Vec<String>,
    /// Directory for block images; by default that of the first --peer on a disk
    #[arg(long, value_name = "DIR", value_parser = parse_dir)]
    dir: Option<PathBuf>,
    /// Where the drivers are; by default beside this program, where they are installed or built
    #[arg(long, value_name = "DIR", value_parser = parse_dir)]
    drivers: Option<PathBuf>,
    /// Bytes of a value, several times (32 to 64K). Records of YCSB have 1000, rows of SQLite 100
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "100,1K,4K", value_parser = parse_value)]
    values: Vec<u64>,
    /// Keys of a set with values of 100 bytes; sets of other values have about as many bytes. A sample does as many
    /// operations, if its time lasts
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    keys: u64,
    /// Threads, several times; fillseq and SQLite have one
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,4",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// Rounds behind each median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Seconds after which a sample ends, done or not
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Bytes of an engine's own cache of blocks or pages; a set must be larger
    #[arg(long, value_name = "N", default_value = "8M", value_parser = parse_cache)]
    cache: u64,
    /// Busy processes beside it, which compute and call nothing
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64))]
    busy: u32,
    /// Small sets, a moment per sample, one round of one size and one number of threads: shows that everything works,
    /// and no figures
    #[arg(long, conflicts_with_all = ["values", "keys", "threads", "rounds", "seconds", "cache"])]
    quick: bool,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write plots as SVG into this directory: what was measured over ext4 on the same medium
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Sizes of a quick run.
const QUICK_KEYS: u64 = 20_000;
const QUICK_CACHE: u64 = 1 << 20;
const QUICK_TIME: Duration = Duration::from_millis(150);

fn parse_dir(text: &str) -> Result<PathBuf, String> {
    let dir = PathBuf::from(text);
    if dir.is_dir() { Ok(dir) } else { Err(format!("{text} is not a directory")) }
}

fn parse_value(text: &str) -> Result<u64, String> {
    match output::parse_bytes(text)? {
        bytes @ 32..=65_536 => Ok(bytes),
        _ => Err("values have 32 bytes to 64K".into()),
    }
}

fn parse_cache(text: &str) -> Result<u64, String> {
    match output::parse_bytes(text)? {
        bytes if bytes >= 1 << 16 => Ok(bytes),
        _ => Err("a cache has at least 64K".into()),
    }
}

fn options(args: &Args) -> io::Result<Options> {
    let wanted = |given: &[String], name: &str| given.is_empty() || given.iter().any(|g| g == name);
    let plan = Plan {
        engines: Engine::ALL.into_iter().filter(|e| wanted(&args.engines, e.name())).collect(),
        workloads: Workload::ALL.into_iter().filter(|w| wanted(&args.workloads, w.name())).collect(),
        journals: JOURNALS.into_iter().filter(|j| wanted(&args.journals, j)).collect(),
        values: if args.quick { vec![100] } else { args.values.clone() },
        threads: if args.quick { vec![2] } else { args.threads.clone() },
        keys: if args.quick { QUICK_KEYS } else { args.keys },
    };
    let cache = if args.quick { QUICK_CACHE } else { args.cache };
    if plan.bytes() < 2 * cache {
        let why = format!("a set of {} bytes is not twice as large as the cache of {cache}", plan.bytes());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why + ": say more --keys, or a smaller --cache"));
    }
    Ok(Options {
        program: std::env::current_exe()?,
        drivers: args.drivers.clone(),
        plan,
        media: MEDIA.into_iter().filter(|m| wanted(&args.medium, m)).map(str::to_owned).collect(),
        dir: args.dir.clone(),
        peers: args.peer.clone(),
        prepare: args.prepare,
        chosen: Chosen { systems: args.systems.clone(), prepared: args.peers.clone() },
        rounds: if args.quick { 1 } else { args.rounds as usize },
        time: if args.quick { QUICK_TIME } else { Duration::from_secs(args.seconds.into()) },
        cache,
        busy: args.busy,
        company_args: vec!["bench".to_owned(), "company".to_owned()],
        quick: args.quick,
    })
}

pub(super) fn run(args: &Args) -> io::Result<()> {
    let options = options(args)?;
    let mut watcher = Watcher::new("bench")?;
    let report = engines::run(&options, &mut watcher)?;
    drop(watcher);
    let text = report.text(args.markdown);
    show(|out| out.write_all(text.as_bytes()))?;
    if let Some(dir) = &args.svg {
        report.plot(dir)?;
    }
    save(args.json.as_deref(), &report)?;
    ended(report.interrupted, &report.failed)
}
