//! SIGKILL of programs and of devices: every commit that was acknowledged is there, and the database is whole.

use crate::rig::{PATIENCE, Served, connect, image, last_number, one};
use rusqlite::ffi;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs::{Client, SocketConnector};
use weldfs_sqlite::Way;

/// What a writer process is told, in its environment: the folder, its number, the journal mode, how commits are made.
const WRITER: &str = "WELDFS_SQLITE_TEST_WRITER";

/// A process that commits row after row (each of two statements) and notes what was acknowledged, until it is killed or
/// its device is.
#[test]
#[ignore = "a process of the other tests"]
fn writer() {
    let Ok(told) = std::env::var(WRITER) else { return };
    let [dir, number, mode, way] = told.split('|').collect::<Vec<_>>().try_into().unwrap();
    let (dir, number): (PathBuf, i64) = (dir.into(), number.parse().unwrap());
    crate::rig::register();
    let socket = dir.join("d.img.sock");
    let client = Client::with(Arc::new(SocketConnector::new(&socket))).unwrap();
    let _provided = weldfs_sqlite::provide(&socket, client, named(way)).unwrap();
    let db = connect(&format!("{}:/a.db", socket.display())).unwrap();
    db.execute_batch(&format!("pragma journal_mode = {mode}; pragma synchronous = full; pragma cache_size = 5;"))
        .unwrap();
    let mut acknowledged = std::fs::File::create(dir.join(format!("acknowledged.{number}"))).unwrap();
    for row in 1_i64.. {
        let written = db
            .execute_batch("begin immediate")
            .and_then(|()| db.execute("insert into t values(?1, ?2, hex(randomblob(2000)))", (number, row)))
            .and_then(|_| db.execute("update n set rows = ?2 where writer = ?1", (number, row)))
            .and_then(|_| db.execute_batch("commit"));
        match written {
            Ok(()) => acknowledged.write_all(format!("{row}\n").as_bytes()).unwrap(),
            // A device that died: what became of this commit is seen by who looks next.
            Err(e) => {
                let code = e.sqlite_error().map_or(0, |e| e.extended_code & 0xff);
                return std::fs::write(dir.join(format!("failed.{number}")), code.to_string()).unwrap();
            }
        }
        // SQLite's locks have no order: who waits sleeps up to 100 ms between two tries, and would hardly ever meet the
        // moment between two commits of a writer that begins the next one at once.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The way that is written so.
fn named(way: &str) -> Way {
    [Way::Batch, Way::Kept, Way::Written].into_iter().find(|known| format!("{known:?}") == way).unwrap()
}

fn spawn(dir: &Path, number: i64, mode: &str, way: Way) -> Child {
    let mut writer = Command::new(std::env::current_exe().unwrap());
    writer.args(["--exact", "kills::writer", "--ignored"]);
    writer.env(WRITER, format!("{}|{number}|{mode}|{way:?}", dir.display()));
    writer.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

fn acknowledged(dir: &Path, number: i64) -> i64 {
    let noted = std::fs::read_to_string(dir.join(format!("acknowledged.{number}"))).unwrap_or_default();
    i64::from(last_number(&noted))
}

/// What two writers committed is there, row by row; at most one more each that was not acknowledged.
fn check(dir: &Path, told: &str) {
    let db = connect(&format!("{}:/a.db", dir.join("d.img").display())).unwrap();
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok", "{told}");
    for number in 1..=2 {
        let noted = acknowledged(dir, number);
        let rows: i64 = one(&db, &format!("select count(*) from t where writer = {number}"));
        let last: i64 = one(&db, &format!("select coalesce(max(row), 0) from t where writer = {number}"));
        let counted: i64 = one(&db, &format!("select rows from n where writer = {number}"));
        assert!(rows == noted || rows == noted + 1, "{told}: {rows} rows, {noted} acknowledged");
        assert_eq!((last, counted), (rows, rows), "{told}: half a commit");
    }
}

fn prepared(mode: &str) -> tempfile::TempDir {
    let dir = image("128M");
    let db = connect(&format!("{}:/a.db", dir.path().join("d.img").display())).unwrap();
    let tables = "create table t(writer, row, y); create table n(writer primary key, rows);
                  create index i on t(writer, row); insert into n values(1, 0), (2, 0);";
    db.execute_batch(tables).unwrap();
    // Of the database: going over to it cannot wait for another connection.
    db.execute_batch(&format!("pragma journal_mode = {mode}")).unwrap();
    dir
}

const MODES: [(&str, Way); 5] = [
    ("delete", Way::Batch),
    ("delete", Way::Kept),
    ("delete", Way::Written),
    ("persist", Way::Written),
    ("wal", Way::Batch),
];

fn round(kill: impl Fn(Served, [Child; 2]), mode: &str, way: Way, what: &str) {
    let dir = prepared(mode);
    let served = Served::start(dir.path());
    let writers = [1, 2].map(|number| spawn(dir.path(), number, mode, way));
    let start = Instant::now();
    while acknowledged(dir.path(), 1) < 5 || acknowledged(dir.path(), 2) < 5 {
        assert!(start.elapsed() < PATIENCE, "{mode}: nothing is committed");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(served, writers);
    check(dir.path(), &format!("{what} in {mode}"));
    crate::rig::fsck(dir.path());
}

#[test]
fn a_killed_program_loses_no_acknowledged_commit() {
    for (mode, way) in MODES {
        let kill = |served: Served, mut writers: [Child; 2]| {
            for writer in &mut writers {
                writer.kill().unwrap();
            }
            for writer in &mut writers {
                writer.wait().unwrap();
            }
            drop(served);
        };
        round(kill, mode, way, "programs killed");
    }
}

#[test]
fn one_of_two_programs_is_killed_and_the_other_goes_on() {
    for (mode, way) in [("delete", Way::Kept), ("delete", Way::Written), ("wal", Way::Batch)] {
        let kill = |served: Served, mut writers: [Child; 2]| {
            let dir = served.socket().parent().unwrap().to_owned();
            writers[0].kill().unwrap();
            writers[0].wait().unwrap();
            let (before, start) = (acknowledged(&dir, 2), Instant::now());
            while acknowledged(&dir, 2) < before + 5 {
                assert!(start.elapsed() < PATIENCE, "{mode}: the other one waits for ever");
                std::thread::sleep(Duration::from_millis(5));
            }
            writers[1].kill().unwrap();
            writers[1].wait().unwrap();
            drop(served);
        };
        round(kill, mode, way, "one program killed");
    }
}

#[test]
fn a_killed_device_loses_no_acknowledged_commit() {
    for (mode, way) in MODES {
        let kill = |served: Served, mut writers: [Child; 2]| {
            let dir = served.socket().parent().unwrap().to_owned();
            served.kill();
            // Their commit fails, and they end by themselves.
            for writer in &mut writers {
                let start = Instant::now();
                while writer.try_wait().unwrap().is_none() {
                    assert!(start.elapsed() < PATIENCE, "{mode}: a program hangs on a device that is gone");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            for number in 1..=2 {
                let failed = std::fs::read_to_string(dir.join(format!("failed.{number}")));
                assert_eq!(failed.as_deref().ok(), Some(&*ffi::SQLITE_IOERR.to_string()), "{mode}: writer {number}");
            }
        };
        round(kill, mode, way, "the device killed");
    }
}
