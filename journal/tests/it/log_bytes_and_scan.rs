//! What lies on the medium, and what recovery makes of it: the bytes are those of docs/MEDIA-FORMAT.md; the scan
//! returns every durable record and nothing else; damage to durable records is told apart from a torn tail.

use crate::common::{Log, append};
use weldfs_journal::*;

#[test]
fn the_record_header_has_its_golden_bytes() {
    let mut log = Log::new(true);
    let first = log.area.first_lsn();
    let journal = log.open(first);
    let head = RecordHead { kind: RecordKind::Micro, mode: TxnMode::Micro, micro_index: 0x0304, txn: 0x1112 };
    journal.append(head, &[b"ab", b"c"], Vec::new(), None).expect("appends");
    let bytes = log.medium.bytes.lock()[8192..8192 + 67].to_vec();
    let salt = log.table.containing(first).expect("entry").salt;
    let mut golden = Vec::new();
    golden.extend(salt.to_le_bytes());
    golden.extend([0; 4]); // checksum, below
    golden.extend([3, 0, 0, 0]); // payload bytes
    golden.extend([0, 0, 1, 0, 0, 0, 0, 0]); // LSN = log length
    golden.extend([5, 2, 4, 3, 0, 0, 0, 0]); // kind, mode, micro index, reserved
    golden.extend([0x12, 0x11, 0, 0, 0, 0, 0, 0]); // transaction
    golden.extend([0, 0, 1, 0, 0, 0, 0, 0]); // watermark when written
    golden.extend([0; 16]);
    golden.extend(b"abc");
    let mut summed = b"abc".to_vec();
    summed.extend(&golden[..64]);
    let crc = weldfs_functions::crc32c(&summed);
    golden[8..12].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(bytes, golden);
}

#[test]
fn an_empty_log_is_valid_and_a_full_run_comes_back_in_order_over_laps() {
    for byte_addressable in [true, false] {
        let mut log = Log::new(byte_addressable);
        assert_eq!(log.scan().expect("scans").0.len(), 0);
        let mut journal = log.open(log.area.first_lsn());
        let mut since = Vec::new();
        for i in 0..3000u32 {
            let payload: Vec<u8> = i.to_le_bytes().repeat(1 + (i % 300) as usize);
            if journal.reserve(payload.len()).is_err() {
                log.checkpoint(&journal, journal.tail());
                since.clear();
            }
            let at = append(&journal, &payload);
            since.push(payload);
            if i % 7 == 0 {
                journal.wait(at.end).expect("durable");
            }
            if i % 400 == 399 {
                journal.wait(journal.tail()).expect("durable");
                drop(journal);
                let (all, report) = log.scan().expect("scans");
                assert_eq!(all, since);
                assert_eq!(report.discarded, None);
                journal = log.open(report.tail);
                log.checkpoint(&journal, report.tail);
                since.clear();
            }
        }
    }
}

#[test]
fn a_torn_tail_is_cut_reported_and_never_comes_back() {
    let mut log = Log::new(true);
    let journal = log.open(log.area.first_lsn());
    append(&journal, b"one");
    let two = append(&journal, b"two");
    let three = append(&journal, b"three");
    log.flip(two.lsn, 65);
    drop(journal);
    let (all, report) = log.scan().expect("scans");
    assert_eq!(all, [b"one".to_vec()]);
    assert_eq!(report.tail, two.lsn);
    let discarded = report.discarded.expect("a tail was cut");
    assert_eq!((discarded.from, discarded.to, discarded.records), (two.lsn, three.end, 1));
    // The same bytes made valid again do not count any more: the segment of these LSNs has a new salt.
    let journal = log.open(report.tail);
    drop(journal);
    log.flip(two.lsn, 65);
    let (all, report) = log.scan().expect("scans");
    assert_eq!(all, [b"one".to_vec()]);
    assert_eq!((report.tail, report.discarded), (two.lsn, None));
}

