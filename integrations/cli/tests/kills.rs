//! SIGKILL of a real device process, again and again, while four clients append: nothing that was acknowledged as
//! durable is ever lost, and nothing is half there. At least 1,000 durable acknowledgements lie between two kills.
//!
//! `WELDFS_KILLS` scales the number of kills per medium (default 25, so 50 in all).

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weldfs::{Client, Durability, Errno, File, OpenOptions};

/// Payload bytes of each client's records: within a record, around a block, and over several.
const SIZES: [usize; 4] = [100, 1000, 4092, 9000];
/// Durable acknowledgements between two kills, at least.
const BETWEEN: u64 = 1000;
const TRAILER: u64 = weldfs::fused::TRAILER_BYTES;

struct Device {
    image: PathBuf,
    socket: PathBuf,
    child: Child,
}

impl Device {
    fn start(image: &Path) -> Device {
        let socket = image.with_extension("sock");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        serve.arg("serve").arg(image).arg("--socket").arg(&socket);
        let child = serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut device = Device { image: image.to_owned(), socket, child };
        device.connect();
        device
    }

    fn connect(&mut self) -> Client {
        let start = Instant::now();
        loop {
            match Client::connect(&self.socket) {
                Ok(client) => return client.durability(Durability::Durable),
                Err(e) if start.elapsed() > Duration::from_secs(30) => panic!("no device after 30 s: {e}"),
                Err(_) => assert!(self.child.try_wait().unwrap().is_none(), "the device ended"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn kill(mut self) -> PathBuf {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::take(&mut self.image)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fill(client: usize, number: u64, into: &mut [u8]) {
    let mut state = ((client as u64) << 48 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for byte in into {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
}

fn open(client: &Client, number: usize) -> io::Result<File> {
    client.open(format!("/log{number}"), &OpenOptions::new().read(true).write(true).create(true))
}

/// Appends from record `next` on until the device dies; the number of the first record not acknowledged.
fn work(client: &Client, number: usize, mut next: u64, acknowledged: &AtomicU64) -> u64 {
    let file = open(client, number).unwrap();
    let mut data = vec![0; SIZES[number]];
    loop {
        fill(number, next, &mut data);
        match file.append_checksum_write(&data[..]) {
            Ok(_) => {
                next += 1;
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(Errno::IO | Errno::NODEV) => return next,
            Err(e) => panic!("client {number}: {e}"),
        }
    }
}

/// Checks records `from..` of a recovered log against what was acknowledged; the number of records there.
fn check(client: &Client, number: usize, from: u64, acknowledged: u64) -> u64 {
    let record = SIZES[number] as u64 + TRAILER;
    let file = open(client, number).unwrap();
    let size = file.metadata().unwrap().len();
    assert_eq!(size % record, 0, "client {number}: half a record at the end of {size} bytes");
    let whole = size / record;
    assert!(whole >= acknowledged, "client {number}: {acknowledged} acknowledged, {whole} found");
    assert!(whole <= acknowledged + 1, "client {number}: {whole} records, only {acknowledged} + 1 were ever sent");
    let (mut expected, mut found) = (vec![0; SIZES[number]], vec![0; SIZES[number]]);
    for at in from..whole {
        fill(number, at, &mut expected);
        file.read_checksum_verify(at * record, &mut found[..]).unwrap();
        assert!(found == expected, "client {number}: record {at} is not what was written");
    }
    whole
}

fn survive(medium: &str) {
    let kills = std::env::var("WELDFS_KILLS").ok().and_then(|v| v.parse().ok()).unwrap_or(25u64);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut mkfs = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    mkfs.arg("mkfs").arg(&image).args(["--size", "512M", "--medium", medium]).stdout(Stdio::null());
    assert!(mkfs.status().unwrap().success());
    let (mut there, mut total) = ([0u64; SIZES.len()], 0);
    for kill in 0..kills {
        let mut device = Device::start(&image);
        let acknowledged = AtomicU64::new(0);
        let clients: Vec<Client> = SIZES.iter().map(|_| device.connect()).collect();
        let reached: Vec<u64> = std::thread::scope(|scope| {
            let spawn = |(n, c)| {
                let (next, acknowledged) = (there[n], &acknowledged);
                scope.spawn(move || work(c, n, next, acknowledged))
            };
            let handles: Vec<_> = clients.iter().enumerate().map(spawn).collect();
            // A different point of the work each time.
            let enough = BETWEEN + kill * 37 % 500;
            while acknowledged.load(Ordering::Relaxed) < enough {
                std::thread::sleep(Duration::from_micros(200));
            }
            device.kill();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        });
        drop(clients);
        total += acknowledged.into_inner();
        let mut device = Device::start(&image);
        let client = device.connect();
        for (n, &reached) in reached.iter().enumerate() {
            there[n] = check(&client, n, there[n], reached);
        }
        // The next life starts from a second crash, one of a device that only recovered.
        drop(client);
        device.kill();
    }
    println!(
        "{medium}: {kills} kills under load (and as many of an idle device), {total} durable acknowledgements, 0 lost"
    );
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
