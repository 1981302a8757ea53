//! Recovery: reads the log from the checkpoint's cut to its tail.

use crate::canary::{Canary, planted};
use crate::limits::{RECORD_HEADER_BYTES, record_bytes_max};
use crate::record::RawHeader;
use crate::{LogArea, Lsn, Medium, MediumError, RecordHeader, ScanError, SegmentTable};
use weldfs_functions::ChecksumState;
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

/// Bytes read at once.
const WINDOW: u64 = 1 << 20;
/// Bytes that probing may put through checksums, per byte of log: bounds the time an arbitrary image can cost.
const PROBE_FACTOR: u64 = 4;
/// Bytes that a block medium writes in one piece.
const SECTOR: u64 = 512;
const MISPLACED: &str = "a record lies where it was not written";

/// A record handed to the owner.
#[derive(Debug)]
pub struct Record<'a> {
    /// The checked header.
    pub header: RecordHeader,
    /// Position after the record, padding included.
    pub end: Lsn,
    /// The payload.
    pub payload: &'a [u8],
    /// Whether data it points to must be verified: it lies above the recorded watermark.
    pub verify_data: bool,
}

/// What the owner says to a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Applied.
    Ok,
    /// Its data does not match: the log ends before it.
    CutHere,
    /// The owner gives up; the scan returns an error.
    Stop,
}

/// A tail that was cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discarded {
    /// First LSN discarded: the new tail.
    pub from: Lsn,
    /// End of the last valid record found above it (`from` when there was none).
    pub to: Lsn,
    /// Bytes of valid records discarded.
    pub bytes: u64,
    /// Valid records discarded.
    pub records: u64,
    /// Records that begin there and are not whole: torn by a power cut, or damaged since and with no later record to
    /// say so. Nothing on the medium tells these apart.
    pub torn: u64,
}

/// What a scan found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanReport {
    /// Where the log ends; appending goes on here, in a new segment.
    pub tail: Lsn,
    /// Records handed to the owner and applied.
    pub records: u64,
    /// What was cut off, if anything that begins like a record was.
    pub discarded: Option<Discarded>,
    /// The highest recorded watermark.
    pub watermark: Lsn,
}

/// Reads the log from `from` (the checkpoint's cut) on; hands each operation's record to `visit` in order.
///
/// Pass 1 finds the contiguous valid records; then every possible start position of the live log above is probed; pass
/// 2 hands out the records. Time is bounded by a few passes over the log, memory by a window of it, whatever the bytes.
///
/// # Errors
/// `Corrupt` when a record that was durable is damaged, or one lies where it was not written: nothing was visited then,
/// unless `visit` cut below the recorded watermark.
pub fn scan(
    medium: &dyn Medium,
    area: &LogArea,
    segments: &SegmentTable,
    from: Lsn,
    visit: &mut dyn FnMut(Record<'_>) -> Verdict,
) -> Result<ScanReport, ScanError> {
    area.validate(medium.info().len).map_err(ScanError::Layout)?;
    if !segments.fits(area)
        || from < area.first_lsn()
        || !from.0.is_multiple_of(u64::from(area.align))
        || from.0 > u64::MAX / 4
    {
        return Err(ScanError::Layout("segment table or cut"));
    }
    if segments.containing(from).is_none() {
        return Err(ScanError::Layout("no segment holds the cut"));
    }
    let mut log = Reader { medium, area, segments, window: Vec::new(), window_at: 0, summed: 0 };
    let limit = Lsn(from.0 + area.len);
    let mut watermark = from;
    let end = log.contiguous(from, limit, &mut watermark)?;
    let mut found = log.probe(end, limit, &mut watermark)?;
    let mut report = ScanReport { tail: end, records: 0, discarded: None, watermark };
    let mut at = from;
    while at < end {
        let Probe::Valid(header, next) = log.check(at)? else {
            return Err(ScanError::Corrupt { from: at, durable: watermark, why: "the log changed while it was read" });
        };
        if !header.head.kind.is_internal() {
            let payload = log.bytes(at.0 + RECORD_HEADER_BYTES as u64, u64::from(header.length))?;
            match visit(Record { header, end: next, payload, verify_data: next > watermark }) {
                Verdict::Ok => report.records += 1,
                Verdict::CutHere if next <= watermark => {
                    return Err(ScanError::Corrupt { from: at, durable: watermark, why: "refused by the file system" });
                }
                Verdict::CutHere => break,
                Verdict::Stop => return Err(ScanError::Stopped(at)),
            }
        }
        at = next;
    }
    report.tail = at;
    if at < end {
        found.from = at;
        found.to = found.to.max(end);
        found.bytes += end.0 - at.0;
        found.records += log.count(at, end)?;
    }
    report.discarded = (found.records + found.torn > 0).then_some(found);
    Ok(report)
}

enum Probe {
    /// A record of this position, and the position after it.
    Valid(RecordHeader, Lsn),
    /// Nothing that belongs here.
    Invalid,
    /// Begins like a record of this position, and is not whole.
    Torn,
    /// A record of this log whose place is elsewhere.
    Misplaced,
}

struct Reader<'a> {
    medium: &'a dyn Medium,
    area: &'a LogArea,
    segments: &'a SegmentTable,
    window: Vec<u8>,
    /// Byte in the area where the window starts.
    window_at: u64,
    /// Payload bytes put through checksums.
    summed: u64,
}

