//! Properties of the store, driven by random operations against a plain model in memory.

mod bounds;
mod cells;
mod faults;
mod figures;
mod model;
mod power;
mod races;
mod real;

use super::*;
use crate::effect::{AttrDelta, Effect};
use crate::error::{FsResult, Wait};
use crate::fsck::fsck;
use crate::geometry::GeometryOptions;
use crate::limits::BLOCK;
use crate::mount::{MkfsOptions, RecoveryReport, format};
use model::{Act, World};
use proptest::prelude::*;
use weldfs_journal::{ManualClock, RecordHead, SeededRandom};
use weldfs_media::RamMedium;

fn options() -> MountOptions {
    MountOptions::new(Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(7)))
}

fn fresh(len: u64) -> Arc<dyn Medium> {
    fresh_ram(len)
}

fn fresh_ram(len: u64) -> Arc<RamMedium> {
    let ram = Arc::new(RamMedium::new(len));
    let medium: Arc<dyn Medium> = ram.clone();
    let geometry = GeometryOptions { log_len: Some(256 << 10), group_blocks: Some(512), ..Default::default() };
    let mkfs = MkfsOptions { label: "test".into(), geometry, ..Default::default() };
    format(&medium, &mkfs, &ManualClock::default(), &SeededRandom::new(1)).unwrap();
    ram
}

fn mount(medium: &Arc<dyn Medium>) -> (Arc<Store>, RecoveryReport) {
    crate::testing::mount(medium.clone(), options()).unwrap()
}

fn assert_fsck(medium: &Arc<dyn Medium>) {
    let report = fsck(medium.clone(), options(), true).unwrap();
    assert!(report.clean, "{:#?}", report.problems);
}

#[test]
fn a_fresh_image_mounts_empty_and_clean() {
    let medium = fresh(4 << 20);
    assert_fsck(&medium);
    let (store, report) = mount(&medium);
    assert!(report.clean && report.records == 0);
    let root = store.inode(InodeNo::ROOT).unwrap().unwrap();
    assert!(root.is_dir() && root.nlink == 2);
    assert!(store.dir_is_empty(InodeNo::ROOT).unwrap());
    store.unmount().unwrap();
    drop(store);
    assert_fsck(&medium);
}

#[test]
fn any_number_of_crashes_without_a_checkpoint_leaves_the_image_mountable() {
    let medium = fresh(8 << 20);
    let mut w = World::new(mount(&medium).0);
    for i in 0..60 {
        w.run(&Act::Create(i));
        w = w.remount(|| mount(&medium).0, false);
        w.check();
    }
}

#[test]
fn deleting_everything_gives_every_block_back() {
    let medium = fresh(8 << 20);
    let (store, _) = mount(&medium);
    let mut w = World::new(store.clone());
    store.checkpoint().unwrap();
    let before = (store.statfs(), store.alloc.free() + store.stats().zone_blocks);
    for round in 0..3 {
        for f in 0..20 {
            w.run(&Act::Create(f));
            w.run(&Act::Write { file: f, blk: u64::from(f) * 100, count: 3, fill: round });
            w.run(&Act::Patch { file: f, off: 5000, len: 300, fill: round });
        }
        if round == 1 {
            store.checkpoint().unwrap();
        }
        for f in 0..20 {
            w.run(&Act::Unlink(f));
        }
        store.reclaim_all().unwrap();
        store.checkpoint().unwrap();
        store.checkpoint().unwrap();
        let after = (store.statfs(), store.alloc.free() + store.stats().zone_blocks);
        assert_eq!(before.1, after.1);
        assert_eq!(before.0.inodes, after.0.inodes);
    }
    assert_eq!(store.stats().held_blocks, 0);
    drop((w, store));
    assert_fsck(&medium);
}

#[test]
fn a_full_image_refuses_growth_but_never_overwrite_or_unlink() {
    let medium = fresh(6 << 20);
    let (store, _) = mount(&medium);
    let mut w = World::new(store.clone());
    for round in 0..3 {
        let mut files = 0;
        loop {
            w.run(&Act::Create(files));
            let written = w.try_run(&Act::Write { file: files, blk: 0, count: 16, fill: round });
            if written == Err(Errno::NOSPC) {
                break;
            }
            written.unwrap();
            files += 1;
        }
        assert!(files > 10, "room for {files} files only");
        for f in 0..files {
            w.try_run(&Act::Write { file: f, blk: 0, count: 16, fill: round + 100 }).unwrap();
            w.try_run(&Act::Patch { file: f, off: 100, len: 50, fill: round }).unwrap();
        }
        w.check();
        for f in 0..=files {
            w.try_run(&Act::Unlink(f)).unwrap();
        }
        w.settle();
        assert_eq!(store.stats().held_blocks, 0);
    }
    drop((w, store));
    assert_fsck(&medium);
}

#[test]
fn an_orphan_lives_until_its_last_close_and_goes_after_a_crash() {
    let medium = fresh(4 << 20);
    let (store, _) = mount(&medium);
    let mut w = World::new(store.clone());
    w.run(&Act::Create(1));
    w.run(&Act::Write { file: 1, blk: 0, count: 4, fill: 9 });
    let ino = w.ino(1);
    store.open_ref(ino);
    w.run(&Act::Unlink(1));
    store.reclaim_all().unwrap();
    assert_eq!(store.inode(ino).unwrap().unwrap().nlink, 0);
    let mut buf = [0; BLOCK];
    assert_eq!(store.read_block(ino, 2, &mut buf).unwrap(), BlockKind::Data);
    drop((w, store));
    assert_fsck(&medium);
    let (store, report) = mount(&medium);
    assert_eq!(report.orphans, 1);
    store.reclaim_all().unwrap();
    assert!(store.inode(ino).unwrap().is_none());
    assert_eq!(store.stats().held_blocks, 0);
}

