//! A client's commands on a sound file system: any entries with any payload, one after the other. Each gets an answer,
//! whatever they say; then the device dies, and what is mounted next is clean.

use crate::cursor::Cursor;
use crate::media::base::bases;
use crate::wire::text::SAMPLES;
use crate::{Seed, Target};
use std::sync::Arc;
use weldfs_ciscops::program::{Pool, text};
use weldfs_ciscops::{
    At, ChecksumKind, Command, Durability, FallocMode, Handle, Op, OpenFlags, PoolRange, RawCommand, RenameFlags,
    SessionLimits, Sqe, TxnMode, XattrFlags, validate,
};
use weldfs_crash_harness::hand::small_mount;
use weldfs_fs::driver::Direct;
use weldfs_journal::Medium;
use weldfs_media::CowMedium;
use weldfs_store::fsck::fsck;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the pool. A command may ask for as many, and no more.
const POOL: u32 = 64 << 10;
/// Commands of one input.
const COMMANDS_MAX: u8 = 16;

/// See the module.
pub const TARGET: Target = Target {
    name: "commands",
    about: "commands of any bytes, to the file system; then a crash, a mount and fsck",
    run,
    seeds,
    len_max: 4096,
};

fn run(data: &[u8]) {
    let mut data = Cursor(data);
    let base = &bases()[usize::from(data.u8()) % bases().len()];
    let medium = Arc::new(CowMedium::new(base.image.clone(), base.model));
    let (store, _) = weldfs_fs::mount(medium.clone(), small_mount(11)).expect("a sound image mounts");
    let mut device = Direct::new(store, POOL as usize);
    for _ in 0..data.u8() % (COMMANDS_MAX + 1) {
        let sqe = Sqe::read_from_bytes(&data.array::<64>()).expect("an SQE has 64 bytes");
        let payload = data.long();
        let n = payload.len().min(POOL as usize);
        device.put(0, &payload[..n]);
        let Ok(cmd) = validate(&RawCommand(sqe), &SessionLimits { pool_bytes: POOL }) else { continue };
        let o = device.run_command(
            &Command { durability: Durability::Volatile, ..Command::new(0, cmd.op) }
                .with_mode(cmd.mode)
                .with_hints(cmd.hints),
        );
        assert!(o.is_ok() || (o.status > 0 && o.status < 4096), "{cmd:?}: {o:?}");
        assert!(o.status != libc::EIO, "{cmd:?}: {o:?} on a sound image");
    }
    drop(device);
    let after: Arc<dyn Medium> = Arc::new(CowMedium::new(medium.image(), base.model));
    let report = fsck(after, small_mount(12), true).expect("a sound image can be checked");
    assert!(report.clean, "{:?}", report.problems);
}

/// A command and what it finds in the pool.
fn entry(op: Op, mode: TxnMode, payload: &[u8]) -> Vec<u8> {
    let sqe = Command::new(3, op).with_mode(mode).encode();
    [sqe.as_bytes(), &(payload.len() as u16).to_le_bytes(), payload].concat()
}

fn seeds() -> Vec<Seed> {
    let (base, h) = (Handle::ROOT, Handle { index: 1, generation: 1 });
    let r = PoolRange::new;
    // The payload of most: a name, another one, and bytes.
    let names = [&b"a/newbig"[..], &[7; 300]].concat();
    let (new, big, bytes, out) = (r(0, 5), r(5, 3), r(8, 300), r(4096, 512));
    let rw = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let (no_rename, no_xattr) = (RenameFlags::empty(), XattrFlags::empty());
    let open = Op::open(base, big, rw, 0o644);
    let singles = [
        ("put", Op::OpenWriteClose { base, path: new, flags: rw, mode: 0o644, at: At::Offset(0), src: bytes }),
        ("get", Op::OpenReadClose { base, path: big, flags: OpenFlags::READ, offset: 0, out }),
        ("mkdir", Op::Mkdir { base, path: new, mode: 0o755 }),
        ("unlink", Op::Unlink { base, path: big }),
        ("rename", Op::Rename { from_base: base, from: big, to_base: base, to: new, flags: no_rename }),
        ("link", Op::Link { from_base: base, from: big, to_base: base, to: new, follow: true }),
        ("symlink", Op::Symlink { base, path: new, target: big }),
        ("readlink", Op::Readlink { base, path: new, out }),
        ("set-xattr", Op::SetXattr { base, path: big, nofollow: false, name: r(0, 3), value: bytes, flags: no_xattr }),
        ("list-xattr", Op::ListXattr { base, path: big, nofollow: false, out }),
        (
            "stat",
            Op::StatPath {
                base,
                path: big,
                nofollow: true,
                out: r(4096, size_of::<weldfs_ciscops::StatBody>() as u32),
            },
        ),
    ];
    let opened = [
        ("write", Op::Write { h, at: At::End, src: bytes }),
        ("write-verified", Op::WriteVerified { h, at: At::End, src: bytes, kind: ChecksumKind::Crc32c, sum: 7 }),
        ("read", Op::Read { h, at: At::Offset(4000), out, watch: 0 }),
        ("truncate", Op::Truncate { h, size: 5001 }),
        ("punch", Op::Fallocate { h, mode: FallocMode::Punch, off: 100, len: 9000 }),
        ("reserve", Op::Fallocate { h, mode: FallocMode::Reserve, off: 0, len: 1 << 20 }),
        ("close", Op::Close { h }),
        ("list", Op::ReadDir { h: base, cookie: 0, out }),
    ];
    let mut all = Vec::new();
    for (b, mode) in [(0u8, TxnMode::Default), (1, TxnMode::Micro), (2, TxnMode::Macro)] {
        for (name, op) in singles {
            all.push((format!("{name}-{b}"), [vec![b, 1], entry(op, mode, &names)].concat()));
        }
        for (name, op) in opened {
            let both = [vec![b, 2], entry(open, TxnMode::Default, &names), entry(op, mode, &names)].concat();
            all.push((format!("open-{name}-{b}"), both));
        }
    }
    for (i, source) in SAMPLES.iter().enumerate() {
        let parsed = text::parse_with_keys(source, &[("in", 64)], &[("k", 3)]).expect("a sample is a program");
        let body = &parsed.body;
        let place = |p: usize| r(16 << 10 | (p as u32) << 9, body.pool_len(Pool(p as u8)));
        let bytes = body.bind(&(0..body.pools()).map(place).collect::<Vec<_>>()).expect("as many as it has");
        let op = weldfs_ciscops::program::Body::op(r(0, bytes.len() as u32));
        all.push((format!("program-{i:02}"), [vec![0, 1], entry(op, TxnMode::Default, &bytes)].concat()));
    }
    all
}
