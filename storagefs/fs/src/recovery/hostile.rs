//! Logs and forged trees, images without room: what is found, and what a mount makes of them.

use super::rig::*;
use super::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weldfs_ciscops::{InodeNo, Life};
use weldfs_journal::{Medium, RecordKind, TxnMode};
use weldfs_media::{CrashModel, RamMedium, RecordingMedium};
use weldfs_store::effect::{AttrDelta, BlockState, Effect};
use weldfs_store::fsck::fsck;
use weldfs_store::micro::open::OpenTxn;
use weldfs_store::tree::kind;

const MODEL: CrashModel = CrashModel::Pmem;

/// A store with an open transaction that has inputs in blocks, and nothing committed.
fn begun() -> (Arc<RecordingMedium>, Arc<Store>, u64) {
    let medium = ram(&image(MODEL), MODEL);
    let (store, _) = mounted(medium.clone());
    let id = open(&store, (Kind::Append, 9000));
    (medium, store, id)
}

/// Appends a commit by hand, without looking at it.
fn forge_commit(store: &Store, id: u64, effects: Effects) {
    let head = RecordHead { kind: RecordKind::Micro, mode: TxnMode::Micro, micro_index: 1, txn: id };
    let regs = store.txns().get(id).unwrap().regs;
    store.journal().append(head, &[&Commit { regs, effects }.encode()], Vec::new(), None).unwrap();
    store.make_durable(store.journal().tail()).unwrap();
}

/// What a mount says of the image, and what fsck says.
pub(super) fn refused(bytes: &[u8]) -> (String, String) {
    let medium: Arc<dyn Medium> = ram(bytes, MODEL);
    let mounted = crate::mount(medium, options()).map(drop).expect_err("a forged image");
    assert!(mounted.is_damage());
    let report = fsck(Arc::new(RamMedium::from_bytes(bytes)), options(), true).expect("damage is no failure of fsck");
    assert!(!report.clean && !report.mountable);
    (mounted.to_string(), report.problems.join("; "))
}

#[test]
fn a_commit_that_maps_a_block_of_its_input_again_is_damage() {
    let at = |shift: u64| {
        move |e: &Effect| match e.clone() {
            Effect::Map { ino, blk, addr, count, state, crcs } => {
                Effect::Map { ino, blk: blk + shift, addr, count, state, crcs }
            }
            other => panic!("in blocks: {other:?}"),
        }
    };
    for (shift, adopts) in [(1000, true), (0, true), (1000, false), (0, false)] {
        let (medium, store, id) = begun();
        let txn = store.txns().get(id).unwrap();
        let input = &txn.begin.inputs[0];
        let mut effects: Effects = input.effects.iter().take(1).map(at(shift)).collect();
        if adopts {
            effects.insert(0, Effect::Input { ino: txn.begin.file, input: 0 });
        }
        forge_commit(&store, id, effects);
        let (mounted, checked) = refused(&medium.to_bytes());
        assert!(mounted.contains("mapped while in use"), "shift {shift}: {mounted}");
        assert!(checked.contains("mapped while in use"), "shift {shift}: {checked}");
    }
}

#[test]
fn an_input_that_is_adopted_is_not_adopted_again() {
    let (_, store, id) = begun();
    assert!(commit_next(&store, id));
    let txn = store.txns().get(id).unwrap();
    assert!(txn.has_adopted(0));
    let tail = store.journal().tail();
    let twice = |index| {
        let effects = vec![Effect::Input { ino: txn.begin.file, input: 0 }];
        let mut commit = Commit { regs: txn.regs, effects };
        store.append_commit(id, &txn.begin, index, &mut commit, &mut |_| Ok(None))
    };
    assert!(matches!(twice(txn.next), Err(FsError::Corrupt(_))));
    assert!(matches!(twice(0), Err(FsError::Corrupt(_))), "nor is a micro-op committed again");
    let mut empty = Commit { regs: txn.regs, effects: vec![] };
    let unknown = store.append_commit(id + 7, &txn.begin, 1, &mut empty, &mut |_| Ok(None));
    assert!(matches!(unknown, Err(FsError::Corrupt(_))), "nor one of a transaction that is not open");
    assert_eq!(store.journal().tail(), tail, "nothing was written");
    assert!(!store.medium().is_poisoned());
    assert!(commit_next(&store, id), "it goes on");
}

