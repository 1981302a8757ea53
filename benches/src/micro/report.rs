//! Rows as the JSON has them, and the tables made of them.

use super::cell::{Class, MicroOp, Phase};
use super::reasons::reason;
use super::targets::{self, Target};
use crate::chosen::Failed;
use crate::peers::Ground;
use crate::plot::{Chart, Group};
use crate::report::Machine;
use crate::table::{Table, per_op, ratio, whole};
use serde::Serialize;
use std::io;
use std::path::Path;

/// One system in one cell of the matrix.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// "micro".
    pub bench: String,
    /// weldfs-fused, weldfs-unfused, weldfs-embedded, hostdir:NAME, posix:NAME or uring:NAME.
    pub system: String,
    /// The operation.
    pub op: String,
    /// Bytes of payload, record or file.
    pub size: u32,
    /// Operations in flight per thread.
    pub depth: u32,
    /// Client threads.
    pub threads: u32,
    /// Burst or steady.
    pub phase: Phase,
    /// Where the bytes live.
    pub medium: String,
    /// Class.
    pub durability: Class,
    /// Whether what is durable here survives a power cut.
    pub power_safe: bool,
    /// Wall time over operations, all threads together; median of the rounds.
    pub ns_per_op: f64,
    /// 10^9 over `ns_per_op`.
    pub ops_per_s: f64,
    /// Median latency of an operation in its thread; median of the rounds. For uring at depth above 1 that of its
    /// batch.
    pub p50_ns: f64,
    /// 99th percentile; median of the rounds.
    pub p99_ns: f64,
    /// Crossings of the boundary per operation: commands, or system calls.
    pub crossings: f64,
    /// Payload copies across it per operation.
    pub payload_copies: f64,
    /// Copies of names and attributes per operation.
    pub metadata_copies: f64,
    /// System calls of the client per operation.
    pub syscalls: f64,
    /// Bytes across the boundary per operation.
    pub link_bytes: f64,
    /// Flushes, fences or syncs per operation.
    pub flushes: f64,
    /// Operations behind the figures, all rounds.
    pub ops: u64,
    /// Rounds behind the medians.
    pub rounds: usize,
    /// Rounds that began while the machine had other work.
    pub restless: usize,
    /// Checkpoints completed meanwhile, all rounds.
    pub checkpoints: u64,
    /// Log lengths written per round, in the steady phase.
    pub log_lengths: f64,
}

/// How often something was done in a sequence, per operation, from counters.
#[derive(Clone, Debug, Serialize)]
pub struct Sequence {
    /// The operation.
    pub op: String,
    /// The system.
    pub system: String,
    /// Where its bytes live.
    pub medium: String,
    /// Bytes.
    pub size: u32,
    /// Class.
    pub durability: Class,
    /// As in [`Row`].
    pub crossings: f64,
    /// As in [`Row`].
    pub syscalls: f64,
    /// As in [`Row`].
    pub payload_copies: f64,
    /// As in [`Row`].
    pub metadata_copies: f64,
    /// As in [`Row`].
    pub link_bytes: f64,
    /// As in [`Row`].
    pub flushes: f64,
}

/// A directory that was compared with.
#[derive(Clone, Debug, Serialize)]
pub struct PeerRow {
    /// Its name.
    pub name: String,
    /// Its file system.
    pub fs: String,
    /// Where its bytes live.
    pub medium: String,
    /// Whether it lies on a disk; else in RAM, and is compared with emulated pmem.
    pub on_disk: bool,
    /// Whether what is synced there survives a power cut.
    pub power_safe: bool,
}

/// The finished experiment.
#[derive(Debug, Serialize)]
pub struct MicroReport {
    /// Which machine.
    pub machine: Machine,
    /// "release" or "debug".
    pub build: &'static str,
    /// Emulated hardware in force.
    pub profile: String,
    /// Whether this only shows that everything works; its times then mean nothing.
    pub quick: bool,
    /// Directories that were compared with.
    pub peers: Vec<PeerRow>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    /// Whether it was ended before its time; the rows are what was measured until then.
    pub interrupted: bool,
    /// Cells that failed.
    pub failed: Vec<Failed>,
    /// The figures.
    pub rows: Vec<Row>,
    /// Copies, system calls and crossings per sequence.
    pub sequences: Vec<Sequence>,
    /// The aims, and what this run says of them.
    pub targets: Vec<Target>,
}

