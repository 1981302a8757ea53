//! Scans over records: which are good, and why the walk ends where it does.

use crate::support::*;
use weldfs_ciscops::program::*;
use weldfs_ciscops::*;
use weldfs_functions::checksum::Kind;

const HANDLE: Handle = Handle { index: 1, generation: 0 };

fn toy(content: &[u8]) -> Toy {
    let mut toy = Toy::new();
    let h = toy.open(b"a", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE).unwrap();
    assert_eq!(h, HANDLE);
    let src = toy.put(SRC_AT, content);
    toy.run(Op::Write { h, at: At::Offset(0), src });
    toy
}

fn kind_of(kind: SumKind) -> Kind {
    match kind {
        SumKind::Crc32c => Kind::Crc32c,
        SumKind::Crc32 => Kind::Crc32,
        SumKind::Crc32cMasked => Kind::Crc32cMasked,
    }
}

/// A log of records: head of 8 bytes (checksum, length), payload.
fn log_of(payloads: &[&[u8]], kind: SumKind, order: Order) -> Vec<u8> {
    let int = Int { width: Width::W4, order };
    let mut log = Vec::new();
    for p in payloads {
        let tail = [&int.put(p.len() as u64)[..4], p].concat();
        log.extend_from_slice(&int.put(kind_of(kind).of(&tail).into())[..4]);
        log.extend(tail);
    }
    log
}

#[test]
fn a_scan_stops_at_the_first_record_that_is_not_whole_and_sound() {
    let payloads: [&[u8]; 4] = [b"first", b"", b"the third", &[7; 70]];
    for (kind, order) in [(SumKind::Crc32c, Order::Little), (SumKind::Crc32, Order::Big)] {
        let log = log_of(&payloads, kind, order);
        let ends: Vec<u64> =
            payloads.iter().scan(0, |at, p| Some(std::mem::replace(at, *at + 8 + p.len() as u64))).collect();
        let scan = |content: &[u8], len: u64, room: u32| {
            let mut toy = toy(content);
            let mut b = Builder::new();
            let file = b.take(HANDLE, Access::READ);
            let (offsets, out) = (b.pool(room), b.pool(8));
            let [count, end, why] = [b.register(), b.register(), b.register()];
            let int = Int { width: Width::W4, order };
            let record =
                Record { head: 8, len_at: 4, len: int, sum_at: Some(0), sum_order: order, sum: kind, covers: 4 };
            let (off, len) = (Value::Imm(0), Value::Imm(len));
            b.push(Micro::Scan {
                file,
                off,
                len,
                record,
                offsets: Some(offsets),
                count: Some(count),
                end: Some(end),
                why: Some(why),
            });
            let buf = b.buffer(8);
            b.push(Micro::Fill { buf, from: Bytes::Int(why, Int::U64_LE), append: false });
            b.push(Micro::Give { buf, to: out, count: None });
            b.results(Some(count), Some(end));
            let ranges = [PoolRange::new(OUT_AT, room), PoolRange::new(OUT_AT + 256, 8)];
            let o = toy.run_program(&b.finish().unwrap(), &ranges, TxnMode::Default);
            assert_eq!(o.status, 0);
            let offsets: Vec<u64> =
                toy.get(OUT_AT, o.result as usize * 8).chunks(8).map(|b| Int::U64_LE.get(b)).collect();
            assert_eq!(offsets, ends[..o.result as usize]);
            let why = Int::U64_LE.get(&toy.get(OUT_AT + 256, 8));
            (o.result, o.result2, why)
        };
        let all = log.len() as u64;
        assert_eq!(scan(&log, 1000, 64), (4, all, scan_end::CLEAN));
        assert_eq!(scan(&log, ends[3], 64), (3, ends[3], scan_end::CLEAN), "as far as it was told");
        assert_eq!(scan(&log, ends[3] + 20, 64), (3, ends[3], scan_end::CUT));
        assert_eq!(scan(&log[..log.len() - 1], 1000, 64), (3, ends[3], scan_end::CUT));
        assert_eq!(scan(&log, 1000, 16), (2, ends[2], scan_end::FULL));
        assert_eq!(scan(&[&log[..], &[0; 16]].concat(), 1000, 64), (4, all, scan_end::BLANK));
        for bit in 0..8 * 9 {
            let mut damaged = log.clone();
            damaged[ends[2] as usize + bit / 8] ^= 1 << (bit % 8);
            let (good, end, why) = scan(&damaged, 1000, 64);
            assert_eq!((good, end), (2, ends[2]));
            assert!(why == scan_end::DAMAGED || why == scan_end::CUT, "bit {bit}");
        }
    }
}

