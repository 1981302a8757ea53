//! `weldfs bench macro`: a mail server, a file server, a web server and a web proxy on WeldFS and on the host.
//!
//! Hypothesis: where a server's work is sequences on small files, one command per sequence is a multiple of the steps
//! one by one. Unit: Filebench's operations per second, so that they compare with published ones. One driver for all
//! systems; the same seed gives every system the same sequence of steps (`model`); each cell starts on a fresh set of
//! files, runs for a fixed time, and is checked afterwards: a file's length and its first bytes. Cells of the systems
//! are interleaved, in an order that turns from repeat to repeat; a figure is the median of the repeats. The mail
//! server syncs as the original does: those steps are durable commands, and fsync on the host; all else is volatile on
//! both sides. Data set: 1 GiB at the start, in the host's page cache as in WeldFS's image in RAM.
//!
//! * `personality` what the servers do, and where that comes from; `model` on which files; `cell` one run.
//! * `store` the seam to the systems: `weld` and `host`; `report` rows and tables.

mod cell;
mod host;
mod model;
pub mod personality;
pub mod report;
mod store;
mod weld;

use crate::chosen::{Chosen, Failed, nothing_chosen};
use crate::micro::Watch;
use crate::micro::chains::Chains;
use crate::micro::files::host_tree;
use crate::micro::systems::prepare;
use crate::peers::{Ground, LoopMount, Peer};
use crate::report::{Machine, median};
use crate::served::{ServeOptions, Served};
use crate::settle;
use cell::{Job, Outcome, Way};
use personality::Personality;
pub use report::MacroReport;
use report::Row;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weldfs` binary: makes images and serves.
    pub program: PathBuf,
    /// Which servers.
    pub personalities: Vec<Personality>,
    /// Threads, several times.
    pub threads: Vec<u32>,
    /// Directories to compare with.
    pub peers: Vec<Peer>,
    /// Mounts ext4, xfs and tmpfs over RAM as peers as well. Needs root.
    pub prepare: bool,
    /// Which systems, and which of those file systems.
    pub chosen: Chosen,
    /// Seconds of a cell.
    pub seconds: f64,
    /// Repeats behind each median.
    pub repeats: usize,
    /// Bytes of the files that exist at the start; [`SET`] is usual.
    pub set: u64,
    /// Where the random numbers start.
    pub seed: u64,
    /// A few hundred files and short cells: shows that everything works, and no figures.
    pub quick: bool,
}

/// Files of a quick run.
const QUICK_FILES: u64 = 400;
/// Bytes of the files that exist at the start.
pub const SET: u64 = 1 << 30;
/// Seconds that a cell takes besides its own, about: a whole set made, written back, looked at, removed.
const PREPARATION: f64 = 6.0;
const QUICK_PREPARATION: f64 = 0.2;
/// Bytes of a prepared file system.
const MOUNT_BYTES: u64 = 4 << 30;

impl Options {
    /// The set, as a part of the usual one.
    fn part(&self) -> f64 {
        self.set as f64 / SET as f64
    }
}

/// A way with what it is called and where its bytes live.
struct System {
    name: String,
    medium: String,
    power_safe: bool,
    /// Whether what is synced there is kept anywhere: a server that syncs is measured only where it is.
    keeps: bool,
    way: Way,
    /// The folder on the host, removed at the end.
    _folder: Option<tempfile::TempDir>,
}

/// Everything of a run, dropped in this order: systems, then their devices, then mounts.
struct Bench {
    systems: Vec<System>,
    _devices: Vec<Served>,
    peers: Vec<(Peer, Ground)>,
    skipped: Vec<String>,
    _mounts: Vec<LoopMount>,
}

impl System {
    fn takes(&self, personality: Personality) -> bool {
        self.keeps || !personality.syncs()
    }
}

#[derive(Default)]
struct Repeats {
    rate: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    sum: Outcome,
    restless: usize,
}

impl Bench {
    fn start(o: &Options, watch: &mut dyn Watch) -> io::Result<Bench> {
        let mut bench = Bench {
            systems: Vec::new(),
            _devices: Vec::new(),
            peers: Vec::new(),
            skipped: Vec::new(),
            _mounts: Vec::new(),
        };
        if o.prepare {
            let made = prepare(&o.chosen, if o.quick { MOUNT_BYTES / 8 } else { MOUNT_BYTES }, watch)?;
            (bench._mounts, bench.peers, bench.skipped) = (made.mounts, made.peers, made.skipped);
        }
        for peer in &o.peers {
            bench.peers.push((peer.clone(), Ground::of(&peer.dir)?));
        }
        if o.chosen.any(&["weldfs-fused", "weldfs-unfused"]) {
            bench.devices(o, watch)?;
        }
        for (peer, ground) in bench.peers.clone() {
            if o.chosen.system("posix") {
                bench.host(&peer, &ground, false)?;
            }
            match Chains::new(1, 4096) {
                _ if !o.chosen.system("uring") => {}
                Ok(_) => bench.host(&peer, &ground, true)?,
                Err(e) => bench.skipped.push(format!("uring:{}: refused: {e}", peer.name)),
            }
            if !ground.keeps() {
                let why = format!("{}, {}: {} keeps nothing", peer.name, Personality::MailServer.name(), ground.fs);
                bench.skipped.push(why);
            }
        }
        Ok(bench)
    }

    /// WeldFS on emulated pmem, and on a disk where a peer is on one.
    fn devices(&mut self, o: &Options, watch: &mut dyn Watch) -> io::Result<()> {
        watch.at("starting a device over emulated pmem", false);
        self.weldfs(o, "pmem", "emulated pmem", Path::new("/dev/shm"))?;
        let disk = self.peers.iter().find(|(_, ground)| ground.on_disk()).map(|(peer, _)| peer.dir.clone());
        if let Some(dir) = disk {
            watch.at("starting a device over an image on the disk", false);
            self.weldfs(o, "block", "block image on a disk", &dir)?;
        }
        Ok(())
    }

    fn weldfs(&mut self, o: &Options, medium: &'static str, name: &str, place: &Path) -> io::Result<()> {
        let size = if o.quick { "256M" } else { "4G" }.to_owned();
        let options = ServeOptions { medium, size, place: place.to_owned(), serve_args: Vec::new() };
        let served = Served::start(&o.program, &options)?;
        let client = served.connect()?;
        if !o.quick {
            crate::apart::device(served.pid());
        }
        let power_safe = client.info()?.power_safe;
        for (fused, kind) in [(true, "weldfs-fused"), (false, "weldfs-unfused")] {
            if !o.chosen.system(kind) {
                continue;
            }
            self.systems.push(System {
                name: kind.to_owned(),
                medium: name.to_owned(),
                power_safe,
                keeps: true,
                way: Way::Weld { client: client.clone(), fused },
                _folder: None,
            });
        }
        self._devices.push(served);
        Ok(())
    }

    fn host(&mut self, peer: &Peer, ground: &Ground, uring: bool) -> io::Result<()> {
        let (folder, tree) = host_tree(&peer.dir)?;
        self.systems.push(System {
            name: format!("{}:{}", if uring { "uring" } else { "posix" }, peer.name),
            medium: ground.describe(),
            power_safe: ground.power_safe(),
            keeps: ground.keeps(),
            way: Way::Host { tree, uring },
            _folder: Some(folder),
        });
        Ok(())
    }
}

/// What was measured and what failed, by cell and system.
struct Run<'a> {
    o: &'a Options,
    bench: &'a Bench,
    cells: Vec<(Personality, u32)>,
    all: HashMap<(usize, usize), Repeats>,
    failed: Vec<((usize, usize), Failed)>,
}

/// Runs the experiment. A cell that fails is in the report as failed, and not tried again; when `watch` ends it early,
/// the report holds what was measured until then.
///
/// # Errors
/// `Interrupted` when `watch` says so before there is anything to measure; those of starting devices and of mounting.
pub fn run(o: &Options, watch: &mut dyn Watch) -> io::Result<MacroReport> {
    let bench = Bench::start(o, watch)?;
    if bench.systems.is_empty() {
        return Err(nothing_chosen());
    }
    Ok(measure(o, &bench, watch))
}

/// Every repeat of every cell, as far as `watch` lets it go.
fn measure(o: &Options, bench: &Bench, watch: &mut dyn Watch) -> MacroReport {
    let cells: Vec<(Personality, u32)> =
        o.personalities.iter().flat_map(|p| o.threads.iter().map(|threads| (*p, *threads))).collect();
    let taken = cells.iter().map(|(p, _)| bench.systems.iter().filter(|s| s.takes(*p)).count()).sum::<usize>();
    let preparation = if o.quick { QUICK_PREPARATION } else { PREPARATION * o.part() };
    let each = o.seconds + preparation;
    watch.plan((taken * o.repeats) as u64, each);
    let mut run = Run { o, bench, cells, all: HashMap::new(), failed: Vec::new() };
    let whole = run.repeats(watch);
    let mut rows = Vec::new();
    for (number, (personality, threads)) in run.cells.iter().enumerate() {
        for (at, system) in bench.systems.iter().enumerate() {
            if let Some(repeats) = run.all.remove(&(number, at)) {
                rows.push(repeats.row(*personality, *threads, system));
            }
        }
    }
    let failed = run.failed.into_iter().map(|(_, failed)| failed).collect();
    MacroReport::new(Machine::here(), o, bench, Ended { interrupted: !whole, failed }, rows)
}

/// How a run ended.
pub(crate) struct Ended {
    /// Before its time.
    pub(crate) interrupted: bool,
    pub(crate) failed: Vec<Failed>,
}

impl Run<'_> {
    /// Every repeat of every cell; false when `watch` ended it.
    fn repeats(&mut self, watch: &mut dyn Watch) -> bool {
        let (systems, cells) = (self.bench.systems.len(), self.cells.len());
        for (repeat, number) in (0..self.o.repeats).flat_map(|r| (0..cells).map(move |n| (r, n))) {
            for i in 0..systems {
                let at = (i + repeat + number) % systems;
                if !self.cell(repeat, number, at, watch) {
                    return false;
                }
            }
        }
        true
    }

    /// One repeat of one cell on one system; false when `watch` ended it.
    fn cell(&mut self, repeat: usize, number: usize, at: usize, watch: &mut dyn Watch) -> bool {
        let ((personality, threads), system) = (self.cells[number], &self.bench.systems[at]);
        if !system.takes(personality) {
            return true;
        }
        let cell = format!("{}, {threads} thread(s)", personality.name());
        watch.at(&format!("repeat {} of {}: {}: {cell}", repeat + 1, self.o.repeats, system.name), true);
        if watch.stop() {
            return false;
        }
        if self.failed.iter().any(|(key, _)| *key == (number, at)) {
            return true;
        }
        let job = Job {
            personality,
            threads: u64::from(threads),
            files: if self.o.quick { QUICK_FILES } else { (personality.files() as f64 * self.o.part()) as u64 },
            seed: self.o.seed.wrapping_add(repeat as u64),
            time: Duration::from_secs_f64(self.o.seconds),
            calm: if self.o.quick { Duration::ZERO } else { settle::MOST },
        };
        match system.way.run(&job, watch) {
            _ if watch.stop() => return false,
            Ok(outcome) => self.all.entry((number, at)).or_default().add(outcome),
            Err(e) => {
                self.all.remove(&(number, at));
                let failed = Failed { system: system.name.clone(), cell, error: e.to_string() };
                self.failed.push(((number, at), failed));
            }
        }
        true
    }
}

impl Repeats {
    fn add(&mut self, mut o: Outcome) {
        self.rate.push(o.operations as f64 * 1e9 / o.wall_ns.max(1) as f64);
        o.turns.sort_unstable();
        let at = |share: f64| {
            let n = o.turns.len();
            o.turns.get(((n as f64 * share) as usize).min(n.saturating_sub(1))).map_or(f64::NAN, |ns| f64::from(*ns))
        };
        self.p50.push(at(0.5));
        self.p99.push(at(0.99));
        self.sum.operations += o.operations;
        self.sum.counts += o.counts;
        self.sum.bytes = o.bytes;
        self.restless += usize::from(o.restless);
    }

    fn row(&self, personality: Personality, threads: u32, system: &System) -> Row {
        let per_op = |count: u64| count as f64 / self.sum.operations.max(1) as f64;
        let (counts, rate) = (&self.sum.counts, median(&self.rate));
        let fused = system.name == "weldfs-fused";
        Row {
            bench: "macro".into(),
            system: system.name.clone(),
            personality: personality.name().into(),
            threads,
            medium: system.medium.clone(),
            durability: if personality.syncs() { "durable" } else { "volatile" }.into(),
            power_safe: system.power_safe,
            ops_per_s: rate,
            ns_per_op: 1e9 / rate,
            turn_p50_ns: median(&self.p50),
            turn_p99_ns: median(&self.p99),
            crossings: per_op(counts.crossings),
            payload_copies: per_op(counts.payload_copies),
            metadata_copies: per_op(counts.metadata_copies),
            syscalls: per_op(counts.syscalls),
            link_bytes: per_op(counts.link_bytes),
            flushes: per_op(counts.flushes),
            fused_share: if fused { personality.fused_share() } else { 0.0 },
            fused_commands: if fused { personality.fused_commands() } else { String::new() },
            ops: self.sum.operations,
            repeats: self.rate.len(),
            restless: self.restless,
            data_bytes: self.sum.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::files::HostTree;

    /// Says to stop when so many samples were begun.
    struct After(u64, u64);

    impl Watch for After {
        fn plan(&mut self, samples: u64, seconds: f64) {
            assert!(samples > 0 && seconds > 0.0);
        }
        fn at(&mut self, _: &str, is_sample: bool) {
            self.1 += u64::from(is_sample);
        }
        fn stop(&self) -> bool {
            self.1 > self.0
        }
    }

    /// Plain calls in two directories, one of which is not there.
    fn measured(stop_after: u64) -> (MacroReport, u64) {
        let folder = tempfile::tempdir().expect("a folder");
        let system = |name: &str, dir: PathBuf| System {
            name: format!("posix:{name}"),
            medium: "a directory".into(),
            power_safe: false,
            keeps: name != "gone",
            way: Way::Host { tree: HostTree(dir), uring: false },
            _folder: None,
        };
        let (good, gone) = (system("good", folder.path().to_owned()), system("gone", folder.path().join("gone")));
        let bench = Bench {
            systems: vec![good, gone],
            _devices: Vec::new(),
            peers: Vec::new(),
            skipped: Vec::new(),
            _mounts: Vec::new(),
        };
        let o = Options {
            program: PathBuf::new(),
            personalities: vec![Personality::WebServer, Personality::WebProxy, Personality::MailServer],
            threads: vec![1],
            peers: Vec::new(),
            prepare: false,
            chosen: Chosen::default(),
            seconds: 0.01,
            repeats: 2,
            set: SET,
            seed: 1,
            quick: true,
        };
        let mut watch = After(stop_after, 0);
        let report = measure(&o, &bench, &mut watch);
        (report, watch.1)
    }

    #[test]
    fn a_cell_that_fails_is_reported_and_the_others_are_kept() {
        let (report, begun) = measured(u64::MAX);
        assert_eq!((report.rows.len(), report.failed.len(), report.interrupted, begun), (3, 2, false, 10));
        // The mail server syncs, and is not measured where nothing is kept.
        assert!(report.failed.iter().all(|f| !f.cell.contains("mail-server")));
        assert!(report.rows.iter().all(|r| r.system == "posix:good" && r.repeats == 2 && r.ops > 0));
        assert!(report.failed.iter().all(|f| f.system == "posix:gone" && f.error.contains("No such file")));
        assert!(report.text(false).contains("FAILED: posix:gone: web-server, 1 thread(s): No such file"));
    }

    #[test]
    fn what_was_measured_before_an_interrupt_is_kept() {
        // The third sample is the second cell's first: its first repeat is lost, the first cell's is not.
        let (report, _) = measured(2);
        assert!(report.interrupted && report.text(false).contains("interrupted: what was measured until then"));
        assert_eq!(report.rows.len(), 1);
        assert_eq!((report.rows[0].personality.as_str(), report.rows[0].repeats), ("web-server", 1));
    }
}
