//! Power cuts of the log alone lose no acknowledged record (the rig: `support/log_rig.rs`).

use crate::log_rig::power_cuts;
use weldfs_media::CrashModel;

#[test]
fn no_acknowledged_record_is_lost_and_only_a_prefix_survives_on_block() {
    let bad: usize = (0..4).map(|seed| power_cuts(CrashModel::Block, seed, 150, 250)).sum();
    assert_eq!(bad, 0);
}

#[test]
fn no_acknowledged_record_is_lost_and_only_a_prefix_survives_on_pmem() {
    let bad: usize = (0..4).map(|seed| power_cuts(CrashModel::Pmem, seed, 150, 250)).sum();
    assert_eq!(bad, 0);
}
