//! Committing a MicroTx: a begin record, a commit per micro-op that changed something, an end record.
//!
//! The caller holds the command's inode set from before the first record until after the last, so no op sees a
//! state in between.

use super::Store;
use super::plan::Plan;
use super::records::{parts, prepare_group};
use crate::effect::{self, Effects};
use crate::error::{FsError, FsResult};
use crate::micro::{self, Begin, End, Group, Verdict};
use crate::overlay::apply::Tally;
use smallvec::SmallVec;
use std::sync::Arc;
use weldfs_ciscops::{Errno, InodeNo, Outcome};
use weldfs_journal::canary::{Canary, planted};
use weldfs_journal::{Appended, crashpoint};

/// A transaction of several records, on its way to the log. `Store::commit_micro` keeps in it how far it has come.
#[derive(Debug)]
pub struct MicroTxn {
    pub(super) begin: Arc<Begin>,
    pub(super) groups: SmallVec<[Group; 2]>,
    pub(super) end: End,
    /// 0 until the begin record stands.
    pub(super) id: u64,
    /// Groups committed.
    pub(super) done: usize,
    /// What its end record says, once it was cut.
    cut: Option<Outcome>,
    /// Inodes that it keeps from being reclaimed.
    held: Vec<InodeNo>,
}

impl MicroTxn {
    /// From what was staged: nothing of it is committed yet.
    pub fn new(begin: Begin, groups: SmallVec<[Group; 2]>, end: End) -> MicroTxn {
        MicroTxn { begin: Arc::new(begin), groups, end, id: 0, done: 0, cut: None, held: Vec::new() }
    }

    /// Whether its begin record stands: what became of it is then said by an end record, now or after recovery.
    pub fn has_begun(&self) -> bool {
        self.id != 0
    }

    /// How it ended, if it was cut where it stood: what its first micro-ops did stays.
    pub fn cut(&self) -> Option<Outcome> {
        self.cut
    }

    /// Keeps its files, before its first record: one group may take a file's last name, and a later one changes it.
    /// Of a command that is no program the file has a name or is open until the command is over.
    pub(super) fn hold(&mut self, store: &Store) {
        if self.begin.plan.is_some() && self.held.is_empty() {
            self.held = self.begin.files();
            store.open_refs(&self.held);
        }
    }

    /// Gives them back.
    fn release(&mut self, store: &Store) {
        store.close_refs(&std::mem::take(&mut self.held));
    }

    /// A planted bug: commits are logged while their effects are not, which come with the last one.
    #[cold]
    fn postpone(&mut self) {
        let late: Effects = self.groups.iter_mut().flat_map(|g| std::mem::take(&mut g.commit.effects)).collect();
        if let Some(last) = self.groups.last_mut() {
            last.commit.effects = late;
        }
    }
}

impl Store {
    /// Commits a transaction of several records and applies it: from its last record on every client may see it. Says
    /// where the end record stands; when that is durable all of it is.
    ///
    /// # Errors
    /// `Miss`: fetch, and call again with the same plan and transaction; what stands in the log by then is not written
    /// twice. Who cannot fetch calls `Store::abort_micro`. Anything else is final; a transaction that had begun is
    /// cut where it stood.
    pub fn commit_micro(&self, plan: &mut Plan<'_>, txn: &mut MicroTxn) -> FsResult<Appended> {
        let done = self.commit_records(plan, txn);
        if !matches!(done, Err(FsError::Miss(_))) {
            txn.release(self);
        }
        done
    }

    fn commit_records(&self, plan: &mut Plan<'_>, txn: &mut MicroTxn) -> FsResult<Appended> {
        if txn.id == 0 {
            txn.begin.bounded()?;
            if planted(Canary::CommitBeforeEffect) {
                txn.postpone();
            }
            if let Some(appended) = self.commit_together(plan, txn)? {
                return Ok(appended);
            }
            self.begin_micro(plan, txn)?;
            crashpoint("micro-begun");
        }
        while txn.done < txn.groups.len() {
            if let Err(e) = self.commit_group(plan, txn) {
                if !matches!(e, FsError::Miss(_)) {
                    self.cut_micro(plan, txn, &e);
                }
                return Err(e);
            }
            txn.done += 1;
            crashpoint("micro-committed");
        }
        let Plan { log, .. } = plan;
        let ended = self.append_end(txn.id, &txn.end, &mut |n| parts(log, n));
        // Everything stands and cannot be said to: only a remount can tell the truth.
        let appended = ended.inspect_err(|_| self.medium.poison())?;
        let promise = std::mem::take(&mut plan.promise);
        self.ledger.settle(promise, std::mem::take(&mut plan.named));
        self.keep_tails(plan);
        Ok(appended)
    }

