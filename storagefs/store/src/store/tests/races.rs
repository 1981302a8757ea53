//! Reclaim, checkpoints and fetches against commands that are under way; forged trees.

use super::*;
use crate::cred::Cred;
use crate::effect::{self, BlockState, attr};
use crate::error::{FsError, Miss};
use crate::micro::{Begin, Commit, End};
use crate::overlay::Base;
use crate::overlay::window::{Mapping, pack};
use crate::record::{InodeRec, Time};
use crate::tree::{Key, PageRef, kind};
use smallvec::SmallVec;
use std::sync::atomic::AtomicBool;
use weldfs_ciscops::{Command, Op, OpenFlags, Outcome, PoolRange, Registers, TxnMode};
use weldfs_journal::Lsn;

fn commit(store: &Store, effects: &[Effect]) -> FsResult<()> {
    let need = Need { log_bytes: effect::encoded_len_max(effects), meta_keys: 20, ..Need::default() };
    loop {
        match store.begin(&need) {
            Ok(mut plan) => {
                effects.iter().cloned().for_each(|e| plan.push(e));
                return store.blocking(|| store.commit(&mut plan, RecordHead::op())).map(drop);
            }
            Err(FsError::Wait(_)) => drop(store.checkpoint()?),
            Err(e) => return Err(e),
        }
    }
}

fn set_nlink(ino: InodeNo, nlink: u32) -> Effect {
    let r = InodeRec::empty(ino);
    Effect::SetAttr(AttrDelta {
        ino,
        mask: attr::NLINK,
        size: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        nlink,
        flags: 0,
        parent: r.parent,
        atime: r.atime,
        mtime: r.mtime,
        ctime: r.ctime,
    })
}

