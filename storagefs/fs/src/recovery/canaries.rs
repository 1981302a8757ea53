//! The rig can fail: recovery with a bug planted in it (`weldfs_journal::canary`) does not go unnoticed.

use super::driven::{COMMANDS, cut_everywhere};
use super::rig::*;
use super::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weldfs_ciscops::TxnMode;
use weldfs_journal::canary;
use weldfs_media::CrashModel;

/// What a panic says: a rig that fails for another reason than the planted bug has found nothing.
fn says(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => (*other.downcast::<&str>().expect("a text")).to_owned(),
    }
}

/// A transaction is interrupted, a checkpoint falls into it or not, recovered, and recovered again: what is wrong?
fn what_is_wrong(planted: Option<Canary>, model: CrashModel, case: (Kind, usize)) -> Option<String> {
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
    lived.err().map(says)
}

/// What such a bug makes of an image.
fn mark(bug: Canary, case: (Kind, usize)) -> &'static str {
    match (bug, case) {
        // The log is replayed from behind the record that begins it.
        (Canary::CheckpointWithoutOpenTxns, _) => "commit of a transaction that is not open",
        // It is done twice: it has its bytes twice, is finished by each recovery anew, or has its blocks twice.
        (Canary::SecondBegin | Canary::DoubleFinish, (Kind::Append, 100)) => "5208 bytes, should be 5104",
        (Canary::SecondBegin | Canary::DoubleFinish, (Kind::Create, 3)) => "nothing is left to do",
        (Canary::SecondBegin | Canary::DoubleFinish, _) => "block (mapped while in use)",
        (Canary::CommitBeforeEffect, _) => "neither the old tree nor the new one",
        (other, _) => panic!("{other:?} is not planted here"),
    }
}

fn is_found(bug: Canary, case: (Kind, usize), wrong: Option<String>, at: &str) {
    let wrong = wrong.unwrap_or_else(|| panic!("{at}: {bug:?} went unnoticed"));
    assert!(wrong.contains(mark(bug, case)), "{at}: {bug:?} is not what this is: {wrong}");
}

#[test]
fn bugs_planted_in_recovery_are_found() {
    for model in MODELS {
        for case in [(Kind::Append, 100), (Kind::Append, 9000), (Kind::Create, 3), (Kind::Create, 8192)] {
            for bug in [Canary::CheckpointWithoutOpenTxns, Canary::SecondBegin, Canary::DoubleFinish] {
                is_found(bug, case, what_is_wrong(Some(bug), model, case), &format!("{model:?} {case:?}"));
            }
            assert_eq!(what_is_wrong(None, model, case), None, "{model:?} {case:?}: no bug, no failure");
        }
        let append = COMMANDS[2];
        canary::plant_here(Some(Canary::CommitBeforeEffect));
        let lived = catch_unwind(|| cut_everywhere(model, append, TxnMode::Micro, 4));
        canary::plant_here(None);
        is_found(Canary::CommitBeforeEffect, (Kind::Append, 4096), lived.err().map(says), &format!("{model:?}"));
        assert!(cut_everywhere(model, append, TxnMode::Micro, 4) > 0);
    }
}
