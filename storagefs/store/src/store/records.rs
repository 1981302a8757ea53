//! The records of a transaction of several: each is appended, booked in the set of open transactions and applied inside
//! one gate section of its own, so that a checkpoint's cut may fall between any two of them and between nothing else.

use super::Store;
use super::plan::Preparing;
use crate::effect::{Effect, Effects};
use crate::error::{FsError, FsResult, Place};
use crate::micro::{self, Begin, Commit, End};
use crate::outcomes::OutcomeRec;
use crate::overlay::apply::Tally;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weldfs_ciscops::Errno;
use weldfs_journal::{Appended, DataWrite, JournalError, Lsn, RecordHead, RecordKind, Reservation, TxnMode};

/// Gives the room for a record whose payload has so many bytes, if any was kept; an error if less was.
pub(crate) type Room<'r, 'j> = &'r mut dyn FnMut(usize) -> Result<Option<Reservation<'j>>, JournalError>;

/// The parts of what a transaction reserved, if it reserved anything.
pub(crate) fn parts<'j>(
    log: &mut Option<Reservation<'j>>,
    payload: usize,
) -> Result<Option<Reservation<'j>>, JournalError> {
    log.as_mut().map(|log| log.part(payload)).transpose()
}

pub(super) fn head(kind: RecordKind, id: u64, micro_index: u16) -> RecordHead {
    RecordHead { kind, mode: TxnMode::Micro, micro_index, txn: id }
}

/// Two records of one transaction that contradict each other.
fn contradiction(lsn: Lsn) -> FsError {
    FsError::corrupt("transaction (records out of order)", Place::Log(lsn), 0, 1)
}

/// The inputs adopted so far and those of one more commit; none may be adopted twice.
pub(super) fn disjoint(before: u16, more: u16) -> FsResult<u16> {
    if before & more == 0 { Ok(before | more) } else { Err(contradiction(Lsn::NONE)) }
}

/// Reads what applying a commit needs, after those of the same transaction that come before it.
pub(super) fn prepare_group(
    preparing: &mut Preparing<'_>,
    commit: &Commit,
    begin: &Begin,
    tally: &mut Tally,
) -> FsResult<()> {
    commit.effects.iter().try_for_each(|e| match e {
        Effect::Input { input, .. } => {
            let adopted: &[Effect] = begin.inputs.get(usize::from(*input)).map_or(&[], |i| &i.effects);
            adopted.iter().try_for_each(|e| preparing.one(e, tally))
        }
        e => preparing.one(e, tally),
    })
}

impl Store {
    /// An id for a new transaction.
    pub fn alloc_txn(&self) -> u64 {
        self.ledger.next_txn.fetch_add(1, Relaxed)
    }

    /// Appends a begin record with the data blocks of its inputs: from here on the transaction is open.
    ///
    /// # Errors
    /// Nothing happened.
    pub fn append_begin(
        &self,
        id: u64,
        begin: Arc<Begin>,
        data: Vec<DataWrite>,
        room: Room<'_, '_>,
    ) -> FsResult<Appended> {
        let payload = begin.encode();
        let _gate = self.gate.read();
        if self.closed.load(Relaxed) {
            return Err(FsError::Errno(Errno::ROFS));
        }
        let pins = data.clone();
        let room = room(payload.len())?;
        let appended = self.journal().append(head(RecordKind::Begin, id, 0), &[&payload], data, room)?;
        self.pin(&pins, appended.end);
        match self.txns.begin(id, appended.lsn, begin, payload.len()) {
            true => Ok(appended),
            false => Err(self.disagree(contradiction(appended.lsn))),
        }
    }

    /// Appends the commit of one micro-op of an open transaction and applies it; takes its effects, which may stand for
    /// inputs of the begin record.
    ///
    /// # Errors
    /// `Miss`: nothing happened, fetch and call again. Anything else: nothing happened, or the medium is poisoned.
    pub fn append_commit(
        &self,
        id: u64,
        begin: &Begin,
        index: u16,
        commit: &mut Commit,
        room: Room<'_, '_>,
    ) -> FsResult<Appended> {
        let payload = commit.encode();
        let mut tally = Tally::default();
        let _gate = self.gate.read();
        let prepared = prepare_group(&mut self.preparing(), commit, begin, &mut tally).and_then(|()| {
            let expanded = micro::expand(std::mem::take(&mut commit.effects), &begin.inputs);
            let (effects, adopted) = expanded.map_err(|e| FsError::corrupt(e.0, Place::Log(Lsn::NONE), 0, 0))?;
            // What recovery would refuse must never be written.
            let (next, before) = self.txns.progress(id).ok_or_else(|| contradiction(Lsn::NONE))?;
            if adopted & before != 0 || index < next {
                return Err(contradiction(Lsn::NONE));
            }
            let room = room(payload.len())?;
            let at = self.journal().append(head(RecordKind::Micro, id, index), &[&payload], Vec::new(), room)?;
            Ok((at, effects, adopted))
        });
        let (appended, effects, adopted): (Appended, Effects, u16) = match prepared {
            Ok(p) => p,
            Err(e) => {
                self.ledger.book(&tally);
                return Err(e);
            }
        };
        self.txns.committed(id, index, commit.regs, adopted);
        let applied = self.apply(appended.lsn.0, effects, &mut tally);
        self.ledger.book(&tally);
        applied.map_err(|e| self.disagree(e))?;
        Ok(appended)
    }

    /// Appends the end record of an open transaction.
    ///
    /// # Errors
    /// Nothing happened.
    pub fn append_end(&self, id: u64, end: &End, room: Room<'_, '_>) -> FsResult<Appended> {
        let payload = end.encode();
        let _gate = self.gate.read();
        let room = room(payload.len())?;
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
