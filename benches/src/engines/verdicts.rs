//! The aims for engines, and what a run says of them. Nothing here is a measurement: bounds only.

use super::plan::Workload;
use super::report::Row;
use crate::micro::targets::{Target, geometric_mean};

/// SQLite, one row at FULL, over ext4: on a disk and in RAM, by journal.
const ONE_ROW: [(&str, f64, f64); 2] = [("delete", 7.0, 12.0), ("wal", 2.5, 5.0)];
/// fillsync over ext4 on a disk: by writers; and in RAM.
const FILLSYNC_DISK: [(u32, f64); 2] = [(1, 1.2), (4, 2.5)];
const FILLSYNC_RAM: f64 = 8.0;
/// With busy processes beside it, of the above for SQLite; the others are for a machine at rest.
const BESIDE_BUSY: f64 = 0.5;
/// Volatile workloads of db_bench, and which of them.
const NO_SLOWER: (f64, [Workload; 3]) = (1.0, [Workload::FillRandom, Workload::ReadRandom, Workload::SeekRandom]);
/// The mean of YCSB's six over ext4.
const YCSB: f64 = 1.3;
/// RocksDB with checksums handed over, over itself without.
const HANDOFF: f64 = 0.97;

/// The equal of a row of WeldFS: ext4 on the same disk, or over RAM.
pub(super) fn ext4<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    let same =
        |r: &&Row| r.way == "host" && r.kind == "ext4" && r.ground == row.ground && r.disk == row.disk && !r.handoff;
    rows.iter().filter(same).find(|r| r.key() == row.key())
}

fn over(rows: &[Row], row: &Row) -> f64 {
    ext4(rows, row).map_or(f64::NAN, |peer| row.ops_per_s / peer.ops_per_s)
}

fn aim(row: &Row) -> Option<f64> {
    let (disk, name) = (row.ground == "disk", row.workload);
    if row.engine == "sqlite" {
        let by = ONE_ROW.iter().find(|(journal, ..)| *journal == row.journal && name == Workload::OneRow.name())?;
        return Some(if disk { by.1 } else { by.2 });
    }
    if name == Workload::FillSync.name() {
        let by_writers = FILLSYNC_DISK.iter().find(|(threads, _)| *threads == row.threads).map(|(_, aim)| *aim);
        return if disk { by_writers } else { Some(FILLSYNC_RAM) };
    }
    NO_SLOWER.1.iter().any(|w| w.name() == name).then_some(NO_SLOWER.0)
}

fn beside_busy(rows: &[Row]) -> Vec<Target> {
    let transactions = rows.iter().filter(|r| r.engine == "sqlite" && matches!(r.way, "inline" | "served"));
    let aims = transactions.filter_map(|r| aim(r).map(|aim| (r, aim * BESIDE_BUSY)));
    aims.map(|(r, aim)| Target::new(format!("{}, over ext4, beside busy processes", r.describe()), over(rows, r), aim))
        .collect()
}

