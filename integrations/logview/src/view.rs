//! The walk: from the cut to the tail, then what lies above it, as "Reading" in the section "Log" says.

use crate::Image;
use crate::effects::{self, Effect};
use crate::fields::{Bad, Fields};
use crate::record::{HEADER, Header, Kind, Raw};
use crate::superblock::{Superblock, Unreadable};
use crate::transaction::{Begin, Commit, End};
use serde::Serialize;

/// Bytes read at once.
const WINDOW: u64 = 1 << 20;
/// Bytes of candidates that probing sums, per byte of log.
const PROBE_FACTOR: u64 = 4;
const BLOCK: u64 = 4096;
const MISPLACED: &str = "a record of this log that lies where it was not written";

/// What a record's payload says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Nothing: a pad or a watermark.
    None,
    /// Effects of an operation.
    Effects(Vec<Effect>),
    /// Begin of a transaction.
    Begin(Box<Begin>),
    /// A micro-op.
    Micro(Box<Commit>),
    /// End of a transaction.
    End(Box<End>),
    /// Bytes that the format does not allow.
    Invalid(&'static str),
}

/// Whether the data that a record points to is on the medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DataState {
    /// At or below the recorded watermark: not looked at.
    Vouched,
    /// Above it, and every checksum is right.
    Verified,
    /// Not looked at: the record is dropped anyway, or the log points to more blocks than there are.
    Unchecked,
    /// Above it, and this block differs: the log ends before the record.
    Missing {
        /// Block on the medium.
        block: u64,
        /// Its checksum by the record.
        expected: u32,
        /// The checksum of what is there; `None` when it lies outside.
        actual: Option<u32>,
    },
}

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Its header.
    #[serde(flatten)]
    pub header: Header,
    /// Position behind it, padding included.
    pub end: u64,
    /// First LSN of its segment.
    pub segment: u64,
    /// What it says.
    pub content: Content,
    /// Of its data.
    pub data: DataState,
}

/// A valid record above the position where the contiguous ones end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Above {
    /// Its header.
    #[serde(flatten)]
    pub header: Header,
    /// Position behind it.
    pub end: u64,
}

/// How the log ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// At the tail: nothing that counts above.
    Whole,
    /// Records above the tail, whole ones or ones that are not, of which none says that it was durable; recovery drops
    /// them.
    Torn,
    /// The record at the tail points to data that is not there; it and what follows is dropped.
    DataMissing,
    /// A record that was durable is damaged.
    Corrupt(&'static str),
}

/// The end of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tail {
    /// Position at which the log ends.
    pub tail: u64,
    /// The recorded watermark.
    pub watermark: u64,
    /// Records up to the tail, those of the journal itself included.
    pub records: u64,
    /// Records above the tail.
    pub dropped_records: u64,
    /// Bytes of them.
    pub dropped_bytes: u64,
    /// Records that begin above it and are not whole.
    pub torn_records: u64,
    /// How it ends.
    pub ending: Ending,
    /// First invalid position.
    pub bad: u64,
}

