//! A rollback journal that is kept in the process, and the pages that wait with it.

use crate::memory::{ENDS, FDATASYNC, Memory, OPEN, PROGRAM, TXN_COMMIT, UNLINK, WRITE, rows_of_a_page};
use crate::rig::{chunk_size, connect, one, register};
use rusqlite::{Connection, ffi};
use weldfs::OpenOptions;
use weldfs_sqlite::Way;

#[test]
fn a_commit_whose_journal_is_kept_is_one_command_and_makes_no_file() {
    let memory = Memory::new(64 << 20, Way::Kept);
    let db = memory.open("a.db");
    db.execute_batch("create table t(x integer primary key, y);").unwrap();
    let made = || [OPEN, UNLINK, WRITE, FDATASYNC].map(|opcode| memory.counted(opcode).1);
    for locking in ["normal", "exclusive"] {
        for (mode, sync, _) in ENDS.into_iter().filter(|(mode, ..)| *mode != "memory") {
            let told = format!("{locking}, {mode}, {sync}");
            let pragmas = format!("pragma journal_mode = {mode}; pragma synchronous = {sync};");
            db.execute_batch(&format!("pragma locking_mode = {locking}; {pragmas} insert into t values(null, 1)"))
                .unwrap();
            let (before, files) = (memory.counted(PROGRAM).1, made());
            (0..10).for_each(|_| db.execute_batch("insert into t(y) values('a row')").unwrap());
            assert_eq!(memory.counted(PROGRAM).1 - before, 10, "{told}");
            assert_eq!(made(), files, "{told}: opens, removals, writes, syncs");
        }
    }
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
    assert_eq!(one::<i64>(&db, "select count(*) from t"), 2 * 7 * 11);
}

#[test]
fn pages_that_wait_are_read_back_and_undone_with_a_journal_that_is_kept() {
    let memory = Memory::new(64 << 20, Way::Kept);
    let (db, other) = (rows_of_a_page(&memory, "a.db", 200), memory.open("a.db"));
    for (locking, mode) in [("normal", "delete"), ("normal", "truncate"), ("exclusive", "persist")] {
        // No room for them in SQLite's cache: they are written long before the commit.
        let pragmas = format!("pragma cache_size = 5; pragma locking_mode = {locking}; pragma journal_mode = {mode}");
        db.execute_batch(&pragmas).unwrap();
        let written = || (memory.counted(WRITE).1, memory.counted(UNLINK).1);
        let before = written();
        let change = "begin; update t set z = z + 1; savepoint s; update t set z = -1; delete from t where x > 100;
                      insert into t(y) values(randomblob(20000));";
        db.execute_batch(change).unwrap();
        assert_eq!(one::<i64>(&db, "select sum(z) from t where x <= 100"), -100, "{mode}");
        db.execute_batch("rollback to s; release s").unwrap();
        let (sum, rows) = ("select sum(z) from t", "select count(*) from t");
        let now: i64 = one(&db, sum);
        db.execute_batch("rollback").unwrap();
        assert_eq!((one::<i64>(&db, sum), one::<i64>(&db, rows)), (now - 200, 200), "{mode}");
        if locking == "normal" {
            assert_eq!((one::<i64>(&other, sum), one::<i64>(&other, rows)), (now - 200, 200), "{mode}");
        }
        db.execute_batch("update t set z = z + 1").unwrap();
        assert_eq!(one::<i64>(&db, sum), now, "{mode}");
        assert_eq!(written(), before, "{mode}: no page is written by itself, and there is no journal to be removed");
    }
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
}

