//! Durability under a running device. A medium that fails: every waiter gets EIO, nothing is tried again, later
//! operations fail, and a remount finds everything that was acknowledged as durable, also when the power goes then.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use weldfs::{Client, Durability, Errno, File, OpenOptions};
use weldfs_device::DeviceConfig;
use weldfs_journal::{Lsn, Medium, SeededRandom, SystemClock};
use weldfs_kernel_shim::{Embedded, ServeConfig, ServeError, Server, Source};
use weldfs_media::{
    CowImage, CowMedium, CrashModel, FaultKind, FaultOn, FaultPlan, FaultyMedium, RecordingMedium, Replayer,
};
use weldfs_store::fsck::fsck;
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::{MountOptions, Store};

const CLIENTS: usize = 4;
const IMAGE: usize = 16 << 20;

fn options(read_only: bool) -> MountOptions {
    let random = Arc::new(SeededRandom::new(5));
    MountOptions { read_only, memory: 16 << 20, ..MountOptions::new(Arc::new(SystemClock), random) }
}

/// The n-th record of a client: inline or in blocks of its own.
fn record(client: usize, n: u64) -> Vec<u8> {
    let len = if n.is_multiple_of(3) { 20_000 } else { 700 };
    (0..len).map(|i| (client as u64 * 50 + n * 7 + i / 64) as u8).collect()
}

struct Rig {
    recording: Arc<RecordingMedium>,
    faulty: Arc<FaultyMedium>,
    store: Arc<Store>,
    device: Embedded,
}

impl Rig {
    fn new(model: CrashModel) -> Rig {
        let fresh: Arc<dyn Medium> = Arc::new(CowMedium::new(CowImage::new(vec![0; IMAGE]), model));
        let geometry = GeometryOptions { log_len: Some(1 << 20), ..Default::default() };
        format(&fresh, &MkfsOptions { geometry, ..Default::default() }, &SystemClock, &SeededRandom::new(1)).unwrap();
        let mut bytes = vec![0; IMAGE];
        fresh.read(0, &mut bytes).unwrap();
        let recording = Arc::new(RecordingMedium::from_bytes(bytes, model));
        let faulty = Arc::new(FaultyMedium::new(recording.clone()));
        let (store, _) = weldfs_fs::mount(faulty.clone(), options(false)).unwrap();
        let device = Embedded::over(store.clone(), DeviceConfig::default()).unwrap();
        Rig { recording, faulty, store, device }
    }

    fn file(&self, client: usize) -> (Client, File) {
        let c = Client::with(Arc::new(self.device.clone())).expect("attach");
        let f = c.open(format!("/c{client}"), &OpenOptions::new().write(true).create(true).read(true)).expect("open");
        (c, f)
    }

    /// What the power leaves: everything flushed, of the rest a subset.
    fn cut(&self, seed: u64) -> Vec<u8> {
        let recording = self.recording.recording();
        let mut replayer = Replayer::new(&recording, 0);
        replayer.goto(recording.len());
        replayer.image(seed)
    }
}

fn is_eio(e: &io::Error) -> bool {
    e.raw_os_error() == Some(Errno::IO.0)
}

/// Appends durably until something fails; counts what was acknowledged.
fn write_until_failure(client: usize, file: &File, acknowledged: &AtomicU64, stop: &AtomicBool) -> Option<io::Error> {
    for n in 0.. {
        if stop.load(SeqCst) {
            return None;
        }
        match file.append_with(&record(client, n)[..], Durability::Durable) {
            Ok(w) => assert_eq!(w.len, record(client, n).len()),
            Err(e) => return Some(e),
        }
        acknowledged.store(n + 1, SeqCst);
    }
    None
}

/// Everything acknowledged is there, then at most the one record that failed, and nothing else.
fn verify(image: Vec<u8>, model: CrashModel, acknowledged: &[u64], plan: FaultPlan) {
    let medium: Arc<dyn Medium> = Arc::new(CowMedium::new(CowImage::new(image), model));
    let report = fsck(medium.clone(), options(true), true).expect("readable");
    assert!(report.clean, "{plan:?}: {:#?}", report.problems);
    let (store, _) = weldfs_fs::mount(medium, options(false)).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
    let device = Embedded::over(store.clone(), DeviceConfig::default()).unwrap();
    let client = Client::with(Arc::new(device.clone())).expect("attach");
    for (c, sure) in acknowledged.iter().enumerate() {
        let found = client.read(format!("/c{c}")).expect("read");
        let (mut n, mut at) = (0, 0);
        while at < found.len() {
            let want = record(c, n);
            assert_eq!(found.get(at..at + want.len()), Some(&want[..]), "{plan:?}: record {n} of client {c}");
            (n, at) = (n + 1, at + want.len());
        }
        assert!(n == *sure || n == sure + 1, "{plan:?}: client {c} has {n} records, {sure} were acknowledged");
    }
    client.write("/more", b"works").expect("a remounted image works");
    drop(client);
    device.close().expect("clean end");
    store.unmount().expect("the medium is healthy");
}