    fn begin_micro(&self, plan: &mut Plan<'_>, txn: &mut MicroTxn) -> FsResult<()> {
        txn.hold(self);
        // All of it is read ahead: what cannot be read fails before anything is written. (A cut that comes between
        // makes the commits read again.)
        let mut tally = Tally::default();
        let gate = self.gate.read();
        let mut preparing = self.preparing();
        let groups = &mut txn.groups.iter();
        let prepared = groups.try_for_each(|g| prepare_group(&mut preparing, &g.commit, &txn.begin, &mut tally));
        drop(preparing);
        self.ledger.book(&tally);
        drop(gate);
        prepared?;
        let (id, data) = (self.alloc_txn(), std::mem::take(&mut plan.data));
        let Plan { log, .. } = plan;
        self.append_begin(id, txn.begin.clone(), data, &mut |n| parts(log, n))?;
        txn.id = id;
        plan.runs.clear();
        plan.named = plan.taken;
        Ok(())
    }

    fn commit_group(&self, plan: &mut Plan<'_>, txn: &mut MicroTxn) -> FsResult<()> {
        let (id, begin) = (txn.id, txn.begin.clone());
        let Group { index, commit } = &mut txn.groups[txn.done];
        let Plan { log, .. } = plan;
        self.append_commit(id, &begin, *index, commit, &mut |n| parts(log, n)).map(drop)
    }

    /// One record further only: the begin record, then a commit each time. A command does that in one go; tests of
    /// recovery stop in between.
    ///
    /// # Errors
    /// As [`Store::commit_micro`].
    #[doc(hidden)]
    pub fn step_micro(&self, plan: &mut Plan<'_>, txn: &mut MicroTxn) -> FsResult<()> {
        if !txn.has_begun() {
            return self.begin_micro(plan, txn);
        }
        self.commit_group(plan, txn)?;
        txn.done += 1;
        Ok(())
    }

    /// Ends a transaction whose caller could not fetch what `Store::commit_micro` missed. Does nothing to one that
    /// has not begun or has ended.
    pub fn abort_micro(&self, plan: &mut Plan<'_>, txn: &mut MicroTxn, why: &FsError) {
        if txn.has_begun() && txn.cut.is_none() && txn.done < txn.groups.len() {
            self.cut_micro(plan, txn, why);
        }
        txn.release(self);
    }

    /// Ends a transaction that cannot go on; if not even that can be said, nothing may be built on what it left, and
    /// the next mount finishes it.
    fn cut_micro(&self, plan: &mut Plan<'_>, txn: &mut MicroTxn, why: &FsError) {
        let index = txn.groups.get(txn.done).map_or(0, |g| g.index);
        let status = Errno::from(why).0;
        let outcome = Outcome { status, micro_done: index, micro_failed: index + 1, result: 0, result2: 0 };
        let end = End { verdict: Verdict::Cut, outcome };
        let Plan { log, .. } = plan;
        if let Err(e) = self.append_end(txn.id, &end, &mut |n| parts(log, n)) {
            tracing::error!(error = %e, "a transaction is left open");
            self.medium.poison();
        }
        txn.cut = Some(outcome);
    }
}

/// The effects of all groups in order, as one operation's record holds them.
///
/// # Errors
/// E2BIG when a record may not hold so many.
pub fn as_one_record(groups: SmallVec<[Group; 2]>, begin: &Begin) -> FsResult<Effects> {
    let mut all = Effects::new();
    for g in groups {
        let expanded = micro::expand(g.commit.effects, &begin.inputs);
        let (effects, _) = expanded.map_err(|_| FsError::Errno(Errno::IO))?;
        all.extend(effects);
    }
    effect::bounded(&all)?;
    Ok(all)
}
