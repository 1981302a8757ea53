//! Which copy of the superblock counts, and what it says of the log.

use crate::Image;
use crate::fields::Fields;
use serde::Serialize;
use std::io;

const BLOCK: u64 = 4096;
/// Everything that counts upwards stays below.
const COUNTER_END: u64 = 1 << 62;

/// Why the log cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// No copy counts.
    #[error("no superblock that counts in block 0, block 8 or the last block")]
    NoSuperblock,
    /// A newer format.
    #[error("format {0}.{1}, incompatible features {2:#x}: newer than this program")]
    Newer(u16, u16, u64),
    /// Shorter than its superblock says.
    #[error("truncated image: the file system has {expected} bytes, the medium only {actual}")]
    Truncated {
        /// Bytes of the file system.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// A field that cannot be.
    #[error("the superblock's {0} is impossible")]
    Impossible(&'static str),
    /// The image.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An entry of the table of segments. The salt is a secret and never shown.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// First LSN.
    pub first: u64,
    /// Where it lies in the log area.
    pub offset: u64,
    #[serde(skip)]
    pub(crate) salt: u64,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment(from {})", self.first)
    }
}

/// What the reading of the log needs.
#[derive(Debug, Clone, Serialize)]
pub struct Superblock {
    /// Block of the copy that counts.
    pub copy: u64,
    /// Its sequence.
    pub sequence: u64,
    /// The log holds nothing at or above the cut.
    pub clean: bool,
    /// Blocks of the file system.
    pub blocks: u64,
    /// First byte of the log area.
    pub log_start: u64,
    /// Bytes of it.
    pub log_len: u64,
    /// Records start at multiples of this.
    pub log_align: u32,
    /// The tree holds every record below.
    pub cut: u64,
    /// All segments since the cut.
    pub segments: Vec<Segment>,
    #[serde(skip)]
    uuid: [u8; 16],
    #[serde(skip)]
    version: (u16, u16, u64),
}

/// One copy with a right checksum; fields unchecked.
fn copy(image: &dyn Image, block: u64) -> Option<Superblock> {
    let mut b = [0u8; BLOCK as usize];
    let off = block.checked_mul(BLOCK).filter(|off| off.checked_add(BLOCK).is_some_and(|end| end <= image.len()))?;
    image.read(off, &mut b).ok()?;
    let at = |off: usize| Fields(&b[off..]);
    let magic = b[..8] == *b"WeldFS\x1a\n";
    if !magic || at(4092).u32().ok()? != crc32c::crc32c(&b[..4092]) || at(152).u64().ok()? != block {
        return None;
    }
    let count = at(316).u32().ok()?.min(17);
    let mut table = at(320);
    let mut segments = Vec::new();
    for _ in 0..count.min(16) {
        segments.push(Segment { first: table.u64().ok()?, offset: table.u64().ok()?, salt: table.u64().ok()? });
    }
    if count > 16 {
        segments.clear();
    }
    Some(Superblock {
        copy: block,
        sequence: at(144).u64().ok()?,
        clean: at(160).u32().ok()? & 1 == 1,
        blocks: at(136).u64().ok()?,
        log_start: at(296).u64().ok()?,
        log_len: at(304).u64().ok()?,
        log_align: at(312).u32().ok()?,
        cut: at(704).u64().ok()?,
        segments,
        uuid: at(16).id().ok()?,
        version: (at(8).u16().ok()?, at(10).u16().ok()?, at(112).u64().ok()?),
    })
}

impl Superblock {
    /// Reads the copies and takes the one that counts.
    ///
    /// # Errors
    /// None counts, or its log cannot be.
    pub fn load(image: &dyn Image) -> Result<Superblock, Unreadable> {
        let last = (image.len() / BLOCK).saturating_sub(1);
        let mut copies: Vec<Superblock> = [0, 8].iter().filter_map(|b| copy(image, *b)).collect();
        // A medium may be longer than the file system.
        let end = copies.first().map_or(last, |c| c.blocks.saturating_sub(1));
        copies.extend(copy(image, end));
        if copies.is_empty() {
            // The last copy alone, on a medium that is longer: within the last GiB.
            let least = last.saturating_sub((1 << 18) - 1).max(9);
            copies.extend((least..last).rev().find_map(|b| copy(image, b).filter(|c| c.blocks == b + 1)));
        }
        let uuid = copies.first().map(|c| c.uuid).ok_or(Unreadable::NoSuperblock)?;
        copies.retain(|c| c.uuid == uuid);
        copies.sort_by_key(|c| std::cmp::Reverse(c.sequence)); // stable: the first of equals
        let best = copies.into_iter().next().ok_or(Unreadable::NoSuperblock)?;
        best.check(image.len())?;
        Ok(best)
    }

    fn check(&self, len: u64) -> Result<(), Unreadable> {
        let (major, minor, incompat) = self.version;
        if major > 1 || incompat != 0 {
            return Err(Unreadable::Newer(major, minor, incompat));
        }
        let expected = self.blocks.saturating_mul(BLOCK);
        if expected > len {
            return Err(Unreadable::Truncated { expected, actual: len });
        }
        let align = u64::from(self.log_align);
        let fits = self.log_start.checked_add(self.log_len).is_some_and(|end| end <= len);
        let ascending = self.segments.windows(2).all(|w| w[0].first < w[1].first);
        let possible = |s: &Segment| {
            let first = s.first >= self.log_len && s.first < COUNTER_END && s.first.is_multiple_of(align);
            first && s.offset == s.first % self.log_len && s.salt != 0
        };
        let checks = [
            ("major version", major == 1),
            ("alignment of records", matches!(align, 64 | 512 | 4096)),
            ("log area", fits && self.log_start == 65536 && self.log_len.is_multiple_of(BLOCK)),
            ("length of the log", (256 << 10..=16 << 30).contains(&self.log_len)),
        ];
        if let Some((what, _)) = checks.into_iter().find(|(_, ok)| !ok) {
            return Err(Unreadable::Impossible(what));
        }
        if !self.cut.is_multiple_of(align) || !(self.log_len..COUNTER_END).contains(&self.cut) {
            return Err(Unreadable::Impossible("cut"));
        }
        if !ascending || !self.segments.iter().all(possible) || self.segment(self.cut).is_none() {
            return Err(Unreadable::Impossible("table of segments"));
        }
        Ok(())
    }

    /// The segment that holds a position: it reaches to the next one, and no further than its lap.
    pub(crate) fn segment(&self, lsn: u64) -> Option<&Segment> {
        let entry = self.segments.iter().rev().find(|s| s.first <= lsn)?;
        (lsn < self.lap_end(entry.first)).then_some(entry)
    }

    /// First LSN of the lap after the one of `lsn`.
    pub(crate) fn lap_end(&self, lsn: u64) -> u64 {
        (lsn / self.log_len + 1) * self.log_len
    }

    /// Bytes that the longest record may take.
    pub(crate) fn record_max(&self) -> u64 {
        ((1 << 20) + (128 << 10) + 64).min(self.log_len / 4)
    }
}
