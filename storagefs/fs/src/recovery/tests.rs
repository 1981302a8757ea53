//! A transaction that a crash left open is finished, exactly once, whatever comes between.

use super::rig::*;
use super::*;
use std::sync::Arc;
use weldfs_ciscops::InodeNo;
use weldfs_journal::Medium;
use weldfs_media::{CrashModel, RamMedium, Replayer};
use weldfs_store::effect::Effect;
use weldfs_store::fsck::fsck;
use weldfs_store::mount::TxnReport;

/// Crash states at one position that are looked at: nothing more than what was flushed, all of it, and some of it.
const CHOICES: u64 = 4;

/// The old tree, or the complete one.
fn old_or_complete(store: &Store, case: (Kind, usize), why: &str) -> bool {
    let found = tree(store);
    let old = found.len() == 1 && found[&b"file"[..]].6 == bytes(OLD_LEN as usize, 1);
    if !old {
        assert_complete(store, case);
    }
    assert!(store.txns().is_empty(), "{why}");
    !old
}

#[test]
fn a_crash_at_any_event_of_a_transaction_leaves_the_old_state_or_the_complete_one() {
    for model in MODELS {
        let image = image(model);
        for case in CASES {
            let medium = ram(&image, model);
            let (store, _) = mounted(medium.clone());
            let start = medium.position();
            let id = open(&store, case);
            let mut steps = vec![medium.position()];
            while commit_next(&store, id) {
                steps.push(medium.position());
                // Each record durable by itself: so crashes between any two of them are among the states.
                store.make_durable(store.journal().tail()).unwrap();
            }
            end(&store, id);
            store.make_durable(store.journal().tail()).unwrap();
            let (done, recording) = (medium.position(), medium.recording());
            assert_eq!(steps.len(), commits(case) + 1, "{case:?}");
            let mut at = Replayer::new(&recording, 0);
            let mut complete = 0;
            for position in start..=done {
                at.goto(position);
                for choice in 0..CHOICES {
                    let crashed = at.image(choice);
                    check(&crashed, model);
                    let (store, _) = mounted(ram(&crashed, model));
                    let why = format!("{model:?} {case:?} position {position} choice {choice}");
                    let is_complete = old_or_complete(&store, case, &why);
                    assert!(is_complete || position < done, "{why}: an acknowledged command is lost");
                    complete += u32::from(is_complete);
                }
            }
            assert!(complete > CHOICES as u32, "{model:?} {case:?}: recovery finished something");
        }
    }
}

/// Images with the transaction open after `n` commits, all durable.
fn interrupted(model: CrashModel, case: (Kind, usize), n: usize) -> Vec<u8> {
    let medium = ram(&image(model), model);
    let (store, _) = mounted(medium.clone());
    let id = open(&store, case);
    (0..n).for_each(|_| assert!(commit_next(&store, id)));
    store.make_durable(store.journal().tail()).unwrap();
    medium.to_bytes()
}

#[test]
fn recovery_cut_at_every_event_twice_gives_the_tree_of_one_recovery() {
    for model in MODELS {
        for case in [CASES[1], CASES[2], CASES[3], CASES[5]] {
            for n in 0..=commits(case) {
                let crashed = interrupted(model, case, n);
                let medium = ram(&crashed, model);
                let (store, report) = mounted(medium.clone());
                assert_eq!((report.txns_seen, report.txns_finished, report.txns_cut), (1, 1, 0));
                assert_complete(&store, case);
                let once = tree(&store);
                drop(store);
                let recording = medium.recording();
                let mut at = Replayer::new(&recording, 0);
                for position in 0..=recording.len() {
                    at.goto(position);
                    for choice in 0..CHOICES - 1 {
                        let again = at.image(choice);
                        let second = ram(&again, model);
                        let (store, _) = mounted(second.clone());
                        assert!(tree(&store) == once, "{model:?} {case:?} after {n} commits, {position} {choice}");
                        drop(store);
                        if choice == 2 && position % 3 == 0 {
                            cut_again(&second.recording(), model, &once);
                        }
                    }
                }
            }
        }
    }
}