/// How a run ended.
pub(super) struct Ended {
    /// Before its time.
    pub interrupted: bool,
    pub failed: Vec<Failed>,
    pub skipped: Vec<String>,
}

/// Below this a row gets a line of explanation.
const SLOW: f64 = 0.8;

/// The cell of a row.
type Key = (String, u32, u32, u32, Phase, Class);

impl Row {
    pub(super) fn key(&self) -> Key {
        (self.op.clone(), self.size, self.depth, self.threads, self.phase, self.durability)
    }
}

impl MicroReport {
    pub(super) fn new(
        machine: Machine,
        quick: bool,
        peers: Vec<(String, Ground)>,
        ended: Ended,
        rows: Vec<Row>,
    ) -> MicroReport {
        let peer = |(name, ground): (String, Ground)| PeerRow {
            name,
            medium: ground.describe(),
            on_disk: ground.on_disk(),
            power_safe: ground.power_safe(),
            fs: ground.fs,
        };
        let profile = "default (no modelled delay)".to_owned();
        let peers = peers.into_iter().map(peer).collect();
        let build = machine.build;
        let (sequences, targets) = (Vec::new(), Vec::new());
        let Ended { interrupted, failed, skipped } = ended;
        let mut r = MicroReport {
            machine,
            build,
            profile,
            quick,
            peers,
            skipped,
            interrupted,
            failed,
            rows,
            sequences,
            targets,
        };
        r.sequences = r.count_sequences();
        r.targets = targets::evaluate(&r);
        r
    }

    /// The cells, each once, in the order of the rows.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        for row in &self.rows {
            let key = row.key();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// A WeldFS row on the medium that is this peer's equal: a disk image for a disk, else emulated pmem.
    pub(super) fn ours(&self, key: &Key, system: &str, peer: &PeerRow) -> Option<&Row> {
        self.of_medium(key, system, peer.on_disk)
    }

    /// A system's row on a disk, or on what is in RAM.
    fn of_medium(&self, key: &Key, system: &str, on_disk: bool) -> Option<&Row> {
        let is_there = |r: &Row| r.medium.contains("disk") == on_disk;
        self.rows.iter().find(|r| r.system == system && r.key() == *key && is_there(r))
    }

    /// The host's row of a kind ("posix", "uring", "hostdir") on a peer. Plain calls have one depth only: theirs stands
    /// for every depth.
    pub(super) fn theirs(&self, key: &Key, kind: &str, peer: &PeerRow) -> Option<&Row> {
        let system = format!("{kind}:{}", peer.name);
        let mut key = key.clone();
        if kind == "posix" {
            key.2 = 1;
        }
        self.rows.iter().find(|r| r.system == system && r.key() == key)
    }

    /// The host's better way on a peer.
    pub(super) fn best(&self, key: &Key, peer: &PeerRow) -> Option<&Row> {
        let both = [self.theirs(key, "posix", peer), self.theirs(key, "uring", peer)];
        both.into_iter().flatten().min_by(|a, b| a.ns_per_op.total_cmp(&b.ns_per_op))
    }

    /// How many times faster than the peer's better way a system of ours is; NaN where either is missing.
    pub(super) fn times(&self, key: &Key, system: &str, peer: &PeerRow) -> f64 {
        match (self.best(key, peer), self.ours(key, system, peer)) {
            (Some(theirs), Some(ours)) => theirs.ns_per_op / ours.ns_per_op,
            _ => f64::NAN,
        }
    }

    fn count_sequences(&self) -> Vec<Sequence> {
        let ops = [MicroOp::ReadModifyWrite, MicroOp::AppendChecksumWrite, MicroOp::OpenWriteClose];
        let mut all = Vec::new();
        for (op, class) in ops.iter().flat_map(|op| [(op, Class::Volatile), (op, Class::Durable)]) {
            let of = |r: &&Row| {
                r.op == op.name() && r.durability == class && r.depth == 1 && r.threads == 1 && r.phase == Phase::Burst
            };
            let sizes: Vec<u32> = self.rows.iter().filter(of).map(|r| r.size).collect();
            let Some(size) = sizes.iter().find(|s| **s == 4096).or(sizes.first()) else { continue };
            all.extend(self.rows.iter().filter(of).filter(|r| r.size == *size).map(|r| Sequence {
                op: r.op.clone(),
                system: r.system.clone(),
                medium: r.medium.clone(),
                size: r.size,
                durability: r.durability,
                crossings: r.crossings,
                syscalls: r.syscalls,
                payload_copies: r.payload_copies,
                metadata_copies: r.metadata_copies,
                link_bytes: r.link_bytes,
                flushes: r.flushes,
            }));
        }
        all
    }

