//! What a commit costs the device: one flush, and where SQLite can do that, one command.

use crate::memory::{ENDS, FDATASYNC, Memory, PROGRAM, TXN_COMMIT, UNLINK, WRITE};
use crate::rig::{chunk_size, has_a_journal, one};
use rusqlite::ffi;
use weldfs::OpenOptions;
use weldfs_sqlite::Way;

#[test]
fn the_counters_of_the_device_are_a_pragma_s_answer() {
    let memory = Memory::new(64 << 20, Way::Batch);
    let db = memory.open("a.db");
    db.execute_batch("create table t(x); insert into t values(1);").unwrap();
    let counted =
        |sql: &str| one::<i64>(&db, &format!("select json_extract('{}', '$.log.flushes')", one::<String>(&db, sql)));
    let before = counted("pragma weldfs_stats");
    db.execute("insert into t values(2)", []).unwrap();
    let after = counted("pragma main.WELDFS_STATS");
    assert_eq!((before > 0, after - before), (true, 1), "{before} to {after}");
    // A database without a device has no such pragma, as no other SQLite has.
    db.execute_batch("attach ':memory:' as beside").unwrap();
    let none = db.query_row("pragma beside.weldfs_stats", [], |row| row.get::<_, String>(0));
    assert!(matches!(none, Err(rusqlite::Error::QueryReturnedNoRows)), "{none:?}");
}

#[test]
fn a_batch_commit_is_one_command_and_one_flush() {
    let memory = Memory::new(64 << 20, Way::Batch);
    let db = memory.open("a.db");
    db.execute_batch("create table t(x integer primary key, y); pragma synchronous = full;").unwrap();
    for row in 0..20 {
        let (before, writes) = (memory.counted(PROGRAM), memory.counted(WRITE).1);
        db.execute("insert into t values(?, 'a row')", [row]).unwrap();
        let after = memory.counted(PROGRAM);
        assert!(after.0 - before.0 <= 1, "flushes of one commit: {}", after.0 - before.0);
        assert_eq!((after.1 - before.1, memory.counted(WRITE).1), (1, writes), "commands of one commit");
    }
    // Written as one, and not with a journal that is kept, which is one command, too.
    let begun = "begin; insert into t values(-1, 'a row')";
    db.execute_batch(begun).unwrap();
    assert!(!has_a_journal(&db));
    db.execute_batch("commit").unwrap();
    let kept = Memory::new(16 << 20, Way::Kept);
    let kept = kept.open("a.db");
    kept.execute_batch(&format!("create table t(x integer primary key, y); {begun}")).unwrap();
    assert!(has_a_journal(&kept), "else nothing is said above");
    kept.execute_batch("commit").unwrap();
    // A commit of many separate pages: a transaction of the device. One of more than that holds: a journal.
    for rows in [40, 2000, 40_000] {
        let many = "insert into t select abs(random()), hex(randomblob(200)) from (with recursive
                    s(i) as (select 1 union all select i + 1 from s where i < ?) select i from s)";
        db.execute(many, [rows]).unwrap();
        db.execute("update t set y = y || 'z' where x % 7 = 0", []).unwrap();
    }
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
    let rows: i64 = one(&db, "select count(*) from t");
    drop(db);
    assert_eq!(one::<i64>(&memory.open("a.db"), "select count(*) from t"), rows);
}

#[test]
fn a_batch_commit_of_scattered_pages_is_a_transaction_or_has_a_journal() {
    let memory = Memory::new(64 << 20, Way::Batch);
    let db = memory.open("a.db");
    // A row on each page.
    db.execute_batch("create table t(x integer primary key, y);").unwrap();
    let fill = "insert into t select x, zeroblob(3000) from
                (with recursive s(x) as (select 1 union all select x + 1 from s where x < 900) select x from s)";
    db.execute_batch(fill).unwrap();
    db.execute_batch("begin; update t set y = randomblob(3000) where x = 1").unwrap();
    assert!(!has_a_journal(&db), "written as one");
    db.execute_batch("rollback").unwrap();
    for (rows, begun, removed) in [(60, 1, 0), (800, 0, 1)] {
        let before = (memory.counted(TXN_COMMIT).1, memory.counted(UNLINK).1);
        db.execute("update t set y = randomblob(3000) where x % 2 = 1 and x <= ?", [rows]).unwrap();
        let after = (memory.counted(TXN_COMMIT).1, memory.counted(UNLINK).1);
        assert_eq!((after.0 - before.0, after.1 - before.1), (begun, removed), "{rows}");
    }
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
}

