//! Rows of `engines`, and the tables and plots made of them.

use super::plan::{Cell, Workload};
use super::systems::{System, Systems, Way};
use super::{Options, Sample, verdicts};
use crate::chosen::Failed;
use crate::micro::report::PeerRow;
use crate::micro::targets::{self, Target};
use crate::plot::{Chart, Group};
use crate::report::{Machine, median};
use crate::table::{Table, per_op, ratio, whole};
use serde::Serialize;
use std::io;
use std::path::Path;

/// One system in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// rocksdb, leveldb or sqlite.
    pub engine: &'static str,
    /// The engine's name and version, as its driver says.
    pub version: String,
    /// The workload.
    pub workload: &'static str,
    /// Bytes of a value.
    pub value: u64,
    /// Threads.
    pub threads: u32,
    /// SQLite's journal mode; else empty.
    pub journal: &'static str,
    /// Whether checksums were handed to the file system.
    pub handoff: bool,
    /// inline, served, preload, or the name of the peer.
    pub system: String,
    /// inline, served, preload or host.
    pub way: &'static str,
    /// pmem or block, or the file system.
    pub kind: String,
    /// Where the bytes live, in words.
    pub medium: String,
    /// "ram" or "disk".
    pub ground: &'static str,
    /// Number of the disk.
    pub disk: Option<u64>,
    /// "durable" where what is written is when the call returns, else "volatile".
    pub durability: &'static str,
    /// Whether what is durable here survives a power cut.
    pub power_safe: bool,
    /// Operations (transactions) per second, all threads together: median of the rounds, the least and the most.
    pub ops_per_s: f64,
    /// The least of the rounds.
    pub ops_per_s_min: f64,
    /// The most of the rounds.
    pub ops_per_s_max: f64,
    /// Over ext4 on the same medium; none where there is none.
    pub to_ext4: Option<f64>,
    /// Latencies of an operation, median of the rounds.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p999_ns: f64,
    /// Flush requests to the disk per operation, of all that used the disk; none where it is not counted.
    pub disk_flushes: Option<f64>,
    /// Bytes written to the disk per operation, of all that used the disk.
    pub disk_bytes: Option<f64>,
    /// Flushes of the device's log per operation; none where there is no device, or where it is that of `weldfs run`.
    pub device_flushes: Option<f64>,
    /// Bytes of the device's log per operation.
    pub device_log_bytes: Option<f64>,
    /// Commands to the device per operation.
    pub device_commands: Option<f64>,
    /// Bytes that the device wrote to its medium per operation: log, data and checkpoints.
    pub device_bytes: Option<f64>,
    /// Bytes of keys and values per operation, read or written.
    pub payload_bytes: f64,
    /// Bytes of keys and values that were written, per operation.
    pub written_bytes: f64,
    /// Bytes that reached the medium over those: of the disk where these are counted, else of the device.
    pub write_amplification: Option<f64>,
    /// Whose bytes these are: "disk" or "device"; empty where there are none.
    pub amplified_by: &'static str,
    /// Operations behind the figures, all rounds.
    pub ops: u64,
    /// Values that were read and found right, all rounds.
    pub verified: u64,
    /// Rounds behind the medians.
    pub rounds: usize,
    /// Rounds that ended because their time was over, before all of their operations were done.
    pub ended_by_time: usize,
    /// Rounds that began while the machine had other work.
    pub restless: usize,
}

impl Row {
    /// The cell but for the checksums: rows that are compared have the same.
    pub(super) fn key(&self) -> (&'static str, &'static str, u64, u32, &'static str) {
        (self.engine, self.workload, self.value, self.threads, self.journal)
    }

    /// The system.
    pub(super) fn place(&self) -> (&str, &str, &str, Option<u64>) {
        (&self.system, &self.kind, self.ground, self.disk)
    }

    /// The system, for people.
    pub(super) fn on(&self) -> String {
        let image = if self.way == "host" { "" } else { &self.kind };
        format!("{} {image}", self.system).trim_end().to_owned()
    }

    /// The cell and its system, for people.
    pub(super) fn describe(&self) -> String {
        let journal = if self.journal.is_empty() { String::new() } else { format!(", {}", self.journal) };
        let handoff = if self.handoff { ", checksums handed over" } else { "" };
        let (threads, on) = (self.threads, self.on());
        format!("{} {}, {} B, {threads} thread(s){journal}{handoff}, {on}", self.engine, self.workload, self.value)
    }
}

