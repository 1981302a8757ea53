//! What a journal counts.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Writes of log in them: one per batch, unless the lap ends in it.
    pub log_writes: u64,
    /// Writes of data in them.
    pub data_writes: u64,
    /// Data bytes written with records.
    pub data_bytes: u64,
    /// Watermark records written.
    pub watermark_records: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub records: AtomicU64,
    pub log_bytes: AtomicU64,
    pub flushes: AtomicU64,
    pub batches: AtomicU64,
    pub log_writes: AtomicU64,
    pub data_writes: AtomicU64,
    pub data_bytes: AtomicU64,
    pub watermark_records: AtomicU64,
}

/// Counts what is counted with the state locked only.
#[inline]
pub(crate) fn more(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}