/// What the walk hands out, in this order.
#[derive(Debug)]
pub enum Item<'a> {
    /// First: the superblock that counts.
    Superblock(&'a Superblock),
    /// Each contiguous record; those from the tail on are about to be dropped.
    Record(&'a Record),
    /// Each valid record that is found above.
    Above(&'a Above),
    /// Last.
    Tail(&'a Tail),
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The next one.
    Go,
    /// Enough.
    Stop,
}

/// Walks the log of an image.
///
/// # Errors
/// No superblock that counts, an image that cannot be read.
pub fn walk(image: &dyn Image, visit: &mut dyn FnMut(Item<'_>) -> Verdict) -> Result<(), Unreadable> {
    let sb = Superblock::load(image)?;
    if visit(Item::Superblock(&sb)) == Verdict::Stop {
        return Ok(());
    }
    let mut walk = Walk { image, sb: &sb, window: Vec::new(), window_at: 0, summed: 0, looked: 0 };
    let mut found = walk.ends()?;
    let mut tail = Tail {
        tail: found.bad,
        watermark: found.watermark,
        records: 0,
        dropped_records: 0,
        dropped_bytes: 0,
        torn_records: found.torn,
        ending: found.corrupt.map_or(if found.torn > 0 { Ending::Torn } else { Ending::Whole }, Ending::Corrupt),
        bad: found.bad,
    };
    let (mut at, mut dropping) = (sb.cut, false);
    while at < found.bad {
        let Some((header, end)) = walk.check(at)?.valid() else { break }; // it changed while it was read
        let record = walk.record(header, end, found.watermark, dropping)?;
        if !dropping && matches!(record.data, DataState::Missing { .. }) && found.corrupt.is_none() {
            (dropping, tail.tail, tail.ending) = (true, at, Ending::DataMissing);
        }
        if dropping {
            (tail.dropped_records, tail.dropped_bytes) = (tail.dropped_records + 1, tail.dropped_bytes + end - at);
        } else {
            tail.records += 1;
        }
        if visit(Item::Record(&record)) == Verdict::Stop {
            return Ok(());
        }
        at = end;
    }
    for above in found.above.drain(..) {
        tail.dropped_records += 1;
        tail.dropped_bytes += above.end - above.header.lsn;
        if tail.ending == Ending::Whole {
            tail.ending = Ending::Torn;
        }
        if visit(Item::Above(&above)) == Verdict::Stop {
            return Ok(());
        }
    }
    visit(Item::Tail(&tail));
    Ok(())
}

enum Found {
    Valid(Header, u64),
    Invalid,
    /// Begins like a record of its position.
    Torn,
    Misplaced,
}

impl Found {
    fn valid(self) -> Option<(Header, u64)> {
        match self {
            Found::Valid(header, end) => Some((header, end)),
            _ => None,
        }
    }
}

/// What the first look at the whole log found.
struct Ends {
    /// First invalid position.
    bad: u64,
    watermark: u64,
    above: Vec<Above>,
    /// Records that begin there and are not whole.
    torn: u64,
    corrupt: Option<&'static str>,
}

struct Walk<'a> {
    image: &'a dyn Image,
    sb: &'a Superblock,
    window: Vec<u8>,
    window_at: u64,
    /// Bytes of candidates summed while probing.
    summed: u64,
    /// Data blocks read: no honest log points to more than there are.
    looked: u64,
}

/// Records above the tail that are listed; the rest is only counted as damage would be.
const ABOVE_MAX: usize = 1 << 16;

impl Walk<'_> {
    /// Bytes of the log at a position; the callers keep them within a lap.
    fn bytes(&mut self, lsn: u64, len: u64) -> Result<&[u8], Unreadable> {
        let at = lsn % self.sb.log_len;
        let have = self.window_at..self.window_at + self.window.len() as u64;
        if !(have.start <= at && at + len <= have.end) {
            let size = len.max(WINDOW).min(self.sb.log_len - at);
            self.window.resize(size as usize, 0);
            self.window_at = at;
            self.image.read(self.sb.log_start + at, &mut self.window)?;
        }
        let skip = (at - self.window_at) as usize;
        Ok(&self.window[skip..skip + len as usize])
    }

    fn check(&mut self, lsn: u64) -> Result<Found, Unreadable> {
        let head = self.bytes(lsn, HEADER)?.to_vec();
        let Some(raw) = Raw::read(&head) else { return Ok(Found::Invalid) };
        let belongs = self.sb.segment(lsn).is_some_and(|s| s.salt == raw.salt);
        let room = self.sb.lap_end(lsn) - lsn;
        if !belongs || raw.lsn != lsn {
            return self.elsewhere(lsn, &raw, &head, belongs, room);
        }
        let size = (HEADER + u64::from(raw.length)).next_multiple_of(self.sb.log_align.into());
        if size > room || (size > self.sb.record_max() && !raw.is_pad()) || !self.sums(lsn, &raw, &head)? {
            return Ok(Found::Torn);
        }
        Ok(raw.validate().map_or(Found::Invalid, |header| Found::Valid(header, lsn + size)))
    }

    fn sums(&mut self, lsn: u64, raw: &Raw, head: &[u8]) -> Result<bool, Unreadable> {
        let sum = crc32c::crc32c(self.bytes(lsn + HEADER, raw.stored())?);
        self.summed += raw.stored();
        Ok(raw.checksum(sum, head) == raw.crc)
    }

    /// A header that is not one of this position: step 2 says which of them are corruption.
    fn elsewhere(&mut self, lsn: u64, raw: &Raw, head: &[u8], belongs: bool, room: u64) -> Result<Found, Unreadable> {
        let otherwise = if belongs { Found::Torn } else { Found::Invalid };
        let left_behind = lsn.checked_sub(raw.lsn).is_some_and(|below| below % self.sb.log_len == 0);
        let known = belongs || (!left_behind && self.sb.segments.iter().any(|s| s.salt == raw.salt));
        if !known || raw.validate().is_none() {
            return Ok(otherwise);
        }
        let by_sectors = self.sb.log_align >= 512;
        let misplaced = by_sectors || (self.fits(raw, room) && self.sums(lsn, raw, head)?);
        Ok(if misplaced { Found::Misplaced } else { otherwise })
    }

    /// Whether the record at the first position that fails would be right with the salt of its position.
    fn lost_its_salt(&mut self, lsn: u64) -> Result<bool, Unreadable> {
        let Some(salt) = self.sb.segment(lsn).map(|s| s.salt) else { return Ok(false) };
        let mut head = self.bytes(lsn, HEADER)?.to_vec();
        head[..8].copy_from_slice(&salt.to_le_bytes());
        let Some(raw) = Raw::read(&head).filter(|raw| raw.lsn == lsn && raw.validate().is_some()) else {
            return Ok(false);
        };
        Ok(self.fits(&raw, self.sb.lap_end(lsn) - lsn) && self.sums(lsn, &raw, &head)?)
    }

    /// Whether what a record says it has may be there: no more is read than a record has, whatever the bytes.
    fn fits(&self, raw: &Raw, room: u64) -> bool {
        (HEADER + raw.stored()).next_multiple_of(self.sb.log_align.into()) <= room.min(self.sb.record_max())
    }

    /// Steps 1 and 2 of reading: where the contiguous records end, and what lies above.
    fn ends(&mut self) -> Result<Ends, Unreadable> {
        let limit = self.sb.cut + self.sb.log_len;
        let mut ends = Ends { bad: self.sb.cut, watermark: self.sb.cut, above: Vec::new(), torn: 0, corrupt: None };
        while ends.bad < limit {
            match self.check(ends.bad)? {
                Found::Valid(header, end) => {
                    ends.watermark = ends.watermark.max(header.watermark);
                    ends.bad = end;
                }
                Found::Torn => {
                    ends.torn = 1;
                    break;
                }
                Found::Invalid => {
                    ends.torn = u64::from(self.lost_its_salt(ends.bad)?);
                    break;
                }
                Found::Misplaced => {
                    ends.corrupt = Some(MISPLACED);
                    return Ok(ends);
                }
            }
        }
        self.summed = 0;
        let step = u64::from(self.sb.log_align);
        let mut at = ends.bad + step;
        while at < limit {
            match self.check(at)? {
                Found::Valid(header, end) => {
                    if header.watermark > ends.bad {
                        ends.corrupt.get_or_insert("a later record says that the bytes here were durable");
                    }
                    if ends.corrupt.is_none() {
                        ends.watermark = ends.watermark.max(header.watermark);
                    }
                    ends.above.push(Above { header, end });
                }
                Found::Torn => ends.torn += 1,
                Found::Misplaced => ends.corrupt = ends.corrupt.or(Some(MISPLACED)),
                Found::Invalid => {}
            }
            if self.summed > self.sb.log_len * PROBE_FACTOR || ends.above.len() > ABOVE_MAX {
                ends.corrupt = Some("more candidates for records than a log can hold");
                break;
            }
            at += step;
        }
        Ok(ends)
    }

    fn record(&mut self, header: Header, end: u64, watermark: u64, dropped: bool) -> Result<Record, Unreadable> {
        let segment = self.sb.segment(header.lsn).map_or(0, |s| s.first);
        let content = match header.kind {
            Kind::Pad | Kind::Watermark => Content::None,
            kind => {
                let payload = self.bytes(header.lsn + HEADER, header.length.into())?;
                decode(kind, payload).unwrap_or_else(|bad| Content::Invalid(bad.0))
            }
        };
        let data = match end <= watermark {
            true => DataState::Vouched,
            false if dropped => DataState::Unchecked,
            false => self.data(&content)?,
        };
        Ok(Record { header, end, segment, content, data })
    }

    /// Reads the blocks that a record maps, and for a begin record those of its inputs.
    fn data(&mut self, content: &Content) -> Result<DataState, Unreadable> {
        let effects: Vec<&Effect> = match content {
            Content::Effects(effects) => effects.iter().collect(),
            Content::Micro(commit) => commit.effects.iter().collect(),
            Content::Begin(begin) => begin.inputs.iter().flat_map(|i| &i.effects).collect(),
            Content::None | Content::End(_) | Content::Invalid(_) => Vec::new(),
        };
        let mut buf = [0u8; BLOCK as usize];
        for effect in effects {
            let Effect::Mapped { run, .. } = effect else { continue };
            for (block, expected) in (run.address..).zip(&run.crc32c) {
                let expected = *expected;
                self.looked += 1;
                if self.looked > self.sb.blocks {
                    return Ok(DataState::Unchecked);
                }
                if block >= self.sb.blocks {
                    return Ok(DataState::Missing { block, expected, actual: None });
                }
                self.image.read(block * BLOCK, &mut buf)?;
                let actual = crc32c::crc32c(&buf);
                if actual != expected {
                    return Ok(DataState::Missing { block, expected, actual: Some(actual) });
                }
            }
        }
        Ok(DataState::Verified)
    }
}

fn decode(kind: Kind, payload: &[u8]) -> Result<Content, Bad> {
    let mut f = Fields(payload);
    Ok(match kind {
        Kind::Pad | Kind::Watermark => Content::None,
        Kind::Operation => {
            let effects = effects::list(&mut f)?;
            if effects.iter().any(|e| matches!(e, Effect::Adopted { .. })) {
                return Err(Bad("effect outside a transaction"));
            }
            Content::Effects(effects)
        }
        Kind::Begin => Content::Begin(Box::new(Begin::read(&mut f)?)),
        Kind::Micro => Content::Micro(Box::new(Commit::read(&mut f)?)),
        Kind::End => Content::End(Box::new(End::read(&mut f)?)),
    })
}
