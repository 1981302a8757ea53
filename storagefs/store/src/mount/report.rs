//! What a mount tells about its recovery.

use crate::micro::open::OpenTxn;
use crate::store::{LogEnd, Store};
use weldfs_ciscops::Opcode;
use weldfs_journal::{Lsn, ScanReport};

/// What became of a transaction that was open at the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TxnFate {
    /// Still open: the mount is read-only, the next one for writing finishes it.
    Open,
    /// Finished: its remaining micro-ops were committed.
    Finished,
    /// A micro-op failed, as it would have without the crash: what came before it stands.
    Failed,
    /// It cannot be finished: what was committed stands.
    Cut,
}

/// A transaction that was open at the end of the log.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TxnReport {
    /// Its id.
    pub id: u64,
    /// Position of its begin record.
    pub begin_lsn: u64,
    /// The operation.
    pub op: String,
    /// Micro-ops that were committed before the crash, as the index of the next one.
    pub next_micro: u16,
    /// What became of it.
    pub fate: TxnFate,
    /// Why it was cut or failed; empty else.
    pub reason: String,
}

impl TxnReport {
    /// Of a transaction nothing was done to yet.
    pub(crate) fn new(txn: &OpenTxn) -> TxnReport {
        let op = Opcode::from_wire(txn.begin.sqe.opcode).map_or("unknown", |op| op.spec().name).to_owned();
        let (id, begin_lsn, next_micro) = (txn.id, txn.lsn.0, txn.next);
        TxnReport { id, begin_lsn, op, next_micro, fate: TxnFate::Open, reason: String::new() }
    }
}

impl std::fmt::Display for TxnReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TxnReport { id, begin_lsn, op, .. } = self;
        write!(f, "{op} (transaction {id}, begun at LSN {begin_lsn}) was interrupted ")?;
        match self.next_micro {
            0 => write!(f, "before its first commit")?,
            n => write!(f, "after micro-op {n}")?,
        }
        match self.fate {
            TxnFate::Open => write!(f, "; recovery would finish it"),
            TxnFate::Finished => write!(f, "; finished"),
            TxnFate::Failed => write!(f, "; ended: {}", self.reason),
            TxnFate::Cut => write!(f, "; cut: {}", self.reason),
        }
    }
}

/// What a mount found and did; times in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct RecoveryReport {
    /// Whether the image was unmounted cleanly.
    pub clean: bool,
    /// Records replayed.
    pub records: u64,
    /// Effects replayed.
    pub effects: u64,
    /// Log bytes replayed.
    pub log_bytes: u64,
    /// Data blocks verified.
    pub verified_blocks: u64,
    /// First position of the replayed log.
    pub from_lsn: u64,
    /// Its tail.
    pub tail_lsn: u64,
    /// The highest recorded watermark.
    pub watermark: u64,
    /// Range of positions of the torn tail that was discarded.
    pub discarded: Option<(u64, u64)>,
    /// Valid records in it.
    pub discarded_records: u64,
    /// Bytes of them.
    pub discarded_bytes: u64,
    /// Records that begin in it and are not whole. A power cut that tore them and rot in the last records of a log look
    /// alike.
    pub discarded_torn: u64,
    /// Inodes without a name that will be reclaimed.
    pub orphans: u64,
    /// Ranges that will be reclaimed.
    pub cuts: u64,
    /// Transactions of several records seen: carried over by the checkpoint, or begun in the log.
    pub txns_seen: u64,
    /// Of them, those whose end stands in the log.
    pub txns_replayed: u64,
    /// Of them, those that this mount finished.
    pub txns_finished: u64,
    /// Of them, those that it ended without finishing them.
    pub txns_cut: u64,
    /// The transactions open at the end of the log, by begin position.
    pub txns: Vec<TxnReport>,
    /// Records that finishing them appended.
    pub finish_records: u64,
    /// Superblock copies that were damaged or old.
    pub warnings: Vec<String>,
    /// Time to read superblock, root and zone map.
    pub open_ns: u64,
    /// Time to read, verify and apply the log.
    pub replay_ns: u64,
    /// Time to finish open transactions, their flush included.
    pub finish_ns: u64,
    /// Time to make the image ready for appending.
    pub ready_ns: u64,
}

