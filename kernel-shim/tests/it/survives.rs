//! What an embedded device leaves when its process is killed: on every image, all that completed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use weldfs::{Client, Durability, OpenOptions};
use weldfs_device::DeviceConfig;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_media::ImageKind;
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::mount::{MkfsOptions, format};

const IMAGE: &str = "WELDFS_TEST_KILLED_IMAGE";
const WRITERS: usize = 3;
/// One write in so many is durable.
const DURABLE_ONE_IN: u32 = 7;

/// What a writer appends as its `n`-th record: short ones, that go into the log whole, and sometimes several blocks.
fn record(writer: usize, n: u32) -> Vec<u8> {
    let len = if n % 11 == 10 { 20_000 } else { 8 + (n as usize * 37) % 900 };
    let mut bytes = vec![(writer as u8).wrapping_add(n as u8); len];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    bytes
}

fn open(image: &Path) -> Client {
    let embedded = Embedded::open(&Source::Image(image.to_owned()), DeviceConfig::default()).unwrap();
    Client::with(Arc::new(embedded)).unwrap()
}

#[test]
#[ignore = "not a test: a part that the test below starts as a process of its own"]
fn a_process_with_a_device_in_it() {
    let Ok(image) = std::env::var(IMAGE) else { return };
    let client = open(Path::new(&image));
    std::thread::scope(|s| {
        for writer in 0..WRITERS {
            let client = client.clone();
            s.spawn(move || {
                let options = OpenOptions::new().read(true).write(true).create(true);
                let file = client.open(format!("/{writer}"), &options).unwrap();
                for n in 0.. {
                    let durable = n % DURABLE_ONE_IN == 0 && writer > 0;
                    let how = if durable { Durability::Durable } else { Durability::Volatile };
                    file.append_with(&record(writer, n)[..], how).unwrap();
                    println!("\nacked {writer} {n}");
                }
            });
        }
    });
}

/// Runs the part until `enough` records were acknowledged, kills it, and says how many of each writer were.
fn killed_after(image: &Path, enough: u32) -> [u32; WRITERS] {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "survives::a_process_with_a_device_in_it", "--nocapture", "--ignored"])
        .env(IMAGE, image)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (mut acked, mut all, mut killed) = ([0; WRITERS], 0, false);
    // To its end: what was acknowledged before the signal came is in the pipe.
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        if let (Some("acked"), Some(writer), Some(n), None) = (words.next(), words.next(), words.next(), words.next()) {
            let (writer, n): (usize, u32) = (writer.parse().unwrap(), n.parse().unwrap());
            (acked[writer], all) = (n + 1, all + 1);
        }
        if all >= enough && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    assert!(killed && !child.wait().unwrap().success(), "it ended by itself after {all} records");
    acked
}

fn what_completed_survives(kind: ImageKind) {
    for (round, enough) in [40, 300, 900].into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let image: PathBuf = dir.path().join("image");
        let medium = weldfs_media::create(&image, kind, 64 << 20, false).unwrap();
        // A log of some laps.
        let geometry = GeometryOptions { log_len: Some(2 << 20), ..GeometryOptions::default() };
        let options = MkfsOptions { geometry, ..MkfsOptions::default() };
        format(&medium, &options, &SystemClock, &SystemRandom).unwrap();
        drop(medium);
        let acked = killed_after(&image, enough);
        let client = open(&image);
        for (writer, acked) in acked.into_iter().enumerate().filter(|(_, acked)| *acked > 0) {
            let found = client.read(format!("/{writer}")).unwrap();
            let (mut at, mut n) = (0, 0);
            while at < found.len() {
                let due = record(writer, n);
                assert!(found[at..].starts_with(&due), "round {round}, writer {writer}: record {n} is not what it was");
                (at, n) = (at + due.len(), n + 1);
            }
            assert!(n >= acked, "round {round}, writer {writer}: {acked} were acknowledged, {n} are there");
        }
        drop(client);
    }
}

#[test]
fn what_completed_survives_the_process_on_block() {
    what_completed_survives(ImageKind::Block);
}

#[test]
fn what_completed_survives_the_process_on_pmem() {
    what_completed_survives(ImageKind::Pmem);
}
