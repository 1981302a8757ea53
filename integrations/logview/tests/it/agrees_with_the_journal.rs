//! This crate was written from the written format; the journal wrote the images. Record by record they say the same,
//! on healthy images, on torn ones and on damaged ones.

use crate::common::{LOG_LEN, bytes_of, content, fresh, image, medium_of, options, payload, seen};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::sync::Arc;
use weldfs_ciscops::InodeNo;
use weldfs_journal::{BlockNo, Medium, Record, RecordHead, RecordKind, ScanError, ScanReport, TxnMode, Verdict, scan};
use weldfs_logview::{Content, DataState, Ending, Item, Kind, Name, Tail, walk};
use weldfs_store::effect::{self, AttrDelta, BlockState, Effect};
use weldfs_store::record::{InodeRec, Time};
use weldfs_store::superblock::Superblock;

/// What both sides must agree on for one record.
type Seen = (u64, u64, &'static str, &'static str, u16, u64, u64, u32, Content);

fn kind(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Pad => "Pad",
        RecordKind::Watermark => "Watermark",
        RecordKind::Op => "Operation",
        RecordKind::Begin => "Begin",
        RecordKind::Micro => "Micro",
        RecordKind::End => "End",
    }
}

fn written(medium: &dyn Medium, effects: &[Effect], blocks: u64) -> bool {
    effects.iter().all(|e| match e {
        Effect::Map { addr, crcs, .. } => crcs.iter().zip(addr.0..).all(|(crc, b)| {
            let mut buf = [0; 4096];
            b < blocks && medium.read(b * 4096, &mut buf).is_ok() && crc32(&buf) == *crc
        }),
        _ => true,
    })
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = weldfs_ciscops::ChecksumState::new();
    sum.update(bytes);
    sum.value()
}

/// The journal's view.
fn journal(bytes: &[u8]) -> Result<(Vec<Seen>, ScanReport), ScanError> {
    let medium = medium_of(bytes);
    let (sb, _) = Superblock::load(&*medium).expect("a superblock");
    let mut all = Vec::new();
    let mut visit = |r: Record<'_>| {
        let h = r.header;
        let content = match content(h.head.kind, r.payload) {
            Ok((_, effects)) if r.verify_data && !written(&*medium, &effects, sb.geometry.blocks) => {
                return Verdict::CutHere;
            }
            Ok((content, _)) => content,
            Err(_) => return Verdict::Stop,
        };
        let mode = if h.head.mode == TxnMode::Macro { "macro" } else { "micro" };
        let head = (h.lsn.0, r.end.0, kind(h.head.kind), mode);
        all.push((head.0, head.1, head.2, head.3, h.head.micro_index, h.head.txn, h.watermark.0, h.length, content));
        Verdict::Ok
    };
    let report = scan(&*medium, &sb.geometry.log, &sb.segments, sb.cut, &mut visit)?;
    Ok((all, report))
}

/// This crate's view; the journal keeps pads and watermark records to itself, so they are left out here.
fn outsider(bytes: &[u8]) -> (Vec<Seen>, Tail, bool) {
    let (mut all, mut last, mut invalid) = (Vec::new(), None, false);
    walk(&bytes, &mut |item| {
        match item {
            Item::Record(r) => {
                let h = &r.header;
                invalid |= matches!(r.content, Content::Invalid(_));
                let kind = match h.kind {
                    Kind::Pad | Kind::Watermark => return weldfs_logview::Verdict::Go,
                    Kind::Operation => "Operation",
                    Kind::Begin => "Begin",
                    Kind::Micro => "Micro",
                    Kind::End => "End",
                };
                let content = r.content.clone();
                all.push((h.lsn, r.end, kind, h.mode, h.micro_index, h.transaction, h.watermark, h.length, content));
            }
            Item::Tail(tail) => last = Some(tail.clone()),
            Item::Superblock(_) | Item::Above(_) => {}
        }
        weldfs_logview::Verdict::Go
    })
    .expect("walks");
    (all, last.expect("a tail"), invalid)
}

