//! The rig can fail: each planted bug (`weldfs_journal::canary`) must be found by the tier meant for it. Each test runs
//! that tier's own code twice, with the bug planted and without, and demands a failure and a success.
//!
//! One process plants one bug at a time: the tests take turns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, PoisonError};
use weldfs_crash_harness::flips::Flipped;
use weldfs_crash_harness::powercut::{self, Config};
use weldfs_crash_harness::states::generate::ModeChoice;
use weldfs_crash_harness::states::run::{self, Set};
use weldfs_journal::canary::{self, Canary};
use weldfs_media::CrashModel;

/// Holds a planted bug; uproots it when dropped.
struct Planted<'a>(#[allow(dead_code)] MutexGuard<'a, ()>);

fn plant(canary: Option<Canary>) -> Planted<'static> {
    let turn = crate::TURN.lock().unwrap_or_else(PoisonError::into_inner);
    canary::plant(canary);
    Planted(turn)
}

impl Drop for Planted<'_> {
    fn drop(&mut self) {
        canary::plant(None);
    }
}

/// Whether power cuts under clients find anything, with this bug planted: up to 2,500 of them. A hundred find the one
/// that is hardest to find (a record before its data) in about one of two runs, so that it stays unnoticed in one of
/// tens of millions.
fn power_cuts(canary: Option<Canary>, model: CrashModel) -> bool {
    let _planted = plant(canary);
    let most = if canary.is_some() { 25 } else { 2 };
    for seed in 0..most {
        let config = Config { model, cuts: 100, cuts_per_run: 50, clients: 4, steps: 120, seed };
        let found = match powercut::run(&config, &mut |_| {}) {
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

const BOTH: [CrashModel; 2] = [CrashModel::Block, CrashModel::Pmem];

/// Whether the enumerated crash states of one workload show anything bad, with this bug planted. Stops at the first
/// bad state.
fn states_find(canary: Option<Canary>, trace: &str, model: CrashModel) -> bool {
    let _planted = plant(canary);
    let set = Set::of_trace(trace).unwrap();
    let (modes, states, limit) = (ModeChoice::Both, None, None);
    let config = run::Config { set, model, modes, states, limit, seed: 3, depth: 2, jobs: 2 };
    let stop = AtomicBool::new(false);
    let report = run::run(&config, &stop, &|p| stop.store(p.bad > 0, Ordering::Relaxed)).unwrap();
    let first = report.failures.first().map(|f| format!("rule {}: {}: {}", f.rule, f.trace, f.detail));
    println!("{model:?}, {canary:?}: {} states, {} bad; {first:?}", report.states, report.bad);
    report.bad > 0
}

/// The workload (one of the lists that the tier runs) must be good as it is, and bad with the bug.
fn only_the_bug_is_found(canary: Canary, trace: &str, models: &[CrashModel]) {
    for model in models {
        assert!(!states_find(None, trace, *model), "{model:?}: {trace}");
        assert!(states_find(Some(canary), trace, *model), "{model:?}: {canary:?} went unnoticed");
    }
}

#[test]
fn crash_states_find_a_skipped_flush() {
    only_the_bug_is_found(Canary::FlushSkipped, "creat C fdatasync", &BOTH);
}

#[test]
fn crash_states_find_a_record_before_its_data() {
    only_the_bug_is_found(Canary::RecordBeforeData, "write foo 0 12388 fdatasync", &[CrashModel::Block]);
}

#[test]
fn crash_states_find_an_accepted_torn_tail() {
    only_the_bug_is_found(Canary::TornTailAccepted, "write foo 0 12388 fdatasync", &BOTH);
}

#[test]
fn crash_states_find_half_a_macro_transaction() {
    only_the_bug_is_found(Canary::MacroVisibleEarly, "creat C fdatasync", &BOTH);
}

#[test]
fn crash_states_find_a_checkpoint_before_its_log() {
    only_the_bug_is_found(Canary::CheckpointBeforeLog, "write foo 0 12388 checkpoint", &[CrashModel::Block]);
}

#[test]
fn crash_states_find_blocks_reused_early() {
    let trace = "write foo 0 12388 fsync; write foo 0 12388; write bar 0 12388 fsync";
    only_the_bug_is_found(Canary::BlockReusedEarly, trace, &[CrashModel::Block]);
}

/// Bit flips with this bug planted: those that are neither detected nor harmless.
fn flips_find(canary: Option<Canary>, model: CrashModel, pages: bool) -> bool {
    let image = Flipped::new(model, false).unwrap();
    let _planted = plant(canary);
    let places = if pages { image.pages() } else { image.log() };
    let counts = image.flip(&places, 23, 1);
    let cut = counts.writable.cut;
    println!("{model:?}, {canary:?}: {} flips, {} bad, {cut} cut", counts.flips, counts.bad.len());
    !counts.bad.is_empty() || cut > 0
}

#[test]
fn bit_flips_find_damage_in_the_log_taken_for_its_end() {
    assert!(BOTH.iter().all(|m| flips_find(Some(Canary::MidLogRotTakenForTail), *m, false)));
    assert!(!BOTH.iter().any(|m| flips_find(None, *m, false)));
}

#[test]
fn bit_flips_find_records_whose_checksum_nobody_looks_at() {
    assert!(BOTH.iter().all(|m| flips_find(Some(Canary::ReplayCrcUnchecked), *m, false)));
}

#[test]
fn bit_flips_find_pages_that_nobody_compares_with_their_parent() {
    assert!(BOTH.iter().all(|m| flips_find(Some(Canary::OlderPageAccepted), *m, true)));
    assert!(!BOTH.iter().any(|m| flips_find(None, *m, true)));
}
