//! Runs clients against a device on a recording medium, cuts the power at random, recovers, and asks the oracle.

use super::oracle::{self, Client as Seen, Entry, Found, frame};
use super::script::{Folder, Script, Step};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weldfs::{At, Client, Durability, File, OpenFlags, OpenOptions};
use weldfs_journal::{Medium, SystemClock, SystemRandom};
use weldfs_kernel_shim::Embedded;
use weldfs_storagefs::device::DeviceConfig;
use weldfs_storagefs::fsck::fsck;
use weldfs_storagefs::geometry::GeometryOptions;
use weldfs_storagefs::media::{CrashModel, RamMedium, RecordingMedium, Replayer};
use weldfs_storagefs::mount::{MkfsOptions, RecoveryReport, format};
use weldfs_storagefs::store::{MountOptions, Store};

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

/// Bytes of the image: large enough that a run fits, small enough that thousands of copies are cheap.
const IMAGE_BYTES: u64 = 12 << 20;
/// A log of this size makes checkpoints and laps part of each run.
const LOG_BYTES: u64 = 512 << 10;
const WRITE_NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNC);

fn options() -> MountOptions {
    MountOptions { memory: 16 << 20, ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom)) }
}

fn mount(medium: Arc<dyn Medium>) -> Result<(Embedded, RecoveryReport), String> {
    let (store, recovery) = Store::mount(medium, options()).map_err(|e| format!("mount: {e}"))?;
    let config = DeviceConfig { cores: 2, ..DeviceConfig::default() };
    Ok((Embedded::over(store, config).map_err(|e| format!("device: {e}"))?, recovery))
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
                client.open_write_close(self.path(name), WRITE_NEW, 0o644, At::Offset(0), &data[..])?;
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
                let raw = client.raw();
                raw.append_checksum_write(self.log.handle(), &record[..])?;
                self.logged += 1;
            }
            Step::Sync { name } => self.open(name, false)?.sync_all()?,
        }
        Ok(())
    }
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
    let (embedded, _) = mount(medium)?;
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

fn read_back(embedded: &Embedded, clients: usize) -> io::Result<Found> {
    let client = Client::with(Arc::new(embedded.clone()))?;
    let mut folders = Vec::new();
    for number in 0..clients {
        let mut folder = Folder::new();
        for entry in client.open_dir(format!("/c{number}"))?.entries() {
            let name = entry?.name.to_string_lossy().into_owned();
            let content = client.read(format!("/c{number}/{name}"))?;
            folder.insert(name, Arc::new(content));
        }
        folders.push(folder);
    }
    Ok(Found { folders, log: client.read("/log")? })
}

fn fsck_clean(image: &[u8], when: &str) -> Result<(), String> {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::from_bytes(image));
    let report = fsck(medium, options(), true).map_err(|e| format!("fsck {when}: {e}"))?;
    if report.clean { Ok(()) } else { Err(format!("fsck {when}: {}", report.problems.join("; "))) }
}

/// Recovers one crash image and checks it; one in ten is cut again while it recovers.
fn judge(config: &Config, image: Vec<u8>, cut: u64, seen: &[Seen], rng: &mut SmallRng) -> Result<bool, String> {
    fsck_clean(&image, "before the mount")?;
    let again = rng.random_ratio(1, 10);
    let image = if again { cut_recovery(config, image, rng)? } else { image };
    let ram = Arc::new(RamMedium::from_bytes(image));
    let (embedded, recovery) = mount(ram.clone())?;
    let found = read_back(&embedded, seen.len()).map_err(|e| format!("reading back: {e}"))?;
    oracle::check(seen, cut, &found).map_err(|e| format!("{e}; cut again in recovery: {again}; {recovery:?}"))?;
    embedded.close().map_err(|e| format!("close: {e}"))?;
    fsck_clean(&ram.to_bytes(), "after the mount")?;
    Ok(again)
}

/// Mounts on a recording medium of its own, and cuts the power once more at a random event of that.
fn cut_recovery(config: &Config, image: Vec<u8>, rng: &mut SmallRng) -> Result<Vec<u8>, String> {
    let recording = Arc::new(RecordingMedium::from_bytes(image, config.model));
    let (store, _) = Store::mount(recording.clone(), options()).map_err(|e| format!("mount: {e}"))?;
    let events = recording.position();
    drop(store);
    let recording = recording.recording();
    let mut replayer = Replayer::new(&recording, 0);
    replayer.goto(rng.random_range(0..=events));
    Ok(replayer.image(rng.random()))
}

/// Runs the whole experiment; `progress` is told the cuts done so far.
pub fn run(config: &Config, progress: &mut dyn FnMut(u64)) -> Result<Report, String> {
    let (mut report, mut rng) = (Report::default(), SmallRng::seed_from_u64(config.seed));
    while report.cuts < config.cuts {
        let run_seed = rng.random();
        let (recording, begun, seen) = perform(config, run_seed)?;
        report.runs += 1;
        let recording = recording.take_recording();
        let wanted = config.cuts_per_run.min(config.cuts - report.cuts);
        let mut cuts: Vec<u64> = (0..wanted).map(|_| rng.random_range(begun..=recording.len())).collect();
        // Ascending, because the replayer walks forward.
        cuts.sort_unstable();
        let mut replayer = Replayer::new(&recording, 0);
        for cut in cuts {
            let cut_seed = rng.random();
            replayer.goto(cut);
            let image = replayer.image(cut_seed);
            report.cuts += 1;
            let durable = |c: &Seen| c.entries.iter().filter(|e| e.durable && e.to_event <= cut).count() as u64;
            report.durable_acknowledged += seen.iter().map(durable).sum::<u64>();
            match judge(config, image, cut, &seen, &mut SmallRng::seed_from_u64(cut_seed)) {
                Ok(again) => report.cut_in_recovery += u64::from(again),
                Err(what) => report.bad.push(Bad { run_seed, cut, cut_seed, what }),
            }
            progress(report.cuts);
        }
    }
    Ok(report)
}