    /// Everything for people, or as Markdown for a document.
    pub fn text(&self, markdown: bool) -> String {
        let m = &self.machine;
        let mut text = format!(
            "{} ({} cores), kernel {}, {} build, profile {}\n",
            m.cpu, m.cores, m.kernel, m.build, self.profile
        );
        if self.quick {
            text.push_str("quick: shows that everything works; the times mean nothing\n");
        }
        self.skipped.iter().for_each(|s| text.push_str(&format!("skipped: {s}\n")));
        self.failed.iter().for_each(|f| text.push_str(&f.line()));
        if self.interrupted {
            text.push_str("interrupted: what was measured until then\n");
        }
        let restless: usize = self.rows.iter().map(|r| r.restless).sum();
        if restless > 0 {
            let all: usize = self.rows.iter().map(|r| r.rounds).sum();
            text.push_str(&format!("{restless} of {all} samples began while the machine had other work\n"));
        }
        for (what, table) in
            [(NS, self.cells_table()), (SEQUENCES, self.sequences_table()), (TARGETS, targets::table(&self.targets))]
        {
            if !table.is_empty() {
                text.push_str(&format!("\n{what}\n\n{}", table.render(markdown)));
            }
        }
        let slow = self.slow();
        if !slow.is_empty() {
            text.push_str(&format!("\nBelow {SLOW}x of the host's better way:\n\n"));
            slow.iter().for_each(|line| text.push_str(&format!("* {line}\n")));
        }
        text
    }

    /// Copies, system calls and crossings only.
    pub fn sequences_text(&self, markdown: bool) -> String {
        format!("{SEQUENCES}\n\n{}", self.sequences_table().render(markdown))
    }

    fn cells_table(&self) -> Table {
        let mut head: Vec<String> =
            ["op", "size", "depth", "threads", "phase", "class", "place", "fused", "unfused", "embedded"]
                .map(String::from)
                .into();
        for p in &self.peers {
            head.extend(["plain", "uring", "hostdir"].map(|kind| format!("{} {kind}", p.name)));
            head.push(format!("fused over {}", p.name));
        }
        let mut table = Table::new(head);
        let ns = |row: Option<&Row>| row.map_or_else(|| "-".into(), |r| whole(r.ns_per_op));
        for key in self.keys() {
            let (op, size, depth, threads, phase, class) = &key;
            // Two lines where a disk is measured as well: each medium with its equals.
            for on_disk in [false, true] {
                let of = |system: &str| self.of_medium(&key, system, on_disk);
                let ours = ["weldfs-fused", "weldfs-unfused", "weldfs-embedded"].map(of);
                let equals = |p: &PeerRow| p.on_disk == on_disk;
                let theirs = |p: &PeerRow, kind: &str| self.theirs(&key, kind, p).filter(|_| equals(p));
                let any = |p: &PeerRow| ["posix", "uring", "hostdir"].iter().any(|kind| theirs(p, kind).is_some());
                if ours.iter().all(Option::is_none) && !self.peers.iter().any(any) {
                    continue;
                }
                let mut line = vec![op.clone(), size.to_string(), depth.to_string(), threads.to_string()];
                line.extend([phase.name(), class.name(), if on_disk { "disk" } else { "RAM" }].map(String::from));
                line.extend(ours.map(ns));
                for p in &self.peers {
                    line.extend(["posix", "uring", "hostdir"].map(|kind| ns(theirs(p, kind))));
                    line.push(ratio(if equals(p) { self.times(&key, "weldfs-fused", p) } else { f64::NAN }));
                }
                table.line(line);
            }
        }
        table
    }

    fn sequences_table(&self) -> Table {
        let head = ["sequence", "class", "system", "medium", "crossings", "system calls", "payload copies"];
        let mut table = Table::new(head.into_iter().chain(["name copies", "bytes across", "flushes"]));
        for s in &self.sequences {
            let class = s.durability.name().to_owned();
            let text = [format!("{} {}", s.op, s.size), class, s.system.clone(), s.medium.clone()];
            let counts = [s.crossings, s.syscalls, s.payload_copies, s.metadata_copies, s.link_bytes, s.flushes];
            table.line(text.into_iter().chain(counts.map(per_op)));
        }
        table
    }

