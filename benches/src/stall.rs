//! `weldfs bench stall`: how long single operations take while checkpoints run, below and above their speed.
//!
//! Hypothesis: below the speed at which checkpoints empty the log no operation waits for one; above it every operation
//! takes a little longer and none stops. Latencies of one command after the other, from submission to completion, on a
//! device with a small log, so that checkpoints follow each other. *Below* sends at half the rate that the closed loop
//! reached; *above* is the closed loop of all clients, one command outstanding each. Unit: microseconds.

use crate::base::drive::Driver;
use crate::report::Machine;
use crate::served::{ServeOptions, Served};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weldfs::{At, Client, Command, Durability, Handle, Op, OpenFlags, OpenOptions, PoolRange};

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `weldfs` binary.
    pub program: PathBuf,
    /// Seconds of each row.
    pub seconds: u64,
    /// Clients of the crowded rows.
    pub clients: usize,
    /// "pmem" or "block".
    pub medium: &'static str,
    /// Where the image goes.
    pub place: PathBuf,
    /// Log of the image, as mkfs takes it.
    pub log: String,
}

/// Latencies of one load.
#[derive(Debug, Clone, Serialize)]
pub struct Latencies {
    /// The operation and the load.
    pub what: String,
    /// Where the bytes live, and how large the log is.
    pub medium: String,
    /// "volatile" or "durable".
    pub durability: String,
    /// Commands measured.
    pub ops: u64,
    /// Commands per second.
    pub rate: f64,
    /// Median, microseconds.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// Checkpoints completed meanwhile.
    pub checkpoints: u64,
    /// Commands that back-pressure held back.
    pub paced: u64,
    /// Commands that found no room and waited for a checkpoint's end.
    pub stopped: u64,
}

/// The finished experiment.
#[derive(Debug, Clone, Serialize)]
pub struct StallReport {
    /// Which machine.
    pub machine: Machine,
    /// Emulated hardware in force.
    pub profile: String,
    /// The rows.
    pub rows: Vec<Latencies>,
}

impl StallReport {
    /// Prints the table for people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let m = &self.machine;
        writeln!(
            out,
            "{} ({} cores), kernel {}, {} build, profile {}",
            m.cpu, m.cores, m.kernel, m.build, self.profile
        )?;
        writeln!(
            out,
            "\n{:<44} {:<26} {:<9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9} {:>6} {:>8} {:>7}",
            "load",
            "medium",
            "class",
            "ops",
            "ops/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "max us",
            "ckpts",
            "paced",
            "stopped"
        )?;
        for r in &self.rows {
            writeln!(
                out,
                "{:<44} {:<26} {:<9} {:>9} {:>9.0} {:>8.1} {:>8.1} {:>9.1} {:>9.1} {:>6} {:>8} {:>7}",
                r.what,
                r.medium,
                r.durability,
                r.ops,
                r.rate,
                r.p50,
                r.p99,
                r.p999,
                r.max,
                r.checkpoints,
                r.paced,
                r.stopped
            )?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// 4 KiB at the end of a file, which is cut to nothing now and then.
    Append,
    /// A new file of 100 bytes in a folder: more keys per log byte than anything else.
    Create,
}

/// Runs the experiment; `note` is told what is being measured.
pub fn run(options: &Options, note: &mut dyn FnMut(&str)) -> io::Result<StallReport> {
    let mut rows = Vec::new();
    for (work, name) in [(Work::Append, "append 4 KiB"), (Work::Create, "open_write_close of a new file")] {
        let served = start(options)?;
        note(&format!("{name}: one client in a closed loop"));
        let closed = load(options, &served, work, 1, None, &format!("{name}, 1 client, closed loop"))?;
        let half = closed.rate / 2.0;
        rows.push(closed);
        note(&format!("{name}: one client at half of that rate"));
        rows.push(load(options, &served, work, 1, Some(half), &format!("{name}, 1 client, half rate"))?);
        note(&format!("{name}: {} clients in closed loops", options.clients));
        let what = format!("{name}, {} clients, closed loops", options.clients);
        rows.push(load(options, &served, work, options.clients, None, &what)?);
    }
    Ok(StallReport { machine: Machine::here(), profile: "default (no modelled delay)".into(), rows })
}

fn start(options: &Options) -> io::Result<Served> {
    let place = options.place.clone();
    let mkfs_args = vec!["--log-size".to_owned(), options.log.clone()];
    Served::start_with(
        &options.program,
        &ServeOptions { medium: options.medium, size: "4G".into(), place, serve_args: Vec::new() },
        &mkfs_args,
    )
}

/// Checkpoints, paced and stopped commands of a device so far.
fn counts(client: &Client) -> io::Result<[u64; 3]> {
    let stats: serde_json::Value = serde_json::from_str(&client.stats_json()?).map_err(io::Error::other)?;
    let get = |v: &serde_json::Value| v.as_u64().unwrap_or(0);
    Ok([get(&stats["log"]["checkpoints"]), get(&stats["total"]["pace_waits"]), get(&stats["total"]["room_waits"])])
}

fn load(
    options: &Options,
    served: &Served,
    work: Work,
    clients: usize,
    rate: Option<f64>,
    what: &str,
) -> io::Result<Latencies> {
    let watcher = served.connect()?;
    let before = counts(&watcher)?;
    let started = Instant::now();
    let results: Vec<io::Result<Vec<u64>>> = std::thread::scope(|s| {
        let each = |i| {
            let seconds = Duration::from_secs(options.seconds);
            s.spawn(move || client(served, work, i, seconds, rate))
        };
        let all: Vec<_> = (0..clients).map(each).collect();
        all.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))).collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    let after = counts(&watcher)?;
    let mut all = Vec::new();
    for r in results {
        all.extend(r?);
    }
    all.sort_unstable();
    let at = |share: f64| {
        all.get((all.len() as f64 * share) as usize).or(all.last()).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    };
    Ok(Latencies {
        what: what.to_owned(),
        medium: format!("{}, log {}", if options.medium == "pmem" { "emulated pmem" } else { "disk" }, options.log),
        durability: "volatile".into(),
        ops: all.len() as u64,
        rate: all.len() as f64 / seconds,
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max: at(1.0),
        checkpoints: after[0] - before[0],
        paced: after[1] - before[1],
        stopped: after[2] - before[2],
    })
}

