//! A device's whole way, on the calling thread: from its rings to their completions.
//!
//! What is counted is the device's own loop, and the taking of completions; the client puts entries into the ring
//! outside of [`work`].

use std::sync::Arc;
use std::time::Instant;
use weldfs_ciscops::catalogue::{LogRecover, Template};
use weldfs_ciscops::flags::{Access, ChecksumKind, OpenFlags};
use weldfs_ciscops::program::{Body, Builder, Int, Micro, Order, Record, SumKind, To, Value};
use weldfs_ciscops::{
    At, ChecksumState, Command, CqConsumer, Cqe, Durability, Handle, Modify, Op, Placement, PoolRange, QueueMemory,
    SharedRegion, SqProducer,
};
use weldfs_device::{Device, DeviceConfig, Session};
use weldfs_fpga::config::{CardConfig, Reconfigure};
use weldfs_fs::Cred;
use weldfs_journal::{Clock, Medium, SystemRandom};
use weldfs_media::RamMedium;
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::{MountOptions, Store};
use zerocopy::IntoBytes;

/// Files, and blocks of the file that is read and modified; names of one `stat_many`.
const FILES: u64 = 64;
const FLAGS: OpenFlags = OpenFlags::WRITE.union(OpenFlags::READ).union(OpenFlags::CREATE);
/// Waits for so many completions.
pub type Wait = fn(&mut dyn FnMut() -> bool, &mut CqConsumer, u64);

/// Where things lie in the pool: one payload, a name for each command in flight, what a batch needs.
const SRC: PoolRange = PoolRange { off: 0, len: 4096 };
const NAMES: u32 = 4096;
const NAME: u32 = 16;
const ITEMS: PoolRange = PoolRange { off: 8192, len: FILES as u32 * 64 };
const RESULTS: PoolRange = PoolRange { off: 16384, len: FILES as u32 * 32 };
const OUT: u32 = 65536;
const BODIES: u32 = 640 << 10;
const BODY: u32 = 1024;
/// Reads of one `index_walk`; records of the log that `log_recover` walks over, of 4 KiB behind a head.
const WALK: u64 = 8;
const RECORDS: u64 = 16;
const HEAD: u32 = 8;
const POOL: u32 = 1 << 20;

/// The system's monotonic clock through the standard library, which runs under every emulator.
struct Monotonic(Instant);

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
    fn wall(&self) -> (i64, u32) {
        (0, 0)
    }
}

/// A client with one queue pair.
pub struct Drill {
    sq: SqProducer,
    cq: CqConsumer,
    pool: SharedRegion,
    log: Handle,
    table: Handle,
    nodes: Handle,
    records: Handle,
    sequence: u64,
    _session: Session,
}

fn mount(medium: &Arc<dyn Medium>) -> Arc<Store> {
    let options = MountOptions::new(Arc::new(Monotonic(Instant::now())), Arc::new(SystemRandom));
    weldfs_fs::mount(medium.clone(), options).expect("it mounts").0
}

fn on(store: Arc<Store>, body: impl FnOnce(&mut Drill, &mut dyn FnMut() -> bool)) {
    // No command is long enough to give way, however slow the tool is: counts would follow the clock.
    let quantum_ns = 1_000_000_000;
    // Nor is a kernel waited for while it is loaded.
    let card = CardConfig { reconfigure: Reconfigure::NONE, ..CardConfig::default() };
    let config = DeviceConfig { durability: Durability::Volatile, quantum_ns, card, ..DeviceConfig::default() };
    let run = |device: &Device, turn: &mut dyn FnMut() -> bool| {
        let mut drill = Drill::new(device);
        (drill.log, drill.table) = (drill.open("log", turn), drill.open("table", turn));
        (drill.nodes, drill.records) = (drill.open("nodes", turn), drill.open("records", turn));
        body(&mut drill, turn);
    };
    Device::on_this_thread(store, config, run).expect("a device on this thread");
}

/// Makes a file system and files in it, mounts it again if all is to come from the tree, and runs `body`.
pub fn run(kind: &str, tree: bool, body: impl FnOnce(&mut Drill, &mut dyn FnMut() -> bool)) {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(256 << 20));
    format(&medium, &MkfsOptions::default(), &Monotonic(Instant::now()), &SystemRandom).expect("a file system");
    let mut store = mount(&medium);
    on(store.clone(), |drill, turn| drill.prepare(turn));
    if tree {
        store.unmount().expect("it unmounts");
        drop(store);
        store = mount(&medium);
    }
    on(store, |drill, turn| {
        if kind.starts_with("read_checksum_verify") {
            drill.drive("append_checksum_write", 1, FILES, turn, uncounted);
        }
        // Pages into the cache, code into its place, a kernel into its slot: that takes turns as long as it takes.
        drill.drive(if tree { "open_read_close" } else { kind }, 1, FILES, turn, uncounted);
        body(drill, turn);
    });
}

