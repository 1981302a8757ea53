//! Finishing what a crash interrupted. After replay, and before the store is handed out, each open transaction goes on
//! under its own begin record: the interpreter runs its remaining micro-ops over what the begin record says, one commit
//! each, then comes the end record. What the commits say is decided by the begin record and the state alone, so a
//! recovery that is itself interrupted, any number of times, ends in the same tree.
//!
//! A transaction that was planned as a whole has nothing left to run: its groups are adopted, one commit each.
//!
//! Each micro-op is committed before the next one runs: nothing else is there to see what lies between, and the next
//! micro-op reads the store as the first run's did.

use crate::driver::complete;
use crate::{Cred, Fetching, HandleTable, Hold, InodeSet, OpenFile, SessionView, Txn};
use std::collections::HashSet;
use std::sync::Arc;
use weldfs_ciscops::interp::{self, Outcome};
use weldfs_ciscops::{Command, Errno, Handle, Op, Paths, Registers, SharedRegion};
use weldfs_journal::canary::{Canary, planted};
use weldfs_journal::{Medium, RecordHead, Reservation, crashpoint};
use weldfs_store::effect::{Effect, Effects};
use weldfs_store::error::{FsError, FsResult, Miss, MountError, Wait};
use weldfs_store::micro::open::OpenTxn;
use weldfs_store::micro::{Begin, Commit, End, Input, Planned, Verdict, expand};
use weldfs_store::mount::{RecoveryReport, TxnFate};
use weldfs_store::{MountOptions, Need, Plan, Store};

/// The directory of the command's final name.
const DIR: Handle = Handle { index: 1, generation: 1 };
/// The command's file.
const FILE: Handle = Handle { index: 2, generation: 1 };
/// Log bytes of one commit's effects apart from the name: no micro-op of a client's bytes needs more, they are inputs.
const COMMIT_BYTES: usize = 2048;
/// Log bytes of an end record's payload, at most.
const END_BYTES: usize = 64;
/// Keys that a micro-op changes, at most.
const COMMIT_KEYS: u32 = 16;
/// Times that one step may find log, memory or cuts full: each time that is mended first.
const TRIES_MAX: u32 = 8;

/// What the interpreter may ask the session of a client that is gone.
struct Absent<'s> {
    store: &'s Store,
    begin: &'s Begin,
}

impl HandleTable for Absent<'_> {
    fn handle(&self, h: Handle) -> Result<OpenFile, Errno> {
        match h {
            DIR => Ok(OpenFile { ino: self.begin.dir, flags: weldfs_ciscops::OpenFlags::READ, offset: 0 }),
            FILE => Ok(OpenFile { ino: self.begin.file, flags: self.begin.flags, offset: 0 }),
            _ => Err(Errno::BADF),
        }
    }

    fn reserve_handle(&self) -> Result<Handle, Errno> {
        Err(Errno::MFILE)
    }

    fn release_handle(&self, _: Handle) {}
}

impl SessionView for Absent<'_> {
    fn cred(&self) -> &Cred {
        &self.begin.cred
    }

    fn prefix(&self) -> Option<&[u8]> {
        None
    }

    fn fetch(&self, miss: Miss) -> Fetching<'_> {
        Box::pin(std::future::ready(self.store.fetch(&miss)))
    }
}

/// How far one micro-op came.
enum Step<'s> {
    /// It went well: the registers after it, and what it changed.
    Done(Registers, Effects, Option<Reservation<'s>>),
    /// It failed, as it would have without the crash.
    Failed(Errno),
    /// It cannot be run.
    Stuck(String),
}

/// Mounts the file system of a medium: what the log holds above the last checkpoint is applied, and each transaction
/// that a crash interrupted is finished, unless the mount is read-only. What recovery did is reported.
///
/// # Errors
/// No image, one that is damaged where it has to be read, one of an unknown version, or the medium.
pub fn mount(medium: Arc<dyn Medium>, options: MountOptions) -> Result<(Arc<Store>, RecoveryReport), MountError> {
    Store::mount(medium, options, finish_open)
}

