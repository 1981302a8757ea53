//! The rig that cuts the power of the log finds that no flush was issued.

use crate::log_rig::power_cuts;
use weldfs_journal::canary::{self, Canary};
use weldfs_media::CrashModel;

#[test]
fn without_flushes_the_rig_finds_losses_on_both_models() {
    let _turn = crate::TURN.lock();
    canary::plant(Some(Canary::FlushSkipped));
    let found = [CrashModel::Block, CrashModel::Pmem].map(|model| power_cuts(model, 1, 150, 100));
    canary::plant(None);
    assert!(found.iter().all(|bad| *bad > 0), "a rig that finds no planted bug is broken: {found:?}");
}
