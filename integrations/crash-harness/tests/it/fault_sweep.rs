//! Whatever access fails, once or for good: the caller gets an errno, the store goes on or is poisoned and says so, and
//! what is on the medium mounts, is clean, and holds all that was acknowledged.

use weldfs_crash_harness::sweep::{Start, Swept, scenarios};
use weldfs_media::CrashModel;

fn sweep(model: CrashModel) {
    let start = Start::new(model).unwrap();
    let scenarios = scenarios::all();
    let (mut all, mut bad) = (Swept::default(), Vec::new());
    for s in &scenarios {
        match start.sweep(s) {
            Ok(swept) => {
                all.faults += swept.faults;
                all.poisoned += swept.poisoned;
            }
            Err(e) => bad.push(e),
        }
    }
    println!("{model:?}: {} scenarios, {} faults, {} of them final", scenarios.len(), all.faults, all.poisoned);
    assert!(bad.is_empty(), "{} scenarios: {bad:#?}", bad.len());
    assert!(scenarios.len() >= 30 && all.faults > 10 * scenarios.len() as u64 && all.poisoned > 0, "{all:?}");
}

#[test]
fn every_fault_of_every_scenario_on_block_is_an_errno_and_loses_nothing() {
    sweep(CrashModel::Block);
}

#[test]
fn every_fault_of_every_scenario_on_pmem_is_an_errno_and_loses_nothing() {
    sweep(CrashModel::Pmem);
}
