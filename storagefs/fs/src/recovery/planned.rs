//! Transactions that were planned as a whole: adopted to their end after any crash, and judged when they are forged.

use super::hostile::{forge_beside, moved, refused};
use super::rig::*;
use super::*;
use smallvec::SmallVec;
use std::sync::Arc;
use weldfs_ciscops::{InodeNo, OpenFlags, PoolRange, TxnMode};
use weldfs_journal::{DataWrite, Medium};
use weldfs_media::{CrashModel, RamMedium, RecordingMedium, Replayer};
use weldfs_store::Group;
use weldfs_store::effect::{AttrDelta, Effect};
use weldfs_store::fsck::fsck;
use weldfs_store::record::{InodeRec, Time};

const PAYLOAD: usize = 9000;
const STEPS: u16 = 6;

/// A new file is made and written, then the old one loses its name: three groups, of micro-ops 0, 2 and 4.
fn planned(store: &Store, outcome: Outcome) -> (Begin, SmallVec<[Group; 2]>, Vec<DataWrite>) {
    let ino = store.alloc_ino();
    let old = store.blocking(|| store.dirent(InodeNo::ROOT, b"file")).unwrap().expect("it is there");
    let (cookie, dir) = (store.dirent_slot(InodeNo::ROOT, b"new").unwrap(), InodeNo::ROOT);
    let rec = InodeRec { mode: 0o100_640, nlink: 1, generation: 77, ..InodeRec::empty(ino) };
    let name = Arc::from(&b"new"[..]);
    let create = vec![Effect::PutInode(Box::new(rec)), Effect::PutDirent { dir, cookie, ino, ftype: 8, mark: 0, name }];
    let (content, data) = input(store, ino, true, (2, 0), &bytes(PAYLOAD, 2));
    let mut write = content.effects;
    write.push(Effect::SetAttr(AttrDelta::new(ino).size(PAYLOAD as u64)));
    let unlink = vec![
        Effect::DelDirent { dir, cookie: old.cookie },
        Effect::Orphan { ino: old.ino },
        Effect::SetAttr(AttrDelta::new(old.ino).nlink(0)),
    ];
    let group = |index, effects| Group { index, commit: Commit { regs: Registers::default(), effects } };
    let mut groups: SmallVec<[Group; 2]> = [group(0, create), group(2, write), group(4, unlink)].into_iter().collect();
    let op = Op::Program { body: PoolRange::new(0, 96) };
    let mut begin = Begin {
        sqe: Command::new(5, op).with_mode(TxnMode::Micro).encode(),
        now: Time { sec: 9, nsec: 8 },
        cred: Cred::new(0, 0),
        dir: InodeNo(0),
        name: Box::default(),
        file: InodeNo(0),
        generation: 0,
        flags: OpenFlags::empty(),
        detect: None,
        inputs: SmallVec::new(),
        plan: None,
    };
    begin.plan_groups(&mut groups, STEPS, End::of(&outcome));
    (begin, groups, data)
}

fn done() -> Outcome {
    Outcome { status: 0, micro_done: STEPS, micro_failed: 0, result: 1, result2: 2 }
}

fn begin_it(store: &Store) -> (u64, SmallVec<[Group; 2]>) {
    let (begin, groups, data) = planned(store, done());
    let id = store.alloc_txn();
    store.append_begin(id, Arc::new(begin), data, &mut |_| Ok(None)).unwrap();
    (id, groups)
}

fn commit(store: &Store, id: u64, group: &Group) -> FsResult<()> {
    let begin = store.txns().get(id).expect("open").begin;
    let mut commit = group.commit.clone();
    store.append_commit(id, &begin, group.index, &mut commit, &mut |_| Ok(None)).map(drop)
}

/// Old, complete, or (for a mount that may not write) something in between.
fn is_complete(store: &Store) -> bool {
    let found = tree(store);
    let names: Vec<&[u8]> = found.keys().map(|k| &k[..]).collect();
    match names[..] {
        [b"file"] => false,
        [b"new"] => {
            assert!(found[&b"new"[..]].6 == bytes(PAYLOAD, 2), "its content");
            true
        }
        _ => panic!("half of it: {names:?}"),
    }
}

