//! Posted commands: whoever is told that one was published finds it done, on whichever ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weldfs::{At, AttachOptions, Client, Command, Connector, Errno, Handle, Lease, Op, OpenFlags, PoolRange, Raw};
use weldfs::{SetAttrBody, SetAttrMask, Wishes};
use weldfs_ciscops::interp::LEASED;
use weldfs_ciscops::ring::word;
use weldfs_ciscops::{CqConsumer, QueueMemory, SharedRegion, SqProducer, limits};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

const CREATE: OpenFlags = OpenFlags::WRITE.union(OpenFlags::READ).union(OpenFlags::CREATE);
/// Bytes of one piece of a file.
const PIECE: usize = 64;

fn config(at_once: bool) -> DeviceConfig {
    DeviceConfig { inline: Some(false), at_once, ..DeviceConfig::default() }
}

fn device(config: DeviceConfig, bytes: u64) -> Embedded {
    Embedded::open(&Source::Ram(bytes), config).unwrap()
}

fn client(device: &Embedded) -> Client {
    Client::with(Arc::new(device.clone())).unwrap()
}

fn open(raw: Raw<'_>, name: &[u8], flags: OpenFlags) -> (Handle, Option<Arc<Lease>>) {
    let brought = raw.open_with(Handle::ROOT, name, (flags, 0o644), Wishes { lease: true, look: false }).unwrap();
    (brought.opened.handle, brought.lease)
}

