//! `weldfs bench NAME`: the experiments of the benches crate.

use crate::failure::{Failure, Outcome, reason};
use std::io;
use std::path::PathBuf;
use weldfs_benches::{base, floor, peers::Peer};

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

fn parse_peer(text: &str) -> Result<Peer, String> {
    let (name, dir) = text.split_once('=').ok_or("expected NAME=DIR")?;
    let dir = PathBuf::from(dir);
    if !dir.is_dir() {
        return Err(format!("{} is not a directory", dir.display()));
    }
    Ok(Peer { name: name.to_owned(), dir, medium: "host directory".to_owned() })
}

/// Runs an experiment.
pub fn run(args: &Args) -> Outcome {
    let ended = match &args.which {
        Which::Floor { region } => floor::serve(region),
        Which::Base(args) => base(args),
    };
    ended.map(|()| 0).map_err(|e| Failure::new(format!("the experiment failed: {}", reason(&e))))
}

fn base(args: &Base) -> io::Result<()> {
    let options = base::Options {
        program: std::env::current_exe()?,
        floor_args: vec!["bench".to_owned(), "floor".to_owned()],
        rounds: args.rounds as usize,
        peer: args.peer.clone(),
        quick: args.quick,
    };
    let report = base::run(&options, &mut |what| eprintln!("bench: {what}"))?;
    report.print();
    match &args.json {
        Some(path) => std::fs::write(path, serde_json::to_vec_pretty(&report)?),
        None => Ok(()),
    }
}