#[test]
fn a_long_read_that_is_summed_up_and_a_long_record_make_way_after_every_piece() {
    let piece = PIECE_BYTES as u64;
    let content: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    let log = log_of(&[&content], SumKind::Crc32c, Order::Little);
    for kind in [SumKind::Crc32c, SumKind::Crc32, SumKind::Crc32cMasked] {
        let mut toy = toy(b"");
        let h = HANDLE;
        let sparse = limits::PROGRAM_READ_MAX;
        toy.state.files[0] = vec![7; sparse as usize];
        let mut b = Builder::new();
        let file = b.take(h, Access::READ);
        let [to, count] = [b.register(), b.register()];
        let fold = Some(Fold { kind, to });
        let (off, len) = (Value::Imm(0), Value::Imm(sparse));
        let (whole, pad, count) = (false, false, Some(count));
        b.push(Micro::Read { file, off, len, to: To::Nowhere, whole, pad, fold, count });
        b.results(Some(to), count);
        let o = toy.run_program(&b.finish().unwrap(), &[], TxnMode::Default);
        let sum = kind_of(kind).of(&toy.state.files[0]);
        assert_eq!((o.status, o.result, o.result2), (0, sum.into(), sparse), "{kind:?}");
        assert!(toy.longest <= piece, "{} bytes without making way ({kind:?})", toy.longest);
    }
    let mut toy = toy(b"");
    toy.state.files[0] = log.clone();
    let mut b = Builder::new();
    let file = b.take(HANDLE, Access::READ);
    let [count, end] = [b.register(), b.register()];
    let (off, len) = (Value::Imm(0), Value::Imm(1 << 20));
    let (int, sum_order) = (Int::U32_LE, Order::Little);
    let record = Record { head: 8, len_at: 4, len: int, sum_at: Some(0), sum_order, sum: SumKind::Crc32c, covers: 4 };
    let (count, end) = (Some(count), Some(end));
    b.push(Micro::Scan { file, off, len, record, offsets: None, count, end, why: None });
    b.results(count, end);
    let o = toy.run_program(&b.finish().unwrap(), &[], TxnMode::Default);
    assert_eq!((o.status, o.result, o.result2), (0, 1, log.len() as u64));
    assert!(toy.longest <= piece + 8, "{} bytes without making way (scan)", toy.longest);
}

#[test]
fn records_of_every_length_are_found_wherever_they_lie_and_what_is_lost_behind_the_last_one_hurts_nobody() {
    let lengths = [0usize, 1, 4087, 4088, 4089, 65_527, 65_528, 65_529, 70_000, 3, 140_000, 12, 60_000];
    let content: Vec<u8> = (0..200_000u32).map(|i| (i % 249) as u8).collect();
    let payloads: Vec<&[u8]> = lengths.iter().map(|n| &content[*n % 97..][..*n]).collect();
    let log = log_of(&payloads, SumKind::Crc32c, Order::Little);
    for (from, blank, lost) in [(0u64, 0usize, 0usize), (8, 0, 0), (17, 8, 0), (17, 100, 92), (17, 70_000, 69_992)] {
        let mut toy = toy(b"");
        let start = if from == 8 { 8 } else { 0 };
        let front = vec![1; (from - start) as usize];
        toy.state.files[0] = [&front[..], &log, &vec![0; blank]].concat();
        toy.state.lost = lost;
        let mut b = Builder::new();
        let file = b.take(HANDLE, Access::READ);
        let [count, end] = [b.register(), b.register()];
        let (off, len) = (Value::Imm(from), Value::Imm(1 << 20));
        let (int, sum_order) = (Int::U32_LE, Order::Little);
        let record =
            Record { head: 8, len_at: 4, len: int, sum_at: Some(0), sum_order, sum: SumKind::Crc32c, covers: 4 };
        let (count, end) = (Some(count), Some(end));
        b.push(Micro::Scan { file, off, len, record, offsets: None, count, end, why: None });
        b.results(count, end);
        let o = toy.run_program(&b.finish().unwrap(), &[], TxnMode::Default);
        // The first record has no payload: from the second one on there is one less.
        let good = lengths.len() as u64 - u64::from(from == 8);
        assert_eq!((o.status, o.result), (0, good), "from {from}, {blank} zeros, {lost} lost");
        assert_eq!(o.result2, front.len() as u64 + log.len() as u64);
    }
    // What is lost within a record is not passed over.
    let mut toy = toy(b"");
    toy.state.files[0] = log.clone();
    toy.state.lost = 100;
    let mut b = Builder::new();
    let file = b.take(HANDLE, Access::READ);
    let (int, sum_order) = (Int::U32_LE, Order::Little);
    let record = Record { head: 8, len_at: 4, len: int, sum_at: Some(0), sum_order, sum: SumKind::Crc32c, covers: 4 };
    let (off, len) = (Value::Imm(0), Value::Imm(1 << 20));
    b.push(Micro::Scan { file, off, len, record, offsets: None, count: None, end: None, why: None });
    let o = toy.run_program(&b.finish().unwrap(), &[], TxnMode::Default);
    assert_eq!(o.status, Errno::IO.0);
}