#[test]
fn rot_of_any_byte_of_the_last_records_header_is_told() {
    for byte_addressable in [true, false] {
        let (log, all) = acknowledged(byte_addressable);
        let last = all[all.len() - 1].lsn;
        for byte in 0..64 {
            log.flip(last, byte);
            match log.scan() {
                Ok((_, report)) => {
                    assert_eq!((report.tail, report.discarded.map(|d| d.from)), (last, Some(last)), "byte {byte}");
                }
                // Its LSN: a record of another place.
                Err(ScanError::Corrupt { .. }) => assert!((16..24).contains(&byte), "byte {byte}"),
                Err(e) => panic!("byte {byte}: {e}"),
            }
            log.flip(last, byte);
        }
    }
}

#[test]
fn rot_below_a_recorded_watermark_is_corruption_not_a_torn_tail() {
    let mut log = Log::new(true);
    let journal = log.open(log.area.first_lsn());
    append(&journal, b"one");
    let two = append(&journal, b"two");
    journal.wait(two.end).expect("durable");
    let three = append(&journal, b"three"); // carries a watermark above `two`
    log.flip(two.lsn, 64);
    match log.scan() {
        Err(ScanError::Corrupt { from, durable, .. }) => assert_eq!((from, durable), (two.lsn, two.end)),
        other => panic!("{other:?}"),
    }
    log.flip(two.lsn, 64);
    log.flip(three.lsn, 64); // rot in a record that no recorded watermark covers looks like a torn tail
    let report = log.scan().expect("scans").1;
    assert_eq!(report.tail, three.lsn);
    let discarded = report.discarded.expect("it is told all the same");
    assert_eq!((discarded.from, discarded.records, discarded.torn), (three.lsn, 0, 1));
}

#[test]
fn one_watermark_record_follows_the_last_flush_and_makes_rot_visible() {
    let mut log = Log::new(true);
    let journal = log.open(log.area.first_lsn());
    let one = append(&journal, b"one");
    journal.wait(one.end).expect("durable");
    journal.idle();
    journal.idle();
    assert_eq!(journal.stats().watermark_records, 1);
    let tail = journal.tail();
    log.clock.advance(6_000_000_000);
    assert_eq!(journal.tick(), Ok(None), "the late flush arms nothing again");
    assert_eq!((journal.tail(), journal.watermark()), (tail, tail));
    assert_eq!(journal.recorded_watermark(), one.end);
    assert_eq!(log.scan().expect("scans").0, [b"one".to_vec()], "internal records stay inside");
    log.flip(one.lsn, 64);
    assert!(matches!(log.scan(), Err(ScanError::Corrupt { .. })));
}

#[test]
fn a_valid_record_in_the_wrong_place_is_corruption() {
    let mut log = Log::new(true);
    let journal = log.open(log.area.first_lsn());
    let one = append(&journal, b"one");
    let two = append(&journal, b"two");
    let (a, b) = (log.area.physical(one.lsn) as usize, log.area.physical(two.lsn) as usize);
    log.medium.bytes.lock().copy_within(b..b + 128, a);
    assert!(matches!(log.scan(), Err(ScanError::Corrupt { .. })));
}

/// A log whose records are durable and say so: three long ones, `small` little ones, the last of which ends a block.
fn acknowledged(byte_addressable: bool) -> (Log, Vec<Appended>) {
    let mut log = Log::new(byte_addressable);
    let journal = log.open(log.area.first_lsn());
    let mut all: Vec<Appended> = (0..3u8).map(|i| append(&journal, &[i; 5000])).collect();
    while all.len() < 12 || !all.last().is_some_and(|at| at.end.0.is_multiple_of(4096)) {
        all.push(append(&journal, &[all.len() as u8; 40]));
    }
    journal.wait(journal.tail()).expect("durable");
    drop(journal);
    (log, all)
}

