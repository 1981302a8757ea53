//! `weldfs bench busy`: how long operations take while other programs want the processors.
//!
//! Hypothesis: whoever waits for a completion or for a command must not take the processor from the peer that it waits
//! for. With more busy processes than processors, a waiter that spins uses up its time slice, and then it, or its peer,
//! waits for the next scheduler tick. So every operation is timed with nothing beside it and with 1, 2 and 4 busy
//! processes, through a device process, through an embedded device, through one whose commands run on the calling
//! thread (inline), and by the host's own calls on a directory. Unit: microseconds from submission to completion. In
//! each round every cell is measured on all systems one right after the other; a figure is the median of the rounds.
//!
//! * `company` the busy processes; `weld` and `host` the systems; `report` rows, verdicts, tables.

pub mod company;
mod host;
mod report;
mod weld;

use crate::micro::Watch;
use crate::peers::Peer;
use crate::report::{Machine, median};
use company::{Company, Kind};
pub use report::BusyReport;
use report::{Busy, Figures};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weldfs` binary: makes images, serves, and is the busy processes.
    pub program: PathBuf,
    /// Arguments with which it is one; the kind follows.
    pub company_args: Vec<String>,
    /// The directory to compare with.
    pub peer: Peer,
    /// Numbers of busy processes.
    pub busy: Vec<u32>,
    /// What these do.
    pub kind: Kind,
    /// Operations in flight.
    pub depths: Vec<u32>,
    /// Operations.
    pub ops: Vec<Op>,
    /// How long a sample takes.
    pub time: Duration,
    /// Rounds behind each median.
    pub rounds: usize,
}

/// An operation, 4 KiB of payload, volatile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Payload and its CRC-32C at the end of a file.
    AppendChecksumWrite,
    /// A new file with its content.
    OpenWriteClose,
    /// A record read.
    Read,
    /// Attributes by name.
    Stat,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 4] = [Op::AppendChecksumWrite, Op::OpenWriteClose, Op::Read, Op::Stat];

    /// Name in tables, JSON and `--only`.
    pub fn name(self) -> &'static str {
        match self {
            Op::AppendChecksumWrite => "append_checksum_write",
            Op::OpenWriteClose => "open_write_close",
            Op::Read => "read",
            Op::Stat => "stat",
        }
    }
}

/// Bytes of payload.
const SIZE: usize = 4096;
/// Files and records that are gone through; then what was made is removed outside of the clock.
const ROUND: u64 = 1024;

/// One sample: nanoseconds of each operation, and the processor time of all who took part.
#[derive(Default)]
struct Sample {
    latencies: Vec<u32>,
    cpu: Duration,
}

/// A way to do the operations.
trait System {
    fn name(&self) -> &'static str;
    fn takes(&self, depth: u32) -> bool;
    /// Does `op` for about `time`, at most `depth` in flight.
    fn run(&mut self, op: Op, depth: u32, time: Duration) -> io::Result<Sample>;
}

type Key = (Op, u32, usize, u32);

/// Runs the experiment; `watch` may end it between samples, and the report holds what was measured until then.
///
/// # Errors
/// Those of starting the device and the busy processes, and of operations.
pub fn run(options: &Options, watch: &mut dyn Watch) -> io::Result<BusyReport> {
    watch.at("starting a device process and embedded devices", false);
    let mut systems: Vec<Box<dyn System>> = vec![
        Box::new(host::Host::new(&options.peer)?),
        Box::new(weld::served(&options.program)?),
        Box::new(weld::embedded(&options.program, false)?),
        Box::new(weld::embedded(&options.program, true)?),
    ];
    let cells: usize = systems.iter().map(|s| options.depths.iter().filter(|d| s.takes(**d)).count()).sum();
    let samples = cells * options.ops.len() * options.busy.len() * options.rounds;
    watch.plan(samples as u64, options.time.as_secs_f64() + 0.05);
    let mut all: HashMap<Key, Vec<Figures>> = HashMap::new();
    let mut interrupted = false;
    'all: for _ in 0..options.rounds {
        for &busy in &options.busy {
            let company = Company::start(&options.program, &options.company_args, options.kind, busy)?;
            for (op, depth) in options.ops.iter().flat_map(|op| options.depths.iter().map(|d| (*op, *d))) {
                for (number, system) in systems.iter_mut().enumerate().filter(|(_, s)| s.takes(depth)) {
                    if watch.stop() {
                        interrupted = true;
                        break 'all;
                    }
                    watch.at(&format!("{}, depth {depth}, {busy} busy, {}", op.name(), system.name()), true);
                    let sample = system.run(op, depth, options.time)?;
                    all.entry((op, depth, number, busy)).or_default().push(Figures::of(sample));
                }
            }
            company.end()?;
        }
    }
    let mut rows = Vec::new();
    for (&op, &depth) in options.ops.iter().flat_map(|op| options.depths.iter().map(move |d| (op, d))) {
        for (number, system) in systems.iter().enumerate() {
            let of = |busy: u32| all.get(&(op, depth, number, busy)).map(|rounds| Figures::median(rounds));
            let idle = of(0).map(|f| f.p50);
            rows.extend(options.busy.iter().filter_map(|&busy| {
                let (op, system) = (op.name(), system.name());
                of(busy).map(|figures| Busy {
                    op,
                    depth,
                    system,
                    busy,
                    figures,
                    to_idle: idle.map(|i| figures.p50 / i),
                })
            }));
        }
    }
    let peer = format!("{} ({})", options.peer.name, options.peer.medium);
    Ok(BusyReport::new(Machine::here(), peer, options.kind, interrupted, rows))
}

/// Processor time of a process's threads so far; zero when it is gone, or where the kernel does not say.
fn cpu_of(pid: u32) -> Duration {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let of = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.flatten().filter_map(of).sum())
}

impl Figures {
    fn of(sample: Sample) -> Figures {
        let Sample { mut latencies, cpu } = sample;
        latencies.sort_unstable();
        let n = latencies.len();
        let at = |share: f64| latencies.get(((n as f64 * share) as usize).min(n.saturating_sub(1)));
        let us = |share: f64| at(share).map_or(f64::NAN, |ns| f64::from(*ns) / 1e3);
        let cpu = cpu.as_secs_f64() * 1e6 / n.max(1) as f64;
        Figures { ops: n as u64, p50: us(0.5), p99: us(0.99), p999: us(0.999), cpu }
    }

    fn median(rounds: &[Figures]) -> Figures {
        let of = |get: fn(&Figures) -> f64| median(&rounds.iter().map(get).collect::<Vec<_>>());
        let ops = rounds.iter().map(|f| f.ops).sum();
        Figures { ops, p50: of(|f| f.p50), p99: of(|f| f.p99), p999: of(|f| f.p999), cpu: of(|f| f.cpu) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_latencies_and_rounds_have_a_median() {
        let sample =
            Sample { latencies: (1..=1000).rev().map(|us| us * 1000).collect(), cpu: Duration::from_millis(5) };
        let f = Figures::of(sample);
        assert_eq!((f.ops, f.p50, f.p99, f.p999, f.cpu), (1000, 501.0, 991.0, 1000.0, 5.0));
        let slower = Figures { p50: 900.0, ..f };
        assert_eq!(Figures::median(&[slower, f, f]).p50, 501.0);
        assert!(Figures::of(Sample::default()).p50.is_nan());
    }

    #[test]
    fn processor_time_of_this_process_goes_on() {
        let before = cpu_of(std::process::id());
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(200) {}
        assert!(cpu_of(std::process::id()) > before);
        assert_eq!(cpu_of(u32::MAX), Duration::ZERO);
    }
}
