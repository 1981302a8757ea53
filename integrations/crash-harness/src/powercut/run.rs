//! Runs clients against a device on a recording medium, cuts the power at random, recovers, and asks the oracle.

use super::oracle::{self, Client as Seen, Entry, Found, frame};
use super::script::{Folder, Script, Step};
use crate::hand::Hand;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weldfs::{At, Client, Durability, Errno, File, Handle, OpenFlags, OpenOptions, Placement, TxnMode};
use weldfs_device::DeviceConfig;
use weldfs_fpga::config::{CardConfig, Reconfigure};
use weldfs_journal::{Medium, SystemClock, SystemRandom};
use weldfs_kernel_shim::Embedded;
use weldfs_media::{CowImage, CowMedium, CrashModel, Recording, RecordingMedium, Replayer};
use weldfs_store::MountOptions;
use weldfs_store::error::MountError;
use weldfs_store::fsck::{FsckReport, fsck, fsck_mounted};
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::mount::{MkfsOptions, format};

/// What to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which medium's crash model.
    pub model: CrashModel,
    /// Power cuts in all.
    pub cuts: u64,
    /// Power cuts taken from one run of the clients.
    pub cuts_per_run: u64,
    /// Clients at work.
    pub clients: usize,
    /// Steps of each client in one run.
    pub steps: usize,
    /// Seed: decides scripts and cuts, though not how the clients' threads interleave.
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Runs of the clients.
    pub runs: u64,
    /// Power cuts checked.
    pub cuts: u64,
    /// Of those, cut again during the recovery.
    pub cut_in_recovery: u64,
    /// Operations acknowledged as durable before a cut, over all cuts.
    pub durable_acknowledged: u64,
    /// What was found wrong.
    pub bad: Vec<Bad>,
}

/// One bad state.
#[derive(Clone, Debug, Serialize)]
pub struct Bad {
    /// Seed of the run.
    pub run_seed: u64,
    /// Events before the cut.
    pub cut: u64,
    /// Seed of the choice of what persisted.
    pub cut_seed: u64,
    /// What is wrong.
    pub what: String,
}

/// Bytes of the image: large enough that a run fits.
const IMAGE_BYTES: u64 = 12 << 20;
/// One crash image in so many is also checked as it is, before it is mounted.
const UNMOUNTED_ONE_IN: u32 = 4;
/// A log of this size makes checkpoints and laps part of each run.
const LOG_BYTES: u64 = 512 << 10;
const WRITE_NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNC);

fn options() -> MountOptions {
    MountOptions { memory: 16 << 20, ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom)) }
}

/// Recovery is driven by one thread: no device, no commit thread.
fn recovery_options() -> MountOptions {
    MountOptions { memory: 4 << 20, inline_commits: true, ..options() }
}

fn mount(medium: Arc<dyn Medium>) -> Result<Embedded, String> {
    let (store, _) = weldfs_fs::mount(medium, options()).map_err(|e| format!("mount: {e}"))?;
    // The time that loading a kernel takes is modelled, and a power cut does not wait for it.
    let card = CardConfig { reconfigure: Reconfigure::NONE, ..CardConfig::default() };
    let config = DeviceConfig { cores: 2, card, ..DeviceConfig::default() };
    Embedded::over(store, config).map_err(|e| format!("device: {e}"))
}

fn format_image(medium: &Arc<dyn Medium>) -> Result<(), String> {
    let geometry = GeometryOptions { log_len: Some(LOG_BYTES), ..GeometryOptions::default() };
    let options = MkfsOptions { label: "powercut".into(), geometry, ..MkfsOptions::default() };
    format(medium, &options, &SystemClock, &SystemRandom).map_err(|e| format!("format: {e}"))
}

/// Shared between the clients of one run.
struct Stage<'a> {
    medium: &'a RecordingMedium,
    ticks: AtomicU64,
}

/// One client's open log and its place in the folder tree.
struct Actor {
    client: Client,
    number: usize,
    log: File,
    logged: usize,
}

impl Actor {
    fn path(&self, name: &str) -> String {
        format!("/c{}/{name}", self.number)
    }

    fn open(&self, name: &str, append: bool) -> io::Result<File> {
        let options = if append { OpenOptions::new().append(true) } else { OpenOptions::new().write(true) };
        self.client.open(self.path(name), &options)
    }

    fn act(&mut self, step: &Step, durability: Durability) -> io::Result<()> {
        let client = self.client.durability(durability);
        match step {
            Step::Store { name, data } => {
                let (raw, path) = (client.raw().mode(by_turns(data.len())), self.path(name));
                raw.open_write_close(Handle::ROOT, path.as_bytes(), WRITE_NEW, 0o644, At::Offset(0), &data[..])?;
            }
            Step::Append { name, data } => {
                self.open(name, true)?.append_with(&data[..], durability)?;
            }
            Step::Patch { name, off, data } => self.open(name, false)?.write_all_with(data, *off as u64, durability)?,
            Step::Truncate { name, size } => client.set_len(self.path(name), *size as u64)?,
            Step::Rename { from, to } => client.rename(self.path(from), self.path(to))?,
            Step::Unlink { name } => client.remove_file(self.path(name))?,
            Step::Log { data } => {
                let record = frame(self.number, self.logged, data);
                // Some of them with the checksum from a slot: a cut leaves of these what it leaves of the others.
                let raw = client.raw().mode(by_turns(self.logged)).placement(in_turn(self.logged));
                raw.append_checksum_write(self.log.handle(), &record[..])?;
                self.logged += 1;
            }
            Step::Sync { name } => self.open(name, false)?.sync_all()?,
        }
        Ok(())
    }
}