/// What this run says of the aims, for each row of the plug-ins; "not measured" where ext4 was not on the same medium.
pub(super) fn verdicts(rows: &[Row], busy: u32) -> Vec<Target> {
    if busy > 0 {
        return beside_busy(rows);
    }
    let plugins = || rows.iter().filter(|r| matches!(r.way, "inline" | "served"));
    let mut targets = Vec::new();
    for row in plugins() {
        if row.handoff {
            let off = plugins().find(|r| !r.handoff && r.key() == row.key() && r.place() == row.place());
            let measured = off.map_or(f64::NAN, |off| row.ops_per_s / off.ops_per_s);
            targets.push(Target::new(format!("{}, over the same without", row.describe()), measured, HANDOFF));
        } else if let Some(aim) = aim(row) {
            targets.push(Target::new(format!("{}, over ext4", row.describe()), over(rows, row), aim));
        }
    }
    let of_ycsb = |r: &&Row| r.workload.starts_with("ycsb");
    let mut seen: Vec<&Row> = Vec::new();
    for first in plugins().filter(of_ycsb) {
        let alike = |r: &Row| (r.engine, r.threads, r.place()) == (first.engine, first.threads, first.place());
        if seen.iter().any(|r| alike(r)) {
            continue;
        }
        seen.push(first);
        let ratios: Vec<f64> = plugins().filter(of_ycsb).filter(|r| alike(r)).map(|r| over(rows, r)).collect();
        // A mean of some of them is another figure.
        let whole = ratios.len() == 6 && ratios.iter().all(|r| r.is_finite());
        let mean = if whole { geometric_mean(ratios.into_iter()) } else { f64::NAN };
        let what = format!(
            "{} YCSB A to F, {} thread(s), {}, geometric mean over ext4",
            first.engine,
            first.threads,
            first.on()
        );
        targets.push(Target::new(what, mean, YCSB));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::row;
    use super::*;

    #[test]
    fn an_aim_is_held_against_ext4_on_the_same_medium() {
        let mut rows = vec![
            row("leveldb", "fillsync", "inline", "block", 250.0),
            row("leveldb", "fillsync", "host", "ext4", 100.0),
        ];
        rows.iter_mut().for_each(|r| (r.ground, r.disk, r.threads) = ("disk", Some(1), 4));
        let of = |rows: &[Row]| verdicts(rows, 0).iter().map(|t| (t.measured, t.aim, t.verdict)).collect::<Vec<_>>();
        assert_eq!(of(&rows), [(Some(2.5), 2.5, "met")]);
        rows[0].ops_per_s = 240.0;
        assert_eq!(of(&rows)[0].2, "missed");
        rows[1].disk = Some(2);
        assert_eq!(of(&rows), [(None, 2.5, "not measured")], "another disk");
        rows[0].threads = 2;
        assert!(of(&rows).is_empty(), "no aim for two writers on a disk");
    }

    #[test]
    fn sqlite_has_aims_by_journal_and_medium() {
        let aims = |ground: &'static str, journal| {
            let r = Row { ground, journal, ..row("sqlite", "one-row", "served", "pmem", 1.0) };
            aim(&r)
        };
        assert_eq!([aims("ram", "delete"), aims("ram", "wal")], [Some(12.0), Some(5.0)]);
        assert_eq!([aims("disk", "delete"), aims("disk", "wal")], [Some(7.0), Some(2.5)]);
        assert_eq!(aim(&row("sqlite", "mixed", "served", "pmem", 1.0)), None);
    }

    #[test]
    fn ycsb_is_a_mean_of_all_six_or_not_measured() {
        let names = ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"];
        let pair = |name: &'static str| {
            [row("rocksdb", name, "inline", "pmem", 4.0), row("rocksdb", name, "host", "ext4", 2.0)]
        };
        let rows: Vec<Row> = names.into_iter().flat_map(pair).collect();
        let all = verdicts(&rows, 0);
        assert_eq!(all.len(), 1, "one line for six rows");
        assert!((all[0].measured.expect("measured") - 2.0).abs() < 1e-9 && all[0].verdict == "met");
        assert_eq!(verdicts(&rows[2..], 0)[0].verdict, "not measured");
    }

    #[test]
    fn handing_over_checksums_is_held_against_the_same_without() {
        let mut rows =
            vec![row("rocksdb", "fillseq", "inline", "pmem", 100.0), row("rocksdb", "fillseq", "inline", "pmem", 96.0)];
        rows[1].handoff = true;
        assert_eq!(verdicts(&rows, 0)[0].verdict, "missed");
        rows[1].ops_per_s = 98.0;
        assert_eq!(verdicts(&rows, 0)[0].verdict, "met");
    }

    #[test]
    fn beside_busy_processes_sqlite_keeps_half_of_its_aim_and_the_others_have_none() {
        let mut rows = vec![
            Row { journal: "wal", ..row("sqlite", "one-row", "inline", "pmem", 250.0) },
            Row { journal: "wal", ..row("sqlite", "one-row", "host", "ext4", 100.0) },
            row("leveldb", "fillsync", "inline", "pmem", 100.0),
        ];
        let of = |rows: &[Row]| verdicts(rows, 2).iter().map(|t| (t.aim, t.verdict)).collect::<Vec<_>>();
        assert_eq!(of(&rows), [(2.5, "met")]);
        rows[0].ops_per_s = 240.0;
        assert_eq!(of(&rows), [(2.5, "missed")]);
    }
}
