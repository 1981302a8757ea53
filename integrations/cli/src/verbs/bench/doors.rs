//! `weldfs bench doors`.

use super::watch::Watcher;
use super::{ended, parse_peer, save, show};
use clap::builder::PossibleValuesParser;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weldfs_benches::doors::{self, DOORS, MEDIA, Op, Options, worker};
use weldfs_benches::peers::{Ground, Peer};

/// Arguments of `weldfs bench doors`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Doors: api-inline (the image opened in the worker's process), api-served, preload (under `weldfs run`), mount,\n\
mount-exclusive, host (directories of this host). One that cannot be used here, such as a mount without\n\
/dev/fuse, is named in the report.\n\n\
Operations: getattr, open_read_close, read_4k, write_4k and create_write_close in microseconds; readdir (10,000\n\
names), tar_x (5,000 files) and git_clone in milliseconds; write_1m and read_1m in MiB/s.")]
pub(super) struct Args {
    /// Compare with a directory of this host, several times; without it: with one where temporary files go, and with
    /// one in /dev/shm
    #[arg(long, value_name = "NAME=DIR", value_parser = parse_named)]
    peer: Vec<Peer>,
    /// Only these doors, several times
    #[arg(long, value_delimiter = ',', value_name = "DOOR", value_parser = PossibleValuesParser::new(DOORS))]
    doors: Vec<String>,
    /// Only these operations, several times
    #[arg(long, value_delimiter = ',', value_name = "OP",
          value_parser = PossibleValuesParser::new(Op::ALL.map(Op::name)))]
    only: Vec<String>,
    /// What images stand for
    #[arg(long, default_value = "pmem", value_name = "MEDIUM", value_parser = PossibleValuesParser::new(MEDIA))]
    medium: String,
    /// Directory for images (2 of 2 GiB, and one more for the mount that is exclusive); /dev/shm by default with pmem,
    /// else where temporary files go
    #[arg(long, value_name = "DIR", value_parser = parse_dir)]
    dir: Option<PathBuf>,
    /// Have changes durable before calls return, in WeldFS; the host's calls do not sync, either way
    #[arg(long)]
    durable: bool,
    /// Numbers of busy processes, several times
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "0,2",
          value_parser = clap::value_parser!(u32).range(0..=64))]
    busy: Vec<u32>,
    /// Milliseconds of a sample of calls; of a program one run is a sample
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    millis: u64,
    /// Rounds behind each median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Small sets and one short sample of each kind: shows in seconds that everything works, and no figures
    #[arg(long, conflicts_with_all = ["busy", "millis", "rounds"])]
    quick: bool,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn parse_dir(text: &str) -> Result<PathBuf, String> {
    let dir = PathBuf::from(text);
    if dir.is_dir() { Ok(dir) } else { Err(format!("{text} is not a directory")) }
}

/// A directory of the host, under a name that is none of a door.
fn parse_named(text: &str) -> Result<Peer, String> {
    let peer = parse_peer(text)?;
    match peer.name.as_str() {
        "" => Err("expected NAME=DIR".into()),
        name if DOORS.contains(&name) => Err(format!("{name} is a door")),
        _ => Ok(peer),
    }
}

/// Where temporary files go, and a place in memory, under the names of their file systems.
fn usual_peers() -> io::Result<Vec<Peer>> {
    let mut peers: Vec<Peer> = Vec::new();
    for dir in [std::env::temp_dir(), PathBuf::from("/dev/shm")].into_iter().filter(|dir| dir.is_dir()) {
        let ground = Ground::of(&dir)?;
        if peers.iter().all(|peer| peer.name != ground.fs) {
            peers.push(Peer { name: ground.fs.clone(), medium: ground.describe(), dir });
        }
    }
    Ok(peers)
}

pub(super) fn run(args: &Args) -> io::Result<()> {
    let mut watcher = Watcher::new("doors")?;
    let peers = if args.peer.is_empty() { usual_peers()? } else { args.peer.clone() };
    if let Some(twice) = peers.iter().enumerate().find(|(i, p)| peers[..*i].iter().any(|q| q.name == p.name)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("two peers are called {}", twice.1.name)));
    }
    let in_memory = args.medium == "pmem" && Path::new("/dev/shm").is_dir();
    let dir = if in_memory { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    let ops = Op::ALL.into_iter().filter(|op| args.only.is_empty() || args.only.iter().any(|name| name == op.name()));
    let options = Options {
        program: std::env::current_exe()?,
        company_args: vec!["bench".to_owned(), "company".to_owned()],
        worker_args: vec!["bench".to_owned(), "door".to_owned()],
        doors: args.doors.clone(),
        peers,
        medium: args.medium.clone(),
        dir: args.dir.clone().unwrap_or(dir),
        durable: args.durable,
        ops: ops.collect(),
        busy: if args.quick { vec![0, 1] } else { args.busy.clone() },
        time: Duration::from_millis(if args.quick { 10 } else { args.millis }),
        rounds: if args.quick { 1 } else { args.rounds as usize },
        quick: args.quick,
    };
    let report = doors::run(&options, &mut watcher)?;
    watcher.clear();
    show(|out| {
        report.print(out, args.markdown)?;
        if args.quick { writeln!(out, "\nquick: shows that everything works; the times mean nothing") } else { Ok(()) }
    })?;
    save(args.json.as_deref(), &report)?;
    ended(report.interrupted, &report.failed)
}

/// Arguments of a worker (started by `doors`).
#[derive(clap::Args, Debug)]
pub(super) struct WorkerArgs {
    door: String,
    target: PathBuf,
    archive: PathBuf,
    repository: PathBuf,
    #[arg(long)]
    durable: bool,
    #[arg(long)]
    quick: bool,
}

pub(super) fn work(args: &WorkerArgs) -> io::Result<()> {
    worker::run(worker::Job {
        door: args.door.clone(),
        target: args.target.clone(),
        archive: args.archive.clone(),
        repository: args.repository.clone(),
        durable: args.durable,
        quick: args.quick,
    })
}
