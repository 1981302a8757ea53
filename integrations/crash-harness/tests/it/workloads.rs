//! Workloads over the tiny tree without a crash: the language, the generator's lists, the shrinker, and the store
//! beside the model on every workload.
//!
//! `WELDFS_TWO_OPS` is how many of the workloads of two operations are run here (default 3000 per medium, drawn by a
//! fixed seed; `all` for all of them).

use std::collections::BTreeSet;
use weldfs_crash_harness::states::generate::{ModeChoice, one_op, random, roomy, sampled, two_op};
use weldfs_crash_harness::states::shrink::shrink;
use weldfs_crash_harness::states::workload::{FsOp, Sync};
use weldfs_crash_harness::states::{Setup, Workload, perform};
use weldfs_media::CrashModel;

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
        read_modify_write bar swap-fail 5 100; fused encrypt_write.record A/foo bar 0 100 micro; \
        fused create_tree A/foo bar 0 700 macro durable; fused transaction.abort A/foo bar 0 700; rmdir B";
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
fn numbers_beyond_the_tiny_file_system_are_refused_with_the_most_that_is_taken() {
    for (line, words) in [
        ("read_modify_write foo patch 0 4000000", "4000000 is more than 1048576"),
        ("open_write_close C new 0 1048577", "1048577 is more than 1048576"),
        ("read_modify_write foo add 0 9", "8 bytes, not of 9"),
        ("append bar 1099511627776", "1099511627776 is more than 1310720"),
        ("append bar 4294967295", "4294967295 is more than 1310720"),
        ("append bar 2093056", "2093056 is more than 1310720"),
        ("append bar 99999999999999999999999", "is more than 1310720"),
        ("append bar -1", "-1 is not a number"),
        ("write foo 99999999 1", "99999999 is more than 2097152"),
        ("truncate foo 99999999", "99999999 is more than 2097152"),
        ("fallocate foo reserve 0 99999999", "99999999 is more than 1310720"),
        ("setxattr foo 0 4097", "4097 is more than 4096"),
        ("setxattr foo 256 1", "256 is more than 255"),
        ("chmod foo 77777777", "77777777 is more than 7777"),
        ("chown foo 4294967295 0", "4294967295 is more than 4294967294"),
        ("utimens foo 18446744073709551615", "is more than 4294967295"),
        ("write foo 0 1000000; append foo 1000000", "take 2011136 bytes, more than the 1835008"),
        ("", "at least one step"),
        (" ; ;", "at least one step"),
    ] {
        let refused = Workload::parse(line).expect_err(line);
        assert!(refused.contains(words), "{line}: {refused}");
    }
    let long = "creat C;".repeat(1001);
    assert!(Workload::parse(&long).expect_err("too many").contains("more than 1000 steps"));
    let refused = Workload::parse(&format!("creat {}", "x".repeat(1 << 20))).expect_err("no name");
    assert!(refused.len() < 1000, "{} bytes", refused.len());
}

