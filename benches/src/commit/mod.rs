//! `weldfs bench commit`: what a commit costs.
//!
//! Three questions, the systems of each interleaved round by round, medians over the rounds, and the device's own
//! counts beside the times:
//! * *Is a fused command that commits step by step much dearer than one that commits at once?* append_checksum_write
//!   of 4 KiB in both modes on emulated pmem, and what remains without a journal: a command that does nothing (NOP)
//!   plus the data alone, which is the payload copied with its checksum to a fresh block, the trailer stored behind
//!   it, one fence; in this process, without record, overlay and ring.
//! * *Do commits share flushes?* Durable 4 KiB appends on a disk: one outstanding, against four processes with four.
//! * *What does one durable append cost?* Flushes and writes from the device's counters, for an append that lies in
//!   its record and one whose data goes to blocks of its own; beside it the host's file system on the same disk:
//!   append and fdatasync.

mod count;
mod data_only;

use crate::base::drive::Driver;
use crate::peers::{self, Peer};
use crate::report::{Machine, Ratio, Report, Row, Samples, row};
use crate::served::{ServeOptions, Served};
pub use count::Count;
use count::Counters;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;
use weldfs::{At, Client, Command, Durability, File, Op, OpenOptions};
use weldfs_ciscops::TxnMode;

/// Commands behind one sample on pmem.
const PMEM_OPS: u64 = 20_000;
/// How long one sample on the disk runs.
const DISK_MS: u64 = 700;
/// Appends behind one sample of the single append, ours and the peer's.
const SINGLE_OPS: u64 = 150;
/// Processes and depth of the crowd.
const CROWD: (usize, u64) = (4, 4);

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `weldfs` binary: serves, and is a client process with `worker_args`.
    pub program: PathBuf,
    /// Arguments that turn the binary into a client process (socket, file, depth, milliseconds are added).
    pub worker_args: Vec<String>,
    /// Rounds behind each median.
    pub rounds: usize,
    /// Directory on the disk to be measured.
    pub disk: PathBuf,
}

/// The report: times, and what the device counted.
#[derive(Debug, Clone, serde::Serialize)]
pub struct CommitReport {
    /// Times and comparisons.
    #[serde(flatten)]
    pub report: Report,
    /// Counts per operation, over all rounds.
    pub counts: Vec<Count>,
    /// What else follows from the figures.
    pub notes: Vec<String>,
}

impl CommitReport {
    /// Prints everything for people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.report.print(out)?;
        Count::print(out, &self.counts)?;
        writeln!(out)?;
        self.notes.iter().try_for_each(|n| writeln!(out, "{n}"))?;
        Ok(())
    }
}

/// Runs the experiment; `note` is told what is being measured.
pub fn run(options: &Options, note: &mut dyn FnMut(&str)) -> io::Result<CommitReport> {
    let (mut samples, mut counters) = (Samples::default(), Counters::default());
    let pmem = Served::start(&options.program, &ServeOptions::default())?;
    let place = options.disk.clone();
    let disk = ServeOptions { medium: "block", size: "1G".into(), place, serve_args: Vec::new() };
    let disk = Served::start(&options.program, &disk)?;
    let peer_dir = tempfile::Builder::new().prefix("weldfs-peer-").tempdir_in(&options.disk)?;
    let peer = Peer { name: "host".into(), dir: peer_dir.path().into(), medium: disk_name(&options.disk) };
    for round in 0..options.rounds {
        let of = format!("round {} of {}", round + 1, options.rounds);
        note(&format!("{of}: modes on pmem"));
        modes(&pmem, round, &mut samples, &mut counters)?;
        note(&format!("{of}: appends on the disk, alone and in a crowd"));
        crowd(options, &disk, &mut samples, &mut counters)?;
        note(&format!("{of}: single appends on the disk, ours and the host's"));
        single(&disk, &peer, round, &mut samples, &mut counters)?;
    }
    let mut rows = samples.rows();
    // The host's fdatasync reaches the same disk as our flush.
    let safe = count::power_safe(&disk.connect()?)?;
    rows.iter_mut().filter(|r| r.medium == peer.medium).for_each(|r| r.power_safe = safe);
    let ratios = ratios(&rows);
    let notes = notes(&rows);
    let report = Report { machine: Machine::here(), profile: "default (no modelled delay)".into(), rows, ratios };
    Ok(CommitReport { report, counts: counters.per_op(), notes })
}