/// The samples of one system in one cell.
#[derive(Default)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    pub(super) fn add(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    pub(super) fn row(&self, cell: &Cell, system: &System) -> Row {
        let of = |get: &dyn Fn(&Sample) -> f64| self.0.iter().map(get).collect::<Vec<_>>();
        let rates = of(&|s| s.answer.operations as f64 / s.answer.seconds);
        let ops: u64 = self.0.iter().map(|s| s.answer.operations).sum();
        // All of the rounds together: what is counted now and then would be in one of them only.
        let per = |get: &dyn Fn(&Sample) -> Option<u64>| {
            let all: Option<Vec<u64>> = self.0.iter().map(get).collect();
            all.map(|all| all.iter().sum::<u64>() as f64 / ops.max(1) as f64)
        };
        // What is volatile reaches the disk when it likes, mostly after the clock has stopped.
        let counted = cell.workload.durable();
        let disk =
            |get: &dyn Fn(&super::count::Disk) -> u64| per(&|s| s.cost.disk.as_ref().map(get)).filter(|_| counted);
        let device = |get: &dyn Fn(&crate::micro::sample::Counts) -> u64| per(&|s| s.cost.device.as_ref().map(get));
        let host = system.way == Way::Host;
        let (disk_bytes, device_bytes) = (disk(&|d| d.written), device(&|c| c.medium_bytes));
        let written_bytes = per(&|s| Some(s.answer.written)).unwrap_or(0.0);
        let (write_amplification, amplified_by) = amplification(disk_bytes, device_bytes, written_bytes);
        Row {
            engine: cell.engine.name(),
            version: self.0.first().map(|s| s.answer.engine.clone()).unwrap_or_default(),
            workload: cell.workload.name(),
            value: cell.value,
            threads: cell.threads,
            journal: cell.journal,
            handoff: cell.handoff,
            system: system.name.clone(),
            way: system.way.name(),
            kind: system.kind.clone(),
            medium: if host { system.medium.clone() } else { format!("{}, {}", system.kind, system.medium) },
            ground: if system.disk.is_some() { "disk" } else { "ram" },
            disk: system.disk,
            durability: if counted { "durable" } else { "volatile" },
            power_safe: system.power_safe,
            ops_per_s: median(&rates),
            ops_per_s_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
            ops_per_s_max: rates.iter().copied().fold(0.0, f64::max),
            to_ext4: None,
            p50_ns: median(&of(&|s| s.answer.p50_ns)),
            p99_ns: median(&of(&|s| s.answer.p99_ns)),
            p999_ns: median(&of(&|s| s.answer.p999_ns)),
            disk_flushes: disk(&|d| d.flushes),
            disk_bytes,
            device_flushes: device(&|c| c.flushes),
            device_log_bytes: device(&|c| c.log_bytes),
            device_commands: device(&|c| c.crossings),
            device_bytes,
            payload_bytes: per(&|s| Some(s.answer.bytes)).unwrap_or(0.0),
            written_bytes,
            write_amplification,
            amplified_by,
            ops,
            verified: self.0.iter().map(|s| s.answer.verified).sum(),
            rounds: self.0.len(),
            ended_by_time: self.0.iter().filter(|s| s.answer.ended_by_time).count(),
            restless: self.0.iter().filter(|s| s.restless).count(),
        }
    }
}

/// Bytes of the medium over those of keys and values, and whose count they are. The disk's have what the device's own
/// may lack: the rest of a page, and what other programs wrote.
fn amplification(disk: Option<f64>, device: Option<f64>, written: f64) -> (Option<f64>, &'static str) {
    match (disk, device) {
        _ if written <= 0.0 => (None, ""),
        (Some(bytes), _) => (Some(bytes / written), "disk"),
        (None, Some(bytes)) => (Some(bytes / written), "device"),
        (None, None) => (None, ""),
    }
}

