//! What goes wrong while a slot computes: it is lost, its client goes, the device ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs_ciscops::program::{Body, Builder, Bytes, Micro, Place};
use weldfs_ciscops::ring::SqProducer;
use weldfs_ciscops::{
    ChecksumKind, Command, CqConsumer, Cqe, Errno, Handle, Op, OpenFlags, Placement, PoolRange, QueueMemory,
};
use weldfs_fpga::config::{CardConfig, Reconfigure};
use weldfs_fpga::status::SlotState;
use weldfs_journal::{ManualClock, Medium, SeededRandom};

use crate::emulated::odd::LOSES;
use crate::{Device, DeviceConfig, QueueParts, Session};
use weldfs_fs::Cred;
use weldfs_media::RamMedium;
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

const POOL: u32 = 256 << 10;

fn device() -> Device {
    // What is small is computed on a slot's own thread, too.
    with_card(CardConfig { reconfigure: Reconfigure::NONE, inline_bytes: 0, ..CardConfig::with_slots(1) })
}

pub(crate) fn with_card(card: CardConfig) -> Device {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(64 << 20));
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
    format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
    let (store, _) = weldfs_fs::mount(medium, MountOptions::new(clock, random)).unwrap();
    Device::start(store, DeviceConfig { card, ..DeviceConfig::default() }).unwrap()
}

/// A client by hand.
pub(crate) struct Client {
    parts: QueueParts,
    sq: SqProducer,
    cq: CqConsumer,
}

impl Client {
    pub(crate) fn new(session: &Session) -> Client {
        let parts = session.new_queue_local(8, POOL).unwrap();
        let memory = QueueMemory::new(parts.region.clone(), &parts.layout).unwrap();
        Client { parts, sq: SqProducer::new(memory.clone()), cq: CqConsumer::new(memory) }
    }

    pub(crate) fn send(&mut self, command: &Command) {
        self.sq.push(&command.encode()).unwrap();
        self.sq.publish();
        if self.sq.needs_doorbell() {
            rustix::io::write(&self.parts.doorbell, &1u64.to_ne_bytes()).unwrap();
        }
    }

    pub(crate) fn listen(&mut self) -> Cqe {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.cq.pop() {
                return cqe;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no answer");
            self.cq.wait(Duration::from_millis(100));
        }
    }

    pub(crate) fn put(&self, at: u32, bytes: &[u8]) -> PoolRange {
        let range = PoolRange::new(at, bytes.len() as u32);
        let pool = self.parts.region.bytes(self.parts.layout.pool_off as usize, POOL as usize).unwrap();
        pool.sub(at as usize, bytes.len()).copy_from(bytes);
        range
    }

    pub(crate) fn open(&mut self, name: &str) -> Handle {
        let (path, flags) = (self.put(0, name.as_bytes()), OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE);
        let op = Op::open(Handle::ROOT, path, flags, 0o600);
        self.send(&Command::new(0, op));
        Handle::from_wire(self.listen().ok().unwrap().0)
    }

    fn program(&self, body: &Body) -> Op {
        Body::op(self.put(4096, &body.bind(&[]).unwrap()))
    }
}

/// Bytes through a kernel and to the end of a file.
fn body(h: Handle, kernel: &str) -> Body {
    let mut b = Builder::new();
    let file = b.take(h, weldfs_ciscops::Access::WRITE);
    let literal = b.literal(&[7; 100]);
    let (given, made) = (b.buffer(100), b.buffer(100));
    b.push(Micro::Fill { buf: given, from: literal, append: false });
    b.kernel(kernel, &[], given, made);
    b.write(file, Place::End, Bytes::Buffer(made));
    b.finish().unwrap()
}

