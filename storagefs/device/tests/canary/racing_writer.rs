//! A client's second thread changes queue entries while the device takes them. Each is copied once, and what was
//! checked is what runs; a device that looks twice (the planted bug) is found out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weldfs::{AttachOptions, Connector};
use weldfs_ciscops::ring::{CqConsumer, QueueMemory, RingMemory, SqProducer};
use weldfs_ciscops::{Opcode, Sqe};
use weldfs_device::DeviceConfig;
use weldfs_journal::canary::{self, Canary};
use weldfs_kernel_shim::{Embedded, Source};

const DEPTH: u32 = 64;

/// Publishes sound entries for `time` while another thread makes them unsound and sound again. Whether the device
/// took no harm.
fn survives(time: Duration) -> bool {
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
    let transport = embedded.attach(&AttachOptions::default()).unwrap();
    let parts = transport.new_queue(DEPTH, 1 << 16).unwrap();
    let memory = QueueMemory::new(parts.region, &parts.layout).unwrap();
    let (mut sq, mut cq) = (SqProducer::new(memory.clone()), CqConsumer::new(memory.clone()));
    let sound = Sqe { opcode: Opcode::Nop as u16, ..Sqe::default() };
    let unsound = Sqe { opcode: u16::MAX, ..sound };
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                memory.write_sqe(n % DEPTH, if (n / DEPTH).is_multiple_of(2) { &unsound } else { &sound });
                n = n.wrapping_add(1);
            }
        });
        while start.elapsed() < time && !embedded.device().is_poisoned() && cq.closed().is_none() {
            while sq.push(&sound).is_ok() {}
            sq.publish();
            if sq.needs_doorbell() {
                rustix::io::write(&*parts.doorbell, &1u64.to_ne_bytes()).unwrap();
            }
            while cq.pop().is_some() {}
            cq.release();
        }
        stop.store(true, Ordering::Relaxed);
    });
    transport.detach();
    !embedded.device().is_poisoned()
}

#[test]
fn an_entry_that_changes_while_it_is_taken_is_read_once() {
    let _turn = crate::TURN.lock();
    assert!(survives(Duration::from_secs(2)));
    canary::plant(Some(Canary::SqeReadTwice));
    let survived = survives(Duration::from_secs(60));
    canary::plant(None);
    assert!(!survived, "entries were read twice, and nobody noticed");
}
