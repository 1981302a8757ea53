//! Rows as the JSON has them, and the tables made of them.

use super::personality::Personality;
use super::{Bench, Ended, Options};
use crate::chosen::Failed;
use crate::micro::report::PeerRow;
use crate::micro::targets::{self, Target, geometric_mean};
use crate::peers::{Ground, Peer};
use crate::plot::{Chart, Group};
use crate::report::Machine;
use crate::table::{Table, per_op, ratio, whole};
use serde::Serialize;
use std::io;
use std::path::Path;

/// One system in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// "macro".
    pub bench: String,
    /// weldfs-fused, weldfs-unfused, posix:NAME or uring:NAME.
    pub system: String,
    /// The server.
    pub personality: String,
    /// Threads.
    pub threads: u32,
    /// Where the bytes live.
    pub medium: String,
    /// "durable" where the server syncs (its syncs, not its other steps), else "volatile".
    pub durability: String,
    /// Whether what is synced here survives a power cut.
    pub power_safe: bool,
    /// Filebench's operations per second, all threads together; median of the repeats.
    pub ops_per_s: f64,
    /// 10^9 over `ops_per_s`.
    pub ns_per_op: f64,
    /// Median time of one turn of a thread; median of the repeats.
    pub turn_p50_ns: f64,
    /// 99th percentile; median of the repeats.
    pub turn_p99_ns: f64,
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
    /// Part of the operations that went in fused commands.
    pub fused_share: f64,
    /// Which, and how often in a turn.
    pub fused_commands: String,
    /// Operations behind the figures, all repeats.
    pub ops: u64,
    /// Repeats behind the medians.
    pub repeats: usize,
    /// Repeats that began while the machine had other work.
    pub restless: usize,
    /// Bytes of the files at the start.
    pub data_bytes: u64,
}

/// The finished experiment.
#[derive(Debug, Serialize)]
pub struct MacroReport {
    /// Which machine.
    pub machine: Machine,
    /// "release" or "debug".
    pub build: &'static str,
    /// Emulated hardware in force.
    pub profile: String,
    /// Whether this only shows that everything works; its figures then mean nothing.
    pub quick: bool,
    /// Seconds of a cell.
    pub seconds: f64,
    /// Bytes of the files that exist at the start, about.
    pub set: u64,
    /// Where the random numbers started.
    pub seed: u64,
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
    /// The aims, and what this run says of them.
    pub targets: Vec<Target>,
}

/// Aims: the best row over ext4; the mean over the servers at every number of threads, and at one thread.
const BEST: f64 = 5.09;
const MEAN: f64 = 2.0;
const MEAN_OF_ONE: f64 = 3.0;

impl MacroReport {
    pub(super) fn new(machine: Machine, o: &Options, bench: &Bench, ended: Ended, rows: Vec<Row>) -> MacroReport {
        let peer = |(peer, ground): &(Peer, Ground)| PeerRow {
            name: peer.name.clone(),
            fs: ground.fs.clone(),
            medium: ground.describe(),
            on_disk: ground.on_disk(),
            power_safe: ground.power_safe(),
        };
        let mut report = MacroReport {
            build: machine.build,
            machine,
            profile: "default (no modelled delay)".into(),
            quick: o.quick,
            seconds: o.seconds,
            set: o.set,
            seed: o.seed,
            peers: bench.peers.iter().map(peer).collect(),
            skipped: bench.skipped.clone(),
            interrupted: ended.interrupted,
            failed: ended.failed,
            rows,
            targets: Vec::new(),
        };
        report.targets = report.evaluate();
        report
    }

    fn row(&self, personality: &str, threads: u32, system: &str, on_disk: bool) -> Option<&Row> {
        let same = |r: &&Row| r.personality == personality && r.threads == threads && r.system == system;
        self.rows.iter().find(|r| same(r) && r.medium.contains("disk") == on_disk)
    }