fn disk_name(dir: &Path) -> String {
    format!("disk at {}", dir.display())
}

fn append_file(client: &Client, path: &str) -> io::Result<File> {
    client.open(path, &OpenOptions::new().write(true).create(true).truncate(true))
}

/// Both modes and what they consist of, in an order that turns from round to round.
fn modes(served: &Served, round: usize, samples: &mut Samples, counters: &mut Counters) -> io::Result<()> {
    let client = served.connect()?;
    let mut driver = Driver::new(&client, &[0x5a; 4096])?;
    for turn in 0..4 {
        match (turn + round) % 4 {
            0 => samples
                .add(row("NOP", "weldfs", 1, "-", "-"), driver.run(PMEM_OPS, 1, |_, _| Command::new(0, Op::Nop))?),
            1 => samples.add(row(ACW, "data only", 1, "emulated pmem", "durable"), data_only::run(PMEM_OPS)?),
            at => {
                let (mode, name) = if at == 2 { (TxnMode::Macro, "macro") } else { (TxnMode::Micro, "micro") };
                let file = append_file(&client, "/sums")?;
                let (h, kind) = (file.handle(), weldfs_ciscops::flags::ChecksumKind::Crc32c);
                let before = count::read(&client)?;
                let ns = driver.run(PMEM_OPS, 1, |_, src| {
                    let op = Op::AppendChecksumWrite { h, kind, src };
                    Command::new(0, op).with_durability(Durability::Durable).with_mode(mode)
                })?;
                counters.add(&format!("{ACW}, {name}, pmem"), PMEM_OPS, &before, &count::read(&client)?);
                samples.add(row(ACW, name, 1, "emulated pmem", "durable"), ns);
                drop(file);
                client.remove_file("/sums")?;
            }
        }
    }
    Ok(())
}

const ACW: &str = "append_checksum_write 4 KiB";
const APPEND: &str = "append 4 KiB";
const APPEND_BLOCKS: &str = "append 32 KiB";

/// The hidden role of a client process: durable 4 KiB appends to a file of its own, from the word on.
pub fn worker(socket: &Path, file: &str, depth: u64, millis: u64) -> io::Result<()> {
    let client = Client::connect(socket)?;
    let file = append_file(&client, file)?;
    let h = file.handle();
    let mut driver = Driver::new(&client, &[0x5a; 4096])?;
    println!("ready");
    io::stdin().read_line(&mut String::new())?;
    let (ops, ns) = driver.run_for(Duration::from_millis(millis), depth, |_, src| durable_append(h, src))?;
    println!("{ops} {ns}");
    Ok(())
}

fn durable_append(h: weldfs::Handle, src: weldfs::PoolRange) -> Command {
    Command::new(0, Op::Write { h, at: At::End, src }).with_durability(Durability::Durable)
}

struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `processes` clients at `depth` at once: operations, and nanoseconds of the longest.
fn workers(options: &Options, served: &Served, processes: usize, depth: u64) -> io::Result<(u64, u64)> {
    let mut all = Vec::new();
    for i in 0..processes {
        let mut process = Process::new(&options.program);
        process.args(&options.worker_args).arg(served.socket()).arg(format!("/w{i}"));
        process.args([depth.to_string(), DISK_MS.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut worker = Worker(process.spawn()?);
        let lost = || io::Error::other("a client process has no pipes");
        let mut lines = BufReader::new(worker.0.stdout.take().ok_or_else(lost)?);
        lines.read_line(&mut String::new())?;
        all.push((worker, lines));
    }
    for (worker, _) in &mut all {
        worker.0.stdin.take().map_or(Ok(()), |mut s| s.write_all(b"go\n"))?;
    }
    let (mut ops, mut longest) = (0, 0);
    for (_worker, lines) in &mut all {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(n)), Some(Ok(ns))) = (words.next(), words.next()) else {
            return Err(io::Error::other("a client process ended early"));
        };
        (ops, longest) = (ops + n, longest.max(ns));
    }
    Ok((ops, longest))
}