fn cut_again(
    recording: &weldfs_media::Recording,
    model: CrashModel,
    once: &std::collections::BTreeMap<Vec<u8>, Content>,
) {
    let mut at = Replayer::new(recording, 0);
    for position in 0..=recording.len() {
        at.goto(position);
        let third = at.image(2 + position % 2);
        let (store, _) = mounted(ram(&third, model));
        assert!(tree(&store) == *once, "{model:?}: the third recovery, position {position}");
        drop(store);
        check(&third, model);
    }
}

#[test]
fn checkpoints_between_the_records_carry_the_transaction_and_lose_no_block() {
    for model in MODELS {
        let image = image(model);
        for case in CASES {
            let n = commits(case);
            // A bit per gap behind begin, each commit and end: whether a checkpoint falls there.
            for gaps in 0..1u32 << (n + 2) {
                for crash in 0..=n + 1 {
                    let medium = ram(&image, model);
                    let (store, _) = mounted(medium.clone());
                    let id = open(&store, case);
                    for step in 0..=crash {
                        match step {
                            0 => {}
                            s if s <= n => assert!(commit_next(&store, id)),
                            _ => end(&store, id),
                        }
                        if gaps >> step & 1 == 1 {
                            store.checkpoint().unwrap();
                        }
                    }
                    store.make_durable(store.journal().tail()).unwrap();
                    drop(store);
                    let crashed = medium.to_bytes();
                    check(&crashed, model);
                    let (store, report) = mounted(ram(&crashed, model));
                    let why = format!("{model:?} {case:?} gaps {gaps:b} crash after step {crash}");
                    assert_complete(&store, case);
                    assert_eq!(report.txns_finished, u64::from(crash <= n), "{why}");
                    assert_space(&store, &why);
                }
            }
        }
    }
}

/// After two checkpoints all that is not held is free, and fsck agrees.
pub(super) fn assert_space(store: &Arc<Store>, why: &str) {
    use std::sync::atomic::Ordering::Relaxed;
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    let l = &store.ledger();
    let used = l.held.load(Relaxed) + l.zone.load(Relaxed);
    let free = store.alloc().free() as i64;
    assert_eq!(used + free, l.capacity as i64, "{why}: every block is held, of the zone, or free");
    assert_eq!(l.avail.load(Relaxed), free, "{why}: and promised to nobody");
}

#[test]
fn blocks_of_a_transaction_that_ends_without_adopting_them_come_free() {
    for model in MODELS {
        let image = image(model);
        for gaps in 0..8u32 {
            for crash in [false, true] {
                let medium = ram(&image, model);
                let (mut store, _) = mounted(medium.clone());
                let before = store.alloc().free();
                let id = open(&store, (Kind::Append, 9000));
                assert!(store.alloc().free() < before);
                for step in 0..3 {
                    if step == 1 {
                        let outcome = Outcome { status: 5, micro_done: 1, micro_failed: 2, result: 0, result2: 0 };
                        store.append_end(id, &End { verdict: Verdict::Cut, outcome }, &mut |_| Ok(None)).unwrap();
                    }
                    if step == 2 && crash {
                        store.make_durable(store.journal().tail()).unwrap();
                        drop(store);
                        let crashed = medium.to_bytes();
                        check(&crashed, model);
                        store = mounted(ram(&crashed, model)).0;
                    }
                    if gaps >> step & 1 == 1 {
                        store.checkpoint().unwrap();
                    }
                }
                assert_space(&store, &format!("{model:?} gaps {gaps:b} crash {crash}"));
                assert_eq!(tree(&store)[&b"file"[..]].6, bytes(OLD_LEN as usize, 1));
            }
        }
    }
}

#[test]
fn a_transaction_that_failed_at_a_micro_op_is_not_resumed() {
    for model in MODELS {
        let medium = ram(&image(model), model);
        let (store, _) = mounted(medium.clone());
        let id = open(&store, (Kind::Create, 8192));
        assert!(commit_next(&store, id));
        let outcome = Outcome { status: Errno::FBIG.0, micro_done: 1, micro_failed: 2, result: 0, result2: 0 };
        store.append_end(id, &End::of(&outcome), &mut |_| Ok(None)).unwrap();
        store.make_durable(store.journal().tail()).unwrap();
        drop(store);
        let crashed = medium.to_bytes();
        check(&crashed, model);
        let (store, report) = mounted(ram(&crashed, model));
        assert_eq!((report.txns_seen, report.txns_replayed, report.txns.len()), (1, 1, 0));
        assert!(tree(&store)[&b"new"[..]].6.is_empty(), "created, and nothing more");
    }
}

