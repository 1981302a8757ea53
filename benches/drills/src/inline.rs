//! An embedded device, whose commands the calling thread runs: from the call to its result, client and device together.

use std::sync::Arc;
use weldfs::{At, Client, Command, Durability, Handle, Op, PoolRange, Queue};
use weldfs_ciscops::flags::{ChecksumKind, OpenFlags};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

/// Operations before those that are counted.
pub const WARM: u64 = 64;
const BLOCKS: u64 = 64;
const DEPTH: u32 = 32;
const FLAGS: OpenFlags = OpenFlags::WRITE.union(OpenFlags::READ).union(OpenFlags::CREATE);

/// A client of an embedded device.
pub struct Drill {
    queue: Queue,
    log: Handle,
    src: PoolRange,
    out: PoolRange,
    names: PoolRange,
    number: u64,
    _client: Client,
}

impl Drill {
    pub fn new() -> Drill {
        // No command is long enough to give way, however slow the tool is.
        let quantum_ns = 1_000_000_000;
        let config = DeviceConfig { durability: Durability::Volatile, quantum_ns, ..DeviceConfig::default() };
        let device = Embedded::open(&Source::Ram(256 << 20), config).expect("a device");
        let client = Client::with(Arc::new(device)).expect("a client");
        let mut queue = client.queue(DEPTH, 1 << 20).expect("a queue");
        let (base, path) = (Handle::ROOT, queue.stage(b"log").expect("room"));
        let open = Op::open(base, path, FLAGS, 0o644);
        let opened = queue.execute(&Command::new(0, open)).expect("it opens");
        let (src, out) = (queue.stage(&[7; 4096]).expect("room"), queue.alloc(4096).expect("room"));
        let (names, log) = (queue.alloc(DEPTH * 16).expect("room"), Handle::from_wire(opened.result));
        let mut drill = Drill { queue, log, src, out, names, number: 0, _client: client };
        drill.drive("append", 1, BLOCKS, uncounted);
        drill
    }

    fn op(&mut self, kind: &str) -> Op {
        let (h, src, out, base) = (self.log, self.src, self.out, Handle::ROOT);
        let n = self.number;
        self.number += 1;
        match kind {
            "nop" => Op::Nop,
            "read" => Op::Read { h, at: At::Offset(n % BLOCKS * 4096), out, watch: 0 },
            "append" => Op::Write { h, at: At::End, src },
            "append_checksum_write" => Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src },
            "stat" => Op::Stat { h, out: PoolRange { len: 256, ..out } },
            _ => {
                let path = PoolRange::new(self.names.off + n as u32 % DEPTH * 16, 16);
                let name = format!("file-{n:010}!");
                self.queue.pool().slice(path).expect("in the pool").copy_from(name.as_bytes());
                Op::OpenWriteClose { base, path, flags: FLAGS, mode: 0o644, at: At::Offset(0), src }
            }
        }
    }

    pub fn drive(&mut self, kind: &str, depth: u64, count: u64, work: fn(&mut Queue, &[Op])) {
        for _ in 0..count / depth {
            let ops: Vec<Op> = (0..depth).map(|_| self.op(kind)).collect();
            work(&mut self.queue, &ops);
        }
    }
}

/// The calls: what is counted.
#[inline(never)]
pub fn work(queue: &mut Queue, ops: &[Op]) {
    uncounted(queue, ops);
}

/// The same, outside of the count.
#[inline(always)]
pub fn uncounted(queue: &mut Queue, ops: &[Op]) {
    if let [op] = ops {
        let cqe = queue.execute(&Command::new(0, *op)).expect("a completion");
        assert_eq!(cqe.status, 0);
        return;
    }
    for op in ops {
        queue.submit(&Command::new(0, *op)).expect("room in the queue");
    }
    queue.flush();
    for _ in ops {
        let cqe = loop {
            match queue.reap().expect("no fault") {
                Some(cqe) => break cqe,
                None => queue.await_any().expect("it waits"),
            }
        };
        assert_eq!(cqe.status, 0);
    }
}
