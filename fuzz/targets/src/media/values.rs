//! Values of the tree and payloads of the log: any bytes decode or are refused, and what decodes is written as what it
//! is. The first byte says as what the rest is taken.

use super::base::bases;
use crate::cursor::Cursor;
use crate::{Seed, Target};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use weldfs_ciscops::{InodeNo, Outcome};
use weldfs_journal::{BlockNo, Lsn};
use weldfs_store::alloc::Bitmap;
use weldfs_store::codec::DecodeError;
use weldfs_store::effect::{self, AttrDelta, BlockState, Effect};
use weldfs_store::geometry::{Geometry, GeometryOptions};
use weldfs_store::micro::open::{Gather, OpenTxn};
use weldfs_store::micro::{Begin, Commit, End};
use weldfs_store::outcomes::{ClientRec, Identity, OutcomeRec, Page, bound_from_value, bound_to_value};
use weldfs_store::overlay::window;
use weldfs_store::record::{Dirent, InodeRec, ReclaimRec, Time, Xattr};
use weldfs_store::tree::{Key, kind};

/// See the module.
pub const TARGET: Target = Target {
    name: "values",
    about: "values of the tree and payloads of log records, to their codecs",
    run,
    seeds,
    len_max: 16 << 10,
};

const INO: InodeNo = InodeNo(7);

/// What decodes, encodes and decodes to the same.
fn round<T: PartialEq + Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let Ok(value) = decode(bytes) else { return };
    let again = decode(&encode(&value));
    assert!(again.as_ref() == Ok(&value), "{value:?} is written as {again:?}");
}

fn geometry() -> Geometry {
    let options = GeometryOptions { group_blocks: Some(512), log_align: 64, ..GeometryOptions::default() };
    Geometry::plan(4 << 20, &options).expect("a layout that can be")
}

fn run(data: &[u8]) {
    let mut data = Cursor(data);
    let what = data.u8() % 14;
    let bytes = data.0;
    match what {
        0 => round(bytes, |b| InodeRec::from_value(INO, b), InodeRec::to_value),
        1 => round(bytes, |b| Dirent::from_value(INO, 5 << 12, b), Dirent::to_value),
        2 => round(bytes, |b| Xattr::from_value(INO, 3, b), Xattr::to_value),
        3 => round(bytes, ReclaimRec::from_value, ReclaimRec::to_value),
        4 => window_value(bytes),
        5 => bitmap(bytes, &mut data),
        6 => round(bytes, effect::decode, |e| effect::encode(e)),
        7 => round(bytes, effect::decode_commit, |e| effect::encode(e)),
        8 => {
            round(bytes, Begin::decode, Begin::encode);
            if let Ok(begin) = Begin::decode(bytes) {
                let _ = (begin.command(), begin.steps(), begin.last_inode(), begin.files(), begin.identity());
            }
        }
        9 => round(bytes, Commit::decode, Commit::encode),
        10 => round(bytes, End::decode, End::encode),
        11 => round(bytes, |b| Page::from_value(0, b), Page::to_value),
        12 => {
            round(bytes, ClientRec::from_value, ClientRec::to_value);
            round(bytes, bound_from_value, |b| bound_to_value(*b));
        }
        _ => transactions(&mut data),
    }
}

fn window_value(bytes: &[u8]) {
    let unpacked = window::unpack(bytes);
    let held = window::held(bytes);
    assert_eq!(unpacked.is_ok(), held.is_ok(), "one reader of a window believes it, the other does not");
    let (Ok(blocks), Ok(held)) = (unpacked, held) else { return };
    for blk in 0..=255 {
        let listed = blocks.iter().find(|(b, _)| *b == blk).map(|(_, m)| *m);
        assert_eq!(window::find(bytes, blk), Ok(listed), "block {blk}");
        assert_eq!(held.get(blk), listed.is_some(), "block {blk}");
    }
    let packed = window::pack(&blocks, u64::MAX);
    assert_eq!(window::unpack(&packed), Ok(blocks), "written as another window");
}

fn bitmap(bytes: &[u8], data: &mut Cursor<'_>) {
    let geometry = geometry();
    let group = u64::from(data.u8()) % geometry.groups();
    for bytes in [bytes, data.0] {
        let Ok(map) = Bitmap::from_value(bytes, &geometry, group) else { continue };
        let again = Bitmap::from_value(&map.to_value(), &geometry, group).expect("what is written is read");
        assert_eq!(again.free(), map.free());
        let n = geometry.group_range(group);
        assert!((0..(n.end - n.start) as usize).all(|i| again.get(i) == map.get(i)), "written as another map");
    }
}

