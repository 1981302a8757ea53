//! Group commit, waiters, deadlines, reservations, and the finality of a failed flush.

use crate::common::{Log, append};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Wake, Waker};
use weldfs_journal::*;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn one_flush_serves_all_who_arrive_while_another_is_in_flight() {
    let mut log = Log::new(false);
    log.medium.slow_flush_ms.store(20, SeqCst);
    let journal = Arc::new(log.open(log.area.first_lsn()));
    let threads: Vec<_> = (0..16)
        .map(|i| {
            let journal = journal.clone();
            std::thread::spawn(move || {
                let at = append(&journal, &[i; 100]);
                journal.wait(at.end).expect("durable");
                assert!(journal.watermark() >= at.end);
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
    let flushes = journal.stats().flushes;
    assert!((1..=8).contains(&flushes), "{flushes} flushes for 16 commits");
    assert_eq!(log.scan().expect("scans").0.len(), 16);
}

#[test]
fn data_is_on_the_medium_before_its_record_is_durable() {
    for byte_addressable in [true, false] {
        let mut log = Log::new(byte_addressable);
        let journal = log.open(log.area.first_lsn());
        let buf = Arc::new(AlignedBuf::from_slice(&[9; 4096]));
        let data = vec![DataWrite { off: 512 << 10, buf }];
        let at = journal.append(RecordHead::op(), &[b"map"], data, None).expect("appends");
        journal.wait(at.end).expect("durable");
        assert!(log.medium.bytes.lock()[512 << 10..][..4096].iter().all(|&b| b == 9));
    }
}

#[test]
fn one_durable_record_is_one_flush_and_one_log_write_and_its_data_one_more() {
    let mut log = Log::new(false);
    let journal = log.open(log.area.first_lsn());
    let mut before = journal.stats();
    for round in 0..30u64 {
        let buf = Arc::new(AlignedBuf::from_slice(&[9; 4096]));
        let data = if round % 2 == 0 { vec![DataWrite { off: 512 << 10, buf }] } else { Vec::new() };
        let writes = data.len() as u64;
        let at = journal.append(RecordHead::op(), &[b"map"], data, None).expect("appends");
        journal.wait(at.end).expect("durable");
        let now = journal.stats();
        let cost = (now.flushes - before.flushes, now.log_writes - before.log_writes, now.batches - before.batches);
        assert_eq!((cost, now.data_writes - before.data_writes), ((1, 1, 1), writes), "round {round}");
        before = now;
    }
    // The watermark record of each flush went along with the next batch.
    assert!(before.watermark_records >= 29);
}

#[test]
fn a_failed_flush_is_final_and_reaches_every_waiter() {
    for byte_addressable in [true, false] {
        let mut log = Log::new(byte_addressable);
        let journal = log.open(log.area.first_lsn());
        let before = append(&journal, b"fine");
        journal.wait(before.end).expect("durable");
        let lost = append(&journal, b"lost");
        let woken = Arc::new(Count::default());
        assert!(!journal.subscribe(lost.end, Waker::from(woken.clone())));
        log.medium.fail_flush.store(true, SeqCst);
        assert!(journal.wait(lost.end).is_err());
        // The waker may be called just after the blocking waiter saw the failure.
        while woken.0.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(woken.0.load(SeqCst), 1);
        log.medium.fail_flush.store(false, SeqCst);
        assert_eq!(journal.wait(lost.end), Err(JournalError::Poisoned));
        assert!(journal.append(RecordHead::op(), &[b"no"], Vec::new(), None).is_err());
        assert!(journal.subscribe(lost.end, Waker::from(woken)), "nobody sleeps on a poisoned log");
        assert_eq!(journal.is_durable(before.end), Ok(true), "what was durable stays so");
    }
}

#[test]
fn wakers_fire_when_the_watermark_reaches_them_and_not_before() {
    let mut log = Log::new(true);
    let journal = log.open(log.area.first_lsn());
    let (one, two) = (append(&journal, b"one"), append(&journal, b"two"));
    let woken = Arc::new(Count::default());
    assert!(!journal.subscribe(two.end, Waker::from(woken.clone())));
    assert_eq!(woken.0.load(SeqCst), 0);
    journal.commit_through(one.end).expect("durable"); // takes its neighbour along
    assert_eq!((woken.0.load(SeqCst), journal.watermark()), (1, two.end));
    assert!(journal.subscribe(two.end, Waker::from(woken)));
}

#[test]
fn volatile_records_have_a_deadline_of_five_seconds_from_the_oldest() {
    for byte_addressable in [true, false] {
        let mut log = Log::new(byte_addressable);
        let journal = log.open(log.area.first_lsn());
        assert_eq!(journal.next_deadline(), None);
        append(&journal, b"one");
        log.clock.advance(1_000_000_000);
        append(&journal, b"two");
        assert_eq!(journal.next_deadline(), Some(5_000_000_001));
        assert_eq!(journal.tick(), Ok(Some(5_000_000_001)));
        log.clock.advance(4_000_000_000);
        journal.tick().expect("flushes");
        journal.wait(journal.tail()).expect("durable");
    }
}

#[test]
fn who_hears_of_a_flush_finds_the_watermark_record_and_its_deadline() {
    for byte_addressable in [true, false] {
        let mut log = Log::new(byte_addressable);
        let journal = log.open(log.area.first_lsn());
        for round in 1..=20 {
            let at = append(&journal, b"one");
            journal.wait(at.end).expect("durable");
            journal.idle();
            assert_eq!(journal.stats().watermark_records, round);
            assert!(journal.next_deadline().is_some() && journal.tail() > at.end);
            assert!(journal.recorded_watermark() < at.end, "the record that says it is not durable yet");
        }
        let at = journal.tail();
        journal.wait(at).expect("durable");
        assert_eq!(journal.recorded_watermark().0, at.0 - u64::from(log.area.align));
        journal.idle();
        assert_eq!((journal.next_deadline(), journal.tail()), (None, at), "it is not followed by one more");
    }
}

#[test]
fn a_record_that_only_says_how_far_flushes_went_is_worth_no_flush() {
    for byte_addressable in [true, false] {
        let mut log = Log::new(byte_addressable);
        let journal = log.open(log.area.first_lsn());
        assert_eq!(journal.owned_end(), journal.tail());
        for round in 1..=5 {
            let at = append(&journal, b"one");
            assert_eq!(journal.owned_end(), at.end);
            journal.wait(at.end).expect("durable");
            journal.idle();
            assert!(journal.tail() > at.end, "the record that says so");
            assert_eq!(journal.owned_end(), at.end);
            // All that anyone asks for is durable: a sync costs nothing.
            journal.wait(journal.owned_end()).expect("durable");
            assert_eq!(journal.stats().flushes, round);
        }
    }
}

#[test]
fn a_reserved_record_always_fits_and_laps_are_entered_only_when_covered() {
    let mut log = Log::new(true);
    let first = log.area.first_lsn();
    let config = JournalConfig {
        area: log.area,
        segments: log.table.clone(),
        tail: first,
        oldest: first,
        clock: log.clock.clone(),
        random: Arc::new(SeededRandom::new(1)),
    };
    let journal = Journal::open(log.medium.clone(), config).expect("opens");
    assert!(journal.reserve(10).is_err(), "no superblock names the new segment yet");
    log.checkpoint(&journal, first);
    for round in 0..50usize {
        let mut rooms = Vec::new();
        while let Ok(room) = journal.reserve(1000 + round) {
            rooms.push(room);
        }
        assert!(rooms.len() > 20, "only {} fit", rooms.len());
        for room in rooms {
            let payload = vec![1; 1000 + round];
            journal.append(RecordHead::op(), &[&payload], Vec::new(), Some(room)).expect("reserved");
        }
        assert!(journal.used() <= log.area.len);
        let cut = journal.tail();
        journal.wait(cut).expect("durable");
        log.checkpoint(&journal, cut);
    }
    let too_long = vec![0; log.area.len as usize];
    let refused = journal.append(RecordHead::op(), &[&too_long], Vec::new(), None);
    assert!(matches!(refused, Err(JournalError::TooLong { .. })));
}

#[test]
fn a_record_longer_than_its_reservation_is_a_bug_that_shows_and_is_not_written() {
    let mut log = Log::new(true);
    let journal = log.open(log.area.first_lsn());
    let room = journal.reserve(100).expect("there is room");
    let tail = journal.tail();
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        journal.append(RecordHead::op(), &[&[1; 300]], Vec::new(), Some(room))
    }));
    match tried {
        Ok(refused) => assert!(matches!(refused, Err(JournalError::Exceeded { .. })), "{refused:?}"),
        Err(_) if cfg!(debug_assertions) => {}
        Err(_) => panic!("only a debug build panics"),
    }
    assert_eq!(journal.tail(), tail);
    journal.append(RecordHead::op(), &[&[1; 300]], Vec::new(), None).expect("it would have fitted");
}

#[test]
fn records_of_one_transaction_share_a_reservation_and_always_fit() {
    for byte_addressable in [true, false] {
        let mut log = Log::new(byte_addressable);
        let journal = log.open(log.area.first_lsn());
        for round in 0..60usize {
            let payloads = [1 + round % 7, 900 + round, 0, 30];
            let mut started = Vec::new();
            while let Ok(room) = journal.reserve_records(&payloads) {
                started.push(room);
            }
            let align = log.area.align as usize;
            let each: usize = payloads.iter().map(|p| (p + 64).next_multiple_of(align)).sum();
            assert!(started.iter().all(|r| r.bytes() == each as u64));
            assert!(started.len() * each + 2 * each + (16 << 10) > log.area.len as usize, "the log is well used");
            assert!(journal.reserve_records(&payloads).is_err());
            // Their records come interleaved, and other things are written meanwhile.
            for p in payloads {
                for room in &mut started {
                    let part = room.part(p).expect("reserved");
                    journal.append(RecordHead::op(), &[&vec![7; p]], Vec::new(), Some(part)).expect("reserved");
                }
                journal.wait(journal.tail()).expect("durable");
                journal.idle();
            }
            assert!(started.iter().all(|r| r.bytes() == 0));
            drop(started);
            assert!(journal.used() <= log.area.len);
            let cut = journal.tail();
            journal.wait(cut).expect("durable");
            log.checkpoint(&journal, cut);
            assert_eq!(journal.free(), journal.reservable_bytes_max() - (journal.tail().0 - cut.0));
        }
    }
}

#[test]
fn large_volatile_data_is_written_out_without_a_flush() {
    let mut log = Log::new(false);
    let journal = log.open(log.area.first_lsn());
    let flushes = log.medium.flushes.load(SeqCst);
    for i in 0..10u64 {
        let buf = Arc::new(AlignedBuf::from_slice(&[3; 256 << 10]));
        let off = (256 << 10) + (i % 2) * (256 << 10);
        journal.append(RecordHead::op(), &[b"m"], vec![DataWrite { off, buf }], None).expect("appends");
    }
    for _ in 0..200 {
        if journal.stats().batches > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(journal.stats().batches > 0);
    assert_eq!((log.medium.flushes.load(SeqCst), journal.stats().flushes), (flushes, 0));
}

#[test]
fn a_medium_poisoned_by_somebody_else_reaches_every_waiter() {
    let mut log = Log::new(false);
    let journal = log.open(log.oldest);
    log.medium.slow_flush_ms.store(200, SeqCst);
    let first = append(&journal, b"first");
    journal.commit_through(first.end).expect("starts");
    std::thread::sleep(std::time::Duration::from_millis(50));
    // The commit thread is in its flush; this one waits for the next.
    let second = append(&journal, b"second");
    journal.commit_through(second.end).expect("wanted");
    let woken = Arc::new(Count::default());
    assert!(!journal.subscribe(second.end, Waker::from(woken.clone())));
    log.medium.poison();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while woken.0.load(SeqCst) == 0 {
        assert!(std::time::Instant::now() < patience, "the waiter never hears of it");
        std::thread::yield_now();
    }
}

/// A caller that attends and leaves to lead is the thread that flushes; who waits is told when it says so.
#[test]
fn a_caller_that_waits_does_the_flush_itself() {
    let mut log = Log::new(false);
    let journal = log.open(log.area.first_lsn());
    for round in 1..=20u64 {
        journal.attend();
        let at = append(&journal, b"led");
        journal.commit_through(at.end).expect("wanted");
        let woken = Arc::new(Count::default());
        assert!(!journal.subscribe(at.end, Waker::from(woken.clone())), "no other thread began it");
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(journal.watermark() < at.end, "round {round}: the commit thread did it");
        assert!(journal.leave(true), "it led");
        assert!(journal.watermark() >= at.end);
        assert_eq!(woken.0.load(SeqCst), 0, "told before it was time");
        journal.announce_led();
        assert_eq!(woken.0.load(SeqCst), 1);
        assert_eq!(journal.stats().flushes, round);
    }
    assert!(!journal.leave(true), "nothing is wanted");
    assert_eq!(log.scan().expect("scans").0.len(), 20);
}

/// A caller that leaves with what it came for leaves the flush to the log's thread.
#[test]
fn a_caller_that_has_what_it_came_for_waits_for_no_flush() {
    let mut log = Log::new(false);
    log.medium.slow_flush_ms.store(20, SeqCst);
    let journal = log.open(log.area.first_lsn());
    journal.attend();
    let at = append(&journal, b"of another");
    journal.commit_through(at.end).expect("wanted");
    assert!(!journal.leave(false));
    assert!(journal.watermark() < at.end);
    journal.wait(at.end).expect("the thread does it");
}

/// Callers that lead, callers that leave, and threads that wait: one batch at a time, none forgotten, and what the
/// watermark says is on the medium.
#[test]
fn leaders_and_the_commit_thread_take_turns() {
    let mut log = Log::new(false);
    log.medium.slow_flush_ms.store(1, SeqCst);
    let journal = Arc::new(log.open(log.area.first_lsn()));
    let threads: Vec<_> = (0..6u8)
        .map(|i| {
            let journal = journal.clone();
            std::thread::spawn(move || {
                for _ in 0..7 {
                    if i % 3 != 0 {
                        journal.attend();
                    }
                    let at = append(&journal, &[i; 300]);
                    journal.commit_through(at.end).expect("wanted");
                    if i % 3 != 0 && journal.leave(i % 3 == 1) {
                        journal.announce_led();
                    }
                    journal.wait(at.end).expect("durable");
                    assert!(journal.watermark() >= at.end);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
    assert_eq!(log.scan().expect("scans").0.len(), 42);
}

#[test]
fn a_flush_that_fails_under_a_leader_reaches_every_waiter() {
    let mut log = Log::new(false);
    let journal = log.open(log.area.first_lsn());
    journal.attend();
    let lost = append(&journal, b"lost");
    journal.commit_through(lost.end).expect("wanted");
    let woken = Arc::new(Count::default());
    assert!(!journal.subscribe(lost.end, Waker::from(woken.clone())));
    log.medium.fail_flush.store(true, SeqCst);
    assert!(journal.leave(true), "it tried");
    assert!(journal.is_poisoned());
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(journal.wait(lost.end).is_err());
}