/// Four clients over a medium that fails at some access; true when it did.
fn run(model: CrashModel, plan: FaultPlan) -> bool {
    let rig = Rig::new(model);
    let open: Vec<_> = (0..CLIENTS).map(|c| rig.file(c)).collect();
    open[0].0.sync().expect("durable");
    let acknowledged: Vec<_> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    rig.faulty.plan(Some(plan));
    let checkpointed = std::thread::scope(|s| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|c| {
                let (open, acknowledged, stop) = (&open, &acknowledged, &stop);
                s.spawn(move || write_until_failure(c, &open[c].1, &acknowledged[c], stop))
            })
            .collect();
        let started = Instant::now();
        while acknowledged.iter().any(|a| a.load(SeqCst) < 8) && !rig.faulty.fired() {
            assert!(started.elapsed() < Duration::from_secs(60), "{plan:?}: nobody gets on");
            std::thread::yield_now();
        }
        // Superblock and tree are written while clients go on.
        let checkpointed = rig.store.checkpoint();
        let poisoned = rig.store.medium().is_poisoned();
        if !poisoned {
            stop.store(true, SeqCst);
        }
        for t in threads {
            let failed = t.join().expect("no panic");
            assert!(failed.as_ref().is_none_or(is_eio), "{plan:?}: {failed:?}");
            assert!(failed.is_some() || !poisoned, "{plan:?}: a client did not hear of it");
        }
        checkpointed
    });
    let fired = rig.faulty.fired();
    if rig.store.medium().is_poisoned() {
        after_the_failure(&rig, &open, plan);
    } else {
        assert!(plan.on != FaultOn::Flush || !fired, "{plan:?}: a failed flush was not final");
        assert!(checkpointed.is_ok() || fired);
    }
    let sure: Vec<u64> = acknowledged.iter().map(|a| a.load(SeqCst)).collect();
    drop(open);
    let _ = rig.device.close();
    verify(rig.cut(plan.nth), model, &sure, plan);
    verify(rig.recording.to_bytes(), model, &sure, plan);
    fired
}

/// Nothing works any more, and nothing reaches the medium: the failing access was the last of its kind.
fn after_the_failure(rig: &Rig, open: &[(Client, File)], plan: FaultPlan) {
    let (accesses, durable, flushes) = (rig.recording.position(), watermark(rig), rig.faulty.seen());
    for (c, (client, file)) in open.iter().enumerate() {
        for durability in [Durability::Volatile, Durability::Durable] {
            let late = file.append_with(&b"late"[..], durability);
            assert!(late.is_err_and(|e| is_eio(&e)), "{plan:?}: client {c}, {durability:?}");
        }
        assert!(file.sync_all().is_err_and(|e| is_eio(&e)), "{plan:?}: fsync of client {c}");
        assert!(client.write("/new", b"x").is_err(), "{plan:?}");
    }
    assert!(rig.store.checkpoint().is_err() && rig.store.unmount().is_err(), "{plan:?}");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(rig.recording.position(), accesses, "{plan:?}: something was written or flushed after the failure");
    assert_eq!(watermark(rig), durable, "{plan:?}: the watermark moved after the failure");
    if plan.on == FaultOn::Flush {
        assert_eq!(rig.faulty.seen(), flushes, "{plan:?}: something was flushed after the failure was known");
        // One of another thread may have been under way, and it covers what that thread wrote before.
        assert_eq!(rig.faulty.flushes_of_a_thread_since(), 1, "{plan:?}: a flush was tried again");
    }
}

fn watermark(rig: &Rig) -> Lsn {
    rig.store.journal().watermark()
}

fn sweep(model: CrashModel, on: FaultOn, kind: FaultKind, sticky: bool, step: u64) {
    let (mut nth, mut hits) = (1, 0);
    // How many accesses there are depends on how the clients' commits fall together: the sweep stops where they end.
    while hits < 16 && run(model, FaultPlan { on, nth, kind, sticky }) {
        nth += step;
        hits += 1;
    }
    assert!(hits > 3, "only {hits} of the planned faults happened");
}

