//! What cannot be opened, and what only one may have: the engine's own status, with the cause.

use crate::rig::{PATIENCE, Served, all, engine, fsck, image, is_there, other_version, printed, run, start};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A database does not open, and all of this is said about it.
fn refused(open: Command, told: &[&str]) {
    refused_within("0.2", open, told);
}

/// The same, where a device is to answer.
fn refused_within(wait: &str, mut open: Command, told: &[&str]) {
    let output = open.env("WELDFS_WAIT", wait).output().unwrap();
    let said = all(&output);
    assert!(!output.status.success() && told.iter().all(|part| said.contains(part)), "{open:?}: {told:?}: {said}");
}

fn open(dir: &Path, target: &str) -> Command {
    let mut open = engine(dir, "open", target);
    open.arg("/db");
    open
}

/// A process that has a database open, until it is told to end.
struct Holder(Child);

impl Holder {
    fn of(dir: &Path, mut open: Command) -> Holder {
        open.stdin(Stdio::piped());
        let holder = Holder(start(dir, open));
        let begin = Instant::now();
        while !printed(dir, "out").contains("open: ") {
            assert!(begin.elapsed() < PATIENCE, "{}{}", printed(dir, "out"), printed(dir, "err"));
            std::thread::sleep(Duration::from_millis(5));
        }
        holder
    }

    fn close(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_wrong_target_is_the_engines_status() {
    if !is_there("a_wrong_target_is_the_engines_status") {
        return;
    }
    let dir = image("64M", "pmem");
    let at = dir.path();
    std::fs::write(at.join("text"), "no image").unwrap();
    std::fs::create_dir(at.join("folder")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at.join("dead.sock")).unwrap());
    other_version(at);
    for (target, status, cause) in [
        ("missing.img", "No such file or directory", "ENOENT"),
        ("text", "IO error", "EUCLEAN"),
        ("folder", "IO error", "a directory, and no image"),
        ("dead.sock", "IO error", "ECONNREFUSED"),
        ("other.img", "IO error", "version"),
        ("", "Invalid argument", "an image or the socket of a device"),
    ] {
        refused(open(at, target), &[status, cause]);
    }
    // A folder above the database that is not there.
    let mut nowhere = engine(at, "open", "d.img");
    nowhere.arg("/no/such/db");
    refused(nowhere, &["database: IO error", "ENOENT"]);
}

#[test]
fn without_leave_an_image_is_refused_or_only_read() {
    if !is_there("without_leave_an_image_is_refused_or_only_read") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        crate::skips::skip(
            "rocksdb: without_leave_an_image_is_refused_or_only_read",
            "it runs programs as another user",
        );
        return;
    }
    const NOBODY: u32 = 65534;
    let dir = image("64M", "pmem");
    let at = dir.path();
    // A user who may reach the folder and the test program.
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o755)).unwrap();
    run(open(at, "d.img"));
    let mode = |mode| std::fs::set_permissions(at.join("d.img"), std::fs::Permissions::from_mode(mode)).unwrap();
    let mut reachable = open(at, "d.img");
    if reachable.uid(NOBODY).gid(NOBODY).arg("probe").env("WELDFS_WAIT", "0").output().is_err() {
        crate::skips::skip("rocksdb: without_leave_an_image_is_refused_or_only_read", "the build's folder is private");
        return;
    }
    mode(0o600);
    let mut none = open(at, "d.img");
    none.uid(NOBODY).gid(NOBODY);
    refused(none, &["target: IO error", "EACCES"]);
    mode(0o644);
    let mut only_reads = engine(at, "read-only", "d.img");
    only_reads.arg("/db").uid(NOBODY).gid(NOBODY);
    assert!(run(only_reads).contains("open: 2 rows"));
    let mut writes = open(at, "d.img");
    writes.uid(NOBODY).gid(NOBODY);
    refused(writes, &["database: IO error", "EROFS"]);
}

#[test]
fn a_database_is_one_processs_and_an_image_without_a_device_too() {
    if !is_there("a_database_is_one_processs_and_an_image_without_a_device_too") {
        return;
    }
    let dir = image("64M", "pmem");
    let at = dir.path();
    // In the process: the image is locked.
    let holder = Holder::of(at, open(at, "d.img"));
    refused(open(at, "d.img"), &["target: ", "EBUSY", "in use"]);
    holder.close();
    // On a device: the database is; another one on the same device, and readers, are not kept out.
    let served = Served::start(at);
    let holder = Holder::of(at, open(at, "d.img"));
    refused_within("30", open(at, "d.img.sock"), &["database: IO error", "lock held"]);
    let mut other = engine(at, "open", "d.img");
    other.arg("/other");
    run(other);
    let mut reader = engine(at, "read-only", "d.img.sock");
    reader.arg("/db");
    assert!(run(reader).contains("open: 2 rows"));
    holder.close();
    run(open(at, "d.img"));
    // A lock ends with its process, however that ends.
    let mut killed = Holder::of(at, open(at, "d.img"));
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let begin = Instant::now();
    while !open(at, "d.img").output().unwrap().status.success() {
        assert!(begin.elapsed() < PATIENCE, "the lock of a killed process stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(killed);
    drop(served);
    fsck(at);
}
