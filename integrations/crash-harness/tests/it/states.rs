//! Crash states of a sample of workloads, in every build: all of them recover soundly, the same ones every time. The
//! whole sets run in the tier `states` (`weldfs crash`).

use std::sync::atomic::AtomicBool;
use weldfs_crash_harness::states::generate::{ModeChoice, roomy};
use weldfs_crash_harness::states::report::{Failure, Report};
use weldfs_crash_harness::states::run::{Config, Nothing, Set, run};
use weldfs_media::CrashModel;

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
        assert!(one.unique_states > 300, "{}", one.unique_states);
        checked(&config(Set::TwoOp, model, 4));
    }
}

#[test]
fn crash_states_of_operations_that_need_a_larger_medium_recover_to_an_allowed_tree() {
    for model in [CrashModel::Block, CrashModel::Pmem] {
        for workload in roomy().into_iter().filter(|w| w.trace().contains("micro")) {
            // Some of them; the tier `states` has them all.
            let some = Config { states: Some(12), ..config(Set::Trace(workload.clone(), None), model, 1) };
            let report = checked(&Config { depth: 1, ..some });
            assert!(report.unique_states > 5, "{}: {}", workload.trace(), report.unique_states);
        }
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
    for wrong in ["", "@1.1", "creat C durable@", "creat C@1", "creat C@1.x", "creat nowhere", "cr C"] {
        assert!(Set::of_trace(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_state_that_does_not_exist_is_refused_and_never_passes() {
    let of = |trace: &str| {
        let set = Set::of_trace(trace).expect("a workload and a state");
        run(&Config { limit: None, ..config(set, CrashModel::Block, 1) }, &AtomicBool::new(false), &|_| {})
    };
    for (trace, why) in [("creat C durable@99999.0", "its moments are"), ("creat C durable@0.0", "its moments are")] {
        match of(trace) {
            Err(Nothing::NoSuchState(e)) => assert!(e.contains(why), "{trace}: {e}"),
            other => panic!("{trace}: {other:?}"),
        }
    }
    let whole = of("creat C durable").expect("a run");
    assert!(whole.states > 1);
    let Err(Nothing::NoSuchState(e)) = of("creat C durable@99999.0") else { panic!("there is no such moment") };
    let numbers: Vec<u64> = e.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect();
    let (first, last) = (numbers[numbers.len() - 2], numbers[numbers.len() - 1]);
    let mut found = 0;
    for moment in first..=last {
        // Behind the last state of a moment the refusal says how many there are.
        let there = match of(&format!("creat C durable@{moment}.99999")) {
            Err(Nothing::NoSuchState(e)) => {
                e.split("there are ").nth(1).and_then(|w| w.split(',').next()?.parse().ok())
            }
            other => panic!("{moment}: {other:?}"),
        };
        for number in 0..there.expect("how many there are") {
            let one = of(&format!("creat C durable@{moment}.{number}")).expect("it is there");
            assert_eq!((one.states, one.bad), (1, 0), "{moment}.{number}");
            found += 1;
        }
    }
    assert_eq!(found, whole.states, "every state of the run can be named, and no other");
}

#[test]
fn images_of_crashed_recoveries_are_counted_apart() {
    let set = Set::of_trace("append_checksum_write foo 5000 micro durable").expect("a workload");
    for model in [CrashModel::Block, CrashModel::Pmem] {
        let once = checked(&Config { depth: 1, ..config(set.clone(), model, 1) });
        let deep = checked(&Config { depth: 3, ..config(set.clone(), model, 1) });
        assert_eq!(once.recovery_states, 0);
        assert!(deep.recovery_states > 0);
        assert_eq!((deep.states, deep.unique_states), (once.states, once.unique_states));
        assert!(once.unique_states <= once.states, "{once:?}");
    }
}

#[test]
fn read_only_mounts_show_the_middle_of_a_transaction_and_it_is_judged() {
    for model in [CrashModel::Block, CrashModel::Pmem] {
        let set = Set::of_trace("creat foo durable; open_write_close C new 0 600 micro durable").expect("a workload");
        let report = checked(&config(set, model, 1));
        assert!(report.middles > 0 && report.read_only >= report.middles, "{report:?}");
        let set = Set::of_trace("open_write_close C new 0 600 macro durable").expect("a workload");
        assert_eq!(checked(&config(set, model, 1)).read_only, 0, "nothing to finish");
    }
}

#[test]
fn a_run_that_is_stopped_says_so_and_the_command_of_a_failure_is_complete() {
    let once = config(Set::OneOp, CrashModel::Pmem, 40);
    let stopped = run(&once, &AtomicBool::new(true), &|_| {}).expect("a report");
    assert!(stopped.interrupted && stopped.workloads == 0);
    let report = run(&Config { depth: 3, limit: Some(1), ..once }, &AtomicBool::new(false), &|_| {}).expect("a report");
    assert!(!report.interrupted);
    let failure = Failure { trace: "creat C@7.1".into(), rule: 4, detail: String::new() };
    assert_eq!(
        report.command(&failure),
        "weldfs crash --medium pmem --mode all --seed 3 --depth 3 --trace 'creat C@7.1'"
    );
    assert_eq!(failure.rule_and_title(), "rule 4 (content is neither old nor new)");
}