/// The finished experiment.
#[derive(Debug, Serialize)]
pub struct EnginesReport {
    /// Which machine.
    pub machine: Machine,
    /// Emulated hardware in force.
    pub profile: &'static str,
    /// Whether this only shows that everything works; its figures then mean nothing.
    pub quick: bool,
    /// Busy processes that ran beside it.
    pub busy: u32,
    /// How long a sample takes at most, seconds.
    pub seconds: f64,
    /// Bytes of a set, about.
    pub set: u64,
    /// Bytes of an engine's own cache.
    pub cache: u64,
    /// Directories that were compared with.
    pub peers: Vec<PeerRow>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    /// Whether it was ended before its time; the rows are what was measured until then.
    pub interrupted: bool,
    /// Engines without a driver, and cells that failed.
    pub failed: Vec<Failed>,
    /// The figures.
    pub rows: Vec<Row>,
    /// The aims, and what this run says of them.
    pub targets: Vec<Target>,
}

/// Bars of a plot: its name, the workloads, and whether these have values of several sizes.
const PLOTS: [(&str, &str, &[Workload]); 3] = [
    ("db_bench", "writes", &[Workload::FillSeq, Workload::FillRandom, Workload::FillSync, Workload::Overwrite]),
    ("db_bench", "reads", &[Workload::ReadRandom, Workload::SeekRandom, Workload::ReadWhileWriting]),
    (
        "YCSB",
        "ycsb",
        &[Workload::YcsbA, Workload::YcsbB, Workload::YcsbC, Workload::YcsbD, Workload::YcsbE, Workload::YcsbF],
    ),
];
const TRANSACTIONS: [Workload; 3] = [Workload::OneRow, Workload::HundredRows, Workload::Mixed];

impl EnginesReport {
    pub(super) fn new(
        machine: Machine,
        o: &Options,
        systems: &Systems,
        interrupted: bool,
        failed: Vec<Failed>,
        mut rows: Vec<Row>,
    ) -> EnginesReport {
        let ratios: Vec<Option<f64>> =
            rows.iter().map(|r| verdicts::ext4(&rows, r).map(|peer| r.ops_per_s / peer.ops_per_s)).collect();
        rows.iter_mut().zip(ratios).for_each(|(row, ratio)| row.to_ext4 = ratio);
        let peer = |(peer, ground): &(crate::peers::Peer, crate::peers::Ground)| PeerRow {
            name: peer.name.clone(),
            fs: ground.fs.clone(),
            medium: ground.describe(),
            on_disk: ground.on_disk(),
            power_safe: ground.power_safe(),
        };
        let mut skipped = systems.skipped.clone();
        let preload = rows.iter().any(|r| r.way == "preload" && r.engine == "sqlite");
        if preload && o.plan.journals.contains(&"wal") {
            let why = "its index is shared memory (docs/PRELOAD.md), that of wal-exclusive is not";
            skipped.push(format!("SQLite with wal through preload: {why}"));
        }
        EnginesReport {
            machine,
            profile: "default (no modelled delay)",
            quick: o.quick,
            busy: o.busy,
            seconds: o.time.as_secs_f64(),
            set: o.plan.bytes(),
            cache: o.cache,
            peers: systems.peers.iter().map(peer).collect(),
            skipped,
            interrupted,
            failed,
            targets: if o.quick { Vec::new() } else { verdicts::verdicts(&rows, o.busy) },
            rows,
        }
    }

    /// The tables, in columns or as Markdown.
    pub fn text(&self, markdown: bool) -> String {
        let m = &self.machine;
        let mut text = format!("{} ({} cores), kernel {}, {} build, ", m.cpu, m.cores, m.kernel, m.build);
        let (set, cache) = (self.set >> 10, self.cache >> 10);
        text += &format!("profile {}; sets of about {set} KiB, engines' caches of {cache} KiB\n", self.profile);
        text += "flushes and bytes of a disk are of all that used it meanwhile; amplification is bytes of the disk, \
                 or where these are not counted of the device (d), over those of keys and values that were written\n";
        if self.busy > 0 {
            text += &format!("{} busy process(es) beside it\n", self.busy);
        }
        if self.quick {
            text += "quick: shows that everything works; the figures mean nothing\n";
        }
        let mut engines: Vec<&str> = self.rows.iter().map(|r| r.engine).collect();
        engines.dedup();
        for engine in engines {
            let rows: Vec<&Row> = self.rows.iter().filter(|r| r.engine == engine).collect();
            let mut versions: Vec<&str> = Vec::new();
            for row in &rows {
                if !versions.contains(&row.version.as_str()) {
                    versions.push(&row.version);
                }
            }
            text += &format!("\n{}\n\n{}", versions.join("; "), table(&rows).render(markdown));
        }
        if !self.targets.is_empty() {
            text += &format!("\n{}", targets::table(&self.targets).render(markdown));
        }
        text.push('\n');
        self.skipped.iter().for_each(|s| text += &format!("not measured: {s}\n"));
        self.failed.iter().for_each(|f| text += &f.line());
        if self.interrupted {
            text += "ended before its time: the figures are of what was measured until then\n";
        }
        text
    }

