//! The rig can fail: with flushes and fences compiled out, the very same power-cut run must find lost operations on
//! both crash models. A run that finds nothing here would mean that the power-cut test proves nothing.
#![cfg(feature = "flushes-compiled-out")]

use weldfs_crash_harness::powercut::{Config, run};
use weldfs_storagefs::media::CrashModel;

fn must_catch(model: CrashModel) {
    let config = Config { model, cuts: 100, cuts_per_run: 50, clients: 4, steps: 120, seed: 0x5eed };
    let report = run(&config, &mut |_| {}).expect("the clients' runs themselves succeed");
    println!("{model:?}, flushes compiled out: {} of {} power cuts found bad", report.bad.len(), report.cuts);
    assert!(!report.bad.is_empty(), "{model:?}: the planted bug went unnoticed in {} power cuts", report.cuts);
}

#[test]
fn compiled_out_flushes_are_caught_on_block() {
    must_catch(CrashModel::Block);
}

#[test]
fn compiled_out_flushes_are_caught_on_pmem() {
    must_catch(CrashModel::Pmem);
}
