//! Runs a workload on the real store over a recording medium, beside the model: every answer is compared at once, and
//! the model's tree after every command is what the oracle goes by.

mod fused;
mod many;

use super::Tree;
use super::commands::{Commands, SLOT, commands};
use super::oracle::{Ack, History, Point};
use super::workload::{Background, FsOp, Mode, Step, Sync, Workload};
use crate::model::{At, Cred, Model, Name, Op, Reply, Res, SetAttr, Who};
use crate::real::Real;
use std::sync::Arc;
use weldfs_ciscops::TxnMode;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::{CowImage, CrashModel, Recording, RecordingMedium};
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::mount::{self, MkfsOptions};
use weldfs_store::{MountOptions, Store};

/// Seconds that the clock shows when the image is made; commands see a time of their own each.
pub const START: i64 = 1_700_000_000;
/// Seconds from there to the first command of a workload.
const WORKLOAD_AFTER: i64 = 1_000;
/// Bytes of the medium.
const MEDIUM_BYTES: u64 = 4 << 20;
/// Rows of the catalogue's table that ask for room for all that a program may write, 16 MiB, and the bytes of a medium
/// and of its log that have it.
pub(super) const ROOMY: [&str; 2] = ["concat", "log_recover.copy"];
const ROOMY_BYTES: (u64, u64) = (28 << 20, 2 << 20);
/// Bytes of the log, the fewest there can be: recovery looks at each place where a record could start.
const LOG_BYTES: u64 = 256 << 10;
/// Blocks of a group: small bitmaps, and more than one of them.
const GROUP_BLOCKS: u32 = 512;
/// Longest payload kept in a record, bytes: small, so that a write of one block is above it.
const INLINE_MAX: u32 = 512;

/// How the harness mounts: a fixed clock, a fixed seed, little memory.
pub fn mount_options() -> MountOptions {
    let clock = Arc::new(ManualClock::new(START as u64 * 1_000_000_000));
    MountOptions { memory: 8 << 20, inline_commits: true, ..MountOptions::new(clock, Arc::new(SeededRandom::new(7))) }
}

/// An image that workloads start from: the tiny tree, formatted, filled, unmounted. Made once and shared.
#[derive(Clone)]
pub struct Setup {
    /// Promises of the medium.
    pub model: CrashModel,
    /// Content of the medium: the base of every image of every workload, so that equal ones are known by their digest.
    pub image: CowImage,
    /// What stands in it.
    pub start: Model,
}

/// A workload that was run.
pub struct Performed {
    /// What the medium went through.
    pub recording: Recording,
    /// Its events before the first step (those of the mount).
    pub begun: u64,
    /// What may be found.
    pub history: History,
}

/// The tiny tree: two files in the root, two directories with one in each.
fn tiny_tree() -> Vec<Op> {
    let name = |path: &str| Name { base: None, path: path.as_bytes().to_vec() };
    let file = |path: &str, len, fill| Op::OpenWriteClose {
        name: name(path),
        flags: libc::O_CREAT | libc::O_EXCL,
        mode: 0o644,
        at: At::Offset(0),
        data: Workload::fill(fill, len),
    };
    vec![
        Op::SetAttr { who: Who::Path(name("/"), false), set: SetAttr { mode: Some(0o777), ..SetAttr::NONE } },
        Op::Mkdir { name: name("A"), mode: 0o755 },
        Op::Mkdir { name: name("B"), mode: 0o755 },
        file("foo", 3 * 4096 + 100, 1001),
        file("bar", 100, 1002),
        file("A/foo", 5000, 1003),
        file("B/bar", 40, 1004),
        Op::SetXattr {
            who: Who::Path(name("foo"), false),
            key: b"user.a".to_vec(),
            value: b"one".to_vec(),
            create: false,
            replace: false,
        },
    ]
}

impl Setup {
    /// Makes the image.
    ///
    /// # Errors
    /// The store, in words.
    pub fn new(model: CrashModel) -> Result<Setup, String> {
        Setup::sized(model, (MEDIUM_BYTES, LOG_BYTES))
    }

    /// The same on a medium that has room for what this workload asks for.
    ///
    /// # Errors
    /// As of `new`.
    pub fn for_workload(model: CrashModel, workload: &Workload) -> Result<Setup, String> {
        let roomy = |s: &Step| matches!(s.op, FsOp::Fused { row, .. } if ROOMY.contains(&name_of(row).as_str()));
        Setup::sized(model, if workload.steps.iter().any(roomy) { ROOMY_BYTES } else { (MEDIUM_BYTES, LOG_BYTES) })
    }