#[test]
fn a_failed_flush_on_block_reaches_everybody_and_is_not_tried_again() {
    sweep(CrashModel::Block, FaultOn::Flush, FaultKind::Eio, false, 2);
}

#[test]
fn a_failed_fence_on_pmem_reaches_everybody_and_is_not_tried_again() {
    sweep(CrashModel::Pmem, FaultOn::Flush, FaultKind::Eio, false, 3);
}

#[test]
fn a_failed_write_of_log_data_tree_or_superblock_loses_nothing_acknowledged_on_block() {
    sweep(CrashModel::Block, FaultOn::Write, FaultKind::Eio, true, 3);
    sweep(CrashModel::Block, FaultOn::Write, FaultKind::Short, false, 5);
}

#[test]
fn a_failed_write_of_log_data_tree_or_superblock_loses_nothing_acknowledged_on_pmem() {
    sweep(CrashModel::Pmem, FaultOn::Write, FaultKind::Eio, true, 5);
    sweep(CrashModel::Pmem, FaultOn::Write, FaultKind::Short, false, 7);
}

#[test]
fn a_volatile_write_is_durable_within_five_seconds_though_nobody_asks_again() {
    let rig = Rig::new(CrashModel::Block);
    let (_client, file) = rig.file(0);
    file.append_with(&b"volatile"[..], Durability::Volatile).expect("append");
    let (written, journal) = (Instant::now(), rig.store.journal().clone());
    let end = journal.tail();
    assert!(journal.watermark() < end);
    while journal.watermark() < end {
        assert!(written.elapsed() < Duration::from_secs(8), "nobody flushes it");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Not at once either: volatile means that the writer did not want to pay for a flush.
    assert!(written.elapsed() > Duration::from_secs(3));
}

#[test]
fn a_long_file_cut_to_nothing_again_and_again_needs_no_checkpoint_and_no_wait_for_one() {
    let rig = Rig::new(CrashModel::Pmem);
    let (_client, file) = rig.file(0);
    let before = rig.store.stats().checkpoints;
    // A block in each of six windows: too many to be freed in the record of the truncation.
    for round in 0..60 {
        for at in 0..6u64 {
            file.write_all_at(&[round; 64], at << 20).expect("write");
        }
        file.set_len(0).expect("truncate");
    }
    assert_eq!(rig.store.stats().checkpoints, before);
    assert_eq!(file.metadata().expect("stat").len(), 0);
}

#[test]
fn a_device_out_of_service_tells_its_clients_within_a_second_and_serving_it_ends_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = ServeConfig::new(Source::Ram(64 << 20), dir.path().join("s"));
    config.signals = false;
    let server = Server::bind(config).unwrap();
    let (device, path) = (server.device().clone(), dir.path().join("s"));
    let serving = std::thread::spawn(move || server.run());
    let (idle, busy) = (Client::connect(&path).unwrap(), Client::connect(&path).unwrap());
    let file = idle.open("/f", &OpenOptions::new().write(true).create(true)).unwrap();
    let heard = std::thread::scope(|s| {
        let (writes, written) = std::sync::mpsc::channel();
        let busy = s.spawn(move || {
            let file = busy.open("/g", &OpenOptions::new().write(true).create(true)).unwrap();
            file.write_all_at(b"x", 0).unwrap();
            writes.send(()).unwrap();
            let failed = (0u64..).find_map(|n| file.write_all_at(&[7; 5000], n % 64 * 5000).err());
            (failed.unwrap(), Instant::now())
        });
        written.recv_timeout(Duration::from_secs(20)).expect("it writes");
        std::thread::sleep(Duration::from_millis(50));
        let failed = Instant::now();
        device.abandon();
        let (e, at) = busy.join().unwrap();
        assert!(at.duration_since(failed) < Duration::from_secs(1), "{e}");
        let late = file.write_all_at(b"x", 0).expect_err("nobody is there");
        assert!(failed.elapsed() < Duration::from_secs(2), "{late}");
        [e, late].map(|e| Errno(e.raw_os_error().unwrap_or(0)))
    });
    assert!(heard.iter().all(|e| [Errno::IO, Errno::NODEV].contains(e)), "{heard:?}");
    assert!(matches!(serving.join().unwrap(), Err(ServeError::Failed)), "it does not look like a clean end");
    assert!(Client::connect(&path).is_err(), "no newcomer finds it");
}
