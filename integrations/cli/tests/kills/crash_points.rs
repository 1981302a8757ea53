//! A real device process dies at each named crash point, under four clients at work or while it recovers: nothing that
//! was acknowledged as durable is lost, nothing is half there, and the image is clean.
//!
//! The names are those of the calls of `weldfs_journal::crashpoint`; each must be reached.

use crate::kill_rig::{Device, Progress, SIZES, check_all, fsck, live, mkfs};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Acknowledgements after which the device is asked to unmount, so that the points of a checkpoint are reached: behind
/// the last flush that is named below, of which four clients share one at most.
const ENOUGH: u64 = 4 * 111 + 60;

/// Reached while clients work, or at the unmount that follows; with the passing at which the device dies.
const AT_WORK: [&str; 14] = [
    "before-flush:1",
    "before-flush:40",
    "before-flush:111",
    "after-flush:1",
    "after-flush:40",
    "after-flush:111",
    "micro-begun:5",
    "micro-committed:1",
    "micro-committed:30",
    "checkpoint-cut",
    "before-superblock",
    "between-superblock-copies:1",
    "between-superblock-copies:2",
    "after-superblock",
];
/// Reached by the mount after a kill.
const IN_RECOVERY: [&str; 2] = ["recovery-replayed", "between-superblock-copies:1"];

type All = [Progress; SIZES.len()];

/// One life that ends at `point`; then everything is checked.
fn die_at(image: &Path, point: &str, there: &mut All) -> u64 {
    let (reached, acknowledged) = die(image, point, there);
    check_all(image, there, &reached);
    acknowledged
}

/// One life that ends at `point`: how far the clients got, and the acknowledgements.
fn die(image: &Path, point: &str, there: &All) -> (All, u64) {
    let mut device = Device::spawn(image, Some(point));
    live(&mut device, there, |device, acknowledged| {
        let start = Instant::now();
        while !device.is_dead() && acknowledged.load(Ordering::Relaxed) < ENOUGH {
            assert!(start.elapsed() < Duration::from_secs(120), "{point}: the clients do not get on");
            std::thread::sleep(Duration::from_micros(200));
        }
        device.terminate();
        assert!(device.was_killed(), "{point} was not reached");
    })
}

/// A transaction is cut short, and so is each recovery that finishes it, again and again.
fn die_finishing(image: &Path, there: &mut All) -> u64 {
    let (reached, acknowledged) = die(image, "micro-begun:9", there);
    for point in ["recovery-committed", "recovery-finished-one"] {
        die(image, point, &reached);
    }
    check_all(image, there, &reached);
    acknowledged
}

fn survive(medium: &str) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    mkfs(&image, medium, "64M");
    let (mut there, mut kills, mut total) = ([Progress::default(); SIZES.len()], 0, 0);
    for point in AT_WORK {
        total += die_at(&image, point, &mut there);
        // What `check_all` left was killed too: the next start recovers, and dies of it, twice.
        for _ in 0..2 {
            for inner in IN_RECOVERY {
                total += die_at(&image, inner, &mut there);
                kills += 2;
            }
        }
        kills += 2;
        fsck(&image);
    }
    if medium == "pmem" {
        // There every record that was made survives a kill. On block the open transaction dies with the process.
        for _ in 0..3 {
            total += die_finishing(&image, &mut there);
            kills += 4;
        }
    }
    fsck(&image);
    println!("{medium}: {kills} kills at named points, {total} durable acknowledgements, 0 lost");
    assert!(kills >= 50);
}

#[test]
fn a_death_at_any_named_point_loses_nothing_durable_on_pmem() {
    survive("pmem");
}

#[test]
fn a_death_at_any_named_point_loses_nothing_durable_on_block() {
    survive("block");
}
