//! SIGKILL of a real device process in the middle of writes to virtual files: what an fsync has acknowledged is in the
//! real file in full, and what is behind it is what the kernel made of what was written next, whole commits of it.
//!
//! `WELDFS_KILLS` scales the number of kills per medium (default 25).

use crate::kill_rig::{Device, fsck, mkfs};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weldfs::{Client, Direction, Errno, OpenFlags, VirtRange, VirtSpec};

/// Writers, each with a virtual file and a real one of its own: as many as there are slots.
const WRITERS: usize = 3;
/// What a virtual write commits at a time, bytes: docs/VIRTUAL-FILES.md.
const COMMIT: u64 = 1 << 20;
/// Packets that each writer has had acknowledged before a kill, at least.
const BETWEEN: u64 = 3;

/// How far a writer got.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Bytes that the last fsync said are in the real file.
    durable: u64,
    /// Bytes that the kernel makes of all that was written, or begun to be.
    written: u64,
    /// The same of what was written when the fsync came that was under way at the end, if one was.
    syncing: Option<u64>,
}

/// Run `at` of a writer's stream: a count and a value, for the kernel `rle`.
fn run(writer: usize, at: u64) -> [u8; 2] {
    let mixed = (at * WRITERS as u64 + writer as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [(mixed >> 56) as u8, (mixed >> 40) as u8]
}

/// What the kernel makes of a writer's runs, at least `len` bytes.
fn expanded(writer: usize, len: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for at in 0.. {
        if out.len() as u64 >= len {
            break;
        }
        let [count, value] = run(writer, at);
        out.resize(out.len() + usize::from(count), value);
    }
    out
}

fn names(life: u64, writer: usize) -> (String, String) {
    (format!("/virtual{life}-{writer}"), format!("/real{life}-{writer}"))
}

/// Makes a writer's files, durable before it begins.
fn prepare(client: &Client, life: u64, writer: usize) {
    let (name, real) = names(life, writer);
    client.write(&real, b"").unwrap();
    let range = VirtRange { path: real.into_bytes(), offset: 0, length: u64::MAX };
    let direction = Direction::Write { cut: false };
    let spec = VirtSpec { kernel: "rle".into(), params: vec![], direction, ranges: vec![range] };
    client.virt_register(&name, 0o644, &spec).unwrap();
    client.sync().unwrap();
}

/// Writes runs, now and then with an fsync, until the device dies. Says how far it got.
fn work(client: &Client, life: u64, writer: usize, acknowledged: &AtomicU64) -> Progress {
    let mut reached = Progress::default();
    let gone = |e: &std::io::Error| {
        let dead = e.raw_os_error().is_some_and(|e| [Errno::IO.0, Errno::NODEV.0].contains(&e));
        assert!(dead, "writer {writer}: {e}");
    };
    let file = match client.vopen(names(life, writer).0, OpenFlags::WRITE) {
        Ok(file) => file,
        Err(e) => {
            gone(&e);
            return reached;
        }
    };
    let mut at = 0;
    for turn in 1_u64.. {
        // From a few bytes to more than a commit.
        let pairs = [10, 3_000, 15_000, 400][turn as usize % 4] * (1 + turn % 3);
        let bytes: Vec<u8> = (at..at + pairs).flat_map(|at| run(writer, at)).collect();
        at += pairs;
        reached.written += bytes.chunks_exact(2).map(|pair| u64::from(pair[0])).sum::<u64>();
        if let Err(e) = file.vwrite(&bytes) {
            gone(&e);
            return reached;
        }
        if turn % 3 == 0 {
            reached.syncing = Some(reached.written);
            match file.vsync() {
                Ok(in_file) => assert_eq!(in_file, reached.written, "writer {writer}"),
                Err(e) => {
                    gone(&e);
                    return reached;
                }
            }
            (reached.durable, reached.syncing) = (reached.written, None);
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
    reached
}

/// Checks what a writer left.
fn check(client: &Client, life: u64, writer: usize, reached: Progress) {
    let Progress { durable, written, syncing } = reached;
    let (name, real) = names(life, writer);
    let found = client.read(&real).unwrap();
    let len = found.len() as u64;
    let expected = expanded(writer, len);
    assert!(found == expected[..found.len()], "{real}: not what the kernel makes");
    assert!((durable..=written).contains(&len), "{real}: {len} bytes, {durable} acknowledged, {written} written");
    let whole = (len - durable).is_multiple_of(COMMIT) || syncing == Some(len);
    assert!(whole, "{real}: {len} bytes are half a commit behind {durable}: {syncing:?}");
    // It is there, and works, from the beginning of its range.
    let file = client.vopen(&name, OpenFlags::WRITE).unwrap();
    file.vwrite(&run(writer, 0)).unwrap();
    assert_eq!(file.vclose().unwrap(), u64::from(run(writer, 0)[0]));
    let more = client.read(&real).unwrap();
    assert!(more[..found.len().min(more.len())] == found[..], "{real}: the same again");
    for path in [&name, &real] {
        client.remove_file(path).unwrap();
    }
}

/// One life of a device; what the writers left is checked in the next.
fn live(image: &Path, life: u64) -> u64 {
    let mut device = Device::start(image);
    let clients: Vec<Client> = (0..WRITERS).map(|_| device.connect()).collect();
    clients.iter().enumerate().for_each(|(writer, client)| prepare(client, life, writer));
    let acknowledged: [AtomicU64; WRITERS] = Default::default();
    let reached: Vec<Progress> = std::thread::scope(|scope| {
        let spawn = |(writer, client)| {
            let acknowledged = &acknowledged[writer];
            scope.spawn(move || work(client, life, writer, acknowledged))
        };
        let writers: Vec<_> = clients.iter().enumerate().map(spawn).collect();
        while acknowledged.iter().any(|n| n.load(Ordering::Relaxed) < BETWEEN) && !device.is_dead() {
            std::thread::sleep(Duration::from_micros(200));
        }
        // A different point of the work each time.
        std::thread::sleep(Duration::from_micros(life * 1_700 % 12_000));
        device.kill();
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    drop(clients);
    let mut device = Device::start(image);
    let client = device.connect();
    for (writer, reached) in reached.into_iter().enumerate() {
        assert!(reached.durable > 0, "writer {writer} had nothing acknowledged");
        check(&client, life, writer, reached);
    }
    drop(client);
    device.kill();
    acknowledged.into_iter().map(AtomicU64::into_inner).sum()
}

fn survive(medium: &str) {
    let kills = std::env::var("WELDFS_KILLS").ok().and_then(|v| v.parse().ok()).unwrap_or(25u64);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    mkfs(&image, medium, "512M");
    let total: u64 = (0..kills).map(|life| live(&image, life)).sum();
    fsck(&image);
    println!("{medium}: {kills} kills under virtual writes, {total} packets acknowledged, 0 lost");
}

#[test]
fn kills_amid_virtual_writes_on_pmem_leave_what_was_synced_and_whole_commits() {
    survive("pmem");
}

#[test]
fn kills_amid_virtual_writes_on_block_leave_what_was_synced_and_whole_commits() {
    survive("block");
}