/// A third of the appends has its checksum from a slot.
fn in_turn(turn: usize) -> Placement {
    if turn % 3 == 1 { Placement::Slot } else { Placement::Auto }
}

/// In steps, or as the device likes.
fn by_turns(turn: usize) -> TxnMode {
    if turn.is_multiple_of(2) { TxnMode::Micro } else { TxnMode::Default }
}

/// Plays a script to its end; an error is a failure of the harness, for nothing is cut while the clients work.
fn play(stage: &Stage<'_>, actor: &mut Actor, script: &Script) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::with_capacity(script.steps.len());
    for (number, (step, durable)) in script.steps.iter().enumerate() {
        let (from_event, start) = (stage.medium.position(), stage.ticks.fetch_add(1, Ordering::SeqCst));
        let durability = if *durable { Durability::Durable } else { Durability::Volatile };
        actor.act(step, durability).map_err(|e| format!("client {} step {number} {step:?}: {e}", actor.number))?;
        let (end, to_event) = (stage.ticks.fetch_add(1, Ordering::SeqCst), stage.medium.position());
        let durable = (*durable && step.changes_something()) || matches!(step, Step::Sync { .. });
        entries.push(Entry { start, end, from_event, to_event, durable });
    }
    Ok(entries)
}

fn actors(embedded: &Embedded, clients: usize) -> io::Result<Vec<Actor>> {
    let make = |number| {
        let client = Client::with(Arc::new(embedded.clone()))?;
        client.create_dir(format!("/c{number}"))?;
        let log = client.open("/log", &OpenOptions::new().write(true).create(true))?;
        Ok(Actor { client, number, log, logged: 0 })
    };
    let actors = (0..clients).map(make).collect::<io::Result<Vec<_>>>()?;
    if let Some(first) = actors.first() {
        first.client.sync()?;
    }
    Ok(actors)
}

/// Lets the clients work on a fresh image. Returns the recording, the events before the clients began, and what they
/// did.
fn perform(config: &Config, seed: u64) -> Result<(Arc<RecordingMedium>, u64, Vec<Seen>), String> {
    let recording = Arc::new(RecordingMedium::new(IMAGE_BYTES, config.model));
    let medium: Arc<dyn Medium> = recording.clone();
    format_image(&medium)?;
    let embedded = mount(medium)?;
    let actors = actors(&embedded, config.clients).map_err(|e| format!("preparing: {e}"))?;
    let begun = recording.position();
    let mut rng = SmallRng::seed_from_u64(seed);
    let scripts: Vec<Script> = (0..config.clients).map(|_| Script::draw(&mut rng, config.steps, 3)).collect();
    let stage = Stage { medium: &recording, ticks: AtomicU64::new(1) };
    let played: Vec<Result<Vec<Entry>, String>> = std::thread::scope(|scope| {
        let stage = &stage;
        let run = |(mut actor, script)| scope.spawn(move || play(stage, &mut actor, script));
        let handles: Vec<_> = actors.into_iter().zip(&scripts).map(run).collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err("a client panicked".into()))).collect()
    });
    // What the unmount writes comes after every mark and is as good a place for a cut as any.
    embedded.close().map_err(|e| format!("close: {e}"))?;
    let entries = played.into_iter().collect::<Result<Vec<_>, _>>()?;
    let seen = scripts.into_iter().zip(entries).map(|(script, entries)| Seen { script, entries }).collect();
    Ok((recording, begun, seen))
}

fn read_back(hand: &mut Hand, clients: usize) -> Result<Found, i32> {
    let mut folders = Vec::new();
    for number in 0..clients {
        let mut folder = Folder::new();
        for (name, _) in hand.list(&format!("/c{number}"))? {
            let content = hand.read(&format!("/c{number}/{name}"))?;
            folder.insert(name, Arc::new(content));
        }
        folders.push(folder);
    }
    Ok(Found { folders, log: hand.read("/log")? })
}

fn clean(report: Result<FsckReport, MountError>, when: &str) -> Result<(), String> {
    let report = report.map_err(|e| format!("fsck {when}: {e}"))?;
    if report.clean { Ok(()) } else { Err(format!("fsck {when}: {}", report.problems.join("; "))) }
}

