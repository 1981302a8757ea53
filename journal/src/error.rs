//! Errors of the log, one type per stage of its life.

use crate::{Lsn, MediumError};
use weldfs_ciscops::Errno;

/// The log has no room until a checkpoint moves its start (or a superblock names the next lap).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log has no room for {bytes} bytes before the next checkpoint")]
pub struct LogFull {
    /// Bytes asked for.
    pub bytes: u64,
}

/// Why an append or a commit failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// An earlier write or flush of the log failed; nothing is retried, a remount decides.
    #[error("the log is poisoned by an earlier failure of the medium")]
    Poisoned,
    /// The medium refused.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// No room: the caller did not reserve.
    #[error(transparent)]
    Full(#[from] LogFull),
    /// A record is longer than the room that was reserved for it: a bug of whoever estimated it. Nothing was written.
    #[error("a record of {bytes} bytes exceeds the {kept} bytes that were reserved for it")]
    Exceeded {
        /// Bytes of the record.
        bytes: u64,
        /// Bytes that were left of the reservation.
        kept: u64,
    },
    /// The payload is longer than a record of this log may be.
    #[error("a record of {bytes} bytes is longer than {max}")]
    TooLong {
        /// Bytes of the record.
        bytes: u64,
        /// Most that fits.
        max: u64,
    },
    /// The segment table is full: a checkpoint must come before the log is opened.
    #[error("the table of log segments is full")]
    SegmentsFull,
    /// The area, tail or table do not fit together.
    #[error("the log's description is inconsistent: {0}")]
    Layout(&'static str),
}

impl From<&JournalError> for Errno {
    fn from(e: &JournalError) -> Errno {
        match e {
            JournalError::TooLong { .. } => Errno::TOOBIG,
            JournalError::Full(_) => Errno::NOSPC,
            JournalError::Medium(m) => Errno::from(m),
            JournalError::Poisoned
            | JournalError::Exceeded { .. }
            | JournalError::SegmentsFull
            | JournalError::Layout(_) => Errno::IO,
        }
    }
}

impl From<JournalError> for Errno {
    fn from(e: JournalError) -> Errno {
        Errno::from(&e)
    }
}

/// Why a scan ended without a tail.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// A record that was durable is damaged.
    #[error("the log is damaged from LSN {from} on: records up to LSN {durable} were durable ({why})")]
    Corrupt {
        /// The first LSN whose record is invalid.
        from: Lsn,
        /// A durable watermark above it.
        durable: Lsn,
        /// What was found.
        why: &'static str,
    },
    /// The log's description is impossible.
    #[error("the log's description is inconsistent: {0}")]
    Layout(&'static str),
    /// The owner stopped the scan.
    #[error("the scan was stopped at LSN {0}")]
    Stopped(Lsn),
    /// The medium could not be read.
    #[error(transparent)]
    Medium(#[from] MediumError),
}

impl From<&ScanError> for Errno {
    fn from(_: &ScanError) -> Errno {
        Errno::IO
    }
}
