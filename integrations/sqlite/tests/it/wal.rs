//! The write-ahead log with several processes, and the shared file that they agree on.

use crate::rig::{Served, connect, feed, image, one, run, said, shell_is_there, start};

/// Shared files of databases in a device.
fn shared_files(client: &weldfs::Client) -> usize {
    // A file's name has the file system's UUID in it; other tests have other images.
    let uuid: String = client.info().unwrap().uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let names = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(&uuid)).count()
}

fn is_folded(row: &str) -> bool {
    let numbers: Vec<i64> = row.split('|').filter_map(|number| number.parse().ok()).collect();
    matches!(numbers[..], [0, log, folded] if log > 0 && log == folded)
}

#[test]
fn three_processes_write_read_and_checkpoint() {
    if !shell_is_there("three_processes_write_read_and_checkpoint") {
        return;
    }
    let dir = image("128M");
    let _served = Served::start(dir.path());
    let open = ".open file:d.img.sock:/a.db?vfs=weldfs\n.timeout 60000\n";
    run(dir.path(), &format!("{open}pragma journal_mode = wal; create table t(a, b); insert into t values(0, 0);"));
    let write =
        format!("{open}{}", "begin immediate; update t set a = a + 1; update t set b = b + 1; commit;\n".repeat(100));
    let look = format!("{open}{}", "select case when a = b then '' else 'torn' end from t;\n".repeat(200));
    let fold = format!("{open}.mode list\n{}", "pragma wal_checkpoint(restart);\n".repeat(300));
    let all = [&write, &write, &look, &fold].map(|script| start(dir.path(), script));
    let mut folded = 0;
    for child in all {
        let out = child.wait_with_output().unwrap();
        let (printed, complaints) = said(&out);
        assert!(out.status.success() && !printed.contains("torn") && !complaints.contains("rror"), "{complaints}");
        // Not busy, so many frames in the log, as many of them in the database.
        folded += printed.split(' ').filter(|row| is_folded(row)).count();
    }
    assert!(folded > 0, "no checkpoint had anything to do");
    assert_eq!(run(dir.path(), &format!("{open}select a, b from t; pragma integrity_check;")), "200|200 ok");
}

#[test]
fn the_shared_file_is_one_for_all_and_goes_with_the_last() {
    let dir = image("64M");
    let served = Served::start(dir.path());
    let client = weldfs::Client::connect(served.socket()).unwrap();
    let name = format!("{}:/a.db", served.socket().display());
    let first = connect(&name).unwrap();
    first.execute_batch("pragma journal_mode = wal; create table t(x); insert into t values(1);").unwrap();
    let second = connect(&name).unwrap();
    assert_eq!(one::<i64>(&second, "select x from t"), 1);
    assert_eq!(shared_files(&client), 1, "one for both");
    second.execute_batch("insert into t values(2)").unwrap();
    assert_eq!(one::<i64>(&first, "select count(*) from t"), 2);
    // A reader keeps its snapshot.
    first.execute_batch("begin; select * from t").unwrap();
    let seen = || one::<i64>(&first, "select count(*) from t");
    assert_eq!(seen(), 2);
    second.execute_batch("insert into t values(3)").unwrap();
    assert_eq!(seen(), 2);
    first.execute_batch("commit").unwrap();
    assert_eq!(seen(), 3);
    drop(first);
    assert_eq!(shared_files(&client), 1);
    drop(second);
    assert_eq!(shared_files(&client), 0, "the last one removes it");
    assert!(!client.exists("/a.db-wal").unwrap() && !client.exists("/a.db-shm").unwrap());
}

#[test]
fn who_cannot_see_the_shared_file_is_refused() {
    if !shell_is_there("who_cannot_see_the_shared_file_is_refused") {
        return;
    }
    let dir = image("64M");
    let served = Served::start(dir.path());
    let db = connect(&format!("{}:/a.db", served.socket().display())).unwrap();
    db.execute_batch("pragma journal_mode = wal; create table t(x); insert into t values(1);").unwrap();
    let mut other = crate::rig::shell(dir.path());
    other.env("WELDFS_SQLITE_SHM", dir.path());
    let other = feed(other, ".open file:d.img.sock:/a.db?vfs=weldfs\nselect * from t;\n");
    let (printed, complaints) = said(&other.wait_with_output().unwrap());
    assert!(printed.is_empty() && complaints.contains("a file that is not there for this one"), "{complaints}");
    assert_eq!(one::<i64>(&db, "select x from t"), 1);
}