/// Turns of the device until that many completions have come: what is counted.
#[inline(never)]
pub fn work(turn: &mut dyn FnMut() -> bool, cq: &mut CqConsumer, count: u64) {
    uncounted(turn, cq, count);
}

/// The same, outside of the count.
#[inline(always)]
pub fn uncounted(turn: &mut dyn FnMut() -> bool, cq: &mut CqConsumer, count: u64) {
    let mut come = 0;
    while come < count {
        turn();
        while let Some(cqe) = cq.pop() {
            assert_eq!(cqe.status, 0);
            come += 1;
        }
    }
}

impl Drill {
    fn new(device: &Device) -> Drill {
        let session = device.attach(Cred::root(), [0; 16], b"").expect("a session");
        let parts = session.new_queue_local(64, POOL).expect("a queue pair");
        let memory = QueueMemory::new(parts.region, &parts.layout).expect("its memory");
        let pool = memory.pool(&parts.layout).expect("its pool");
        let (sq, cq) = (SqProducer::new(memory.clone()), CqConsumer::new(memory));
        let none = Handle::ROOT;
        Drill { sq, cq, pool, log: none, table: none, nodes: none, records: none, sequence: 1, _session: session }
    }

    fn put(&self, range: PoolRange, bytes: &[u8]) {
        self.pool.slice(range).expect("within the pool").sub(0, bytes.len()).copy_from(bytes);
    }

    fn name(&self, slot: u64, name: &str) -> PoolRange {
        let range = PoolRange::new(NAMES + slot as u32 * NAME, name.len() as u32);
        self.put(range, name.as_bytes());
        range
    }

    fn submit(&mut self, op: Op, slot: bool) {
        let placement = if slot { Placement::Slot { or_core: false } } else { Placement::Device };
        let command = Command::new(self.sequence, op).with_durability(Durability::Volatile);
        let command = command.with_placement(placement);
        self.sequence += 1;
        self.sq.push(&command.encode()).expect("room in the ring");
    }

    fn take(&mut self) -> Cqe {
        let cqe = self.cq.pop().expect("a completion");
        assert_eq!(cqe.status, 0, "{cqe:?}");
        cqe
    }

    fn one(&mut self, op: Op, turn: &mut dyn FnMut() -> bool) -> Cqe {
        self.submit(op, false);
        self.sq.publish();
        while self.cq.available() < 1 {
            turn();
        }
        let cqe = self.take();
        self.cq.release();
        cqe
    }

    fn open(&mut self, name: &str, turn: &mut dyn FnMut() -> bool) -> Handle {
        let path = self.name(0, name);
        let open = Op::open(Handle::ROOT, path, FLAGS, 0o644);
        Handle::from_wire(self.one(open, turn).result)
    }

