//! A program that takes a file's last name and writes to it: the inode goes when the transaction is over, not before.

use super::rig::*;
use super::*;
use smallvec::{SmallVec, smallvec};
use weldfs_ciscops::program::{Builder, Bytes, Micro, Place, Value};
use weldfs_ciscops::{InodeNo, OpenFlags, PoolRange, TxnMode};
use weldfs_media::{CrashModel, RecordingMedium, Replayer};
use weldfs_store::effect::{AttrDelta, Effect};
use weldfs_store::fsck::fsck_mounted;
use weldfs_store::record::{InodeRec, Time};
use weldfs_store::{Group, MicroTxn};

const STEPS: u16 = 3;

/// The file loses its name, is written, and is made longer: three groups. `planned` as a program does it.
fn unlinks_and_writes(store: &Store) -> (Begin, SmallVec<[Group; 2]>) {
    let old = store.blocking(|| store.dirent(InodeNo::ROOT, b"file")).unwrap().expect("it is there");
    let (ino, dir) = (old.ino, InodeNo::ROOT);
    let unlink = vec![
        Effect::DelDirent { dir, cookie: old.cookie },
        Effect::Orphan { ino },
        Effect::SetAttr(AttrDelta::new(ino).nlink(0)),
    ];
    let write = vec![Effect::Patch { ino, off: 100, bytes: smallvec![9; 300] }];
    let grow = vec![Effect::SetAttr(AttrDelta::new(ino).size(OLD_LEN + 1000))];
    let group = |index, effects| Group { index, commit: Commit { regs: Registers::default(), effects } };
    let mut groups = smallvec![group(0, unlink), group(1, write), group(2, grow)];
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
    let outcome = Outcome { status: 0, micro_done: STEPS, micro_failed: 0, result: 1, result2: 2 };
    begin.plan_groups(&mut groups, STEPS, End::of(&outcome));
    (begin, groups)
}

/// Nothing of the file is left, not even space.
fn assert_gone(store: &Store, ino: InodeNo) {
    store.reclaim_all().unwrap();
    assert!(store.blocking(|| store.inode(ino)).unwrap().is_none(), "nobody has it open any more");
    assert!(tree(store).is_empty());
    let report = fsck_mounted(store, RecoveryReport::default(), true).unwrap();
    assert!(report.clean, "{:?}", report.problems);
    assert_eq!((report.blocks, store.reclaim().len()), (0, 0));
}

/// At every crash state of what was recorded: all of it or nothing, and then no trace of the file.
fn assert_every_crash_state(medium: &RecordingMedium, model: CrashModel, start: u64) {
    let (end, recording) = (medium.position(), medium.recording());
    let mut at = Replayer::new(&recording, 0);
    for position in start..=end {
        at.goto(position);
        for choice in 0..3 {
            let crashed = at.image(choice);
            check(&crashed, model);
            let (store, report) = mounted(ram(&crashed, model));
            assert!(report.txns.iter().all(|t| t.fate == TxnFate::Finished), "at {position}: {report:?}");
            let found = tree(&store);
            match found.get(&b"file"[..]) {
                Some(old) => assert!(position < end && old.6 == bytes(OLD_LEN as usize, 1), "at {position}"),
                None => assert_gone(&store, InodeNo(2)),
            }
        }
    }
}

#[test]
fn reclaim_leaves_a_file_without_a_name_alone_until_its_transaction_is_over() {
    for model in MODELS {
        for (checkpoints, reclaims) in [(false, true), (true, true), (true, false)] {
            let medium = ram(&image(model), model);
            let (store, _) = mounted(medium.clone());
            let (begin, groups) = unlinks_and_writes(&store);
            let ino = begin.inputs[1].effects[0].ino();
            assert_eq!(ino, InodeNo(2));
            let start = medium.position();
            let need = Need { log_bytes: 2000, meta_keys: 20, small_records: 4, ..Need::default() };
            let mut plan = store.begin(&need).unwrap();
            let mut txn = MicroTxn::new(begin, groups, End { verdict: Verdict::Done, outcome: Outcome::ok(1, 2) });
            for _ in 0..=STEPS {
                store.step_micro(&mut plan, &mut txn).unwrap();
                if reclaims {
                    store.reclaim_all().unwrap();
                }
                store.make_durable(store.journal().tail()).unwrap();
                if checkpoints {
                    store.checkpoint().unwrap();
                }
                assert!(store.inode(ino).unwrap().is_some(), "{model:?}: its transaction is not over");
            }
            store.commit_micro(&mut plan, &mut txn).unwrap();
            store.make_durable(store.journal().tail()).unwrap();
            assert!(!store.medium().is_poisoned());
            assert_every_crash_state(&medium, model, start);
            assert_gone(&store, ino);
        }
    }
}

