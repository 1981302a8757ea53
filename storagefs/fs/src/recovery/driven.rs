//! Commands as they are really run, cut at every event: after recovery the tree is the old one or the one that the
//! command left, times, owners and inode numbers included, and nothing in between.

use super::rig::*;
use super::*;
use crate::driver::Direct;
use std::collections::BTreeMap;
use std::sync::Arc;
use weldfs_ciscops::{At, ChecksumKind, OpenFlags, TxnMode};
use weldfs_media::{CrashModel, Recording, Replayer};

const WRITE: OpenFlags = OpenFlags::WRITE;

/// One command over the image with one file: prepares what it needs, then gives it.
pub(super) type Make = fn(&mut Direct) -> Op;

fn open_write(d: &mut Direct, path: &[u8], flags: OpenFlags, at: At, len: usize) -> Op {
    let (path, src) = (d.put(0, path), d.put(4096, &bytes(len, 2)));
    Op::OpenWriteClose { base: Handle::ROOT, path, flags: WRITE | flags, mode: 0o640, at, src }
}

fn append(d: &mut Direct, len: usize) -> Op {
    let path = d.put(0, b"file");
    let open = d.run(Op::open(Handle::ROOT, path, WRITE, 0));
    let h = Handle::from_wire(open.result);
    Op::AppendChecksumWrite { h, src: d.put(4096, &bytes(len, 2)), kind: ChecksumKind::Crc32c }
}

fn in_a_directory_behind_a_link(d: &mut Direct) -> Op {
    let (dir, link, target) = (d.put(0, b"dir"), d.put(16, b"link"), d.put(32, b"dir/made"));
    assert!(d.run(Op::Mkdir { base: Handle::ROOT, path: dir, mode: 0o755 }).is_ok());
    assert!(d.run(Op::Symlink { target, base: Handle::ROOT, path: link }).is_ok());
    open_write(d, b"link", OpenFlags::CREATE, At::Offset(10), 600)
}

fn read_and_truncate(d: &mut Direct) -> Op {
    let (path, src, out) = (d.put(0, b"file"), d.put(4096, &bytes(5000, 2)), d.put(32 << 10, &[0; 100]));
    let (flags, at) = (OpenFlags::READ | WRITE | OpenFlags::TRUNC, At::Offset(0));
    Op::OpenReadWriteClose { base: Handle::ROOT, path, flags, mode: 0, read_off: 0, out, at, src }
}

fn unnamed(d: &mut Direct) -> Op {
    let op = append(d, 300);
    let path = d.put(0, b"file");
    assert!(d.run(Op::Unlink { base: Handle::ROOT, path }).is_ok());
    op
}

pub(super) const COMMANDS: [(&str, Make); 14] = [
    ("append in the record", |d| append(d, 100)),
    ("append that ends in a new block", |d| append(d, 4096 * 2 - 5000 - 2)),
    ("append of one block", |d| append(d, 4096)),
    ("append of blocks and pieces", |d| append(d, 9000)),
    ("append to a file without a name", unnamed),
    ("create, nothing written", |d| open_write(d, b"new", OpenFlags::CREATE, At::Offset(0), 0)),
    ("create in the record", |d| open_write(d, b"new", OpenFlags::CREATE, At::Offset(0), 3)),
    ("create in blocks", |d| open_write(d, b"new", OpenFlags::CREATE | OpenFlags::EXCL, At::Offset(0), 8192)),
    ("create with a hole in front", |d| open_write(d, b"new", OpenFlags::CREATE, At::Offset(7000), 5000)),
    ("create behind a symbolic link", in_a_directory_behind_a_link),
    ("truncate, in the record", |d| open_write(d, b"file", OpenFlags::TRUNC, At::Offset(0), 300)),
    ("truncate, in blocks", |d| open_write(d, b"file", OpenFlags::TRUNC | OpenFlags::CREATE, At::End, 6000)),
    ("read, truncate, write", read_and_truncate),
    ("create, then a write beyond the largest file", |d| {
        open_write(d, b"new", OpenFlags::CREATE, At::Offset(crate::FILE_BYTES_MAX), 600)
    }),
];

type Tree = BTreeMap<Vec<u8>, Content>;

/// A command that was run: what happened to the medium, and the trees before and after.
struct Run {
    recording: Recording,
    start: u64,
    done: u64,
    old: Tree,
    new: Tree,
}

