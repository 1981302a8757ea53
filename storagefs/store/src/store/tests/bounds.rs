//! What a mount would refuse to read is never written: the bounds of the decoders hold before the append.

use super::*;
use crate::cred::Cred;
use crate::effect::EFFECTS_MAX;
use crate::micro::{Begin, Commit, End, GROUPS_MAX, INPUT_EFFECTS_MAX, Input, PLAN_EFFECTS_MAX};
use crate::record::Time;
use smallvec::SmallVec;
use weldfs_ciscops::{At, Command, Handle, Op, OpenFlags, Outcome, PoolRange, Registers, TxnMode};

fn patch(i: usize) -> Effect {
    Effect::Patch { ino: InodeNo::ROOT, off: i as u64, bytes: SmallVec::from_slice(&[1]) }
}

fn touch(_: usize) -> Effect {
    Effect::SetAttr(AttrDelta::new(InodeNo::ROOT).uid(0))
}

fn begin(op: Op) -> Begin {
    Begin {
        sqe: Command::new(5, op).with_mode(TxnMode::Micro).encode(),
        now: Time::default(),
        cred: Cred::root(),
        dir: InodeNo(0),
        name: Box::default(),
        file: InodeNo::ROOT,
        generation: 0,
        flags: OpenFlags::empty(),
        detect: None,
        inputs: SmallVec::new(),
        plan: None,
    }
}

/// Commits a transaction whose begin record is as given; nothing may be in the log when it is refused.
fn transact(store: &Store, begin: Begin, groups: SmallVec<[Group; 2]>) -> Result<(), Errno> {
    let need = Need { log_bytes: 40_000, meta_keys: 20, small_records: 4, ..Need::default() };
    let mut plan = store.begin(&need).unwrap();
    let outcome = Outcome { micro_done: 2, ..Outcome::ok(0, 0) };
    let mut txn = MicroTxn::new(begin, groups, End::of(&outcome));
    let tail = store.journal().tail();
    let done = store.commit_micro(&mut plan, &mut txn).map(drop).map_err(Errno::from);
    assert_eq!(store.journal().tail() == tail, done.is_err());
    done
}

fn group(index: u16, effects: Vec<Effect>) -> Group {
    Group { index, commit: Commit { regs: Registers::default(), effects } }
}

fn planned(store: &Store, effects: usize) -> Result<(), Errno> {
    let mut groups: SmallVec<[Group; 2]> = SmallVec::new();
    groups.push(group(0, vec![touch(0)]));
    groups.push(group(1, (0..effects).map(touch).collect()));
    let mut begin = begin(Op::Program { body: PoolRange::new(0, 96) });
    begin.plan_groups(&mut groups, 2, End::of(&Outcome { micro_done: 2, ..Outcome::ok(0, 0) }));
    transact(store, begin, groups)
}

fn written(store: &Store, effects: usize, users: usize) -> Result<(), Errno> {
    let src = PoolRange::new(0, 100);
    let (base, path, at) = (Handle::ROOT, PoolRange::new(200, 4), At::Offset(0));
    let mut begin =
        begin(Op::OpenWriteClose { base, path, flags: OpenFlags::WRITE | OpenFlags::TRUNC, mode: 0, at, src });
    (begin.dir, begin.name) = (InodeNo::ROOT, Box::from(&b"f"[..]));
    begin.cred.groups = (0..users as u32).collect();
    begin.inputs.push(Input { micro: 1, off: 0, len: 100, effects: (0..effects).map(patch).collect() });
    let adopt = Effect::Input { ino: InodeNo::ROOT, input: 0 };
    let mut groups: SmallVec<[Group; 2]> = SmallVec::new();
    groups.push(group(0, vec![touch(0)]));
    groups.push(group(1, vec![adopt]));
    transact(store, begin, groups)
}

#[test]
fn a_record_that_no_mount_would_read_is_not_written() {
    let medium = fresh(8 << 20);
    let (store, _) = mount(&medium);
    for (effects, fits) in [(EFFECTS_MAX, true), (EFFECTS_MAX + 1, false)] {
        let mut plan = store.begin(&Need { log_bytes: 60_000, meta_keys: 20, ..Need::default() }).unwrap();
        (0..effects).for_each(|i| plan.push(touch(i)));
        let tail = store.journal().tail();
        let done = store.commit(&mut plan, RecordHead::op()).map(drop).map_err(Errno::from);
        assert_eq!(done, if fits { Ok(()) } else { Err(Errno::TOOBIG) }, "{effects}");
        assert_eq!(store.journal().tail() == tail, !fits);
    }
    assert_eq!(planned(&store, PLAN_EFFECTS_MAX), Ok(()));
    assert_eq!(planned(&store, PLAN_EFFECTS_MAX + 1), Err(Errno::TOOBIG));
    assert_eq!(written(&store, INPUT_EFFECTS_MAX, GROUPS_MAX), Ok(()));
    assert_eq!(written(&store, INPUT_EFFECTS_MAX + 1, 0), Err(Errno::TOOBIG));
    assert_eq!(written(&store, 1, GROUPS_MAX + 1), Err(Errno::TOOBIG));
    // The same, where the records are too long to go in one.
    assert_eq!(planned(&store, 2000), Err(Errno::TOOBIG));
    store.make_durable(store.journal().tail()).unwrap();
    drop(store);
    let (_, report) = mount(&medium);
    assert_eq!((report.txns_seen, report.txns_replayed), (2, 2), "all that was written is read");
}

