//! The rig can fail: recovery with a bug planted in it (`weldfs_journal::canary`) does not go unnoticed.

use super::driven::{COMMANDS, cut_everywhere};
use super::rig::*;
use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weldfs_ciscops::TxnMode;
use weldfs_journal::canary;
use weldfs_media::CrashModel;

/// A transaction is interrupted, a checkpoint falls into it or not, recovered, and recovered again: is anything wrong?
fn anything_wrong(planted: Option<Canary>, model: CrashModel, case: (Kind, usize)) -> bool {
    let image = image(model);
    canary::plant_here(planted);
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let medium = ram(&image, model);
        let (store, _) = mounted(medium.clone());
        let id = open(&store, case);
        if planted == Some(Canary::CheckpointWithoutOpenTxns) || planted.is_none() {
            store.checkpoint().expect("a checkpoint");
            assert!(commit_next(&store, id));
        }
        store.make_durable(store.journal().tail()).expect("a flush");
        drop(store);
        let once = ram(&medium.to_bytes(), model);
        let (store, _) = mounted(once.clone());
        assert_complete(&store, case);
        drop(store);
        let (store, report) = mounted(ram(&once.to_bytes(), model));
        assert_complete(&store, case);
        assert_eq!(report.txns_finished + report.txns_cut, 0, "nothing is left to do");
    }));
    canary::plant_here(None);
    lived.is_err()
}

#[test]
fn bugs_planted_in_recovery_are_found() {
    for model in MODELS {
        for case in [(Kind::Append, 100), (Kind::Append, 9000), (Kind::Create, 3), (Kind::Create, 8192)] {
            for bug in [Canary::CheckpointWithoutOpenTxns, Canary::SecondBegin, Canary::DoubleFinish] {
                assert!(anything_wrong(Some(bug), model, case), "{model:?} {case:?}: {bug:?} went unnoticed");
            }
            assert!(!anything_wrong(None, model, case), "{model:?} {case:?}: no bug, no failure");
        }
        let append = COMMANDS[2];
        canary::plant_here(Some(Canary::CommitBeforeEffect));
        let lived = catch_unwind(|| cut_everywhere(model, append, TxnMode::Micro, 4));
        canary::plant_here(None);
        assert!(lived.is_err(), "{model:?}: a commit before its effects went unnoticed");
        assert!(cut_everywhere(model, append, TxnMode::Micro, 4) > 0);
    }
}
