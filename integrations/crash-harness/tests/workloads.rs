//! Workloads over the tiny tree without a crash: the language, the generator's lists, the shrinker, and the store
//! beside the model on every workload.
//!
//! `WELDFS_TWO_OPS` is how many of the workloads of two operations are run here (default 3000 per medium, drawn by a
//! fixed seed; `all` for all of them).

use std::collections::BTreeSet;
use weldfs_crash_harness::states::generate::{ModeChoice, one_op, random, sampled, two_op};
use weldfs_crash_harness::states::shrink::shrink;
use weldfs_crash_harness::states::workload::{FsOp, Sync};
use weldfs_crash_harness::states::{Setup, Workload, perform};
use weldfs_storagefs::media::CrashModel;

fn setups() -> [Setup; 2] {
    [CrashModel::Block, CrashModel::Pmem].map(|m| Setup::new(m).expect("the tiny tree is made"))
}

/// Performs all on both media; the store and the model answer alike and show the same tree, or this names the workload.
fn perform_all(workloads: &mut dyn Iterator<Item = Workload>) -> usize {
    let setups = setups();
    let (mut count, mut wrong) = (0, Vec::new());
    for workload in workloads {
        count += 1;
        for setup in &setups {
            if let Err(e) = perform(setup, &workload) {
                wrong.push(format!("{:?}: {e}", setup.model));
            }
        }
        assert!(wrong.len() < 20, "{}", wrong.join("\n"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    count
}

#[test]
fn store_and_model_agree_on_a_workload_of_every_kind() {
    let line = "creat A/bar durable; mkdir C; rename A/foo C noreplace; rename A B/A over; link foo l fsync; \
        symlink foo A/l; write foo 4000 5000; append bar 700 durable checkpoint; truncate foo 100; \
        fallocate foo reserve 0 9000; fallocate foo punch 10 5000; fallocate bar zero 0 8192; hold foo; unlink foo; \
        unlink l reclaim; setxattr bar 1 30; removexattr bar 1; chmod B 700; chown bar 5 6 syncfs; utimens bar 99; \
        open_write_close foo new 0 6000 micro; open_read_write_close foo trunc 0 10 macro durable; \
        append_checksum_write bar 600 micro; read_modify_write bar add 0 8; read_modify_write bar swap 5 100 remount; \
        read_modify_write bar swap-fail 5 100; rmdir B";
    let workload = Workload::parse(line).expect("the line is well formed");
    assert_eq!(workload.trace(), line);
    for setup in setups() {
        let performed = perform(&setup, &workload).unwrap_or_else(|e| panic!("{:?}: {e}", setup.model));
        assert!(performed.history.points.len() > 15, "{}", performed.history.points.len());
        assert!(performed.begun < performed.recording.len());
    }
}

#[test]
fn a_trace_reads_back_as_the_workload_it_was_written_from() {
    let drawn = sampled(3, 300, 5).chain(one_op(ModeChoice::Both)).chain([random(200, 9)]);
    for workload in drawn {
        assert_eq!(Workload::parse(&workload.trace()), Ok(workload));
    }
}

#[test]
fn a_trace_that_cannot_be_read_is_refused_with_the_word() {
    for (line, word) in [
        ("write foo 1", "missing"),
        ("creat nowhere", "nowhere"),
        ("creat foo; fsck foo", "fsck"),
        ("creat foo often", "often"),
        ("write foo x 1", "x"),
        ("rename foo bar quietly", "quietly"),
        ("chmod foo 9", "9"),
    ] {
        let refused = Workload::parse(line).expect_err(line);
        assert!(refused.contains(word), "{line}: {refused}");
    }
}

#[test]
fn the_lists_are_complete_without_repeats_and_of_known_size() {
    let ones = one_op(ModeChoice::Both);
    let pairs = two_op(ModeChoice::Both);
    let three = [ModeChoice::Macro, ModeChoice::Micro].map(|m| two_op(m).count_all());
    assert_eq!((ones.len(), pairs.count_all(), three), (2800, 36_504, [24_576, 24_576]));
    assert_eq!(ones.iter().collect::<BTreeSet<_>>().len(), ones.len());
    assert_eq!(pairs.collect::<BTreeSet<_>>().len(), 36_504);
    let kinds: BTreeSet<String> =
        ones.iter().map(|w| w.trace().split(' ').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(kinds.len(), 21, "every operation of the language: {kinds:?}");
}

#[test]
fn samples_of_pairs_differ_and_are_the_same_for_the_same_seed() {
    let draw = |seed| sampled(2, 2000, seed).collect::<Vec<_>>();
    let (a, b) = (draw(1), draw(1));
    assert_eq!(a, b);
    assert_ne!(a, draw(2));
    assert_eq!(a.iter().collect::<BTreeSet<_>>().len(), 2000);
    let all = sampled(2, usize::MAX, 3).collect::<BTreeSet<_>>();
    assert_eq!(all.len(), two_op(ModeChoice::Both).count_all());
}

#[test]
fn shrinking_ends_at_the_one_thing_that_matters() {
    let workload = random(40, 4);
    let bad = |w: &Workload| w.steps.iter().any(|s| matches!(s.op, FsOp::Append { .. }) && s.sync != Sync::Nothing);
    let mut workload = workload;
    workload.steps.extend(Workload::parse("append foo 5000 durable fdatasync checkpoint").expect("well formed").steps);
    let mut tried = 0;
    let small = shrink(&workload, &mut |w| {
        tried += 1;
        bad(w)
    });
    assert_eq!(small.steps.len(), 1, "{}", small.trace());
    let step = small.steps[0];
    assert!(matches!(step.op, FsOp::Append { len: 1, .. }) && !step.durable, "{}", small.trace());
    assert!(tried < 2000, "{tried}");
}

#[test]
fn store_and_model_agree_on_every_workload_of_one_operation() {
    perform_all(&mut one_op(ModeChoice::Both).into_iter());
}

#[test]
fn store_and_model_agree_on_pairs_of_operations() {
    let wanted = std::env::var("WELDFS_TWO_OPS").unwrap_or("3000".into());
    let count = wanted.parse().unwrap_or(usize::MAX);
    let done = perform_all(&mut sampled(2, count, 1));
    assert!(done == count.min(two_op(ModeChoice::Both).count_all()), "{done}");
}

#[test]
fn store_and_model_agree_on_longer_workloads() {
    perform_all(&mut sampled(3, 300, 11));
    perform_all(&mut (0..10).map(|seed| random(150, seed)));
}
