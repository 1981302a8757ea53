//! SIGKILL of a real device process, again and again, while four clients append and replace files: nothing that was
//! acknowledged as durable is ever lost, and nothing is half there. At least 1,000 durable acknowledgements lie between
//! two kills, a quarter of them of appends whose checksums slots compute.
//!
//! `WELDFS_KILLS` scales the number of kills per medium (default 25, so 50 in all).

use crate::kill_rig::{Device, Progress, SIZES, check, check_all, fsck, live, mkfs};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Durable acknowledgements between two kills, at least.
const BETWEEN: u64 = 1000;

fn survive(medium: &str) {
    let kills = std::env::var("WELDFS_KILLS").ok().and_then(|v| v.parse().ok()).unwrap_or(25u64);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    mkfs(&image, medium, "512M");
    let (mut there, mut total) = ([Progress::default(); SIZES.len()], 0);
    for kill in 0..kills {
        let mut device = Device::start(&image);
        // A different point of the work each time.
        let enough = BETWEEN + kill * 37 % 500;
        let (reached, acknowledged) = live(&mut device, &there, |device, acknowledged| {
            while acknowledged.load(Ordering::Relaxed) < enough {
                std::thread::sleep(Duration::from_micros(200));
            }
            let in_slots = device.slot_packets();
            device.kill();
            assert!(in_slots > BETWEEN / 8, "only {in_slots} of {enough} went through a slot");
        });
        total += acknowledged;
        check_all(&image, &mut there, &reached);
    }
    println!(
        "{medium}: {kills} kills under load (and as many of an idle device), {total} durable acknowledgements, 0 lost"
    );
    fsck(&image);
    let mut device = Device::start(&image);
    let client = device.connect();
    for (n, &whole) in there.iter().enumerate() {
        check(&client, n, 0, whole);
    }
}

#[test]
fn kills_of_a_pmem_device_lose_nothing_durable() {
    survive("pmem");
}

#[test]
fn kills_of_a_block_device_lose_nothing_durable() {
    survive("block");
}
