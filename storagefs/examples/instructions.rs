//! Runs COUNT operations of one KIND on a device in memory, on the calling thread, for a tool that counts instructions;
//! fused ones in a MODE (default, macro, micro).
//!
//! The difference between two counts is the cost of the operations between them, free of start-up:
//! `valgrind --tool=callgrind target/release/examples/instructions append_checksum_write 3000 micro`, then the same
//! with 1000.
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::Instant;
use weldfs_ciscops::flags::ChecksumKind;
use weldfs_ciscops::{At, Handle, Op, TxnMode, flags::OpenFlags};
use weldfs_journal::{Clock, Medium, SystemRandom};
use weldfs_storagefs::fs::driver::Direct;
use weldfs_storagefs::media::RamMedium;
use weldfs_storagefs::mount::{MkfsOptions, format};
use weldfs_storagefs::store::{MountOptions, Store};

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

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_else(|| "append".into());
    let count: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let mode = match args.next().as_deref() {
        Some("macro") => TxnMode::Macro,
        Some("micro") => TxnMode::Micro,
        _ => TxnMode::Default,
    };
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(128 << 20));
    let clock: Arc<dyn Clock> = Arc::new(Monotonic(Instant::now()));
    format(&medium, &MkfsOptions::default(), &*clock, &SystemRandom).expect("memory takes a file system");
    let random = Arc::new(SystemRandom);
    let options = MountOptions::new(clock, random);
    let (store, _) = Store::mount(medium, options).expect("what was just formatted mounts");
    let mut device = Direct::new(store.clone(), 1 << 20);
    let (path, src) = (device.put(0, b"file"), device.put(4096, &[7; 4096]));
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let opened = device.run(Op::Open { base: Handle::ROOT, path, flags, mode: 0o644, placeholder: 0 });
    let h = Handle::from_wire(opened.result);
    for number in 0..count {
        let op = match kind.as_str() {
            "append" => Op::Write { h, at: At::End, src },
            "append_checksum_write" => Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src },
            "open_write_close" => {
                let path = device.put(0, format!("n{number:08}").as_bytes());
                Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at: At::Offset(0), src }
            }
            _ => panic!("KIND is append, append_checksum_write or open_write_close"),
        };
        let outcome = device.run_with(op, mode, false);
        assert_eq!(outcome.status, 0, "operation {number}");
        let end = device.last_end().expect("it left a record");
        store.journal().commit_through(end).expect("memory takes a commit");
    }
}
