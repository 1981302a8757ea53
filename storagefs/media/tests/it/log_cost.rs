//! What the hot path of the log costs. Measured by hand on an idle machine:
//! `cargo test --release -p weldfs-media --test it log_cost -- --ignored --nocapture`. Bursts: within one log.

use std::sync::Arc;
use std::time::Instant;
use weldfs_ciscops::SharedRegion;
use weldfs_journal::*;
use weldfs_media::*;

fn journal(medium: &Arc<dyn Medium>) -> Journal {
    let area = LogArea { start: 4096, len: 64 << 20, align: medium.info().log_align };
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let segments = SegmentTable::fresh(&area, &*random);
    let (tail, oldest, clock) = (area.first_lsn(), area.first_lsn(), Arc::new(SystemClock));
    let config = JournalConfig { area, segments, tail, oldest, clock, random };
    let journal = Journal::open(medium.clone(), config).expect("opens");
    journal.segments_at(oldest);
    journal.release(oldest);
    journal
}

/// Microseconds per operation: the best of many short stretches, so that a busy machine disturbs little.
fn per_op(n: u32, mut op: impl FnMut(u32)) -> f64 {
    let stretch = (n / 200).max(20);
    let mut best = f64::MAX;
    for first in (0..n).step_by(stretch as usize) {
        let begin = Instant::now();
        (first..first + stretch).for_each(&mut op);
        best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(stretch) / 1000.0);
    }
    best
}

#[test]
#[ignore = "a measurement: run it by hand, with --release, on an idle machine"]
fn cost_of_append_commit_ingest_and_emit() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let disk = tempfile::tempdir().expect("a temporary folder");
    let make = |dir: &std::path::Path, kind| create(&dir.join(format!("{kind:?}")), kind, 96 << 20, false);
    let media: Vec<(&str, Arc<dyn Medium>, u32)> = vec![
        ("ram", Arc::new(RamMedium::prefaulted(96 << 20)), 100_000),
        ("pmem", make(dir.path(), ImageKind::Pmem).expect("creates"), 100_000),
        ("pmem, no flush", make(dir.path(), ImageKind::PmemNoFlush).expect("creates"), 100_000),
        ("block", make(disk.path(), ImageKind::Block).expect("creates"), 2_000),
    ];
    println!("write-back by {}", write_back_name());
    for (name, medium, n) in media {
        let journal = journal(&medium);
        let payload = [7u8; 128];
        let append = |_| {
            journal.append(RecordHead::op(), &[&payload], Vec::new(), None).expect("appends");
        };
        let volatile = per_op(n, append);
        journal.wait(journal.tail()).expect("durable");
        let durable = per_op(n, |_| {
            let room = journal.reserve(128).expect("room");
            let a = journal.append(RecordHead::op(), &[&payload], Vec::new(), Some(room)).expect("appends");
            journal.wait(a.end).expect("durable");
        });
        let pool = SharedRegion::heap(1 << 20);
        let block = |i: u32| (68 << 20) + u64::from(i % 4096) * 4096;
        let shared = |i: u32| pool.bytes((i % 64) as usize * 4096, 4096).expect("inside");
        let ingest = per_op(n / 2, |i| {
            medium.ingest(block(i), shared(i), &mut [0]).expect("takes in");
        });
        let emit = per_op(n / 2, |i| {
            medium.emit(block(i % 64), shared(i)).expect("gives out");
        });
        let both = per_op(n / 2, |i| {
            medium.ingest(block(i), shared(i), &mut [0]).expect("takes in");
            let a = journal.append(RecordHead::op(), &[&payload], Vec::new(), None).expect("appends");
            journal.wait(a.end).expect("durable");
        });
        println!(
            "{name}: us per 128 B record: volatile {volatile:.3}, durable {durable:.3}; per 4 KiB: ingest {ingest:.3}, \
             emit {emit:.3}, ingest + durable record {both:.3}"
        );
    }
}