/// Finishes every transaction that is open, in the order of their begin records, and makes that durable.
///
/// # Errors
/// The medium; a tree that is damaged. What cannot be finished is no error, the want of room included: it is cut.
fn finish_open(store: &Store, report: &mut RecoveryReport) -> FsResult<()> {
    let open = store.txns().list();
    if open.is_empty() {
        return Ok(());
    }
    // A file without a name must not be reclaimed while its transaction is open.
    let files = || open.iter().flat_map(|txn| txn.begin.files());
    files().for_each(|ino| store.open_ref(ino));
    let finished = open.iter().try_for_each(|txn| {
        let (fate, reason) = Finish { store, txn, records: 0, at: txn.next }.run(report)?;
        crashpoint("recovery-finished-one");
        report.settle(txn.id, fate, reason);
        Ok(())
    });
    files().for_each(|ino| store.close_ref(ino));
    finished.and_then(|()| store.make_durable(store.journal().tail()))
}

struct Finish<'s> {
    store: &'s Store,
    txn: &'s OpenTxn,
    records: u64,
    /// The micro-op that is run.
    at: u16,
}

/// Whether this says that there is no room, in log, tree or memory, and nothing worse.
fn lacks_room(e: &FsError) -> bool {
    use weldfs_journal::JournalError::{Full, TooLong};
    match e {
        FsError::Wait(_) | FsError::Journal(Full(_) | TooLong { .. }) => true,
        FsError::Errno(e) => matches!(*e, Errno::NOSPC | Errno::TOOBIG),
        _ => false,
    }
}

impl<'s> Finish<'s> {
    fn run(mut self, report: &mut RecoveryReport) -> FsResult<(TxnFate, String)> {
        let result = match self.go_on() {
            // An image that is full is mounted all the same, or room could never be made in it.
            Err(e) if lacks_room(&e) => {
                self.cut_with(format!("there is no room to finish it: {e}"), self.at, Errno::NOSPC)
            }
            other => other,
        };
        report.finish_records += self.records;
        result
    }

    /// Runs the remaining micro-ops; the end record says how far that went.
    fn go_on(&mut self) -> FsResult<(TxnFate, String)> {
        let begin = &*self.txn.begin;
        if let Some(plan) = &begin.plan {
            return self.adopt_rest(plan);
        }
        let Ok((cmd, paths)) = command(begin) else {
            return self.cut("its command cannot be run again".to_owned(), self.txn.next);
        };
        if let Some(why) = self.hindrance()? {
            return self.cut(why, self.txn.next);
        }
        let id = self.second_begin()?;
        let mut regs = self.txn.regs;
        for index in self.txn.next..interp::steps(&cmd.op) {
            self.at = index;
            match self.step(&cmd, &paths, regs, index)? {
                Step::Done(after, effects, room) => {
                    regs = after;
                    if !effects.is_empty() {
                        self.commit(id, index, Commit { regs, effects }, room)?;
                    }
                }
                Step::Failed(errno) => {
                    let micro_failed = index + 1;
                    let outcome = Outcome { status: errno.0, micro_done: index, micro_failed, result: 0, result2: 0 };
                    self.end(id, End { verdict: Verdict::Failed, outcome })?;
                    return Ok((TxnFate::Failed, format!("micro-op {micro_failed} fails: {errno}")));
                }
                Step::Stuck(why) => return self.cut(why, index),
            }
        }
        let (result, result2) = interp::results(&cmd.op, &regs);
        let micro_done = interp::steps(&cmd.op);
        let outcome = Outcome { status: 0, micro_done, micro_failed: 0, result, result2 };
        self.end(id, End { verdict: Verdict::Done, outcome })?;
        Ok((TxnFate::Finished, String::new()))
    }

    /// Of a planned transaction: adopts the groups that are left. What the end record says was known when it began,
    /// and so is how it ends.
    fn adopt_rest(&mut self, plan: &Planned) -> FsResult<(TxnFate, String)> {
        let begin = &*self.txn.begin;
        if let Some(why) = self.impossible()? {
            return self.cut(why, self.txn.next);
        }
        let id = self.second_begin()?;
        for (i, group) in begin.inputs.iter().enumerate() {
            if self.txn.has_adopted(i) {
                continue;
            }
            self.at = group.micro;
            let room = self.room_for(group)?;
            let effects: Effects = begin.adopt(i).into_iter().collect();
            self.commit(id, group.micro, Commit { regs: Registers::default(), effects }, room)?;
        }
        self.end(id, plan.end)?;
        let outcome = plan.end.outcome;
        Ok(match plan.end.verdict {
            Verdict::Done => (TxnFate::Finished, String::new()),
            _ => (TxnFate::Failed, format!("micro-op {} fails: {}", outcome.micro_failed, Errno(outcome.status))),
        })
    }

