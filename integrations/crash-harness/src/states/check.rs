//! What one crash state recovers to, and whether that is sound by itself: it mounts, every byte can be read, fsck finds
//! nothing, recovering again changes nothing, a crash within the recovery changes nothing, the tree can be removed and
//! made again. Whether the tree is one that may be there is for the oracle to say, who knows the workload. Where
//! recovery finishes a transaction the image is mounted read-only as well, and what that shows goes to the oracle, too.
//!
//! Equal images recover once: what they led to is kept by digest, for all workloads over the same base.

use super::enumerate::{Places, states};
use super::perform::mount_options;
use super::{Bad, Rng, Tree, read_tree, usable};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weldfs_journal::{Medium, SeededRandom};
use weldfs_locks::Mutex;
use weldfs_media::{CowImage, CowMedium, CrashModel, Recording, RecordingMedium, Replayer};
use weldfs_store::fsck::fsck_mounted;
use weldfs_store::mount::RecoveryReport;
use weldfs_store::{MountOptions, Store};

const SHARDS: usize = 16;
/// Of so many images without anything special one has its recovery crashed and repeated.
const SAMPLE: u128 = 32;
/// Of so many images whose recovery finishes transactions.
const SAMPLE_FINISHED: u128 = 4;
/// States tried of one recovery that is crashed.
const RECOVERY_STATES: u64 = 12;

/// What an image recovers to.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The tree; `None` when there is none to be had.
    pub tree: Option<Arc<Tree>>,
    /// Other trees that crashes within the recovery led to: the oracle must allow each.
    pub others: Vec<Arc<Tree>>,
    /// What read-only mounts show of this image and of those of crashes within its recovery, where recovery finishes a
    /// transaction: the oracle must allow each, the middles of what was open included.
    pub shown: Vec<Arc<Tree>>,
    /// What is wrong whatever the workload was.
    pub bad: Vec<Bad>,
}

/// How much was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Different images that the power cuts of workloads left.
    pub images: u64,
    /// Different images that crashes within recoveries left; some of them may be the same as some of those.
    pub in_recovery: u64,
    /// Different ones of both kinds: as many were recovered.
    pub recovered: u64,
    /// Of them, those whose recovery finished a transaction: each was mounted read-only, too.
    pub read_only: u64,
    /// Of these, those that showed another tree than the recovery led to: a transaction half way.
    pub middles: u64,
    /// Different trees they led to, each removed and made again.
    pub trees: u64,
}

#[derive(Default)]
struct Tally {
    images: AtomicU64,
    in_recovery: AtomicU64,
    recovered: AtomicU64,
    read_only: AtomicU64,
    middles: AtomicU64,
}

/// An image that was recovered, and as what it was met.
struct Seen {
    recovered: Arc<Recovered>,
    of_workload: bool,
    of_recovery: bool,
}

/// Recovers images of one base. Thread-safe.
pub struct Checker {
    model: CrashModel,
    places: Places,
    depth: u32,
    seen: [Mutex<HashMap<u128, Seen>>; SHARDS],
    trees: Mutex<HashSet<Arc<Tree>>>,
    /// Those that read-only mounts showed, kept apart: none of them is known to be usable.
    shown: Mutex<HashSet<Arc<Tree>>>,
    tally: Tally,
}

/// A mount that went well, and what the medium went through meanwhile.
struct Mounted {
    store: Arc<Store>,
    report: RecoveryReport,
    recording: Recording,
    after: CowImage,
}

impl Checker {
    /// `depth`: crashes in a row, the first one included.
    pub fn new(model: CrashModel, places: Places, depth: u32) -> Checker {
        let seen = std::array::from_fn(|_| Mutex::default());
        Checker {
            model,
            places,
            depth,
            seen,
            trees: Mutex::default(),
            shown: Mutex::default(),
            tally: Tally::default(),
        }
    }

    /// How much was done so far.
    pub fn counts(&self) -> Counts {
        let trees = self.trees.lock().len() as u64;
        let Tally { images, in_recovery, recovered, read_only, middles } = &self.tally;
        Counts {
            images: images.load(Relaxed),
            in_recovery: in_recovery.load(Relaxed),
            recovered: recovered.load(Relaxed),
            read_only: read_only.load(Relaxed),
            middles: middles.load(Relaxed),
            trees,
        }
    }

