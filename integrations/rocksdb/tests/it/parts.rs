//! Parts of the test program that check by themselves, over images in the process and over a device.

use crate::rig::{Served, engine, fsck, image, is_there, run};

/// The same on each kind of target.
fn everywhere(test: &str, part: &str, size: &str) {
    if !is_there(test) {
        return;
    }
    for (medium, is_served) in [("pmem", false), ("block", false), ("pmem", true)] {
        let dir = image(size, medium);
        let served = is_served.then(|| Served::start(dir.path()));
        run(engine(dir.path(), part, if is_served { "d.img.sock" } else { "d.img" }));
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

/// Commits counted, compaction, MultiGet, iterators with reads in flight, checkpoint, backup, restore, reopening.
#[test]
fn a_database_is_used() {
    everywhere("a_database_is_used", "engine", "256M");
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
