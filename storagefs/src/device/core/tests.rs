//! A core that fails outside an operation: nobody waits for it, neither a client nor whoever ends the device.

use std::time::{Duration, Instant};

use weldfs_ciscops::ring::SqProducer;
use weldfs_ciscops::{Command, CqConsumer, Handle, Op, QueueMemory};
use weldfs_journal::{ManualClock, Medium, SeededRandom};

use super::*;
use crate::device::{Device, QueueParts, Session};
use crate::fs::Cred;
use crate::media::RamMedium;
use crate::mount::{MkfsOptions, format};
use crate::store::MountOptions;

fn device(cores: usize) -> Device {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(64 << 20));
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
    format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
    let options = MountOptions { memory: 16 << 20, ..MountOptions::new(clock, random) };
    let (store, _) = Store::mount(medium, options).unwrap();
    Device::start(store, DeviceConfig { cores, ..DeviceConfig::default() }).unwrap()
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
        let start = Instant::now();
        while self.cq.pop().is_none() {
            if let Some(errno) = self.cq.closed() {
                return Some(errno);
            }
            assert!(start.elapsed() < Duration::from_secs(1), "a client is left asleep");
            // Longer than the test allows: only a wake-up ends it in time.
            self.cq.wait(Duration::from_secs(10));
        }
        None
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
        // What is sent now is nobody's any more, and shutting down does not wait for it.
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
