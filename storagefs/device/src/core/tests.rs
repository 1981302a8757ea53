//! A core that fails outside an operation: nothing waits for it, neither a client nor whoever ends the device.

use std::time::{Duration, Instant};

use weldfs_ciscops::ring::SqProducer;
use weldfs_ciscops::{At, Command, CqConsumer, Cqe, Errno, Handle, Op, OpenFlags, PoolRange, QueueMemory};
use weldfs_journal::{ManualClock, Medium, SeededRandom};

use super::*;
use crate::limits::POOL_BYTES_SESSION_MAX;
use crate::{Device, QueueParts, Session};
use weldfs_fs::Cred;
use weldfs_media::{CowImage, CowMedium, CrashModel, RamMedium};
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

fn device(cores: usize) -> Device {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(64 << 20));
    device_on(medium, DeviceConfig { cores, ..DeviceConfig::default() })
}

fn device_on(medium: Arc<dyn Medium>, config: DeviceConfig) -> Device {
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
    format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
    let options = MountOptions { memory: 16 << 20, ..MountOptions::new(clock, random) };
    let (store, _) = weldfs_fs::mount(medium, options).unwrap();
    Device::start(store, config).unwrap()
}

/// A client by hand.
struct Client {
    parts: QueueParts,
    sq: SqProducer,
    cq: CqConsumer,
}

impl Client {
    fn new(session: &Session) -> Client {
        let parts = session.new_queue_local(8, 4096).unwrap();
        let memory = QueueMemory::new(parts.region.clone(), &parts.layout).unwrap();
        Client { parts, sq: SqProducer::new(memory.clone()), cq: CqConsumer::new(memory) }
    }

    fn send(&mut self, op: Op) {
        self.sq.push(&Command::new(0, op).encode()).unwrap();
        self.sq.publish();
        if self.sq.needs_doorbell() {
            rustix::io::write(&self.parts.doorbell, &1u64.to_ne_bytes()).unwrap();
        }
    }

    /// Sleeps until something is heard: a completion, or that the queue is closed.
    fn hear(&mut self) -> Option<Errno> {
        self.listen().err()
    }

    fn listen(&mut self) -> Result<Cqe, Errno> {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.cq.pop() {
                return Ok(cqe);
            }
            if let Some(errno) = self.cq.closed() {
                return Err(errno);
            }
            assert!(start.elapsed() < Duration::from_secs(1), "a client is left asleep");
            // Longer than the test allows: only a wake-up ends it in time.
            self.cq.wait(Duration::from_secs(10));
        }
    }

    /// Runs a command; its first result, or why it failed.
    fn ask(&mut self, op: Op) -> Result<u64, Errno> {
        self.send(op);
        let cqe = self.listen()?;
        if cqe.status == 0 { Ok(cqe.result) } else { Err(Errno(cqe.status)) }
    }
}

#[test]
fn a_core_that_panics_outside_an_operation_leaves_nobody_waiting() {
    for (cores, bad) in [(1, 0), (3, 0), (3, 2)] {
        let device = device(cores);
        let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
        // One queue pair per core, and a command through each of them.
        let mut clients: Vec<_> = (0..cores).map(|_| Client::new(&session)).collect();
        for c in &mut clients {
            c.send(Op::Syncfs);
            assert_eq!(c.hear(), None, "it is answered");
        }
        std::thread::scope(|s| {
            let asleep: Vec<_> = clients.iter_mut().map(|c| s.spawn(|| c.hear())).collect();
            std::thread::sleep(Duration::from_millis(20));
            device.core.threads[bad].inbox.send(Message::Panic);
            for client in asleep {
                let heard = client.join().unwrap();
                assert!([Some(Errno::IO), Some(Errno::NODEV)].contains(&heard), "core {bad} of {cores}: {heard:?}");
            }
        });
        assert!(device.is_abandoned() && device.is_poisoned());
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut bell = [rustix::event::PollFd::from_borrowed_fd(device.failure(), rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut bell, Some(&second)), Ok(1), "whoever serves it hears of it");
        assert!(matches!(device.attach(Cred::root(), [1; 16], b""), Err(Errno::NODEV)));
        // What is sent now belongs to no session any more, and shutting down does not wait for it.
        clients[0].send(Op::Fsync { h: Handle::ROOT });
        device.shutdown();
        let usage = device.usage();
        assert_eq!((usage.sessions, usage.queues, usage.inode_queues), (0, 0, 0), "{usage:?}");
        assert!(session.new_queue_local(8, 4096).is_err() && session.is_closing());
    }
}

#[test]
fn a_device_taken_out_of_service_in_the_middle_of_commands_ends_and_gives_back_what_they_held() {
    for cores in [1, 2] {
        let device = device(cores);
        let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
        let mut clients: Vec<_> = (0..4).map(|_| Client::new(&session)).collect();
        clients.iter_mut().for_each(|c| (0..8).for_each(|_| c.send(Op::Syncfs)));
        device.abandon();
        device.abandon();
        let start = Instant::now();
        while clients.iter().any(|c| c.cq.closed().is_none()) {
            assert!(start.elapsed() < Duration::from_secs(1), "not every queue is closed");
            std::thread::yield_now();
        }
        device.shutdown();
        let usage = device.usage();
        assert_eq!((usage.sessions, usage.queues, usage.inode_queues), (0, 0, 0), "{usage:?}");
    }
}