fn crowd(options: &Options, served: &Served, samples: &mut Samples, counters: &mut Counters) -> io::Result<()> {
    let client = served.connect()?;
    for (processes, depth) in [(1, 1), CROWD] {
        let outstanding = processes as u64 * depth;
        let before = count::read(&client)?;
        let (ops, ns) = workers(options, served, processes, depth)?;
        counters.add(&format!("{APPEND}, {outstanding} outstanding, disk"), ops, &before, &count::read(&client)?);
        let row = row(APPEND, "weldfs", outstanding as u32, &disk_name(&options.disk), "durable");
        samples.add(row, ns as f64 / ops.max(1) as f64);
        (0..processes).try_for_each(|i| client.remove_file(format!("/w{i}")))?;
    }
    Ok(())
}

/// One append after the other, ours and the host's.
fn single(
    served: &Served,
    peer: &Peer,
    round: usize,
    samples: &mut Samples,
    counters: &mut Counters,
) -> io::Result<()> {
    let client = served.connect()?;
    for (bench, len) in [(APPEND, 4096), (APPEND_BLOCKS, 32 << 10)] {
        let mut driver = Driver::new(&client, &vec![0x5a; len])?;
        let file = append_file(&client, "/one")?;
        let h = file.handle();
        // The first one makes the file's inode durable too.
        driver.run(1, 1, |_, src| durable_append(h, src))?;
        let before = count::read(&client)?;
        let ns = driver.run(SINGLE_OPS, 1, |_, src| durable_append(h, src))?;
        counters.add(&format!("{bench}, alone, disk"), SINGLE_OPS, &before, &count::read(&client)?);
        samples.add(row(&format!("{bench}, alone"), "weldfs", 1, &peer.medium, "durable"), ns);
        drop(file);
        client.remove_file("/one")?;
        let ns = peers::append(peer, round, SINGLE_OPS as usize, len, true)?;
        samples.add(row(&format!("{bench}, alone"), &peer.name, 1, &peer.medium, "durable"), ns);
    }
    Ok(())
}

fn figure(rows: &[Row], bench: &str, system: &str, depth: u32) -> f64 {
    let found = rows.iter().find(|r| r.bench == bench && r.system == system && r.depth == depth);
    found.map_or(f64::NAN, |r| r.ns_per_op)
}

fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let f = |bench: &str, system: &str, depth| figure(rows, bench, system, depth);
    let crowd = CROWD.0 as u32 * CROWD.1 as u32;
    vec![
        Ratio::at_most("append_checksum_write: MicroTx over MacroTx", f(ACW, "micro", 1), f(ACW, "macro", 1), 1.1),
        Ratio::at_least(
            "durable appends on the disk: 16 outstanding over 1",
            f(APPEND, "weldfs", 1),
            f(APPEND, "weldfs", crowd),
            4.0,
        ),
    ]
}

fn notes(rows: &[Row]) -> Vec<String> {
    let f = |bench: &str, system: &str| figure(rows, bench, system, 1);
    let bare = f("NOP", "weldfs") + f(ACW, "data only");
    let mut out = vec![
        format!("without a journal (NOP + data only): {bare:.0} ns"),
        format!("  MacroTx is {:.2}x of it, MicroTx {:.2}x", f(ACW, "macro") / bare, f(ACW, "micro") / bare),
    ];
    for bench in [APPEND, APPEND_BLOCKS] {
        let bench = format!("{bench}, alone");
        let ratio = f(&bench, "host") / f(&bench, "weldfs");
        out.push(format!("{bench}: the host's append + fdatasync takes {ratio:.2}x our time"));
    }
    out
}
