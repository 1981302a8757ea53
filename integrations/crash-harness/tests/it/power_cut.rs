//! Nothing acknowledged as durable is lost to a power cut, nothing is half there, and what is there is a prefix of LSN
//! order: random cuts on both crash models while four clients work, a tenth of them cut again during recovery.
//!
//! `WELDFS_POWER_CUTS` scales the number per model (default 10,000), `WELDFS_SEED` repeats a run's scripts and cuts.

use weldfs_crash_harness::powercut::{Config, run};
use weldfs_media::CrashModel;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn survive(model: CrashModel) {
    let seed = setting("WELDFS_SEED", 0x5eed);
    let cuts = setting("WELDFS_POWER_CUTS", 10_000);
    let config = Config { model, cuts, cuts_per_run: 200, clients: 4, steps: 120, seed };
    let report = run(&config, &mut |_| {}).expect("the clients' runs themselves succeed");
    println!(
        "{model:?}: {} power cuts in {} runs ({} cut again in recovery), {} durable acknowledgements checked, {} bad",
        report.cuts,
        report.runs,
        report.cut_in_recovery,
        report.durable_acknowledged,
        report.bad.len()
    );
    assert_eq!(report.cuts, cuts);
    assert!(cuts < 1000 || report.cut_in_recovery > cuts / 12, "a tenth is cut again during the recovery");
    assert!(report.durable_acknowledged > report.cuts, "the run must promise something to be worth anything");
    assert!(report.bad.is_empty(), "WELDFS_SEED={seed}: {:#?}", &report.bad[..report.bad.len().min(5)]);
}

#[test]
fn power_cuts_on_block_lose_nothing_durable() {
    survive(CrashModel::Block);
}

#[test]
fn power_cuts_on_pmem_lose_nothing_durable() {
    survive(CrashModel::Pmem);
}