    fn sized(model: CrashModel, (bytes, log): (u64, u64)) -> Result<Setup, String> {
        let recording = Arc::new(RecordingMedium::new(bytes, model));
        let medium: Arc<dyn Medium> = recording.clone();
        let options = mount_options();
        let mkfs = MkfsOptions {
            geometry: GeometryOptions {
                log_len: Some(log),
                group_blocks: Some(GROUP_BLOCKS),
                chunk_pages: Some(4),
                ..GeometryOptions::default()
            },
            inline_max: Some(INLINE_MAX),
            ..MkfsOptions::default()
        };
        let failed = |what: &'static str| move |e: &dyn std::fmt::Display| format!("{what}: {e}");
        mount::format(&medium, &mkfs, &*options.clock, &*options.random).map_err(|e| failed("format")(&e))?;
        let (store, _) = weldfs_fs::mount(medium, options).map_err(|e| failed("mount")(&e))?;
        let mut real = Real::new(store);
        let root = real.tree()?.entries.remove(&Vec::new()).ok_or("no root")?.stat;
        let mut start = Model::new(root.mode & 0o7777, root.uid, root.gid, root.mtime);
        for (i, op) in tiny_tree().iter().enumerate() {
            start.now = (START + i as i64, 0);
            real.direct.now = start.now;
            let (model, store) = (start.apply(&Cred::root(), op), real.apply(op));
            if model != store || model.is_err() {
                return Err(format!("setup, {op:?}: the model says {model:?}, the store {store:?}"));
            }
        }
        same_tree(&start.tree(), &mut real)?;
        real.direct.store().unmount().map_err(|e| failed("unmount")(&e))?;
        drop(real);
        Ok(Setup { model, image: CowImage::new(recording.to_bytes()), start })
    }
}

fn name_of(row: u8) -> String {
    crate::catalogue::table().get(usize::from(row)).map(crate::catalogue::Row::name).unwrap_or_default()
}

fn same_tree(model: &Tree, real: &mut Real) -> Result<(), String> {
    match model.first_difference(&real.tree()?) {
        Some(d) => Err(format!("model and store differ at {d}")),
        None => Ok(()),
    }
}

/// Runs `workload` on a fresh copy of `setup`.
///
/// # Errors
/// Store and model answered differently, or ended in different trees.
pub fn perform(setup: &Setup, workload: &Workload) -> Result<Performed, String> {
    let medium = Arc::new(RecordingMedium::over(setup.image.clone(), setup.model));
    let (store, _) = weldfs_fs::mount(medium.clone(), mount_options()).map_err(|e| format!("mount: {e}"))?;
    let begun = medium.position();
    let start = Point { from_event: 0, what: "the start".into(), tree: setup.start.tree(), between: Vec::new() };
    let history = History { points: vec![start], acks: Vec::new() };
    let pool = pool_bytes(workload);
    let mut run = Run {
        medium,
        pool,
        real: Real::with_pool(store, pool),
        model: setup.start.clone(),
        history,
        ticks: 0,
        keys: None,
    };
    run.acknowledge();
    for (i, step) in workload.steps.iter().enumerate() {
        run.step(i, step).map_err(|e| format!("step {} of {}: {e}", i + 1, workload.trace()))?;
    }
    same_tree(&run.model.tree(), &mut run.real).map_err(|e| format!("after {}: {e}", workload.trace()))?;
    let Run { medium, real, history, .. } = run;
    drop(real);
    Ok(Performed { recording: medium.take_recording(), begun, history })
}

/// A pool is cleared when it is made: no larger than the workload needs.
fn pool_bytes(workload: &Workload) -> usize {
    let large = |s: &Step| match s.op {
        FsOp::Write { len, .. }
        | FsOp::Append { len, .. }
        | FsOp::OpenWriteClose { len, .. }
        | FsOp::OpenReadWriteClose { len, .. }
        | FsOp::AppendChecksumWrite { len, .. }
        | FsOp::ReadModifyWrite { len, .. } => len >= 60_000,
        FsOp::AtomicReplace { len, .. }
        | FsOp::Program { len, .. }
        | FsOp::MultiWrite { len, .. }
        | FsOp::Batch { len, .. }
        | FsOp::Fused { len, .. } => len >= 30_000,
        _ => false,
    };
    // One payload each way, and a second one to compare with.
    if workload.steps.iter().any(large) { 4 << 20 } else { 256 << 10 }
}

struct Run {
    pool: usize,
    medium: Arc<RecordingMedium>,
    real: Real,
    model: Model,
    history: History,
    ticks: i64,
    /// What the store calls the two keys of the catalogue's table, once it has them.
    keys: Option<[u64; 2]>,
}

impl Run {
    /// Everything up to now is promised to stay.
    fn acknowledge(&mut self) {
        let point = self.history.points.len() - 1;
        self.history.acks.push(Ack { event: self.medium.position(), point });
    }