#[test]
fn a_commit_to_a_write_ahead_log_is_one_write_and_one_flush() {
    let memory = Memory::new(64 << 20, Way::Written);
    let db = memory.open("a.db");
    db.execute_batch("pragma journal_mode = wal; create table t(x integer primary key, y);").unwrap();
    let fill = "insert into t select x, zeroblob(3000) from
                (with recursive s(x) as (select 1 union all select x + 1 from s where x < 100) select x from s)";
    db.execute_batch(fill).unwrap();
    // Flushes, writes and syncs of so many commits; one flush more where the device's own five seconds fall into it.
    let spent = |sql: &str, times: u64| {
        let counted = || [memory.counted(WRITE).0, memory.counted(WRITE).1, memory.counted(FDATASYNC).1];
        let before = counted();
        (0..times).for_each(|_| db.execute_batch(sql).unwrap());
        let after = counted();
        [0, 1, 2].map(|i| after[i] - before[i])
    };
    let one_page = "update t set y = randomblob(3000) where x = 1";
    let forty = "update t set y = randomblob(3000) where x <= 40";
    db.execute_batch("pragma synchronous = full").unwrap();
    spent(one_page, 3);
    for sql in [one_page, forty] {
        let [flushes, writes, syncs] = spent(sql, 10);
        assert!((10..=11).contains(&flushes), "{sql}: {flushes}");
        assert_eq!((writes, syncs), (10, 0), "{sql}");
    }
    // Not synced: known after one, and a sync is one then.
    db.execute_batch("pragma synchronous = normal").unwrap();
    spent(one_page, 1);
    for sql in [one_page, forty] {
        let [flushes, writes, syncs] = spent(sql, 10);
        assert!(flushes <= 1, "{sql}: {flushes}");
        assert_eq!((writes, syncs), (10, 0), "{sql}");
    }
    db.execute_batch("pragma synchronous = full").unwrap();
    assert_eq!(spent(one_page, 1)[1..], [1, 1]);
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
}

#[test]
fn a_commit_with_a_journal_is_one_flush() {
    for way in [Way::Written, Way::Kept] {
        let memory = Memory::new(64 << 20, way);
        let db = memory.open("a.db");
        db.execute_batch("create table t(x integer primary key, y);").unwrap();
        for (mode, sync, most) in ENDS {
            db.execute_batch(&format!("pragma journal_mode = {mode}; pragma synchronous = {sync};")).unwrap();
            db.execute_batch("insert into t(y) values('a row that makes the journal')").unwrap();
            let before = memory.counted(PROGRAM).0;
            let rows = 10;
            (0..rows).for_each(|_| db.execute_batch("insert into t(y) values('a row')").unwrap());
            let flushes = memory.counted(PROGRAM).0 - before;
            // One more where the device's own five seconds fall into it.
            assert!(flushes <= rows * most + 1, "{way:?}, {mode}, {sync}: {flushes} flushes of {rows} commits");
            assert!(flushes >= rows * most, "{way:?}, {mode}, {sync}: {flushes} of {rows} commits: not durable");
        }
    }
}

#[test]
fn a_sync_is_not_put_off_where_no_journal_makes_up_for_it() {
    let memory = Memory::new(64 << 20, Way::Written);
    let db = memory.open("a.db");
    db.execute_batch("create table t(x); attach '' as temporary; create table temporary.t(x);").unwrap();
    for mode in ["off", "memory"] {
        db.execute_batch(&format!("pragma main.locking_mode = exclusive; pragma main.journal_mode = {mode};")).unwrap();
        db.execute_batch("insert into main.t values(0)").unwrap();
        let before = memory.counted(PROGRAM).0;
        (0..10).for_each(|_| db.execute_batch("insert into main.t values(1)").unwrap());
        assert!(memory.counted(PROGRAM).0 - before >= 10, "{mode}");
    }
}