#[test]
fn more_pages_than_wait_go_with_a_journal_that_is_made() {
    let memory = Memory::new(64 << 20, Way::Kept);
    let db = rows_of_a_page(&memory, "a.db", 800);
    // Rows, transactions of the device, and journals that were removed.
    for (rows, begun, removed) in [(60, 1, 0), (800, 0, 1), (60, 1, 0)] {
        let before = (memory.counted(TXN_COMMIT).1, memory.counted(UNLINK).1, memory.counted(PROGRAM).0);
        db.execute("update t set z = z + 1 where x % 2 = 1 and x <= ?", [rows]).unwrap();
        let after = (memory.counted(TXN_COMMIT).1, memory.counted(UNLINK).1, memory.counted(PROGRAM).0);
        assert_eq!((after.0 - before.0, after.1 - before.1), (begun, removed), "{rows}");
        assert!((1..=2).contains(&(after.2 - before.2)), "{rows}: {} flushes", after.2 - before.2);
    }
    // The database gets shorter, and its file with it.
    db.execute_batch("begin; delete from t where x > 100; update t set z = 7; rollback").unwrap();
    db.execute_batch("delete from t where x > 400; vacuum").unwrap();
    assert_eq!(one::<i64>(&db, "select count(*) from t"), 400);
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
    drop(db);
    let client = memory.client();
    assert!(client.metadata("/a.db").unwrap().len() < 600 * 4096);
    assert!(client.metadata("/a.db-journal").is_err());
}

#[test]
fn a_commit_beside_a_database_in_memory_waits_for_no_other() {
    let memory = Memory::new(64 << 20, Way::Kept);
    register();
    drop(rows_of_a_page(&memory, "a.db", 10));
    let db = connect(":memory:").unwrap();
    db.execute("attach ? as a", [memory.name("a.db")]).unwrap();
    db.execute_batch("create table m(x); attach '' as b; create table b.n(x)").unwrap();
    let before = memory.counted(PROGRAM);
    db.execute_batch("begin; update a.t set z = 5; insert into m values(1); insert into n values(1); commit").unwrap();
    let after = memory.counted(PROGRAM);
    assert!(after.0 > before.0 && after.1 == before.1 + 1, "{before:?}, {after:?}");
    assert_eq!(one::<i64>(&memory.open("a.db"), "select sum(z) from t"), 50);
}

/// Ways to end a journal.
const MODES: [&str; 3] = ["delete", "truncate", "persist"];

fn code(done: rusqlite::Result<()>) -> i32 {
    done.err().and_then(|e| e.sqlite_error().map(|e| e.extended_code & 0xff)).unwrap_or(0)
}

/// Takes room until only so many bytes are left.
fn fill(memory: &Memory, left: u64) {
    let client = memory.client();
    let file = client.open("/filler", &OpenOptions::new().write(true).create(true)).unwrap();
    let (mut at, block) = (0, vec![7; 64 << 10]);
    while client.statfs().unwrap().bavail * 4096 > left + block.len() as u64 {
        file.write_all_at(&block, at).unwrap();
        at += block.len() as u64;
    }
}

#[test]
fn a_commit_of_two_files_that_fails_in_the_second_leaves_both_as_they_were() {
    for (mode, locking) in [("delete", "normal"), ("truncate", "normal"), ("persist", "exclusive")] {
        let memory = Memory::new(16 << 20, Way::Kept);
        drop(rows_of_a_page(&memory, "b.db", 200));
        let db = rows_of_a_page(&memory, "a.db", 10);
        db.execute("attach ? as b", [memory.name("b.db")]).unwrap();
        let pragmas = ["main", "b"].map(|of| format!("pragma {of}.journal_mode = {mode}; "));
        db.execute_batch(&format!("{} pragma locking_mode = {locking}", pragmas.concat())).unwrap();
        db.execute_batch("begin; update main.t set z = 1; update b.t set z = 1 where x = 1; commit").unwrap();
        fill(&memory, 300 << 10);
        // The journal of the second one has no room.
        db.execute_batch("begin; update main.t set z = 2; update b.t set z = 2").unwrap();
        assert_eq!(code(db.execute_batch("commit")), ffi::SQLITE_FULL, "{mode}");
        let _ = db.execute_batch("rollback");
        let sums = |db: &Connection| ["main", "b"].map(|of| one::<i64>(db, &format!("select sum(z) from {of}.t")));
        assert_eq!(sums(&db), [10, 1], "{mode}");
        memory.client().remove_file("/filler").unwrap();
        assert_eq!(sums(&db), [10, 1], "{mode}");
        db.execute_batch("begin; update main.t set z = 3; update b.t set z = 3; commit").unwrap();
        drop(db);
        let db = memory.open("a.db");
        db.execute("attach ? as b", [memory.name("b.db")]).unwrap();
        assert_eq!(sums(&db), [30, 600], "{mode}");
    }
}