/// A piece that says which one it is.
fn piece(n: u64) -> [u8; PIECE] {
    let mut bytes = [n as u8; PIECE];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

/// What one observer does to find out how many pieces there are at least.
type Look = fn(Raw<'_>, Handle) -> u64;

const LOOKS: [Look; 5] = [
    |raw, h| raw.stat(h).unwrap().size / PIECE as u64,
    |raw, _| raw.statat(Handle::ROOT, b"f", false).unwrap().size / PIECE as u64,
    // The first piece is written over each time.
    |raw, h| first(&raw_read(raw, h)),
    |raw, _| {
        let mut room = [0; PIECE];
        raw.open_read_close(Handle::ROOT, b"f", OpenFlags::READ, 0, &mut room).unwrap();
        first(&room)
    },
    // Each piece gives the file to another user, too.
    |raw, h| u64::from(raw.stat(h).unwrap().uid),
];

fn raw_read(raw: Raw<'_>, h: Handle) -> [u8; PIECE] {
    let mut room = [0; PIECE];
    assert_eq!(raw.read(h, At::Offset(0), &mut room[..]).unwrap(), PIECE);
    room
}

fn first(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Posts pieces, tells how many there are, and has others look. How many commands waited for a ring.
fn tell_and_look(config: DeviceConfig, pieces: u64) -> u64 {
    let device = device(config, 128 << 20);
    let writer = client(&device);
    let (told, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (h, lease) = open(writer.raw(), b"f", CREATE);
    let lease = lease.expect("a lease");
    assert_eq!(writer.raw().write(h, At::Offset(0), &piece(0)[..]).unwrap().len, PIECE);
    let looked: Vec<_> = LOOKS
        .iter()
        .map(|look| {
            let (device, told, over) = (device.clone(), told.clone(), over.clone());
            std::thread::spawn(move || {
                let observer = client(&device);
                let (h, _) = open(observer.raw(), b"f", OpenFlags::READ);
                let mut looks = 0u64;
                while !over.load(Ordering::Acquire) || looks == 0 {
                    let known = told.load(Ordering::Acquire);
                    let seen = look(observer.raw(), h);
                    assert!(seen >= known, "told of {known} pieces, and found {seen}");
                    looks += 1;
                }
                looks
            })
        })
        .collect();
    for n in 1..=pieces {
        let raw = writer.raw();
        let owner = SetAttrBody { mask: SetAttrMask::UID.bits(), uid: n as u32, ..SetAttrBody::default() };
        assert_eq!(raw.post_write(&lease, h, At::Offset(n * PIECE as u64), &piece(n)[..]), Ok(true));
        assert_eq!(raw.post_write(&lease, h, At::Offset(0), &piece(n)[..]), Ok(true));
        assert_eq!(raw.post_attr(&lease, h, &owner), Ok(true));
        told.store(n, Ordering::Release);
    }
    over.store(true, Ordering::Release);
    for thread in looked {
        assert!(thread.join().unwrap() > 0);
    }
    writer.settle().unwrap();
    lease.take_error().unwrap();
    let total = device.device().stats().total;
    assert!(total.posted >= 3 * pieces, "{} posted", total.posted);
    device.close().unwrap();
    total.lease_waits
}

#[test]
fn whoever_is_told_of_a_posted_change_finds_it() {
    for at_once in [true, false] {
        // Whether any had to wait is a matter of moments: seldom in vain, and never ten times.
        let waited = (0..10).any(|_| tell_and_look(config(at_once), 3_000) > 0);
        assert!(waited, "no command ever waited for what was posted (at once: {at_once})");
    }
}

/// What a client had posted when it went is done, as what it had been answered is.
#[test]
fn what_was_posted_is_done_though_its_client_is_gone() {
    let device = device(config(true), 64 << 20);
    for n in 0..50u64 {
        let name = format!("f{n}");
        let writer = client(&device);
        let (h, lease) = open(writer.raw(), name.as_bytes(), CREATE);
        let lease = lease.expect("a lease");
        for k in 0..20 {
            assert_eq!(writer.raw().post_write(&lease, h, At::Offset(k * PIECE as u64), &piece(k)[..]), Ok(true));
        }
        assert_eq!(writer.raw().post_close(&lease, h), Ok(true));
        drop((writer, lease));
        let observer = client(&device);
        let stat = observer.raw().statat(Handle::ROOT, name.as_bytes(), false).unwrap();
        assert_eq!(stat.size, 20 * PIECE as u64);
    }
    device.close().unwrap();
}

/// The same of one that is killed: none of its answers is taken, and nothing is waited for on its side.
#[test]
fn what_was_posted_is_done_though_its_client_is_killed() {
    for at_once in [true, false] {
        let device = device(config(at_once), 64 << 20);
        for n in 1..30u64 {
            let (mut hand, h) = Hand::new(&device);
            let before = client(&device).raw().statat(Handle::ROOT, b"f", false).unwrap().size;
            let posts = n % u64::from(DEPTH - 2) + 1;
            (0..posts).for_each(|_| hand.push(Hand::write(h), true));
            hand.sq.publish();
            if n % 2 == 0 {
                hand.publish();
            }
            drop(hand);
            let size = client(&device).raw().statat(Handle::ROOT, b"f", false).unwrap().size;
            assert_eq!(size - before, posts * 512, "at once: {at_once}, {posts} posted");
        }
        device.close().unwrap();
    }
}

/// Leases: one for each file, none for what is durable before its answer, and none on devices where no command can be
/// posted.
#[test]
fn a_lease_is_granted_where_its_file_has_none() {
    let several = device(DeviceConfig { cores: 2, ..config(true) }, 64 << 20);
    assert!(open(client(&several).raw(), b"f", CREATE).1.is_none(), "several cores");
    several.close().unwrap();
    let device = device(config(true), 64 << 20);
    let (one, other) = (client(&device), client(&device));
    let (h, lease) = open(one.raw(), b"f", CREATE);
    let lease = lease.expect("a lease");
    assert!(open(other.raw(), b"f", CREATE).1.is_none(), "another ring has it");
    assert!(open(one.raw(), b"f", CREATE).1.is_none(), "this one has it by another handle");
    for durable in [OpenFlags::SYNC, OpenFlags::DSYNC] {
        assert!(open(one.raw(), b"s", CREATE | durable).1.is_none());
    }
    assert!(open(one.raw(), b"s", OpenFlags::READ).1.is_none(), "it cannot write");
    // Another thread has a ring of its own, on which nothing is posted under this lease.
    let there = std::thread::scope(|s| {
        let write = || one.raw().post_write(&lease, h, At::Offset(0), &piece(1)[..]);
        s.spawn(write).join().unwrap()
    });
    assert_eq!(there, Ok(false));
    one.raw().close(h).unwrap();
    let (h, lease) = open(other.raw(), b"f", CREATE);
    assert!(lease.is_some(), "it ended with the handle");
    assert_eq!(one.raw().post_write(&lease.clone().unwrap(), h, At::Offset(0), b"x"), Ok(false), "another client's");
    drop(other);
    let until = Instant::now() + Duration::from_secs(10);
    while open(one.raw(), b"f", CREATE).1.is_none() {
        assert!(Instant::now() < until, "it did not end with its session");
    }
    device.close().unwrap();
}

/// A posted change that fails says so at the next call that asks, once.
#[test]
fn the_errno_of_a_posted_change_is_kept_for_the_next_call() {
    let device = device(config(true), 64 << 20);
    let client = client(&device);
    let (h, lease) = open(client.raw(), b"f", CREATE);
    let lease = lease.expect("a lease");
    // Beyond what a file can be.
    let far = At::Offset(i64::MAX as u64 - 10);
    assert_eq!(client.raw().post_write(&lease, h, far, &piece(1)[..]), Ok(true));
    client.settle().unwrap();
    assert_eq!(client.raw().post_write(&lease, h, At::Offset(0), b"x"), Err(Errno::FBIG));
    assert_eq!(client.raw().post_write(&lease, h, At::Offset(0), b"x"), Ok(true));
    assert_eq!(client.raw().fsync(h), Err(Errno::FBIG), "the description knows it, whoever asks");
    client.raw().fsync(h).unwrap();
    lease.take_error().unwrap();
    device.close().unwrap();
}

/// A queue pair by hand, of a client that keeps no rules; it sends by what it likes.
struct Hand {
    sq: SqProducer,
    cq: CqConsumer,
    pool: SharedRegion,
    region: SharedRegion,
    bell: Arc<std::os::fd::OwnedFd>,
    _session: Box<dyn weldfs::Transport>,
}

const DEPTH: u32 = 16;

impl Hand {
    /// With a handle of "f", and its lease.
    fn new(device: &Embedded) -> (Hand, Handle) {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let session = device.attach(&AttachOptions::default()).unwrap();
            let parts = session.new_queue(DEPTH, 1 << 20).unwrap();
            let memory = QueueMemory::new(parts.region.clone(), &parts.layout).unwrap();
            let (sq, cq) = (SqProducer::new(memory.clone()), CqConsumer::new(memory.clone()));
            let pool = memory.pool(&parts.layout).unwrap();
            let mut hand = Hand { sq, cq, pool, region: parts.region, bell: parts.doorbell, _session: session };
            let path = PoolRange::new(0, 1);
            hand.pool.slice(path).unwrap().copy_from(b"f");
            hand.send(Op::open(Handle::ROOT, path, CREATE, 0o600), true);
            let cqe = hand.reap();
            if cqe.result2 & LEASED != 0 {
                return (hand, Handle::from_wire(cqe.result));
            }
            // The last one's is on its way out.
            assert!(Instant::now() < until, "no lease: {cqe:?}");
        }
    }

    fn push(&mut self, op: Op, posted: bool) {
        let cmd = Command::new(1, op);
        let cmd = if posted { cmd.posted() } else { cmd };
        while self.sq.push(&cmd.encode()).is_err() {
            std::thread::yield_now();
        }
    }

    fn publish(&mut self) {
        self.sq.publish();
        rustix::io::write(&*self.bell, &1u64.to_ne_bytes()).unwrap();
    }

    fn send(&mut self, op: Op, posted: bool) {
        self.push(op, posted);
        self.publish();
    }

    fn reap(&mut self) -> weldfs::Cqe {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(cqe) = self.cq.pop() {
                return cqe;
            }
            assert!(Instant::now() < until, "no completion");
        }
    }

    fn write(h: Handle) -> Op {
        Op::Write { h, at: At::End, src: PoolRange::new(4096, 512) }
    }
}

/// Another client's command on the file is over in bounded time, whatever becomes of the lease's.
fn others_go_on(device: &Embedded) {
    let (send, over) = std::sync::mpsc::channel();
    let device = device.clone();
    std::thread::spawn(move || {
        let other = client(&device);
        let raw = other.raw();
        let size = raw.statat(Handle::ROOT, b"f", false).unwrap().size;
        raw.syncfs().unwrap();
        let (h, _) = open(raw, b"f", CREATE);
        raw.write(h, At::Offset(0), &b"mine"[..]).unwrap();
        raw.statfs().unwrap();
        send.send(size).unwrap();
    });
    over.recv_timeout(Duration::from_secs(20)).expect("another client waits for a ring whose client keeps no rules");
}

#[test]
fn a_client_that_keeps_no_rules_keeps_no_other_waiting() {
    for at_once in [true, false] {
        let device = device(config(at_once), 64 << 20);
        // It takes none of its answers: no place is left for more, and what it posts on stays in its ring.
        let (mut hand, h) = Hand::new(&device);
        for _ in 0..DEPTH * 2 - 1 {
            hand.send(Hand::write(h), true);
        }
        others_go_on(&device);
        let recalls = hand.region.slice(PoolRange::new(word::RECALLS as u32, 4)).unwrap().to_vec();
        assert_ne!(recalls, [0; 4], "it was told that it has no lease any more");
        drop(hand);
        // It posts behind commands that it has not waited for, among them long ones.
        let (mut hand, h) = Hand::new(&device);
        hand.push(Op::Fallocate { h, mode: weldfs::FallocMode::Reserve, off: 0, len: 16 << 20 }, false);
        for _ in 0..3 {
            hand.push(Op::ChecksumRange { h, kind: weldfs::ChecksumKind::Crc32c, offset: 0, len: 16 << 20 }, false);
            hand.push(Hand::write(h), true);
        }
        hand.publish();
        others_go_on(&device);
        drop(hand);
        // It takes back what it has published, again and again.
        let (mut hand, h) = Hand::new(&device);
        (0..3).for_each(|_| hand.push(Hand::write(h), true));
        let (region, stop) = (hand.region.clone(), Arc::new(AtomicBool::new(false)));
        let toggling = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let tail = region.slice(PoolRange::new(word::SQ_TAIL as u32, 4)).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    tail.copy_from(&4u32.to_le_bytes());
                    tail.copy_from(&1u32.to_le_bytes());
                }
            })
        };
        others_go_on(&device);
        stop.store(true, Ordering::Relaxed);
        toggling.join().unwrap();
        drop(hand);
        let until = Instant::now() + Duration::from_secs(10);
        while device.device().usage().sessions > 0 {
            assert!(Instant::now() < until, "sessions are left");
            std::thread::yield_now();
        }
        device.close().unwrap();
    }
}

