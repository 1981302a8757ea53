//! Segments: which salt is valid for which range of LSNs. The superblock stores the table.

use crate::{Lsn, Random};

/// Entries of the table in a superblock.
pub const SEGMENTS_MAX: usize = 16;

/// Where the log lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogArea {
    /// First byte on the medium; a multiple of 4096.
    pub start: u64,
    /// Bytes; a multiple of 4096.
    pub len: u64,
    /// Records start at multiples of this many bytes.
    pub align: u32,
}

impl LogArea {
    /// The first LSN of a fresh image.
    pub const fn first_lsn(&self) -> Lsn {
        Lsn(self.len)
    }

    /// Byte on the medium where the record of an LSN starts.
    pub const fn physical(&self, lsn: Lsn) -> u64 {
        self.start + lsn.0 % self.len
    }

    /// The first LSN of the lap after the one `lsn` lies in.
    pub(crate) const fn next_lap(&self, lsn: Lsn) -> Lsn {
        Lsn((lsn.0 / self.len + 1) * self.len)
    }

    /// `bytes` rounded up to whole alignment units.
    pub const fn round(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.align as u64)
    }

    /// Whether the numbers are possible on a medium of `medium_len` bytes.
    pub fn validate(&self, medium_len: u64) -> Result<(), &'static str> {
        if !matches!(self.align, 64 | 512 | 4096) {
            return Err("alignment of records");
        }
        if self.len < crate::limits::LOG_BYTES_MIN || !self.len.is_multiple_of(4096) || !self.start.is_multiple_of(4096)
        {
            return Err("length or start of the log");
        }
        match self.start.checked_add(self.len) {
            Some(end) if end <= medium_len => Ok(()),
            _ => Err("log ends outside the medium"),
        }
    }
}

/// One segment. It lies at `LogArea::physical(first)` and ends where the next one starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First LSN of the segment.
    pub first: Lsn,
    /// Every record of the segment starts with it. Never 0, never shown to a client.
    pub salt: u64,
}

/// Salts stay out of logs and panics.
impl core::fmt::Debug for Segment {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Segment(from {})", self.first)
    }
}

/// All segments since the checkpoint, ascending by first LSN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentTable {
    entries: Vec<Segment>,
}

impl SegmentTable {
    /// Of a fresh image: the first lap and the one after it.
    pub fn fresh(area: &LogArea, random: &dyn Random) -> SegmentTable {
        let mut t = SegmentTable::default();
        let first = area.first_lsn();
        t.push(first, random, &[]);
        t.push(area.next_lap(first), random, &[]);
        t
    }

    /// A table of stored entries; `None` when they are too many, not strictly ascending, or have no salt.
    pub fn from_entries(entries: &[Segment]) -> Option<SegmentTable> {
        let ascending = entries.windows(2).all(|w| w[0].first < w[1].first);
        let salted = entries.iter().all(|s| s.salt != 0);
        (entries.len() <= SEGMENTS_MAX && ascending && salted).then(|| SegmentTable { entries: entries.to_vec() })
    }

    /// Whether every entry is possible in this area.
    pub(crate) fn fits(&self, area: &LogArea) -> bool {
        let possible = |s: &Segment| s.first >= area.first_lsn() && s.first.0.is_multiple_of(u64::from(area.align));
        !self.entries.is_empty() && self.entries.iter().all(|s| possible(s) && s.first.0 < u64::MAX / 4)
    }

    /// The entries, at most `SEGMENTS_MAX`.
    pub fn entries(&self) -> &[Segment] {
        &self.entries
    }

    /// The segment that holds `lsn`.
    pub fn containing(&self, lsn: Lsn) -> Option<&Segment> {
        let after = self.entries.partition_point(|s| s.first <= lsn);
        after.checked_sub(1).map(|i| &self.entries[i])
    }

    /// Whether the next mount may find no room for its entries: checkpoint before appending.
    pub fn is_crowded(&self) -> bool {
        self.entries.len() > SEGMENTS_MAX - 4
    }

    /// Forgets segments that end at or below `oldest`.
    pub(crate) fn trim(&mut self, oldest: Lsn) {
        while self.entries.len() > 1 && self.entries[1].first <= oldest {
            self.entries.remove(0);
        }
    }

    /// Starts a new segment at `tail`: whatever was promised to LSNs from there on is void.
    pub(crate) fn restart(&mut self, area: &LogArea, tail: Lsn, random: &dyn Random) {
        let used = self.entries.clone();
        self.entries.retain(|s| s.first < tail);
        self.push(tail, random, &used);
        self.push(area.next_lap(tail), random, &used);
    }

    /// Adds the entry of the lap after `tail`'s when it is missing.
    pub(crate) fn cover_next_lap(&mut self, area: &LogArea, tail: Lsn, random: &dyn Random) {
        let next = area.next_lap(tail);
        if self.entries.last().is_none_or(|s| s.first < next) {
            self.push(next, random, &[]);
        }
    }

    /// Even a source that repeats itself (a test's seed) gives no salt that the log may still hold: it is mixed with
    /// the position, and drawn again when it is in use.
    fn push(&mut self, first: Lsn, random: &dyn Random, used: &[Segment]) {
        let salt = loop {
            let salt = random.nonzero_u64() ^ first.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            if salt != 0 && !used.iter().chain(&self.entries).any(|s| s.salt == salt) {
                break salt;
            }
        };
        self.entries.push(Segment { first, salt });
    }
}