#[test]
fn the_largest_numbers_that_are_taken_run_as_the_model_says() {
    let (off, len, payload, rest) = (2 << 20, 1_310_720, 1 << 20, 500_000);
    let mut lines = vec![
        format!("write foo {off} {len} durable; write bar 0 {rest}"),
        format!("write foo 0 {len} fsync; write foo 0 {rest} durable; write bar 0 1"),
        format!("append bar {len}; append bar {rest} checkpoint"),
        format!("truncate foo {off} reclaim; append_checksum_write foo 1048572; append_checksum_write bar {rest}"),
        format!("append_checksum_write bar {payload} micro; chmod foo 7777; chown foo 4294967294 4294967294"),
        "append_checksum_write bar 1048573; unlink A/C".to_owned(),
        "setxattr foo 255 4096; setxattr bar 0 0; utimens foo 4294967295 remount; removexattr foo 255".to_owned(),
    ];
    let every = |at: &str| (0..26).map(|k| format!("setxattr {at} {k} 4096; ")).collect::<String>();
    lines.push(["foo", "bar", "A", "B", "A/foo", "B/bar"].map(every).concat());
    lines.push((0..400).map(|i| format!("write {} {} 1;", ["foo", "bar"][i % 2], i * 4096)).collect());
    for mode in ["reserve", "keep-size", "punch", "zero", "zero-keep-size"] {
        lines.push(format!("fallocate foo {mode} {off} {len} durable; fallocate bar {mode} 1 {rest}"));
    }
    for mode in ["macro", "micro"] {
        for how in ["existing", "create", "new", "trunc", "append"] {
            for op in ["open_write_close", "open_read_write_close"] {
                lines.push(format!("{op} foo {how} {off} {payload} {mode}; {op} C {how} 0 {rest} {mode} durable"));
                lines.push(format!("{op} C {how} 0 {payload} {mode}"));
            }
        }
        lines
            .push(format!("read_modify_write foo add {off} 8 {mode}; read_modify_write foo add 4090 8 {mode} durable"));
        for change in ["patch", "xor", "swap", "swap-fail"] {
            let op = format!("read_modify_write foo {change}");
            lines.push(format!("{op} {off} {payload} {mode} durable; {op} 1 {rest} {mode}; {op} 0 0; {op} 0 7"));
            lines.push(format!("{op} 0 {payload} {mode}"));
        }
    }
    let workloads: Vec<Workload> = lines.iter().map(|l| Workload::parse(l).unwrap_or_else(|e| panic!("{e}"))).collect();
    assert_eq!(perform_all(&mut workloads.into_iter()), lines.len());
}

#[test]
fn the_lists_are_complete_without_repeats_and_of_known_size() {
    let ones = one_op(ModeChoice::Both);
    let pairs = two_op(ModeChoice::Both);
    let three = [ModeChoice::Macro, ModeChoice::Micro].map(|m| two_op(m).count_all());
    // Each row in both modes, durable and followed by fsync; beside those of the list.
    let rows = weldfs_crash_harness::catalogue::table().iter().filter(|row| row.op != "read_dir_plus").count();
    let of_rows = 2 * 2 * (rows - roomy().len() / 2);
    assert_eq!((ones.len() - of_rows, pairs.count_all(), three), (3248, 49_686, [30_246, 30_246]));
    assert!(rows >= 59, "{rows}");
    assert_eq!(ones.iter().collect::<BTreeSet<_>>().len(), ones.len());
    assert_eq!(pairs.collect::<BTreeSet<_>>().len(), 49_686);
    let kinds: BTreeSet<String> =
        ones.iter().map(|w| w.trace().split(' ').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(kinds.len(), 26, "every operation of the language: {kinds:?}");
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
fn store_and_model_agree_on_operations_that_need_a_larger_medium() {
    let workloads = roomy();
    assert_eq!(workloads.len(), 4);
    for model in [CrashModel::Block, CrashModel::Pmem] {
        for workload in &workloads {
            let setup = Setup::for_workload(model, workload).expect("the tiny tree is made");
            let performed = perform(&setup, workload).unwrap_or_else(|e| panic!("{model:?}: {e}"));
            assert!(performed.history.points.len() > 1, "{}", workload.trace());
        }
    }
}

#[test]
fn every_operation_of_the_catalogue_is_a_workload_in_both_modes() {
    let lines: BTreeSet<String> = one_op(ModeChoice::Both).iter().chain(&roomy()).map(Workload::trace).collect();
    for row in weldfs_crash_harness::catalogue::table().iter().filter(|row| row.op != "read_dir_plus") {
        for mode in ["macro", "micro"] {
            let start = format!("fused {} ", row.name());
            let there = lines.iter().any(|l| l.starts_with(&start) && l.ends_with(&format!(" {mode} durable")));
            assert!(there, "{} {mode}", row.name());
        }
    }
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
