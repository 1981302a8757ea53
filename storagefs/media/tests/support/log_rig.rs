//! Power cuts under the log: four threads append records (some with data blocks), wait for durability now and then,
//! and checkpoint when the log is full; the recording medium then builds crash states at random points with random
//! subsets of what was not yet durable. The scan must return a prefix of LSN order that holds every record whose
//! durability had been acknowledged by then, and nothing else, with matching data. And again after a second life.
//!
//! With the feature `canaries` and flushes skipped the same states must show losses: else this rig finds nothing.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use weldfs_journal::*;
use weldfs_locks::{Mutex, RwLock};
use weldfs_media::{CrashModel, RamMedium, RecordingMedium, Replayer};

const LOG_START: u64 = 8192;
const LOG_LEN: u64 = 128 << 10;
const DATA_START: u64 = 256 << 10;
const BLOCKS: u64 = 320;
const MEDIUM_LEN: u64 = DATA_START + BLOCKS * 4096;

/// What a superblock would say, and from which position on it is on the medium.
#[derive(Clone)]
struct Super {
    position: u64,
    table: SegmentTable,
    cut: Lsn,
}

#[derive(Default)]
struct Truth {
    /// Every record appended.
    records: BTreeMap<u64, Vec<u8>>,
    /// (end of the record, position of the medium when its durability was acknowledged).
    acks: Vec<(u64, u64)>,
    supers: Vec<Super>,
    next_block: u64,
}

struct Rig {
    medium: Arc<RecordingMedium>,
    area: LogArea,
    journal: Journal,
    truth: Mutex<Truth>,
    /// Held shared to append and note a record, exclusively to checkpoint.
    gate: RwLock<()>,
}

impl Rig {
    fn new(medium: Arc<RecordingMedium>, truth: Truth, tail: Lsn, from: &Super, seed: u64) -> Rig {
        let area = LogArea { start: LOG_START, len: LOG_LEN, align: medium.info().log_align };
        let config = JournalConfig {
            area,
            segments: from.table.clone(),
            tail,
            oldest: from.cut,
            clock: Arc::new(SystemClock),
            random: Arc::new(SeededRandom::new(seed)),
        };
        let journal = Journal::open(medium.clone(), config).expect("opens");
        let rig = Rig { medium, area, journal, truth: Mutex::new(truth), gate: RwLock::new(()) };
        rig.superblock(from.cut);
        rig
    }

    fn superblock(&self, cut: Lsn) {
        let table = self.journal.segments_at(cut);
        self.truth.lock().supers.push(Super { position: self.medium.position(), table, cut });
        self.journal.release(cut);
    }

    fn checkpoint(&self) {
        let _gate = self.gate.write();
        let cut = self.journal.tail();
        self.journal.wait(cut).expect("durable");
        self.superblock(cut);
    }

    fn take_block(&self, rng: &mut SmallRng) -> Option<u64> {
        let mut t = self.truth.lock();
        let want = t.next_block < BLOCKS && rng.random_bool(0.3);
        t.next_block += u64::from(want);
        want.then(|| t.next_block - 1)
    }

    /// Payload of a record: block + 1 (or 0), the block's checksum, noise.
    fn op(&self, rng: &mut SmallRng, who: u64) {
        let mut payload = vec![0; rng.random_range(1..400)];
        rng.fill(&mut payload[..]);
        let (mut head, mut data) = ([0; 12], Vec::new());
        if let Some(b) = self.take_block(rng) {
            let buf = AlignedBuf::from_slice(&[(who + b) as u8 | 1; 4096]);
            head[..8].copy_from_slice(&(b + 1).to_le_bytes());
            head[8..].copy_from_slice(&weldfs_functions::crc32c(&buf).to_le_bytes());
            data.push(DataWrite { off: DATA_START + b * 4096, buf: Arc::new(buf) });
        }
        let room = loop {
            match self.journal.reserve(payload.len() + 12) {
                Ok(room) => break room,
                Err(LogFull { .. }) => self.checkpoint(),
            }
        };
        let appended = {
            let _gate = self.gate.read();
            let a = self.journal.append(RecordHead::op(), &[&head, &payload], data, Some(room)).expect("appends");
            self.truth.lock().records.insert(a.lsn.0, [&head[..], &payload].concat());
            a
        };
        if rng.random_bool(0.5) {
            self.journal.wait(appended.end).expect("durable");
            let position = self.medium.position();
            self.truth.lock().acks.push((appended.end.0, position));
        }
    }

    fn live(&self, seed: u64, threads: u64, ops: u64) {
        std::thread::scope(|s| {
            for who in 0..threads {
                s.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed * 1000 + who);
                    (0..ops).for_each(|_| self.op(&mut rng, who));
                });
            }
        });
    }
}

/// What a crash state holds, or what is wrong with it.
/// Records of a recovered log, and what the scan said.
type Recovered = (Vec<(u64, Vec<u8>)>, ScanReport);