    /// Operations per second of a peer's better way.
    fn best(&self, personality: &str, threads: u32, peer: &PeerRow) -> f64 {
        let of = |kind: &str| self.row(personality, threads, &format!("{kind}:{}", peer.name), peer.on_disk);
        ["posix", "uring"].into_iter().filter_map(of).map(|r| r.ops_per_s).fold(f64::NAN, f64::max)
    }

    /// How many times more a system of ours does than a peer's better way, on the same kind of medium.
    fn times(&self, personality: &str, threads: u32, system: &str, peer: &PeerRow) -> f64 {
        let ours = self.row(personality, threads, system, peer.on_disk);
        ours.map_or(f64::NAN, |r| r.ops_per_s / self.best(personality, threads, peer))
    }

    /// Every cell once.
    fn cells(&self) -> Vec<(String, u32)> {
        let mut cells: Vec<(String, u32)> = Vec::new();
        for r in &self.rows {
            let cell = (r.personality.clone(), r.threads);
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }

    fn evaluate(&self) -> Vec<Target> {
        let named = self.peers.iter().find(|p| p.name == "ext4");
        let Some(ext4) = named.or_else(|| self.peers.iter().find(|p| p.fs == "ext4")) else {
            return vec![Target::new("best server over ext4", f64::NAN, BEST)];
        };
        let cells = self.cells();
        let times = |(p, threads): &(String, u32)| self.times(p, *threads, "weldfs-fused", ext4);
        let best = cells.iter().max_by(|a, b| times(a).total_cmp(&times(b)));
        let name = best.map_or_else(String::new, |(p, threads)| format!(": {p}, {threads} thread(s)"));
        let mut all = vec![Target::new(format!("best server over ext4{name}"), best.map_or(f64::NAN, times), BEST)];
        let mut threads: Vec<u32> = cells.iter().map(|(_, threads)| *threads).collect();
        threads.sort_unstable();
        threads.dedup();
        for n in threads {
            let mean = geometric_mean(cells.iter().filter(|(_, threads)| *threads == n).map(times));
            let what = format!("geometric mean of the servers over ext4, {n} thread(s)");
            all.push(Target::new(what, mean, if n == 1 { MEAN_OF_ONE } else { MEAN }));
        }
        all
    }

    /// Everything for people, or as Markdown for a document.
    pub fn text(&self, markdown: bool) -> String {
        let m = &self.machine;
        let mut text = format!(
            "{} ({} cores), kernel {}, {} build, profile {}, {} s per cell, {} MiB of files, seed {}\n",
            m.cpu,
            m.cores,
            m.kernel,
            m.build,
            self.profile,
            self.seconds,
            self.set >> 20,
            self.seed
        );
        if self.quick {
            text.push_str("quick: shows that everything works; the figures mean nothing\n");
        }
        self.skipped.iter().for_each(|s| text.push_str(&format!("skipped: {s}\n")));
        self.failed.iter().for_each(|f| text.push_str(&f.line()));
        if self.interrupted {
            text.push_str("interrupted: what was measured until then\n");
        }
        let restless: usize = self.rows.iter().map(|r| r.restless).sum();
        if restless > 0 {
            let all: usize = self.rows.iter().map(|r| r.repeats).sum();
            text.push_str(&format!("{restless} of {all} samples began while the machine had other work\n"));
        }
        for (what, table) in [
            (
                "Operations per second, medians of interleaved repeats; ratios are over the host's better way",
                self.rates(),
            ),
            ("What went in fused commands", self.fused()),
            ("Per operation, counted", self.counts()),
            ("Aims, computed from this run", targets::table(&self.targets)),
        ] {
            text.push_str(&format!("\n{what}\n\n{}", table.render(markdown)));
        }
        text
    }

    fn rates(&self) -> Table {
        let mut head: Vec<String> = ["server", "threads", "class", "fused", "unfused"].map(String::from).into();
        for p in &self.peers {
            head.extend([format!("{} plain", p.name), format!("{} uring", p.name), format!("fused over {}", p.name)]);
        }
        let mut table = Table::new(head);
        for (personality, threads) in self.cells() {
            // Two lines where a disk is measured as well: each medium with its equals.
            for on_disk in [false, true] {
                let same = |r: &&Row| r.personality == personality && r.threads == threads;
                let there = |r: &&Row| same(r) && r.medium.contains("disk") == on_disk;
                let Some(any) = self.rows.iter().find(there) else { continue };
                let rate = |system: &str| {
                    let row = self.row(&personality, threads, system, on_disk);
                    row.map_or_else(|| "-".into(), |r| whole(r.ops_per_s))
                };
                let class = format!("{}, {}", any.durability, if on_disk { "disk" } else { "RAM" });
                let mut line = vec![personality.clone(), threads.to_string(), class];
                line.extend([rate("weldfs-fused"), rate("weldfs-unfused")]);
                for p in &self.peers {
                    line.extend([rate(&format!("posix:{}", p.name)), rate(&format!("uring:{}", p.name))]);
                    let times = self.times(&personality, threads, "weldfs-fused", p);
                    line.push(ratio(if p.on_disk == on_disk { times } else { f64::NAN }));
                }
                table.line(line);
            }
        }
        table
    }

    fn fused(&self) -> Table {
        let mut table = Table::new(["server", "share of operations", "fused commands per turn", "data set, MiB"]);
        for p in Personality::ALL {
            if let Some(r) = self.rows.iter().find(|r| r.personality == p.name() && r.system == "weldfs-fused") {
                let share = format!("{:.0} %", r.fused_share * 100.0);
                table.line([p.name().into(), share, r.fused_commands.clone(), (r.data_bytes >> 20).to_string()]);
            }
        }
        table
    }

    fn counts(&self) -> Table {
        let head = ["server", "threads", "system", "medium", "crossings", "system calls", "payload copies"];
        let mut table = Table::new(head.into_iter().chain(["name copies", "bytes across", "flushes"]));
        for r in &self.rows {
            let text = [r.personality.clone(), r.threads.to_string(), r.system.clone(), r.medium.clone()];
            let counts = [r.crossings, r.syscalls, r.payload_copies, r.metadata_copies, r.link_bytes, r.flushes];
            table.line(text.into_iter().chain(counts.map(per_op)));
        }
        table
    }

    /// Writes a plot of every number of threads into `dir`, which is made if it is not there.
    pub fn plot(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let mut threads: Vec<u32> = self.rows.iter().map(|r| r.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        for n in threads {
            let rows: Vec<&Row> = self.rows.iter().filter(|r| r.threads == n).collect();
            let mut series: Vec<String> = Vec::new();
            for r in &rows {
                let name = series_name(r);
                if !series.contains(&name) {
                    series.push(name);
                }
            }
            let value = |p: Personality, name: &String| {
                let row = rows.iter().find(|r| r.personality == p.name() && series_name(r) == *name);
                row.map_or(f64::NAN, |r| r.ops_per_s / 1000.0)
            };
            let group = |p: Personality| Group {
                name: p.name().into(),
                about: String::new(),
                values: series.iter().map(|name| value(p, name)).collect(),
                due: vec![f64::NAN; series.len()],
            };
            let groups = Personality::ALL.into_iter().map(group).collect();
            let title = format!("Servers, {n} thread(s)");
            let chart =
                Chart::Bars { title, y: "thousand operations per second".into(), series: series.clone(), groups };
            std::fs::write(dir.join(format!("macro-{n}.svg")), chart.svg())?;
        }
        Ok(())
    }
}

/// The system, and that it is on a disk where it is.
fn series_name(r: &Row) -> String {
    let disk = r.system.starts_with("weldfs") && r.medium.contains("disk");
    format!("{}{}", r.system, if disk { ", disk" } else { "" })
}
