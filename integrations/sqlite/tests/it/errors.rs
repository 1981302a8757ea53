//! What goes wrong, in SQLite's own codes, with the cause in its log; and nothing is lost by it.

use crate::rig::{
    Served, connect, extension, feed, image, one, other_version, run, said, shell, shell_is_there, start,
};
use rusqlite::ffi;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// The extended code of what fails.
fn code<T>(done: rusqlite::Result<T>) -> i32 {
    match done {
        Err(rusqlite::Error::SqliteFailure(e, _)) => e.extended_code,
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("it went well"),
    }
}

/// What the shell complains of when it opens a name.
fn complaint(dir: &Path, name: &str) -> String {
    let out = start(dir, &format!(".open file:{name}?vfs=weldfs\nselect * from sqlite_schema;\n")).wait_with_output();
    said(&out.unwrap()).1
}

#[test]
fn a_wrong_target_is_named() {
    if !shell_is_there("a_wrong_target_is_named") {
        return;
    }
    let dir = image("64M");
    let at = dir.path();
    std::fs::write(at.join("text"), "no image").unwrap();
    std::fs::create_dir(at.join("folder")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at.join("dead.sock")).unwrap());
    for (name, cause) in [
        ("missing.img:/a.db", "missing.img: No such file"),
        ("text:/a.db", "text: "),
        ("folder:/a.db", "a directory, and no image"),
        ("dead.sock:/a.db", "Connection refused"),
        ("a.db", "WELDFS_SQLITE_TARGET"),
        ("d.img:/", "the path in the device is missing"),
        ("d.img:/no/such/folder/a.db", "No such file"),
    ] {
        let said = complaint(at, name);
        assert!(said.contains("unable to open database") && said.contains("weldfs: "), "{name}: {said}");
        assert!(said.contains(cause), "{name}: {said}");
    }
    // An image of another version of the format is refused, not guessed at.
    other_version(at);
    let said = complaint(at, "other.img:/a.db");
    assert!(said.contains("unable to open database") && said.contains("other.img: "), "{said}");
}

#[test]
fn an_image_in_use_is_refused_with_the_user_named() {
    if !shell_is_there("an_image_in_use_is_refused_with_the_user_named") {
        return;
    }
    let dir = image("64M");
    let db = connect(&format!("{}:/a.db", dir.path().join("d.img").display())).unwrap();
    db.execute_batch("create table t(x); insert into t values(1);").unwrap();
    let mut other = shell(dir.path());
    other.env("WELDFS_WAIT", "0.2");
    let other = feed(other, ".open file:d.img:/a.db?vfs=weldfs\nselect * from t;\n");
    let (_, complaints) = said(&other.wait_with_output().unwrap());
    assert!(complaints.contains("unable to open") && complaints.contains("in use"), "{complaints}");
    drop(db);
    assert_eq!(run(dir.path(), ".open file:d.img:/a.db?vfs=weldfs\nselect * from t;"), "1");
}