#[test]
fn an_index_of_before_a_device_died_is_not_used_after() {
    let dir = image("64M");
    let served = Served::start(dir.path());
    let name = format!("{}:/a.db", served.socket().display());
    let old = connect(&name).unwrap();
    old.execute_batch("pragma journal_mode = wal; pragma synchronous = normal; create table t(x);").unwrap();
    old.execute_batch("pragma wal_checkpoint(truncate)").unwrap();
    // Volatile: in the index, and perhaps not in the log after the device died.
    for x in 0..50 {
        old.execute("insert into t values(?)", [x]).unwrap();
    }
    served.kill();
    assert!(old.execute("insert into t values(99)", []).is_err());
    let served = Served::start(dir.path());
    let new = connect(&name).unwrap();
    assert_eq!(one::<String>(&new, "pragma integrity_check"), "ok");
    let there: i64 = one(&new, "select count(*) from t");
    assert!((0..=50).contains(&there));
    new.execute_batch("insert into t values(100)").unwrap();
    // The old connection still has its memory, and can do no harm with it.
    assert!(old.query_row("select count(*) from t", [], |row| row.get::<_, i64>(0)).is_err());
    assert!(old.execute("insert into t values(99)", []).is_err());
    let client = weldfs::Client::connect(served.socket()).unwrap();
    assert_eq!(shared_files(&client), 2);
    drop(old);
    assert_eq!(shared_files(&client), 1);
    assert_eq!(one::<i64>(&new, "select count(*) from t"), there + 1);
    assert_eq!(one::<String>(&new, "pragma integrity_check"), "ok");
}

#[test]
fn copies_of_an_image_do_not_meet_in_shared_memory() {
    let (dir, other) = (image("64M"), tempfile::tempdir().unwrap());
    let made = connect(&format!("{}:/a.db", dir.path().join("d.img").display())).unwrap();
    made.execute_batch("pragma journal_mode = wal; create table t(x); insert into t values(1);").unwrap();
    drop(made);
    std::fs::copy(dir.path().join("d.img"), other.path().join("d.img")).unwrap();
    let (served, copy) = (Served::start(dir.path()), Served::start(other.path()));
    let open = |served: &Served| connect(&format!("{}:/a.db", served.socket().display())).unwrap();
    let first = open(&served);
    first.execute_batch("insert into t values(2)").unwrap();
    let copied = open(&copy);
    copied.execute_batch("insert into t values(30)").unwrap();
    // Who comes later finds each its own.
    assert_eq!(one::<i64>(&open(&served), "select sum(x) from t"), 3);
    assert_eq!(one::<i64>(&open(&copy), "select sum(x) from t"), 31);
}

