//! Several cores of one device: whichever core runs a command, and whichever policy picks it, every command is executed
//! once, whole, and in the order of its ring where it matters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weldfs::{At, Client, Command, Handle, Op, OpenOptions, Queue};
use weldfs_ciscops::ChecksumKind;
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_scheduler::PolicyKind;

const CORES: [usize; 4] = [1, 2, 4, 7];
const DEPTH: u32 = 16;
const POLICIES: [PolicyKind; 4] = [PolicyKind::Fifo, PolicyKind::Rr, PolicyKind::Cfs, PolicyKind::Eevdf];

fn device(cores: usize) -> Embedded {
    // A quantum this short makes every long command give way at every boundary.
    let config = DeviceConfig { cores, quantum_ns: 1_000, ..DeviceConfig::default() };
    Embedded::open(&Source::Ram(1 << 30), config).unwrap()
}

fn client(device: &Embedded) -> Client {
    Client::with(Arc::new(device.clone())).unwrap()
}

fn content(worker: u64, number: u64, len: usize) -> Vec<u8> {
    let mut state = (worker << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes: Vec<u8> = [worker, number, len as u64].iter().flat_map(|n| n.to_le_bytes()).collect();
    bytes.resize(len.max(24), 0);
    for chunk in bytes[24..].chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// Sizes below and above what is inline in a record, and above what is copied in one piece.
fn size(number: u64) -> usize {
    [100, 4096, 65_536, 300_000][number as usize % 4]
}

/// Appends `count` records of its own to a file, up to DEPTH at a time; the offsets they got.
fn append(queue: &mut Queue, h: Handle, worker: u64, count: u64) -> BTreeMap<u64, u64> {
    let (mut placed, mut open) = (BTreeMap::new(), std::collections::VecDeque::new());
    for number in 0..count + u64::from(DEPTH) {
        if open.len() == DEPTH as usize || number >= count {
            let Some((n, ticket, src)) = open.pop_front() else { break };
            placed.insert(n, queue.wait(ticket).unwrap().ok().unwrap().0);
            queue.free(src);
        }
        if number < count {
            let src = queue.stage(&content(worker, number, size(number))).unwrap();
            let op = Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src };
            open.push_back((number, queue.submit(&Command::new(0, op)).unwrap(), src));
            queue.flush();
        }
    }
    placed
}

#[test]
fn appends_of_many_rings_to_one_file_are_whole_and_in_the_order_of_their_ring() {
    for cores in CORES {
        let device = device(cores);
        client(&device).open("/log", &OpenOptions::new().write(true).create(true)).unwrap();
        let over = AtomicBool::new(false);
        let placed: Vec<BTreeMap<u64, u64>> = std::thread::scope(|s| {
            // The policy changes under the work all the time: no command is lost or run twice.
            s.spawn(|| {
                for kind in POLICIES.into_iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                    device.device().run_queue().set_policy(kind);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let workers: Vec<_> = (0..4u64)
                .map(|worker| {
                    let device = &device;
                    s.spawn(move || {
                        let client = client(device);
                        let file = client.open("/log", &OpenOptions::new().read(true).append(true)).unwrap();
                        let mut queue = client.queue(DEPTH, 16 << 20).unwrap();
                        append(&mut queue, file.handle(), worker, 60)
                    })
                })
                .collect();
            let placed = workers.into_iter().map(|w| w.join().unwrap()).collect();
            over.store(true, Ordering::Relaxed);
            placed
        });
        let bytes = client(&device).read("/log").unwrap();
        let mut records = Vec::new();
        for (worker, placed) in placed.iter().enumerate() {
            assert_eq!(placed.len(), 60);
            assert!(placed.values().is_sorted(), "appends of one ring to one file keep its order");
            for (number, at) in placed {
                let expected = content(worker as u64, *number, size(*number));
                assert_eq!(&bytes[*at as usize..][..expected.len()], expected, "worker {worker}, record {number}");
                records.push((*at, expected.len() as u64 + 4));
            }
        }
        records.sort_unstable();
        assert!(records.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0), "no gap, no overlap");
        assert_eq!(records.last().map(|r| r.0 + r.1), Some(bytes.len() as u64));
        assert!(!device.device().is_poisoned());
        let stats = device.device().stats();
        assert_eq!(stats.total.of(weldfs_ciscops::Opcode::AppendChecksumWrite as u16), 240);
        device.close().unwrap();
    }
}

#[test]
fn one_ring_is_served_by_several_cores() {
    let device = device(3);
    let client = client(&device);
    let mut queue = client.queue(DEPTH, 8 << 20).unwrap();
    let files: Vec<_> = (0..DEPTH)
        .map(|i| client.open(format!("/f{i}"), &OpenOptions::new().read(true).write(true).create(true)).unwrap())
        .collect();
    let src = queue.stage(&vec![7; 400_000]).unwrap();
    let start = Instant::now();
    // What opened the files was another ring's, and perhaps another core's.
    let slices = || -> Vec<u64> { device.device().stats().cores.iter().map(|c| c.totals.slices).collect() };
    let before = slices();
    let mut busy = 0;
    while busy < 2 && start.elapsed() < Duration::from_secs(20) {
        let tickets: Vec<_> = files
            .iter()
            .map(|f| queue.submit(&Command::new(0, Op::Write { h: f.handle(), at: At::Offset(0), src })).unwrap())
            .collect();
        queue.flush();
        tickets.into_iter().for_each(|t| assert_eq!(queue.wait(t).unwrap().ok().unwrap().0, 400_000));
        busy = slices().iter().zip(&before).filter(|(now, before)| now > before).count();
    }
    assert!(busy >= 2, "writes to different files ran on one core only");
}

#[test]
fn sessions_that_end_in_the_middle_leave_nothing_on_any_core() {
    let device = device(4);
    for round in 0..20 {
        std::thread::scope(|s| {
            for worker in 0..4u64 {
                let device = &device;
                s.spawn(move || {
                    let client = client(device);
                    let options = OpenOptions::new().write(true).create(true).truncate(true);
                    let file = client.open(format!("/s{}", (worker + round) % 3), &options).unwrap();
                    let mut queue = client.queue(DEPTH, 8 << 20).unwrap();
                    for number in 0..u64::from(DEPTH) {
                        let src = queue.stage(&content(worker, number, size(number))).unwrap();
                        let op = Op::AppendChecksumWrite { h: file.handle(), kind: ChecksumKind::Crc32c, src };
                        queue.submit(&Command::new(0, op)).unwrap();
                    }
                    // Nothing waits: what was published is executed all the same.
                    queue.flush();
                });
            }
        });
    }
    let start = Instant::now();
    while device.device().usage().sessions > 0 || device.device().usage().inode_queues > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", device.device().usage());
        std::thread::sleep(Duration::from_millis(5));
    }
    let stats = device.device().stats();
    assert_eq!(stats.total.of(weldfs_ciscops::Opcode::AppendChecksumWrite as u16), 20 * 4 * u64::from(DEPTH));
    assert!(stats.tenants.iter().all(|t| t.usage.in_flight == 0), "admission is balanced");
}

#[test]
fn cores_without_work_sleep() {
    let device = device(4);
    let client = client(&device);
    client.write("/f", b"x").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let slept = |d: &Embedded| -> u64 { d.device().stats().cores.iter().map(|c| c.totals.sleeps).sum() };
    let before = slept(&device);
    std::thread::sleep(Duration::from_millis(500));
    assert!(slept(&device) - before <= 2, "an idle device is asleep and stays so");
    assert_eq!(client.read("/f").unwrap(), b"x");
}

#[test]
fn who_holds_what_another_tenant_waits_for_is_picked_in_its_place() {
    let device = device(1);
    let mut other = weldfs_fs::Cred::root();
    other.uid = 1000;
    client(&device).open("/shared", &OpenOptions::new().write(true).create(true).mode(0o666)).unwrap();
    client(&device).set_permissions("/shared", 0o666).unwrap();
    let (start, mut stats) = (Instant::now(), device.device().stats());
    // Whether the two meet in the middle of an append is up to the host: until they have.
    while (stats.total.boosts == 0 || stats.total.preemptions == 0) && start.elapsed() < Duration::from_secs(60) {
        std::thread::scope(|s| {
            for (worker, connector) in [
                (0u64, Arc::new(device.clone()) as Arc<dyn weldfs::Connector>),
                (1, Arc::new(device.acting_as(other.clone()))),
                (2, Arc::new(device.clone())),
            ] {
                s.spawn(move || {
                    let client = Client::with(connector).unwrap();
                    let file = client.open("/shared", &OpenOptions::new().append(true)).unwrap();
                    let mut queue = client.queue(DEPTH, 16 << 20).unwrap();
                    assert_eq!(append(&mut queue, file.handle(), worker, 40).len(), 40);
                });
            }
        });
        client(&device).open("/shared", &OpenOptions::new().write(true).truncate(true)).unwrap();
        stats = device.device().stats();
    }
    let stats = device.device().stats();
    assert!(stats.total.boosts > 0, "{:?}", stats.total);
    assert!(stats.total.preemptions > 0, "long appends gave way in the middle");
}

#[test]
fn what_others_may_take_at_most_is_no_reason_for_enospc() {
    const WORKERS: usize = 8;
    for cores in [1, 2] {
        let config = DeviceConfig { cores, quantum_ns: 1_000, ..DeviceConfig::default() };
        // Each of them is promised 16 MiB for what is known only when it runs, and takes 300 KiB.
        let device = Embedded::open(&Source::Ram(96 << 20), config).unwrap();
        std::thread::scope(|s| {
            for worker in 0..WORKERS {
                let device = &device;
                s.spawn(move || {
                    let client = client(device);
                    let open = |name: &str| {
                        let options = OpenOptions::new().read(true).write(true).create(true).clone();
                        client.open(format!("/{name}{worker}"), &options).unwrap()
                    };
                    let (part, whole) = (open("part"), open("whole"));
                    part.write_all_at(&vec![worker as u8; 100_000], 0).unwrap();
                    for round in 0..20 {
                        let done = whole.raw().concat(&[part.handle(); 3], whole.handle());
                        assert_eq!(done, Ok((0, 300_000)), "round {round} of {worker}, {cores} cores");
                        whole.set_len(0).unwrap();
                    }
                });
            }
        });
        let client = client(&device);
        client.write("/small", b"").unwrap();
        let large = client.open("/small", &OpenOptions::new().write(true).clone()).unwrap();
        let filled = (0..200u64).find_map(|n| large.write_all_at(&vec![1; 1 << 20], n << 20).err());
        assert_eq!(filled.unwrap().raw_os_error(), Some(28), "what does not fit alone is refused");
    }
}

/// Times that each core gave back what it had freed, by its thread's name.
static GAVE_BACK: std::sync::Mutex<BTreeMap<String, u32>> = std::sync::Mutex::new(BTreeMap::new());

fn gave_back() -> BTreeMap<String, u32> {
    GAVE_BACK.lock().unwrap().clone()
}

/// Whether this thread is a core's: others of the device look, too, when one rests.
fn is_core() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("weld-dev"))
}

