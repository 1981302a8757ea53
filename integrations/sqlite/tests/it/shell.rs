//! The system's shell with the loadable extension, over an image and over a served device.

use crate::rig::{Served, image, run, said, shell_is_there, start};
use std::path::Path;

const ALL: &str = "
create table t(x integer primary key, y);
insert into t select value, hex(randomblob(50)) from generate_series(1, 1000);
select count(*) from t;
begin; delete from t where x > 10; rollback;
select count(*) from t;
begin; savepoint a; delete from t where x <= 500; rollback to a; delete from t where x > 900; commit;
select count(*), sum(x) from t;
create index i on t(y);
pragma journal_mode = truncate; insert into t values(2001, 1);
pragma journal_mode = persist; insert into t values(2002, 1);
pragma journal_mode = memory; insert into t values(2003, 1);
pragma journal_mode = delete; insert into t values(2004, 1);
create temp table u as select * from t; select count(*) from u;
delete from t where x > 100; vacuum; select count(*) from t;
pragma integrity_check;
pragma locking_mode = exclusive; insert into t values(3001, 1);
pragma journal_mode = wal; insert into t values(3002, 1);
pragma locking_mode = normal; insert into t values(3003, 1);
pragma wal_checkpoint(truncate);
pragma journal_mode = delete;
select count(*) from t;
";
const ANSWERS: &str =
    "1000 1000 900|405450 truncate persist memory delete 904 100 ok exclusive wal exclusive 0|0|0 delete 103";

fn everything(dir: &Path, name: &str) {
    assert_eq!(run(dir, &format!(".open file:{name}?vfs=weldfs\n{ALL}")), ANSWERS);
    assert_eq!(
        run(dir, &format!(".open file:{name}?vfs=weldfs\nselect count(*) from t; pragma integrity_check;")),
        "103 ok"
    );
    // What is left is the database alone.
    let out = crate::rig::weldfs().args(["ls", "d.img:/"]).current_dir(dir).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "a.db");
}

#[test]
fn the_shell_does_everything_over_an_image() {
    if shell_is_there("the_shell_does_everything_over_an_image") {
        let dir = image("64M");
        everything(dir.path(), "d.img:/a.db");
        crate::rig::fsck(dir.path());
    }
}

#[test]
fn the_shell_does_everything_over_a_device() {
    if shell_is_there("the_shell_does_everything_over_a_device") {
        let dir = image("64M");
        let _served = Served::start(dir.path());
        everything(dir.path(), "d.img.sock:/a.db");
        // The image's name leads to its device.
        assert_eq!(run(dir.path(), ".open file:d.img:/a.db?vfs=weldfs\nselect count(*) from t;"), "103");
    }
}

#[test]
fn a_transaction_over_two_databases_is_one() {
    if !shell_is_there("a_transaction_over_two_databases_is_one") {
        return;
    }
    let dir = image("64M");
    let script = "
.open file:d.img:/a.db?vfs=weldfs
attach 'file:d.img:/b.db?vfs=weldfs' as b;
attach 'file:host.db?vfs=unix' as host;
create table t(x); create table b.t(x); create table host.t(x);
begin; insert into t values(1); insert into b.t values(1); insert into host.t values(1); commit;
begin; insert into t values(2); insert into b.t values(2); insert into host.t values(2); rollback;
select (select sum(x) from main.t), (select sum(x) from b.t), (select sum(x) from host.t);";
    assert_eq!(run(dir.path(), script), "1|1|1");
    let again = "
.open file:d.img:/b.db?vfs=weldfs
select count(*) from t; pragma integrity_check;";
    assert_eq!(run(dir.path(), again), "1 ok");
}

#[test]
fn two_writers_and_their_readers_keep_to_their_locks() {
    if !shell_is_there("two_writers_and_their_readers_keep_to_their_locks") {
        return;
    }
    let dir = image("64M");
    let served = Served::start(dir.path());
    let open = ".timeout 60000\n.open file:d.img.sock:/a.db?vfs=weldfs\n.timeout 60000\n";
    run(dir.path(), &format!("{open}create table t(a, b); insert into t values(0, 0);"));
    let write =
        format!("{open}{}", "begin immediate; update t set a = a + 1; update t set b = b + 1; commit;\n".repeat(60));
    let look = format!("{open}{}", "select case when a = b then '' else 'torn' end from t;\n".repeat(150));
    let both = [&write, &write, &look].map(|script| start(dir.path(), script));
    for child in both {
        let out = child.wait_with_output().unwrap();
        let (printed, complaints) = said(&out);
        assert!(out.status.success() && printed.is_empty(), "{printed} {complaints}");
    }
    assert_eq!(run(dir.path(), &format!("{open}select a, b from t; pragma integrity_check;")), "120|120 ok");
    drop(served);
}

#[test]
fn a_database_is_one_by_whatever_link_it_is_opened() {
    if !shell_is_there("a_database_is_one_by_whatever_link_it_is_opened") {
        return;
    }
    let dir = image("64M");
    let script = "open x; mkdir /dir; symlink dir/real.db /link.db; symlink /dir /other";
    let done = crate::rig::weldfs()
        .args(["exec", "d.img", script.trim_start_matches("open x; ")])
        .current_dir(dir.path())
        .output();
    assert!(done.unwrap().status.success());
    run(dir.path(), ".open file:d.img:/link.db?vfs=weldfs\ncreate table t(x); insert into t values(7);");
    for name in ["/dir/real.db", "/other/real.db", "/other/../link.db", "//dir/./real.db"] {
        let script = format!(".open file:d.img:{name}?vfs=weldfs\nselect x from t; pragma database_list;");
        let said = run(dir.path(), &script);
        assert!(said.starts_with("7 0|main|") && said.ends_with("d.img:/dir/real.db"), "{name}: {said}");
    }
}

#[test]
fn connections_of_one_process_exclude_each_other() {
    for (mode, file) in [("delete", "a.db"), ("wal", "b.db")] {
        let dir = image("64M");
        let name = format!("{}:/{file}", dir.path().join("d.img").display());
        let first = crate::rig::connect(&name).unwrap();
        let made = format!("pragma journal_mode = {mode}; create table t(a, b); insert into t values(0, 0);");
        first.execute_batch(&made).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let db = crate::rig::connect(&name).unwrap();
                    for _ in 0..25 {
                        let step = "begin immediate; update t set a = a + 1; update t set b = b + 1; commit;";
                        db.execute_batch(step).unwrap();
                        assert_eq!(crate::rig::one::<i64>(&db, "select a - b from t"), 0, "half a commit");
                    }
                });
            }
        });
        assert_eq!(crate::rig::one::<i64>(&first, "select a from t"), 100, "{mode}");
        assert_eq!(crate::rig::one::<String>(&first, "pragma integrity_check"), "ok");
    }
}