fn run(model: CrashModel, make: Make, mode: TxnMode, checkpointed: bool) -> Run {
    let medium = ram(&image(model), model);
    let (store, _) = mounted(medium.clone());
    let mut direct = Direct::new(store.clone(), 64 << 10);
    direct.now = (1_600_000_000, 5);
    let op = make(&mut direct);
    if checkpointed {
        store.checkpoint().unwrap();
    }
    store.make_durable(store.journal().tail()).unwrap();
    let (start, old) = (medium.position(), tree(&store));
    direct.now = (1_700_000_000, 7);
    direct.run_with(op, mode, true);
    store.make_durable(store.journal().tail()).unwrap();
    let (done, new) = (medium.position(), tree(&store));
    assert!(store.txns().is_empty());
    Run { recording: medium.recording(), start, done, old, new }
}

/// Recovers one crash state; gives the store and how many transactions were finished.
fn judge(run: &Run, position: u64, image: &[u8], model: CrashModel, why: &str) -> (Arc<Store>, u64) {
    let medium = ram(image, model);
    let (store, report) = mounted(medium.clone());
    let found = tree(&store);
    assert!(found == run.old || found == run.new, "{why}: neither the old tree nor the new one: {:?}", report.txns);
    assert!(found == run.new || position < run.done, "{why}: an acknowledged command is lost");
    let again = mounted(ram(&medium.to_bytes(), model));
    assert!(tree(&again.0) == found && again.1.txns.is_empty(), "{why}: a second recovery does something else");
    (store, report.txns_finished)
}

/// Bytes of a write from which on it is data.
const BULK: u32 = 4096;

/// Crash states at the replayer's position: some drawn by a seed, then every prefix of what the log got, with all data
/// there. (On block media all records of a command are one write, so a cut between two of them is a torn write.)
fn states(at: &Replayer<'_>, drawn: u64) -> Vec<Vec<u8>> {
    let mut images: Vec<Vec<u8>> = (0..drawn).map(|choice| at.image(choice)).collect();
    let mut small = 0;
    at.image_with(&mut |u| {
        // Words, on pmem: there every record is an event of its own.
        small += u32::from(u.write_len < BULK && u.len > 8);
        false
    });
    for n in 1..small {
        let mut seen = 0;
        images.push(at.image_with(&mut |u| {
            seen += u32::from(u.write_len < BULK);
            u.write_len >= BULK || seen <= n
        }));
    }
    images
}

/// Cuts one command at every event; gives how many recoveries finished it.
pub(super) fn cut_everywhere(model: CrashModel, (name, make): (&str, Make), mode: TxnMode, drawn: u64) -> u64 {
    let run = run(model, make, mode, false);
    let mut at = Replayer::new(&run.recording, 0);
    let mut finished = 0;
    for position in run.start..=run.done {
        at.goto(position);
        for (choice, image) in states(&at, drawn).into_iter().enumerate() {
            let why = format!("{model:?} {mode:?} {name}: position {position} choice {choice}");
            finished += judge(&run, position, &image, model, &why).1;
            if choice == 1 {
                check(&image, model);
            }
        }
    }
    finished
}

#[test]
fn a_command_cut_at_any_event_is_done_or_was_never_begun() {
    for model in MODELS {
        let mut finished = 0;
        for command in COMMANDS {
            let once = cut_everywhere(model, command, TxnMode::Micro, 4);
            finished += u32::from(once > 0);
            assert_eq!(cut_everywhere(model, command, TxnMode::Macro, 2), 0, "{}: nothing to finish", command.0);
        }
        assert!(finished >= 12, "{model:?}: only {finished} commands were ever finished by recovery");
    }
}

#[test]
fn an_interrupted_command_leaves_no_block_behind() {
    for model in MODELS {
        for (name, make) in COMMANDS {
            let run = run(model, make, TxnMode::Micro, true);
            let mut at = Replayer::new(&run.recording, 0);
            for position in run.start..=run.done {
                at.goto(position);
                let why = format!("{model:?} {name}: position {position}");
                let (store, _) = judge(&run, position, &at.image(1), model, &why);
                store.reclaim_all().unwrap();
                super::tests::assert_space(&store, &why);
            }
        }
    }
}
