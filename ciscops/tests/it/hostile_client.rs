//! A client that writes anything anywhere in its region, at any time, gets errnos and faults; the device side never
//! panics, and never acts on a string that it has not checked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use weldfs_ciscops::*;

/// xorshift64*: fast, seeded, good enough for mutations.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

const LIMITS: SessionLimits = SessionLimits { pool_bytes: 1 << 20 };

/// What the decoder promises of every command it lets through.
fn believed(cmd: &Command) {
    let sqe = cmd.encode();
    let again = validate(&RawCommand(sqe), &LIMITS);
    assert_eq!(again.as_ref(), Ok(cmd));
}

#[test]
fn a_million_random_entries_are_decoded_or_refused() {
    let mut rng = Rng(1);
    for _ in 0..1_000_000 {
        let mut words: [u64; 8] = core::array::from_fn(|_| rng.next());
        words[0] = words[0] & !0xffff | rng.below(80);
        if let Ok(cmd) = validate(&RawCommand(Sqe::from_words(words)), &LIMITS) {
            believed(&cmd);
        }
    }
}

#[test]
fn a_million_entries_with_one_field_mutated_are_decoded_or_refused() {
    let mut rng = Rng(2);
    let h = Handle { index: 5, generation: 2 };
    let (path, src, out) = (PoolRange::new(0, 9), PoolRange::new(4096, 100), PoolRange::new(8192, 100));
    let rw = OpenFlags::READ | OpenFlags::WRITE;
    let at = At::Offset(77);
    let base = Handle::ROOT;
    let seeds = [
        Op::open(base, path, rw | OpenFlags::CREATE, 0o644),
        Op::Write { h, at, src },
        Op::Fallocate { h, mode: FallocMode::Zero, off: 1, len: 2 },
        Op::Rename { from_base: h, from: path, to_base: h, to: path, flags: RenameFlags::empty() },
        Op::SetXattr { base, path, nofollow: true, name: path, value: src, flags: XattrFlags::CREATE },
        Op::OpenReadWriteClose { base, path, flags: rw, mode: 0o600, read_off: 0, out, at: At::End, src },
        Op::ReadChecksumVerify { h, kind: ChecksumKind::Crc32c, offset: 3, len: 100, out },
        Op::ChecksumRange { h, kind: ChecksumKind::Crc32c, offset: 3, len: 100 },
        Op::ReadModifyWrite { h, offset: 0, len: 100, modify: Modify::CompareSwap { expect: src, new: src }, out },
    ]
    .map(|op| Command::new(1, op).encode());
    let edges = [0, 1, 4095, 4096, 1 << 20, (1 << 20) + 1, i64::MAX as u64, 1 << 63, u64::MAX, u32::MAX as u64];
    let (mut taken, mut refused) = (0u32, 0u32);
    for _ in 0..1_000_000 {
        let mut words = seeds[rng.below(seeds.len() as u64) as usize].to_words();
        let value = if rng.below(2) == 0 { rng.next() } else { edges[rng.below(10) as usize] };
        let (word, width) = (rng.below(8) as usize, [8, 16, 32, 64][rng.below(4) as usize]);
        let shift = rng.below(64 / width) * width;
        let mask = (u64::MAX >> (64 - width)) << shift;
        words[word] = words[word] & !mask | (value << shift) & mask;
        match validate(&RawCommand(Sqe::from_words(words)), &LIMITS) {
            Ok(cmd) => {
                believed(&cmd);
                taken += 1;
            }
            Err(e) => {
                assert!(e.0 > 0);
                refused += 1;
            }
        }
    }
    assert!(taken > 100_000 && refused > 100_000, "both sides are exercised: {taken} {refused}");
}

#[test]
fn bytes_flipping_under_the_device_reach_nothing_unchecked() {
    let layout = QueueLayout::new(16, 1 << 20).unwrap();
    let (fd, device) = QueueMemory::create(&layout).unwrap();
    let region = SharedRegion::map(&fd, layout.total_bytes as usize).unwrap();
    let client = QueueMemory::new(region.clone(), &layout).unwrap();
    let stop = AtomicBool::new(false);
    let (mut strings, mut faults) = (0u32, 0u32);
    thread::scope(|s| {
        s.spawn(|| {
            let mut rng = Rng(3);
            let rings = (layout.sq_off as u64, 16 * 64);
            while !stop.load(Ordering::Relaxed) {
                let (start, len) = match rng.below(8) {
                    0 => (128 * rng.below(8), 4),
                    1..4 => rings,
                    _ => (layout.pool_off as u64, 64),
                };
                let byte = [b'/', 0, b'a', rng.next() as u8][rng.below(4) as usize];
                region.bytes((start + rng.below(len)) as usize, 1).unwrap().copy_from(&[byte]);
                if rng.below(1000) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut tx = SqProducer::new(client);
        let mut rx = SqConsumer::new(device.clone());
        let pool = device.pool(&layout).unwrap();
        let path = PoolRange::new(0, 8);
        pool.slice(path).unwrap().copy_from(b"aaaaaaaa");
        let start = std::time::Instant::now();
        for n in 0u64.. {
            // On a busy machine the other side must come to its turn, however long that takes.
            if strings > 10_000 && faults > 10 || n % 256 == 0 && start.elapsed().as_secs() > 120 {
                break;
            }
            if n % 256 == 0 {
                thread::yield_now();
            }
            let sqe = Command::new(n, Op::Unlink { base: Handle::ROOT, path }).encode();
            if tx.push(&sqe).is_ok() {
                tx.publish();
            }
            match rx.poll() {
                // A lying index ends the session; a new one starts where the ring is.
                Err(fault) => {
                    assert_eq!(Errno::from(fault), Errno::PROTO);
                    faults += 1;
                    tx = SqProducer::new(tx.memory().clone());
                    rx = SqConsumer::new(device.clone());
                }
                Ok(waiting) => assert!(waiting <= 16),
            }
            while let Some(raw) = rx.take() {
                let Ok(cmd) = validate(&raw, &LIMITS) else { continue };
                let Ok(paths) = Paths::fetch(&cmd, &pool) else { continue };
                assert!(!paths.a.contains(&0) && paths.a.len() < limits::PATH_MAX);
                strings += 1;
            }
            rx.release();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(strings > 10_000 && faults > 10, "both happened: {strings} strings, {faults} faults");
}