#[test]
fn a_lost_slot_is_eio_to_the_one_command_that_had_it() {
    let device = device();
    let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
    let mut client = Client::new(&session);
    let file = client.open("/f");
    for (kernel, placement, errno) in [
        ("test-broken", Placement::Auto, Errno::IO.0),
        ("pass-through", Placement::Auto, 0),
        // No core has that kernel.
        ("test-broken", Placement::Slot { or_core: true }, Errno::IO.0),
        ("pass-through", Placement::Slot { or_core: true }, 0),
    ] {
        let op = client.program(&body(file, kernel));
        client.send(&Command::new(0, op).with_placement(placement));
        let cqe = client.listen();
        assert_eq!((cqe.status, cqe.micro_failed), (errno, if errno == 0 { 0 } else { 3 }), "{kernel}");
    }
    client.send(&Command::new(0, Op::Seek { h: file, whence: weldfs_ciscops::Whence::End, off: 0 }));
    assert_eq!(client.listen().ok(), Ok((200, 0)), "only those that went well wrote");
    assert!(device.card().status().slots.iter().map(|s| s.faults).sum::<u64>() >= 2);
    let total = device.stats().total;
    assert_eq!((total.slot_fallbacks, total.slot_packets), (0, 4));
}

/// `append_checksum_write` in a slot whose kernel is lost in the middle of its packet.
#[test]
fn a_stage_whose_slot_is_lost_in_the_middle_is_eio_or_a_cores_where_that_is_allowed() {
    let device = device();
    let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
    let mut client = Client::new(&session);
    let mut bad = vec![7; 200_000];
    bad[150_000..][..LOSES.len()].copy_from_slice(LOSES);
    let good = vec![9; 200_000];
    let file = client.open("f");
    let append = |client: &mut Client, payload: &[u8], or_core: bool| {
        let src = client.put(8192, payload);
        let op = Op::AppendChecksumWrite { h: file, kind: ChecksumKind::Crc32c, src };
        client.send(&Command::new(0, op).with_placement(Placement::Slot { or_core }));
        client.listen()
    };
    let faults = || device.card().status().slots.iter().map(|s| s.faults).sum::<u64>();
    let lost = append(&mut client, &bad, false);
    assert_eq!((lost.status, lost.micro_failed, faults()), (Errno::IO.0, 2, 1));
    assert_eq!(append(&mut client, &good, false).status, 0, "the slot serves the next");
    assert_eq!(device.stats().total.slot_fallbacks, 0);
    let core = append(&mut client, &bad, true);
    assert_eq!((core.status, core.result2), (0, weldfs_ciscops::functions::crc32c(&bad).into()), "as on a core");
    assert_eq!((device.stats().total.slot_fallbacks, faults()), (1, 2));
    let all = 2 * (200_000 + 4);
    client.send(&Command::new(0, Op::Seek { h: file, whence: weldfs_ciscops::Whence::End, off: 0 }));
    assert_eq!(client.listen().ok(), Ok((all, 0)), "the one that failed wrote nothing");
}

#[test]
fn a_client_that_goes_and_a_device_that_ends_while_a_slot_computes_end_in_time() {
    let device = device();
    let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
    let mut client = Client::new(&session);
    let file = client.open("/f");
    let op = client.program(&body(file, "test-slow"));
    (0..6).for_each(|_| client.send(&Command::new(0, op)));
    let held = || device.card().status().slots.iter().any(|s| s.state == SlotState::Held && s.slot > 0);
    let start = Instant::now();
    while !held() {
        assert!(start.elapsed() < Duration::from_secs(20), "the slot is not used");
        std::thread::yield_now();
    }
    let id = session.id();
    drop((session, client));
    let start = Instant::now();
    while device.has_session(id) {
        assert!(start.elapsed() < Duration::from_secs(20), "the session does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Others go on.
    let session = device.attach(Cred::root(), [1; 16], b"").unwrap();
    let mut client = Client::new(&session);
    let file = client.open("/g");
    let op = client.program(&body(file, "pass-through"));
    client.send(&Command::new(0, op));
    assert_eq!(client.listen().status, 0);
    let op = client.program(&body(file, "test-slow"));
    (0..3).for_each(|_| client.send(&Command::new(0, op)));
    device.shutdown();
}
