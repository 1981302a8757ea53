//! `weldfs bench base`: is the device close to the floor, and are fused operations faster than the host's steps?
//!
//! Everything is measured in one run, the systems interleaved round by round, medians over the rounds. Images are
//! prefaulted files in RAM ("emulated pmem": survives the process, not the power); the peer is an ext4 on a loop
//! device over a file in RAM, which is its equal. *burst* stays within one log; *steady* runs over ten log lengths,
//! checkpoints included.

pub(crate) mod drive;
mod names;
mod quiet;
mod work;

use crate::floor::Floor;
use crate::peers::{self, LoopMount, Peer};
use crate::report::{Machine, Ratio, Report, Row, Samples, row};
use crate::served::{ServeOptions, Served};
use std::io;
use std::path::PathBuf;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `weldfs` binary: serves, and is the floor's server with `floor_args`.
    pub program: PathBuf,
    /// Arguments that turn the binary into the floor's server (the region's path is added).
    pub floor_args: Vec<String>,
    /// Rounds behind each median.
    pub rounds: usize,
    /// A peer directory; without one an ext4 over RAM is mounted (root only).
    pub peer: Option<Peer>,
    /// Leaves out what takes minutes: the million-entry directory, the 100,000-file mount, ten log lengths, idle time.
    pub quick: bool,
}

/// Figure of a row by name; NaN when it was not measured.
fn figure(rows: &[Row], bench: &str, system: &str, depth: u32, phase: &str) -> f64 {
    let found = rows.iter().find(|r| r.bench == bench && r.system == system && r.depth == depth && r.phase == phase);
    found.map_or(f64::NAN, |r| r.ns_per_op)
}

/// Runs the experiment; `note` is told what is being measured.
pub fn run(options: &Options, note: &mut dyn FnMut(&str)) -> io::Result<Report> {
    let (mut samples, mut extra) = (Samples::default(), Vec::new());
    let mount = if options.peer.is_none() { Some(LoopMount::prepare(2 << 30)?) } else { None };
    let peer = match (&options.peer, &mount) {
        (Some(peer), _) => peer.clone(),
        (None, Some(m)) => Peer { name: "ext4-ram".into(), dir: m.dir().to_owned(), medium: "loop over RAM".into() },
        (None, None) => unreachable!("one of the two is set just above"),
    };
    for round in 0..options.rounds {
        note(&format!("round {} of {}: floor", round + 1, options.rounds));
        floor_round(options, &mut samples)?;
        for flush in ["on", "none"] {
            note(&format!("round {} of {}: weldfs, flush instructions {flush}", round + 1, options.rounds));
            work::burst_round(options, round, flush, &mut samples)?;
        }
        note(&format!("round {} of {}: {}", round + 1, options.rounds, peer.name));
        peer_round(&peer, round, &mut samples)?;
    }
    if !options.quick {
        note("steady: ten log lengths");
        work::steady(options, &mut samples)?;
        note("directories of 1,000 and 1,000,000 entries");
        extra.extend(names::directories(options, &mut samples)?);
        note("mounting 100,000 files; idle device");
        extra.extend(quiet::quiet(options)?);
    }
    let rows = samples.rows();
    let mut ratios = ratios(&rows, &peer, options.quick);
    ratios.extend(extra);
    Ok(Report { machine: Machine::here(), profile: "default (no modelled delay)".to_owned(), rows, ratios })
}

fn floor_round(options: &Options, samples: &mut Samples) -> io::Result<()> {
    let args: Vec<&str> = options.floor_args.iter().map(String::as_str).collect();
    let mut floor = Floor::start(&options.program, &args)?;
    for (bench, depth, copy, count) in [
        ("null round trip", 1, false, 300_000),
        ("null round trip", 32, false, 2_000_000),
        ("4 KiB copied in and out", 1, true, 100_000),
        ("4 KiB copied in and out", 32, true, 300_000),
    ] {
        samples.add(row(bench, "floor", depth, "shared memory", "-"), floor.run(count, u64::from(depth), copy));
    }
    Ok(())
}

fn peer_round(peer: &Peer, round: usize, samples: &mut Samples) -> io::Result<()> {
    let owc = peers::open_write_close(peer, round, 4000, 4096)?;
    samples.add(row("open_write_close 4 KiB new", &peer.name, 1, &peer.medium, "volatile"), owc);
    let acw = peers::append_checksum(peer, round, 1500, 4096, true)?;
    samples.add(row("append_checksum_write 4 KiB", &peer.name, 1, &peer.medium, "durable"), acw);
    let acw = peers::append_checksum(peer, round, 20_000, 4096, false)?;
    samples.add(row("append_checksum_write 4 KiB v", &peer.name, 1, &peer.medium, "volatile"), acw);
    let app = peers::append(peer, round, 1500, 4096, true)?;
    samples.add(row("append 4 KiB", &peer.name, 1, &peer.medium, "durable"), app);
    Ok(())
}

fn ratios(rows: &[Row], peer: &Peer, quick: bool) -> Vec<Ratio> {
    let f = |bench: &str, system: &str, depth| figure(rows, bench, system, depth, "burst");
    let steady = |bench: &str| figure(rows, bench, "weldfs", 1, "steady");
    let copied = "4 KiB copied in and out";
    let mut all = vec![
        Ratio::at_most("NOP over the null ring, depth 1", f("NOP", "weldfs", 1), f("null round trip", "floor", 1), 1.5),
        Ratio::at_most(
            "NOP over the null ring, depth 32",
            f("NOP", "weldfs", 32),
            f("null round trip", "floor", 32),
            3.0,
        ),
        Ratio::at_most(
            "durable append over the copying ring, depth 1",
            f("append 4 KiB", "weldfs", 1),
            f(copied, "floor", 1),
            1.6,
        ),
        Ratio::at_most(
            "durable append over the copying ring, depth 32",
            f("append 4 KiB", "weldfs", 32),
            f(copied, "floor", 32),
            2.2,
        ),
        Ratio::at_most(
            "the same with flush=none, depth 32",
            f("append 4 KiB", "flush=none", 32),
            f(copied, "floor", 32),
            1.6,
        ),
        Ratio::at_least(
            "open_write_close volatile: host steps over ours",
            f("open_write_close 4 KiB new", &peer.name, 1),
            f("open_write_close 4 KiB new", "weldfs", 1),
            3.0,
        ),
        Ratio::at_least(
            "append_checksum_write durable: host steps over ours",
            f("append_checksum_write 4 KiB", &peer.name, 1),
            f("append_checksum_write 4 KiB", "weldfs", 1),
            18.0,
        ),
    ];
    if !quick {
        for bench in ["append 4 KiB", "open_write_close 4 KiB new"] {
            let what = format!("{bench}: steady throughput over burst");
            all.push(Ratio::at_least(&what, f(bench, "weldfs", 1), steady(bench), 0.5));
        }
    }
    all
}

/// Options of `serve` for a device whose flush instructions are on or off.
fn serve_options(flush: &str, size: &str) -> ServeOptions {
    let serve_args = if flush == "none" { vec!["--no-flush".to_owned()] } else { Vec::new() };
    ServeOptions { size: size.to_owned(), serve_args, ..ServeOptions::default() }
}

fn start(options: &Options, flush: &str, size: &str) -> io::Result<Served> {
    Served::start(&options.program, &serve_options(flush, size))
}
