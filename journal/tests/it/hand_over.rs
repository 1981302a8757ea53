//! Volatile records that survive the process: handed to the host in whole pages, never beside a write past its cache.

use crate::common::{Log, append};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// What a killed process leaves: the medium's bytes as they are, flushed or not.
fn left(log: &Log) -> Vec<Vec<u8>> {
    log.scan().expect("scans").0
}

#[test]
fn what_was_handed_over_is_there_when_the_process_is_not_and_costs_no_flush() {
    let mut log = Log::new(false);
    let journal = log.open(log.area.first_lsn());
    let flushes = journal.stats().flushes;
    let mut all = Vec::new();
    for i in 0..8u8 {
        // Within a page, over its end, over several.
        all.push(vec![i; [60, 700, 5000, 9000][usize::from(i % 4)]]);
        let at = append(&journal, &all[usize::from(i)]);
        assert_eq!(left(&log).len(), usize::from(i), "it is queued only");
        journal.hand_over(at.end).expect("handed over");
        assert_eq!(left(&log), all);
        assert!(journal.watermark() < at.end, "it is not durable");
    }
    assert_eq!(journal.stats().flushes, flushes);
}

#[test]
fn laps_are_handed_over_as_they_are_written() {
    let mut log = Log::new(false);
    let journal = log.open(log.area.first_lsn());
    for lap in 0..60u8 {
        let kept: Vec<Vec<u8>> = (0..3u8).map(|i| vec![lap ^ i; 200 + 2300 * usize::from(i)]).collect();
        for payload in &kept {
            append(&journal, payload);
        }
        let end = journal.tail();
        if lap % 2 == 0 {
            journal.hand_over(end).expect("handed over");
        } else {
            journal.wait(end).expect("durable");
        }
        assert_eq!(left(&log), kept, "lap {lap}");
        journal.wait(end).expect("durable");
        log.checkpoint(&journal, end);
    }
}

#[test]
fn a_page_that_another_process_began_keeps_what_is_in_it() {
    let mut log = Log::new(false);
    let mut tail = log.area.first_lsn();
    let mut all = Vec::new();
    for i in 0..12u8 {
        let journal = log.open(tail);
        let at = append(&journal, &[i; 100]);
        all.push(vec![i; 100]);
        if i % 3 == 0 {
            journal.wait(at.end).expect("durable");
        }
        journal.hand_over(at.end).expect("handed over");
        drop(journal);
        assert_eq!(left(&log), all, "a process with one record each");
        tail = at.end;
        // Segments are few: as a mount does that finds them used up.
        if i % 6 == 5 {
            log.oldest = tail;
            all.clear();
        }
    }
}

#[test]
fn what_is_handed_over_does_not_wait_for_a_flush_that_is_under_way() {
    let mut log = Log::new(false);
    let journal = Arc::new(log.open(log.area.first_lsn()));
    log.medium.slow_flush_ms.store(300, SeqCst);
    let begun = log.medium.flushes_begun.load(SeqCst);
    let first = append(&journal, b"durable");
    journal.commit_through(first.end).expect("wanted");
    while log.medium.flushes_begun.load(SeqCst) == begun {
        std::thread::sleep(Duration::from_millis(1));
    }
    let second = append(&journal, b"volatile");
    journal.hand_over(second.end).expect("handed over");
    assert!(journal.watermark() < first.end, "the flush has not ended");
    assert_eq!(left(&log), [&b"durable"[..], b"volatile"]);
    journal.wait(first.end).expect("durable");
    assert!(journal.watermark() < second.end, "that flush began before it");
    journal.wait(second.end).expect("durable");
}

/// Volatile records, durable ones by leaders and by the thread, mixed: the medium of these tests panics when a page is
/// written past the cache that holds a part of it unflushed, and what a caller was told is there.
#[test]
fn volatile_and_durable_callers_take_turns() {
    let mut log = Log::new(false);
    log.medium.slow_flush_ms.store(1, SeqCst);
    let journal = Arc::new(log.open(log.area.first_lsn()));
    let threads: Vec<_> = (0..6u8)
        .map(|i| {
            let journal = journal.clone();
            std::thread::spawn(move || {
                for round in 0..12 {
                    if i % 3 == 1 {
                        journal.attend();
                    }
                    let at = append(&journal, &[i; 300]);
                    match i % 3 {
                        0 => journal.hand_over(at.end).expect("handed over"),
                        1 => {
                            journal.commit_through(at.end).expect("wanted");
                            if journal.leave(round % 2 == 0) {
                                journal.announce_led();
                            }
                            journal.wait(at.end).expect("durable");
                        }
                        _ => journal.wait(at.end).expect("durable"),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
    assert_eq!(left(&log).len(), 72);
    journal.wait(journal.tail()).expect("durable");
    assert!(log.medium.handed_over.lock().is_empty(), "a flush covers what was handed over before it");
}

#[test]
fn a_host_that_takes_nothing_ends_the_log() {
    let mut log = Log::new(false);
    let journal = Arc::new(log.open(log.area.first_lsn()));
    log.medium.fail_hand_over.store(true, SeqCst);
    let lost = append(&journal, b"lost");
    assert!(journal.hand_over(lost.end).is_err());
    assert!(journal.is_poisoned());
    assert!(journal.hand_over(lost.end).is_err(), "nothing is tried again, and nothing waits");
    assert!(journal.wait(lost.end).is_err());
}
