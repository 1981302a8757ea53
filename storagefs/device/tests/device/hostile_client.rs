//! A client that writes whatever it likes into its queues, its pool and its control socket hurts itself only.
//!
//! Beside each attack a victim session works on its own files and checks every byte; at the end the device is alive,
//! nothing was poisoned, and everything the attacker held has been given back.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use weldfs::{AttachOptions, Client, Connector, OpenOptions, QueueParts, Transport};
use weldfs_ciscops::ring::{CqConsumer, QueueMemory, SqProducer, word};
use weldfs_ciscops::{Cqe, OPS, Opcode, SharedRegion, Sqe};
use weldfs_device::{DeviceConfig, Usage};
use weldfs_kernel_shim::{Embedded, ServeConfig, Server, Source};

/// Entries thrown at the device by each of the two SQE attacks.
const ENTRIES: u64 = 1_000_000;
const DEPTH: u32 = 256;
const POOL: u32 = 1 << 20;

fn device() -> Embedded {
    Embedded::open(&Source::Ram(256 << 20), DeviceConfig::default()).unwrap()
}

/// A client that works honestly until told to stop; returns how often it went round.
struct Victim {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Victim {
    fn start(embedded: &Embedded) -> Victim {
        let stop = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicU64::new(0));
        let (flag, done, connector) = (stop.clone(), rounds.clone(), Arc::new(embedded.clone()));
        let thread = std::thread::spawn(move || {
            let client = Client::with(connector).unwrap();
            client.create_dir("/victim").unwrap();
            client.set_permissions("/victim", 0o700).unwrap();
            let options = OpenOptions::new().read(true).write(true).create(true);
            let file = client.open("/victim/file", &options).unwrap();
            let mut round = 0u64;
            while !flag.load(Ordering::Relaxed) {
                let data = [round as u8; 5000];
                file.write_all_at(&data, (round % 7) * 1000).unwrap();
                let mut back = [0; 5000];
                file.read_exact_at(&mut back, (round % 7) * 1000).unwrap();
                assert!(back == data, "round {round}: the victim reads what it wrote");
                round += 1;
                done.store(round, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Victim { stop, rounds, thread }
    }

    fn finish(self) {
        let start = Instant::now();
        while self.rounds.load(Ordering::Relaxed) == 0 && !self.thread.is_finished() {
            assert!(start.elapsed() < Duration::from_secs(20), "the victim gets work done");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// The attacker's ends of a queue pair: raw, without the client library's care.
struct Raw {
    sq: SqProducer,
    cq: CqConsumer,
    memory: QueueMemory,
    pool: SharedRegion,
    doorbell: Arc<OwnedFd>,
    in_flight: u32,
}

impl Raw {
    fn new(parts: QueueParts) -> Raw {
        let memory = QueueMemory::new(parts.region, &parts.layout).unwrap();
        Raw {
            sq: SqProducer::new(memory.clone()),
            cq: CqConsumer::new(memory.clone()),
            pool: memory.pool(&parts.layout).unwrap(),
            memory,
            doorbell: parts.doorbell,
            in_flight: 0,
        }
    }

    fn flush(&mut self) {
        self.sq.publish();
        if self.sq.needs_doorbell() {
            rustix::io::write(&*self.doorbell, &1u64.to_ne_bytes()).unwrap();
        }
    }

    /// Takes what has completed; waits for at least one when `block`.
    fn reap(&mut self, block: bool, mut seen: impl FnMut(Cqe)) {
        let start = Instant::now();
        loop {
            let before = self.in_flight;
            while let Some(cqe) = self.cq.pop() {
                self.in_flight -= 1;
                seen(cqe);
            }
            self.cq.release();
            if !block || self.in_flight < before || self.in_flight == 0 || self.cq.closed().is_some() {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "the device answers");
            self.cq.wait(Duration::from_millis(100));
        }
    }

    fn push(&mut self, sqe: &Sqe, seen: impl FnMut(Cqe)) {
        if self.in_flight >= DEPTH / 2 {
            self.flush();
            self.reap(true, seen);
        }
        self.sq.push(sqe).unwrap();
        self.in_flight += 1;
    }

    fn drain(&mut self, mut seen: impl FnMut(Cqe)) {
        self.flush();
        while self.in_flight > 0 && self.cq.closed().is_none() {
            self.reap(true, &mut seen);
        }
    }
}

fn attach(embedded: &Embedded) -> Arc<dyn Transport> {
    Arc::from(embedded.attach(&AttachOptions::default()).unwrap())
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Nothing of an attack is left once its session is gone.
fn nothing_left(embedded: &Embedded) {
    wait_for("everything is given back", || embedded.device().usage() == Usage::default());
    assert!(!embedded.device().is_poisoned());
}

/// Names that exist, names that do not, and rubbish, for entries that point into the pool.
fn fill_pool(pool: &SharedRegion, rng: &mut SmallRng) {
    let mut bytes = vec![0u8; POOL as usize];
    for chunk in bytes.chunks_mut(64) {
        match rng.random_range(0..4) {
            0 => rng.fill_bytes(chunk),
            1 => chunk[..2].copy_from_slice(b"/a"),
            2 => chunk.iter_mut().for_each(|b| *b = b'a' + rng.random_range(0..3u8)),
            _ => chunk.iter_mut().enumerate().for_each(|(i, b)| *b = if i % 3 == 0 { b'/' } else { b'b' }),
        }
    }
    pool.bytes(0, bytes.len()).unwrap().copy_from(&bytes);
}

fn random_sqe(rng: &mut SmallRng) -> Sqe {
    let mut words = [0u64; 8];
    words.iter_mut().for_each(|w| *w = rng.random());
    let mut sqe = Sqe::from_words(words);
    // Half of them name a real operation, or none would get past the first check.
    if rng.random() {
        sqe.opcode = OPS[rng.random_range(0..OPS.len())].opcode as u16;
    }
    sqe
}

/// A sound entry of any operation, with small operands.
fn sound_sqe(rng: &mut SmallRng) -> Sqe {
    let op: Opcode = OPS[rng.random_range(0..OPS.len())].opcode;
    let mut sqe = Sqe { opcode: op as u16, ..Sqe::default() };
    for operand in op.spec().operands {
        let mask = operand.lane.mask();
        let mut words = sqe.to_words();
        for (w, m) in words.iter_mut().zip(mask) {
            *w |= m & rng.random_range(0..64u64).wrapping_mul(0x0101_0101_0101_0101) & 0x3f3f_3f3f_3f3f_3f3f & m;
        }
        sqe = Sqe::from_words(words);
    }
    sqe.flags &= 3;
    if rng.random_range(0..4) > 0 {
        // The root handle, and payload that is not huge.
        sqe.handle = 0;
        sqe.length = rng.random_range(0..512);
        sqe.pool_off = rng.random_range(0..POOL / 64) * 64;
        sqe.pool_off2 = rng.random_range(0..POOL / 64) * 64;
    }
    sqe
}

fn mutate(sqe: Sqe, rng: &mut SmallRng) -> Sqe {
    let mut words = sqe.to_words();
    let w = rng.random_range(0..8);
    words[w] = match rng.random_range(0..4) {
        0 => rng.random(),
        1 => words[w] ^ (1 << rng.random_range(0..64)),
        2 => u64::MAX,
        _ => words[w].wrapping_add(1),
    };
    Sqe::from_words(words)
}

fn throw(seed: u64, mut next: impl FnMut(&mut SmallRng) -> Sqe) {
    let embedded = device();
    let victim = Victim::start(&embedded);
    let mut rng = SmallRng::seed_from_u64(seed);
    let transport = attach(&embedded);
    let mut raw = Raw::new(transport.new_queue(DEPTH, POOL).unwrap());
    fill_pool(&raw.pool, &mut rng);
    let (mut answered, mut refused) = (0u64, 0u64);
    let mut seen = |cqe: Cqe| {
        answered += 1;
        refused += u64::from(cqe.status != 0);
        assert!((0..4096).contains(&cqe.status), "an errno: {cqe:?}");
    };
    for _ in 0..ENTRIES {
        let sqe = next(&mut rng);
        raw.push(&sqe, &mut seen);
    }
    raw.drain(&mut seen);
    assert_eq!(answered, ENTRIES, "each entry has exactly one completion");
    assert!(refused > 0);
    drop(raw);
    transport.detach();
    victim.finish();
    nothing_left(&embedded);
}

#[test]
fn a_million_random_entries_are_answered_and_hurt_nobody() {
    throw(1, random_sqe);
}

#[test]
fn a_million_mutated_entries_are_answered_and_hurt_nobody() {
    throw(2, |rng| mutate(sound_sqe(rng), rng));
}

#[test]
fn a_flood_of_malformed_entries_holds_nobody_up() {
    let embedded = device();
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let transport = attach(&embedded);
            let mut raw = Raw::new(transport.new_queue(DEPTH, POOL).unwrap());
            let sqe = Sqe { opcode: u16::MAX, ..Sqe::default() };
            while !over.load(Ordering::Relaxed) {
                raw.push(&sqe, |_| ());
            }
            raw.drain(|_| ());
        });
        let victim = Client::with(Arc::new(embedded.clone())).unwrap();
        let began = Instant::now();
        for round in 0..500 {
            victim.metadata("/").unwrap();
            assert!(began.elapsed() < Duration::from_secs(20), "{round} rounds only");
        }
        over.store(true, Ordering::Relaxed);
    });
    nothing_left(&embedded);
}

#[test]
fn a_lying_index_ends_the_session_that_lied() {
    let embedded = device();
    let victim = Victim::start(&embedded);
    let mut rng = SmallRng::seed_from_u64(3);
    for round in 0..200 {
        let transport = attach(&embedded);
        let mut raw = Raw::new(transport.new_queue(DEPTH, 4096).unwrap());
        let at = if round % 2 == 0 { word::SQ_TAIL } else { word::CQ_HEAD };
        // Some honest work first, so that the lie meets a busy queue.
        for _ in 0..rng.random_range(0..64) {
            raw.push(&Sqe::default(), |_| ());
        }
        raw.flush();
        let lie: u32 = rng.random_range(DEPTH * 2..u32::MAX - DEPTH * 2);
        raw.memory.region().bytes(at, 4).unwrap().copy_from(&lie.to_le_bytes());
        rustix::io::write(&*raw.doorbell, &1u64.to_ne_bytes()).unwrap();
        if at == word::SQ_TAIL {
            wait_for("the liar is cut off", || raw.cq.closed().is_some() && transport.hung_up());
            assert!(transport.new_queue(2, 4096).is_err());
        }
        transport.detach();
    }
    victim.finish();
    nothing_left(&embedded);
}

#[test]
fn a_thread_that_flips_bytes_in_ring_and_pool_changes_nothing_for_others() {
    let embedded = device();
    let victim = Victim::start(&embedded);
    let start = Instant::now();
    let mut seed = 10;
    while start.elapsed() < Duration::from_secs(4) {
        seed += 1;
        let mut rng = SmallRng::seed_from_u64(seed);
        let transport = attach(&embedded);
        let mut raw = Raw::new(transport.new_queue(DEPTH, POOL).unwrap());
        fill_pool(&raw.pool, &mut rng);
        let (stop, region) = (Arc::new(AtomicBool::new(false)), raw.memory.region().clone());
        let flag = stop.clone();
        let flipper = std::thread::spawn(move || {
            let mut rng = SmallRng::seed_from_u64(seed ^ 0xffff);
            while !flag.load(Ordering::Relaxed) {
                let mut at = rng.random_range(0..region.len());
                // Index words now and then only, or the session would never live long enough to race anything.
                if at < 4096 && rng.random_range(0..64) != 0 {
                    at += 4096;
                }
                let byte = region.bytes(at, 1).unwrap();
                let mut b = [0];
                byte.copy_to(&mut b);
                byte.copy_from(&[b[0] ^ (1 << rng.random_range(0..8))]);
            }
        });
        let until = Instant::now() + Duration::from_millis(150);
        while Instant::now() < until && raw.cq.closed().is_none() {
            let sqe = sound_sqe(&mut rng);
            if raw.sq.push(&sqe).is_ok() {
                raw.flush();
            }
            // Bounded: the flips hit the indices that this side reads, too.
            for _ in 0..DEPTH {
                if raw.cq.pop().is_none() {
                    break;
                }
            }
            raw.cq.release();
        }
        stop.store(true, Ordering::Relaxed);
        flipper.join().unwrap();
        drop(raw);
        transport.detach();
    }
    victim.finish();
    nothing_left(&embedded);
}

#[test]
fn a_client_that_never_reaps_stops_only_itself() {
    let embedded = device();
    let victim = Victim::start(&embedded);
    let transport = attach(&embedded);
    let mut raw = Raw::new(transport.new_queue(32, 4096).unwrap());
    for _ in 0..32 {
        raw.sq.push(&Sqe::default()).unwrap();
    }
    raw.flush();
    wait_for("the first ring full is taken", || raw.sq.pending() == 0);
    for _ in 0..32 {
        raw.sq.push(&Sqe::default()).unwrap();
    }
    raw.flush();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(raw.sq.pending(), 32, "no command is taken without a slot for its completion");
    // Once it reaps, it is served again.
    let mut answered = 0;
    wait_for("all are answered", || {
        while raw.cq.pop().is_some() {
            answered += 1;
        }
        raw.cq.release();
        answered == 64
    });
    transport.detach();
    victim.finish();
    nothing_left(&embedded);
}

#[test]
fn floods_of_handles_queues_and_placeholders_end_at_their_limits() {
    let config = DeviceConfig { handles_max: 64, ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(64 << 20), config).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    let mut held = Vec::new();
    let errno = loop {
        match client.create(format!("/f{}", held.len())) {
            Ok(file) => held.push(file),
            Err(e) => break e.raw_os_error(),
        }
    };
    assert_eq!((errno, held.len()), (Some(libc::EMFILE), 64));
    assert!(client.metadata("/f64").is_err(), "EMFILE leaves no file behind");
    let transport = attach(&embedded);
    let queues = std::iter::from_fn(|| transport.new_queue(2, 4096).ok()).take(1000).count();
    assert_eq!(queues, 64);
    let mut made = Vec::new();
    while let Ok(p) = transport.placeholders(16) {
        made.extend(p);
        assert!(made.len() < 10_000);
    }
    drop((made, held));
    transport.detach();
    drop(client);
    nothing_left(&embedded);
}

/// A connection to a served device, without the client library.
fn dial(path: &std::path::Path) -> OwnedFd {
    let s = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&s, &SocketAddrUnix::new(path).unwrap()).unwrap();
    s
}

#[test]
fn malformed_attach_messages_end_in_an_errno_or_a_closed_connection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let mut config = ServeConfig::new(Source::Ram(64 << 20), &path);
    config.signals = false;
    let server = Server::bind(config).unwrap();
    let (stopper, device) = (server.stopper(), server.device().clone());
    let serving = std::thread::spawn(move || server.run().unwrap());
    let mut rng = SmallRng::seed_from_u64(7);
    let hello = weldfs_ciscops::attach::Request::Hello {
        hello: weldfs_ciscops::attach::Hello { version_min: 1, version_max: 1, ..Default::default() },
        prefix: b"/weld".to_vec(),
    }
    .encode();
    let second =
        weldfs_ciscops::attach::Request::NewQueue(weldfs_ciscops::attach::NewQueue { depth: 8, pool_bytes: 4096 })
            .encode();
    for round in 0..3000 {
        let socket = dial(&path);
        let mut packets = vec![hello.clone(), second.clone()];
        let which = round % 3;
        let mut bad = packets[which.min(1)].clone();
        match rng.random_range(0..4) {
            0 => bad.truncate(rng.random_range(0..bad.len())),
            1 => bad.extend(vec![0xff; rng.random_range(1..4000)]),
            _ => {
                for _ in 0..rng.random_range(1..4) {
                    let at = rng.random_range(0..bad.len());
                    bad[at] ^= 1 << rng.random_range(0..8);
                }
            }
        }
        packets[which.min(1)] = bad;
        for p in &packets {
            // An empty packet would be an end of file; a closed connection refuses.
            if !p.is_empty() && rustix::net::send(&socket, p, SendFlags::NOSIGNAL).is_err() {
                break;
            }
        }
        if round % 5 == 0 {
            // Some wait for the answers, most hang up in the middle.
            let mut reply = [0; 4096];
            let _ = rustix::net::recv(&socket, &mut reply[..], rustix::net::RecvFlags::empty());
        }
    }
    // An honest client is served as if nothing had been.
    let client = Client::connect(&path).unwrap();
    client.write("/after", b"still here").unwrap();
    assert_eq!(client.read("/after").unwrap(), b"still here");
    drop(client);
    wait_for("no session is left", || device.usage() == Usage::default());
    stopper.stop();
    serving.join().unwrap();
    assert!(!path.exists());
}