/// Puts a transaction into the tree beside the one that is there.
fn forge_key(change: impl Fn(&mut OpenTxn)) -> Vec<u8> {
    let (medium, store, id) = begun();
    forge_beside(&medium, &store, id, change)
}

/// The same in any store.
pub(super) fn forge_beside(medium: &RecordingMedium, store: &Store, id: u64, change: impl Fn(&mut OpenTxn)) -> Vec<u8> {
    store.checkpoint().unwrap();
    let mut forged = store.txns().get(id).unwrap();
    forged.id += 1;
    change(&mut forged);
    let mut writer = store.writer();
    let base = store.overlay().base(0);
    writer.zone.begin_checkpoint();
    let cut = writer.sb.cut;
    let mut keys = forged.to_values().into_iter().map(|(k, v)| (k, Some(v)));
    let tree = base.tree.apply(&base.slow, &mut writer.zone, &mut keys, cut).unwrap();
    writer.sb.zone = writer.zone.write_map(&base.slow, cut).unwrap();
    writer.sb.root = tree.root();
    writer.sb.next_txn += 1;
    writer.sb.store(medium).unwrap();
    medium.to_bytes()
}

pub(super) fn moved(txn: &mut OpenTxn, by: impl Fn(u64) -> u64) {
    let mut begin = (*txn.begin).clone();
    for e in begin.inputs.iter_mut().flat_map(|i| i.effects.iter_mut()) {
        let Effect::Map { addr, .. } = e else { continue };
        addr.0 = by(addr.0);
    }
    txn.begin = Arc::new(begin);
}

#[test]
fn two_transactions_of_a_tree_that_name_one_block_are_damage() {
    let (mounted, checked) = refused(&forge_key(|_| {}));
    assert!(mounted.contains("block of another input"), "{mounted}");
    assert!(checked.contains("block of another input"), "{checked}");
    // One of them, or both, with half of it.
    let (mounted, _) = refused(&forge_key(|t| moved(t, |addr| addr + 1)));
    assert!(mounted.contains("block of another input"), "{mounted}");
    // Within one transaction.
    let (mounted, _) = refused(&forge_key(|t| moved(t, |_| 700)));
    assert!(mounted.contains("block of another input"), "{mounted}");
}