#[test]
fn a_crash_at_any_event_leaves_nothing_or_all_of_it_with_checkpoints_between_too() {
    for model in MODELS {
        let image = image(model);
        for checkpoint_after in [None, Some(0), Some(1), Some(2)] {
            let medium = ram(&image, model);
            let (store, _) = mounted(medium.clone());
            let start = medium.position();
            let (id, groups) = begin_it(&store);
            for (i, group) in groups.iter().enumerate() {
                store.make_durable(store.journal().tail()).unwrap();
                if checkpoint_after == Some(i) {
                    store.checkpoint().unwrap();
                }
                commit(&store, id, group).unwrap();
            }
            store.append_end(id, &End::of(&done()), &mut |_| Ok(None)).unwrap();
            store.make_durable(store.journal().tail()).unwrap();
            let (end, recording) = (medium.position(), medium.recording());
            let mut at = Replayer::new(&recording, 0);
            let mut finished = 0;
            for position in start..=end {
                at.goto(position);
                for choice in 0..3 {
                    let crashed = at.image(choice);
                    check(&crashed, model);
                    let again = ram(&crashed, model);
                    let (store, report) = mounted(again.clone());
                    let complete = is_complete(&store);
                    assert!(complete || position < end, "{model:?} at {position}: an acknowledged command is lost");
                    assert!(report.txns.iter().all(|t| t.fate == TxnFate::Finished), "{report:?}");
                    finished += report.txns.len();
                    drop(store);
                    let (store, report) = mounted(ram(&again.to_bytes(), model));
                    assert_eq!((is_complete(&store), report.txns.len()), (complete, 0), "recovering again");
                }
            }
            assert!(finished > 3, "{model:?}: recovery finished something");
        }
    }
}

#[test]
fn a_recovery_that_is_cut_anywhere_goes_on_to_the_same_end() {
    for model in MODELS {
        let medium = ram(&image(model), model);
        let (store, _) = mounted(medium.clone());
        let (id, groups) = begin_it(&store);
        commit(&store, id, &groups[0]).unwrap();
        store.make_durable(store.journal().tail()).unwrap();
        drop(store);
        let crashed = medium.to_bytes();
        let medium = ram(&crashed, model);
        let start = medium.position();
        drop(mounted(medium.clone()));
        let (end, recording) = (medium.position(), medium.recording());
        let mut at = Replayer::new(&recording, 0);
        for position in start..=end {
            at.goto(position);
            for choice in 0..4 {
                let (store, _) = mounted(ram(&at.image(choice), model));
                assert!(is_complete(&store), "{model:?} at {position}, {choice}");
                assert!(store.txns().is_empty());
            }
        }
    }
}

#[test]
fn one_that_failed_keeps_its_groups_and_says_what_the_client_was_told() {
    let medium = ram(&image(CrashModel::Pmem), CrashModel::Pmem);
    let (store, _) = mounted(medium.clone());
    let failed = Outcome { status: Errno::NOSPC.0, micro_done: 5, micro_failed: 6, result: 0, result2: 0 };
    let (mut begin, _, data) = planned(&store, failed);
    begin.detect = Some(weldfs_store::micro::Detect { client: [4; 16], queue: 3 });
    let id = begin.identity().unwrap();
    let txn = store.alloc_txn();
    store.append_begin(txn, Arc::new(begin), data, &mut |_| Ok(None)).unwrap();
    assert_eq!(store.outcome(&id).micro_ops, STEPS, "while it runs");
    store.make_durable(store.journal().tail()).unwrap();
    drop(store);
    let (store, report) = mounted(ram(&medium.to_bytes(), CrashModel::Pmem));
    assert!(is_complete(&store));
    assert_eq!((report.txns.len(), report.txns_cut, report.txns[0].fate), (1, 1, TxnFate::Failed));
    assert!(report.txns[0].reason.contains("micro-op 6 fails"), "{}", report.txns[0].reason);
    let told = store.outcome(&id);
    assert_eq!((told.status, told.micro_done, told.micro_failed), (Errno::NOSPC.0, 5, 6));
}