    /// Writes plots of every engine, ground and number of threads into `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// Those of writing files.
    pub fn plot(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let mut seen: Vec<(&str, &str, u32, u64)> = Vec::new();
        for row in self.rows.iter().filter(|r| r.to_ext4.is_some() && r.way != "host") {
            let key = (row.engine, row.ground, row.threads, row.value);
            if seen.contains(&key) {
                continue;
            }
            seen.push(key);
            let sqlite: [(&str, &str, &[Workload]); 1] = [("transactions", "transactions", &TRANSACTIONS)];
            for (title, file, workloads) in if row.engine == "sqlite" { &sqlite[..] } else { &PLOTS[..] } {
                let name = format!("engines-{}-{}-{file}-{}-{}.svg", key.0, key.1, key.3, key.2);
                if let Some(chart) = self.chart(key, title, workloads) {
                    std::fs::write(dir.join(name), chart.svg())?;
                }
            }
        }
        Ok(())
    }

    fn chart(&self, key: (&str, &str, u32, u64), title: &str, workloads: &[Workload]) -> Option<Chart> {
        let (engine, ground, threads, value) = key;
        let of = |r: &&Row| {
            (r.engine, r.ground, r.threads, r.value) == key
                && !r.handoff
                && r.to_ext4.is_some()
                && workloads.iter().any(|w| w.name() == r.workload)
        };
        let rows: Vec<&Row> = self.rows.iter().filter(of).collect();
        let mut series: Vec<String> = Vec::new();
        let mut bars: Vec<(&str, &str)> = Vec::new();
        for row in &rows {
            if !series.contains(&row.on()) {
                series.push(row.on());
            }
            if !bars.contains(&(row.workload, row.journal)) {
                bars.push((row.workload, row.journal));
            }
        }
        let ratio_of = |bar: &(&str, &str), name: &String| {
            let found = rows.iter().find(|r| (r.workload, r.journal) == *bar && r.on() == *name);
            found.and_then(|r| r.to_ext4).unwrap_or(f64::NAN)
        };
        let groups: Vec<Group> = bars
            .iter()
            .map(|bar| Group {
                name: bar.0.to_owned(),
                about: bar.1.to_owned(),
                values: series.iter().map(|name| ratio_of(bar, name)).collect(),
                due: vec![f64::NAN; series.len()],
            })
            .collect();
        let about = if ground == "ram" { "in RAM" } else { "on a disk" };
        let title = format!("{engine}, {title}, values of {value} bytes, {threads} thread(s), {about}");
        (!groups.is_empty()).then(|| Chart::Bars { title, y: "times ext4".into(), series, groups })
    }
}

const HEAD: [&str; 19] = [
    "workload",
    "bytes",
    "threads",
    "system",
    "medium",
    "class",
    "power-safe",
    "op/s",
    "least",
    "most",
    "to ext4",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "flushes/op",
    "KiB/op",
    "device flushes/op",
    "log B/op",
    "amplification",
];

