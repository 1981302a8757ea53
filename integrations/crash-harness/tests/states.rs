//! Crash states of a sample of workloads, in every build: all of them recover soundly, the same ones every time. The
//! whole sets run in the tier `states` (`weldfs crash`).

use std::sync::atomic::AtomicBool;
use weldfs_crash_harness::states::generate::ModeChoice;
use weldfs_crash_harness::states::report::Report;
use weldfs_crash_harness::states::run::{Config, Set, run};
use weldfs_storagefs::media::CrashModel;

fn config(set: Set, model: CrashModel, limit: u64) -> Config {
    Config { set, model, modes: ModeChoice::Both, states: None, limit: Some(limit), seed: 3, depth: 2, jobs: 2 }
}

fn checked(config: &Config) -> Report {
    let report = run(config, &AtomicBool::new(false), &|_| {}).expect("the image can be made");
    println!("{}", serde_json::to_string(&report).expect("plain numbers and words"));
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert_eq!(report.bad, 0);
    report
}

#[test]
fn every_crash_state_of_sampled_workloads_recovers_to_an_allowed_tree() {
    for model in [CrashModel::Block, CrashModel::Pmem] {
        let one = checked(&config(Set::OneOp, model, 20));
        assert!(one.unique_states > 200, "{}", one.unique_states);
        checked(&config(Set::TwoOp, model, 4));
    }
}

#[test]
fn crashes_of_recoveries_four_deep_lead_to_the_same_tree() {
    let trace = Set::of_trace("append_checksum_write foo 5000 micro durable").expect("a workload");
    for model in [CrashModel::Block, CrashModel::Pmem] {
        checked(&Config { depth: 4, ..config(trace.clone(), model, 1) });
    }
}

#[test]
fn the_same_seed_tries_the_same_states() {
    let once = config(Set::OneOp, CrashModel::Block, 12);
    let (a, b) = (checked(&once), checked(&Config { jobs: 1, ..once.clone() }));
    assert_eq!((a.workloads, a.states), (b.workloads, b.states));
}

#[test]
fn a_trace_names_a_workload_and_one_of_its_states() {
    assert!(matches!(Set::of_trace("creat C durable"), Ok(Set::Trace(_, None))));
    assert!(matches!(Set::of_trace("creat C durable@12.7"), Ok(Set::Trace(_, Some((12, 7))))));
    for wrong in ["creat C durable@", "creat C@1", "creat C@1.x", "creat nowhere", "cr C"] {
        assert!(Set::of_trace(wrong).is_err(), "{wrong}");
    }
}