#[test]
fn the_last_block_of_the_log_under_another_block_of_it_is_corruption_and_no_torn_tail() {
    for byte_addressable in [true, false] {
        let (log, all) = acknowledged(byte_addressable);
        assert_eq!(log.scan().expect("scans").1.records, all.len() as u64);
        let start = log.area.start as usize;
        let blocks = (all[all.len() - 1].end.0 % log.area.len) as usize / 4096;
        let whole = log.medium.bytes.lock().clone();
        let mut told = 0;
        for from in 0..blocks - 1 {
            let at = start + (blocks - 1) * 4096;
            log.medium.bytes.lock().copy_within(start + from * 4096..start + (from + 1) * 4096, at);
            // (A block without the beginning of any record says nothing.)
            let block = start + from * 4096..start + (from + 1) * 4096;
            let salt = log.table.containing(log.oldest).expect("entry").salt.to_le_bytes();
            let begins = whole[block].chunks(64).any(|c| c[..8] == salt);
            match log.scan() {
                Err(ScanError::Corrupt { .. }) => told += 1,
                other => assert!(!begins || byte_addressable, "block {from}: {other:?}"),
            }
            log.medium.bytes.lock().copy_from_slice(&whole);
        }
        assert!(told > 1, "byte-addressable {byte_addressable}: {told} of {blocks}");
    }
}

#[test]
fn a_block_of_an_earlier_mount_over_the_last_one_is_corruption_too() {
    let mut log = Log::new(false);
    let journal = log.open(log.area.first_lsn());
    let old = append(&journal, b"old");
    let tail = journal.tail();
    journal.wait(tail).expect("durable");
    drop(journal);
    let journal = log.open(tail);
    let new = append(&journal, b"new");
    journal.wait(new.end).expect("durable");
    let (a, b) = (log.area.physical(old.lsn) as usize, log.area.physical(new.lsn) as usize);
    log.medium.bytes.lock().copy_within(a..a + 512, b);
    assert!(matches!(log.scan(), Err(ScanError::Corrupt { .. })));
}

#[test]
fn what_earlier_laps_and_discarded_tails_left_behind_the_tail_is_no_corruption() {
    for byte_addressable in [true, false] {
        let mut log = Log::new(byte_addressable);
        let mut journal = log.open(log.area.first_lsn());
        for i in 0..2000u32 {
            let payload = [i as u8; 90];
            if journal.reserve(payload.len()).is_err() {
                log.checkpoint(&journal, journal.tail());
            }
            let at = append(&journal, &payload);
            if i % 150 != 149 {
                continue;
            }
            // The last record is lost; no other said that it was durable.
            let tail = at.lsn;
            journal.wait(at.end).expect("written");
            drop(journal);
            log.flip(at.lsn, 70);
            let report = log.scan().expect("scans").1;
            assert_eq!((report.tail, report.discarded.map(|d| d.torn)), (tail, Some(1)));
            journal = log.open(tail);
            log.checkpoint(&journal, tail);
            assert_eq!(log.scan().expect("scans").1.discarded, None);
        }
    }
}

#[test]
fn a_forged_record_inside_a_payload_is_not_accepted() {
    let mut log = Log::new(true);
    let journal = log.open(log.area.first_lsn());
    // The best forgery possible without the salt: all fields right for the position where it will lie.
    let lsn = Lsn(log.area.len + 64);
    for salt in [0u64, 1, !0] {
        let mut forged = salt.to_le_bytes().to_vec();
        forged.extend([0; 4]);
        forged.extend([0; 4]);
        forged.extend(lsn.0.to_le_bytes());
        forged.extend([3, 1, 0, 0, 0, 0, 0, 0]);
        forged.extend([0; 8]);
        forged.extend(lsn.0.to_le_bytes()); // "everything below me is durable"
        forged.extend([0; 16]);
        let crc = weldfs_functions::crc32c(&forged);
        forged[8..12].copy_from_slice(&crc.to_le_bytes());
        append(&journal, &forged);
    }
    let spoiled = log.area.first_lsn();
    log.flip(spoiled, 8);
    let (all, report) = log.scan().expect("the forged watermark does not count");
    assert_eq!((all.len(), report.tail), (0, spoiled));
}

