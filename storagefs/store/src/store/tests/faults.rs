//! Fault sweeps: the first, second, third ... access fails, once or for good. Every failure is an errno, nothing
//! panics, and what is on the medium afterwards mounts and is clean, with everything acknowledged as durable.

use super::model::shown;
use super::*;
use weldfs_media::{FaultKind, FaultOn, FaultPlan, FaultyMedium};

fn script() -> Vec<Act> {
    let mut acts = vec![Act::Create(0), Act::Create(1)];
    for i in 0..6u8 {
        acts.push(Act::Write { file: i % 2, blk: u64::from(i), count: 3, fill: i });
        acts.push(Act::Patch { file: i % 2, off: 5000 + u64::from(i) * 90, len: 80, fill: i });
        acts.push(if i % 3 == 1 { Act::Checkpoint } else { Act::SetXattr { file: 1, name: i % 4, len: 50 } });
    }
    acts.extend([Act::Cut { file: 0, blk: 1, count: 9 }, Act::Unlink(1), Act::Checkpoint, Act::Create(2)]);
    acts.push(Act::Write { file: 2, blk: 0, count: 2, fill: 3 });
    acts
}

/// Runs the script over a failing medium; whether the fault happened.
fn run(plan: FaultPlan) -> bool {
    let ram = fresh_ram(4 << 20);
    let faulty = Arc::new(FaultyMedium::new(ram.clone()));
    let medium: Arc<dyn Medium> = faulty.clone();
    faulty.plan(Some(plan));
    let mut acknowledged = None;
    if let Ok((store, _)) = crate::testing::mount(medium, options()) {
        let mut w = World::new(store);
        for act in script() {
            let done = match &act {
                Act::Checkpoint => w.store().checkpoint().map(|_| ()).map_err(Errno::from),
                other => w.try_run(other),
            };
            if done.is_err() {
                break;
            }
            if w.store().journal().wait(w.last()).is_err() {
                break;
            }
            acknowledged = Some(w.expected());
        }
    }
    let fired = faulty.fired();
    // A poisoned medium stays so: its bytes go on in another.
    let inner: Arc<dyn Medium> = Arc::new(RamMedium::from_bytes(ram.to_bytes()));
    assert_fsck(&inner);
    let (store, _) = mount(&inner);
    if let Some(want) = acknowledged {
        let found = shown(&store);
        let next = found.iter().filter(|(name, file)| want.get(*name) != Some(*file)).count();
        let gone = want.keys().filter(|name| !found.contains_key(*name)).count();
        assert!(next + gone <= 1, "{plan:?}: more than the one operation that failed differs");
    }
    store.reclaim_all().unwrap();
    store.unmount().unwrap();
    drop(store);
    assert_fsck(&inner);
    fired
}

fn sweep(on: FaultOn, kind: FaultKind, sticky: bool) {
    let mut nth = 1;
    while run(FaultPlan { on, nth, kind, sticky }) {
        nth += 1;
        assert!(nth < 2000, "the sweep does not end");
    }
    assert!(nth > 1, "no fault ever happened");
}

#[test]
fn every_failing_write_is_an_error_and_loses_nothing() {
    sweep(FaultOn::Write, FaultKind::Eio, false);
    sweep(FaultOn::Write, FaultKind::Short, true);
}

#[test]
fn every_failing_flush_is_final_and_loses_nothing() {
    sweep(FaultOn::Flush, FaultKind::Eio, false);
    sweep(FaultOn::Flush, FaultKind::Eio, true);
}

#[test]
fn every_failing_read_is_an_error_and_loses_nothing() {
    sweep(FaultOn::Read, FaultKind::Eio, false);
    sweep(FaultOn::Read, FaultKind::Eio, true);
}
