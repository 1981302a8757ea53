//! Bounds of the log, with their units.

/// Largest payload of one record in bytes; a small log bounds it further (see `record_bytes_max`).
pub(crate) const RECORD_PAYLOAD_BYTES_MAX: usize = (1 << 20) + (128 << 10);
/// Header of a record, bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 64;
/// Smallest log, bytes.
pub(crate) const LOG_BYTES_MIN: u64 = 16 << 10;
/// Volatile completions become persistent within this time, in nanoseconds.
pub(crate) const UNFLUSHED_NS_MAX: u64 = 5_000_000_000;
/// Bytes (log and data) that may be completed but not flushed; ops wait at this cap.
pub(crate) const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;
/// On block media: queued bytes at which they are handed to the medium without waiting for a durable commit.
pub(crate) const WRITE_OUT_BYTES: u64 = 1 << 20;
/// A log chunk of the block media's commit buffer, bytes.
pub(crate) const LOG_CHUNK_BYTES: usize = 256 << 10;

/// Largest record (header, payload, padding) in a log of `log_len` bytes.
pub const fn record_bytes_max(log_len: u64) -> u64 {
    let whole = (RECORD_PAYLOAD_BYTES_MAX + RECORD_HEADER_BYTES) as u64;
    let share = log_len / 4;
    if whole < share { whole } else { share }
}
