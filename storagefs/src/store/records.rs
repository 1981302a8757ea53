//! The records of a transaction of several: each is appended, booked in the set of open transactions and applied inside
//! one gate section of its own, so that a checkpoint's cut may fall between any two of them and between nothing else.

use super::Store;
use crate::effect::Effects;
use crate::error::{FsError, FsResult, Place};
use crate::micro::{self, Begin, Commit, End};
use crate::outcomes::OutcomeRec;
use crate::overlay::apply::Tally;
use std::sync::atomic::Ordering::Relaxed;
use weldfs_ciscops::{Errno, Registers};
use weldfs_journal::{Appended, DataWrite, Lsn, RecordHead, RecordKind, Reservation, TxnMode};

fn head(kind: RecordKind, id: u64, micro_index: u16) -> RecordHead {
    RecordHead { kind, mode: TxnMode::Micro, micro_index, txn: id }
}

/// Two records of one transaction that contradict each other.
fn contradiction(lsn: Lsn) -> FsError {
    FsError::corrupt("transaction (records out of order)", Place::Log(lsn), 0, 1)
}

impl Store {
    /// An id for a new transaction.
    pub(crate) fn alloc_txn(&self) -> u64 {
        self.ledger.next_txn.fetch_add(1, Relaxed)
    }

    /// Appends a begin record with the data blocks of its inputs: from here on the transaction is open.
    ///
    /// # Errors
    /// Nothing happened.
    pub(crate) fn append_begin(
        &self,
        id: u64,
        begin: Begin,
        data: Vec<DataWrite>,
        room: Option<Reservation>,
    ) -> FsResult<Appended> {
        let payload = begin.encode();
        let _gate = self.gate.read();
        if self.closed.load(Relaxed) {
            return Err(FsError::Errno(Errno::ROFS));
        }
        let pins = data.clone();
        let appended = self.journal().append(head(RecordKind::Begin, id, 0), &[&payload], data, room)?;
        if !pins.is_empty() {
            self.cache.unpin(self.journal().watermark());
            self.cache.pin(&pins, appended.end);
        }
        match self.txns.begin(id, appended.lsn, begin) {
            true => Ok(appended),
            false => Err(self.disagree(contradiction(appended.lsn))),
        }
    }

    /// Appends the commit of one micro-op of an open transaction and applies it. Its effects may stand for inputs of
    /// the begin record.
    ///
    /// # Errors
    /// `Miss`: nothing happened, fetch and call again. Anything else: nothing happened, or the medium is poisoned.
    pub(crate) fn append_commit(
        &self,
        id: u64,
        index: u16,
        regs: Registers,
        effects: &Effects,
        room: Option<Reservation>,
    ) -> FsResult<Appended> {
        let _gate = self.gate.read();
        let txn = self.txns.get(id).ok_or_else(|| contradiction(Lsn::NONE))?;
        let expanded = micro::expand(effects.clone(), &txn.begin.inputs);
        let (list, adopted) = expanded.map_err(|e| FsError::corrupt(e.0, Place::Log(txn.lsn), 0, 0))?;
        let mut tally = Tally::default();
        let prepared = self.prepare(&list, &mut tally);
        let payload = Commit { regs, effects: effects.clone() }.encode();
        let append = || {
            let head = head(RecordKind::Micro, id, index);
            self.journal().append(head, &[&payload], Vec::new(), room).map_err(FsError::from)
        };
        let appended = match prepared.and_then(|()| append()) {
            Ok(a) => a,
            Err(e) => {
                self.ledger.book(&tally);
                return Err(e);
            }
        };
        self.txns.committed(id, index, regs, adopted);
        let applied = self.apply(appended.lsn.0, list, &mut tally);
        self.ledger.book(&tally);
        applied.map_err(|e| self.disagree(e))?;
        Ok(appended)
    }

    /// Appends the end record of an open transaction.
    ///
    /// # Errors
    /// Nothing happened.
    pub(crate) fn append_end(&self, id: u64, end: &End, room: Option<Reservation>) -> FsResult<Appended> {
        let payload = end.encode();
        let _gate = self.gate.read();
        let appended = self.journal().append(head(RecordKind::End, id, 0), &[&payload], Vec::new(), room)?;
        match self.txn_ended(id, appended.lsn, end) {
            true => Ok(appended),
            false => Err(self.disagree(contradiction(appended.lsn))),
        }
    }

    /// The end record at `lsn` is in the log: its transaction is over, and if it was detectable, that is its outcome.
    /// Run time and replay. False if no such transaction is open.
    pub(crate) fn txn_ended(&self, id: u64, lsn: Lsn, end: &End) -> bool {
        let Some(txn) = self.txns.get(id) else { return false };
        if let Some(of) = txn.begin.identity() {
            let mut tally = Tally::default();
            self.outcomes.record(lsn.0, &OutcomeRec { id: of, outcome: end.outcome }, &mut tally);
            self.ledger.book(&tally);
        }
        self.txns.end(id)
    }

    /// Memory and log disagree: only a remount can tell the truth.
    fn disagree(&self, e: FsError) -> FsError {
        self.medium.poison();
        e
    }
}
