//! Transactions written to the log by hand, record by record, and what must come of them.

use super::*;
use crate::driver::Direct;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use std::sync::Arc;
use weldfs_ciscops::{At, ChecksumKind, InodeNo, Life, OpenFlags, PoolRange};
use weldfs_functions::crc32c;
use weldfs_journal::{AlignedBuf, DataWrite, ManualClock, Medium, SeededRandom};
use weldfs_media::{CrashModel, RamMedium, RecordingMedium};
use weldfs_store::effect::{BlockState, Effect};
use weldfs_store::fsck::{fsck, fsck_mounted};
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::limits::BLOCK;
use weldfs_store::micro::Input;
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::record::Time;
use weldfs_store::{Group, MountOptions};

pub(super) const MODELS: [CrashModel; 2] = [CrashModel::Pmem, CrashModel::Block];
/// Size of the file that is there from the start: its last block is partly used.
pub(super) const OLD_LEN: u64 = 5000;
const NOW: Time = Time { sec: 1_700_000_000, nsec: 123 };

/// Which command, and how many bytes the client gives it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Append,
    Create,
    Truncate,
    Exchange,
}

/// Commands with payload in the record and in blocks, aligned and not.
pub(super) const CASES: [(Kind, usize); 8] = [
    (Kind::Append, 100),
    (Kind::Append, 9000),
    (Kind::Create, 3),
    (Kind::Create, 8192),
    (Kind::Truncate, 300),
    (Kind::Truncate, 4096),
    (Kind::Exchange, 7),
    (Kind::Exchange, 5000),
];

pub(super) fn options() -> MountOptions {
    let mut o = MountOptions::new(Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(7)));
    o.inline_commits = true;
    o
}

pub(super) fn bytes(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ salt).collect()
}

/// An image with one file, checkpointed.
pub(super) fn image(model: CrashModel) -> Vec<u8> {
    image_of(model, 3 << 20, 256 << 10)
}

/// The same of another size, with another log.
pub(super) fn image_of(model: CrashModel, len: u64, log_len: u64) -> Vec<u8> {
    let medium: Arc<RecordingMedium> = Arc::new(RecordingMedium::new(len, model));
    let dynamic: Arc<dyn Medium> = medium.clone();
    let geometry = GeometryOptions { log_len: Some(log_len), ..Default::default() };
    let mkfs = MkfsOptions { geometry, inline_max: Some(512), ..Default::default() };
    format(&dynamic, &mkfs, &ManualClock::default(), &SeededRandom::new(1)).unwrap();
    let (store, _) = crate::mount(dynamic, options()).unwrap();
    let mut direct = Direct::new(store.clone(), 64 << 10);
    let (path, src) = (direct.put(0, b"file"), direct.put(64, &bytes(OLD_LEN as usize, 1)));
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at: At::Offset(0), src };
    assert!(direct.run(op).is_ok());
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    drop((direct, store));
    medium.to_bytes()
}

pub(super) fn mounted(medium: Arc<dyn Medium>) -> (Arc<Store>, RecoveryReport) {
    crate::mount(medium, options()).expect("a crash state mounts")
}

pub(super) fn ram(bytes: &[u8], model: CrashModel) -> Arc<RecordingMedium> {
    Arc::new(RecordingMedium::from_bytes(bytes.to_vec(), model))
}

/// fsck of an image, twice: as it is, and as a mount leaves it.
pub(super) fn check(image: &[u8], model: CrashModel) {
    let report = fsck(Arc::new(RamMedium::from_bytes(image)), options(), true);
    // A heap medium has another log alignment, which only matters for appending.
    let report = report.expect("mounts for reading");
    assert!(report.clean, "before recovery: {:?}", report.problems);
    let (store, recovery) = mounted(ram(image, model));
    let report = fsck_mounted(&store, recovery, true).expect("can be read");
    assert!(report.clean, "after recovery: {:?}", report.problems);
    assert_eq!(report.open_transactions, 0);
}

pub(super) fn file(store: &Store, name: &[u8]) -> Option<InodeNo> {
    store.blocking(|| store.dirent(InodeNo::ROOT, name)).unwrap().map(|d| d.ino)
}

/// What stands in a file: attributes and bytes.
pub(super) type Content = (u64, u32, u32, u32, u32, [Time; 2], Vec<u8>);

/// Everything that has a name, by path.
pub(super) fn tree(store: &Store) -> BTreeMap<Vec<u8>, Content> {
    let mut all = BTreeMap::new();
    walk(store, InodeNo::ROOT, b"", &mut all);
    all
}