    /// What `image` recovers to.
    pub fn recover(&self, image: &CowImage) -> Arc<Recovered> {
        self.recover_after(image, 1)
    }

    fn recover_after(&self, image: &CowImage, crashes: u32) -> Arc<Recovered> {
        let digest = image.digest();
        let shard = &self.seen[(digest % SHARDS as u128) as usize];
        if let Some(known) = shard.lock().get_mut(&digest) {
            return self.met(known, crashes);
        }
        let attempt = catch_unwind(AssertUnwindSafe(|| self.attempt(image, digest, crashes)));
        let recovered = attempt.unwrap_or_else(|panic| Recovered::nothing(Bad::new(1, panicked(&*panic))));
        let mut shard = shard.lock();
        let known = shard.entry(digest).or_insert_with(|| {
            self.tally.recovered.fetch_add(1, Relaxed);
            Seen { recovered: Arc::new(recovered), of_workload: false, of_recovery: false }
        });
        self.met(known, crashes)
    }

    /// Counts an image once for each way to meet it.
    fn met(&self, seen: &mut Seen, crashes: u32) -> Arc<Recovered> {
        let (before, count) = match crashes {
            1 => (&mut seen.of_workload, &self.tally.images),
            _ => (&mut seen.of_recovery, &self.tally.in_recovery),
        };
        if !std::mem::replace(before, true) {
            count.fetch_add(1, Relaxed);
        }
        seen.recovered.clone()
    }

    fn attempt(&self, image: &CowImage, digest: u128, crashes: u32) -> Recovered {
        let mounted = match self.mount(image, digest) {
            Ok(m) => m,
            Err(bad) => return Recovered::nothing(bad),
        };
        let tree = match read_tree(&mounted.store) {
            Ok(tree) => tree,
            Err(e) => return Recovered::nothing(Bad::new(4, e)),
        };
        let (tree, fresh) = keep(&mut self.trees.lock(), tree);
        let mut found = Recovered { tree: Some(tree.clone()), ..Recovered::default() };
        let Mounted { store, report, recording, after } = mounted;
        let finished = report.finish_records > 0;
        found.bad.extend(fsck(&store, report).err());
        drop(store);
        if finished {
            self.look(image, digest, &mut found);
        }
        let sample = if finished { SAMPLE_FINISHED } else { SAMPLE };
        if fresh || finished || digest.is_multiple_of(SAMPLE) {
            found.bad.extend(self.again(&after, digest, &tree, fresh).err());
        }
        if crashes < self.depth && (fresh || digest.is_multiple_of(sample)) {
            self.crash_recovery(&recording, digest, crashes, &mut found);
        }
        found
    }

    /// Mounts read-only an image whose recovery finishes a transaction, and keeps what that shows.
    fn look(&self, image: &CowImage, digest: u128, found: &mut Recovered) {
        self.tally.read_only.fetch_add(1, Relaxed);
        let medium = Arc::new(CowMedium::new(image.clone(), self.model));
        let tree = weldfs_fs::mount(medium, MountOptions { read_only: true, ..options(digest) })
            .map_err(|e| Bad::new(1, format!("read-only mount: {e}")))
            .and_then(|(store, _)| read_tree(&store).map_err(|e| Bad::new(4, format!("read-only mount: {e}"))));
        match tree {
            Ok(tree) => {
                self.tally.middles.fetch_add(u64::from(found.tree.as_deref() != Some(&tree)), Relaxed);
                found.shown.push(keep(&mut self.shown.lock(), tree).0);
            }
            Err(bad) => found.bad.push(bad),
        }
    }

    fn mount(&self, image: &CowImage, digest: u128) -> Result<Mounted, Bad> {
        let medium = Arc::new(RecordingMedium::over(image.clone(), self.model));
        let (store, report) =
            weldfs_fs::mount(medium.clone(), options(digest)).map_err(|e| Bad::new(1, format!("mount: {e}")))?;
        let recording = medium.take_recording();
        Ok(Mounted { store, report, recording, after: medium.image() })
    }

