//! Room in the log that is kept for records to come.
//!
//! Tail, what is reserved, and one longest record (which a pad at the end of a lap may cost) together never exceed the
//! space up to the checkpoint's cut. So whoever holds a reservation is never refused, and needs no one's progress.

use crate::limits::RECORD_HEADER_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the log that a record of this payload takes, header and padding included.
pub(crate) const fn record_bytes(payload_bytes: usize, align: u64) -> u64 {
    (payload_bytes as u64 + RECORD_HEADER_BYTES as u64).next_multiple_of(align)
}

/// Room in the log that is kept for an operation that started. Dropping gives it back; `append` consumes it.
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
    align: u64,
    reserved: Arc<AtomicU64>,
}

impl Reservation {
    /// Takes the room unconditionally and says how much is taken in all: whoever finds it too much drops it.
    pub(crate) fn take(bytes: u64, align: u64, reserved: &Arc<AtomicU64>) -> (Reservation, u64) {
        let all = reserved.fetch_add(bytes, Ordering::SeqCst) + bytes;
        (Reservation { bytes, align, reserved: reserved.clone() }, all)
    }

    /// Splits off the room of one record of at most `payload_bytes`, for its `append`; all that is left, when that is
    /// less.
    pub fn part(&mut self, payload_bytes: usize) -> Reservation {
        let bytes = record_bytes(payload_bytes, self.align).min(self.bytes);
        self.bytes -= bytes;
        Reservation { bytes, align: self.align, reserved: self.reserved.clone() }
    }

    /// Bytes of log that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reserved.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}