fn walk(store: &Store, dir: InodeNo, above: &[u8], all: &mut BTreeMap<Vec<u8>, Content>) {
    let mut names = Vec::new();
    let mut list = || {
        names.clear();
        store.dirents(dir, 0, &mut |d| {
            names.push((d.name.to_vec(), d.ino));
            true
        })
    };
    store.blocking(&mut list).unwrap();
    for (name, ino) in names {
        let path = [above, &name].concat();
        let rec = store.blocking(|| store.inode(ino)).unwrap().expect("the inode of an entry");
        let mut content = rec.target.as_deref().map(<[u8]>::to_vec).unwrap_or_default();
        if rec.is_dir() {
            walk(store, ino, &[&path[..], b"/"].concat(), all);
        } else if rec.target.is_none() {
            for blk in 0..rec.size.div_ceil(BLOCK as u64) {
                let mut block = [0; BLOCK];
                store.blocking(|| store.read_block(ino, blk, &mut block)).unwrap();
                content.extend_from_slice(&block);
            }
            content.truncate(rec.size as usize);
        }
        all.insert(path, (ino.0, rec.generation, rec.mode, rec.uid, rec.gid, [rec.mtime, rec.ctime], content));
    }
}

/// The begin record of a case, its data on the way.
pub(super) fn begin(store: &Store, (kind, len): (Kind, usize)) -> (Begin, Vec<DataWrite>) {
    let src = PoolRange::new(4096, len as u32);
    let (path, base, at) = (PoolRange::new(0, 4), Handle::ROOT, At::Offset(0));
    let (write, read) = (OpenFlags::WRITE, OpenFlags::READ | OpenFlags::WRITE);
    let op = match kind {
        Kind::Append => {
            Op::AppendChecksumWrite { h: Handle { index: 9, generation: 9 }, src, kind: ChecksumKind::Crc32c }
        }
        Kind::Create => {
            let flags = write | OpenFlags::CREATE;
            Op::OpenWriteClose { base, path, flags, mode: 0o640, at, src }
        }
        Kind::Truncate => {
            let flags = write | OpenFlags::TRUNC;
            Op::OpenWriteClose { base, path, flags, mode: 0, at, src }
        }
        Kind::Exchange => {
            let (flags, out) = (read | OpenFlags::CREATE, PoolRange::new(0, 64));
            Op::OpenReadWriteClose { base, path, flags, mode: 0, read_off: 0, out, at, src }
        }
    };
    let old = file(store, b"file").expect("it is there from the start");
    let (file, name, micro, off) = match kind {
        Kind::Append => (old, &b""[..], 1, OLD_LEN),
        Kind::Create => (store.alloc_ino(), &b"new"[..], 1, 0),
        Kind::Truncate => (old, &b"file"[..], 1, 0),
        Kind::Exchange => (old, &b"file"[..], 2, 0),
    };
    let generation = store.blocking(|| store.inode(file)).unwrap().map_or(77, |rec| rec.generation);
    let dir = if name.is_empty() { InodeNo(0) } else { InodeNo::ROOT };
    let truncated = matches!(kind, Kind::Truncate);
    let (input, data) = input(store, file, truncated, (micro, off), &bytes(len, 2));
    let begin = Begin {
        sqe: Command::new(5, op).with_mode(weldfs_ciscops::TxnMode::Micro).encode(),
        now: NOW,
        cred: Cred { uid: 0, gid: 6, groups: smallvec![] },
        dir,
        name: Box::from(name),
        file,
        generation,
        flags: read,
        detect: None,
        inputs: smallvec![input],
        plan: None,
    };
    (begin, data)
}

pub(super) fn input(
    store: &Store,
    ino: InodeNo,
    truncated: bool,
    (micro, off): (u16, u64),
    payload: &[u8],
) -> (Input, Vec<DataWrite>) {
    let block = BLOCK as u64;
    let end = off + payload.len() as u64;
    let (mut effects, mut data) = (Effects::new(), Vec::new());
    for blk in off / block..end.div_ceil(block) {
        let (from, to) = (off.max(blk * block), end.min((blk + 1) * block));
        let part = &payload[(from - off) as usize..(to - off) as usize];
        if payload.len() <= store.inline_max() {
            effects.push(Effect::Patch { ino, off: from, bytes: SmallVec::from_slice(part) });
            continue;
        }
        let mut whole = [0; BLOCK];
        if !truncated && store.blocking(|| store.inode(ino)).unwrap().is_some() {
            store.blocking(|| store.read_block(ino, blk, &mut whole)).unwrap();
        }
        whole[(from % block) as usize..][..part.len()].copy_from_slice(part);
        let run = store.blocking(|| store.alloc().take(1, ino.0, Life::Unknown)).unwrap();
        store.ledger().avail.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        let crcs = smallvec![crc32c(&whole)];
        effects.push(Effect::Map { ino, blk, addr: run.addr, count: 1, state: BlockState::Written, crcs });
        let buf = Arc::new(AlignedBuf::from_slice(&whole));
        if store.writes_directly() {
            store.medium().write(run.addr.0 * block, &buf).unwrap();
        } else {
            data.push(DataWrite { off: run.addr.0 * block, buf });
        }
    }
    (Input { micro, off, len: payload.len() as u64, effects }, data)
}