#[test]
fn groups_that_are_too_much_for_one_record_are_refused_as_a_whole() {
    let begin = begin(Op::Program { body: PoolRange::new(0, 96) });
    let groups = |n| (0..2).map(|i| group(i, (0..n).map(touch).collect())).collect();
    assert_eq!(as_one_record(groups(EFFECTS_MAX / 2), &begin).unwrap().len(), EFFECTS_MAX);
    let refused = as_one_record(groups(EFFECTS_MAX / 2 + 1), &begin).map(drop);
    assert!(matches!(refused, Err(FsError::Errno(Errno::TOOBIG))), "{refused:?}");
}

#[test]
fn what_fits_but_for_the_promises_of_others_waits_for_them() {
    let medium = fresh(32 << 20);
    let (store, _) = mount(&medium);
    let free = store.statfs().free as u32;
    let most = |new_blocks| Need { log_bytes: 8000, new_blocks, meta_keys: 24, may_fail: true, ..Need::default() };
    let held = store.begin(&most(free / 3 * 2)).unwrap();
    let refused = |need: &Need| store.begin(need).map(drop).unwrap_err();
    assert!(matches!(refused(&most(free / 2)), FsError::Wait(Wait::Plans)));
    assert!(matches!(refused(&most(free * 2)), FsError::Errno(Errno::NOSPC)), "it would not fit alone either");
    drop(held);
    drop(store.begin(&most(free / 2)).unwrap());
    // Neither the promise alone is in the way, nor the estimate of metadata alone: both together.
    let mut plan = store.begin(&Need { log_bytes: 8000, meta_keys: 24, ..Need::default() }).unwrap();
    plan.push(patch(0));
    store.commit(&mut plan, RecordHead::op()).unwrap();
    drop(plan);
    let _held = store.begin(&most(8)).unwrap();
    let left = store.statfs().free as u32;
    for wanted in left - 300..=left + 8 {
        let begun = store.begin(&most(wanted)).map(drop);
        assert!(!matches!(begun, Err(FsError::Errno(_))), "{wanted} of {left}: {begun:?}");
    }
}

/// Maps unwritten blocks until nothing is free.
fn fill(store: &Store) {
    let (ino, mut blk) = (InodeNo::ROOT, 0);
    for n in [4096, 64, 1] {
        loop {
            let need = Need { log_bytes: 8000, new_blocks: n, meta_keys: 24, may_fail: true, ..Need::default() };
            let mut plan = match store.begin(&need) {
                Ok(plan) => plan,
                Err(FsError::Wait(_)) => {
                    store.checkpoint().unwrap();
                    continue;
                }
                Err(e) => {
                    assert_eq!(Errno::from(e), Errno::NOSPC);
                    break;
                }
            };
            let mut left = n;
            while left > 0 {
                let run = store.blocking(|| plan.alloc(left, ino)).unwrap();
                let (state, crcs) = (crate::effect::BlockState::Unwritten, SmallVec::new());
                plan.push(Effect::Map { ino, blk, addr: run.addr, count: run.count, state, crcs });
                (blk, left) = (blk + u64::from(run.count), left - run.count);
            }
            store.blocking(|| store.commit(&mut plan, RecordHead::op())).unwrap();
        }
    }
}

/// Waits for checkpoints as a device does.
fn overwrites(store: &Store, blocks: u64) -> Result<(), Errno> {
    let need = Need { log_bytes: 8000, overwrite_blocks: blocks as u32, meta_keys: 40, ..Need::default() };
    for _ in 0..4 {
        match store.begin(&need) {
            Err(FsError::Wait(_)) => drop(store.checkpoint().unwrap()),
            other => return other.map(drop).map_err(Errno::from),
        }
    }
    panic!("checkpoints do not help");
}

#[test]
fn on_a_full_image_the_largest_command_can_still_overwrite() {
    for (mib, all) in [(8, false), (64, false), (400, true)] {
        let medium = fresh(mib << 20);
        let (store, _) = mount(&medium);
        fill(&store);
        store.checkpoint().unwrap();
        let covered = store.ledger.covered;
        assert_eq!(covered == ledger::COMMAND_BLOCKS, all, "{mib} MiB");
        assert!(covered >= 260 && store.ledger.logical_free() >= 0);
        for blocks in [1, 260, covered] {
            assert_eq!(overwrites(&store, blocks), Ok(()), "{blocks} blocks of {mib} MiB");
        }
        if !all {
            // More than that needs room: who asks for it is told at once.
            assert_eq!(overwrites(&store, ledger::COMMAND_BLOCKS), Err(Errno::NOSPC), "{mib} MiB");
        }
        assert_eq!(store.ledger.growing.load(Relaxed), 0);
    }
}