/// One client: a command, its completion, the next one (at `rate`: not before its time). Nanoseconds of each.
fn client(served: &Served, work: Work, number: usize, time: Duration, rate: Option<f64>) -> io::Result<Vec<u64>> {
    const FOLDER: u64 = 2_000;
    const FILE: u64 = 8_192;
    let client = served.connect()?;
    let folder = format!("/stall-{number}-{:?}", Instant::now()).replace([' ', '{', '}', ':', ','], "");
    client.create_dir(&folder)?;
    let data = vec![0x5a; if work == Work::Append { 4096 } else { 100 }];
    let mut driver = Driver::new(&client, &data)?;
    let mut file = client.open(format!("{folder}/log"), &OpenOptions::new().write(true).create(true))?;
    file.set_durability(Durability::Volatile);
    let width = folder.len() as u32 + 12;
    let path = driver.queue().alloc(width)?;
    let pool = driver.queue().pool().clone();
    let (mut all, started) = (Vec::new(), Instant::now());
    let mut n = 0u64;
    while started.elapsed() < time {
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(n as f64 / rate);
            while started.elapsed() < due {
                std::hint::spin_loop();
            }
        }
        let begun = Instant::now();
        driver.run(1, 1, |_, src| command(work, file.handle(), &pool, path, &folder, n, src))?;
        all.push(begun.elapsed().as_nanos() as u64);
        n += 1;
        // What was made goes again, so that the image does not fill; not measured.
        if work == Work::Append && n.is_multiple_of(FILE) {
            file.set_len(0)?;
        }
        if work == Work::Create && n.is_multiple_of(FOLDER) {
            for i in n - FOLDER..n {
                client.remove_file(format!("{folder}/f{i:010}"))?;
            }
        }
    }
    driver.queue().free(path);
    drop(file);
    client.remove_all(&folder)?;
    Ok(all)
}

fn command(
    work: Work,
    h: Handle,
    pool: &weldfs_ciscops::SharedRegion,
    path: PoolRange,
    folder: &str,
    n: u64,
    src: PoolRange,
) -> Command {
    let op = match work {
        Work::Append => Op::Write { h, at: At::End, src },
        Work::Create => {
            if let Ok(room) = pool.slice(path) {
                room.copy_from(format!("{folder}/f{n:010}").as_bytes());
            }
            let flags = OpenFlags::WRITE | OpenFlags::CREATE;
            Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at: At::Offset(0), src }
        }
    };
    Command::new(0, op).with_durability(Durability::Volatile)
}