#[test]
fn what_is_rolled_back_never_comes_over_what_another_commits() {
    let dir = image("128M");
    let served = Served::start(dir.path());
    let name = format!("{}:/a.db", served.socket().display());
    let connections = [connect(&name).unwrap(), connect(&name).unwrap()];
    for (i, db) in connections.iter().enumerate() {
        // Few pages, so that transactions write frames long before they end, and are rolled back with some held back.
        db.execute_batch("pragma journal_mode = wal; pragma cache_size = 5; pragma wal_autocheckpoint = 0;").unwrap();
        db.execute_batch(["pragma synchronous = full", "pragma synchronous = normal"][i]).unwrap();
    }
    let fill = |rows: i64| {
        format!(
            "insert into t select ?1, randomblob(2000) from
             (with recursive s(i) as (select 1 union all select i + 1 from s where i < {rows}) select i from s)"
        )
    };
    connections[0].execute_batch("create table t(x, y);").unwrap();
    let mut committed = 0;
    for round in 0..40_i64 {
        let (one_of, other) = (&connections[(round % 2) as usize], &connections[(1 - round % 2) as usize]);
        let rows = [1, 3, 20, 400][(round / 2 % 4) as usize];
        one_of.execute_batch("begin immediate").unwrap();
        one_of.execute(&fill(rows), [-round - 1]).unwrap();
        if round % 3 == 0 {
            // It reads back what it has written to the log.
            let seen: i64 = one_of.query_row("select sum(length(y)) from t where x < 0", [], |row| row.get(0)).unwrap();
            assert_eq!(seen, rows * 2000);
        }
        if round % 4 == 1 {
            let back = "savepoint s; update t set y = zeroblob(10) where x >= 0; rollback to s;";
            one_of.execute_batch(back).unwrap();
        }
        one_of.execute_batch("rollback").unwrap();
        other.execute(&fill(1 + round % 5), [round]).unwrap();
        committed += 1 + round % 5;
        for db in &connections {
            assert_eq!(one::<i64>(db, "select count(*) from t"), committed, "round {round}");
            assert_eq!(one::<i64>(db, "select count(*) from t where x < 0 or length(y) < 2000"), 0);
        }
    }
    for db in &connections {
        assert_eq!(one::<String>(db, "pragma integrity_check"), "ok");
    }
    // Alone with it, where no lock says who writes, and with others again.
    let [first, second] = connections;
    drop(second);
    first.execute_batch("pragma locking_mode = exclusive; begin immediate").unwrap();
    first.execute(&fill(100), [-1]).unwrap();
    first.execute_batch("rollback; pragma locking_mode = normal;").unwrap();
    assert_eq!(one::<i64>(&first, "select count(*) from t"), committed);
    let second = connect(&name).unwrap();
    second.execute(&fill(7), [1000]).unwrap();
    assert_eq!(one::<i64>(&first, "select count(*) from t"), committed + 7);
    // A device that dies leaves the log, which is recovered from: no more and no less.
    served.kill();
    drop((first, second));
    let _served = Served::start(dir.path());
    let new = connect(&name).unwrap();
    assert_eq!(one::<i64>(&new, "select count(*) from t"), committed + 7);
    assert_eq!(one::<i64>(&new, "select count(*) from t where x < 0 or length(y) < 2000"), 0);
    assert_eq!(one::<String>(&new, "pragma integrity_check"), "ok");
}

/// Commits are there for what recovers from the log alone, whatever size their pages have.
#[test]
fn commits_of_pages_of_any_size_are_recovered() {
    let dir = image("256M");
    let served = Served::start(dir.path());
    let name = |file: &str| format!("{}:/{file}", served.socket().display());
    let client = weldfs::Client::connect(served.socket()).unwrap();
    for page in [512, 1024, 4096, 65536] {
        let db = connect(&name(&format!("{page}.db"))).unwrap();
        db.execute_batch(&format!("pragma page_size = {page}; pragma journal_mode = wal;")).unwrap();
        db.execute_batch("pragma wal_autocheckpoint = 0; create table t(x, y);").unwrap();
        for x in 0..200_i64 {
            db.execute("insert into t values(?, randomblob(100 + ?1 % 7 * 1000))", [x]).unwrap();
        }
        // As after a crash: the log as it is, without its index.
        for part in ["db", "db-wal"] {
            let bytes = client.read(format!("/{page}.{part}")).unwrap();
            client.write(format!("/copy-{page}.{part}"), &bytes[..]).unwrap();
        }
        let copy = connect(&name(&format!("copy-{page}.db"))).unwrap();
        for db in [&copy, &db] {
            assert_eq!(one::<i64>(db, "select count(*) from t"), 200, "{page}");
            assert_eq!(one::<String>(db, "pragma integrity_check"), "ok");
        }
    }
}

/// Without room for what is held back, a read of it fails, and the transaction is whole or not at all.
#[test]
fn a_full_image_amid_a_transaction_leaves_no_hole_in_the_log() {
    let dir = image("64M");
    let name = format!("{}:/a.db", dir.path().join("d.img").display());
    let db = connect(&name).unwrap();
    db.execute_batch("pragma journal_mode = wal; pragma cache_size = 5; pragma wal_autocheckpoint = 0;").unwrap();
    db.execute_batch("create table t(x integer primary key, y); create table ballast(z);").unwrap();
    let fill = "insert into t(y) select randomblob(3000) from
                (with recursive s(i) as (select 1 union all select i + 1 from s where i < ?) select i from s)";
    let mut committed = 0;
    // Nearly full, in ever smaller steps.
    for rows in [2000, 500, 100, 20, 4] {
        while db.execute(fill, [rows]).is_ok() {
            committed += rows;
        }
        assert!(committed > 0);
    }
    let mut failed = 0;
    for round in 0..30_i64 {
        db.execute_batch("begin").unwrap();
        let mut all = 0;
        for rows in [1 + round, 30, 2] {
            let inserted = db.execute(fill, [rows]).is_ok();
            // Reads what the transaction has written, which has to be sent for that.
            let read = db.query_row("select sum(length(y)) from t", [], |row| row.get::<_, i64>(0));
            failed += i64::from(!inserted || read.is_err());
            all += if inserted { rows } else { 0 };
            if db.is_autocommit() {
                break;
            }
        }
        match db.is_autocommit() {
            false if db.execute_batch("commit").is_ok() => committed += all,
            false => db.execute_batch("rollback").unwrap_or(()),
            true => {}
        }
        let seen: i64 = one(&db, "select count(*) from t");
        assert_eq!(seen, committed, "round {round}");
    }
    assert!(failed > 0, "there was room for everything");
    let broken = "select count(*) from t where length(y) <> 3000";
    assert_eq!((one::<i64>(&db, broken), one::<String>(&db, "pragma integrity_check")), (0, "ok".into()));
}