/// Opens a forged transaction and mounts what a crash leaves of it.
fn forged(change: impl Fn(&Store, &mut Begin)) -> (Arc<RecordingMedium>, Vec<u8>) {
    let medium = ram(&image(CrashModel::Pmem), CrashModel::Pmem);
    let (store, _) = mounted(medium.clone());
    let (mut begin, _, data) = planned(&store, done());
    change(&store, &mut begin);
    store.append_begin(store.alloc_txn(), Arc::new(begin), data, &mut |_| Ok(None)).unwrap();
    store.make_durable(store.journal().tail()).unwrap();
    drop(store);
    let bytes = medium.to_bytes();
    (medium, bytes)
}

fn cut(change: impl Fn(&Store, &mut Begin)) -> String {
    let (_, bytes) = forged(change);
    let medium = ram(&bytes, CrashModel::Pmem);
    let (store, report) = mounted(medium.clone());
    assert_eq!((report.txns.len(), report.txns_cut), (1, 1), "{report:?}");
    assert!(!is_complete(&store) && store.txns().is_empty());
    drop(store);
    check(&medium.to_bytes(), CrashModel::Pmem);
    report.txns[0].reason.clone()
}

#[test]
fn groups_that_change_what_is_not_there_or_create_what_is_are_cut_before_the_first() {
    let reason = cut(|store, begin| {
        let there = file(store, b"file").unwrap();
        if let Effect::PutInode(rec) = &mut begin.inputs[0].effects[0] {
            rec.ino = there;
        }
    });
    assert!(reason.contains("is there already"), "{reason}");
    let reason = cut(|_, begin| {
        begin.inputs[2].effects.push(Effect::SetAttr(AttrDelta::new(InodeNo(999)).nlink(0)));
    });
    assert!(reason.contains("inode 999 is gone"), "{reason}");
    let reason = cut(|_, begin| drop(begin.inputs[0].effects.remove(0)));
    assert!(reason.contains("is gone"), "{reason}");
}