/// The name and the bytes that the command leaves when it is complete.
pub(super) fn complete_content((kind, len): (Kind, usize)) -> (&'static [u8], Vec<u8>) {
    let (old, payload) = (bytes(OLD_LEN as usize, 1), bytes(len, 2));
    match kind {
        Kind::Append => (b"file", [&old[..], &payload, &crc32c(&payload).to_le_bytes()].concat()),
        Kind::Create => (b"new", payload),
        Kind::Truncate => (b"file", payload),
        Kind::Exchange => (b"file", [&payload[..], &old[len.min(old.len())..]].concat()),
    }
}

/// Panics unless the case is complete in this store.
pub(super) fn assert_complete(store: &Store, case: (Kind, usize)) {
    let (name, content) = complete_content(case);
    let found = tree(store).remove(name).unwrap_or_else(|| panic!("{case:?}: no file"));
    assert!(found.6 == content, "{case:?}: {} bytes, should be {}", found.6.len(), content.len());
    assert_eq!(found.5, [NOW, NOW], "{case:?}: the times are those of the begin record");
    if matches!(case.0, Kind::Create) {
        assert_eq!((found.1, found.2, found.4), (77, 0o100_640, 6), "{case:?}: as the begin record says");
    }
}

/// Opens the transaction; gives its id.
pub(super) fn open(store: &Store, case: (Kind, usize)) -> u64 {
    let (begin, data) = begin(store, case);
    let id = store.alloc_txn();
    store.append_begin(id, Arc::new(begin), data, &mut |_| Ok(None)).unwrap();
    id
}

/// What the next micro-op that changes something commits, its number and the room it has; `None` when none is left.
fn next_commit(store: &Store, id: u64) -> Option<(u16, Commit, Option<Reservation<'_>>)> {
    let txn = store.txns().get(id).expect("open");
    let finish = Finish { store, txn: &txn, records: 0, at: txn.next };
    let (cmd, paths) = command(&txn.begin).unwrap();
    // Recovery reads inputs from the medium, where the begin record's flush put them.
    store.make_durable(store.journal().tail()).unwrap();
    let mut regs = txn.regs;
    for index in txn.next..interp::steps(&cmd.op) {
        let Step::Done(after, effects, room) = finish.step(&cmd, &paths, regs, index).unwrap() else {
            panic!("micro-op {index} does not run");
        };
        regs = after;
        if !effects.is_empty() {
            return Some((index, Commit { regs, effects }, room.map(|room| store.journal().keep(room))));
        }
    }
    None
}

/// Commits the next micro-op that changes something, as the command itself would have; false when none is left.
pub(super) fn commit_next(store: &Store, id: u64) -> bool {
    let Some((index, commit, room)) = next_commit(store, id) else { return false };
    let txn = store.txns().get(id).expect("open");
    Finish { store, txn: &txn, records: 0, at: txn.next }.commit(id, index, commit, room).unwrap();
    true
}

/// What the commits of a case say, from a run of it over a copy of `image`.
pub(super) fn groups(image: &[u8], model: CrashModel, case: (Kind, usize)) -> SmallVec<[Group; 2]> {
    let (store, _) = mounted(ram(image, model));
    let id = open(&store, case);
    let mut all = SmallVec::new();
    while let Some((index, commit, room)) = next_commit(&store, id) {
        all.push(Group { index, commit: commit.clone() });
        let txn = store.txns().get(id).expect("open");
        Finish { store: &store, txn: &txn, records: 0, at: txn.next }.commit(id, index, commit, room).unwrap();
    }
    all
}

/// Ends the transaction as done.
pub(super) fn end(store: &Store, id: u64) {
    let outcome = Outcome { status: 0, micro_done: 3, micro_failed: 0, result: 0, result2: 0 };
    store.append_end(id, &End { verdict: Verdict::Done, outcome }, &mut |_| Ok(None)).unwrap();
}

/// Commits of a case.
pub(super) fn commits(case: (Kind, usize)) -> usize {
    if matches!(case.0, Kind::Exchange) { 1 } else { 2 }
}