#[test]
fn without_permission_it_is_read_only_or_cannot_be_opened() {
    if !shell_is_there("without_permission_it_is_read_only_or_cannot_be_opened") {
        return;
    }
    const NAME: &str = "sqlite: without_permission_it_is_read_only_or_cannot_be_opened";
    if !rustix::process::geteuid().is_root() {
        return super::skips::skip(NAME, "only root can be another user");
    }
    let dir = image("64M");
    let at = dir.path();
    run(at, ".open file:d.img:/a.db?vfs=weldfs\ncreate table t(x); insert into t values(1);");
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o755)).unwrap();
    // The build may be where others may not look.
    std::fs::copy(extension().with_extension("so"), at.join("libweldfs_sqlite.so")).unwrap();
    let as_stranger = |script: &str| {
        let mut shell = std::process::Command::new("sqlite3");
        shell.current_dir(at).args(["-batch", "-init", "/dev/null", "-cmd", ".log stderr"]);
        shell.args(["-cmd", ".load ./libweldfs_sqlite"]).uid(65534).gid(65534).env("WELDFS_WAIT", "1");
        let script = format!(".open file:d.img:/a.db?vfs=weldfs\n{script}\n");
        said(&feed(shell, &script).wait_with_output().unwrap())
    };
    std::fs::set_permissions(at.join("d.img"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let (printed, complaints) = as_stranger("select x from t; insert into t values(2);");
    assert!(printed == "1" && complaints.contains("readonly"), "{printed} {complaints}");
    std::fs::set_permissions(at.join("d.img"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let (_, complaints) = as_stranger("select x from t;");
    assert!(complaints.contains("unable to open") && complaints.contains("ermission denied"), "{complaints}");
}

#[test]
fn a_full_image_is_sqlite_full_and_nothing_is_lost() {
    let dir = image("16M");
    let db = connect(&format!("{}:/a.db", dir.path().join("d.img").display())).unwrap();
    for mode in ["delete", "wal"] {
        db.execute_batch(&format!("pragma journal_mode = {mode}; drop table if exists t; create table t(x);")).unwrap();
        let mut rows = 0;
        let failed = loop {
            match db.execute("insert into t values(randomblob(100000))", []) {
                Ok(_) => rows += 1,
                Err(e) => break code::<()>(Err(e)),
            }
            assert!(rows < 1000, "the image never fills");
        };
        assert_eq!(failed, ffi::SQLITE_FULL, "{mode}, after {rows} rows");
        assert_eq!(one::<i64>(&db, "select count(*) from t"), rows);
        assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
    }
    drop(db);
    let db = connect(&format!("{}:/a.db", dir.path().join("d.img").display())).unwrap();
    assert_eq!(one::<String>(&db, "pragma integrity_check"), "ok");
}

#[test]
fn a_device_that_dies_is_an_io_error() {
    let dir = image("64M");
    let served = Served::start(dir.path());
    let name = format!("{}:/a.db", served.socket().display());
    let db = connect(&name).unwrap();
    db.execute_batch("create table t(x); insert into t values(1); begin; insert into t values(2);").unwrap();
    served.kill();
    let failed = code(db.execute_batch("commit"));
    assert_eq!(failed & 0xff, ffi::SQLITE_IOERR, "{failed}");
    drop(db);
    assert_eq!(code(connect(&name).map(drop)) & 0xff, ffi::SQLITE_CANTOPEN);
    let served = Served::start(dir.path());
    let db = connect(&name).unwrap();
    assert_eq!(one::<i64>(&db, "select sum(x) from t"), 1);
    // Also where what fails is that the journal is opened, and whether the device died or its end was asked for.
    db.execute_batch("pragma journal_mode = delete; begin immediate").unwrap();
    served.kill();
    let failed = code(db.execute_batch("insert into t values(3); commit"));
    assert_eq!(failed & 0xff, ffi::SQLITE_IOERR, "{failed}");
    drop(db);
    let served = Served::start(dir.path());
    let db = connect(&name).unwrap();
    db.execute_batch("begin immediate").unwrap();
    drop(served);
    let failed = code(db.execute_batch("insert into t values(3); commit"));
    assert_eq!(failed & 0xff, ffi::SQLITE_IOERR, "{failed}");
}

/// SQLite reads a name that a journal has in it into room for a page, which may have 512 bytes.
#[test]
fn no_name_is_longer_than_the_smallest_page() {
    let dir = image("64M");
    let target = dir.path().join("d.img");
    let named = |bytes: usize| {
        let path = "/d".repeat((bytes - target.as_os_str().len() - 1) / 2);
        format!("{}:{path}", target.display())
    };
    let refused = |bytes| code(connect(&named(bytes)).and_then(|db| db.execute_batch("create table t(x)")));
    assert_eq!(refused(520), ffi::SQLITE_CANTOPEN_FULLPATH);
    // Short enough, and not there.
    assert_eq!(refused(480), ffi::SQLITE_CANTOPEN);
}