    fn prepare(&mut self, turn: &mut dyn FnMut() -> bool) {
        self.put(SRC, &[7; 4096]);
        for n in 0..FILES {
            self.one(Op::Write { h: self.table, at: At::Offset(n * 4096), src: SRC }, turn);
            let path = self.name(0, &format!("f{n:03}"));
            let (flags, at) = (FLAGS, At::Offset(0));
            self.one(Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at, src: SRC }, turn);
        }
        for n in 0..FILES {
            // The next node's place, and whatever else.
            self.put(SRC, &((n * 37 + 11) % FILES * 4096).to_le_bytes());
            self.one(Op::Write { h: self.nodes, at: At::Offset(n * 4096), src: SRC }, turn);
        }
        self.put(SRC, &[7; 4096]);
        let mut sum = ChecksumState::new();
        sum.update(&[7; 4096]);
        let head = [4096u32.to_le_bytes(), sum.value().to_le_bytes()].concat();
        for _ in 0..RECORDS {
            self.put(PoolRange::new(OUT, HEAD), &head);
            self.one(Op::Write { h: self.records, at: At::End, src: PoolRange::new(OUT, HEAD) }, turn);
            self.one(Op::Write { h: self.records, at: At::End, src: SRC }, turn);
        }
    }

    fn program(&self, slot: u64, body: &Body, ranges: &[PoolRange]) -> Op {
        let at = PoolRange::new(BODIES + slot as u32 * BODY, body.len() as u32);
        self.put(at, &body.bind(ranges).expect("its ranges"));
        Body::op(at)
    }

    /// Follows pointers from node to node, and reads the block that the last one points to.
    fn walk(&self, first: u64) -> Body {
        let mut b = Builder::new();
        let file = b.take(self.nodes, Access::READ);
        let (buf, at, leaf) = (b.buffer(8), b.register(), b.pool(4096));
        let read = |off, len, to| Micro::Read { file, off, len, to, whole: true, pad: false, fold: None, count: None };
        let mut from = Value::Imm(first);
        for _ in 1..WALK {
            b.push(read(from, Value::Imm(8), To::Buffer(buf)));
            b.push(Micro::Load { to: at, buf, off: Value::Imm(0), int: Int::U64_LE });
            from = Value::Reg(at);
        }
        b.push(read(from, Value::Imm(4096), To::Pool(leaf)));
        b.results(Some(at), None);
        b.finish().expect("a program")
    }

    /// Runs `count` operations, `depth` in flight: a full ring of them, all completions, the next ones.
    pub fn drive(&mut self, kind: &str, depth: u64, count: u64, turn: &mut dyn FnMut() -> bool, wait: Wait) {
        for first in (0..count).step_by(depth as usize) {
            for slot in 0..depth {
                let op = self.op(kind.trim_end_matches("_slot"), slot, first + slot);
                self.submit(op, kind.ends_with("_slot"));
            }
            self.sq.publish();
            wait(turn, &mut self.cq, depth);
            self.cq.release();
        }
    }

    fn op(&mut self, kind: &str, slot: u64, number: u64) -> Op {
        let (base, mode, at, src, flags) = (Handle::ROOT, 0o644, At::Offset(0), SRC, FLAGS);
        let (log, table) = (self.log, self.table);
        let out = |len| PoolRange::new(OUT + slot as u32 * 16384, len);
        let block = number % FILES * 4096;
        match kind {
            "nop" => Op::Nop,
            "read" => Op::Read { h: table, at: At::Offset(block), out: out(4096), watch: 0 },
            "append" => Op::Write { h: log, at: At::End, src },
            "append_checksum_write" => Op::AppendChecksumWrite { h: log, kind: ChecksumKind::Crc32c, src },
            "read_checksum_verify" => {
                let offset = number % FILES * (4096 + 4);
                Op::ReadChecksumVerify { h: log, kind: ChecksumKind::Crc32c, offset, len: 4096, out: out(4096) }
            }
            "open_write_close" => {
                let path = self.name(slot, &format!("n{:08}", self.sequence));
                Op::OpenWriteClose { base, path, flags, mode, at, src }
            }
            "open_read_close" => {
                let path = self.name(slot, &format!("f{:03}", number % FILES));
                Op::OpenReadClose { base, path, flags: OpenFlags::READ, offset: 0, out: out(4096) }
            }
            "read_modify_write" => {
                let modify = Modify::Patch(PoolRange::new(0, 64));
                let offset = block + number % 60 * 64;
                Op::ReadModifyWrite { h: table, offset, len: 64, modify, out: out(64) }
            }
            "stat" => {
                let path = self.name(slot, &format!("f{:03}", number % FILES));
                Op::StatPath { base, path, nofollow: false, out: out(256) }
            }
            "stat_many" => {
                for n in 0..FILES {
                    let path = PoolRange::new(32768 + n as u32 * NAME, 4);
                    self.put(path, format!("f{n:03}").as_bytes());
                    let stat = Op::StatPath { base, path, nofollow: false, out: out(256) };
                    let item = PoolRange::new(ITEMS.off + n as u32 * 64, 64);
                    self.put(item, Command::new(n, stat).encode().as_bytes());
                }
                Op::Batch { items: ITEMS, results: RESULTS }
            }
            "index_walk" => self.program(slot, &self.walk(block), &[out(4096)]),
            "log_recover" => {
                let (len, sum_order, sum) = (Int::U32_LE, Order::Little, SumKind::Crc32c);
                let head = HEAD as u8;
                let record = Record { head, len_at: 0, len, sum_at: Some(4), sum_order, sum, covers: head };
                let (offset, len) = (0, 2 * RECORDS * 4096);
                let recover = LogRecover { h: self.records, offset, len, record, offsets: 0, copy: None };
                self.program(slot, &recover.body().expect("a program"), &[])
            }
            "readdir_plus" => Op::ReadDirPlus { h: base, cookie: 0, out: out(16384), watch: 0 },
            _ => unreachable!("not a kind: {kind}"),
        }
    }
}