#[test]
fn groups_that_map_blocks_in_use_or_twice_or_impossible_inodes_are_damage() {
    let twice = |_: &Store, begin: &mut Begin| {
        let map = begin.inputs[1].effects[0].clone();
        begin.inputs[2].effects.push(map);
    };
    let huge = |_: &Store, begin: &mut Begin| {
        begin.inputs[2].effects.push(Effect::Orphan { ino: InodeNo(1 << 62) });
    };
    let used = |store: &Store, begin: &mut Begin| {
        let ino = file(store, b"file").unwrap();
        let mut taken = None;
        store
            .block_map(ino, 0, 1, &mut |_, view| {
                taken = view.addr.map(|addr| (addr, view.crc));
                false
            })
            .unwrap();
        for e in begin.inputs.iter_mut().flat_map(|i| i.effects.iter_mut()) {
            if let Effect::Map { addr, crcs, .. } = e {
                let (block, crc) = taken.expect("the old file has a block");
                (*addr, crcs[0]) = (block, crc);
            }
        }
    };
    type Forge<'f> = &'f dyn Fn(&Store, &mut Begin);
    let cases: [(Forge<'_>, &str); 3] =
        [(&twice, "mapped while in use"), (&used, "mapped while in use"), (&huge, "inode number")];
    for (change, words) in cases {
        let (_, bytes) = forged(change);
        let medium: Arc<dyn Medium> = ram(&bytes, CrashModel::Pmem);
        let mounted = crate::mount(medium, options()).map(drop).expect_err("a forged image");
        assert!(mounted.is_damage() && mounted.to_string().contains(words), "{mounted}");
        let report = fsck(Arc::new(RamMedium::from_bytes(&bytes)), options(), true).unwrap();
        assert!(!report.clean && !report.mountable, "{words}");
    }
}

#[test]
fn a_group_is_adopted_once_in_order_and_under_its_own_inode() {
    let (store, _) = mounted(ram(&image(CrashModel::Pmem), CrashModel::Pmem));
    let (id, groups) = begin_it(&store);
    let tail = store.journal().tail();
    let mut foreign = groups[0].clone();
    foreign.commit.effects = vec![Effect::Input { ino: InodeNo(1), input: 0 }];
    assert!(matches!(commit(&store, id, &foreign), Err(FsError::Corrupt(_))));
    let mut none = groups[0].clone();
    none.commit.effects = vec![Effect::Input { ino: InodeNo(1), input: 3 }];
    assert!(matches!(commit(&store, id, &none), Err(FsError::Corrupt(_))));
    assert_eq!(store.journal().tail(), tail, "nothing was written");
    commit(&store, id, &groups[0]).unwrap();
    assert!(matches!(commit(&store, id, &groups[0]), Err(FsError::Corrupt(_))), "not again");
    let mut again = groups[0].clone();
    again.index = 3;
    assert!(matches!(commit(&store, id, &again), Err(FsError::Corrupt(_))), "under no other number either");
    commit(&store, id, &groups[1]).unwrap();
    assert!(!store.medium().is_poisoned());
}

#[test]
fn a_plan_in_a_tree_for_inodes_that_the_tree_cannot_have_is_damage() {
    type Forge<'f> = &'f dyn Fn(&mut Begin, u64);
    let put_inode = |begin: &mut Begin, ino: u64| {
        if let Effect::PutInode(rec) = &mut begin.inputs[0].effects[0] {
            rec.ino = InodeNo(ino);
        }
    };
    let put_name = |begin: &mut Begin, to: u64| {
        if let Effect::PutDirent { ino, .. } = &mut begin.inputs[0].effects[1] {
            *ino = InodeNo(to);
        }
    };
    let orphan = |begin: &mut Begin, ino: u64| begin.inputs[2].effects.push(Effect::Orphan { ino: InodeNo(ino) });
    let cases: [Forge<'_>; 3] = [&put_inode, &put_name, &orphan];
    for change in cases {
        for ino in [None, Some(1 << 61), Some(u64::MAX)] {
            let medium = ram(&image(CrashModel::Pmem), CrashModel::Pmem);
            let (store, _) = mounted(medium.clone());
            let (id, _) = begin_it(&store);
            let next = store.alloc_ino().0 + 1;
            let bytes = forge_beside(&medium, &store, id, |txn| {
                moved(txn, |_| 0);
                let mut begin = (*txn.begin).clone();
                begin.inputs[1].effects.retain(|e| !matches!(e, Effect::Map { .. }));
                change(&mut begin, ino.unwrap_or(next));
                txn.begin = Arc::new(begin);
            });
            let (mounted, _) = refused(&bytes);
            let words = ["impossible", "inode number"];
            assert!(words.iter().any(|w| mounted.contains(w)), "{ino:?}: {mounted}");
        }
    }
}

#[test]
fn a_name_for_an_inode_that_is_not_there_is_cut_before_the_first_group() {
    let reason = cut(|store, begin| {
        let ino = store.alloc_ino();
        if let Effect::PutDirent { ino: to, .. } = &mut begin.inputs[0].effects[1] {
            *to = ino;
        }
    });
    assert!(reason.contains("is gone"), "{reason}");
}

#[test]
fn inode_numbers_that_no_counter_reaches_are_damage_wherever_they_stand() {
    let put = |ino| Effect::PutInode(Box::new(InodeRec { mode: 0o100_600, ..InodeRec::empty(InodeNo(ino)) }));
    for ino in [1 << 62, u64::MAX] {
        let name = Arc::from(&b"n"[..]);
        let entry =
            Effect::PutDirent { dir: InodeNo::ROOT, cookie: 1 << 12, ino: InodeNo(ino), ftype: 8, mark: 0, name };
        for e in [put(ino), entry, Effect::Orphan { ino: InodeNo(ino) }] {
            let medium = ram(&image(CrashModel::Pmem), CrashModel::Pmem);
            let (store, _) = mounted(medium.clone());
            let payload = weldfs_store::effect::encode(&[e]);
            store.journal().append(RecordHead::op(), &[&payload], Vec::new(), None).unwrap();
            store.make_durable(store.journal().tail()).unwrap();
            drop(store);
            let (mounted, _) = refused(&medium.to_bytes());
            assert!(mounted.contains("inode number"), "{mounted}");
        }
        let (_, bytes) = forged(|_, begin| {
            let rec = InodeRec::empty(InodeNo(ino));
            begin.inputs[0].effects.push(Effect::PutInode(Box::new(rec)));
        });
        let (mounted, _) = refused(&bytes);
        assert!(mounted.contains("inode number"), "{mounted}");
    }
}
