//! `weldfs bench busy`.

use super::watch::Watcher;
use super::{ended, parse_peer, save, show};
use clap::builder::PossibleValuesParser;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weldfs_benches::busy::company::Kind;
use weldfs_benches::busy::{self, Op, Options};
use weldfs_benches::peers::{Ground, LoopMount, Peer};

/// Bytes of a prepared file system.
const MOUNT_BYTES: u64 = 512 << 20;

/// Arguments of `weldfs bench busy`.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Compare with this directory of the host; without it and without --prepare: the tmpfs at /dev/shm
    #[arg(long, value_name = "NAME=DIR", value_parser = parse_peer)]
    peer: Option<Peer>,
    /// Mount an ext4 over RAM and compare with that (as root; it goes with this process)
    #[arg(long, conflicts_with = "peer")]
    prepare: bool,
    /// Numbers of busy processes, several times
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "0,1,2,4",
          value_parser = clap::value_parser!(u32).range(0..=64))]
    busy: Vec<u32>,
    /// What these do: `spin` computes, `compile` runs `cc` again and again
    #[arg(long, default_value = "spin", value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::name)))]
    load: String,
    /// Only these operations, several times
    #[arg(long, value_delimiter = ',', value_name = "OP",
          value_parser = PossibleValuesParser::new(Op::ALL.map(Op::name)))]
    only: Vec<String>,
    /// Operations in flight, several times; the host has one
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,32",
          value_parser = clap::value_parser!(u32).range(1..=32))]
    depths: Vec<u32>,
    /// Milliseconds of a sample
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    millis: u64,
    /// Rounds behind each median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// One short sample of each kind with no and with one busy process: shows in seconds that everything works, and no
    /// figures
    #[arg(long, conflicts_with_all = ["busy", "millis", "rounds"])]
    quick: bool,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> io::Result<()> {
    let mut watcher = Watcher::new("busy")?;
    let mount = args.prepare.then(|| LoopMount::prepare(MOUNT_BYTES)).transpose()?;
    let (name, dir) = match (&mount, &args.peer) {
        (Some(mount), _) => ("ext4", mount.dir()),
        (None, Some(peer)) => (&*peer.name, &*peer.dir),
        (None, None) => ("tmpfs", Path::new("/dev/shm")),
    };
    let peer = Peer { name: name.to_owned(), dir: dir.to_owned(), medium: Ground::of(dir)?.describe() };
    let ops = Op::ALL.into_iter().filter(|op| args.only.is_empty() || args.only.iter().any(|name| name == op.name()));
    let options = Options {
        program: std::env::current_exe()?,
        company_args: vec!["bench".to_owned(), "company".to_owned()],
        peer,
        busy: if args.quick { vec![0, 1] } else { args.busy.clone() },
        kind: parse_kind(&args.load).map_err(io::Error::other)?,
        depths: args.depths.clone(),
        ops: ops.collect(),
        time: Duration::from_millis(if args.quick { 20 } else { args.millis }),
        rounds: if args.quick { 1 } else { args.rounds as usize },
    };
    let report = busy::run(&options, &mut watcher)?;
    watcher.clear();
    show(|out| {
        report.print(out)?;
        if args.quick { writeln!(out, "\nquick: shows that everything works; the times mean nothing") } else { Ok(()) }
    })?;
    save(args.json.as_deref(), &report)?;
    ended(report.interrupted, &[])
}

/// The kind of that name.
pub(super) fn parse_kind(name: &str) -> Result<Kind, String> {
    Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| "expected spin or compile".into())
}