impl RecoveryReport {
    /// The end of the log.
    pub(super) fn log_end(&self) -> LogEnd {
        LogEnd {
            clean: self.clean,
            tail_lsn: self.tail_lsn,
            watermark: self.watermark,
            discarded_records: self.discarded_records,
            discarded_bytes: self.discarded_bytes,
            discarded_torn: self.discarded_torn,
        }
    }

    pub(super) fn fill(&mut self, store: &Store, scan: &ScanReport, cut: Lsn) {
        self.clean = store.writer.lock().sb.clean;
        self.from_lsn = cut.0;
        self.tail_lsn = scan.tail.0;
        self.watermark = scan.watermark.0;
        if let Some(d) = &scan.discarded {
            self.discarded = Some((d.from.0, d.to.0));
            (self.discarded_records, self.discarded_bytes, self.discarded_torn) = (d.records, d.bytes, d.torn);
        }
        self.orphans = store.reclaim.orphans() as u64;
        self.cuts = store.reclaim.len() as u64 - self.orphans;
        self.txns = store.txns.list().iter().map(TxnReport::new).collect();
        self.txns_replayed = self.txns_seen - self.txns.len() as u64;
    }

    /// What the log ends with that no mount takes, in a sentence; a power cut leaves it, and so does damage to the last
    /// records, which were acknowledged then.
    pub fn torn_tail(&self) -> Option<String> {
        let (from, to) = self.discarded?;
        let (whole, bytes, torn) = (self.discarded_records, self.discarded_bytes, self.discarded_torn);
        Some(format!(
            "a torn tail of the log, LSN {from} to {to}: {whole} whole records ({bytes} bytes), {torn} that are not \
             whole; a power cut leaves that, and damage to the last records cannot be told from it"
        ))
    }

    /// Where the log of an image ends that was not closed cleanly, and what that cannot tell, in a sentence: behind the
    /// end nothing vouches for anything, so a record that was acknowledged there and is gone as a whole has left
    /// nothing.
    pub fn end_of_log(&self) -> Option<String> {
        let (tail, watermark) = (self.tail_lsn, self.watermark);
        (!self.clean).then(|| {
            format!(
                "the log ends at LSN {tail}, and vouches for what lies below {watermark}; a record behind its end that \
                 is gone as a whole would leave no trace"
            )
        })
    }

    /// Books what became of an open transaction.
    pub fn settle(&mut self, id: u64, fate: TxnFate, reason: String) {
        match fate {
            TxnFate::Open => return,
            TxnFate::Finished => self.txns_finished += 1,
            TxnFate::Failed | TxnFate::Cut => self.txns_cut += 1,
        }
        if let Some(txn) = self.txns.iter_mut().find(|t| t.id == id) {
            (txn.fate, txn.reason) = (fate, reason);
        }
    }

    /// Writes the report to the log: one line for the whole, one per open transaction.
    pub(super) fn log(&self) {
        if self.clean {
            tracing::info!("mounted an image that was unmounted cleanly");
            return;
        }
        tracing::info!(
            from = self.from_lsn,
            tail = self.tail_lsn,
            watermark = self.watermark,
            records = self.records,
            bytes = self.log_bytes,
            transactions = self.txns_seen,
            replayed = self.txns_replayed,
            finished = self.txns_finished,
            cut = self.txns_cut,
            open_us = self.open_ns / 1000,
            replay_us = self.replay_ns / 1000,
            finish_us = self.finish_ns / 1000,
            ready_us = self.ready_ns / 1000,
            "recovered"
        );
        if let Some((from, to)) = self.discarded {
            let (records, bytes, torn) = (self.discarded_records, self.discarded_bytes, self.discarded_torn);
            tracing::info!(from, to, records, bytes, torn, "a torn tail of the log was discarded");
        }
        for t in &self.txns {
            let (id, begin, op, next) = (t.id, t.begin_lsn, &t.op, t.next_micro);
            tracing::info!(id, begin, op, next, fate = ?t.fate, reason = t.reason, "transaction was open");
        }
    }
}