/// Reclaims what it can beside `work`, which says what went wrong.
fn beside_reclaim(store: &Arc<Store>, work: impl FnOnce() -> Option<FsError>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (s, ended) = (store.clone(), stop.clone());
    let reclaimer = std::thread::spawn(move || {
        while !ended.load(Relaxed) {
            if !s.reclaim_pending() {
                std::hint::spin_loop();
                continue;
            }
            match s.reclaim_step() {
                Ok(_) => {}
                Err(FsError::Wait(_)) => drop(s.checkpoint()?),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    });
    let failed = work();
    stop.store(true, Relaxed);
    reclaimer.join().unwrap().unwrap();
    assert!(failed.is_none(), "{failed:?}");
}

fn new_file(store: &Store) -> Effect {
    let mut rec = InodeRec::empty(store.alloc_ino());
    (rec.mode, rec.nlink) = (0o100_644, 1);
    Effect::PutInode(Box::new(rec))
}

#[test]
fn reclaim_never_comes_between_the_effects_of_one_record() {
    let medium = fresh(8 << 20);
    let (store, _) = mount(&medium);
    beside_reclaim(&store, || {
        (0..400).find_map(|_| {
            let create = new_file(&store);
            let ino = create.ino();
            // An unlink: the orphan is named before its last attributes change. The many effects make the window wide.
            let mut unlink = vec![Effect::Orphan { ino }];
            unlink.extend((0..600).map(|_| set_nlink(InodeNo::ROOT, 2)));
            unlink.push(set_nlink(ino, 0));
            commit(&store, &[create]).and_then(|()| commit(&store, &unlink)).err()
        })
    });
    store.reclaim_all().unwrap();
    store.unmount().unwrap();
    drop(store);
}

/// A program's transaction: a file loses its last name in the first group, and is changed in the last.
fn unlinking(ino: InodeNo) -> MicroTxn {
    let many = || (0..60).map(|_| set_nlink(InodeNo::ROOT, 2));
    let mut first = vec![Effect::Orphan { ino }];
    first.extend(many());
    let mut groups: SmallVec<[Group; 2]> = SmallVec::new();
    let middle = (0..10).map(|_| many().collect());
    for (i, effects) in std::iter::once(first).chain(middle).chain([vec![set_nlink(ino, 0)]]).enumerate() {
        groups.push(Group { index: i as u16, commit: Commit { regs: Registers::default(), effects } });
    }
    let op = Op::Program { body: PoolRange::new(0, 96) };
    let mut begin = Begin {
        sqe: Command::new(5, op).with_mode(TxnMode::Micro).encode(),
        now: Time::default(),
        cred: Cred::root(),
        dir: InodeNo(0),
        name: Box::default(),
        file: InodeNo(0),
        generation: 0,
        flags: OpenFlags::empty(),
        detect: None,
        inputs: SmallVec::new(),
        plan: None,
    };
    let end = End::of(&Outcome { micro_done: 12, ..Outcome::ok(0, 0) });
    begin.plan_groups(&mut groups, 12, end);
    MicroTxn::new(begin, groups, end)
}

#[test]
fn reclaim_never_comes_between_the_commits_of_one_transaction() {
    let medium = fresh(8 << 20);
    let (store, _) = mount(&medium);
    let transact = |ino| loop {
        let need = Need { log_bytes: 8000, meta_keys: 20, small_records: 14, ..Need::default() };
        let mut txn = unlinking(ino);
        match store.begin(&need) {
            Ok(mut plan) => return store.blocking(|| store.commit_micro(&mut plan, &mut txn)).map(drop),
            Err(FsError::Wait(_)) => drop(store.checkpoint()?),
            Err(e) => return Err(e),
        }
    };
    beside_reclaim(&store, || {
        (0..1500).find_map(|_| {
            let create = new_file(&store);
            let ino = create.ino();
            commit(&store, &[create]).and_then(|()| transact(ino)).err()
        })
    });
    store.reclaim_all().unwrap();
    assert_eq!(store.stats().reclaim_pending, 0);
    store.unmount().unwrap();
    drop(store);
    assert_fsck(&medium);
}

#[test]
fn memory_that_the_overlay_counts_never_falls_below_nothing() {
    let medium = fresh(8 << 20);
    let (store, _) = mount(&medium);
    let mut w = World::new(store.clone());
    w.run(&Act::Create(1));
    let before = store.ledger.bytes.load(Relaxed);
    for fill in 0..100 {
        w.run(&Act::Patch { file: 1, off: 10, len: 20, fill });
        w.run(&Act::Unmap { file: 1, blk: 0, count: 1 });
    }
    assert!(store.ledger.bytes.load(Relaxed) >= before);
}

#[test]
fn a_page_that_moved_while_it_was_fetched_is_looked_up_again_and_a_damaged_one_is_an_error() {
    let medium = fresh(8 << 20);
    let (store, _) = mount(&medium);
    let addr = store.writer.lock().zone.chunks()[0].start;
    let gone = Miss::Page(PageRef { addr, birth: Lsn(1), crc: 7 });
    assert!(store.fetch(&gone).is_ok(), "who missed it looks again");
    assert!(matches!(store.fetch(&gone), Err(FsError::Corrupt(_))), "and is told when it is still wanted");
}

#[test]
fn a_forged_mapping_outside_the_data_area_stops_the_checkpoint_only() {
    for addr in [1, (8 << 20) / BLOCK as u64 - 1, 1 << 40] {
        let medium = fresh(8 << 20);
        let (store, _) = mount(&medium);
        let old = store.overlay.base(0);
        let m = Mapping { addr, birth: old.cut, crc: 0, state: BlockState::Written };
        let mut batch = vec![(Key::new(kind::WINDOW, 1, 0), Some(pack(&[(0, m)], 0)))].into_iter();
        let mut writer = store.writer.lock();
        writer.zone.begin_checkpoint();
        let tree = old.tree.apply(&old.slow, &mut writer.zone, &mut batch, Lsn(old.cut)).unwrap();
        drop(writer);
        let (pages, slow) = (old.pages.clone(), old.slow.clone());
        store.overlay.switch(&Arc::new(Base { tree, pages, slow, cut: old.cut, next_ino: old.next_ino }));
        commit(&store, &[Effect::Unmap { ino: InodeNo::ROOT, blk: 0, count: 1 }]).unwrap();
        assert!(matches!(store.checkpoint(), Err(FsError::Corrupt(_))), "block {addr}");
    }
}

/// Begins as a device would: waits for checkpoints, a bounded number of times.
fn grow(store: &Store, ino: InodeNo, blk: u64, n: u32) -> Result<(u64, u32), Errno> {
    for _ in 0..8 {
        let need = Need { log_bytes: 4096, new_blocks: n, meta_keys: 8, may_fail: true, ..Need::default() };
        match store.begin(&need) {
            Ok(mut plan) => {
                let run = store.blocking(|| plan.alloc(n, ino)).map_err(Errno::from)?;
                let (state, crcs) = (BlockState::Unwritten, Default::default());
                plan.push(Effect::Map { ino, blk, addr: run.addr, count: run.count, state, crcs });
                store.blocking(|| store.commit(&mut plan, RecordHead::op())).map_err(Errno::from)?;
                return Ok((run.addr.0, run.count));
            }
            Err(FsError::Wait(_)) => drop(store.checkpoint().map_err(Errno::from)?),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::NOSPC)
}

#[test]
fn free_space_in_single_blocks_never_stops_a_checkpoint() {
    let medium = fresh(8 << 20);
    let (store, _) = mount(&medium);
    let big = store.alloc_ino();
    let mut rec = InodeRec::empty(big);
    (rec.mode, rec.nlink) = (0o100_644, 1);
    commit(&store, &[Effect::PutInode(Box::new(rec))]).unwrap();
    let mut held = Vec::new();
    let mut blk = 0;
    while let Ok((addr, n)) = grow(&store, big, blk, 8) {
        held.extend((0..u64::from(n)).map(|i| (blk + i, addr + i)));
        blk += u64::from(n);
    }
    // Every second block goes: half of the space is free, no two blocks of it side by side.
    for some in held.chunks(32) {
        let odd = some.iter().filter(|(_, addr)| addr % 2 == 1);
        let out: Vec<_> = odd.map(|(blk, _)| Effect::Unmap { ino: big, blk: *blk, count: 1 }).collect();
        commit(&store, &out).unwrap();
    }
    store.checkpoint().unwrap();
    assert!(store.statfs().free > 500);
    let mut made = Vec::new();
    let refused = loop {
        let ino = store.alloc_ino();
        let (name, value) = (b"user.x"[..].into(), vec![7; 4000].into());
        let mut rec = InodeRec::empty(ino);
        (rec.mode, rec.nlink) = (0o100_644, 1);
        let effects = [Effect::PutInode(Box::new(rec)), Effect::PutXattr { ino, slot: 8, name, value }];
        let need = Need { log_bytes: 8192, meta_keys: 8, may_fail: true, ..Need::default() };
        match store.begin(&need) {
            Ok(mut plan) => {
                effects.into_iter().for_each(|e| plan.push(e));
                store.blocking(|| store.commit(&mut plan, RecordHead::op())).unwrap();
                made.push(ino);
            }
            Err(FsError::Wait(_)) => drop(store.checkpoint().expect("a checkpoint always succeeds")),
            Err(e) => break Errno::from(e),
        }
    };
    assert_eq!(refused, Errno::NOSPC);
    store.checkpoint().expect("a checkpoint always succeeds");
    for ino in made {
        commit(&store, &[Effect::DelXattr { ino, slot: 8 }, Effect::DropInode(ino)]).unwrap();
    }
    store.checkpoint().expect("a checkpoint always succeeds");
    drop(store);
}
