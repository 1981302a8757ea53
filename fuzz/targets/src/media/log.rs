//! Logs of records with right checksums: a scan ends, hands out records one after the other, and says where it ends;
//! what it says is what the next one says after something was appended there.

use super::base::{RECORD_HEADER, record_crc};
use crate::cursor::Cursor;
use crate::{Seed, Target};
use std::sync::Arc;
use weldfs_journal::{
    BLOCK, Journal, JournalConfig, LogArea, Lsn, ManualClock, Medium, RecordHead, ScanReport, SeededRandom, Segment,
    SegmentTable, Verdict, scan,
};
use weldfs_media::{CowImage, CowMedium, CrashModel};

/// See the module.
pub const TARGET: Target = Target {
    name: "log",
    about: "a log of records with right checksums, to the scan and to what appends behind it",
    run,
    seeds,
    len_max: 4096,
};

const START: u64 = BLOCK as u64;
const LEN: u64 = 16 << 10;

fn run(data: &[u8]) {
    let mut data = Cursor(data);
    let flags = data.u8();
    let (model, align) = if flags & 1 == 0 { (CrashModel::Pmem, 64) } else { (CrashModel::Block, 512) };
    let area = LogArea { start: START, len: LEN, align };
    let mut entries = Vec::new();
    let mut first = LEN;
    for _ in 0..=flags >> 1 & 3 {
        entries.push(Segment { first: Lsn(first), salt: u64::from(data.u8()) + 1 });
        first += u64::from(align) * u64::from(data.u8());
    }
    let Some(table) = SegmentTable::from_entries(&entries) else { return };
    let from = Lsn(LEN + u64::from(align) * u64::from(data.u8()));
    let rotten = flags & 16 != 0;
    let image = lay_out(&area, &entries, from, &mut data, rotten);
    let medium: Arc<dyn Medium> = Arc::new(CowMedium::new(image, model));
    let (cut_at, mut n) = (data.u8(), 0u8);
    let mut last = from;
    let report = scan(&*medium, &area, &table, from, &mut |r| {
        assert!(r.header.lsn >= last && r.end > r.header.lsn, "records follow each other");
        assert!(r.end.0 <= from.0 + LEN, "beyond a lap");
        assert_eq!(r.payload.len(), r.header.length as usize);
        last = r.end;
        n = n.wrapping_add(1);
        if n == cut_at { Verdict::CutHere } else { Verdict::Ok }
    });
    match report {
        Ok(report) => {
            assert!(report.tail >= from && report.tail.0 <= from.0 + LEN && report.watermark >= from);
            go_on(&medium, &area, table, from, &report);
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// Appends one record at the tail that was found; the next scan finds it.
fn go_on(medium: &Arc<dyn Medium>, area: &LogArea, segments: SegmentTable, oldest: Lsn, found: &ScanReport) {
    let config = JournalConfig {
        area: *area,
        segments,
        tail: found.tail,
        oldest,
        clock: Arc::new(ManualClock::new(1)),
        random: Arc::new(SeededRandom::new(7)),
    };
    let Ok(journal) = Journal::open_inline(medium.clone(), config) else { return };
    let table = journal.segments_at(oldest);
    let Ok(room) = journal.reserve(3) else { return };
    let Ok(at) = journal.append(RecordHead::op(), &[b"end"], Vec::new(), Some(room)) else { return };
    journal.wait(at.end).expect("a medium of memory");
    drop(journal);
    let mut payloads = Vec::new();
    let again = scan(&**medium, area, &table, oldest, &mut |r| {
        payloads.push(r.payload.to_vec());
        Verdict::Ok
    });
    let again = again.expect("what was scanned is scanned again");
    assert!(again.tail >= at.end, "what was appended is lost");
    assert_eq!(payloads.last().map(Vec::as_slice), Some(&b"end"[..]));
}

/// Records one after the other, each with what the input says of it.
fn lay_out(area: &LogArea, table: &[Segment], from: Lsn, data: &mut Cursor<'_>, rotten: bool) -> CowImage {
    let mut image = CowImage::new(vec![0; (START + LEN) as usize]);
    let mut lsn = from.0;
    for _ in 0..data.u8() {
        let what = data.u8();
        let salt = table.iter().rfind(|s| s.first.0 <= lsn).map_or(0, |s| s.salt);
        let payload = data.short();
        let mut header = [0; RECORD_HEADER];
        header[0..8].copy_from_slice(&salt.to_le_bytes());
        header[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[16..24].copy_from_slice(&lsn.to_le_bytes());
        (header[24], header[25]) = (1 + what % 6, 1 + (what >> 3 & 1));
        // A watermark: none, its own position, or where the last record ended.
        let watermark = if what & 16 == 0 { from.0 } else { lsn };
        header[40..48].copy_from_slice(&watermark.to_le_bytes());
        if what & 32 != 0 {
            let (at, bytes) = (usize::from(data.u8()) % RECORD_HEADER, data.short());
            let n = bytes.len().min(RECORD_HEADER - at);
            header[at..at + n].copy_from_slice(&bytes[..n]);
        }
        let crc = record_crc(&header, if header[24] == 1 { &[] } else { payload });
        header[8..12].copy_from_slice(&crc.to_le_bytes());
        let place = lsn % LEN;
        let room = (LEN - place) as usize;
        let bytes = [&header[..], payload].concat();
        image.write(START + place, &bytes[..bytes.len().min(room)]);
        let skip = if what & 64 != 0 { u64::from(data.u8()) * u64::from(area.align) } else { 0 };
        lsn += (bytes.len() as u64).next_multiple_of(area.align.into()) + skip;
    }
    if rotten {
        let at = START + u64::from(data.u16()) % LEN;
        image.write(at, &[data.u8()]);
    }
    image
}

fn seeds() -> Vec<Seed> {
    let mut all = Vec::new();
    for block in [0, 1u8] {
        let kind = if block == 0 { "pmem" } else { "block" };
        let head = |flags: u8| vec![block | flags, 4, 0, 0];
        let records = |what: &[u8]| {
            let each = what.iter().flat_map(|w| [&[*w, 5][..], b"hello"].concat());
            std::iter::once(what.len() as u8).chain(each).collect::<Vec<u8>>()
        };
        let mut add = |name: &str, parts: &[&[u8]]| all.push((format!("{kind}-{name}"), parts.concat()));
        add("empty", &[&head(0)]);
        add("records", &[&head(0), &records(&[2, 3, 4, 5, 2 | 16])]);
        add("watermark", &[&head(0), &records(&[2, 1 | 16, 2])]);
        add("a-hole", &[&head(0), &[2, 2 | 64, 1, b'x', 1, 2 | 16, 1, b'y']]);
        add("rot", &[&head(16), &records(&[2, 2, 2]), &[70, 0, 9]]);
        add("segments", &[&[block | 2, 4, 2, 5, 0, 0], &records(&[2, 2, 2, 2])]);
        add("lap", &[&[block, 4, 0, if block == 0 { 254 } else { 31 }], &records(&[2, 2, 2])]);
        add("pad", &[&[block, 4, 0, if block == 0 { 253 } else { 31 }], &[2, 0, 64], &[0; 64], &[2, 1, b'z']]);
        add("odd-header", &[&head(0), &[1, 2 | 32, 1, b'x', 26, 2, 1, 1]]);
    }
    all
}
