//! Fault sweeps: the first, the second, the third ... access of a scenario fails, once or from then on, until the
//! scenario no longer gets that far. Each failure must reach the caller as an errno; the store goes on, or is poisoned
//! and says so; what is on the medium mounts, is clean, and shows the tree before or after what failed (after, if it
//! was acknowledged).

pub mod scenarios;

use crate::hand::{Hand, Picture, fresh, small_layout, small_mount};
use scenarios::{Act, Command, Scenario, prepare};
use std::sync::Arc;
use weldfs_ciscops::Errno;
use weldfs_journal::Medium;
use weldfs_media::{CowImage, CowMedium, CrashModel, FaultKind, FaultOn, FaultPlan, FaultyMedium};
use weldfs_store::MountOptions;
use weldfs_store::fsck::fsck;

/// Bytes of the image.
const IMAGE_BYTES: usize = 4 << 20;
const LOG_BYTES: u64 = 256 << 10;
/// A sweep that gets this far does not end.
const NTH_MAX: u64 = 3000;
/// What is written after a fault to see whether the store still works.
const PROBE: &str = "probe";

/// The images that scenarios start from, for one kind of medium.
pub struct Start {
    model: CrashModel,
    /// Prepared; its device was killed.
    killed: CowImage,
    /// The tree in it.
    before: Picture,
}

/// Counts of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Runs in which the fault happened.
    pub faults: u64,
    /// Of those, runs that ended poisoned.
    pub poisoned: u64,
}

/// What a durable write after the fault said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probed {
    Works,
    Refused,
    NotTried,
}

/// Which trees may be found after a fault.
struct Trees {
    after: Picture,
    failed: Vec<Picture>,
}

/// One run's fault, with `None` for a run that only has little memory.
type Plan = Option<FaultPlan>;

fn options() -> MountOptions {
    small_mount(11)
}

fn mount(medium: Arc<dyn Medium>) -> Result<Hand, i32> {
    weldfs_fs::mount(medium, options()).map(|(store, _)| Hand::new(store)).map_err(|_| libc::EIO)
}

fn clean(medium: Arc<dyn Medium>, when: &str) -> Result<(), String> {
    let report = fsck(medium, options(), true).map_err(|e| format!("fsck {when}: {e}"))?;
    if report.clean { Ok(()) } else { Err(format!("fsck {when}: {}", report.problems.join("; "))) }
}

fn picture(hand: &mut Hand) -> Result<Picture, String> {
    hand.picture().map_err(|(path, e)| format!("reading {path}: {}", Errno(e).text()))
}

impl Start {
    /// Formats and fills.
    ///
    /// # Errors
    /// In words.
    pub fn new(model: CrashModel) -> Result<Start, String> {
        let medium = Arc::new(CowMedium::new(CowImage::new(vec![0; IMAGE_BYTES]), model));
        let as_medium: Arc<dyn Medium> = medium.clone();
        let mut hand = fresh(&as_medium, &small_layout(LOG_BYTES), 5)?;
        prepare(&mut hand).map_err(|e| format!("preparing: {}", Errno(e).text()))?;
        let before = picture(&mut hand)?;
        drop(hand);
        // One base for all that follows.
        let killed = CowImage::new(medium.image().to_bytes());
        Ok(Start { model, killed, before })
    }

    fn medium(&self) -> Arc<CowMedium> {
        Arc::new(CowMedium::new(self.killed.clone(), self.model))
    }

    /// The trees that may be found: after the scenario, when nothing fails; and others that may stand when it failed.
    fn trees(&self, s: &Scenario) -> Result<Trees, String> {
        let run = |f: Option<Command>| {
            let mut hand = mount(self.medium()).map_err(|_| "the mount failed".to_owned())?;
            if let Some(f) = f {
                f(&mut hand).map_err(|e| format!("without a fault: {}", Errno(e).text()))?;
            }
            picture(&mut hand)
        };
        let whole = if let Act::Command(f) = s.act { Some(f) } else { None };
        let mut failed = vec![self.before.clone()];
        if s.part.is_some() {
            failed.push(run(s.part)?);
        }
        Ok(Trees { after: run(whole)?, failed })
    }

