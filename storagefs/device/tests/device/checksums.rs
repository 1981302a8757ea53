//! checksum_range: what the device sums up is what a reader would read, of one moment up to 8 MiB, and writers do not
//! wait for the summing up.

use std::sync::Arc;
use std::time::Duration;

use weldfs::{ChecksumKind, Client, Command, Errno, File, Handle, Op, OpenOptions, Summed};
use weldfs_ciscops::limits::SNAPSHOT_MAX;
use weldfs_device::{DeviceConfig, Profile};
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_media::ImageKind;
use weldfs_store::mount::{MkfsOptions, format};

const CRC: ChecksumKind = ChecksumKind::Crc32c;

fn device(speed: f64) -> Client {
    let profile = Profile::parse(&format!("[core]\nspeed = {speed}")).unwrap();
    let policy = "cfs".parse().unwrap();
    let config = DeviceConfig { policy, profile, ..DeviceConfig::default() };
    Client::with(Arc::new(Embedded::open(&Source::Ram(96 << 20), config).unwrap())).unwrap()
}

fn open(client: &Client, path: &str) -> File {
    client.open(path, &OpenOptions::new().read(true).write(true).create(true)).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn summed(bytes: &[u8]) -> Summed {
    Summed { len: bytes.len() as u64, checksum: crc32c(bytes).into() }
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = weldfs_ciscops::ChecksumState::new();
    sum.update(bytes);
    sum.value()
}

#[test]
fn it_is_the_checksum_of_the_bytes_that_a_reader_gets() {
    let client = device(1.0);
    let file = open(&client, "/f");
    let data = pattern(SNAPSHOT_MAX as usize * 2 + 12_345);
    for (at, part) in data.chunks(1 << 20).enumerate() {
        file.write_all_at(part, (at as u64) << 20).unwrap();
    }
    let snapshot = SNAPSHOT_MAX as usize;
    for (from, to) in [
        (0, 0),
        (0, 1),
        (4095, 4097),
        (1000, 70_000),
        (65_536, 131_072),
        (3, snapshot + 3),
        (0, snapshot),
        (0, snapshot + 1),
        (777, 2 * snapshot),
        (0, data.len()),
    ] {
        let got = file.checksum(from as u64..to as u64, CRC).unwrap();
        assert_eq!(got, summed(&data[from..to]), "{from}..{to}");
    }
    assert_eq!(file.checksum(..=9, CRC).unwrap(), summed(&data[..10]));
    assert_eq!(file.checksum(100.., CRC).unwrap(), summed(&data[100..]));
}

#[test]
fn holes_are_zeros_and_the_end_of_the_file_cuts_it_short() {
    let client = device(1.0);
    let file = open(&client, "/sparse");
    file.write_all_at(b"front", 10).unwrap();
    file.write_all_at(b"back", 9_000_000).unwrap();
    let mut want = vec![0; 9_000_004];
    want[10..15].copy_from_slice(b"front");
    want[9_000_000..].copy_from_slice(b"back");
    assert_eq!(file.checksum(.., CRC).unwrap(), summed(&want));
    assert_eq!(file.checksum(8_999_998..10_000_000, CRC).unwrap(), summed(b"\0\0back"));
    assert_eq!(file.checksum(20_000_000..30_000_000, CRC).unwrap(), Summed { len: 0, checksum: 0 });
}

#[test]
fn hostile_ranges_and_handles_get_their_errno_and_no_memory() {
    let client = device(1.0);
    let file = open(&client, "/f");
    file.write_all_at(b"0123456789", 0).unwrap();
    let end = i64::MAX as u64;
    let raw = client.raw();
    assert_eq!(raw.checksum_range(file.handle(), 0, end, CRC).unwrap(), summed(b"0123456789"));
    assert_eq!(raw.checksum_range(file.handle(), end, 0, CRC).unwrap().len, 0);
    assert_eq!(raw.checksum_range(file.handle(), 1, end, CRC).err(), Some(Errno::FBIG));
    assert_eq!(raw.checksum_range(file.handle(), 0, u64::MAX, CRC).err(), Some(Errno::FBIG));
    assert_eq!(raw.checksum_range(file.handle(), end + 1, 0, CRC).err(), Some(Errno::INVAL));
    assert_eq!(file.checksum(std::ops::Range { start: 9, end: 3 }, CRC).err(), Some(Errno::INVAL));
    assert_eq!(raw.checksum_range(Handle::ROOT, 0, 1, CRC).err(), Some(Errno::ISDIR));
    let blind = client.open("/f", &OpenOptions::new().write(true)).unwrap();
    assert_eq!(blind.checksum(.., CRC).err(), Some(Errno::BADF));
    let gone = blind.handle();
    drop(blind);
    assert_eq!(raw.checksum_range(gone, 0, 1, CRC).err(), Some(Errno::BADF));
}

#[test]
fn a_writer_waits_for_the_snapshot_only_and_does_not_show_in_it() {
    let client = device(0.005);
    let file = open(&client, "/f");
    let data = pattern(SNAPSHOT_MAX as usize);
    for (at, part) in data.chunks(1 << 20).enumerate() {
        file.write_all_at(part, (at as u64) << 20).unwrap();
    }
    let mut queue = client.queue(8, 4096).unwrap();
    let h = file.handle();
    // Both are there before the device looks: the write has its place behind the snapshot.
    let src = queue.stage(b"changed").unwrap();
    let sum = Op::ChecksumRange { h, kind: CRC, offset: 0, len: SNAPSHOT_MAX };
    let sum = queue.submit(&Command::new(0, sum)).unwrap();
    let write = queue.submit(&Command::new(0, Op::Write { h, at: weldfs::At::Offset(0), src })).unwrap();
    queue.flush();
    assert_eq!(queue.wait(write).unwrap().status, 0);
    assert!(queue.poll(sum).unwrap().is_none(), "the writer has waited for the summing up");
    let done = queue.wait(sum).unwrap();
    assert_eq!((done.status, done.result2), (0, u64::from(crc32c(&data))), "the snapshot is of before the write");
    assert_ne!(file.checksum(.., CRC).unwrap(), summed(&data));
}

#[test]
fn snapshots_of_scattered_blocks_end_although_they_take_all_memory_together() {
    const BLOCK: usize = 4096;
    const AT_ONCE: u64 = 32;
    // They begin so far from each other: none reads what another has just read.
    const APART: u64 = 256 << 10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let medium = weldfs_media::create(&path, ImageKind::Block, 96 << 20, false).unwrap();
    format(&medium, &MkfsOptions::default(), &SystemClock, &SystemRandom).unwrap();
    // Children of other tests have the image's lock, too, until their exec.
    medium.let_go();
    drop(medium);
    // What snapshots take is all that there is: the cache is as small as it can be.
    let config = DeviceConfig { memory_bytes: AT_ONCE * SNAPSHOT_MAX, ..DeviceConfig::default() };
    let open_device = || Arc::new(Embedded::open(&Source::Image(path.clone()), config.clone()).unwrap());
    let data = Arc::new(pattern((SNAPSHOT_MAX + AT_ONCE * APART) as usize));
    {
        let client = Client::with(open_device()).unwrap();
        let (file, between) = (open(&client, "/f"), open(&client, "/between"));
        // Neighbours in the file are none on the medium, so each block is a read of its own.
        for (at, block) in data.chunks(BLOCK).enumerate() {
            let at = (at * BLOCK) as u64;
            file.write_all_at(block, at).unwrap();
            between.write_all_at(&block[..1], at).unwrap();
        }
        file.sync_all().unwrap();
    }
    let (done, ends) = std::sync::mpsc::channel();
    let device = open_device();
    std::thread::spawn(move || {
        let client = Client::with(device).unwrap();
        let file = open(&client, "/f");
        let mut queue = client.queue(64, 4096).unwrap();
        let (h, len) = (file.handle(), SNAPSHOT_MAX);
        let sum = |n| Op::ChecksumRange { h, kind: CRC, offset: n * APART, len };
        let tickets: Vec<_> = (0..AT_ONCE).map(|n| queue.submit(&Command::new(0, sum(n))).unwrap()).collect();
        queue.flush();
        for ticket in tickets {
            done.send(queue.wait(ticket).unwrap().ok()).unwrap();
        }
    });
    for n in 0..AT_ONCE {
        let sum = ends.recv_timeout(Duration::from_secs(120)).expect("they push each other's blocks out for ever");
        let range = &data[(n * APART) as usize..][..SNAPSHOT_MAX as usize];
        assert_eq!(sum, Ok((SNAPSHOT_MAX, crc32c(range).into())), "{n}");
    }
}