static RESTED: AtomicU32 = AtomicU32::new(0);

/// A monitor that attaches ten times a second does not keep the device from giving back what it had freed.
#[test]
fn a_core_that_is_asked_something_now_and_then_is_at_rest_all_the_same() {
    let at_rest = || {
        RESTED.fetch_add(u32::from(is_core()), Ordering::Relaxed);
    };
    let config = DeviceConfig { at_rest: Some(at_rest), ..DeviceConfig::default() };
    let device = Embedded::open(&Source::Ram(64 << 20), config).unwrap();
    // Where the machine is busy, an answer takes long, and the core is then no longer at rest.
    let start = Instant::now();
    while RESTED.load(Ordering::Relaxed) < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "{RESTED:?} times");
        client(&device).metadata("/").unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What one core freed and another one had allocated stays with the other one's thread, which may have rested before:
/// it looks again when the first one rests. And then no core does anything any more.
#[test]
fn a_core_that_rests_gives_back_what_others_free_later() {
    let at_rest = || {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        if is_core() {
            *GAVE_BACK.lock().unwrap().entry(name).or_default() += 1;
        }
    };
    let config = DeviceConfig { cores: 2, at_rest: Some(at_rest), ..DeviceConfig::default() };
    let device = Embedded::open(&Source::Ram(64 << 20), config).unwrap();
    let client = client(&device);
    let wait_for = |what: &str, done: &dyn Fn(&BTreeMap<String, u32>) -> bool| {
        let start = Instant::now();
        while !done(&gave_back()) {
            assert!(start.elapsed() < Duration::from_secs(30), "{what}: {:?}", gave_back());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("both rest after their start", &|all| all.len() == 2);
    let quiet = || {
        let (mut before, mut since) = (gave_back(), Instant::now());
        let start = Instant::now();
        while since.elapsed() < Duration::from_millis(2500) {
            assert!(start.elapsed() < Duration::from_secs(60), "it never ends: {before:?}");
            std::thread::sleep(Duration::from_millis(50));
            let now = gave_back();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        before
    };
    for round in 0..2 {
        let before = quiet();
        // One at a time: a core has nothing to do for another one.
        client.write(format!("/{round}"), &[1; 5000]).unwrap();
        wait_for("both, whichever ran it", &|all| before.iter().all(|(name, n)| all[name] > *n));
    }
    quiet();
}