/// One whose commits are synced by themselves checkpoints what another has committed without a sync.
#[test]
fn a_checkpoint_syncs_what_another_connection_has_not() {
    let dir = image("64M");
    let served = Served::start(dir.path());
    let name = format!("{}:/a.db", served.socket().display());
    let [full, normal] = ["full", "normal"].map(|how| {
        let db = connect(&name).unwrap();
        let set = format!("pragma journal_mode = wal; pragma wal_autocheckpoint = 0; pragma synchronous = {how}");
        db.execute_batch(&set).unwrap();
        db
    });
    full.execute_batch("create table t(x)").unwrap();
    for x in 0..6 {
        full.execute("insert into t values(?)", [x]).unwrap();
    }
    // A reader of an old state: the checkpoint ends before the last commit, so it syncs the log and not the database.
    let reader = connect(&name).unwrap();
    reader.execute_batch("begin; select count(*) from t").unwrap();
    let client = weldfs::Client::connect(served.socket()).unwrap();
    let syncs = || {
        let stats: serde_json::Value = serde_json::from_str(&client.stats_json().unwrap()).unwrap();
        stats["total"]["commands_by_opcode"]["fdatasync"].as_u64().unwrap()
    };
    normal.execute("insert into t values(100)", []).unwrap();
    let before = syncs();
    full.execute_batch("pragma wal_checkpoint(passive)").unwrap();
    assert!(syncs() > before, "of the log, at least");
    reader.execute_batch("commit").unwrap();
    assert_eq!(one::<String>(&normal, "pragma integrity_check"), "ok");
}

/// A name of an image leads to what has it now: journals too, if another image had it before and is still open.
#[test]
fn an_image_that_got_the_name_of_another_one_has_its_own_journals() {
    let dir = image("64M");
    let at = |name: &str| dir.path().join(name);
    std::fs::rename(at("d.img"), at("one.img")).unwrap();
    std::fs::copy(at("one.img"), at("two.img")).unwrap();
    let open = |image: &str| connect(&format!("{}:/a.db", at(image).display())).unwrap();
    let (first, second) = (open("one.img"), open("two.img"));
    first.execute_batch("create table t(x); insert into t values(1)").unwrap();
    second.execute_batch("create table t(x); insert into t values(2)").unwrap();
    std::fs::rename(at("one.img"), at("old.img")).unwrap();
    std::fs::rename(at("two.img"), at("one.img")).unwrap();
    let again = open("one.img");
    let there = |device: &weldfs::Client| device.exists("/a.db-journal").unwrap();
    // More than is one transaction of the device: it has a journal, which stays.
    let many = "insert into t select zeroblob(3000) from
                (with recursive s(i) as (select 1 union all select i + 1 from s where i < 3000) select i from s)";
    again.execute_batch(&format!("pragma journal_mode = persist; {many}; update t set x = randomblob(3000)")).unwrap();
    assert_eq!(one::<i64>(&again, "select count(*) from t"), 3001);
    assert_eq!(one::<String>(&again, "pragma integrity_check"), "ok");
    drop((first, second, again));
    let devices = ["old.img", "one.img"].map(|image| {
        let config = weldfs_device::DeviceConfig::default();
        let embedded =
            weldfs_kernel_shim::Embedded::open(&weldfs_kernel_shim::Source::Image(at(image)), config).unwrap();
        weldfs::Client::with(std::sync::Arc::new(embedded)).unwrap()
    });
    assert_eq!([there(&devices[0]), there(&devices[1])], [false, true]);
}