    /// Every fault of one kind, and then the run with little memory. Says how many faults there were.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn sweep(&self, s: &Scenario) -> Result<Swept, String> {
        let trees = self.trees(s).map_err(|e| format!("{}: {e}", s.name))?;
        let mut swept = Swept::default();
        let kinds = [
            (FaultOn::Read, FaultKind::Eio),
            (FaultOn::Read, FaultKind::Short),
            (FaultOn::Write, FaultKind::Eio),
            (FaultOn::Write, FaultKind::Enospc),
            (FaultOn::Write, FaultKind::Short),
            (FaultOn::Flush, FaultKind::Eio),
        ];
        for (on, kind) in kinds {
            for sticky in [false, true] {
                let mut nth = 1;
                loop {
                    let plan = FaultPlan { on, nth, kind, sticky };
                    let told = |e| format!("{}, {:?}, {plan:?}: {e}", s.name, self.model);
                    let ended = self.run(s, Some(plan), &trees).map_err(told)?;
                    let Some(poisoned) = ended else { break };
                    swept.faults += 1;
                    swept.poisoned += u64::from(poisoned);
                    nth += 1;
                    if nth > NTH_MAX {
                        return Err(format!("{}: the sweep does not end", s.name));
                    }
                }
            }
        }
        self.run(s, None, &trees).map_err(|e| format!("{}, {:?}, little memory: {e}", s.name, self.model))?;
        Ok(swept)
    }

    /// One run. `None`: the fault did not happen. Else whether the store was poisoned by it.
    fn run(&self, s: &Scenario, plan: Plan, trees: &Trees) -> Result<Option<bool>, String> {
        let inner = self.medium();
        let faulty = Arc::new(FaultyMedium::new(inner.clone()));
        let (acknowledged, probed) = act(s, plan, &faulty)?;
        let fired = faulty.fired();
        if plan.is_none() && !acknowledged {
            return Err("it failed".into());
        }
        if fired != plan.is_some() && !acknowledged {
            return Err("it failed without a fault".into());
        }
        let poisoned = inner.is_poisoned();
        if poisoned && probed == Probed::Works {
            return Err("poisoned, and yet it acknowledges".into());
        }
        if fired && !poisoned && probed == Probed::Refused {
            return Err("the fault has passed, nothing is poisoned, and yet nothing works".into());
        }
        self.judge(&inner, trees, acknowledged, probed == Probed::Works)?;
        Ok(fired.then_some(poisoned))
    }

    /// What is on the medium, mounted where nothing fails.
    fn judge(&self, inner: &CowMedium, trees: &Trees, acknowledged: bool, probed: bool) -> Result<(), String> {
        let healthy = Arc::new(CowMedium::new(inner.image(), self.model));
        clean(healthy.clone(), "of what is on the medium")?;
        let (store, recovery) = weldfs_fs::mount(healthy.clone(), options()).map_err(|e| format!("mount: {e}"))?;
        let mut hand = Hand::new(store);
        let mut found = picture(&mut hand)?;
        if found.remove(PROBE).is_none() && probed {
            return Err("what was written after the fault is not there".into());
        }
        let after = &trees.after;
        if found != *after && (acknowledged || !trees.failed.contains(&found)) {
            let wrong = found.iter().find(|(p, s)| after.get(*p) != Some(*s)).map(|(p, _)| p.clone());
            let gone = after.keys().find(|p| !found.contains_key(*p)).cloned();
            return Err(format!(
                "acknowledged: {acknowledged}; a tree of neither before nor after: {wrong:?} differs from after, \
                 {gone:?} is missing; {recovery:?}"
            ));
        }
        hand.store().reclaim_all().map_err(|e| format!("reclaim: {e}"))?;
        hand.store().unmount().map_err(|e| format!("unmount: {e}"))?;
        drop(hand);
        clean(healthy, "after the unmount")
    }
}

/// Lets the scenario meet its fault. Says whether it was acknowledged, and whether the store works afterwards.
fn act(s: &Scenario, plan: Plan, faulty: &Arc<FaultyMedium>) -> Result<(bool, Probed), String> {
    let mount_options = match plan {
        Some(_) => options(),
        None => MountOptions { memory: 1, ..options() },
    };
    let mount = |medium: Arc<FaultyMedium>| weldfs_fs::mount(medium, mount_options.clone());
    match s.act {
        Act::Mount => {
            faulty.plan(plan);
            let first = mount(faulty.clone());
            disarm(faulty);
            let acknowledged = first.is_ok();
            let store = match first {
                Ok((store, _)) => store,
                Err(_) if faulty.is_poisoned() => return Ok((false, Probed::Refused)),
                Err(_) => mount(faulty.clone()).map_err(|e| format!("the second mount: {e}"))?.0,
            };
            Ok((acknowledged, probe(&mut Hand::new(store))?))
        }
        Act::Fsck => {
            faulty.plan(plan);
            let checked = fsck(faulty.clone(), mount_options.clone(), true);
            disarm(faulty);
            if matches!(&checked, Ok(report) if !report.clean && !faulty.fired()) {
                return Err("fsck finds something".into());
            }
            let acknowledged = matches!(checked, Ok(report) if report.clean);
            if faulty.is_poisoned() {
                return Ok((acknowledged, Probed::Refused));
            }
            let store = mount(faulty.clone()).map_err(|e| format!("mount: {e}"))?.0;
            Ok((acknowledged, probe(&mut Hand::new(store))?))
        }
        _ => {
            let store = mount(faulty.clone()).map_err(|e| format!("mount: {e}"))?.0;
            let mut hand = Hand::new(store);
            hand.mode = s.mode;
            faulty.plan(plan);
            let done = live(s, &mut hand);
            disarm(faulty);
            if let Err(e) = done
                && !(1..=133).contains(&e)
            {
                return Err(format!("{e} is no errno"));
            }
            if matches!(s.act, Act::Unmount) && done.is_ok() {
                return Ok((true, Probed::NotTried));
            }
            Ok((done.is_ok(), probe(&mut hand)?))
        }
    }
}

/// The fault is over, but what it did stays known.
fn disarm(faulty: &FaultyMedium) {
    faulty.end();
}

fn live(s: &Scenario, hand: &mut Hand) -> Result<(), i32> {
    let errno = |e: weldfs_store::error::FsError| Errno::from(e).0;
    match s.act {
        Act::Command(f) => f(hand).and_then(|()| hand.sync()),
        Act::Checkpoint => hand.store().checkpoint().map(drop).map_err(errno),
        Act::Reclaim => hand.store().reclaim_all().and_then(|()| hand.store().checkpoint().map(drop)).map_err(errno),
        Act::Unmount => hand.store().unmount().map_err(errno),
        Act::ReadAll => hand.picture().map(drop).map_err(|(_, e)| e),
        Act::Mount | Act::Fsck => Ok(()),
    }
}

/// Whether a durable write still works: it does, or says EIO.
fn probe(hand: &mut Hand) -> Result<Probed, String> {
    match hand.put(PROBE, b"still here").and_then(|_| hand.sync()) {
        Ok(()) => Ok(Probed::Works),
        // A store whose unmount got far enough takes nothing any more.
        Err(libc::EIO | libc::EROFS) => Ok(Probed::Refused),
        Err(e) => Err(format!("after the fault a write says {}", Errno(e).text())),
    }
}