/// Recovers one crash image and checks it; one in ten is cut again while it recovers.
fn judge(config: &Config, image: CowImage, cut: u64, seen: &[Seen], rng: &mut SmallRng) -> Result<bool, String> {
    // Recovery in memory, as fsck does it on an image that is not mounted.
    let medium = || Arc::new(CowMedium::new(image.clone(), config.model));
    if rng.random_ratio(1, UNMOUNTED_ONE_IN) {
        clean(fsck(medium(), recovery_options(), true), "before the mount")?;
    }
    let again = rng.random_ratio(1, 10);
    let medium = if again { cut_recovery(config, image.clone(), rng)? } else { medium() };
    let (store, recovery) =
        weldfs_fs::mount(medium.clone(), recovery_options()).map_err(|e| format!("mount: {e}; cut again: {again}"))?;
    let told = format!("cut again in recovery: {again}; {recovery:?}");
    let mut hand = Hand::new(store);
    let found = read_back(&mut hand, seen.len()).map_err(|e| format!("reading back: {}; {told}", Errno(e).text()))?;
    oracle::check(seen, cut, &found).map_err(|e| format!("{e}; {told}"))?;
    if rng.random_ratio(1, 2) {
        // What recovery left in memory is sound...
        return clean(fsck_mounted(hand.store(), recovery, true), "of the recovered store").map(|()| again);
    }
    // ... and so is what it comes to on the medium.
    hand.store().unmount().map_err(|e| format!("unmount: {e}; {told}"))?;
    drop(hand);
    clean(fsck(medium, recovery_options(), true), "after the unmount")?;
    Ok(again)
}

/// Mounts on a recording medium of its own, and cuts the power once more at a random event of that.
fn cut_recovery(config: &Config, image: CowImage, rng: &mut SmallRng) -> Result<Arc<CowMedium>, String> {
    let recording = Arc::new(RecordingMedium::over(image, config.model));
    let (store, _) = weldfs_fs::mount(recording.clone(), recovery_options()).map_err(|e| format!("mount: {e}"))?;
    let events = recording.position();
    drop(store);
    let recording = recording.take_recording();
    let mut replayer = Replayer::new(&recording, 0);
    replayer.goto(rng.random_range(0..=events));
    Ok(Arc::new(CowMedium::new(replayer.state(rng.random()), config.model)))
}

/// Checks cuts (ascending events, each with the seed of what persisted) of one run.
fn judge_all(
    config: &Config,
    run_seed: u64,
    recording: &Recording,
    seen: &[Seen],
    cuts: &[(u64, u64)],
    judged: &AtomicU64,
) -> Report {
    let (mut report, mut replayer) = (Report::default(), Replayer::new(recording, 0));
    for &(cut, cut_seed) in cuts {
        replayer.goto(cut);
        let durable = |c: &Seen| c.entries.iter().filter(|e| e.durable && e.to_event <= cut).count() as u64;
        report.cuts += 1;
        report.durable_acknowledged += seen.iter().map(durable).sum::<u64>();
        let image = replayer.state(cut_seed);
        match judge(config, image, cut, seen, &mut SmallRng::seed_from_u64(cut_seed)) {
            Ok(again) => report.cut_in_recovery += u64::from(again),
            Err(what) => report.bad.push(Bad { run_seed, cut, cut_seed, what }),
        }
        judged.fetch_add(1, Ordering::Relaxed);
    }
    report
}

impl Report {
    fn add(&mut self, other: Report) {
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.cut_in_recovery += other.cut_in_recovery;
        self.durable_acknowledged += other.durable_acknowledged;
        self.bad.extend(other.bad);
    }
}

/// Runs the whole experiment; `progress` is told the cuts done so far. Cuts of a run are checked on all processors.
pub fn run(config: &Config, progress: &mut dyn FnMut(u64)) -> Result<Report, String> {
    let (mut report, mut rng) = (Report::default(), SmallRng::seed_from_u64(config.seed));
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let judged = AtomicU64::new(0);
    while report.cuts < config.cuts {
        let run_seed = rng.random();
        let (recording, begun, seen) = perform(config, run_seed)?;
        let recording = recording.take_recording();
        let wanted = config.cuts_per_run.min(config.cuts - report.cuts);
        let draw = |_| (rng.random_range(begun..=recording.len()), rng.random());
        let mut cuts: Vec<(u64, u64)> = (0..wanted).map(draw).collect();
        // Ascending, because the replayer walks forward.
        cuts.sort_unstable();
        let parts = cuts.chunks(cuts.len().div_ceil(workers).max(1));
        let (recording, seen, judged) = (&recording, &seen[..], &judged);
        let checked: Vec<Report> = std::thread::scope(|scope| {
            let check = |part| scope.spawn(move || judge_all(config, run_seed, recording, seen, part, judged));
            let handles: Vec<_> = parts.map(check).collect();
            handles.into_iter().map(|h| h.join().map_err(|_| "a check panicked".to_owned())).collect::<Result<_, _>>()
        })?;
        checked.into_iter().for_each(|part| report.add(part));
        report.runs += 1;
        progress(judged.load(Ordering::Relaxed));
    }
    Ok(report)
}
