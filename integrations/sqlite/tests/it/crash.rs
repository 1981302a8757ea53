//! Crash states: SQLite over a device on a recording medium, and the power cut at every event of it. Whatever the
//! medium is left as, the database is whole, no acknowledged commit is lost and none is half there.

use crate::rig::{connect, one, register};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use weldfs::Client;
use weldfs_device::DeviceConfig;
use weldfs_journal::{Medium, SystemClock, SystemRandom};
use weldfs_kernel_shim::Embedded;
use weldfs_media::{CowImage, CowMedium, CrashModel, Recording, RecordingMedium, Replayer};
use weldfs_sqlite::{Provided, Way};
use weldfs_store::MountOptions;
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::mount::{MkfsOptions, format};

/// Small, so that a state is cheap to make and to mount.
const IMAGE_BYTES: u64 = 8 << 20;
/// Checkpoints of the device fall into the run.
const LOG_BYTES: u64 = 512 << 10;
const COMMITS: i64 = 6;
/// Rows that every commit leaves in number as they are.
const STAYING: i64 = 20;

/// The journals of a transaction over two files have a name with the target in it.
const TARGET: &str = "device";

/// What the commits do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    /// Rows are added and changed.
    Plain,
    /// The same, between transactions that are rolled back, some of them with more pages than the cache has, savepoints
    /// that are gone back to, and a VACUUM.
    Turns,
    /// The same, each in a second database as well, whose file was attached.
    Pair,
    /// The same, under `locking_mode=exclusive`, with pages that did not fit into the cache, and a journal that is
    /// longer than what each commit writes.
    PairHeld,
    /// The same as the first, each with more small pages here and there than wait for one command.
    Scattered,
}

/// How the commits are made.
#[derive(Clone, Copy, Debug)]
struct Case {
    journal: &'static str,
    way: Way,
    model: CrashModel,
    work: Work,
}

impl Work {
    fn is_of_two(self) -> bool {
        matches!(self, Work::Pair | Work::PairHeld)
    }
}

fn mount(medium: Arc<dyn Medium>, memory: usize) -> Embedded {
    let options = MountOptions { memory, ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom)) };
    let (store, _) = weldfs_fs::mount(medium, options).unwrap();
    Embedded::over(store, DeviceConfig { cores: 1, ..DeviceConfig::default() }).unwrap()
}

/// A connection to a database in a device of this process.
fn open(embedded: &Embedded, target: &Path, case: Case) -> (Connection, Provided) {
    register();
    std::fs::write(target, "").unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    let provided = weldfs_sqlite::provide(target, client, case.way).unwrap();
    let db = connect(&format!("{}:/a.db", target.display())).unwrap();
    if case.work.is_of_two() {
        db.execute("attach ? as b", [format!("{}:/b.db", target.display())]).unwrap();
    }
    (db, provided)
}

/// What changes nothing, whenever the power is cut.
fn turn(db: &Connection, row: i64) {
    db.execute_batch(
        "begin;
         insert into t select 100 + value, randomblob(5000) from (with recursive s(value) as
             (select 1 union all select value + 1 from s where value < 30) select value from s);
         update t set y = randomblob(3000);
         delete from t where x < 0;
         update n set rows = -1;
         rollback;",
    )
    .unwrap();
    if row == COMMITS / 2 {
        db.execute_batch("vacuum").unwrap();
    }
}