fn table(rows: &[&Row]) -> Table {
    let mut table = Table::new(HEAD);
    for r in rows {
        let us = |ns: f64| format!("{:.1}", ns / 1e3);
        let per = |v: Option<f64>| per_op(v.unwrap_or(f64::NAN));
        let mark = if r.amplified_by == "device" { " d" } else { "" };
        let amplified = r.write_amplification.map_or_else(|| "-".into(), |a| format!("{a:.1}{mark}"));
        let parts = [r.workload, r.journal, if r.handoff { "handoff" } else { "" }];
        let name = parts.iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join(", ");
        table.line([
            name,
            r.value.to_string(),
            r.threads.to_string(),
            r.system.clone(),
            r.medium.clone(),
            r.durability.to_owned(),
            if r.power_safe { "yes" } else { "no" }.to_owned(),
            whole(r.ops_per_s),
            whole(r.ops_per_s_min),
            whole(r.ops_per_s_max),
            ratio(r.to_ext4.unwrap_or(f64::NAN)),
            us(r.p50_ns),
            us(r.p99_ns),
            us(r.p999_ns),
            per(r.disk_flushes),
            r.disk_bytes.map_or_else(|| "-".into(), |b| format!("{:.1}", b / 1024.0)),
            per(r.device_flushes),
            whole(r.device_log_bytes.unwrap_or(f64::NAN)),
            amplified,
        ]);
    }
    table
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row in RAM, of one thread and 100 bytes.
    pub(crate) fn row(
        engine: &'static str,
        workload: &'static str,
        way: &'static str,
        kind: &str,
        ops_per_s: f64,
    ) -> Row {
        Row {
            engine,
            version: "E 1.0".into(),
            workload,
            value: 100,
            threads: 1,
            journal: "",
            handoff: false,
            system: if way == "host" { kind } else { way }.to_owned(),
            way,
            kind: kind.to_owned(),
            medium: "RAM".into(),
            ground: "ram",
            disk: None,
            durability: "durable",
            power_safe: false,
            ops_per_s,
            ops_per_s_min: ops_per_s,
            ops_per_s_max: ops_per_s,
            to_ext4: None,
            p50_ns: 1500.0,
            p99_ns: 2500.0,
            p999_ns: 3500.0,
            disk_flushes: Some(1.0),
            disk_bytes: Some(4096.0),
            device_flushes: None,
            device_log_bytes: None,
            device_commands: None,
            device_bytes: None,
            payload_bytes: 116.0,
            written_bytes: 116.0,
            write_amplification: Some(4096.0 / 116.0),
            amplified_by: "disk",
            ops: 10,
            verified: 10,
            rounds: 1,
            ended_by_time: 0,
            restless: 0,
        }
    }

    fn report(rows: Vec<Row>) -> EnginesReport {
        EnginesReport {
            machine: Machine::here(),
            profile: "none",
            quick: false,
            busy: 0,
            seconds: 1.0,
            set: 1 << 20,
            cache: 1 << 16,
            peers: Vec::new(),
            skipped: vec!["xfs: mkfs.xfs is not installed".into()],
            interrupted: true,
            failed: vec![Failed { system: "served".into(), cell: "fillseq".into(), error: "no space".into() }],
            targets: verdicts::verdicts(&rows, 0),
            rows,
        }
    }

    #[test]
    fn a_report_names_what_is_missing_and_what_failed() {
        let mut rows = vec![
            row("leveldb", "fillsync", "inline", "pmem", 900.0),
            row("leveldb", "fillsync", "host", "ext4", 100.0),
        ];
        rows[0].to_ext4 = Some(9.0);
        let text = report(rows).text(false);
        for part in
            ["E 1.0", "9.00x", "35.3", "not measured: xfs", "FAILED: served: fillseq: no space", "ended before", "met"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn amplification_is_of_the_disk_s_bytes_else_of_the_device_s() {
        assert_eq!(amplification(Some(4096.0), Some(512.0), 128.0), (Some(32.0), "disk"));
        assert_eq!(amplification(None, Some(512.0), 128.0), (Some(4.0), "device"));
        assert_eq!(amplification(None, None, 128.0), (None, ""));
        assert_eq!(amplification(Some(4096.0), None, 0.0), (None, ""), "nothing but reads");
    }

    #[test]
    fn an_engine_of_two_versions_has_both_above_its_table() {
        let other = Row { version: "E 2.0".into(), ..row("sqlite", "one-row", "inline", "pmem", 900.0) };
        let text = report(vec![row("sqlite", "one-row", "inline", "pmem", 900.0), other.clone(), other]).text(false);
        assert!(text.contains("\nE 1.0; E 2.0\n"), "{text}");
    }

    #[test]
    fn bars_are_ratios_to_ext4_and_a_run_without_has_no_plot() {
        let mut with = row("leveldb", "fillsync", "inline", "pmem", 900.0);
        with.to_ext4 = Some(9.0);
        let dir = tempfile::tempdir().expect("a folder");
        let plots = |rows| {
            report(rows).plot(dir.path()).expect("written");
            std::fs::read_dir(dir.path()).expect("a folder").flatten().map(|e| e.file_name()).collect::<Vec<_>>()
        };
        assert!(plots(vec![row("leveldb", "fillsync", "inline", "pmem", 900.0)]).is_empty());
        assert_eq!(plots(vec![with]), ["engines-leveldb-ram-writes-100-1.svg"]);
    }
}