/// Both views of one image, compared; says how it ended.
fn compare(bytes: &[u8], what: &str) -> &'static str {
    let (mut theirs, tail, invalid) = outsider(bytes);
    match journal(bytes) {
        Ok((ours, report)) => {
            theirs.retain(|r| r.0 < tail.tail);
            assert_eq!(ours.len(), theirs.len(), "{what}");
            ours.iter().zip(&theirs).for_each(|(a, b)| assert_eq!(a, b, "{what}"));
            assert_eq!((report.tail.0, report.watermark.0), (tail.tail, tail.watermark), "{what}");
            let dropped = report.discarded.map_or((0, 0, 0), |d| (d.records, d.bytes, d.torn));
            assert_eq!(dropped, (tail.dropped_records, tail.dropped_bytes, tail.torn_records), "{what}");
            match tail.ending {
                Ending::Whole => "whole",
                Ending::Torn => "torn",
                Ending::DataMissing => "data missing",
                Ending::Corrupt(why) => panic!("{what}: {why}, but the journal found nothing"),
            }
        }
        Err(ScanError::Corrupt { from, .. }) => {
            assert!(matches!(tail.ending, Ending::Corrupt(_)), "{what}: {tail:?}");
            assert_eq!(from.0, tail.bad, "{what}");
            "corrupt"
        }
        Err(ScanError::Stopped(_)) if invalid => "undecodable",
        Err(e) => panic!("{what}: {e}, but {tail:?}"),
    }
}

#[test]
fn every_record_of_a_healthy_image_is_read_the_same() {
    for align in [64, 512, 4096] {
        for torn in [false, true] {
            let bytes = image(align, torn);
            assert_eq!(compare(&bytes, "a healthy image"), "whole");
            let (records, tail, _) = outsider(&bytes);
            // Records of whole blocks fill the little log sooner; then a checkpoint comes between.
            assert!(records.len() > if align == 4096 { 4 } else { 30 }, "{tail:?}");
        }
    }
}

#[test]
fn an_empty_log_and_a_clean_image_have_no_records() {
    let medium = fresh(64);
    assert_eq!(outsider(&bytes_of(&*medium)).0.len(), 0);
    let (store, _) = weldfs_fs::mount(medium.clone(), options()).expect("mounts");
    store.unmount().expect("unmounts");
    assert_eq!(outsider(&bytes_of(&*medium)).0.len(), 0);
}

#[test]
fn records_of_all_kinds_over_several_laps_are_read_the_same() {
    let medium = fresh(64);
    let (store, _) = weldfs_fs::mount(medium.clone(), options()).expect("mounts");
    let journal = store.journal();
    for i in 0..3000u64 {
        let kind = [RecordKind::Op, RecordKind::Begin, RecordKind::Micro, RecordKind::End][i as usize % 4];
        let mode = if i % 3 == 0 { TxnMode::Macro } else { TxnMode::Micro };
        let head = RecordHead { kind, mode, micro_index: i as u16, txn: i * 7 };
        let payload = payload(kind, i);
        let Ok(_room) = journal.reserve(payload.len()) else {
            journal.wait(journal.tail()).expect("durable");
            store.checkpoint().expect("a checkpoint");
            continue;
        };
        let at = journal.append(head, &[&payload], Vec::new(), None).expect("appends");
        if i % 50 == 0 {
            journal.wait(at.end).expect("durable");
        }
    }
    let bytes = bytes_of(&*medium);
    assert_eq!(compare(&bytes, "several laps"), "whole");
    let kinds: Vec<_> = outsider(&bytes).0.iter().map(|r| r.2).collect();
    assert!(["Operation", "Begin", "Micro", "End"].iter().all(|k| kinds.contains(k)));
}

