//! Recovery: reads the log from the checkpoint's cut to its tail.

use crate::{LogArea, Lsn, Medium, RecordHeader, ScanError, SegmentTable};

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
}

/// What a scan found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanReport {
    /// Where the log ends; appending goes on here, in a new segment.
    pub tail: Lsn,
    /// Records handed to the owner and applied.
    pub records: u64,
    /// What was cut off, if anything that looks like a record was.
    pub discarded: Option<Discarded>,
    /// The highest recorded watermark.
    pub watermark: Lsn,
}

/// Reads the log from `from` (the checkpoint's cut) on; hands each operation's record to `visit` in order.
pub fn scan(
    _medium: &dyn Medium,
    _area: &LogArea,
    _segments: &SegmentTable,
    _from: Lsn,
    _visit: &mut dyn FnMut(Record<'_>) -> Verdict,
) -> Result<ScanReport, ScanError> {
    unimplemented!()
}
