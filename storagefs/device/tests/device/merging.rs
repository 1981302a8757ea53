//! Posted changes of one file that become one record: the file is what it would be with a record for each, each change
//! is answered as it would be, and there are as many records as are said.

use std::sync::Arc;

use weldfs_ciscops::flags::{FallocMode, SetAttrMask};
use weldfs_ciscops::interp::MERGED;
use weldfs_ciscops::{At, Durability, Handle, Op, OpenFlags, PoolRange, SetAttrBody, WireTime};
use weldfs_device::{LogFacts, Totals};
use weldfs_fs::Cred;
use weldfs_journal::Medium;
use weldfs_media::{CowImage, CowMedium, CrashModel, RamMedium};
use zerocopy::IntoBytes;

use crate::posting::{Hand, MEDIUM, on};

#[derive(Clone, Copy, PartialEq, Debug)]
enum On {
    Ram,
    Disk,
}

impl On {
    fn medium(self) -> Arc<dyn Medium> {
        match self {
            On::Ram => Arc::new(RamMedium::new(MEDIUM)),
            On::Disk => Arc::new(CowMedium::new(CowImage::new(vec![0; MEDIUM as usize]), CrashModel::Block)),
        }
    }
}

/// Commands, and whether they are posted.
type Row = Vec<(Op, bool)>;

fn merged(total: &Totals) -> [u64; 3] {
    [total.merged_writes, total.merged_places, total.merged_attributes]
}