#[test]
fn a_transaction_that_is_cut_gives_its_files_back() {
    let (store, _) = mounted(ram(&image(CrashModel::Pmem), CrashModel::Pmem));
    let (begin, groups) = unlinks_and_writes(&store);
    let need = Need { log_bytes: 2000, meta_keys: 20, small_records: 4, ..Need::default() };
    let mut plan = store.begin(&need).unwrap();
    let mut txn = MicroTxn::new(begin, groups, End { verdict: Verdict::Done, outcome: Outcome::ok(1, 2) });
    store.step_micro(&mut plan, &mut txn).unwrap();
    store.step_micro(&mut plan, &mut txn).unwrap();
    store.abort_micro(&mut plan, &mut txn, &FsError::Errno(Errno::IO));
    assert_eq!(txn.cut().map(|o| o.micro_done), Some(1));
    assert_gone(&store, InodeNo(2));
}

#[test]
fn a_program_that_unlinks_what_it_writes_survives_every_crash() {
    // All records in one go, with the bytes in the record and in blocks; and one by one, for they are long.
    for (len, long) in [(300, false), (3000, false), (300, true), (3000, true)] {
        for model in MODELS {
            let medium = ram(&image(model), model);
            let (store, _) = mounted(medium.clone());
            let mut direct = crate::driver::Direct::new(store.clone(), 64 << 10);
            let mut b = Builder::new();
            let (base, path) = (Handle::ROOT, b.string(b"file"));
            let file = b.open(base, b"file", OpenFlags::READ | OpenFlags::WRITE, 0);
            if long {
                let (target, path) = (b.string(&[b't'; 4000]), b.string(b"gone"));
                b.push(Micro::Symlink { target, base, path });
                b.push(Micro::Unlink { base, path });
            }
            b.push(Micro::Unlink { base, path });
            let from = Bytes::Pool(b.pool(len));
            b.push(Micro::Write { file, place: Place::At(Value::Imm(0)), from, fold: None, at: None });
            let payload = direct.put(32 << 10, &bytes(len as usize, 8));
            let body = direct.put(0, &b.finish().unwrap().bind(&[payload]).unwrap());
            let start = medium.position();
            let outcome = direct.run_with(Op::Program { body }, TxnMode::Micro, true);
            assert!(outcome.is_ok(), "{outcome:?}");
            assert_every_crash_state(&medium, model, start);
            assert_gone(&store, InodeNo(2));
        }
    }
}

#[test]
fn nothing_is_logged_of_an_inode_that_is_not_there() {
    let (store, _) = mounted(ram(&image(CrashModel::Pmem), CrashModel::Pmem));
    let ino = InodeNo(999);
    let bytes = smallvec![1; 10];
    let effects = [
        Effect::SetAttr(AttrDelta::new(ino).nlink(0)),
        Effect::Patch { ino, off: 0, bytes },
        Effect::Unmap { ino, blk: 0, count: 1 },
        Effect::DropInode(ino),
    ];
    let tail = store.journal().tail();
    for e in effects {
        let mut plan = store.begin(&Need { log_bytes: 200, meta_keys: 4, ..Need::default() }).unwrap();
        plan.push(e.clone());
        assert!(matches!(store.commit(&mut plan, RecordHead::op()), Err(FsError::Corrupt(_))), "{e:?}");
    }
    assert_eq!(store.journal().tail(), tail);
    assert!(!store.medium().is_poisoned(), "nothing was done");
    // What the same record makes is there for what follows.
    let mut plan = store.begin(&Need { log_bytes: 400, meta_keys: 4, ..Need::default() }).unwrap();
    plan.push(Effect::PutInode(Box::new(InodeRec { mode: 0o100_600, ..InodeRec::empty(ino) })));
    plan.push(Effect::SetAttr(AttrDelta::new(ino).nlink(1)));
    store.commit(&mut plan, RecordHead::op()).unwrap();
}