#[test]
fn a_transaction_that_found_no_room_leaves_nothing_to_a_connection_that_keeps_its_lock() {
    // Pages that follow on each other, ones here and there, ones that no journal has because they were free.
    let changes = [
        ("full", "update t set z = 2"),
        ("off", "update t set z = 2 where x <= 400"),
        ("full", "update t set z = 2; insert into t(y) select randomblob(3000) from t"),
        ("full", "update t set z = 2 where x % 2 = 0; insert into t(y) select randomblob(3000) from t"),
        ("full", "update t set z = 2 where x <= 400; insert into t(y) select randomblob(3000) from t where x <= 90"),
    ];
    for ((sync, change), mode) in changes.into_iter().flat_map(|change| MODES.map(|mode| (change, mode))) {
        let told = format!("{mode}, {sync}, {change}");
        let memory = Memory::new(16 << 20, Way::Kept);
        let db = rows_of_a_page(&memory, "a.db", 900);
        let pragmas = format!("pragma locking_mode = exclusive; pragma cache_size = 5; pragma journal_mode = {mode}");
        db.execute_batch(&format!("{pragmas}; pragma synchronous = {sync}; delete from t where x > 800")).unwrap();
        db.execute_batch("update t set z = 1 where x = 1").unwrap();
        let client = memory.client();
        fill(&memory, 300 << 10);
        let fails = || {
            let done = db.execute_batch(&format!("begin; {change}; commit"));
            assert_eq!(code(done), ffi::SQLITE_FULL, "{told}");
            let _ = db.execute_batch("rollback");
        };
        let seen = || [one::<i64>(&db, "select sum(z) from t"), one::<i64>(&db, "select count(*) from t")];
        fails();
        assert_eq!(seen(), [1, 800], "{told}");
        fails();
        // With the journal of the failed transaction goes what waited with it, and the journal does not come later.
        db.execute_batch("pragma journal_mode = memory").unwrap();
        client.remove_file("/filler").unwrap();
        db.execute_batch("update t set z = 5 where x = 1").unwrap();
        assert_eq!(seen(), [5, 800], "{told}");
        assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok", "{told}");
        assert_eq!(client.metadata("/a.db-journal").map_or(0, |meta| meta.len()), 0, "{told}");
        drop(db);
        assert_eq!(one::<i64>(&memory.open("a.db"), "select sum(z) from t"), 5, "{told}");
    }
}

#[test]
fn a_statement_that_found_no_room_for_its_journal_costs_the_transaction_no_page() {
    let mut refused = 0;
    // Room for the journal, which gets too long to be kept in the second statement, and then for a part of the pages.
    for left in (4..16).map(|half| half << 19) {
        let memory = Memory::new(64 << 20, Way::Kept);
        let db = rows_of_a_page(&memory, "a.db", 1600);
        db.execute_batch("pragma cache_size = 480; update t set z = 1; create unique index i on t(z, x)").unwrap();
        fill(&memory, left);
        assert_eq!(code(db.execute_batch("begin; update t set z = 2 where x <= 1150")), 0);
        let second = code(db.execute_batch("update t set z = 3 where x > 1150"));
        memory.client().remove_file("/filler").unwrap();
        let third = if second == 0 { 3 } else { 1 };
        let is_open = !db.is_autocommit();
        let sum = if is_open { 2 * 1150 + third * 450 } else { 1600 };
        if is_open {
            db.execute_batch("commit").unwrap();
        }
        refused += i32::from(second != 0 && is_open);
        let told = format!("{left} bytes, {second}, open: {is_open}");
        assert_eq!(one::<i64>(&db, "select sum(z) from t"), sum, "{told}");
        drop(db);
        let db = memory.open("a.db");
        assert_eq!(one::<i64>(&db, "select sum(z) from t"), sum, "{told}");
        assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok", "{told}");
    }
    assert!(refused > 0, "no statement was undone alone");
}