    fn step(&mut self, number: usize, step: &Step) -> Result<(), String> {
        let Commands { open, ops, keep, many } = commands(number, &step.op, &self.model);
        let opened = match &open {
            Some(op) => self.both(op, false)?.0.is_ok(),
            None => true,
        };
        if let FsOp::Fused { row, a, b, off, len } = step.op {
            self.fused(number, step, row, [a.path(), b.path()], (off, len))?;
        } else if let Some(many) = many {
            self.many(number, many, &ops, step)?;
        } else if opened {
            for op in &ops {
                self.command(number, op, step)?;
            }
        }
        if !keep && self.model.slots().iter().any(|(s, _)| *s == SLOT) {
            drop(self.both(&Op::Close { slot: SLOT }, false)?);
        }
        if step.sync != Sync::Nothing {
            let journal = self.real.direct.store().journal();
            journal.wait(journal.tail()).map_err(|e| format!("{:?}: {e}", step.sync))?;
            self.acknowledge();
        }
        self.background(step.then).map_err(|e| format!("{:?}: {e}", step.then))
    }

    /// Runs an operation on the model and on the store: the answer, and the trees between micro-transactions.
    fn both(&mut self, op: &Op, micro: bool) -> Result<(Res<Reply>, Vec<Tree>), String> {
        self.ticks += 1;
        self.model.now = (START + WORKLOAD_AFTER + self.ticks, self.ticks as u32);
        self.real.direct.now = self.model.now;
        let root = Cred::root();
        let (expected, between) = match micro {
            true => self.model.apply_micro(&root, op),
            false => (self.model.apply(&root, op), Vec::new()),
        };
        let found = self.real.apply(op);
        if expected != found {
            let short = |shown: String| shown.chars().take(400).collect::<String>();
            let (op, expected) = (short(format!("{op:?}")), short(format!("{expected:?}")));
            return Err(format!("{op}: the model says {expected}, the store {}", short(format!("{found:?}"))));
        }
        Ok((found, between))
    }

    fn command(&mut self, number: usize, op: &Op, step: &Step) -> Result<(), String> {
        let from_event = self.medium.position();
        let before = self.real.direct.last_end();
        (self.real.mode, self.real.durable) = (txn_mode(step.mode), step.durable);
        let (_, mut between) = self.both(op, self.real.runs_micro(op))?;
        (self.real.mode, self.real.durable) = (TxnMode::Default, false);
        self.point(number, step, from_event, std::mem::take(&mut between));
        // A command that changed nothing wrote no record, and promises nothing.
        if step.durable && self.real.direct.last_end() != before {
            self.acknowledge();
        }
        Ok(())
    }

    /// The tree is another one now, perhaps: then it is a point.
    fn point(&mut self, number: usize, step: &Step, from_event: u64, mut between: Vec<Tree>) {
        let tree = self.model.tree();
        let last = &self.history.points[self.history.points.len() - 1].tree;
        between.retain(|t| t != last && *t != tree);
        if tree != *last {
            let what = format!("step {} ({})", number + 1, Workload::new([*step]).trace());
            self.history.points.push(Point { from_event, what, tree, between });
        }
    }

    fn background(&mut self, then: Background) -> Result<(), String> {
        let store = self.real.direct.store().clone();
        match then {
            Background::Nothing => return Ok(()),
            Background::Checkpoint => drop(store.checkpoint().map_err(|e| e.to_string())?),
            Background::Reclaim => {
                store.reclaim_all().map_err(|e| e.to_string())?;
                store.checkpoint().map_err(|e| e.to_string())?;
            }
            Background::Remount => {
                self.real.direct.close_all();
                self.model.close_all();
                store.unmount().map_err(|e| e.to_string())?;
                drop(store);
                // Salts of another mount are other ones.
                let random = Arc::new(SeededRandom::new(self.medium.position() | 1 << 62));
                let options = MountOptions { random, ..mount_options() };
                let (store, _) = weldfs_fs::mount(self.medium.clone(), options).map_err(|e| e.to_string())?;
                self.real = Real::with_pool(store, self.pool);
                self.keys = None;
            }
        }
        self.acknowledge();
        Ok(())
    }
}

/// The tree of a mounted store, every byte of it read.
///
/// # Errors
/// What could not be read.
pub fn read_tree(store: &Arc<Store>) -> Result<Tree, String> {
    Real::with_pool(store.clone(), 256 << 10).tree()
}

fn txn_mode(mode: Mode) -> TxnMode {
    match mode {
        Mode::Default => TxnMode::Default,
        Mode::Macro => TxnMode::Macro,
        Mode::Micro => TxnMode::Micro,
    }
}
