//! A transaction of several records whose records are appended in one go: what nearly all of them do.
//!
//! The records, their order and what they say are those of `Store::commit_micro`'s other way, and so is what a crash
//! between them leaves. But as everything they need was read before the first of them, none of them can be missing
//! for another reason than a crash, and no checkpoint's cut falls between them: so the transaction is never in the
//! table of open ones.

use super::Store;
use super::micro::MicroTxn;
use super::plan::Plan;
use super::records::{disjoint, head, prepare_group};
use crate::codec::Writer;
use crate::effect::Effects;
use crate::error::{FsError, FsResult, Place};
use crate::micro;
use crate::outcomes::OutcomeRec;
use crate::overlay::apply::Tally;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;
use weldfs_ciscops::Errno;
use weldfs_journal::{Appended, Lsn, RecordHead, RecordKind, crashpoint};

/// Payload bytes of all records up to which they are appended in one go: nothing else appends meanwhile.
const TOGETHER_BYTES_MAX: usize = 4096;
/// Records that need no more memory than the stack's.
const RECORDS: usize = 6;

/// Encoded payloads, one after the other.
struct Payloads {
    bytes: Vec<u8>,
    ends: SmallVec<[usize; RECORDS]>,
}

impl Payloads {
    fn of(txn: &MicroTxn) -> Payloads {
        let (mut w, mut ends) = (Writer::with_capacity(768), SmallVec::new());
        w.raw(&txn.begin.encode());
        ends.push(w.len());
        for g in &txn.groups {
            g.commit.encode_into(&mut w);
            ends.push(w.len());
        }
        txn.end.encode_into(&mut w);
        ends.push(w.len());
        Payloads { bytes: w.into_vec(), ends }
    }

    /// The records: begin, commits, end.
    fn records<'p>(&'p self, txn: &MicroTxn, id: u64) -> SmallVec<[(RecordHead, &'p [u8]); RECORDS]> {
        let commits = txn.groups.iter().map(|g| head(RecordKind::Micro, id, g.index));
        let first = std::iter::once(head(RecordKind::Begin, id, 0));
        let heads = first.chain(commits).chain(std::iter::once(head(RecordKind::End, id, 0)));
        let mut from = 0;
        let parts = self.ends.iter().map(|end| &self.bytes[std::mem::replace(&mut from, *end)..*end]);
        heads.zip(parts).collect()
    }
}

impl Store {
    /// Commits a transaction that has not begun, if its records are short; `None` if they are not.
    ///
    /// # Errors
    /// `Miss`: nothing happened, fetch and call again. Anything else: nothing happened, or the medium is poisoned.
    pub(super) fn commit_together(&self, plan: &mut Plan<'_>, txn: &mut MicroTxn) -> FsResult<Option<Appended>> {
        let payloads = Payloads::of(txn);
        if payloads.bytes.len() > TOGETHER_BYTES_MAX {
            return Ok(None);
        }
        txn.hold(self);
        let mut tally = Tally::default();
        let gate = self.gate.read();
        if self.closed.load(Relaxed) {
            return Err(FsError::Errno(Errno::ROFS));
        }
        let done = self.append_and_apply(plan, txn, &payloads, &mut tally);
        self.ledger.book(&tally);
        let end = done?;
        drop(gate);
        (txn.done, plan.named) = (txn.groups.len(), 0);
        plan.runs.clear();
        let promise = std::mem::take(&mut plan.promise);
        self.ledger.settle(promise, plan.taken);
        self.keep_tails(plan);
        Ok(Some(end))
    }

    fn append_and_apply(
        &self,
        plan: &mut Plan<'_>,
        txn: &mut MicroTxn,
        payloads: &Payloads,
        tally: &mut Tally,
    ) -> FsResult<Appended> {
        let mut preparing = self.preparing();
        txn.groups.iter().try_for_each(|g| prepare_group(&mut preparing, &g.commit, &txn.begin, tally))?;
        // Shards are locked one at a time.
        drop(preparing);
        let id = self.alloc_txn();
        let records = payloads.records(txn, id);
        // What recovery would refuse must never be written.
        let mut expanded: SmallVec<[Effects; RECORDS]> = SmallVec::new();
        let mut adopted = 0;
        for g in &mut txn.groups {
            let one = micro::expand(std::mem::take(&mut g.commit.effects), &txn.begin.inputs);
            let (effects, more) = one.map_err(|e| FsError::corrupt(e.0, Place::Log(Lsn::NONE), 0, 0))?;
            adopted = disjoint(adopted, more)?;
            expanded.push(effects);
        }
        let (data, last) = (std::mem::take(&mut plan.data), records.len() - 1);
        let pins = data.clone();
        let mut at: SmallVec<[Appended; RECORDS]> = SmallVec::from_elem(Appended::default(), records.len());
        self.journal().append_together(&records, data, plan.log.take(), &mut at, &mut |i| match i {
            0 => crashpoint("micro-begun"),
            i if i < last => crashpoint("micro-committed"),
            _ => {}
        })?;
        txn.id = id;
        self.pin(&pins, at[0].end);
        self.txns.passed(&txn.begin, adopted);
        if let Some(of) = txn.begin.identity() {
            self.outcomes.record(at[last].lsn.0, &OutcomeRec { id: of, outcome: txn.end.outcome }, tally);
        }
        for (effects, at) in expanded.into_iter().zip(&at[1..]) {
            // Appended but not applied: memory and log disagree. Only a remount can tell the truth.
            self.apply(at.lsn.0, effects, tally).inspect_err(|_| self.medium.poison())?;
        }
        Ok(at[last])
    }
}
