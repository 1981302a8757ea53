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

use crate::micro::Watch;
use crate::micro::chains::Chains;
use crate::micro::files::host_tree;
use crate::micro::interrupted;
use crate::micro::systems::prepare;
use crate::peers::{Ground, LoopMount, Peer};
use crate::report::{Machine, median};
use crate::served::{ServeOptions, Served};
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
    /// Seconds of a cell.
    pub seconds: f64,
    /// Repeats behind each median.
    pub repeats: usize,
    /// Where the random numbers start.
    pub seed: u64,
    /// A few hundred files and short cells: shows that everything works, and no figures.
    pub quick: bool,
}

/// Files of a quick run.
const QUICK_FILES: u64 = 400;
/// Bytes of a prepared file system.
const MOUNT_BYTES: u64 = 4 << 30;

/// A way with what it is called and where its bytes live.
struct System {
    name: String,
    medium: String,
    power_safe: bool,
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

#[derive(Default)]
struct Repeats {
    rate: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    sum: Outcome,
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
            let made = prepare(if o.quick { MOUNT_BYTES / 8 } else { MOUNT_BYTES }, watch)?;
            (bench._mounts, bench.peers, bench.skipped) = (made.mounts, made.peers, made.skipped);
        }
        for peer in &o.peers {
            bench.peers.push((peer.clone(), Ground::of(&peer.dir)?));
        }
        watch.at("starting a device over emulated pmem", false);
        bench.weldfs(o, "pmem", "emulated pmem", Path::new("/dev/shm"))?;
        let disk = bench.peers.iter().find(|(_, ground)| ground.power_safe()).map(|(peer, _)| peer.dir.clone());
        if let Some(dir) = disk {
            watch.at("starting a device over an image on the disk", false);
            bench.weldfs(o, "block", "block image on a disk", &dir)?;
        }
        for (peer, ground) in bench.peers.clone() {
            bench.host(&peer, &ground, false)?;
            match Chains::new(1, 4096) {
                Ok(_) => bench.host(&peer, &ground, true)?,
                Err(e) => bench.skipped.push(format!("uring:{}: refused: {e}", peer.name)),
            }
            if !ground.keeps() {
                bench.skipped.push(format!("{}: its syncs keep nothing, {} has nowhere to", peer.name, ground.fs));
            }
        }
        Ok(bench)
    }

    fn weldfs(&mut self, o: &Options, medium: &'static str, name: &str, place: &Path) -> io::Result<()> {
        let size = if o.quick { "256M" } else { "4G" }.to_owned();
        let options = ServeOptions { medium, size, place: place.to_owned(), serve_args: Vec::new() };
        let served = Served::start(&o.program, &options)?;
        let client = served.connect()?;
        let power_safe = client.info()?.power_safe;
        for fused in [true, false] {
            self.systems.push(System {
                name: if fused { "weldfs-fused" } else { "weldfs-unfused" }.to_owned(),
                medium: name.to_owned(),
                power_safe,
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
            way: Way::Host { tree, uring },
            _folder: Some(folder),
        });
        Ok(())
    }
}

/// Runs the experiment.
///
/// # Errors
/// `Interrupted` when `watch` says so; those of the systems, with the name of the system and the cell; an error as well
/// when the work was not done.
pub fn run(o: &Options, watch: &mut dyn Watch) -> io::Result<MacroReport> {
    let bench = Bench::start(o, watch)?;
    let cells: Vec<(Personality, u32)> =
        o.personalities.iter().flat_map(|p| o.threads.iter().map(|threads| (*p, *threads))).collect();
    watch.plan((cells.len() * bench.systems.len() * o.repeats) as u64);
    let mut all: HashMap<(usize, usize), Repeats> = HashMap::new();
    for repeat in 0..o.repeats {
        for (number, (personality, threads)) in cells.iter().enumerate() {
            let job = Job {
                personality: *personality,
                threads: u64::from(*threads),
                files: if o.quick { QUICK_FILES } else { personality.files() },
                seed: o.seed.wrapping_add(repeat as u64),
                time: Duration::from_secs_f64(o.seconds),
            };
            for i in 0..bench.systems.len() {
                let at = (i + repeat + number) % bench.systems.len();
                let system = &bench.systems[at];
                let what = format!("{}: {}, {threads} thread(s)", system.name, personality.name());
                watch.at(&format!("repeat {} of {}: {what}", repeat + 1, o.repeats), true);
                if watch.stop() {
                    return Err(interrupted());
                }
                let outcome = system.way.run(&job, watch).map_err(|e| match watch.stop() {
                    true => interrupted(),
                    false => io::Error::new(e.kind(), format!("{what}: {e}")),
                })?;
                all.entry((number, at)).or_default().add(outcome);
            }
        }
    }
    let mut rows = Vec::new();
    for (number, (personality, threads)) in cells.iter().enumerate() {
        for (at, system) in bench.systems.iter().enumerate() {
            if let Some(repeats) = all.remove(&(number, at)) {
                rows.push(repeats.row(*personality, *threads, system));
            }
        }
    }
    Ok(MacroReport::new(Machine::here(), o, &bench.peers, bench.skipped.clone(), rows))
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
            durability: if personality == Personality::MailServer { "durable" } else { "volatile" }.into(),
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
            data_bytes: self.sum.bytes,
        }
    }
}