/// Opens a case whose begin record was changed, crashes, recovers; gives what the report says of it.
fn recover_changed(case: (Kind, usize), fsck_too: bool, change: impl Fn(&mut Begin)) -> (Arc<Store>, TxnReport) {
    let model = CrashModel::Block;
    let medium = ram(&image(model), model);
    let (store, _) = mounted(medium.clone());
    let (mut begin, data) = begin(&store, case);
    change(&mut begin);
    store.append_begin(store.alloc_txn(), Arc::new(begin), data, &mut |_| Ok(None)).unwrap();
    store.make_durable(store.journal().tail()).unwrap();
    // The watermark record vouches for the begin record: its data is not verified by the mount.
    store.journal().idle();
    store.make_durable(store.journal().tail()).unwrap();
    drop(store);
    let crashed = medium.to_bytes();
    if fsck_too {
        check(&crashed, model);
    }
    let (store, report) = mounted(ram(&crashed, model));
    assert_eq!((report.txns.len(), report.txns_cut), (1, 1));
    assert_eq!(tree(&store)[&b"file"[..]].6, bytes(OLD_LEN as usize, 1), "the old file is untouched");
    assert_space(&store, "a transaction was cut");
    (store, report.txns[0].clone())
}

#[test]
fn what_cannot_be_finished_is_cut_and_says_why() {
    let big = (Kind::Append, 9000);
    let (_, txn) = recover_changed(big, true, |b| b.generation += 1);
    assert_eq!((txn.fate, &txn.op[..]), (TxnFate::Cut, "append_checksum_write"));
    assert!(txn.reason.contains("another file"), "{}", txn.reason);
    let (_, txn) = recover_changed((Kind::Append, 100), true, |b| {
        b.file = InodeNo(999);
        b.inputs.clear();
    });
    assert!(txn.reason.contains("gone"), "{}", txn.reason);
    let (_, txn) = recover_changed((Kind::Append, 100), true, |b| b.inputs.clear());
    assert!(txn.fate == TxnFate::Cut && txn.reason.contains("missing"), "{}", txn.reason);
    let (_, txn) = recover_changed((Kind::Append, 100), true, |b| b.inputs[0].off += 1);
    assert!(txn.reason.contains("another place"), "{}", txn.reason);
    let (_, txn) = recover_changed((Kind::Append, 100), true, |b| b.inputs[0].len += 50);
    assert!(txn.reason.contains("gaps"), "{}", txn.reason);
    // A block that is needed for the checksum, damaged.
    let (_, txn) = recover_changed(big, false, |b| {
        let Effect::Map { crcs, .. } = &mut b.inputs[0].effects[0] else { panic!("in blocks") };
        crcs[0] ^= 1;
    });
    assert!(txn.reason.contains("data checksum"), "{}", txn.reason);
    assert_eq!(txn.fate, TxnFate::Cut);
}

#[test]
fn a_micro_op_that_fails_in_recovery_ends_the_transaction_as_failed() {
    let far = crate::FILE_BYTES_MAX;
    let (store, txn) = recover_changed((Kind::Create, 100), true, |b| {
        let mut cmd = b.command().unwrap();
        let Op::OpenWriteClose { at, .. } = &mut cmd.op else { panic!("as made") };
        *at = weldfs_ciscops::At::Offset(far);
        b.sqe = cmd.encode();
        b.inputs.clear();
    });
    assert_eq!(txn.fate, TxnFate::Failed);
    assert!(txn.reason.contains("micro-op 2"), "{}", txn.reason);
    assert!(tree(&store)[&b"new"[..]].6.is_empty(), "what came before it stands");
}

#[test]
fn a_read_only_mount_reports_open_transactions_and_writes_nothing() {
    for model in MODELS {
        let crashed = interrupted(model, (Kind::Create, 8192), 1);
        let medium = ram(&crashed, model);
        let mut o = options();
        o.read_only = true;
        let (store, report) = crate::mount(medium.clone(), o).unwrap();
        assert_eq!((report.txns_seen, report.txns_finished, report.txns.len()), (1, 0, 1));
        assert_eq!((report.txns[0].fate, report.txns[0].next_micro), (TxnFate::Open, 1));
        assert!(tree(&store)[&b"new"[..]].6.is_empty());
        assert!(medium.to_bytes() == crashed);
        let report = fsck(Arc::new(RamMedium::from_bytes(&crashed)), options(), true).unwrap();
        assert_eq!((report.clean, report.open_transactions), (true, 1), "{:?}", report.problems);
    }
}

