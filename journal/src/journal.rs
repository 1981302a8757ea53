//! The live log.

use crate::{AlignedBuf, Clock, JournalError, LogArea, LogFull, Lsn, Medium, Random, RecordHead, SegmentTable};
use std::sync::Arc;
use std::task::Waker;

/// A data block run to be written with the next batch (block media), or at once (byte-addressable media).
#[derive(Clone, Debug)]
pub struct DataWrite {
    /// Byte offset on the medium.
    pub off: u64,
    /// The bytes; shared with whoever serves reads until they are written.
    pub buf: Arc<AlignedBuf>,
}

/// Where a record went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Its position.
    pub lsn: Lsn,
    /// The position after it: durable when the watermark reaches this.
    pub end: Lsn,
}

/// What a journal is opened with.
pub struct JournalConfig {
    /// Where the log lies.
    pub area: LogArea,
    /// The superblock's table.
    pub segments: SegmentTable,
    /// Where appending goes on.
    pub tail: Lsn,
    /// The checkpoint's cut: nothing below is needed.
    pub oldest: Lsn,
    /// Time, for the flush deadline.
    pub clock: Arc<dyn Clock>,
    /// Salts.
    pub random: Arc<dyn Random>,
}

/// Counters since the journal was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalStats {
    /// Records appended for the owner.
    pub records: u64,
    /// Log bytes appended, headers and padding included.
    pub log_bytes: u64,
    /// Barriers issued for commits.
    pub flushes: u64,
    /// Batches written (block media).
    pub batches: u64,
    /// Data bytes written with records.
    pub data_bytes: u64,
    /// Watermark records written.
    pub watermark_records: u64,
}

/// Room in the log that is kept for an operation that started. Dropping gives it back.
#[derive(Debug)]
pub struct Reservation {
    _private: (),
}

/// The live log. Thread-safe.
pub struct Journal {
    _private: (),
}

impl Journal {
    /// Opens the log for appending at `tail`, in a new segment. Nothing can be appended until a superblock with
    /// `segments()` is durable and `release` was called.
    pub fn open(_medium: Arc<dyn Medium>, _config: JournalConfig) -> Result<Journal, JournalError> {
        unimplemented!()
    }

    /// The table to store in the next superblock: covers everything since the cut, the current lap and the next one.
    pub fn segments_at(&self, _cut: Lsn) -> SegmentTable {
        unimplemented!()
    }

    /// A superblock that carries the last `segments()` and this cut is durable: space below is free, and the laps that
    /// the table covers may be entered.
    pub fn release(&self, _upto: Lsn) {
        unimplemented!()
    }

    /// Keeps room for one record of at most `payload_bytes`.
    pub fn reserve(&self, _payload_bytes: usize) -> Result<Reservation, LogFull> {
        unimplemented!()
    }

    /// Appends one record whose payload is the concatenation of `parts`, with the data blocks it points to.
    pub fn append(
        &self,
        _head: RecordHead,
        _parts: &[&[u8]],
        _data: Vec<DataWrite>,
        _room: Option<Reservation>,
    ) -> Result<Appended, JournalError> {
        unimplemented!()
    }

    /// Starts making everything below `end` durable: done on return on byte-addressable media; wakes the commit
    /// thread on block media.
    pub fn commit_through(&self, _end: Lsn) -> Result<(), JournalError> {
        unimplemented!()
    }

    /// Wakes `waker` once the watermark reaches `end` or the log is poisoned; `true` when either already holds (the
    /// waker is then dropped).
    pub fn subscribe(&self, _end: Lsn, _waker: Waker) -> bool {
        unimplemented!()
    }

    /// Commits through `end` and blocks until it is durable. For threads that may block.
    pub fn wait(&self, _end: Lsn) -> Result<(), JournalError> {
        unimplemented!()
    }

    /// Whether everything below `end` is durable; an error once the log is poisoned.
    pub fn is_durable(&self, _end: Lsn) -> Result<bool, JournalError> {
        unimplemented!()
    }

    /// Every record that ends at or below it is durable, with its data.
    pub fn watermark(&self) -> Lsn {
        unimplemented!()
    }

    /// The highest watermark that a durable record carries.
    pub fn recorded_watermark(&self) -> Lsn {
        unimplemented!()
    }

    /// Where the next record starts.
    pub fn tail(&self) -> Lsn {
        unimplemented!()
    }

    /// Log bytes in use since the cut.
    pub fn used(&self) -> u64 {
        unimplemented!()
    }

    /// Log bytes that can still be reserved.
    pub fn free(&self) -> u64 {
        unimplemented!()
    }

    /// When the oldest unflushed completion must be flushed (clock nanoseconds); `None` when nothing is unflushed.
    pub fn next_deadline(&self) -> Option<u64> {
        unimplemented!()
    }

    /// Flushes when the deadline has passed; writes the owed watermark record. Returns the next deadline.
    pub fn tick(&self) -> Result<Option<u64>, JournalError> {
        unimplemented!()
    }

    /// Writes the watermark record that is owed when no record followed a flush. Cheap when none is owed: for a
    /// device thread that found nothing else to do.
    pub fn idle(&self) {
        unimplemented!()
    }

    /// At the cap of unflushed bytes: the position whose flush an op must await before it appends.
    pub fn must_wait(&self) -> Option<Lsn> {
        unimplemented!()
    }

    /// Whether a failure was final.
    pub fn is_poisoned(&self) -> bool {
        unimplemented!()
    }

    /// Longest payload of one record, bytes.
    pub fn payload_bytes_max(&self) -> u64 {
        unimplemented!()
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        unimplemented!()
    }
}