fn recover(image: &[u8], area: &LogArea, from: &Super) -> Result<Recovered, String> {
    let medium = RamMedium::from_bytes(image);
    let mut found = Vec::new();
    let data_ok = |payload: &[u8]| {
        let block = u64::from_le_bytes(payload[..8].try_into().expect("8 bytes"));
        let crc = u32::from_le_bytes(payload[8..12].try_into().expect("4 bytes"));
        let at = (DATA_START + block.wrapping_sub(1).min(BLOCKS - 1) * 4096) as usize;
        block == 0 || weldfs_functions::crc32c(&image[at..at + 4096]) == crc
    };
    let report = scan(&medium, area, &from.table, from.cut, &mut |r| {
        if r.verify_data && !data_ok(r.payload) {
            return Verdict::CutHere;
        }
        found.push((r.header.lsn.0, r.payload.to_vec()));
        Verdict::Ok
    })
    .map_err(|e| format!("{e}"))?;
    match found.iter().find(|(_, payload)| !data_ok(payload)) {
        Some((lsn, _)) => Err(format!("durable record at {lsn} points to data that is not there")),
        None => Ok((found, report)),
    }
}

fn judge(image: &[u8], area: &LogArea, truth: &Truth, position: u64) -> Result<(ScanReport, Super), String> {
    let from = truth.supers.iter().rev().find(|s| s.position <= position).expect("the first stands at 0").clone();
    let (found, report) = recover(image, area, &from)?;
    let mut expected = truth.records.range(from.cut.0..);
    for (lsn, payload) in &found {
        if expected.next() != Some((lsn, payload)) {
            return Err(format!("the record at {lsn} is not the next one that was appended"));
        }
    }
    let acked = truth.acks.iter().filter(|(_, at)| *at <= position).map(|(end, _)| *end).max().unwrap_or(0);
    if report.tail.0 < acked {
        return Err(format!("durable up to {acked} was acknowledged, the log ends at {}", report.tail));
    }
    Ok((report, from))
}

/// Runs a life of four threads and cuts its power `cuts` times; returns how many states were bad.
pub fn power_cuts(model: CrashModel, seed: u64, ops: u64, cuts: usize) -> usize {
    let medium = Arc::new(RecordingMedium::new(MEDIUM_LEN, model));
    let area = LogArea { start: LOG_START, len: LOG_LEN, align: medium.info().log_align };
    let fresh = SegmentTable::fresh(&area, &SeededRandom::new(seed));
    let first = Super { position: 0, table: fresh, cut: area.first_lsn() };
    let truth = Truth { supers: vec![first.clone()], ..Truth::default() };
    let rig = Rig::new(medium.clone(), truth, first.cut, &first, seed + 1);
    rig.live(seed, 4, ops);
    drop(rig.journal);
    let (recording, truth) = (medium.recording(), rig.truth.into_inner());
    let mut rng = SmallRng::seed_from_u64(seed + 2);
    let mut positions: Vec<u64> = (0..cuts).map(|_| rng.random_range(0..=recording.len())).collect();
    positions.sort_unstable();
    let mut replayer = Replayer::new(&recording, 0);
    let mut bad = 0;
    for (i, position) in positions.into_iter().enumerate() {
        replayer.goto(position);
        let image = replayer.image(i as u64);
        match judge(&image, &area, &truth, position) {
            Ok((report, from)) if i % 25 == 0 => bad += second_life(image, model, &truth, &report, &from, i as u64),
            Ok(_) => {}
            Err(why) => {
                bad += 1;
                if bad < 5 {
                    eprintln!("{model:?} seed {seed} position {position} choice {i}: {why}");
                }
            }
        }
    }
    bad
}

/// Goes on after a crash, and crashes again at every event.
fn second_life(image: Vec<u8>, model: CrashModel, old: &Truth, report: &ScanReport, from: &Super, seed: u64) -> usize {
    let medium = Arc::new(RecordingMedium::from_bytes(image, model));
    let records = old.records.range(from.cut.0..report.tail.0).map(|(k, v)| (*k, v.clone())).collect();
    let from = Super { position: 0, ..from.clone() };
    let truth = Truth { records, acks: Vec::new(), supers: vec![from.clone()], next_block: BLOCKS };
    let rig = Rig::new(medium.clone(), truth, report.tail, &from, seed + 77);
    // What recovery found counts as acknowledged once the new superblock stands.
    rig.truth.lock().acks.push((report.tail.0, medium.position()));
    rig.live(seed, 2, 6);
    let (area, recording) = (rig.area, medium.recording());
    drop(rig.journal);
    let truth = rig.truth.into_inner();
    let mut replayer = Replayer::new(&recording, 0);
    let mut bad = 0;
    for position in 0..=recording.len() {
        replayer.goto(position);
        if let Err(why) = judge(&replayer.image(seed + position), &area, &truth, position) {
            bad += 1;
            eprintln!("{model:?} second life of choice {seed}, position {position}: {why}");
        }
    }
    bad
}