#[test]
fn two_open_transactions_are_finished_in_the_order_of_their_begins() {
    for model in MODELS {
        let medium = ram(&image(model), model);
        let (store, _) = mounted(medium.clone());
        let first = open(&store, (Kind::Create, 8192));
        let second = open(&store, (Kind::Append, 9000));
        assert!(commit_next(&store, second));
        store.checkpoint().unwrap();
        assert!(commit_next(&store, first));
        store.make_durable(store.journal().tail()).unwrap();
        drop(store);
        let crashed = medium.to_bytes();
        check(&crashed, model);
        let (store, report) = mounted(ram(&crashed, model));
        assert_eq!(report.txns.iter().map(|t| t.id).collect::<Vec<_>>(), [first, second]);
        assert_complete(&store, (Kind::Create, 8192));
        assert_complete(&store, (Kind::Append, 9000));
        assert!(store.alloc_txn() > second, "ids are not used twice");
        assert_space(&store, "both are finished");
    }
}

#[test]
fn a_full_image_and_a_full_log_do_not_keep_a_transaction_from_being_finished() {
    use crate::driver::Direct;
    for model in MODELS {
        let medium = ram(&image(model), model);
        let (store, _) = mounted(medium.clone());
        let id = open(&store, (Kind::Append, 9000));
        // Files until nothing more fits, then changes of attributes until the log is full.
        let mut direct = Direct::new(store.clone(), 256 << 10);
        let src = direct.put(4096, &bytes(100 << 10, 3));
        for i in 0..200 {
            let path = direct.put(0, format!("fill{i}").as_bytes());
            let flags = weldfs_ciscops::OpenFlags::WRITE | weldfs_ciscops::OpenFlags::CREATE;
            let at = weldfs_ciscops::At::Offset(0);
            let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o600, at, src };
            if !direct.run(op).is_ok() {
                break;
            }
        }
        while store.journal().free() > 9000 {
            let reserve = store.journal().reserve(2000).unwrap();
            let effects = vec![Effect::SetAttr(weldfs_store::effect::AttrDelta::new(InodeNo::ROOT).uid(0)); 100];
            let mut plan = store.begin(&Need { log_bytes: 2000, ..Need::default() }).unwrap();
            effects.into_iter().for_each(|e| plan.push(e));
            drop(reserve);
            store.commit(&mut plan, RecordHead::op()).unwrap();
        }
        store.make_durable(store.journal().tail()).unwrap();
        drop((direct, store));
        let crashed = medium.to_bytes();
        check(&crashed, model);
        let (store, report) = mounted(ram(&crashed, model));
        assert_eq!((report.txns.len(), report.txns[0].id, report.txns_finished), (1, id, 1), "{report:?}");
        assert_complete(&store, (Kind::Append, 9000));
        assert_space(&store, "the image is full");
    }
}

#[test]
fn records_of_a_transaction_out_of_order_are_damage_not_a_panic() {
    let model = CrashModel::Pmem;
    let lone_end = End::of(&Outcome::ok(0, 0));
    let payloads: [(weldfs_journal::RecordKind, u64, Vec<u8>); 4] = [
        (weldfs_journal::RecordKind::End, 9, lone_end.encode()),
        (
            weldfs_journal::RecordKind::Micro,
            9,
            weldfs_store::micro::Commit { regs: Registers::default(), effects: vec![] }.encode(),
        ),
        (weldfs_journal::RecordKind::Begin, 0, vec![1]),
        (weldfs_journal::RecordKind::Begin, 3, vec![9; 200]),
    ];
    for (kind, txn, payload) in payloads {
        let medium = ram(&image(model), model);
        let (store, _) = mounted(medium.clone());
        let head = RecordHead { kind, mode: weldfs_journal::TxnMode::Micro, micro_index: 0, txn };
        store.journal().append(head, &[&payload], Vec::new(), None).unwrap();
        store.make_durable(store.journal().tail()).unwrap();
        drop(store);
        let medium: Arc<dyn Medium> = ram(&medium.to_bytes(), model);
        let error = crate::mount(medium, options()).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains("log position")), "{kind:?}");
    }
}