impl Reader<'_> {
    /// The bytes at a position; they do not cross the lap's end (callers checked).
    fn bytes(&mut self, lsn: u64, len: u64) -> Result<&[u8], MediumError> {
        let at = lsn % self.area.len;
        if len == 0 {
            return Ok(&[]);
        }
        let inside = at >= self.window_at && at + len <= self.window_at + self.window.len() as u64;
        if !inside {
            let size = len.max(WINDOW.min(self.area.len - at)).next_multiple_of(4096).min(self.area.len);
            // Whole blocks, so that direct I/O needs no second copy.
            let start = (at - at % 4096).min(self.area.len - size);
            let size = if at + len > start + size { size + 4096 } else { size };
            self.window.resize(size as usize, 0);
            self.window_at = start;
            self.medium.read(self.area.start + start, &mut self.window)?;
        }
        let skip = (at - self.window_at) as usize;
        Ok(&self.window[skip..skip + len as usize])
    }

    /// The salt of the segment that may hold this position: an entry reaches to the next one or to its lap's end.
    fn salt(&self, lsn: Lsn) -> Option<u64> {
        let entry = self.segments.containing(lsn)?;
        (lsn < self.area.next_lap(entry.first)).then_some(entry.salt)
    }

    /// Whether a planted bug lets a record with this foreign salt in.
    fn salt_let_in(&self, lsn: Lsn, salt: u64) -> bool {
        let left = |e: &crate::Segment| e.salt == salt && e.first < lsn;
        planted(Canary::ForgedRecordAccepted)
            || (planted(Canary::OldSaltAccepted) && self.segments.entries().iter().any(left))
    }

    fn check(&mut self, lsn: Lsn) -> Result<Probe, MediumError> {
        let raw = self.bytes(lsn.0, RECORD_HEADER_BYTES as u64)?;
        let Ok(raw) = RawHeader::read_from_bytes(raw) else { return Ok(Probe::Invalid) };
        let here = self.salt(lsn).is_some_and(|salt| raw.claims(salt)) || self.salt_let_in(lsn, raw.salt.get());
        let left = self.area.next_lap(lsn).0 - lsn.0;
        if !here || raw.lsn.get() != lsn.0 {
            return self.stray(lsn, &raw, here, left);
        }
        let bytes = self.area.round(u64::from(raw.length.get()) + RECORD_HEADER_BYTES as u64);
        if bytes > left || bytes > record_bytes_max(self.area.len).max(left * raw.is_pad()) {
            return Ok(Probe::Torn);
        }
        if !self.is_whole(lsn, &raw)? {
            return Ok(Probe::Torn);
        }
        Ok(match raw.validate() {
            Some(header) => Probe::Valid(header, Lsn(lsn.0 + bytes)),
            None => Probe::Invalid,
        })
    }

    /// Whether the checksum of the record at `lsn`, which ends within the lap, is right.
    fn is_whole(&mut self, lsn: Lsn, raw: &RawHeader) -> Result<bool, MediumError> {
        let covered = u64::from(raw.covered());
        let mut sum = ChecksumState::new();
        sum.update(self.bytes(lsn.0 + RECORD_HEADER_BYTES as u64, covered)?);
        self.summed += covered;
        Ok(raw.checksum(&sum) == raw.crc.get() || planted(Canary::ReplayCrcUnchecked))
    }

    /// What a header that does not belong at `lsn` says: with a salt of this log, that the medium wrote it to the wrong
    /// place, or that what was written here is lost. What earlier laps left behind says nothing.
    fn stray(&mut self, lsn: Lsn, raw: &RawHeader, here: bool, left: u64) -> Result<Probe, MediumError> {
        let of_this_log = here || self.is_salt_of_table(raw.salt.get());
        // An earlier lap wrote to the same place; so did a mount whose tail was discarded.
        let was_here = raw.lsn.get() <= lsn.0 && (lsn.0 - raw.lsn.get()).is_multiple_of(self.area.len);
        let otherwise = if here { Probe::Torn } else { Probe::Invalid };
        if !of_this_log || raw.validate().is_none() || (was_here && !here) {
            return Ok(otherwise);
        }
        // Where records begin with a sector, no power cut parts a salt from its LSN. Elsewhere it may, and only a
        // checksum vouches for both.
        let in_one_piece = u64::from(self.area.align) >= SECTOR;
        Ok(match in_one_piece || (self.fits(raw, left) && self.is_whole(lsn, raw)?) {
            true => Probe::Misplaced,
            false => otherwise,
        })
    }

    /// Whether a record stands here that is right but for its salt: it was written, and has rotted.
    fn lost_its_salt(&mut self, lsn: Lsn) -> Result<bool, MediumError> {
        let Some(salt) = self.salt(lsn) else { return Ok(false) };
        let raw = self.bytes(lsn.0, RECORD_HEADER_BYTES as u64)?;
        let Ok(mut raw) = RawHeader::read_from_bytes(raw) else { return Ok(false) };
        raw.salt = U64::new(salt);
        let left = self.area.next_lap(lsn).0 - lsn.0;
        Ok(raw.lsn.get() == lsn.0 && self.fits(&raw, left) && raw.validate().is_some() && self.is_whole(lsn, &raw)?)
    }

    /// Whether a record may be as long as one says that does not count, and has room: whatever the bytes, no more of
    /// them are looked at than a record has.
    fn fits(&self, raw: &RawHeader, left: u64) -> bool {
        let bytes = self.area.round(u64::from(raw.covered()) + RECORD_HEADER_BYTES as u64);
        bytes <= left.min(record_bytes_max(self.area.len))
    }

    fn is_salt_of_table(&self, salt: u64) -> bool {
        self.segments.entries().iter().any(|entry| entry.salt == salt)
    }

    /// Pass 1: the end of the contiguous valid records.
    fn contiguous(&mut self, from: Lsn, limit: Lsn, watermark: &mut Lsn) -> Result<Lsn, ScanError> {
        let mut at = from;
        while at < limit {
            match self.check(at)? {
                Probe::Valid(header, end) => {
                    *watermark = header.watermark.max(*watermark);
                    at = end;
                }
                Probe::Invalid | Probe::Torn => break,
                Probe::Misplaced => {
                    return Err(ScanError::Corrupt { from: at, durable: *watermark, why: MISPLACED });
                }
            }
        }
        Ok(at)
    }

    /// Every possible start above the first invalid position: a valid record whose watermark lies above that position
    /// says that what is missing was durable; one whose place is elsewhere, that the medium wrote astray.
    fn probe(&mut self, bad: Lsn, limit: Lsn, watermark: &mut Lsn) -> Result<Discarded, ScanError> {
        let torn = bad < limit && (matches!(self.check(bad)?, Probe::Torn) || self.lost_its_salt(bad)?);
        let torn = u64::from(torn);
        let mut found = Discarded { from: bad, to: bad, bytes: 0, records: 0, torn };
        self.summed = 0;
        let mut at = bad.0 + u64::from(self.area.align);
        if torn > 0 {
            found.to = Lsn(at);
        }
        while at < limit.0 {
            // Nearly every place fails here, and there are many.
            let here = self.bytes(at, 8)?.iter().rev().fold(0, |acc, b| acc << 8 | u64::from(*b));
            if !self.is_salt_of_table(here) && !self.salt_let_in(Lsn(at), here) {
                at += u64::from(self.area.align);
                continue;
            }
            match self.check(Lsn(at))? {
                Probe::Valid(header, _) if header.watermark > bad && !planted(Canary::MidLogRotTakenForTail) => {
                    let why = "a later record says that this one was durable";
                    return Err(ScanError::Corrupt { from: bad, durable: header.watermark, why });
                }
                Probe::Valid(header, end) => {
                    *watermark = header.watermark.max(*watermark);
                    found.to = end;
                    found.bytes += end.0 - at;
                    found.records += 1;
                }
                Probe::Torn => {
                    found.to = found.to.max(Lsn(at + u64::from(self.area.align)));
                    found.torn += 1;
                }
                Probe::Misplaced => {
                    return Err(ScanError::Corrupt { from: bad, durable: *watermark, why: MISPLACED });
                }
                Probe::Invalid => {}
            }
            if self.summed > self.area.len * PROBE_FACTOR {
                let why = "more candidate records than a log can hold";
                return Err(ScanError::Corrupt { from: bad, durable: *watermark, why });
            }
            at += u64::from(self.area.align);
        }
        Ok(found)
    }

    fn count(&mut self, mut at: Lsn, end: Lsn) -> Result<u64, MediumError> {
        let mut n = 0;
        while at < end {
            let Probe::Valid(_, next) = self.check(at)? else { break };
            (at, n) = (next, n + 1);
        }
        Ok(n)
    }
}
