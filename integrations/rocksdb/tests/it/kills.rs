//! SIGKILL of the engine's process and of the device: every acknowledged synced write is there.

use crate::rig::{PATIENCE, Served, all, end, engine, fsck, image, is_there, last_number, printed, run, start};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often each kind of target is killed.
fn kills() -> usize {
    std::env::var("WELDFS_ROCKSDB_KILLS").map_or(10, |n| n.parse().expect("a number"))
}

/// The last row that the writer acknowledged.
fn acknowledged(dir: &Path) -> u32 {
    last_number(&printed(dir, "out"))
}

fn wait_for(dir: &Path, rows: usize) {
    let start = Instant::now();
    while (acknowledged(dir) as usize) < rows {
        assert!(start.elapsed() < PATIENCE, "nothing is committed: {}", printed(dir, "err"));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn verify(dir: &Path) {
    let mut verify = engine(dir, "verify", "d.img");
    verify.arg(acknowledged(dir).to_string());
    run(verify);
}

#[test]
fn a_killed_process_loses_no_synced_write() {
    if !is_there("a_killed_process_loses_no_synced_write") {
        return;
    }
    for (medium, is_served) in [("pmem", false), ("block", false), ("block", true)] {
        for round in 0..kills() {
            let dir = image("128M", medium);
            let served = is_served.then(|| Served::start(dir.path()));
            let mut writer = start(dir.path(), engine(dir.path(), "write", "d.img"));
            wait_for(dir.path(), 5 + 37 * round);
            writer.kill().unwrap();
            writer.wait().unwrap();
            verify(dir.path());
            drop(served);
            fsck(dir.path());
        }
    }
}

/// Without a sync a write survives the process, on every target.
#[test]
fn an_unsynced_write_survives_the_process() {
    if !is_there("an_unsynced_write_survives_the_process") {
        return;
    }
    for (medium, is_served) in [("pmem", false), ("block", true), ("block", false)] {
        for round in 0..kills() {
            let dir = image("128M", medium);
            let served = is_served.then(|| Served::start(dir.path()));
            let mut write = engine(dir.path(), "write", "d.img");
            write.arg("unsynced");
            let mut writer = start(dir.path(), write);
            wait_for(dir.path(), 2000 + 977 * round);
            writer.kill().unwrap();
            writer.wait().unwrap();
            verify(dir.path());
            drop(served);
            fsck(dir.path());
        }
    }
}

/// The sync of a temporary file is put off, but not beyond the moment at which something reads the file.
#[test]
fn a_synced_temporary_file_that_was_read_survives_the_device() {
    if !is_there("a_synced_temporary_file_that_was_read_survives_the_device") {
        return;
    }
    for state in ["closed", "open"] {
        // On a disk: what is not durable dies with a device of its own.
        let dir = image("64M", "block");
        let served = Served::start(dir.path());
        let looked = engine(dir.path(), "look", "d.img").arg(state).output().unwrap();
        assert_eq!(looked.status.signal(), Some(9), "{}", all(&looked));
        served.kill();
        run(engine(dir.path(), "looked", "d.img"));
        fsck(dir.path());
    }
}

/// A commit that the device dies in is the engine's I/O error, and so is the next; a new process finds all of the rest.
#[test]
fn a_killed_device_is_an_error_and_loses_no_synced_write() {
    if !is_there("a_killed_device_is_an_error_and_loses_no_synced_write") {
        return;
    }
    for medium in ["pmem", "block"] {
        for round in 0..kills() {
            let dir = image("128M", medium);
            let served = Served::start(dir.path());
            let mut writer = start(dir.path(), engine(dir.path(), "write", "d.img"));
            wait_for(dir.path(), 5 + 37 * round);
            served.kill();
            let code = end(&mut writer, "a writer whose device is gone");
            let said = printed(dir.path(), "err");
            assert_eq!(code, Some(3), "{said}");
            assert!(said.contains("IO error"), "{said}");
            verify(dir.path());
            fsck(dir.path());
        }
    }
}

/// Batches, removals, flushes, compactions and reopening, with checksums handed over; killed again and again, the same
/// database goes on.
#[test]
fn random_operations_leave_what_was_expected_however_often_they_are_killed() {
    if !is_there("random_operations_leave_what_was_expected_however_often_they_are_killed") {
        return;
    }
    for (medium, is_served) in [("pmem", false), ("block", true), ("pmem", true)] {
        let dir = image("256M", medium);
        for round in 0..=kills() {
            let last = round == kills();
            let served = is_served.then(|| Served::start(dir.path()));
            let mut random = engine(dir.path(), "random", "d.img");
            random.args(["state", &(round + 1).to_string(), if last { "300" } else { "1000000000" }]);
            if last {
                run(random);
                break;
            }
            let mut child = start(dir.path(), random);
            let begin = Instant::now();
            while !printed(dir.path(), "out").contains("verified") {
                let over = child.try_wait().unwrap();
                assert!(over.is_none(), "round {round}: {over:?} {}", printed(dir.path(), "err"));
                assert!(begin.elapsed() < PATIENCE, "nothing is verified");
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(Duration::from_millis(50 + 131 * round as u64 % 700));
            assert!(child.try_wait().unwrap().is_none(), "round {round}: {}", printed(dir.path(), "err"));
            // The process, or the device below it.
            match served {
                Some(served) if round % 2 == 0 => {
                    served.kill();
                    // A call that is not answered ends it.
                    assert!(end(&mut child, "a process whose device is gone").is_some_and(|code| code != 0));
                }
                _ => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                }
            }
        }
        fsck(dir.path());
    }
}
