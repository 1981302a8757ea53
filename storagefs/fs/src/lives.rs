//! What clients say of how long their writes will stay has the blocks of each life lie apart.

use super::driver::Direct;
use super::straight::plan_merged;
use std::collections::BTreeMap;
use std::sync::Arc;
use weldfs_ciscops::{
    At, ChecksumKind, Command, Cqe, FallocMode, Handle, Hints, Life, Op, OpenFlags, PoolRange, TxnMode,
};
use weldfs_journal::{Clock, Medium, RecordHead, SeededRandom, SystemClock};
use weldfs_media::{CrashModel, RamMedium, RecordingMedium};
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::{BlockView, MountOptions};
use zerocopy::IntoBytes;

/// Blocks of one write.
const BLOCKS: u32 = 16;
const BYTES: u32 = BLOCKS * 4096;
const TURNS: u64 = 8;
/// Files after which numbers of inodes share a place to allocate from, whatever is said of them.
const APART: usize = 16;

fn direct(medium: Arc<dyn Medium>) -> Direct {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    format(&medium, &MkfsOptions::default(), &*clock, &SeededRandom::new(1)).unwrap();
    let (store, _) = crate::mount(medium, MountOptions::new(clock, Arc::new(SeededRandom::new(2)))).unwrap();
    Direct::new(store, 1 << 17)
}

/// What writes, and how.
type Writes = fn(Handle, PoolRange, u64) -> Op;
const WAYS: [(&str, Writes, TxnMode); 6] = [
    ("merged", |h, src, off| Op::Write { h, at: At::Offset(off), src }, TxnMode::Default),
    ("batch", |h, src, off| Op::Write { h, at: At::Offset(off), src }, TxnMode::Default),
    ("write", |h, src, off| Op::Write { h, at: At::Offset(off), src }, TxnMode::Default),
    ("append", |h, src, _| Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src }, TxnMode::Default),
    ("append in steps", |h, src, _| Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src }, TxnMode::Micro),
    (
        "reserve",
        |h, _, off| Op::Fallocate { h, mode: FallocMode::Reserve, off, len: u64::from(BYTES) },
        TxnMode::Default,
    ),
];

/// As a posted write that others could join.
fn merged(device: &Direct, command: &Command, h: Handle) {
    let (store, file) = (device.store(), device.view().handle(h).unwrap());
    let alone = plan_merged(store, device.view(), device.pool(), (command, &mut || None), file, (0, 0));
    let mut plan = alone.unwrap().changed.plan;
    store.commit(&mut plan, RecordHead::op()).unwrap();
}

/// Whether the blocks of two files, written by turns, lie among each other.
fn meet(device: &mut Direct, name: &str, (writes, mode): (Writes, TxnMode), lives: [Life; 2]) -> bool {
    let files: Vec<Handle> = (0..=APART)
        .map(|i| {
            let path = device.put(0, format!("{name}{lives:?}{i}").as_bytes());
            let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
            let opened = device.run(Op::open(Handle::ROOT, path, flags, 0o644));
            assert_eq!(opened.status, 0);
            Handle::from_wire(opened.result)
        })
        .collect();
    let pair = [files[0], files[APART]];
    let src = device.put(4096, &vec![7; BYTES as usize]);
    for turn in 0..TURNS {
        for (h, life) in pair.iter().zip(lives) {
            let hints = Hints { life, ..Hints::NONE };
            let mut command = Command::new(0, writes(*h, src, turn * u64::from(BYTES))).with_mode(mode);
            if name == "batch" {
                let items = device.put(0, command.encode().as_bytes());
                command.op = Op::Batch { items, results: PoolRange::new(256, Cqe::SIZE as u32) };
            }
            let command = command.with_hints(hints);
            if name == "merged" {
                merged(device, &command, *h);
                continue;
            }
            let outcome = device.run_command(&command);
            assert_eq!((outcome.status, if name == "batch" { outcome.result2 } else { 0 }), (0, 0), "{name}");
        }
    }
    let mut owners = BTreeMap::new();
    for (which, h) in pair.into_iter().enumerate() {
        let ino = device.view().handle(h).unwrap().ino;
        let mut see = |_, view: BlockView| {
            owners.extend(view.addr.map(|at| (at.0, which)));
            true
        };
        device.store().block_map(ino, 0, TURNS * u64::from(BLOCKS), &mut see).unwrap();
    }
    assert!(owners.len() as u64 >= TURNS * u64::from(BLOCKS), "{name}: {owners:?}");
    let owners: Vec<usize> = owners.into_values().collect();
    // A stretch that comes to its end is gone on with elsewhere, so once or twice they may.
    owners.windows(2).filter(|two| two[0] != two[1]).count() as u64 >= TURNS
}

#[test]
fn blocks_of_another_life_lie_apart() {
    let media: [(&str, Arc<dyn Medium>); 2] = [
        ("memory", Arc::new(RamMedium::new(256 << 20))),
        ("a disk", Arc::new(RecordingMedium::new(256 << 20, CrashModel::Block))),
    ];
    for (kind, medium) in media {
        let mut device = direct(medium);
        for (name, writes, mode) in WAYS {
            // What is joined on a disk goes into the record, and has no blocks yet.
            if name == "merged" && !device.store().writes_directly() {
                continue;
            }
            let mut meet = |lives| meet(&mut device, name, (writes, mode), lives);
            assert!(meet([Life::Unknown; 2]) && meet([Life::Short; 2]), "{kind}, {name}: by turns in one place");
            for lives in [[Life::Unknown, Life::Short], [Life::Short, Life::Long], [Life::Extreme, Life::Medium]] {
                assert!(!meet(lives), "{kind}, {name}: {lives:?}");
            }
        }
    }
}