#[test]
fn damaged_and_torn_images_end_at_the_same_place_for_the_same_reason() {
    let mut rng = SmallRng::seed_from_u64(23);
    let mut endings = std::collections::BTreeMap::new();
    for align in [64, 512] {
        for torn in [false, true] {
            let whole = image(align, torn);
            let (records, tail, _) = outsider(&whole);
            let (log, len) = (65536, LOG_LEN);
            for round in 0..72 {
                let mut bytes = whole.clone();
                let record = &records[rng.random_range(0..records.len())];
                let at = log + (record.0 % len) as usize;
                match round % 6 {
                    0 => bytes[at + rng.random_range(0..64)] ^= 1 << rng.random_range(0..8),
                    1 => bytes[at + 64 + rng.random_range(0..record.7.max(1)) as usize] ^= 0x10,
                    // The rest of the log was never written.
                    2 => bytes[at..log + (tail.tail % len) as usize].fill(0),
                    // A sector was not.
                    3 => bytes[at / 512 * 512..at / 512 * 512 + 512].fill(0),
                    // One block of the log lies over another.
                    4 => {
                        let from = log + (records[rng.random_range(0..records.len())].0 % len) as usize / 4096 * 4096;
                        bytes.copy_within(from..from + 4096, at / 4096 * 4096);
                    }
                    // Some data was not.
                    _ => {
                        let blocks = records.iter().flat_map(|r| match &r.8 {
                            Content::Effects(effects) => effects.clone(),
                            _ => Vec::new(),
                        });
                        let mapped: Vec<u64> = blocks
                            .filter_map(|e| match e {
                                weldfs_logview::Effect::Mapped { run, .. } if run.written => Some(run.address),
                                _ => None,
                            })
                            .collect();
                        let block = mapped[rng.random_range(0..mapped.len())] as usize * 4096;
                        bytes[block + rng.random_range(0..4096usize)] ^= 4;
                    }
                }
                let ending = compare(&bytes, &format!("align {align}, torn {torn}, round {round}"));
                *endings.entry(ending).or_insert(0) += 1;
            }
        }
    }
    for ending in ["whole", "torn", "corrupt", "data missing"] {
        assert!(endings.contains_key(ending), "no damage led to {ending}: {endings:?}");
    }
}

#[test]
fn hostile_images_are_errors_or_lists_never_panics() {
    let mut rng = SmallRng::seed_from_u64(7);
    let whole = image(64, true);
    for round in 0..200 {
        let mut bytes = whole.clone();
        // Fields of every copy, with their checksums put right: what a forger would do.
        let at = rng.random_range(8..900);
        for copy in [0, 8, bytes.len() / 4096 - 1] {
            let block = &mut bytes[copy * 4096..copy * 4096 + 4096];
            let mut rng = SmallRng::seed_from_u64(round);
            (0..8.min(4092 - at)).for_each(|i| block[at + i] = rng.random());
            let crc = crc32(&block[..4092]);
            block[4092..].copy_from_slice(&crc.to_le_bytes());
        }
        let mut text = Vec::new();
        let _ = walk(&bytes.as_slice(), &mut |item| {
            weldfs_logview::print(&mut text, &item).expect("a vector takes everything");
            weldfs_logview::Verdict::Go
        });
    }
    // Payloads with their checksums put right.
    let (records, ..) = outsider(&whole);
    for round in 0..300 {
        let mut bytes = whole.clone();
        let r = &records[round % records.len()];
        let at = 65536 + (r.0 % LOG_LEN) as usize;
        let payload = at + 64..at + 64 + r.7 as usize;
        for _ in 0..rng.random_range(1..4) {
            let i = rng.random_range(payload.clone());
            bytes[i] = rng.random();
        }
        bytes[at + 24] = rng.random_range(3..7);
        let mut sum = bytes[payload].to_vec();
        sum.extend(&bytes[at..at + 8]);
        sum.extend([0; 4]);
        sum.extend(&bytes[at + 12..at + 64]);
        bytes[at + 8..at + 12].copy_from_slice(&crc32(&sum).to_le_bytes());
        let (_, tail, _) = outsider(&bytes);
        assert!(tail.records > 0 || r.0 == records[0].0);
    }
    for len in [0, 1, 4096, 65536, 70_000] {
        assert!(walk(&&whole[..len], &mut |_| weldfs_logview::Verdict::Go).is_err());
    }
}

