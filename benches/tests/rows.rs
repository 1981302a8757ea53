//! Every operation is measured, or it is written down why not.

use std::collections::BTreeSet;
use weldfs_benches::micro::cell::MicroOp;
use weldfs_ciscops::OPS;
use weldfs_ciscops::catalogue::{NAMES, UNMEASURED};

#[path = "../drills/src/kinds.rs"]
mod kinds;

/// Rows and kinds that do not have the name of the operation they measure.
const CALLED: [(&str, &[&str]); 3] =
    [("readdir_plus", &["read_dir_plus"]), ("stat_many", &["batch", "stat_path"]), ("index_walk", &["program"])];

/// Rows of `weldfs bench micro`, and kinds of the drills.
fn rows() -> BTreeSet<&'static str> {
    let micro = MicroOp::ALL.into_iter().map(MicroOp::name);
    micro.chain(kinds::RING).chain(kinds::INLINE).collect()
}

/// Operations, single and fused.
fn operations() -> BTreeSet<&'static str> {
    OPS.iter().map(|spec| spec.name).chain(NAMES).collect()
}

/// What is wrong: an operation without a row or a reason, and a reason that is not needed or of no operation.
fn complaints(
    operations: &BTreeSet<&str>,
    rows: &BTreeSet<&str>,
    called: &[(&str, &[&str])],
    unmeasured: &[(&[&str], &str)],
) -> Vec<String> {
    let under_other_names = called.iter().filter(|(row, _)| rows.contains(row)).flat_map(|(_, ops)| *ops);
    let measured: BTreeSet<&str> = rows.iter().chain(under_other_names).copied().collect();
    let named: Vec<&str> = unmeasured.iter().flat_map(|(ops, _)| *ops).copied().collect();
    let mut bad = Vec::new();
    for op in operations.iter().filter(|op| !measured.contains(*op) && !named.contains(op)) {
        bad.push(format!("{op}: no bench has a row of it, and UNMEASURED does not say why"));
    }
    for (i, op) in named.iter().enumerate() {
        if !operations.contains(op) || measured.contains(op) || named[..i].contains(op) {
            bad.push(format!("{op}: UNMEASURED has it, and it is no operation, has a row, or is there twice"));
        }
    }
    for (row, ops) in called {
        if !rows.contains(row) || ops.iter().any(|op| !operations.contains(op) || rows.contains(op)) {
            bad.push(format!(
                "{row}: CALLED has it, and it is no row, or of no operation or one with a row of its own"
            ));
        }
    }
    bad
}

#[test]
fn every_operation_has_a_row_or_a_reason() {
    let bad = complaints(&operations(), &rows(), &CALLED, UNMEASURED);
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(UNMEASURED.iter().all(|(ops, why)| !ops.is_empty() && why.len() > 10), "a reason is a sentence");
}

#[test]
fn what_is_forgotten_or_stale_is_found() {
    let found = |rows: &[&'static str], unmeasured: &[(&[&str], &str)]| {
        let operations = ["a", "b", "c"].into_iter().collect();
        complaints(&operations, &rows.iter().copied().collect(), &[("x", &["c"])], unmeasured)
    };
    assert_eq!(found(&["a", "x"], &[(&["b"], "why")]), [""; 0]);
    assert!(found(&["a", "x"], &[]).iter().all(|said| said.starts_with("b: no bench")));
    for (rows, unmeasured) in [
        (&["a", "x"][..], &["b", "d"][..]),
        (&["a", "b", "x"], &["b"]),
        (&["a", "x"], &["b", "c"]),
        (&["a", "x"], &["b", "b"]),
        (&["a", "x"], &[]),
        (&["a", "b"], &["c"]),
        (&["a", "b", "c", "x"], &[]),
    ] {
        assert_eq!(found(rows, &[(unmeasured, "why")]).len(), 1, "{rows:?} {unmeasured:?}");
    }
}
