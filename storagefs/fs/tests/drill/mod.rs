//! Operations of one kind on a file system in memory, on the calling thread, each with its commit: what the counter of
//! allocations runs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use weldfs_ciscops::flags::{ChecksumKind, OpenFlags};
use weldfs_ciscops::{At, Handle, Modify, Op, PoolRange, TxnMode};
use weldfs_fs::driver::Direct;
use weldfs_journal::{Clock, Lsn, Medium, SystemRandom};
use weldfs_media::RamMedium;
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

/// What there is to run.
pub const KINDS: [&str; 5] = ["append", "append_checksum_write", "open_write_close", "read_modify_write", "read"];
/// Blocks of the file that is read and modified.
const BLOCKS: u64 = 64;

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

/// A device with a file open for appending, and one of [`BLOCKS`] blocks.
pub struct Drill {
    device: Direct,
    src: PoolRange,
    log: Handle,
    table: Handle,
    committed: Option<Lsn>,
}

const FLAGS: OpenFlags = OpenFlags::WRITE.union(OpenFlags::READ).union(OpenFlags::CREATE);

fn open(device: &mut Direct, name: &[u8]) -> Handle {
    let path = device.put(0, name);
    let opened = device.run(Op::open(Handle::ROOT, path, FLAGS, 0o644));
    assert_eq!(opened.status, 0);
    Handle::from_wire(opened.result)
}

impl Drill {
    /// A fresh one.
    pub fn new() -> Drill {
        let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(128 << 20));
        let clock: Arc<dyn Clock> = Arc::new(Monotonic(Instant::now()));
        format(&medium, &MkfsOptions::default(), &*clock, &SystemRandom).expect("memory takes a file system");
        let options = MountOptions::new(clock, Arc::new(SystemRandom));
        let (store, _) = weldfs_fs::mount(medium, options).expect("what was just formatted mounts");
        let mut device = Direct::new(store, 1 << 20);
        let (log, table) = (open(&mut device, b"log"), open(&mut device, b"table"));
        let src = device.put(4096, &[7; 4096]);
        for block in 0..BLOCKS {
            let written = device.run(Op::Write { h: table, at: At::Offset(block * 4096), src });
            assert_eq!(written.status, 0);
        }
        Drill { device, src, log, table, committed: None }
    }

    /// Runs the operations with these numbers, each durable when the next one starts.
    #[inline(never)]
    pub fn work(&mut self, kind: &str, numbers: Range<u64>, mode: TxnMode) {
        for number in numbers {
            let op = self.op(kind, number);
            let outcome = self.device.run_with(op, mode, false);
            assert_eq!(outcome.status, 0, "operation {number}");
            let end = self.device.last_end();
            if let Some(end) = end.filter(|_| end != self.committed) {
                self.committed = Some(end);
                self.device.store().journal().commit_through(end).expect("memory takes a commit");
            }
        }
    }

    fn op(&mut self, kind: &str, number: u64) -> Op {
        let (h, src) = (self.log, self.src);
        match kind {
            "append" => Op::Write { h, at: At::End, src },
            "append_checksum_write" => Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src },
            "open_write_close" => {
                let mut name = *b"n00000000";
                let digits = name.iter_mut().rev().take(8);
                digits.fold(number, |n, d| {
                    *d = b'0' + (n % 10) as u8;
                    n / 10
                });
                let path = self.device.put(0, &name);
                Op::OpenWriteClose { base: Handle::ROOT, path, flags: FLAGS, mode: 0o644, at: At::Offset(0), src }
            }
            "read_modify_write" => {
                let offset = number * 37 % BLOCKS * 4096 + number % 60 * 64;
                let (patch, old) = (PoolRange::new(8192, 64), PoolRange::new(8192 + 64, 64));
                Op::ReadModifyWrite { h: self.table, offset, len: 64, modify: Modify::Patch(patch), out: old }
            }
            "read" => {
                let out = PoolRange::new(16384, 4096);
                Op::Read { h: self.table, at: At::Offset(number % BLOCKS * 4096), out, watch: 0 }
            }
            _ => unreachable!("not a kind: {kind}"),
        }
    }
}