#[test]
fn a_database_of_ten_gibibytes_is_as_small_as_what_is_in_it() {
    let memory = Memory::new(64 << 20, Way::Batch);
    let db = memory.open("a.db");
    db.execute_batch("pragma page_size = 65536; create table t(x integer primary key, y);").unwrap();
    // The file grows in one step, as a hole.
    chunk_size(&db, 1 << 30);
    for part in 1..=10_i64 {
        db.execute("insert into t values(?, zeroblob(100000))", [part]).unwrap();
    }
    let client = memory.client();
    client.set_len("/a.db", 10 << 30).unwrap();
    db.execute("insert into t values(11, zeroblob(100000))", []).unwrap();
    assert!(client.metadata("/a.db").unwrap().len() >= 10 << 30);
    drop(db);
    let db = memory.open("a.db");
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
    assert_eq!(one::<i64>(&db, "select sum(length(y)) from t"), 1_100_000);
    drop(db);
    // All of it in use, as its head says (SQLite's file format, "In-header database size"): what comes next is behind.
    let file = client.open("/a.db", &OpenOptions::new().write(true)).unwrap();
    file.write_all_at(&(10_u32 << 14).to_be_bytes(), 28).unwrap();
    drop(file);
    let db = memory.open("a.db");
    for row in 12..=20_i64 {
        db.execute("insert into t values(?1, printf('%0100000d', ?1))", [row]).unwrap();
    }
    drop(db);
    let db = memory.open("a.db");
    assert!(one::<i64>(&db, "pragma page_count") > 10 << 14);
    assert_eq!(one::<String>(&db, "select substr(y, -2) from t where x = 20"), "20");
    assert_eq!(one::<i64>(&db, "select count(*) from t"), 20);
    let complaint: String = one(&db, "pragma integrity_check(1)");
    assert!(complaint.contains("never used"), "{complaint}");
    let space = client.statfs().unwrap();
    assert!(space.bfree * 2 > space.blocks, "more than half of 64 MiB is free beside it");
}

#[test]
fn a_full_device_is_sqlite_full_wherever_the_journal_ends() {
    let modes = ["delete", "truncate", "persist"];
    let ways = [("full", Way::Written), ("full", Way::Kept), ("off", Way::Kept)];
    for (mode, (sync, way)) in modes.into_iter().flat_map(|mode| ways.map(|way| (mode, way))) {
        let memory = Memory::new(8 << 20, way);
        let db = memory.open("a.db");
        db.execute_batch(&format!("pragma journal_mode = {mode}; pragma synchronous = {sync}; create table t(x, y);"))
            .unwrap();
        let mut rows = 0_i64;
        let failed = loop {
            // Pages of the rows before, too, so that there is something to write to the journal.
            let row = db
                .execute_batch("begin; update t set y = y + 1")
                .and_then(|()| db.execute("insert into t values(randomblob(30000), 0)", []))
                .and_then(|_| db.execute_batch("commit"));
            match row {
                Ok(()) => rows += 1,
                Err(e) => break e.sqlite_error().map_or(0, |e| e.extended_code & 0xff),
            }
            assert!(rows < 1000, "{way:?}, {mode}: the device never fills");
        };
        assert_eq!(failed, ffi::SQLITE_FULL, "{way:?}, {mode}, after {rows} rows");
        let _ = db.execute_batch("rollback");
        let whole = |db: &rusqlite::Connection| {
            assert_eq!(one::<i64>(db, "select count(*) from t"), rows, "{mode}");
            assert_eq!(one::<i64>(db, "select sum(y) from t"), rows * (rows - 1) / 2, "{mode}");
            assert_eq!(one::<String>(db, "pragma integrity_check"), "ok", "{mode}");
        };
        whole(&db);
        drop(db);
        whole(&memory.open("a.db"));
    }
}
