//! A transaction whose next commit needs a page that cannot be read: it ends as cut, in the log, before any other
//! may touch its files; what others are acknowledged later is not overwritten by a recovery that goes on with it.

use super::rig::*;
use super::*;
use crate::driver::Direct;
use std::sync::Arc;
use weldfs_ciscops::{At, OpenFlags};
use weldfs_media::{CrashModel, FaultKind, FaultOn, FaultPlan, FaultyMedium, RecordingMedium};
use weldfs_store::MicroTxn;
use weldfs_store::error::FsError;
use weldfs_store::mount::TxnFate;

const EIO: i32 = Errno::IO.0;
/// A command, and how many of its commits stand when a page cannot be had.
const FAILING: [((Kind, usize), usize); 5] = [
    ((Kind::Append, 100), 0),
    ((Kind::Append, 100), 1),
    ((Kind::Truncate, 300), 0),
    ((Kind::Truncate, 300), 1),
    ((Kind::Exchange, 7), 0),
];

/// The image with one file, and with so many names that its metadata fills many pages.
fn many_names() -> Vec<u8> {
    let medium = ram(&image(CrashModel::Block), CrashModel::Block);
    let (store, _) = mounted(medium.clone());
    let mut direct = Direct::new(store.clone(), 64 << 10);
    for n in 0..200 {
        let path = direct.put(0, format!("{n:0>200}").as_bytes());
        assert!(direct.run(Op::Mkdir { base: Handle::ROOT, path, mode: 0o755 }).is_ok());
    }
    store.checkpoint().unwrap();
    store.unmount().unwrap();
    drop((direct, store));
    medium.to_bytes()
}

/// A store over a block medium whose reads can be made to fail.
fn failing(image: &[u8]) -> (Arc<RecordingMedium>, Arc<FaultyMedium>, Arc<Store>) {
    let recording = ram(image, CrashModel::Block);
    let faulty = Arc::new(FaultyMedium::new(recording.clone()));
    let (store, _) = mounted(faulty.clone());
    (recording, faulty, store)
}

/// Runs a transaction until `stand` of its commits stand; then a checkpoint comes between, its pages leave memory,
/// and the next commit cannot have them back. Gives what the command was told; `abort` says whether it ends its
/// transaction before it gives up its locks, as it must.
fn fail_after(
    image: &[u8],
    (case, stand): ((Kind, usize), usize),
    abort: bool,
) -> (Arc<RecordingMedium>, Arc<Store>, Option<Outcome>) {
    let (medium, faulty, store) = failing(image);
    let (begin, _) = begin(&store, case);
    let groups = groups(image, CrashModel::Block, case);
    assert_eq!(groups.len(), commits(case));
    let next = groups[stand].index;
    let done = Outcome { status: 0, micro_done: 3, micro_failed: 0, result: 0, result2: 0 };
    let mut txn = MicroTxn::new(begin, groups, End { verdict: Verdict::Done, outcome: done });
    let need = Need { log_bytes: 4096, meta_keys: 32, more_records: [2048; 3], ..Need::default() };
    let mut plan = store.begin(&need).unwrap();
    store.blocking(|| store.step_micro(&mut plan, &mut txn)).unwrap();
    assert!(txn.has_begun());
    for _ in 0..stand {
        store.blocking(|| store.step_micro(&mut plan, &mut txn)).unwrap();
    }
    store.checkpoint().unwrap();
    store.overlay().base(0).pages.forget_all();
    let missed = store.commit_micro(&mut plan, &mut txn);
    let Err(FsError::Miss(miss)) = missed else { panic!("the page is cold: {missed:?}") };
    faulty.plan(Some(FaultPlan { on: FaultOn::Read, nth: 1, kind: FaultKind::Eio, sticky: true }));
    let why = store.fetch(&miss).expect_err("it cannot be read");
    faulty.end();
    assert!(faulty.fired());
    if abort {
        store.abort_micro(&mut plan, &mut txn, &why);
        // Again does nothing: there is one end record.
        let tail = store.journal().tail();
        store.abort_micro(&mut plan, &mut txn, &why);
        assert_eq!(store.journal().tail(), tail);
        assert!(store.txns().is_empty(), "nothing is left open");
    }
    drop(plan);
    let cut = txn.cut();
    if let Some(cut) = cut {
        assert_eq!((cut.status, cut.micro_done, cut.micro_failed), (EIO, next, next + 1), "{case:?}");
    }
    (medium, store, cut)
}

/// Another client writes to the file, and is told that it is durable.
fn write_later(store: &Arc<Store>) {
    let mut direct = Direct::new(store.clone(), 64 << 10);
    direct.now = (1_800_000_000, 1);
    let (path, src) = (direct.put(0, b"file"), direct.put(4096, &[0xEE; 64]));
    let (flags, at) = (OpenFlags::WRITE, At::Offset(0));
    let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0, at, src };
    assert!(direct.run_with(op, weldfs_ciscops::TxnMode::Macro, true).is_ok());
    store.make_durable(store.journal().tail()).unwrap();
}

#[test]
fn a_page_that_cannot_be_fetched_cuts_the_transaction_and_later_writes_stay() {
    let image = many_names();
    for failing in FAILING {
        let (medium, store, cut) = fail_after(&image, failing, true);
        assert!(cut.is_some());
        assert!(!store.medium().is_poisoned(), "one unreadable page is no reason to stop");
        write_later(&store);
        let acknowledged = tree(&store);
        let crashed = medium.to_bytes();
        check(&crashed, CrashModel::Block);
        let (store, report) = mounted(ram(&crashed, CrashModel::Block));
        assert_eq!((report.txns_seen, report.txns_replayed, report.txns_finished), (1, 1, 0), "its end stands");
        assert!(tree(&store) == acknowledged, "{failing:?}: recovery changed what was acknowledged");
    }
}

/// The test above can fail: without the end record recovery goes on, over what was acknowledged meanwhile.
#[test]
fn without_the_cut_recovery_would_overwrite_what_was_acknowledged_later() {
    let (medium, store, cut) = fail_after(&many_names(), ((Kind::Exchange, 7), 0), false);
    assert!(cut.is_none());
    write_later(&store);
    let acknowledged = tree(&store);
    let (store, report) = mounted(ram(&medium.to_bytes(), CrashModel::Block));
    assert_eq!((report.txns_seen, report.txns.len()), (1, 1));
    assert_eq!(report.txns[0].fate, TxnFate::Finished, "{:?}", report.txns);
    assert!(tree(&store) != acknowledged);
}