/// Commits on a fresh image: the recording, the events before the first commit, and those before each acknowledgement.
fn commit(case: Case, dir: &Path) -> (Recording, u64, Vec<u64>) {
    let recording = Arc::new(RecordingMedium::new(IMAGE_BYTES, case.model));
    let medium: Arc<dyn Medium> = recording.clone();
    let geometry = GeometryOptions { log_len: Some(LOG_BYTES), ..GeometryOptions::default() };
    format(&medium, &MkfsOptions { geometry, ..MkfsOptions::default() }, &SystemClock, &SystemRandom).unwrap();
    let embedded = mount(medium, 16 << 20);
    let (db, provided) = open(&embedded, &dir.join(TARGET), case);
    let page_bytes = if case.work == Work::Scattered { 512 } else { 4096 };
    db.execute_batch(&format!(
        "pragma page_size = {page_bytes}; pragma journal_mode = {}; pragma synchronous = full;
         create table t(x integer primary key, y); create table n(rows); insert into n values(0);
         insert into t select value, zeroblob(3000) from (with recursive s(value) as
             (select -20 union all select value + 1 from s where value < -1) select value from s);",
        case.journal
    ))
    .unwrap();
    match case.work {
        Work::Plain => {}
        Work::Turns => db.execute_batch("pragma cache_size = 5; pragma cache_spill = 5").unwrap(),
        Work::Pair | Work::PairHeld => {
            let made = "create table b.m(rows, y); insert into m values(0, null)";
            db.execute_batch(&format!("pragma b.journal_mode = {}; {made}", case.journal)).unwrap();
            if case.work == Work::PairHeld {
                let held = "pragma locking_mode = exclusive; pragma cache_size = 5; pragma cache_spill = 5;";
                db.execute_batch(&format!(
                    "{held} begin; update t set y = zeroblob(3001); update m set y = null; commit"
                ))
                .unwrap();
            }
        }
        Work::Scattered => {
            let fill =
                "create table p(x integer primary key, y, rows); insert into p select value, zeroblob(400), 0 from
                (with recursive s(value) as (select 1 union all select value + 1 from s where value < 600)
                 select value from s)";
            db.execute_batch(fill).unwrap();
        }
    }
    let (begun, mut acknowledged) = (recording.position(), Vec::new());
    for row in 1..=COMMITS {
        if case.work == Work::Turns {
            turn(&db, row);
        }
        db.execute_batch("begin").unwrap();
        db.execute("insert into t values(?, randomblob(5000))", [row]).unwrap();
        // Pages here and there, so that half a commit would be seen.
        db.execute("update t set y = randomblob(3000) where x < 0 and x % 5 = -(? % 5)", [row]).unwrap();
        if case.work == Work::Turns {
            let undone = "update t set y = randomblob(3000); delete from t; update n set rows = -1;";
            db.execute_batch(&format!("savepoint s; {undone} rollback to s; release s")).unwrap();
        }
        db.execute("update n set rows = ?", [row]).unwrap();
        if case.work.is_of_two() {
            db.execute("update m set rows = ?, y = randomblob(9000)", [row]).unwrap();
        }
        if case.work == Work::Scattered {
            db.execute("update p set rows = ? where x % 2 = 0", [row]).unwrap();
        }
        db.execute_batch("commit").unwrap();
        acknowledged.push(recording.position());
    }
    drop((db, provided));
    embedded.close().unwrap();
    (recording.take_recording(), begun, acknowledged)
}

/// What is wrong with a state; at least so many commits must be there, and at most one more. How many super-journals
/// and journals were.
fn judge(state: CowImage, case: Case, least: i64, target: &Path) -> Result<[usize; 2], String> {
    let embedded = mount(Arc::new(CowMedium::new(state, case.model)), 4 << 20);
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    let root = client.open_dir("/").unwrap();
    let names: Vec<String> = root.entries().map(|entry| entry.unwrap().name.to_string_lossy().into()).collect();
    let amid = ["-mj", "-journal"].map(|part| names.iter().filter(|name| name.contains(part)).count());
    drop(root);
    drop(client);
    let (db, provided) = open(&embedded, target, case);
    let whole: String = one(&db, "pragma integrity_check");
    let counted: i64 = one(&db, "select rows from n");
    let rows: i64 = one(&db, "select count(*) from t where x > 0");
    let last: i64 = one(&db, "select coalesce(max(x), 0) from t where x > 0");
    let staying: i64 = one(&db, "select count(*) from t where x < 0");
    let other: i64 = match case.work {
        Work::Pair | Work::PairHeld => one(&db, "select rows from m"),
        // -1 where they are not of one commit.
        Work::Scattered => one(&db, "select iif(min(rows) = max(rows), max(rows), -1) from p where x % 2 = 0"),
        Work::Plain | Work::Turns => rows,
    };
    drop((db, provided));
    embedded.close().map_err(|e| e.to_string())?;
    let agree = counted == rows && last == rows && other == rows && staying == STAYING;
    match (whole.as_str(), agree, (least..=least + 1).contains(&rows)) {
        ("ok", true, true) => Ok(amid),
        _ => Err(format!(
            "{whole}; counted {counted}, rows {rows}, last {last}, elsewhere {other}, staying {staying}, \
             acknowledged {least}"
        )),
    }
}

/// Cuts of commits with many small pages, which are some thousand events: evenly, where no other number is asked for.
const SCATTERED_CUTS: u64 = 600;