    /// A line for each row that is slower than the host, with its reason.
    fn slow(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (key, peer) in self.keys().iter().flat_map(|k| self.peers.iter().map(move |p| (k, p))) {
            let times = self.times(key, "weldfs-fused", peer);
            if times < SLOW {
                let (op, size, depth, threads, phase, class) = key;
                lines.push(format!(
                    "{op} {size} B, depth {depth}, {threads} thread(s), {}, {}: {} of {}: {}",
                    phase.name(),
                    class.name(),
                    ratio(times),
                    peer.name,
                    reason(key, peer, &self.machine)
                ));
            }
        }
        lines
    }
}

const NS: &str = "Nanoseconds per operation, medians of interleaved rounds; plain calls have one depth, which stands \
                  for all; ratios are over the host's better way";
const SEQUENCES: &str = "Per sequence, counted: by the device for WeldFS, where the call is made for the host";
const TARGETS: &str = "Aims, computed from this run (volatile with volatile, durable with durable)";

impl MicroReport {
    /// Writes plots into `dir`, which is made if it is not there: for every operation and class microseconds by size of
    /// every system at depth 1, and for every peer the factors at 4 KiB.
    pub fn plot(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let burst = |r: &&Row| r.phase == Phase::Burst && r.threads == 1;
        for op in MicroOp::ALL {
            for class in [Class::Volatile, Class::Durable] {
                let of = |r: &&Row| burst(r) && r.depth == 1 && r.op == op.name() && r.durability == class;
                let rows: Vec<&Row> = self.rows.iter().filter(of).collect();
                if !rows.is_empty() {
                    let title = format!("{}, {}, depth 1, one thread", op.name(), class.name());
                    let chart = by_size(&title, &rows);
                    std::fs::write(dir.join(format!("micro-{}-{}.svg", op.name(), class.name())), chart.svg())?;
                }
            }
        }
        for (peer, class) in self.peers.iter().flat_map(|p| [(p, Class::Volatile), (p, Class::Durable)]) {
            if let Some(chart) = self.factors(peer, class) {
                std::fs::write(dir.join(format!("micro-over-{}-{}.svg", peer.name, class.name())), chart.svg())?;
            }
        }
        Ok(())
    }

    fn factors(&self, peer: &PeerRow, class: Class) -> Option<Chart> {
        let systems = [("fused", "weldfs-fused", 1), ("fused, pipelined", "weldfs-fused", 32)];
        let more = [("unfused", "weldfs-unfused", 1), ("embedded", "weldfs-embedded", 1)];
        let all: Vec<_> = systems.into_iter().chain(more).collect();
        let group = |op: MicroOp| {
            let of = |&(_, system, depth): &(&str, &str, u32)| {
                self.times(&(op.name().to_owned(), 4096, depth, 1, Phase::Burst, class), system, peer)
            };
            let values: Vec<f64> = all.iter().map(of).collect();
            let name = op.name().split('_').map(|word| &word[..1]).collect::<String>();
            let name = if name.len() > 1 { name } else { op.name().to_owned() };
            Group { name, about: String::new(), due: vec![1.0; values.len()], values }
        };
        let groups: Vec<Group> = MicroOp::ALL.into_iter().filter(|op| !op.is_variant()).map(group).collect();
        let groups: Vec<Group> = groups.into_iter().filter(|g| g.values.iter().any(|v| v.is_finite())).collect();
        (!groups.is_empty()).then(|| Chart::Bars {
            title: format!("4 KiB, {}: times faster than {} ({})", class.name(), peer.name, peer.medium),
            y: "times".into(),
            series: all.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            groups,
        })
    }
}

/// Microseconds of every system by size.
fn by_size(title: &str, rows: &[&Row]) -> Chart {
    let (mut sizes, mut systems) = (Vec::new(), Vec::new());
    for row in rows {
        if !sizes.contains(&row.size) {
            sizes.push(row.size);
        }
        if !systems.contains(&row.system) {
            systems.push(row.system.clone());
        }
    }
    let value = |size: u32, system: &String| {
        let row = rows.iter().find(|r| r.size == size && r.system == *system);
        row.map_or(f64::NAN, |r| r.ns_per_op / 1000.0)
    };
    let group = |size: &u32| {
        let values: Vec<f64> = systems.iter().map(|s| value(*size, s)).collect();
        Group { name: format!("{size} B"), about: String::new(), due: vec![f64::NAN; values.len()], values }
    };
    let groups = sizes.iter().map(group).collect();
    Chart::Bars { title: title.to_owned(), y: "microseconds per operation".into(), series: systems, groups }
}