fn transactions(data: &mut Cursor<'_>) {
    let mut gather = Gather::default();
    while !data.is_empty() {
        let key = Key::new(kind::TXN, data.u8().into(), data.u8().into());
        if gather.add(key, data.long()).is_err() {
            return;
        }
    }
    let Ok(all) = gather.finish() else { return };
    for txn in all {
        let mut gather = Gather::default();
        for (key, value) in txn.to_values() {
            gather.add(key, &value).expect("what is written is read");
        }
        let again = gather.finish().expect("what is written is read");
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].id, again[0].adopted, &again[0].begin), (txn.id, txn.adopted, &txn.begin));
    }
}

/// One effect of each kind that a log may hold.
pub(crate) fn every_effect() -> Vec<Effect> {
    let now = Time { sec: 1_700_000_000, nsec: 5 };
    let rec = InodeRec { mode: 0o100_644, nlink: 1, mtime: now, ..InodeRec::empty(INO) };
    let (name, ino) = (Arc::from(&b"name"[..]), INO);
    let map = |state, crcs: &[u32]| Effect::Map { ino, blk: 0, addr: BlockNo(900), count: 2, state, crcs: crcs.into() };
    let id = Identity { client: [5; 16], uid: 0, queue: 1, sequence: 9 };
    vec![
        Effect::PutInode(Box::new(rec)),
        Effect::SetAttr(AttrDelta::new(ino).size(4096).mode(0o100_600).mtime(now)),
        Effect::PutDirent { dir: InodeNo::ROOT, cookie: 5 << 12, ino, ftype: 8, mark: 1, name: Arc::clone(&name) },
        Effect::DelDirent { dir: InodeNo::ROOT, cookie: 5 << 12 },
        Effect::PutXattr { ino, slot: 3 << 12, name: Arc::clone(&name), value: name },
        Effect::DelXattr { ino, slot: 3 << 12 },
        map(BlockState::Written, &[1, 2]),
        map(BlockState::Unwritten, &[]),
        Effect::Patch { ino, off: 4096, bytes: b"bytes"[..].into() },
        Effect::Zero { ino, off: 4097, len: 9 },
        Effect::Unmap { ino, blk: 1, count: 300 },
        Effect::Cut { ino, blk: 1, end: 1 << 40 },
        Effect::Orphan { ino },
        Effect::Adopt { ino },
        Effect::ReclaimStep { ino, cut: 262_144, blk: 0, count: 256 },
        Effect::ReclaimDone { ino, cut: 262_144 },
        Effect::DropInode(ino),
        Effect::Outcome(Box::new(OutcomeRec { id, outcome: Outcome::ok(1, 2) })),
    ]
}

fn seeds() -> Vec<Seed> {
    let seed = |name: String, what: u8, bytes: &[u8]| (name, [&[what][..], bytes].concat());
    let effects = every_effect();
    let mut all: Vec<Seed> =
        (0..effects.len()).map(|i| seed(format!("effect-{i:02}"), 6, &effect::encode(&effects[i..=i]))).collect();
    all.push(seed("effects".into(), 7, &effect::encode(&effects)));
    // What the base images hold: one value of each kind, the first and the last, and every kind of record.
    for base in bases() {
        for (kind, what) in [(1, 0), (2, 1), (4, 2), (6, 3), (3, 4), (5, 5), (10, 11), (9, 12)] {
            let values = || base.leaves.iter().flat_map(|l| &l.entries).filter(|e| e.0[0] == kind);
            for (which, entry) in [("first", values().next()), ("last", values().next_back())] {
                all.extend(entry.map(|e| seed(format!("{}-kind-{kind}-{which}", base.name), what, &e.1)));
            }
        }
        for (i, record) in base.records.iter().enumerate() {
            let what = match record.header[24] {
                3 => 6,
                4 => 8,
                5 => 9,
                6 => 10,
                _ => continue,
            };
            all.push(seed(format!("{}-record-{i:02}", base.name), what, &record.payload));
            if let (8, Ok(begin)) = (what, Begin::decode(&record.payload)) {
                let (_, value) = OpenTxn::new(3, Lsn(262_144), begin, 0).to_values().remove(0);
                let chunk = [&[3, 0][..], &(value.len() as u16).to_le_bytes(), &value].concat();
                all.push(seed(format!("{}-open-{i:02}", base.name), 13, &chunk));
            }
        }
    }
    let mut seen = BTreeSet::new();
    all.retain(|(_, bytes)| seen.insert(bytes.clone()));
    all
}