/// Cuts: `WELDFS_SQLITE_CUTS` of them, evenly; else one at every event.
fn every_cut(case: Case) {
    let dir = tempfile::tempdir().unwrap();
    let (recording, begun, acknowledged) = commit(case, dir.path());
    let end = recording.len();
    let most = if case.work == Work::Scattered { SCATTERED_CUTS } else { u64::MAX };
    let wanted = std::env::var("WELDFS_SQLITE_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(most);
    let stride = ((end - begun) / wanted).max(1);
    let (mut replayer, mut cuts, mut amid) = (Replayer::new(&recording, 0), 0, [0, 0]);
    for cut in (begun..=end).step_by(stride as usize) {
        replayer.goto(cut);
        let least = acknowledged.iter().filter(|at| **at <= cut).count() as i64;
        // Nothing of what was in flight, all of it, and a part that the seed draws.
        let seeds = if stride > 1 { vec![cut] } else { vec![0, 1, cut + 2] };
        for seed in seeds {
            let done = judge(replayer.state(seed), case, least, &dir.path().join(TARGET));
            let seen = done.unwrap_or_else(|e| panic!("{case:?}, cut at {cut} of {end}, seed {seed}: {e}"));
            amid = [amid[0] + seen[0], amid[1] + seen[1]];
            cuts += 1;
        }
    }
    let [supers, journals] = amid;
    println!("{case:?}: {cuts} states of {} events, super-journals in {supers}, journals {journals}", end - begun);
    assert_eq!(supers > 0, case.work.is_of_two(), "{case:?}: {supers} super-journals were seen");
    match (case.work, case.way) {
        (Work::Plain, Way::Kept) => assert_eq!(journals, 0, "{case:?}"),
        (Work::Turns, _) | (_, Way::Batch) => {}
        _ => assert!(journals > 0, "{case:?}: no journal was seen"),
    }
}

#[test]
fn every_crash_of_commits_with_a_journal_leaves_whole_commits() {
    for journal in ["delete", "truncate", "persist"] {
        every_cut(Case { journal, way: Way::Written, model: CrashModel::Block, work: Work::Plain });
    }
    every_cut(Case { journal: "delete", way: Way::Written, model: CrashModel::Pmem, work: Work::Plain });
}

#[test]
fn every_crash_of_commits_whose_journal_is_kept_leaves_whole_commits() {
    for journal in ["delete", "truncate", "persist"] {
        every_cut(Case { journal, way: Way::Kept, model: CrashModel::Block, work: Work::Plain });
    }
    every_cut(Case { journal: "delete", way: Way::Kept, model: CrashModel::Pmem, work: Work::Plain });
}

#[test]
fn every_crash_of_commits_with_more_pages_than_wait_leaves_whole_commits() {
    for way in [Way::Kept, Way::Batch] {
        every_cut(Case { journal: "delete", way, model: CrashModel::Block, work: Work::Scattered });
    }
}

#[test]
fn every_crash_of_batch_commits_leaves_whole_commits() {
    for model in [CrashModel::Block, CrashModel::Pmem] {
        every_cut(Case { journal: "delete", way: Way::Batch, model, work: Work::Plain });
    }
}

#[test]
fn every_crash_of_commits_to_a_write_ahead_log_leaves_whole_commits() {
    for model in [CrashModel::Block, CrashModel::Pmem] {
        every_cut(Case { journal: "wal", way: Way::Batch, model, work: Work::Plain });
    }
}

#[test]
fn every_crash_among_rollbacks_savepoints_spilled_pages_and_a_vacuum_leaves_whole_commits() {
    let ways = [
        ("delete", Way::Written),
        ("persist", Way::Written),
        ("delete", Way::Kept),
        ("truncate", Way::Kept),
        ("delete", Way::Batch),
        ("wal", Way::Batch),
    ];
    for (journal, way) in ways {
        every_cut(Case { journal, way, model: CrashModel::Block, work: Work::Turns });
    }
}

#[test]
fn every_crash_of_commits_in_two_files_leaves_both_or_neither() {
    let ways = [
        ("delete", Way::Kept, Work::Pair),
        ("truncate", Way::Written, Work::Pair),
        ("delete", Way::Batch, Work::Pair),
        ("persist", Way::Kept, Work::PairHeld),
        ("truncate", Way::Kept, Work::PairHeld),
    ];
    for (journal, way, work) in ways {
        every_cut(Case { journal, way, model: CrashModel::Block, work });
    }
}