    /// Power fails right after the recovery: the next one leads to the same tree. With `usable` everything in it is
    /// then removed and made again, and that survives an unmount.
    fn again(&self, after: &CowImage, digest: u128, tree: &Arc<Tree>, usable: bool) -> Result<(), Bad> {
        let second = |e: String| Bad::new(7, format!("recovered a second time: {e}"));
        let Mounted { store, after: last, .. } = self.mount(after, !digest).map_err(|b| second(b.detail))?;
        let found = read_tree(&store).map_err(second)?;
        if let Some(difference) = tree.first_difference(&found) {
            return Err(second(difference));
        }
        if !usable {
            return Ok(());
        }
        drop((store, last));
        self.work(after, digest, tree).map_err(|e| Bad::new(6, e))
    }

    fn work(&self, after: &CowImage, digest: u128, tree: &Arc<Tree>) -> Result<(), String> {
        let medium: Arc<dyn Medium> = Arc::new(CowMedium::new(after.clone(), self.model));
        let words = |e: &dyn std::fmt::Display| e.to_string();
        let (store, _) = weldfs_fs::mount(medium.clone(), options(digest ^ 1)).map_err(|e| words(&e))?;
        let made = usable::remove_and_make_again(&store, tree)?;
        store.reclaim_all().map_err(|e| words(&e))?;
        store.unmount().map_err(|e| words(&e))?;
        drop(store);
        let (store, report) = weldfs_fs::mount(medium, options(digest ^ 2)).map_err(|e| words(&e))?;
        let found = read_tree(&store)?;
        if let Some(difference) = made.first_difference(&found) {
            return Err(format!("what was made again differs after unmount and mount: {difference}"));
        }
        fsck(&store, report).map_err(|b| format!("after everything was made again: {}", b.detail))
    }

    /// Power fails within the recovery: the next one must lead to the same tree, or to one that the oracle allows.
    fn crash_recovery(&self, recording: &Recording, digest: u128, crashes: u32, found: &mut Recovered) {
        let seed = digest as u64;
        let mut at = Replayer::new(recording, 0);
        let mut sizes = Vec::new();
        while at.advance() {
            let chosen = states(&at, &self.places, seed, &|_| false, &mut |_, _| {});
            sizes.push((at.position(), chosen.states));
        }
        let all: u64 = sizes.iter().map(|(_, n)| n).sum();
        let mut rng = Rng::new(seed ^ 0xC4A5);
        let picked: HashSet<u64> = (0..RECOVERY_STATES).map(|_| rng.below(all)).collect();
        let (mut at, mut before) = (Replayer::new(recording, 0), 0);
        for (position, count) in sizes {
            if (before..before + count).any(|n| picked.contains(&n)) {
                at.goto(position);
                let pick = |n: u64| picked.contains(&(before + n));
                states(&at, &self.places, seed, &pick, &mut |_, image| {
                    let next = self.recover_after(&image, crashes + 1);
                    found.bad.extend(next.bad.iter().map(|b| Bad::new(b.rule, format!("in recovery: {}", b.detail))));
                    let differs = next.tree.iter().chain(&next.others).filter(|t| Some(*t) != found.tree.as_ref());
                    let differs: Vec<Arc<Tree>> = differs.cloned().collect();
                    found.others.extend(differs);
                    found.shown.extend(next.shown.iter().cloned());
                });
            }
            before += count;
        }
    }
}

impl Recovered {
    fn nothing(bad: Bad) -> Recovered {
        Recovered { bad: vec![bad], ..Recovered::default() }
    }
}

/// Keeps one copy of each tree; says whether this one is new.
fn keep(trees: &mut HashSet<Arc<Tree>>, tree: Tree) -> (Arc<Tree>, bool) {
    if let Some(known) = trees.get(&tree) {
        return (known.clone(), false);
    }
    let tree = Arc::new(tree);
    trees.insert(tree.clone());
    (tree, true)
}

/// What a panic said.
pub(super) fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let what = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    format!("panic: {}", what.unwrap_or_default())
}

/// Salts must differ from mount to mount, and be the same when a state is checked again.
fn options(digest: u128) -> MountOptions {
    let seed = (digest >> 64) as u64 ^ digest as u64;
    MountOptions { random: Arc::new(SeededRandom::new(seed | 1 << 63)), ..mount_options() }
}

fn fsck(store: &Store, recovery: RecoveryReport) -> Result<(), Bad> {
    let report = fsck_mounted(store, recovery, false).map_err(|e| Bad::new(5, e.to_string()))?;
    match report.clean {
        true => Ok(()),
        false => Err(Bad::new(5, report.problems.join("; "))),
    }
}
