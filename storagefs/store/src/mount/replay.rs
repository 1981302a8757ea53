//! Replay: every record of the log above the checkpoint's cut, decoded, its data verified where the recorded watermark
//! does not vouch for it, and applied by the code that applied it the first time.

use super::report::RecoveryReport;
use crate::codec::DecodeError;
use crate::effect::{self, BlockState, Effect};
use crate::error::{FsError, FsResult, Place};
use crate::limits::{BLOCK, COUNTER_MAX};
use crate::micro::open::runs;
use crate::micro::{self, Begin, Commit, End};
use crate::overlay::apply::Tally;
use crate::store::Store;
use std::sync::atomic::Ordering::Relaxed;
use weldfs_ciscops::limits::MICRO_OPS_MAX;
use weldfs_journal::canary::{Canary, planted};
use weldfs_journal::{Lsn, Record, RecordKind, Verdict};

/// Replays records; collects what the report says.
pub(super) struct Replay<'s> {
    pub(super) store: &'s Store,
    pub(super) report: RecoveryReport,
    pub(super) error: Option<FsError>,
    pub(super) verify: bool,
}

fn damaged(lsn: Lsn, what: &'static str) -> FsError {
    FsError::corrupt(what, Place::Log(lsn), 0, 0)
}

fn undecodable(lsn: Lsn) -> impl Fn(DecodeError) -> FsError {
    move |DecodeError(what)| damaged(lsn, what)
}

impl Replay<'_> {
    pub(super) fn visit(&mut self, record: &Record<'_>) -> Verdict {
        match self.replay(record) {
            Ok(v) => v,
            Err(e) => {
                self.error = Some(e);
                Verdict::Stop
            }
        }
    }

    fn replay(&mut self, record: &Record<'_>) -> FsResult<Verdict> {
        let verdict = match record.header.head.kind {
            RecordKind::Begin => self.begin(record)?,
            RecordKind::Micro => self.commit(record)?,
            RecordKind::End => self.end(record)?,
            _ => self.op(record)?,
        };
        if verdict == Verdict::Ok {
            self.report.records += 1;
            self.report.log_bytes += record.end.0 - record.header.lsn.0;
        }
        Ok(verdict)
    }

    fn op(&mut self, record: &Record<'_>) -> FsResult<Verdict> {
        let lsn = record.header.lsn;
        let effects = effect::decode(record.payload).map_err(undecodable(lsn))?;
        if !self.trusts(record, &effects)? {
            return Ok(Verdict::CutHere);
        }
        for (first, n) in runs(&effects) {
            self.claim(lsn, first, n)?;
        }
        self.apply(lsn, effects)
    }

    /// The blocks of its inputs belong to the transaction from here on.
    fn begin(&mut self, record: &Record<'_>) -> FsResult<Verdict> {
        let (lsn, id) = (record.header.lsn, record.header.head.txn);
        let begin = Begin::decode(record.payload).map_err(undecodable(lsn))?;
        if id == 0 || id >= COUNTER_MAX - 1 || begin.last_inode().0 >= COUNTER_MAX - 1 {
            return Err(damaged(lsn, "transaction id or inode number"));
        }
        for input in &begin.inputs {
            if !self.trusts(record, &input.effects)? {
                return Ok(Verdict::CutHere);
            }
        }
        for input in &begin.inputs {
            for (first, n) in runs(&input.effects) {
                self.claim(lsn, first, n)?;
            }
        }
        self.store.ledger.next_txn.fetch_max(id + 1, Relaxed);
        self.store.ledger.next_ino.fetch_max(begin.last_inode().0 + 1, Relaxed);
        self.report.txns_seen += 1;
        if !self.store.txns.begin(id, lsn, begin, record.payload.len()) {
            return Err(damaged(lsn, "transaction (begun twice)"));
        }
        Ok(Verdict::Ok)
    }

    fn commit(&mut self, record: &Record<'_>) -> FsResult<Verdict> {
        let (lsn, head) = (record.header.lsn, record.header.head);
        let commit = Commit::decode(record.payload).map_err(undecodable(lsn))?;
        let Some(txn) = self.store.txns.get(head.txn) else {
            return Err(damaged(lsn, "commit of a transaction that is not open"));
        };
        let regs = commit.regs;
        if head.micro_index < txn.next || head.micro_index >= MICRO_OPS_MAX as u16 {
            return Err(damaged(lsn, "commit out of the order of micro-ops"));
        }
        // What the begin record claimed is in inputs and nowhere else: whatever block the commit itself names is new.
        let is_input = |e: &&Effect| matches!(e, Effect::Input { .. });
        let fresh: Vec<Effect> = commit.effects.iter().filter(|e| !is_input(e)).cloned().collect();
        let (effects, adopted) = micro::expand(commit.effects, &txn.begin.inputs).map_err(undecodable(lsn))?;
        // Stamps, the record's position plus an index each, must stay below the next record's.
        if effects.len() as u64 > record.end.0 - lsn.0 || adopted & txn.adopted != 0 {
            return Err(damaged(lsn, "commit with impossible effects"));
        }
        if !self.trusts(record, &fresh)? {
            return Ok(Verdict::CutHere);
        }
        for (first, n) in runs(&fresh) {
            self.claim(lsn, first, n)?;
        }
        self.store.txns.committed(head.txn, head.micro_index, regs, adopted);
        self.apply(lsn, effects)
    }

    fn end(&mut self, record: &Record<'_>) -> FsResult<Verdict> {
        let (lsn, id) = (record.header.lsn, record.header.head.txn);
        let end = End::decode(record.payload).map_err(undecodable(lsn))?;
        if !self.store.txn_ended(id, lsn, &end) {
            return Err(damaged(lsn, "end of a transaction that is not open"));
        }
        Ok(Verdict::Ok)
    }

    fn apply(&mut self, lsn: Lsn, effects: Vec<Effect>) -> FsResult<Verdict> {
        self.report.effects += effects.len() as u64;
        let mut tally = Tally::default();
        let applied = self.store.apply(lsn.0, effects, &mut tally);
        self.store.ledger.book(&tally);
        applied.map(|()| Verdict::Ok)
    }

    /// Marks blocks that a record names as used; they must have been free.
    fn claim(&self, lsn: Lsn, first: u64, n: u64) -> FsResult<()> {
        let fresh = self.store.alloc.claim(weldfs_journal::BlockNo(first), n as u32)?;
        self.store.ledger.avail.fetch_sub(fresh as i64, Relaxed);
        if fresh != n {
            return Err(FsError::corrupt("block (mapped while in use)", Place::Log(lsn), 0, first));
        }
        Ok(())
    }

    /// Whether a record's data is on the medium, as the recorded watermark says or as its checksums do.
    fn trusts(&mut self, record: &Record<'_>, effects: &[Effect]) -> FsResult<bool> {
        if !record.verify_data || !self.verify || planted(Canary::TornTailAccepted) {
            return Ok(true);
        }
        let data = self.store.geometry.data_blocks();
        let mut buf = weldfs_journal::AlignedBuf::zeroed(BLOCK);
        for e in effects {
            let Effect::Map { addr, count, state: BlockState::Written, crcs, .. } = e else { continue };
            if addr.0 < data.start || addr.0 + u64::from(*count) > data.end {
                return Ok(true); // `claim` has the words for it
            }
            for (i, crc) in crcs.iter().enumerate() {
                self.store.medium.read((addr.0 + i as u64) * BLOCK as u64, &mut buf)?;
                self.report.verified_blocks += 1;
                if weldfs_functions::crc32c(&buf) != *crc {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
