//! Programs in other languages: Python's example of the page, and a C program that registers the VFS by itself.

use crate::rig::{extension, image, said};
use crate::skips::skip;
use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/engines/SQLITE.md");

/// A python3 whose sqlite3 loads extensions; without one it is a skip.
fn python(test: &str) -> Option<&'static str> {
    let able = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    let loads = |python: &&str| Command::new(python).args(["-c", able]).output().is_ok_and(|out| out.status.success());
    let found = ["python3", "/usr/bin/python3"].into_iter().find(loads);
    if found.is_none() {
        skip(test, "no python3 whose sqlite3 loads extensions");
    }
    found
}

#[test]
fn the_example_in_python_works() {
    const NAME: &str = "sqlite: the_example_in_python_works";
    let able = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    let loads = |python: &&str| Command::new(python).args(["-c", able]).output().is_ok_and(|out| out.status.success());
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(loads) else {
        return skip(NAME, "no python3 whose sqlite3 loads extensions");
    };
    let dir = image("64M");
    let example = PAGE.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let example = example.replace("./target/release/libweldfs_sqlite", extension().to_str().unwrap());
    let example = example.replace("disk.img", "d.img");
    let more = "
db.execute('create table t(x)')
with db:
    db.executemany('insert into t values(?)', [(n,) for n in range(10)])
print(db.execute('select sum(x) from t').fetchone()[0])
db.close()
";
    let out = Command::new(python).current_dir(dir.path()).args(["-c", &format!("{example}{more}")]).output().unwrap();
    assert_eq!(said(&out).0, "45", "{}", said(&out).1);
    // Python has no log of SQLite's: the variable says where the cause goes.
    let missing = example.replace("d.img", "missing.img");
    let mut python = Command::new(python);
    let out = python.current_dir(dir.path()).env("WELDFS_SQLITE_LOG", "1").args(["-c", &missing]).output().unwrap();
    assert!(said(&out).1.contains("missing.img: No such file"), "{}", said(&out).1);
    crate::rig::fsck(dir.path());
}

#[test]
fn a_c_program_registers_the_vfs_by_itself() {
    const NAME: &str = "sqlite: a_c_program_registers_the_vfs_by_itself";
    let libraries = ["/usr/lib/x86_64-linux-gnu/libsqlite3.so.0", "/usr/lib64/libsqlite3.so.0"];
    let Some(sqlite) = libraries.into_iter().find(|path| std::path::Path::new(path).exists()) else {
        return skip(NAME, "no libsqlite3.so.0");
    };
    if Command::new("cc").arg("--version").output().is_err() {
        return skip(NAME, "no C compiler");
    }
    let dir = image("64M");
    let source = r#"
int weldfs_sqlite_register(int make_default);
int sqlite3_open(const char *, void **);
int sqlite3_exec(void *, const char *, void *, void *, char **);
int sqlite3_close(void *);
int main(int argc, char **argv) {
    void *db;
    (void)argc;
    if (weldfs_sqlite_register(1) || weldfs_sqlite_register(1)) return 1;
    if (sqlite3_open(argv[1], &db)) return 2;
    if (sqlite3_exec(db, "create table t(x); insert into t values(5);", 0, 0, 0)) return 3;
    return sqlite3_close(db) ? 4 : 0;
}"#;
    std::fs::write(dir.path().join("try.c"), source).unwrap();
    let library = extension().with_extension("so");
    let mut cc = Command::new("cc");
    cc.current_dir(dir.path()).args(["-Wall", "-Werror", "try.c", "-o", "try"]).arg(&library).arg(sqlite);
    let made = cc.arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display())).output().unwrap();
    assert!(made.status.success(), "{}", said(&made).1);
    let out = Command::new("./try").current_dir(dir.path()).arg("d.img:/c.db").output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", said(&out).1);
    let db = crate::rig::connect(&format!("{}:/c.db", dir.path().join("d.img").display())).unwrap();
    assert_eq!(crate::rig::one::<i64>(&db, "select x from t"), 5);
}

#[test]
fn a_forked_child_cannot_use_its_parents_database_and_does_it_no_harm() {
    let Some(python) = python("sqlite: a_forked_child_cannot_use_its_parents_database_and_does_it_no_harm") else {
        return;
    };
    let script = "
import os, sqlite3, sys
first = sqlite3.connect(':memory:')
first.enable_load_extension(True)
first.load_extension(sys.argv[1])
name = f'file:{sys.argv[2]}:/f.db?vfs=weldfs'
db = sqlite3.connect(name, uri=True, isolation_level=None)
db.execute('create table t(x)')
pid = os.fork()
if pid == 0:
    for what in (lambda: db.execute('insert into t values(2)'),
                 lambda: sqlite3.connect(name, uri=True, isolation_level=None).execute('insert into t values(3)')):
        try:
            what()
            print('done')
        except sqlite3.OperationalError as e:
            print(e)
    db.close()
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
db.execute('insert into t values(1)')
print(db.execute('select sum(x) from t').fetchone()[0], db.execute('pragma integrity_check').fetchone()[0])
";
    let dir = image("64M");
    let run = |target: &str, wait: &str| {
        let mut python = Command::new(python);
        python.current_dir(dir.path()).env("WELDFS_WAIT", wait).args(["-c", script]);
        let out = python.arg(extension()).arg(target).output().unwrap();
        said(&out)
    };
    // The image is the parent's.
    let (printed, complaints) = run("d.img", "0.2");
    assert_eq!(printed, "disk I/O error unable to open database file 1 ok", "{complaints}");
    std::fs::remove_file(dir.path().join("d.img")).unwrap();
    let dir = image("64M");
    let served = crate::rig::Served::start(dir.path());
    // A device lets the child in anew.
    let (printed, complaints) = run(served.socket().to_str().unwrap(), "30");
    assert_eq!(printed, "disk I/O error done 4 ok", "{complaints}");
}