#[test]
fn a_journal_that_has_ended_does_not_become_a_file() {
    for (mode, then) in MODES.into_iter().flat_map(|mode| ["memory", "off", "wal"].map(|then| (mode, then))) {
        let memory = Memory::new(64 << 20, Way::Kept);
        let db = rows_of_a_page(&memory, "a.db", 200);
        db.execute_batch(&format!("pragma locking_mode = exclusive; pragma journal_mode = {mode}")).unwrap();
        // The file gets shorter after its journal has ended.
        db.execute_batch("update t set z = 1 where x = 1; delete from t where x > 100; vacuum").unwrap();
        let client = memory.client();
        let journal = || client.metadata("/a.db-journal").map_or(0, |meta| meta.len());
        let before = memory.counted(PROGRAM).1;
        db.execute_batch("update t set z = 2 where x = 1").unwrap();
        assert_eq!((memory.counted(PROGRAM).1 - before, journal()), (1, 0), "{mode}");
        db.execute_batch(&format!("pragma journal_mode = {then}; update t set z = 3 where x = 1")).unwrap();
        db.execute_batch("pragma wal_checkpoint(truncate)").unwrap();
        assert_eq!(journal(), 0, "{mode}, {then}");
        db.execute_batch(&format!("pragma journal_mode = {mode}; update t set z = 4 where x = 1")).unwrap();
        assert_eq!((one::<i64>(&db, "select sum(z) from t"), journal()), (4, 0), "{mode}, {then}");
    }
}

#[test]
fn a_file_that_grows_in_chunks_grows_behind_its_commit() {
    let memory = Memory::new(64 << 20, Way::Kept);
    let (db, client) = (memory.open("a.db"), memory.client());
    chunk_size(&db, 1 << 20);
    db.execute_batch("pragma cache_size = 5; begin; create table t(x)").unwrap();
    let rows = "insert into t select randomblob(3000) from (with recursive s(value) as
                (select 1 union all select value + 1 from s where value < 100) select value from s)";
    db.execute_batch(rows).unwrap();
    let len = || client.metadata("/a.db").unwrap().len();
    // A file of nothing but zeros is no database, should the program be killed now.
    assert_eq!(len(), 0);
    db.execute_batch("commit").unwrap();
    assert_eq!(len(), 1 << 20);
    // What is undone neither grows it nor needs a journal.
    let files = || (memory.counted(OPEN).1, memory.counted(UNLINK).1, memory.counted(WRITE).1);
    let before = files();
    db.execute_batch("begin; update t set x = randomblob(3000); insert into t select x from t; rollback").unwrap();
    assert_eq!((len(), files()), (1 << 20, before));
    db.execute_batch("insert into t select x from t; insert into t select x from t").unwrap();
    assert_eq!(len(), 2 << 20);
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
    assert_eq!(one::<i64>(&memory.open("a.db"), "select count(*) from t"), 400);
}

#[test]
fn a_journal_that_another_program_left_is_overwritten_by_one_that_was_kept_open() {
    let memory = Memory::new(64 << 20, Way::Kept);
    let (other, db) = (rows_of_a_page(&memory, "a.db", 2000), memory.open("a.db"));
    for mode in ["persist", "truncate"] {
        // No file with anything in it, so that the next one is kept.
        db.execute_batch(&format!("pragma journal_mode = delete; update t set z = 0; pragma journal_mode = {mode}"))
            .unwrap();
        // A reader in the middle: after the commit the connection keeps its lock to read, and the journal open.
        let mut reader = db.prepare("select x from t order by x").unwrap();
        let mut rows = reader.query([]).unwrap();
        rows.next().unwrap();
        db.execute_batch("update t set z = 1 where x = 1").unwrap();
        // Another one gets as far as a journal that is too long to be kept, and is killed, for all that this one sees.
        let client = memory.client();
        other.execute_batch("pragma cache_size = 5000; begin immediate; update t set z = 7").unwrap();
        let journal = client.read("/a.db-journal").unwrap();
        assert!(journal.len() > 4 << 20);
        other.execute_batch("rollback").unwrap();
        client
            .open("/a.db-journal", &OpenOptions::new().write(true).create(true))
            .unwrap()
            .write_all_at(&journal, 0)
            .unwrap();
        db.execute_batch("update t set z = 2 where x = 2").unwrap();
        let later = memory.open("a.db");
        assert_eq!(one::<i64>(&later, "select sum(z) from t"), 3, "{mode}");
        assert_eq!(one::<String>(&later, "pragma integrity_check"), "ok", "{mode}");
        drop(rows);
    }
}
