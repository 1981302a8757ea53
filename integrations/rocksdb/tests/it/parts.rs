//! Parts of the test program that check by themselves, over images in the process and over a device.

use crate::rig::{Served, engine, fsck, image, is_there, run};
use std::process::Command;

/// The same on each kind of target.
fn everywhere(test: &str, part: &str, size: &str) {
    if !is_there(test) {
        return;
    }
    for (medium, is_served) in [("pmem", false), ("block", false), ("pmem", true)] {
        let dir = image(size, medium);
        let served = is_served.then(|| Served::start(dir.path()));
        let target = served.as_ref().map_or_else(|| "d.img".into(), Served::socket);
        run(engine(dir.path(), part, target.to_str().unwrap()));
        drop(served);
        fsck(dir.path());
    }
}

/// Files, names, reads at once and in flight, locks, and what is durable by which command.
#[test]
fn every_call_of_the_file_system_does_what_it_says() {
    everywhere("every_call_of_the_file_system_does_what_it_says", "files", "128M");
}

/// A checksum that RocksDB hands over and that does not match is Corruption, and nothing is written.
#[test]
fn bytes_that_do_not_match_their_checksum_are_not_written() {
    everywhere("bytes_that_do_not_match_their_checksum_are_not_written", "handoffs", "128M");
}

/// I/O priorities and write-lifetime hints go along with the commands that they are said of, and a database says them.
#[test]
fn priorities_and_lifetimes_reach_the_device() {
    if !is_there("priorities_and_lifetimes_reach_the_device") {
        return;
    }
    let dir = image("256M", "pmem");
    let served = Served::start(dir.path());
    let client = weldfs::Client::connect(served.socket()).unwrap();
    let counted = || {
        let stats = client.stats_json().unwrap();
        ["prioritized", "lives"].map(|name| {
            let from = stats.find(&format!("\"{name}\":")).unwrap() + name.len() + 3;
            let digits: String = stats[from..].chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().unwrap()
        })
    };
    assert_eq!(counted(), [0, 0]);
    run(engine(dir.path(), "hints", served.socket().to_str().unwrap()));
    assert_eq!(counted(), [6, 5]);
    run(engine(dir.path(), "engine", served.socket().to_str().unwrap()));
    let [prioritized, lives] = counted();
    assert!(prioritized > 20 && lives > 20, "compactions, logs and tables: {prioritized}, {lives}");
}

/// Commits counted, compaction, MultiGet, iterators with reads in flight, checkpoint, backup, restore, reopening.
#[test]
fn a_database_is_used() {
    everywhere("a_database_is_used", "engine", "256M");
}

/// By name and from code, with options that are taken or refused.
#[test]
fn a_file_system_is_made_by_name_and_from_code() {
    if !is_there("a_file_system_is_made_by_name_and_from_code") {
        return;
    }
    let dir = image("64M", "block");
    run(engine(dir.path(), "options", "d.img"));
    fsck(dir.path());
}

/// Wrong reads and writes, uses of memory that was given back, and leaks.
#[test]
fn valgrind_has_nothing_to_say() {
    let test = "valgrind_has_nothing_to_say";
    if !is_there(test) {
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        crate::skips::skip(&format!("rocksdb: {test}"), "valgrind is not installed");
        return;
    }
    let dir = image("128M", "pmem");
    let part = engine(dir.path(), "files", "d.img");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    valgrind.arg(concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/../../testing/valgrind.supp"));
    valgrind.args(["--fair-sched=yes"]).arg(part.get_program()).args(part.get_args()).current_dir(dir.path());
    run(valgrind);
    fsck(dir.path());
}

/// No space is the engine's own status; what was acknowledged stays, and there is room again when something goes.
#[test]
fn a_full_image_is_no_space_and_loses_nothing() {
    if !is_there("a_full_image_is_no_space_and_loses_nothing") {
        return;
    }
    for (medium, is_served) in [("pmem", false), ("block", true)] {
        let dir = image("64M", medium);
        let served = is_served.then(|| Served::start(dir.path()));
        let mut ballast = engine(dir.path(), "ballast", "d.img");
        ballast.arg("12000000");
        run(ballast);
        let said = run(engine(dir.path(), "fill", "d.img"));
        assert!(said.contains("No space") || said.contains("no space"), "{said}");
        drop(served);
        fsck(dir.path());
    }
}
