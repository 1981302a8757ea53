//! A log, its checkpoints and its writers in simulated time.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A log of `len` bytes, checkpoints of `ns` per KiB, begun at a quarter.
struct Log {
    pace: Pace,
    len: u64,
    ns: u64,
    used: u64,
    /// The running checkpoint: its end and what it moves.
    running: Option<(u64, u64)>,
    fullest: u64,
    full: u64,
}

impl Log {
    fn new(len: u64, ns: u64) -> Log {
        Log { pace: Pace::default(), len, ns, used: 0, running: None, fullest: 0, full: 0 }
    }

    fn fill(&self) -> u64 {
        self.used * FULL / self.len
    }

    fn advance(&mut self, now: u64) {
        while let Some((end, moves)) = self.running.filter(|r| r.0 <= now) {
            self.used -= moves;
            self.pace.end(end, moves, self.len / 8);
            self.running = None;
            self.look(end);
        }
        self.look(now);
    }

    fn look(&mut self, now: u64) {
        if self.running.is_none() && self.used > self.len / 4 {
            self.pace.begin(now, self.used);
            self.running = Some((now + self.used * self.ns / FULL, self.used));
        }
    }
}

/// One outstanding command of a session: bytes per command, nanoseconds between a command and the next.
#[derive(Clone, Copy)]
struct Writer {
    session: u64,
    bytes: u64,
    think: u64,
}

/// Runs the writers until `end`; gives the bytes each session wrote and the longest wait.
fn run(log: &mut Log, writers: &[Writer], end: u64) -> (Vec<u64>, u64) {
    let mut done = vec![0; writers.iter().map(|w| w.session as usize).max().unwrap_or(0) + 1];
    let mut due: BinaryHeap<_> = (0..writers.len()).map(|i| Reverse((1 + i as u64, i, 0))).collect();
    let mut longest = 0;
    while let Some(Reverse((now, i, asked))) = due.pop() {
        if now > end {
            break;
        }
        log.advance(now);
        let w = writers[i];
        // Whoever waited goes on, whatever is charged meanwhile.
        if asked == 0
            && let Some(at) = log.pace.start_at(w.session, w.bytes * RESERVED, || log.fill(), || now)
        {
            assert!(at > now);
            due.push(Reverse((at, i, now)));
            continue;
        }
        if log.used + w.bytes > log.len {
            // The hard stop that pacing is there to avoid.
            log.full += 1;
            let at = log.running.map_or(now, |r| r.0).max(now + 1);
            due.push(Reverse((at, i, if asked == 0 { now } else { asked })));
            continue;
        }
        if asked != 0 {
            longest = longest.max(now - asked);
        }
        log.used += w.bytes;
        log.fullest = log.fullest.max(log.fill());
        done[w.session as usize] += w.bytes;
        log.pace.note(log.fill(), w.bytes);
        due.push(Reverse((now + w.think, i, 0)));
    }
    (done, longest)
}

/// Writers reserve so many times what they need.
const RESERVED: u64 = 8;
const LEN: u64 = 16 << 20;
/// Checkpoints move 100 MB/s.
const NS: u64 = 10_000;
const SECOND: u64 = 1_000_000_000;

#[test]
fn the_factor_is_nothing_at_half_six_at_seven_eighths_and_has_no_bound() {
    assert_eq!((factor(0), factor(FULL / 2), factor(FULL * 7 / 8)), (0, 0, 6 * FULL));
    assert!((0..FULL).all(|f| factor(f) <= factor(f + 1)));
    assert!(factor(FULL) > 20 * FULL);
}

#[test]
fn below_the_speed_of_checkpoints_nobody_ever_waits() {
    for percent in [10, 50, 90] {
        let mut log = Log::new(LEN, NS);
        // 1 KiB per command; at 100 % one every 10 microseconds.
        let w = Writer { session: 1, bytes: 1024, think: NS * 100 / percent };
        let (_, longest) = run(&mut log, &[w], 20 * SECOND);
        assert_eq!((longest, log.full), (0, 0), "at {percent} %");
        assert!(!log.pace.pressed.load(Relaxed));
    }
}

#[test]
fn above_it_the_log_never_fills_and_no_wait_is_long() {
    for (times, writers) in [(2, 1), (10, 1), (10, 8), (100, 32)] {
        let mut log = Log::new(LEN, NS);
        let all: Vec<_> =
            (0..writers).map(|s| Writer { session: s, bytes: 1024, think: (NS * writers / times).max(1) }).collect();
        let (done, longest) = run(&mut log, &all, 20 * SECOND);
        assert_eq!(log.full, 0, "{times} times too fast, {writers} writers: the log was full");
        assert!(log.fullest < FULL * 15 / 16, "{times} times too fast, {writers} writers: {} full", log.fullest);
        assert!(longest < 2_000_000, "{times} times too fast, {writers} writers: {longest} ns");
        // As fast as the checkpoints, nearly (a log's worth goes in before anything must be moved).
        let share = done.iter().sum::<u64>() as f64 / (20.0 * (SECOND / NS * 1024) as f64);
        assert!((0.85..1.1).contains(&share), "{times} times too fast, {writers} writers: {share}");
    }
}

#[test]
fn sessions_get_equal_shares_whatever_they_have_outstanding() {
    let mut log = Log::new(LEN, NS);
    let greedy = Writer { session: 1, bytes: 4096, think: 500 };
    let modest = Writer { session: 2, bytes: 1024, think: 500 };
    let mut all = vec![greedy; 32];
    all.push(modest);
    let (done, _) = run(&mut log, &all, 20 * SECOND);
    assert_eq!(log.full, 0);
    let share = done[2] as f64 / done[1] as f64;
    assert!((0.6..1.4).contains(&share), "{done:?}: {share}");
}