#[test]
fn every_effect_is_read_the_same() {
    let mut rec = InodeRec::empty(InodeNo(9));
    (rec.mode, rec.uid, rec.size, rec.rdev, rec.parent) = (0o120777, 7, 1 << 40, 5, InodeNo(3));
    (rec.atime, rec.btime) = (Time { sec: -9, nsec: 1 }, Time { sec: 1 << 40, nsec: 999_999_999 });
    rec.target = Some(Arc::from(&b"to\xff"[..]));
    let ino = InodeNo(9);
    let all_attributes = AttrDelta::new(ino).size(1).mode(2).uid(3).gid(4).nlink(5).flags(6).parent(InodeNo(7));
    let all = [
        Effect::PutInode(Box::new(rec)),
        Effect::SetAttr(all_attributes.atime(Time { sec: 1, nsec: 2 }).mtime(Time { sec: 3, nsec: 4 })),
        Effect::SetAttr(AttrDelta::new(ino).ctime(Time { sec: i64::MIN, nsec: 4 })),
        Effect::DropInode(ino),
        Effect::PutDirent {
            dir: ino,
            cookie: 1 << 62,
            ino: InodeNo(2),
            ftype: 8,
            mark: 4095,
            name: (&b"n"[..]).into(),
        },
        Effect::DelDirent { dir: ino, cookie: 3 },
        Effect::PutXattr { ino, slot: 9, name: (&b"user.a"[..]).into(), value: (&b""[..]).into() },
        Effect::DelXattr { ino, slot: 9 },
        Effect::Map {
            ino,
            blk: 5,
            addr: BlockNo(77),
            count: 3,
            state: BlockState::Written,
            crcs: smallvec::smallvec![1, u32::MAX, 3],
        },
        Effect::Map {
            ino,
            blk: 0,
            addr: BlockNo(1),
            count: 32768,
            state: BlockState::Unwritten,
            crcs: Default::default(),
        },
        Effect::Patch { ino, off: 4095, bytes: smallvec::smallvec![3] },
        Effect::Zero { ino, off: 4096, len: 4096 },
        Effect::Unmap { ino, blk: 255, count: 257 },
        Effect::Cut { ino, blk: 0, end: 1 << 51 },
        Effect::Orphan { ino },
        Effect::Adopt { ino },
        Effect::ReclaimStep { ino, cut: u64::MAX, blk: 1, count: 1 },
        Effect::ReclaimDone { ino, cut: 0 },
    ];
    let medium = fresh(64);
    let (store, _) = weldfs_fs::mount(medium.clone(), options()).expect("mounts");
    store.journal().append(RecordHead::op(), &[&effect::encode(&all)], Vec::new(), None).expect("appends");
    // Nothing wrote the blocks it names.
    let (mut content, mut state) = (None, None);
    walk(&bytes_of(&*medium).as_slice(), &mut |item| {
        if let Item::Record(r) = item {
            (content, state) = (Some(r.content.clone()), Some(r.data.clone()));
        }
        weldfs_logview::Verdict::Go
    })
    .expect("walks");
    assert_eq!(content, Some(Content::Effects(all.iter().map(seen).collect())));
    assert!(matches!(state, Some(DataState::Missing { block: 77, expected: 1, .. })));
    assert_eq!(Name(b"a\x1b\xffb\\".to_vec()).to_string(), "a\\u{1b}\\xffb\\\\");
}