/// Within its credit no posted write fails for want of space, while others fill the device to the last block.
#[test]
fn what_was_posted_has_its_room_though_others_fill_the_device() {
    for round in 0..6u64 {
        let device = device(config(round % 2 == 0), 24 << 20);
        let (poster, filler) = (client(&device), client(&device));
        let (h, lease) = open(poster.raw(), b"f", CREATE);
        let lease = lease.expect("a lease");
        let (big, _) = open(filler.raw(), b"big", CREATE);
        let full = Arc::new(AtomicBool::new(false));
        let filling = {
            let full = full.clone();
            std::thread::spawn(move || {
                let piece = vec![7u8; 32 << 10];
                while filler.raw().write(big, At::End, &piece[..]).is_ok() {}
                full.store(true, Ordering::Release);
                filler
            })
        };
        // One write at a time while there is room; then what a lease still lets go.
        let (mut posted, bytes) = (0u64, [3u8; 8192]);
        while posted < 2000 {
            match poster.raw().post_write(&lease, h, At::End, &bytes[..]) {
                Ok(true) => posted += 1,
                Ok(false) => break,
                // The lease was taken back: this write was waited for, and is what found no room.
                Err(Errno::NOSPC) => break,
                Err(e) => panic!("a posted write failed: {e:?} (the device is full: {})", full.load(Ordering::Acquire)),
            }
        }
        poster.settle().unwrap();
        assert_eq!(lease.take_error(), Ok(()), "round {round}, after {posted}");
        let stat = poster.raw().stat(h).unwrap();
        assert_eq!(stat.size, posted * bytes.len() as u64, "round {round}: all that was posted, and nothing else");
        let filler = filling.join().unwrap();
        // All that was kept is free again.
        poster.raw().close(h).unwrap();
        filler.raw().close(big).unwrap();
        let waits = device.device().stats().total.room_waits;
        assert!(round > 0 || waits > 0, "the device was never full");
        device.close().unwrap();
    }
    const { assert!(limits::LEASE_BLOCKS >= 17, "one posted write of the longest kind fits") };
}
