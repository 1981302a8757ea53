//! What is read cold from a `block` medium is read in long pieces: blocks of a file that lie together are one I/O.

use std::sync::Arc;
use weldfs_ciscops::interp::Outcome;
use weldfs_ciscops::{At, Handle, Op, OpenFlags, PoolRange};
use weldfs_fs::driver::Direct;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::{FaultKind, FaultOn, FaultPlan, FaultyMedium, ImageKind, create};
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

const MIB: u32 = 1 << 20;
/// Where the pool has what is written, and what is read.
const SRC: u32 = 64 << 10;
const OUT: u32 = 4 * MIB;

/// A file of 2 MiB on a medium that counts reads, with nothing of its content in memory.
struct Cold {
    medium: Arc<FaultyMedium>,
    direct: Direct,
    file: Handle,
    _folder: tempfile::TempDir,
}

fn options(memory: usize) -> MountOptions {
    let o = MountOptions::new(Arc::new(ManualClock::new(1_000_000_000)), Arc::new(SeededRandom::new(3)));
    MountOptions { memory, ..o }
}

fn ok(o: Outcome) -> u64 {
    assert!(o.is_ok(), "{o:?}");
    o.result
}

fn open(direct: &mut Direct, flags: OpenFlags) -> Handle {
    let path = direct.put(0, b"file");
    Handle::from_wire(ok(direct.run(Op::open(Handle::ROOT, path, flags, 0o644))))
}

fn content() -> Vec<u8> {
    (0..2 * MIB).map(|n| (n / 4096 * 7 + n % 251) as u8).collect()
}

impl Cold {
    /// Mounted with so many bytes of memory. `backwards`: its blocks were written from the last to the first.
    fn new(memory: usize, backwards: bool) -> Cold {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        let medium = Arc::new(FaultyMedium::new(create(&path, ImageKind::Block, 64 << 20, false).expect("an image")));
        let as_medium: Arc<dyn Medium> = medium.clone();
        let o = options(memory);
        format(&as_medium, &MkfsOptions::default(), &*o.clock, &*o.random).expect("large enough");
        let mount = |memory| {
            let store = weldfs_fs::mount(as_medium.clone(), options(memory)).expect("clean").0;
            Direct::new(store, 8 << 20)
        };
        let mut direct = mount(64 << 20);
        let h = open(&mut direct, OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE);
        let (piece, all) = (if backwards { 4096 } else { MIB as usize }, content());
        let mut parts: Vec<(usize, &[u8])> = all.chunks(piece).enumerate().collect();
        if backwards {
            parts.reverse();
        }
        for (n, part) in parts {
            let src = direct.put(SRC, part);
            ok(direct.run(Op::Write { h, at: At::Offset((n * piece) as u64), src }));
        }
        direct.close_all();
        direct.store().unmount().expect("healthy");
        let mut direct = mount(memory);
        let file = open(&mut direct, OpenFlags::READ);
        Cold { medium, direct, file, _folder: folder }
    }

    /// Reads and looks at what is read; how many reads of the medium that took.
    fn read(&mut self, off: u64, len: u32) -> u64 {
        self.medium.plan(Some(FaultPlan { on: FaultOn::Read, nth: u64::MAX, kind: FaultKind::Eio, sticky: false }));
        let n = ok(self.direct.run(Op::Read {
            h: self.file,
            at: At::Offset(off),
            out: PoolRange::new(OUT, len),
            watch: 0,
        }));
        let bytes = self.direct.take(PoolRange::new(OUT, n as u32));
        let (all, from) = (content(), off as usize);
        assert!(bytes[..] == all[from..all.len().min(from + len as usize)], "{len} bytes at {off}");
        self.medium.seen()
    }
}

#[test]
fn blocks_that_lie_together_are_read_in_one_go() {
    let mut cold = Cold::new(64 << 20, false);
    // Four pieces of 64 blocks, the file's place in the map, and some for where its pieces end.
    let reads = cold.read(0, MIB);
    assert!(reads <= 12, "{reads} reads for a mebibyte");
    // No more than what was asked for is fetched: the second mebibyte is as cold as before.
    let reads = cold.read(u64::from(MIB) + 100, 100);
    assert_eq!(reads, 1, "for 100 bytes");
    // A block that is there already ends a piece.
    let reads = cold.read(u64::from(MIB), MIB);
    assert!((4..=12).contains(&reads), "{reads} reads for the mebibyte of which one block is here");
    assert_eq!(cold.read(0, 2 * MIB), 0, "all is here");
}

#[test]
fn blocks_in_any_order_and_with_no_memory_to_keep_them_are_read_right() {
    let mut cold = Cold::new(64 << 20, true);
    cold.read(4000, MIB + 5000);
    cold.read(0, 2 * MIB);
    let mut cold = Cold::new(1 << 20, false);
    for off in [0, 123, 4096 * 17 + 5] {
        cold.read(off, 2 * MIB - 300_000);
    }
}