/// What `make` posts, all at once and one by one: the file comes to the same, and the answers are the same.
fn same(medium: On, cred: Cred, flags: OpenFlags, make: &dyn Fn(&mut Hand<'_>) -> Row) -> [u64; 3] {
    rows(medium, cred, flags, &|hand| vec![make(hand)])
}

/// The same of several rows; each is over before the next one is posted.
fn rows(medium: On, cred: Cred, flags: OpenFlags, make: &dyn Fn(&mut Hand<'_>) -> Vec<Row>) -> [u64; 3] {
    let run = |together| {
        on((medium.medium(), Durability::Default), cred.clone(), flags, |hand, _| {
            let rows = make(hand);
            let answers: Vec<_> = rows.iter().flat_map(|ops| hand.all(ops, together)).collect();
            let said: Vec<_> = answers.iter().map(|c| (c.sequence, c.status, c.result, c.result2 & !MERGED)).collect();
            let joined = answers.iter().filter(|c| c.status == 0 && c.result2 & MERGED != 0).count();
            (said, hand.file(), joined)
        })
    };
    let ((said, file, joined), total) = run(true);
    let ((alone_said, alone_file, alone_joined), alone_total) = run(false);
    assert_eq!(said, alone_said);
    assert_eq!(file.1, alone_file.1);
    assert!(file.0 == alone_file.0, "other bytes");
    assert_eq!((merged(&alone_total), alone_joined), ([0; 3], 0), "one by one, and merged");
    assert_eq!(merged(&total).iter().sum::<u64>(), joined as u64, "what answers say of it");
    assert_eq!((total.commands, total.posted), (alone_total.commands, alone_total.posted));
    merged(&total)
}

fn set(hand: &mut Hand<'_>, set: SetAttrBody) -> (Op, bool) {
    let set = hand.put(set.as_bytes());
    (Op::SetAttr { h: hand.h, set }, true)
}

fn owner(uid: u32) -> SetAttrBody {
    SetAttrBody { mask: (SetAttrMask::UID | SetAttrMask::GID).bits(), uid, gid: uid, ..SetAttrBody::default() }
}

fn mode(mode: u32) -> SetAttrBody {
    SetAttrBody { mask: SetAttrMask::MODE.bits(), mode, ..SetAttrBody::default() }
}

fn times(sec: i64) -> SetAttrBody {
    let t = WireTime::new(sec, 0);
    SetAttrBody { mask: (SetAttrMask::ATIME | SetAttrMask::MTIME).bits(), atime: t, mtime: t, ..SetAttrBody::default() }
}

#[test]
fn what_tar_does_of_a_file_is_one_record() {
    for medium in [On::Ram, On::Disk] {
        let len = if medium == On::Ram { 10_000 } else { 200 };
        let joined = same(medium, Cred::root(), OpenFlags::WRITE, &|hand| {
            vec![
                hand.next(At::Current, len, 1),
                hand.next(At::Current, 100, 2),
                set(hand, owner(7)),
                set(hand, mode(0o4711)),
                set(hand, times(1_000_000)),
            ]
        });
        assert_eq!(joined, [1, 0, 3], "{medium:?}");
    }
}

#[test]
fn appends_go_on_where_the_one_before_ended() {
    for medium in [On::Ram, On::Disk] {
        let joined = same(medium, Cred::new(5, 5), OpenFlags::WRITE | OpenFlags::APPEND, &|hand| {
            (0..40).map(|n| hand.next(At::Offset(0), 37, n)).collect()
        });
        // All bytes of one record go into it on a disk, as many as may.
        assert!(if medium == On::Ram { joined == [39, 0, 0] } else { joined[0] >= 30 }, "{joined:?}");
    }
}

#[test]
fn a_header_and_what_it_tells_of_are_one_record() {
    let joined = same(On::Ram, Cred::root(), OpenFlags::WRITE, &|hand| {
        let mut ops = vec![hand.next(At::Offset(0), 64, 9), hand.next(At::Offset(4096), 300, 1)];
        // The header again: its block was written, and a record of its own begins.
        ops.extend([hand.next(At::Offset(0), 64, 10), hand.next(At::Offset(4396), 300, 2)]);
        ops
    });
    assert_eq!(joined, [0, 2, 0]);
}

#[test]
fn what_cannot_be_in_a_record_ends_it_and_is_answered_by_itself() {
    let joined = same(On::Ram, Cred::new(5, 5), OpenFlags::WRITE, &|hand| {
        let h = hand.h;
        let empty = Op::Write { h, at: At::Offset(0), src: PoolRange::EMPTY };
        vec![
            hand.next(At::Offset(0), 10, 1),
            set(hand, owner(0)), // EPERM
            hand.next(At::Offset(10), 10, 2),
            (empty, true),
            hand.next(At::Offset(20), 10, 3),
            hand.next(At::Offset(15), 10, 4),      // over what is written
            hand.next(At::Offset(1 << 60), 10, 5), // EFBIG
            set(hand, mode(0o600)),
            (Op::Fsync { h }, false),
            hand.next(At::Offset(0), 10, 6),
            (Op::Close { h: Handle::from_wire(0x7_0000_0003) }, false), // EBADF
        ]
    });
    assert_eq!(joined, [0, 0, 0]);
}

#[test]
fn random_rows_come_to_the_same_as_one_by_one() {
    let mut all = [0; 3];
    for seed in 1..=if cfg!(debug_assertions) { 60 } else { 600u64 } {
        let medium = if seed % 3 == 0 { On::Disk } else { On::Ram };
        let cred = if seed % 2 == 0 { Cred::root() } else { Cred::new(9, 9) };
        let flags = if seed % 5 == 0 { OpenFlags::WRITE | OpenFlags::APPEND } else { OpenFlags::WRITE };
        let joined = rows(medium, cred, flags, &|hand| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut below = |n: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % n
            };
            let mut end = 0;
            let row = |n: u64, hand: &mut Hand<'_>| {
                let place = [0, 1, 100, 4096, 4100, 8192, 20_000, 70_000][below(8) as usize];
                let len =
                    [1, 17, 64, 300, 4096, 4000, 9000, 20_000][below(if medium == On::Disk { 4 } else { 8 }) as usize];
                match below(8) {
                    0..=2 => {
                        let op = hand.next(At::Offset(end), len, n as u8);
                        end += len as u64;
                        op
                    }
                    3 => hand.next(At::Current, len, n as u8),
                    4 => hand.next(At::End, len, n as u8),
                    5 => {
                        end = place + len as u64;
                        hand.next(At::Offset(place), len, n as u8)
                    }
                    6 => set(hand, mode(0o7777 & (n as u32 * 0o1357))),
                    _ => match below(3) {
                        0 => set(hand, times(n as i64)),
                        1 => set(hand, owner(n as u32)),
                        _ => set(hand, SetAttrBody::default()),
                    },
                }
            };
            let mut row = row;
            let mut rows = Vec::new();
            for n in 0..6u64 {
                rows.push((0..8).map(|k| row(n * 8 + k, hand)).collect());
                // What is cut, or kept room for, or has a hole, is beside what the next row writes.
                let (h, off) = (hand.h, [0, 50, 4000, 4096, 9000, 30_000][(seed + n) as usize % 6]);
                let between = match (seed * 7 + n) % 5 {
                    0 => Op::Truncate { h, size: off },
                    1 => Op::Fallocate { h, mode: FallocMode::KeepSize, off, len: 20_000 },
                    2 => Op::Fallocate { h, mode: FallocMode::Punch, off, len: 5000 },
                    3 => Op::Fallocate { h, mode: FallocMode::Zero, off, len: 300 },
                    _ => Op::Syncfs,
                };
                rows.push(vec![(between, false)]);
            }
            rows
        });
        all = [all[0] + joined[0], all[1] + joined[1], all[2] + joined[2]];
    }
    assert!(all.iter().all(|n| *n > 50), "{all:?}");
}

