//! Cells against the layers below them: who looks up with them finds what he would find without.

use super::model::act;
use super::*;
use crate::overlay::RecState;
use crate::record::{Dirent, InodeRec};
use crate::store::names::slot_in;
use std::sync::atomic::AtomicU32;
use weldfs_journal::canary::{Canary, plant_here, seen};

/// What layers and tree say of an inode.
fn below_cells(store: &Store, ino: u64) -> Option<InodeRec> {
    let shard = store.overlay.shard(ino).read();
    let layers = [Some(&shard.active), shard.lower.frozen.as_deref()];
    let said = layers.into_iter().flatten().find_map(|layer| match &layer.nodes.get(&ino)?.rec {
        RecState::Live(rec) => Some(Some(rec.clone())),
        RecState::Gone => Some(None),
        RecState::Below => None,
    });
    said.unwrap_or_else(|| shard.lower.base.inode(&shard.lower.base.slow, ino).unwrap())
}

/// The same of a name: its entry, or the cookie under which it can be added.
fn names_below(store: &Store, name: &[u8]) -> Result<Dirent, u64> {
    let first = store.hash.bucket(name);
    let bucket = store.blocking(|| store.dirent_bucket(InodeNo::ROOT, first)).unwrap();
    let slot = slot_in(first, &bucket).unwrap_or(0);
    bucket.into_iter().find(|d| *d.name == *name).ok_or(slot)
}

/// Looks up some of all that there is (cells are filled for these), and says what differs.
fn differs(store: &Store, seed: usize) -> Option<String> {
    let last = store.ledger.next_ino.load(Relaxed);
    for ino in (1..=last).filter(|ino| !(*ino as usize + seed).is_multiple_of(3)) {
        let (found, below) = (store.blocking(|| store.inode(InodeNo(ino))).unwrap(), below_cells(store, ino));
        if found != below {
            return Some(format!("inode {ino}: {found:?} instead of {below:?}"));
        }
    }
    for n in (0..8).filter(|n| !(*n as usize + seed).is_multiple_of(3)) {
        let name = World::name(n);
        let (found, below) = (store.blocking(|| store.dirent_or_slot(InodeNo::ROOT, &name)), names_below(store, &name));
        if found.as_ref().unwrap() != &below {
            return Some(format!("name {n}: {found:?} instead of {below:?}"));
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, ..ProptestConfig::default() })]

    /// Whatever is changed, written out or recovered between two looks: with cells they find what they find without.
    /// Few bits of the hash make names share buckets.
    #[test]
    fn with_cells_is_found_what_is_found_without(
        acts in proptest::collection::vec(act(), 1..100),
        hash_bits in prop_oneof![Just(1u32), Just(2), Just(51)],
        cells in prop_oneof![Just(1usize << 20), Just(64 << 10), Just(0)],
    ) {
        let medium = fresh(12 << 20);
        let options = || MountOptions { hash_bits, ..options() };
        let mount = || {
            let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
            store.overlay.set_cells(cells);
            store
        };
        let mut w = World::new(mount());
        for (at, act) in acts.iter().enumerate() {
            match act {
                Act::Checkpoint => { w.store().checkpoint().unwrap(); }
                Act::Crash => w = w.remount(mount, false),
                Act::Unmount => w = w.remount(mount, true),
                Act::Reclaim => { w.reclaim(); }
                other => w.run(other),
            }
            prop_assert_eq!(differs(w.store(), at), None, "after {:?}", act);
            prop_assert!(w.store().overlay.cell_bytes() <= cells);
        }
    }
}

/// A file that is in the tree and in cells is changed, and its change comes into the tree.
fn changed_under_a_cell() -> Option<String> {
    let medium = fresh(4 << 20);
    let (store, _) = mount(&medium);
    let mut w = World::new(store.clone());
    w.run(&Act::Create(0));
    store.checkpoint().unwrap();
    assert_eq!(differs(&store, 1).or_else(|| differs(&store, 0)), None);
    w.run(&Act::Write { file: 0, blk: 3, count: 2, fill: 1 });
    assert_eq!(differs(&store, 0).or_else(|| differs(&store, 1)), None, "a layer says first what it knows");
    store.checkpoint().unwrap();
    differs(&store, 0).or_else(|| differs(&store, 1))
}

#[test]
fn a_cell_that_outlives_the_change_of_its_inode_does_not_go_unnoticed() {
    assert_eq!(changed_under_a_cell(), None);
    plant_here(Some(Canary::StaleCell));
    let found = changed_under_a_cell();
    let met = seen();
    plant_here(None);
    assert!(met > 0 && found.is_some(), "{found:?}");
}

