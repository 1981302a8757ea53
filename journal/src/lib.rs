//! The redo log: record format, group commit, durable watermark, recovery scan. Knows records and LSNs, not files.
//!
//! What lives here: the seams to the outside (`Medium`, `Clock`, `Random`), the log's bytes (`record`, `segment`), the
//! live log (`Journal`: reserve, append, commit, subscribe), who writes and flushes on block media (`commit`, `lead`),
//! `scan` for recovery.
//! What may be touched: only a `Medium`, and of it only the log area; data writes queued with a record pass through.
//! What flows through: a planned change comes in as one record's payload, gets an LSN, becomes durable with every
//! record below it, and its waiters are woken. This crate is the only place that decides when a flush is issued for
//! operations; nothing else orders them. A failed flush is final: the journal is poisoned and every waiter gets EIO.
//! Recovery hands records back in LSN order, or says where the log is damaged.
//! Specification of the bytes: docs/MEDIA-FORMAT.md, "Log".
#![forbid(unsafe_code)]

mod buf;
pub mod canary;
mod commit;
mod counters;
mod crashpoint;
mod error;
mod ids;
mod journal;
mod lead;
pub mod limits;
mod log_buffer;
mod medium;
mod put;
mod record;
mod reservation;
mod scan;
mod segment;
mod sys;
mod tail_page;

pub use buf::{AlignedBuf, BLOCK};
pub use counters::JournalStats;
pub use crashpoint::crashpoint;
pub use error::{JournalError, LogFull, ScanError};
pub use ids::{BlockNo, Lsn};
pub use journal::{Appended, DataWrite, Journal, JournalConfig};
pub use medium::{FlushMode, IoWrite, Medium, MediumError, MediumInfo, MediumKind, check_blocks};
pub use record::{RecordHead, RecordHeader, RecordKind, TxnMode};
pub use reservation::Reservation;
pub use scan::{Discarded, Record, ScanReport, Verdict, scan};
pub use segment::{LogArea, SEGMENTS_MAX, Segment, SegmentTable};
pub use sys::{Clock, ManualClock, Random, SeededRandom, SystemClock, SystemRandom};