#[test]
fn a_block_that_a_file_got_and_lost_again_may_be_another_input() {
    let (medium, store, id) = begun();
    assert!(commit_next(&store, id));
    let txn = store.txns().get(id).unwrap();
    assert!(txn.has_adopted(0));
    let Effect::Map { addr, .. } = txn.begin.inputs[0].effects[0] else { panic!("in blocks") };
    // While it is open its file is cut, and the checkpoint that says so lets the blocks go.
    plain(&store, vec![Effect::Unmap { ino: txn.begin.file, blk: 0, count: 8 }]);
    store.checkpoint().unwrap();
    let (mut begin, _) = begin(&store, (Kind::Create, 8192));
    let fresh: Vec<u64> = micro_runs(&begin);
    assert!(!fresh.contains(&addr.0), "or this shows nothing");
    let count = store.alloc().claim(addr, 1).unwrap();
    assert_eq!(count, 1, "it is free");
    begin.inputs[0].effects = vec![Effect::Map {
        ino: begin.file,
        blk: 0,
        addr,
        count: 1,
        state: BlockState::Written,
        crcs: smallvec::smallvec![weldfs_functions::crc32c(&[5; 4096])],
    }];
    store.medium().write(addr.0 * 4096, &[5; 4096]).unwrap();
    store.append_begin(store.alloc_txn(), Arc::new(begin), Vec::new(), &mut |_| Ok(None)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    let (store, report) = mounted(ram(&medium.to_bytes(), MODEL));
    assert_eq!((report.txns.len(), report.txns_cut), (2, 0), "{report:?}");
    assert!(store.txns().is_empty());
}

/// Blocks that a begin record names.
fn micro_runs(begin: &Begin) -> Vec<u64> {
    begin.inputs.iter().flat_map(|i| weldfs_store::micro::open::runs(&i.effects)).flat_map(|(a, n)| a..a + n).collect()
}

#[test]
fn a_transaction_of_a_tree_that_names_free_blocks_is_damage() {
    let (mounted, checked) = refused(&forge_key(|t| moved(t, |addr| addr + 400)));
    assert!(mounted.contains("block that is free"), "{mounted}");
    assert!(checked.contains("block that is free"), "{checked}");
}

#[test]
fn what_open_transactions_add_to_a_checkpoint_is_counted_until_it_is_gone() {
    let (_, store, first) = begun();
    end(&store, first);
    store.checkpoint().unwrap();
    let quiet = store.ledger().txns.get();
    assert_eq!(quiet, (0, 0));
    let slack = weldfs_store::limits::PAGE_BLOCKS as i64 * 20;
    let ids: Vec<u64> = (0..15).map(|_| open_long(&store)).collect();
    let (keys, bytes) = store.ledger().txns.get();
    let all: Vec<_> = ids.iter().flat_map(|id| store.txns().get(*id).unwrap().to_values()).collect();
    let len: usize = all.iter().map(|(_, v)| v.len() - 1).sum();
    assert!(keys >= all.len() as i64 && bytes >= len as i64, "{keys} keys, {bytes} bytes");
    let pages = len as i64 / weldfs_store::limits::PAGE as i64;
    let free = store.ledger().zone_free.load(Relaxed);
    let counted = store.ledger().meta_growth(0, 0) + free * weldfs_store::limits::PAGE_BLOCKS as i64;
    assert!(counted >= pages * weldfs_store::limits::PAGE_BLOCKS as i64 + slack, "{counted} blocks for {pages} pages");
    // Written or not: as long as they are open each checkpoint writes them.
    store.checkpoint().unwrap();
    assert_eq!(store.ledger().txns.get(), (keys, bytes));
    ids.iter().for_each(|id| end(&store, *id));
    assert_eq!(store.ledger().txns.get(), (keys, 0), "to be taken out of the tree");
    store.checkpoint().unwrap();
    assert_eq!(store.ledger().txns.get(), (0, 0));
    // A plan that will begin one counts before it does, and no longer when it is dropped.
    let need = Need { log_bytes: 20_000, meta_keys: 9, more_records: [500, 500, 64], ..Need::default() };
    let plan = store.begin(&need).unwrap();
    assert!(store.ledger().txns.get().1 >= 20_000);
    drop(plan);
    assert_eq!(store.ledger().txns.get(), (0, 0));
}

/// Opens a transaction whose begin record holds twenty pieces of 512 bytes.
fn open_long(store: &Store) -> u64 {
    let (mut begin, _) = begin(store, (Kind::Append, 100));
    let piece =
        |i: u64| Effect::Patch { ino: begin.file, off: 8192 + i * 512, bytes: smallvec::SmallVec::from_elem(7, 512) };
    let effects: Effects = (0..20).map(piece).collect();
    begin.inputs[0] = weldfs_store::micro::Input { micro: 1, off: 8192, len: 20 * 512, effects };
    let id = store.alloc_txn();
    store.append_begin(id, Arc::new(begin), Vec::new(), &mut |_| Ok(None)).unwrap();
    id
}

#[test]
fn a_full_image_takes_no_more_begins_than_a_checkpoint_has_pages_for() {
    // A log that holds more begin records than the reserve of the data area has pages for.
    let (store, _) = mounted(ram(&image_of(MODEL, 8 << 20, 5 << 20), MODEL));
    take_all_but(&store, store.ledger().reserve as i64 + 200);
    store.checkpoint().unwrap();
    let need =
        Need { log_bytes: 11_000, meta_keys: 9, may_fail: true, more_records: [500, 500, 64], ..Need::default() };
    let mut ids = Vec::new();
    let refused = loop {
        match store.begin(&need) {
            Ok(_) => ids.push(open_long(&store)),
            Err(e) => break e,
        }
    };
    assert!(ids.len() > 20, "{} fit", ids.len());
    assert!(matches!(refused, FsError::Wait(_) | FsError::Errno(Errno::NOSPC)), "{refused}");
    store.checkpoint().expect("its pages were counted");
    ids.iter().for_each(|id| end(&store, *id));
    store.checkpoint().expect("its pages were counted");
    assert_eq!(store.ledger().txns.get(), (0, 0));
}

/// Maps all free blocks but some into a file of their own.
fn take_all_but(store: &Store, left: i64) {
    let ino = file(store, b"file").unwrap();
    let mut blk = 1 << 10;
    while store.ledger().avail.load(Relaxed) > left {
        let Ok(run) = store.blocking(|| store.alloc().take(1, ino.0, Life::Unknown)) else { break };
        store.ledger().avail.fetch_sub(1, Relaxed);
        let (state, crcs) = (BlockState::Unwritten, smallvec::smallvec![]);
        let e = Effect::Map { ino, blk, addr: run.addr, count: 1, state, crcs };
        plain(store, vec![e]);
        blk += 1;
    }
}

/// One operation that no room was promised to.
fn plain(store: &Store, effects: Effects) {
    let need = Need { log_bytes: 2000, ..Need::default() };
    let mut plan = loop {
        match store.begin(&need) {
            Err(FsError::Wait(_)) => drop(store.checkpoint().unwrap()),
            other => break other.unwrap(),
        }
    };
    effects.into_iter().for_each(|e| plan.push(e));
    store.commit(&mut plan, RecordHead::op()).unwrap();
}

#[test]
fn a_finish_that_finds_no_room_ends_the_transaction_and_the_image_mounts() {
    for model in MODELS {
        let medium = ram(&image(model), model);
        let (store, _) = mounted(medium.clone());
        let id = open(&store, (Kind::Append, 9000));
        take_all_but(&store, 0);
        store.checkpoint().unwrap();
        // A checkpoint will need a block for this, and there is none.
        let ino = file(&store, b"file").unwrap();
        plain(&store, vec![Effect::Patch { ino, off: 900 << 12, bytes: smallvec::smallvec![1; 20] }]);
        while store.journal().free() > 2000 {
            let attr = Effect::SetAttr(AttrDelta::new(InodeNo::ROOT).uid(0));
            let effects = vec![attr; 20];
            let mut plan = store.begin(&Need { log_bytes: 200, ..Need::default() }).unwrap();
            effects.into_iter().for_each(|e| plan.push(e));
            store.commit(&mut plan, RecordHead::op()).unwrap();
        }
        assert!(store.checkpoint().is_err(), "no room for the merged block");
        store.make_durable(store.journal().tail()).unwrap();
        drop(store);
        let medium = ram(&medium.to_bytes(), model);
        let (store, report) = mounted(medium.clone());
        assert_eq!((report.txns.len(), report.txns_cut, report.txns[0].id), (1, 1, id), "{report:?}");
        assert_eq!(report.txns[0].fate, TxnFate::Cut);
        assert!(report.txns[0].reason.contains("no room"), "{}", report.txns[0].reason);
        assert_eq!(tree(&store)[&b"file"[..]].6, bytes(OLD_LEN as usize, 1), "the old file is untouched");
        assert!(store.txns().is_empty());
        drop(store);
        let (_, report) = mounted(ram(&medium.to_bytes(), model));
        assert_eq!((report.txns.len(), report.txns_replayed), (0, 1), "its end stands in the log: {report:?}");
    }
}

#[test]
fn a_finding_names_no_inode_where_a_key_is_of_none() {
    let of = |kind| match FsError::corrupt(
        "key",
        weldfs_store::error::Place::Key(weldfs_store::tree::Key::new(kind, 9, 0)),
        0,
        0,
    ) {
        FsError::Corrupt(c) => c.inode(),
        other => panic!("{other}"),
    };
    assert_eq!((of(kind::INODE), of(kind::WINDOW), of(kind::RECLAIM)), (Some(9), Some(9), Some(9)));
    assert_eq!((of(kind::TXN), of(kind::FREE_GROUP), of(kind::CLIENT)), (None, None, None));
}