#[test]
fn what_is_longer_than_the_whole_log_is_refused_before_it_starts() {
    let medium = fresh(4 << 20);
    let (store, _) = mount(&medium);
    let before = (store.statfs(), store.journal().free());
    let long = Need { log_bytes: 256 << 10, ..Need::default() };
    assert!(matches!(store.begin(&long).map(drop), Err(FsError::Errno(Errno::TOOBIG))));
    let several = Need { log_bytes: 100 << 10, more_records: [100 << 10, 100 << 10, 0], ..Need::default() };
    assert!(matches!(store.begin(&several).map(drop), Err(FsError::Errno(Errno::TOOBIG))));
    let held = store.begin(&Need { log_bytes: 150 << 10, ..Need::default() }).unwrap();
    let next = store.begin(&Need { log_bytes: 50 << 10, ..Need::default() });
    assert!(matches!(next.map(drop), Err(FsError::Wait(Wait::Checkpoint))));
    drop(held);
    assert_eq!(before, (store.statfs(), store.journal().free()));
}

#[test]
fn a_plan_dropped_leaves_nothing() {
    let medium = fresh(4 << 20);
    let (store, _) = mount(&medium);
    let before = (store.alloc.free(), store.statfs(), store.journal().free());
    let need = Need { log_bytes: 200, new_blocks: 20, meta_keys: 3, may_fail: true, ..Need::default() };
    let mut plan = store.begin(&need).unwrap();
    plan.alloc(7, InodeNo(5)).unwrap();
    plan.alloc(13, InodeNo(5)).unwrap();
    plan.push(Effect::SetAttr(AttrDelta::new(InodeNo::ROOT).mode(0o040700)));
    drop(plan);
    assert_eq!(before, (store.alloc.free(), store.statfs(), store.journal().free()));
}

#[test]
fn a_full_bucket_is_enospc_and_indices_are_not_reused() {
    let medium = fresh(16 << 20);
    let mut o = options();
    o.hash_bits = 1; // one bucket
    let (store, _) = crate::testing::mount(medium, o).unwrap();
    let mut w = World::new(store.clone());
    let cookie = |f| store.dirent(InodeNo::ROOT, &World::name(f)).unwrap().unwrap().cookie;
    (0..4).for_each(|f| w.run_named(f));
    assert!((0..3).all(|f| cookie(f) + 1 == cookie(f + 1)));
    w.unlink_named(3);
    store.checkpoint().unwrap();
    let slot = store.dirent_slot(InodeNo::ROOT, b"x").unwrap();
    assert_eq!(slot, cookie(2) + 2, "the index of a removed entry is given out again");
    // Up to the last number of the bucket.
    w.name_at(10, slot + 4090);
    w.run_named(11);
    let full = |s: &Store| matches!(s.dirent_slot(InodeNo::ROOT, b"x"), Err(FsError::Errno(Errno::NOSPC)));
    assert!(full(&store));
    w.unlink_named(11);
    assert!(full(&store));
    store.checkpoint().unwrap();
    w.unlink_named(10);
    assert!(full(&store));
    (0..3).for_each(|f| w.unlink_named(f));
    assert!(store.dirent_slot(InodeNo::ROOT, b"x").is_ok());
}

#[test]
fn checkpoints_run_while_others_commit() {
    let medium = fresh(24 << 20);
    let (store, _) = mount(&medium);
    let mut w = World::new(store.clone());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let (store, stop) = (&store, &stop);
        s.spawn(move || {
            while !stop.load(Relaxed) {
                store.checkpoint().unwrap();
            }
        });
        for i in 0..600u32 {
            let f = (i % 8) as u8;
            w.run(&Act::Create(f));
            w.run(&Act::Write { file: f, blk: u64::from(i % 300), count: 1 + i % 5, fill: i as u8 });
            w.run(&Act::Patch { file: f, off: u64::from(i) * 37, len: 100, fill: i as u8 });
            if i % 11 == 0 {
                w.run(&Act::Cut { file: f, blk: u64::from(i % 100), count: 150 });
            }
            if i % 50 == 0 {
                w.run(&Act::Unlink(f));
            }
        }
        stop.store(true, Relaxed);
    });
    w.check();
    drop(store);
    let w = w.remount(|| mount(&medium).0, false);
    w.check();
    drop(w);
    assert_fsck(&medium);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_composed_state_is_the_model_across_checkpoints_and_crashes(
        acts in proptest::collection::vec(model::act(), 1..120)
    ) {
        let medium = fresh(12 << 20);
        let mut w = World::new(mount(&medium).0);
        for act in &acts {
            match act {
                Act::Checkpoint => { w.store().checkpoint().unwrap(); }
                Act::Crash => {
                    assert_fsck_quiet(&medium)?;
                    w = w.remount(|| mount(&medium).0, false);
                    w.check();
                }
                Act::Unmount => w = w.remount(|| mount(&medium).0, true),
                Act::Reclaim => { w.reclaim(); }
                other => w.run(other),
            }
        }
        w.check();
        assert_fsck_quiet(&medium)?;
        w.settle();
        w.check();
        w.check_counts();
        assert_fsck_quiet(&medium)?;
    }
}

fn assert_fsck_quiet(medium: &Arc<dyn Medium>) -> Result<(), TestCaseError> {
    let report = fsck(medium.clone(), options(), true).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert!(report.clean, "{:#?}", report.problems);
    Ok(())
}