#[test]
fn what_is_looked_up_again_reads_no_page() {
    let medium = fresh(4 << 20);
    let (store, _) = mount(&medium);
    let mut w = World::new(store.clone());
    // More than the root page holds, which is always there.
    (0..600).for_each(|n| w.run_named(n));
    store.checkpoint().unwrap();
    let look = || {
        for n in (0..600).step_by(20) {
            let ino = store.dirent(InodeNo::ROOT, &World::name(n)).unwrap().unwrap().ino;
            assert_eq!(store.inode(ino).unwrap().unwrap().nlink, 1);
        }
        assert!(store.dirent(InodeNo::ROOT, b"none").unwrap().is_none());
    };
    look();
    let once = store.overlay.cell_bytes();
    look();
    let twice = store.overlay.cell_bytes();
    assert!(twice > once, "a name that is missing again has a cell, too");
    look();
    assert_eq!(store.overlay.cell_bytes(), twice);
    let before = store.stats().page_reads;
    store.overlay.base(0).pages.forget_all();
    look();
    assert_eq!(store.stats().page_reads, before, "all of it was in cells");
    store.overlay.set_cells(0);
    look();
    assert!(store.stats().page_reads > before, "without, the tree is asked");
}

#[test]
fn cells_are_part_of_the_memory_for_caches_and_give_way() {
    let medium = fresh(8 << 20);
    let (store, _) = mount(&medium);
    let mut w = World::new(store.clone());
    (0..1200).for_each(|n| w.run_named(n));
    store.checkpoint().unwrap();
    let look = || {
        for n in 0..1200 {
            let ino = store.dirent(InodeNo::ROOT, &World::name(n)).unwrap().unwrap().ino;
            assert!(store.inode(ino).unwrap().is_some());
        }
        store.overlay.cell_bytes()
    };
    let all = look();
    assert!(all > 1200 * 200 && all <= store.cache_budget_max() / CELLS_PART, "{all}");
    let pages = store.overlay.base(0).pages.stats().cached * crate::limits::PAGE as u64;
    assert_eq!(store.cached(), pages + store.cache.held() + all as u64, "they are counted");
    store.set_cache_budget(1 << 20);
    assert!(store.overlay.cell_bytes() <= (1 << 20) / CELLS_PART);
    assert!((1..=(1 << 20) / CELLS_PART).contains(&look()));
    store.set_cache_budget(0);
    assert_eq!((store.overlay.cell_bytes(), look()), (0, 0));
}

/// Names come and go and files grow while others look them up and checkpoints end: who was told of a change sees it.
#[test]
fn who_was_told_of_a_change_sees_it_whatever_checkpoints_do() {
    let medium = fresh(24 << 20);
    let (store, _) = mount(&medium);
    let mut w = World::new(store.clone());
    w.run(&Act::Create(0));
    let (file, told, stop) = (w.ino(0), AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|s| {
        let (store, told, stop) = (&store, &told, &stop);
        s.spawn(move || {
            while !stop.load(Relaxed) {
                store.checkpoint().unwrap();
            }
        });
        for _ in 0..2 {
            s.spawn(move || {
                let mut least = 0;
                while !stop.load(Relaxed) {
                    let n = told.load(std::sync::atomic::Ordering::Acquire);
                    let size = store.inode(file).unwrap().unwrap().size;
                    assert!(size >= u64::from(n) && size >= least, "{size} after {n} and {least}");
                    least = size;
                    if n > 2 {
                        // Even numbers stay, odd ones have gone when the next but one was told of.
                        let (even, odd) = (n & !1, (n & !1) - 1);
                        assert!(store.dirent(InodeNo::ROOT, &World::name(1000 + even)).unwrap().is_some(), "{even}");
                        assert!(store.dirent(InodeNo::ROOT, &World::name(1000 + odd)).unwrap().is_none(), "{odd}");
                    }
                }
            });
        }
        for n in 1..400u32 {
            w.run(&Act::Write { file: 0, blk: n.into(), count: 1, fill: 1 });
            w.run_named(1000 + n);
            if n % 2 == 0 {
                w.unlink_named(1000 + n - 1);
            }
            told.store(n, std::sync::atomic::Ordering::Release);
        }
        stop.store(true, Relaxed);
    });
    drop((w, store));
    assert_fsck(&medium);
}