/// Of what does not become part of a record nothing is done twice.
#[test]
fn long_neighbours_and_headers_cost_what_they_cost_alone() {
    let spent = |together| {
        let run = |hand: &mut Hand<'_>, log: &dyn Fn() -> LogFacts| {
            let long: Vec<_> = (0..3).map(|n| hand.next(At::Current, 64 << 10, n)).collect();
            let header: Vec<_> = (0..20).map(|n| hand.next(At::Offset(0), 64, n)).collect();
            hand.all(&long, together);
            hand.all(&header, together);
            log().records
        };
        let (records, total) = on((On::Ram.medium(), Durability::Default), Cred::root(), OpenFlags::WRITE, run);
        (records, total.data_bytes, total.payload_copies, total.payload_bytes_in)
    };
    assert_eq!(spent(true), spent(false));
}

/// Small changes of several blocks stay in the record, all of them or none.
#[test]
fn a_row_of_patches_makes_no_blocks() {
    let run = |hand: &mut Hand<'_>, _: &dyn Fn() -> LogFacts| {
        let blocks = hand.next(At::Offset(0), 64 << 10, 1);
        hand.all(&[blocks], true);
        let patches: Vec<_> = (0..12).map(|n| hand.next(At::Offset(n * 4096 + 7), 65, 2)).collect();
        assert!(hand.all(&patches, true).iter().all(|c| c.status == 0));
    };
    let (_, total) = on((On::Ram.medium(), Durability::Default), Cred::root(), OpenFlags::WRITE, run);
    assert_eq!(total.data_bytes, 64 << 10, "of the first write");
    // Seven are 455 bytes, and 512 go into a record.
    assert_eq!(total.merged_places, 6 + 4);
}

/// What is posted together is on the medium together.
#[test]
fn a_row_is_one_record_of_the_log_and_one_flush() {
    for medium in [On::Ram, On::Disk] {
        let spent = |together| {
            let run = |hand: &mut Hand<'_>, log: &dyn Fn() -> LogFacts| {
                let before = log();
                let mut ops: Vec<_> = (0..20).map(|n| hand.next(At::Current, 100, n)).collect();
                ops.extend([set(hand, mode(0o600)), (Op::Fsync { h: hand.h }, false)]);
                assert!(hand.all(&ops, together).iter().all(|c| c.status == 0));
                let after = log();
                (after.records - before.records, after.flushes - before.flushes)
            };
            on((medium.medium(), Durability::Default), Cred::root(), OpenFlags::WRITE, run).0
        };
        let (together, alone) = (spent(true), spent(false));
        println!("{medium:?}: {together:?} records and flushes in place of {alone:?}");
        assert_eq!((together.0, alone.0), (1, 21), "{medium:?}");
        let each = if medium == On::Ram { 21 } else { 1 };
        assert_eq!((together.1, alone.1), (1, each), "{medium:?}");
    }
}

/// Power cuts while rows are posted and synced: a file has all of a row or none of it, and what was synced.
#[test]
fn after_a_power_cut_a_row_is_there_or_is_not() {
    for model in [CrashModel::Block, CrashModel::Pmem] {
        assert_eq!(crate::posting::cut_rows(model, if cfg!(debug_assertions) { 400 } else { 4000 }), 0, "{model:?}");
    }
}