#[test]
fn what_a_session_collects_and_its_pools_have_one_bound() {
    let device = device(1);
    let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
    let mut client = Client::new(&session);
    let state = device.core.sessions.all().into_iter().next().unwrap();
    let path = PoolRange::new(0, 1);
    let memory = QueueMemory::new(client.parts.region.clone(), &client.parts.layout).unwrap();
    memory.pool(&client.parts.layout).unwrap().slice(path).unwrap().copy_from(b"f");
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let h = client.ask(Op::open(Handle::ROOT, path, flags, 0o600));
    let h = Handle::from_wire(h.unwrap());
    let txn = Handle::from_wire(client.ask(Op::TxnBegin).unwrap());
    let write = Op::TxnWrite { txn, h, at: At::End, src: PoolRange::new(0, 100) };
    let (queues, before) = state.queues();
    assert!(queues == 1 && before > 0);
    // All but a little is taken.
    let rest = POOL_BYTES_SESSION_MAX - before - 1000;
    state.charge_staged(rest).unwrap();
    assert_eq!(client.ask(write), Err(Errno::NOMEM), "its own memory is charged, too");
    assert!(matches!(session.new_queue_local(8, 4096), Err(Errno::NOMEM)), "a pool has no room beside it");
    assert_eq!(state.queues(), (1, before + rest), "what was refused is not counted");
    state.release_staged(rest);
    assert_eq!(client.ask(write), Ok(100));
    assert!(state.queues().1 > before + 100);
    let pool = session.new_queue_local(8, 4096).unwrap();
    assert_eq!(client.ask(Op::TxnAbort { txn }), Ok(0));
    assert_eq!(state.queues(), (2, 2 * before));
    drop((pool, state));
    device.shutdown();
}

/// A SIGTERM waited for all that had been removed just before.
#[test]
fn a_device_that_ends_frees_no_more_than_it_has_begun_to() {
    let device = device(1);
    let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
    let mut client = Client::new(&session);
    let memory = QueueMemory::new(client.parts.region.clone(), &client.parts.layout).unwrap();
    let path = PoolRange::new(0, 1);
    memory.pool(&client.parts.layout).unwrap().slice(path).unwrap().copy_from(b"f");
    // Here its thread does nothing: what it would do is done below.
    device.core.maintenance.stop();
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let h = client.ask(Op::open(Handle::ROOT, path, flags, 0o600));
    let h = Handle::from_wire(h.unwrap());
    // More windows than one step frees.
    for window in 0..64 {
        let write = Op::Write { h, at: At::Offset(window << 20), src: PoolRange::new(0, 1) };
        assert_eq!(client.ask(write), Ok(1));
    }
    assert_eq!(client.ask(Op::Close { h }), Ok(0));
    assert_eq!(client.ask(Op::Unlink { base: Handle::ROOT, path }), Ok(0));
    assert!(device.core.store.reclaim_pending());
    assert_eq!(super::super::maintainer::reclaim(&device.core, true), Ok(true));
    assert!(device.core.store.reclaim_pending(), "it has freed all of it");
    drop((client, session));
    device.shutdown();
    device.core.store.reclaim_for(u64::MAX).unwrap();
    assert!(!device.core.store.reclaim_pending());
}

#[test]
fn sessions_and_placeholders_leave_descriptors_for_those_who_come() {
    for (descriptors, sessions) in [(256, 51), (1024, 204), (4096, 819), (8192, 1024), (65_536, 1024), (1 << 20, 1024)]
    {
        let (most, placeholders) = stock_of(descriptors);
        assert_eq!(most, sessions);
        let left = descriptors - 2 * most - placeholders;
        assert!(left >= (descriptors / 3).min(2000), "{left} of {descriptors} left");
    }
}

/// Blocks are read into caches by threads of their own on block media, pages made by the one that checkpoints; a core
/// drops them, and an allocator that keeps a heap for each thread keeps them until that thread looks.
#[test]
fn every_thread_that_allocates_for_the_caches_gives_back_when_the_device_is_at_rest() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let at_rest = || TOLD.lock().push(std::thread::current().name().unwrap_or_default().into());
    let medium = CowMedium::new(CowImage::new(vec![0; 64 << 20]), CrashModel::Block);
    let config = DeviceConfig { cores: 2, at_rest: Some(at_rest), ..DeviceConfig::default() };
    let device = device_on(Arc::new(medium), config);
    let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
    let mut client = Client::new(&session);
    assert_eq!(client.ask(Op::Syncfs), Ok(0));
    let start = Instant::now();
    let all = ["weld-dev-0", "weld-dev-1", "weld-maint", "weld-io-0", "weld-io-1", "weld-io-2", "weld-io-3"];
    let told = |name: &&str| TOLD.lock().iter().any(|told| told == name);
    while !all.iter().all(told) {
        assert!(start.elapsed() < Duration::from_secs(30), "told: {:?}", TOLD.lock());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop((client, session));
    device.shutdown();
}
