//! Room in the log that is kept for records to come.
//!
//! Tail, what is reserved, and one longest record (which a pad at the end of a lap may cost) together never exceed the
//! space up to the checkpoint's cut. So whoever holds a reservation is never refused, and needs no one's progress.

use crate::error::JournalError;
use crate::limits::RECORD_HEADER_BYTES;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the log that a record of this payload takes, header and padding included.
pub(crate) const fn record_bytes(payload_bytes: usize, align: u64) -> u64 {
    (payload_bytes as u64 + RECORD_HEADER_BYTES as u64).next_multiple_of(align)
}

/// Room in the log that is kept for an operation that started. Dropping gives it back; `append` consumes it.
#[derive(Debug)]
pub struct Reservation<'j> {
    bytes: u64,
    align: u64,
    reserved: &'j AtomicU64,
}

impl<'j> Reservation<'j> {
    /// Takes the room unconditionally and says how much is taken in all: whoever finds it too much drops it.
    pub(crate) fn take(bytes: u64, align: u64, reserved: &'j AtomicU64) -> (Reservation<'j>, u64) {
        let all = reserved.fetch_add(bytes, Ordering::SeqCst) + bytes;
        (Reservation { bytes, align, reserved }, all)
    }

    /// Splits off the room of one record of at most `payload_bytes`, for its `append`.
    ///
    /// # Errors
    /// More than is left of what was reserved: an estimate is wrong, which a debug build panics about. Nothing
    /// was split off.
    pub fn part(&mut self, payload_bytes: usize) -> Result<Reservation<'j>, JournalError> {
        let bytes = record_bytes(payload_bytes, self.align);
        self.must_cover(bytes)?;
        self.bytes -= bytes;
        Ok(Reservation { bytes, align: self.align, reserved: self.reserved })
    }

    /// That a record of so many bytes in all was reserved for: one that was not takes the room of others, who were
    /// promised it.
    pub(crate) fn must_cover(&self, bytes: u64) -> Result<(), JournalError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let kept = self.bytes;
        debug_assert!(bytes <= kept, "a record of {bytes} bytes exceeds its reservation of {kept}");
        tracing::error!(bytes, kept, "a record exceeds its reservation");
        Err(JournalError::Exceeded { bytes, kept })
    }

    /// The same room, for as long as its journal's count is borrowed here.
    pub(crate) fn of(self, reserved: &AtomicU64) -> Reservation<'_> {
        debug_assert!(std::ptr::eq(reserved, self.reserved), "room of another journal");
        let kept = std::mem::ManuallyDrop::new(self);
        Reservation { bytes: kept.bytes, align: kept.align, reserved }
    }

    /// Bytes of log that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.reserved.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_part_beyond_what_was_reserved_is_a_bug_that_shows_and_never_a_shorter_part() {
        let all = AtomicU64::new(0);
        let (mut room, _) = Reservation::take(record_bytes(100, 64) + record_bytes(0, 64), 64, &all);
        assert_eq!(room.part(100).map(|r| r.bytes()).ok(), Some(192));
        let left = room.bytes();
        let tried = catch_unwind(AssertUnwindSafe(|| room.part(1).map(drop)));
        match tried {
            Ok(refused) => assert_eq!(refused, Err(JournalError::Exceeded { bytes: 128, kept: 64 })),
            Err(_) if cfg!(debug_assertions) => {}
            Err(_) => panic!("only a debug build panics"),
        }
        assert_eq!(room.bytes(), left, "nothing was split off");
        assert_eq!(room.part(0).map(|r| r.bytes()).ok(), Some(64));
        drop(room);
        assert_eq!(all.load(Ordering::SeqCst), 0);
    }
}
