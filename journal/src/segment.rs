//! Segments of the log: one per lap and one per mount, each with a salt that no client ever sees.

use crate::Lsn;

/// Most segments that a superblock names.
pub const SEGMENTS_MAX: usize = 16;

/// One segment: records from `first` up to the next segment's first LSN carry `salt`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First LSN of the segment.
    pub first: Lsn,
    /// Byte offset on the medium of that LSN.
    pub offset: u64,
    /// Random value that marks the segment's records.
    pub salt: u64,
}

/// Where the log lies on the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogArea {
    /// Byte offset of the area.
    pub start: u64,
    /// Bytes, a multiple of 4 KiB.
    pub len: u64,
    /// Records start at multiples of this.
    pub align: u32,
}

/// All segments since the checkpoint, ascending by `first`; at most `SEGMENTS_MAX`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SegmentTable(Vec<Segment>);

impl SegmentTable {
    /// The entries, ascending.
    pub fn entries(&self) -> &[Segment] {
        &self.0
    }

    /// A table of these entries; `None` when they are too many or not strictly ascending.
    pub fn from_entries(entries: &[Segment]) -> Option<SegmentTable> {
        let ascending = entries.windows(2).all(|w| w[0].first < w[1].first);
        (entries.len() <= SEGMENTS_MAX && ascending).then(|| SegmentTable(entries.to_vec()))
    }
}
