//! The rig can fail: each planted bug (`weldfs_journal::canary`) must be found by the tier meant for it. Each test runs
//! that tier's own code twice, with the bug planted and without, and demands a failure and a success.
//!
//! One process plants one bug at a time: the tests take turns.
#![cfg(feature = "canaries")]
#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::{Mutex, MutexGuard, PoisonError};
use weldfs_crash_harness::powercut::{Config, run};
use weldfs_journal::canary::{self, Canary};
use weldfs_storagefs::media::CrashModel;

static TURN: Mutex<()> = Mutex::new(());

/// Holds a planted bug; uproots it when dropped.
struct Planted<'a>(#[allow(dead_code)] MutexGuard<'a, ()>);

fn plant(canary: Option<Canary>) -> Planted<'static> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    canary::plant(canary);
    Planted(turn)
}

impl Drop for Planted<'_> {
    fn drop(&mut self) {
        canary::plant(None);
    }
}

/// Whether power cuts under clients find anything, with this bug planted: up to 500 of them.
fn power_cuts(canary: Option<Canary>, model: CrashModel) -> bool {
    let _planted = plant(canary);
    let most = if canary.is_some() { 5 } else { 2 };
    for seed in 0..most {
        let config = Config { model, cuts: 100, cuts_per_run: 50, clients: 4, steps: 120, seed };
        let found = match run(&config, &mut |_| {}) {
            Ok(report) => report.bad.first().map(|b| b.what.clone()),
            // Clients may meet what the bug does before any power is cut.
            Err(e) => Some(e),
        };
        if let Some(what) = found {
            println!("{model:?}, {canary:?}: within {} power cuts: {what}", (seed + 1) * 100);
            return true;
        }
    }
    false
}

fn power_cuts_find(canary: Canary, models: &[CrashModel]) {
    for model in models {
        assert!(power_cuts(Some(canary), *model), "{model:?}: {canary:?} went unnoticed");
    }
}

#[test]
fn power_cuts_find_nothing_where_nothing_is_planted() {
    assert!(!power_cuts(None, CrashModel::Block) && !power_cuts(None, CrashModel::Pmem));
}

#[test]
fn power_cuts_find_a_skipped_flush() {
    power_cuts_find(Canary::FlushSkipped, &[CrashModel::Block, CrashModel::Pmem]);
}

#[test]
fn power_cuts_find_an_acknowledgement_before_the_watermark() {
    power_cuts_find(Canary::AckBeforeWatermark, &[CrashModel::Block]);
}

#[test]
fn power_cuts_find_a_record_before_its_data() {
    power_cuts_find(Canary::RecordBeforeData, &[CrashModel::Block]);
}

#[test]
fn power_cuts_find_half_a_macro_transaction() {
    power_cuts_find(Canary::MacroVisibleEarly, &[CrashModel::Block, CrashModel::Pmem]);
}