    /// Room in log and memory for the commit of a group.
    fn room_for(&self, group: &Input) -> FsResult<Option<Reservation<'s>>> {
        let need = Need { log_bytes: COMMIT_BYTES, meta_keys: 4 * group.effects.len() as u32, ..Need::default() };
        let mut tries = 0;
        loop {
            match self.store.begin(&need) {
                Err(FsError::Wait(w)) if tries < TRIES_MAX => {
                    tries += 1;
                    self.make_room(w)?;
                }
                other => return Ok(other?.into_effects().1),
            }
        }
    }

    /// Why the groups that are left cannot be adopted: an inode that they change or name is not there, one that they
    /// create is.
    fn impossible(&self) -> FsResult<Option<String>> {
        let (txn, mut created) = (self.txn, HashSet::new());
        let left = txn.begin.inputs.iter().enumerate().filter(|(i, _)| !txn.has_adopted(*i));
        let effects = left.flat_map(|(_, group)| &group.effects);
        for (e, ino) in effects.flat_map(|e| [(e, Some(e.ino())), (e, e.target())]) {
            let Some(ino) = ino.filter(|ino| !created.contains(ino)) else { continue };
            let there = match self.store.blocking(|| self.store.inode(ino)) {
                Err(FsError::Corrupt(e)) => return Ok(Some(e.to_string())),
                Err(FsError::Medium(e)) if !self.store.medium().is_poisoned() => return Ok(Some(e.to_string())),
                other => other?.is_some(),
            };
            match (e, there) {
                (Effect::PutInode(_), false) => drop(created.insert(ino)),
                (Effect::PutInode(_), true) => return Ok(Some(format!("inode {ino} is there already"))),
                (_, true) => {}
                (_, false) => return Ok(Some(format!("inode {ino} is gone"))),
            }
        }
        Ok(None)
    }

    /// Why the transaction cannot go on: its file or directory is not the one it was.
    fn hindrance(&self) -> FsResult<Option<String>> {
        let (begin, next) = (&*self.txn.begin, self.txn.next);
        let look = |ino| self.store.blocking(|| self.store.inode(ino));
        let file = match look(begin.file) {
            Err(FsError::Corrupt(e)) => return Ok(Some(e.to_string())),
            Err(FsError::Medium(e)) if !self.store.medium().is_poisoned() => return Ok(Some(e.to_string())),
            other => other?,
        };
        Ok(match file {
            Some(rec) if rec.generation != begin.generation => Some(format!("inode {} is another file", begin.file)),
            None if begin.dir.0 == 0 || next > 0 => Some(format!("inode {} is gone", begin.file)),
            _ => None,
        })
    }

    /// Runs one micro-op; nothing is committed yet.
    fn step(&self, cmd: &Command, paths: &Paths, regs: Registers, index: u16) -> FsResult<Step<'s>> {
        let mut tries = 0;
        loop {
            match self.attempt(cmd, paths, regs, index) {
                Err(FsError::Wait(w)) if tries < TRIES_MAX => {
                    tries += 1;
                    self.make_room(w)?;
                }
                Err(FsError::Corrupt(e)) => return Ok(Step::Stuck(e.to_string())),
                // One unreadable block is no reason to keep the whole image from being mounted.
                Err(FsError::Medium(e)) if !self.store.medium().is_poisoned() => return Ok(Step::Stuck(e.to_string())),
                Err(FsError::SetChanged) => return Ok(Step::Stuck("its name means another file".to_owned())),
                other => return other,
            }
        }
    }

    fn attempt(&self, cmd: &Command, paths: &Paths, regs: Registers, index: u16) -> FsResult<Step<'s>> {
        let (store, begin) = (self.store, &*self.txn.begin);
        let session = Absent { store, begin };
        let mut set = InodeSet::new();
        if begin.dir.0 != 0 {
            set.add(begin.dir, Hold::Exclusive);
        }
        set.add(begin.file, Hold::Exclusive);
        // A client's bytes are in blocks already; what else a micro-op writes, a trailer, is inline in the record.
        let plan = store.begin(&need(begin))?;
        let now = (begin.now.sec, begin.now.nsec);
        let mut txn = Txn::new(store, &session, &set, Some(plan), 0, now).again(begin);
        let pool = SharedRegion::heap(4096);
        let stepped = complete(interp::step(cmd, regs, index, paths, &pool, &mut txn));
        let trouble = txn.trouble();
        let outcome = stepped.map_or_else(Outcome::failed, |_| Outcome::ok(0, 0));
        let finished = complete(txn.finish(&outcome))?;
        match (stepped, trouble) {
            (_, Some(e)) => Err(e),
            (Err(errno), None) => Ok(Step::Failed(errno)),
            (Ok(regs), None) => {
                let (effects, room) = finished.plan.map(Plan::into_effects).unwrap_or_default();
                Ok(Step::Done(regs, effects, room.map(|room| store.journal().keep(room))))
            }
        }
    }

    /// Nothing else runs: whatever is short comes free by itself, without an error.
    fn make_room(&self, w: Wait) -> FsResult<()> {
        if w != Wait::Checkpoint {
            self.store.reclaim_all()?;
        }
        self.store.checkpoint().map(drop)
    }

    fn commit(&mut self, id: u64, index: u16, mut commit: Commit, room: Option<Reservation<'s>>) -> FsResult<()> {
        let mut room = room;
        if planted(Canary::DoubleFinish) {
            return self.forget(commit.effects);
        }
        let (store, begin) = (self.store, &*self.txn.begin);
        store.blocking(|| store.append_commit(id, begin, index, &mut commit, &mut |_| Ok(room.take())))?;
        self.records += 1;
        crashpoint("recovery-committed");
        Ok(())
    }

    fn cut(&mut self, why: String, next: u16) -> FsResult<(TxnFate, String)> {
        self.cut_with(why, next, Errno::IO)
    }

    fn cut_with(&mut self, why: String, next: u16, errno: Errno) -> FsResult<(TxnFate, String)> {
        let micro_failed = next + 1;
        let outcome = Outcome { status: errno.0, micro_done: next, micro_failed, result: 0, result2: 0 };
        self.end(self.txn.id, End { verdict: Verdict::Cut, outcome })?;
        Ok((TxnFate::Cut, why))
    }

    fn end(&mut self, id: u64, end: End) -> FsResult<()> {
        if planted(Canary::DoubleFinish) {
            return Ok(());
        }
        let mut tries = 0;
        let mut room = loop {
            match self.store.journal().reserve(END_BYTES) {
                Ok(room) => break Some(room),
                Err(_) if tries < TRIES_MAX => {
                    tries += 1;
                    match self.store.checkpoint() {
                        Err(e) if lacks_room(&e) => tries = TRIES_MAX,
                        done => drop(done?),
                    }
                }
                // So short a record fits into what is kept free for the end of a lap. Nothing else is here to need it.
                Err(_) => break None,
            }
        };
        self.store.append_end(id, &end, &mut |_| Ok(room.take()))?;
        self.records += 1;
        Ok(())
    }

    /// Under which id the transaction goes on: its own. (A planted bug begins it again under a new one.)
    fn second_begin(&mut self) -> FsResult<u64> {
        if !planted(Canary::SecondBegin) {
            return Ok(self.txn.id);
        }
        let id = self.store.alloc_txn();
        self.store.append_begin(id, self.txn.begin.clone(), Vec::new(), &mut |_| Ok(None))?;
        Ok(id)
    }

    /// A planted bug: the effects of the finish are logged, but not that they belong to the transaction.
    fn forget(&mut self, effects: Effects) -> FsResult<()> {
        let expanded = expand(effects, &self.txn.begin.inputs);
        let (effects, _) =
            expanded.map_err(|e| FsError::corrupt(e.0, weldfs_store::error::Place::Log(self.txn.lsn), 0, 0))?;
        let mut plan = self.store.begin(&need(&self.txn.begin))?;
        effects.into_iter().for_each(|e| plan.push(e));
        self.store.blocking(|| self.store.commit(&mut plan, RecordHead::op())).map(drop)
    }
}

/// What one micro-op may need. No blocks: the first run's reservation was still held when the crash came, so what it
/// promised is free, and nothing else is there to take it.
fn need(begin: &Begin) -> Need {
    Need { log_bytes: COMMIT_BYTES + 2 * begin.name.len(), meta_keys: COMMIT_KEYS, ..Need::default() }
}

/// The command, its handles and paths replaced by what they meant.
fn command(begin: &Begin) -> Result<(Command, Paths), Errno> {
    let mut cmd = begin.command().map_err(|_| Errno::INVAL)?;
    match &mut cmd.op {
        Op::AppendChecksumWrite { h, .. } => *h = FILE,
        Op::OpenWriteClose { base, .. } | Op::OpenReadWriteClose { base, .. } => *base = DIR,
        _ => return Err(Errno::INVAL),
    }
    Ok((cmd, Paths::new(&begin.name, b"")?))
}

#[cfg(all(test, debug_assertions))]
mod canaries;
#[cfg(test)]
mod driven;
#[cfg(test)]
mod fetch;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod planned;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unlinked;