#[test]
fn data_that_does_not_match_cuts_above_the_watermark_and_is_corruption_below() {
    let mut log = Log::new(true);
    let journal = log.open(log.area.first_lsn());
    let one = append(&journal, b"one");
    journal.wait(one.end).expect("durable");
    let two = append(&journal, b"two");
    append(&journal, b"three");
    let scan_refusing = |victim: &[u8]| {
        scan(&*log.medium, &log.area, &log.table, log.oldest, &mut |r| {
            assert_eq!(r.verify_data, r.payload != b"one");
            if r.payload == victim { Verdict::CutHere } else { Verdict::Ok }
        })
    };
    let report = scan_refusing(b"two").expect("scans");
    assert_eq!((report.tail, report.records), (two.lsn, 1));
    assert_eq!(report.discarded.expect("reported").records, 2);
    assert!(matches!(scan_refusing(b"one"), Err(ScanError::Corrupt { .. })));
}

#[test]
fn the_table_of_segments_holds_many_mounts_and_says_when_it_is_full() {
    let mut log = Log::new(true);
    let mut tail = log.area.first_lsn();
    for _ in 0..13 {
        let journal = log.open(tail);
        append(&journal, b"x");
        tail = journal.tail();
        assert_eq!(log.scan().expect("scans").1.tail, tail);
    }
    assert!(log.table.is_crowded());
    // A mount that appends nothing takes no entry.
    let entries = log.table.entries().len();
    drop(log.open(tail));
    let again = log.open(tail);
    assert_eq!(log.table.entries().len(), entries + 1);
    log.checkpoint(&again, again.tail());
    assert_eq!(log.table.entries().len(), 2);
}

#[test]
fn a_scan_of_arbitrary_bytes_ends_in_bounded_time_without_inventing_records() {
    use rand::{Rng, SeedableRng};
    let mut rng = rand::rngs::SmallRng::seed_from_u64(11);
    for round in 0..300 {
        let mut log = Log::new(round % 2 == 0);
        let journal = log.open(log.area.first_lsn());
        let mut written = Vec::new();
        for i in 0..rng.random_range(1..60u8) {
            let payload = vec![i; rng.random_range(0..300)];
            let at = append(&journal, &payload);
            written.push(payload);
            if rng.random_bool(0.3) {
                journal.wait(at.end).expect("durable");
            }
        }
        journal.wait(journal.tail()).expect("durable");
        drop(journal);
        // Rot of any kind: flipped bytes, the salt repeated everywhere, noise.
        let salt = log.table.containing(log.oldest).expect("entry").salt.to_le_bytes();
        let mut bytes = log.medium.bytes.lock();
        for _ in 0..rng.random_range(1..40) {
            let at = 8192 + rng.random_range(0..(64usize << 10) / 64 - 1) * 64;
            match rng.random_range(0..3) {
                0 => bytes[at + rng.random_range(0..64usize)] ^= 1 << rng.random_range(0..8u8),
                1 => bytes[at..at + 8].copy_from_slice(&salt),
                _ => rng.fill(&mut bytes[at..at + 64]),
            }
        }
        drop(bytes);
        match log.scan() {
            Ok((all, _)) => assert_eq!(all[..], written[..all.len()]),
            Err(ScanError::Corrupt { from, durable, .. }) => assert!(from >= log.oldest && durable >= from),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn candidates_without_end_are_refused_instead_of_summed() {
    let mut log = Log::new(true);
    drop(log.open(log.area.first_lsn()));
    let salt = log.table.containing(log.oldest).expect("entry").salt;
    let mut bytes = log.medium.bytes.lock();
    for at in (0..64usize << 10).step_by(64).skip(1) {
        bytes[8192 + at..8192 + at + 8].copy_from_slice(&salt.to_le_bytes());
        bytes[8192 + at + 12..8192 + at + 16].copy_from_slice(&16000u32.to_le_bytes());
        bytes[8192 + at + 16..8192 + at + 24].copy_from_slice(&(log.area.len + at as u64).to_le_bytes());
    }
    drop(bytes);
    assert!(matches!(log.scan(), Err(ScanError::Corrupt { .. })));
}
