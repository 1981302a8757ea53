//! Planning and committing: reserve, allocate, collect effects, then append and apply in one critical section with
//! respect to the checkpoint cut.

use super::Store;
use super::ledger::Promise;
use super::tails::Tail;
use crate::alloc::Run;
use crate::effect::{self, Effect, Effects};
use crate::error::{FsError, FsResult, Wait};
use crate::outcomes::{self, OutcomeRec};
use crate::overlay::apply::Tally;
use crate::overlay::{SHARDS, Shard};
use crate::scratch;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use weldfs_ciscops::{Errno, InodeNo, Life};
use weldfs_journal::canary::{Canary, planted};
use weldfs_journal::{AlignedBuf, Appended, BlockNo, DataWrite, Lsn, RecordHead, Reservation};
use weldfs_locks::RwLockWriteGuard;

/// Blocks in whole pages left for the metadata of what may not fail.
const ZONE_SLACK: i64 = 64;

/// What an operation may use at most; [`Store::begin`] reserves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes of encoded effects (see `effect::encoded_len_max`).
    pub log_bytes: usize,
    /// Blocks by which files may grow, patched holes included.
    pub new_blocks: u32,
    /// Blocks that replace (or patch) blocks already held.
    pub overwrite_blocks: u32,
    /// Keys it may touch: inodes, windows, entries.
    pub meta_keys: u32,
    /// Whether it may fail with ENOSPC. Unlink, truncate-down and overwrites may not: they wait for a checkpoint.
    pub may_fail: bool,
    /// Payload bytes of further records, for a transaction of several; `log_bytes` is then the first one's.
    pub more_records: [usize; MORE_RECORDS],
    /// Further records of `SMALL_RECORD` bytes: the end of a transaction, and commits that adopt what its begin
    /// record holds.
    pub small_records: usize,
}

/// Payload bytes of a short record.
pub const SMALL_RECORD: usize = 64;
/// Records of the largest transaction of a fixed command beside its first: two commits and the end.
pub(crate) const MORE_RECORDS: usize = 3;

impl Need {
    /// What the outcome of a detectable command takes in addition to its own effects.
    pub const OUTCOME: Need = Need {
        log_bytes: 2 + OutcomeRec::BYTES_MAX,
        new_blocks: 0,
        overwrite_blocks: 0,
        // Its page, its client, and a bound.
        meta_keys: outcomes::PAGE_KEYS as u32 + 2,
        may_fail: false,
        more_records: [0; MORE_RECORDS],
        small_records: 0,
    };

    /// Whether all of it is one record.
    fn is_one_record(&self) -> bool {
        self.small_records == 0 && self.more_records == [0; MORE_RECORDS]
    }

    /// Bytes of the begin record, if this is a transaction of several records; else 0.
    pub(crate) fn begin_bytes(&self) -> usize {
        if self.is_one_record() { 0 } else { self.log_bytes }
    }

    /// The same with room for the outcome.
    pub fn with_outcome(self) -> Need {
        let o = Need::OUTCOME;
        Need { log_bytes: self.log_bytes + o.log_bytes, meta_keys: self.meta_keys + o.meta_keys, ..self }
    }
}

/// An operation's reservations and the effects it has collected. Dropped without [`Store::commit`], it leaves nothing.
pub struct Plan<'s> {
    pub(super) store: &'s Store,
    effects: Effects,
    /// Blocks taken that no record names yet.
    pub(super) runs: SmallVec<[Run; 2]>,
    /// How long what it writes is expected to stay.
    life: Life,
    pub(super) data: Vec<DataWrite>,
    pub(super) log: Option<Reservation<'s>>,
    log_bytes: usize,
    pub(super) promise: Promise,
    pub(super) taken: i64,
    /// Of them, named by a record.
    pub(super) named: i64,
    /// Last blocks of files, to be kept when the record that maps them is there.
    tails: SmallVec<[Tail; 1]>,
    /// Runs, data writes and last blocks of finished micro-ops.
    sealed: (usize, usize, usize),
}

impl<'s> Plan<'s> {
    /// Takes up to `n` neighbouring blocks (at least one) of those reserved. `near`: the file, so that its blocks lie
    /// together.
    ///
    /// # Errors
    /// ENOSPC when more is asked for than was reserved; `Miss` when a group's bitmap is cold.
    pub fn alloc(&mut self, n: u32, near: InodeNo) -> FsResult<Run> {
        let left = self.promise.blocks - self.taken;
        if left <= 0 {
            return Err(FsError::Errno(Errno::NOSPC));
        }
        let run = self.store.alloc.take(n.min(left as u32), near.0, self.life)?;
        self.taken += i64::from(run.count);
        self.runs.push(run);
        Ok(run)
    }

    /// Says how long what it writes is expected to stay: where its blocks are taken from.
    pub fn with_life(mut self, life: Life) -> Plan<'s> {
        self.life = life;
        self
    }

    /// Adds effects, in order.
    pub fn append(&mut self, mut more: Effects) {
        // Mostly they are all there are: then their list is the plan's.
        match self.effects.is_empty() {
            true => self.effects = more,
            false => self.effects.append(&mut more),
        }
    }

    /// Adds an effect.
    pub fn push(&mut self, e: Effect) {
        self.effects.push(e);
    }

    /// The effects so far.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Ends the plan: its effects, and the room that it kept for their record. For plans that took no blocks.
    pub fn into_effects(mut self) -> (Effects, Option<Reservation<'s>>) {
        (std::mem::take(&mut self.effects), self.log.take())
    }

    /// Fresh data for `addr..` on a medium that is not byte-addressable: written with the record, served from the
    /// block cache until then. A whole number of blocks.
    pub fn data(&mut self, addr: BlockNo, buf: Arc<AlignedBuf>) {
        self.data.push(DataWrite { off: addr.0 * crate::limits::BLOCK as u64, buf });
    }

    /// What the last block of a file will hold, once it is mapped to the block of the medium that `tail` names.
    pub fn tail(&mut self, tail: Tail) {
        self.tails.push(tail);
    }

    /// A micro-op went well: what was taken so far stays taken, whatever becomes of the next ones.
    pub fn seal(&mut self) {
        self.sealed = (self.runs.len(), self.data.len(), self.tails.len());
    }

    /// Gives back what was taken since the last `seal`.
    pub fn unseal(&mut self) {
        let (runs, data, tails) = self.sealed;
        self.tails.truncate(tails);
        for run in self.runs.drain(runs..) {
            self.store.alloc.give_back(run);
            self.taken -= i64::from(run.count);
        }
        self.data.truncate(data);
    }

    /// Forgets all effects and gives back all blocks; what was reserved stays reserved.
    pub fn clear(&mut self) {
        self.effects.clear();
        self.sealed = (0, 0, 0);
        self.unseal();
    }

    /// The store it plans for.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    /// Reserves more, on top of what it has.
    ///
    /// # Errors
    /// As [`Store::begin`]; the plan stays as it was.
    pub fn extend(&mut self, need: &Need) -> FsResult<()> {
        let ledger = &self.store.ledger;
        let more = ledger.promise(need, ledger.growth_for(need))?;
        if need.log_bytes > 0 {
            match self.store.reserve_log(&[self.log_bytes + need.log_bytes]) {
                Ok(r) => (self.log, self.log_bytes) = (Some(r), self.log_bytes + need.log_bytes),
                Err(e) => {
                    self.store.ledger.settle(more, 0);
                    return Err(e);
                }
            }
        }
        self.promise.blocks += more.blocks;
        self.promise.growing += more.growing;
        self.promise.txn.0 += more.txn.0;
        self.promise.txn.1 += more.txn.1;
        Ok(())
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        for run in &self.runs {
            self.store.alloc.give_back(*run);
        }
        self.store.ledger.settle(self.promise, self.named);
    }
}

/// Locks shards one after the other, each kept while consecutive effects stay in it.
pub(super) struct Walk<'s> {
    store: &'s Store,
    held: Option<(u64, RwLockWriteGuard<'s, Shard>)>,
}

impl<'s> Walk<'s> {
    fn shard(&mut self, ino: InodeNo) -> &mut Shard {
        let at = ino.0 % SHARDS as u64;
        if self.held.as_ref().is_none_or(|(s, _)| *s != at) {
            self.held = None;
        }
        let store = self.store;
        &mut self.held.get_or_insert_with(|| (at, store.overlay.shard(ino.0).write())).1
    }
}

/// See [`Store::preparing`].
pub(super) struct Preparing<'s> {
    walk: Walk<'s>,
    /// Inodes that the effects so far create: nothing lies below these.
    created: SmallVec<[InodeNo; 2]>,
    /// The inode whose content changed last; 0 for none. Its record lies in the active layer by now.
    written: InodeNo,
}

impl Preparing<'_> {
    pub(super) fn one(&mut self, e: &Effect, tally: &mut Tally) -> FsResult<()> {
        match e {
            Effect::PutInode(rec) => {
                self.created.push(rec.ino);
                Ok(())
            }
            e if self.created.contains(&e.ino()) => Ok(()),
            Effect::SetAttr(d) if d.ino == self.written => Ok(()),
            e => {
                self.walk.shard(e.ino()).prepare(e, tally)?;
                if let Effect::Map { ino, .. } | Effect::Patch { ino, .. } = e {
                    self.written = *ino;
                }
                Ok(())
            }
        }
    }
}

impl Store {
    /// Starts an operation: reserves log, space and metadata for at most `need`. A started operation always fits.
    ///
    /// # Errors
    /// `Wait` when a checkpoint (or reclaim) has to come first: nothing is held, await it and begin again. ENOSPC,
    /// only where `need.may_fail`. EROFS on a read-only mount and after unmount.
    pub fn begin(&self, need: &Need) -> FsResult<Plan<'_>> {
        if self.read_only || self.closed.load(Relaxed) {
            return Err(FsError::Errno(Errno::ROFS));
        }
        self.check_poison()?;
        if self.overlay_full() {
            return Err(FsError::Wait(Wait::Checkpoint));
        }
        let growth = self.ledger.growth_for(need);
        let promise = match self.zone_may_grow(need, growth).and_then(|()| self.ledger.promise(need, growth)) {
            Err(FsError::Errno(Errno::NOSPC)) if self.reclaim_pending() => {
                return Err(FsError::Wait(Wait::Reclaim));
            }
            other => other?,
        };
        let mut records: SmallVec<[usize; MORE_RECORDS + 1]> = SmallVec::new();
        records.push(need.log_bytes);
        if !need.is_one_record() {
            records.extend(need.more_records.into_iter().filter(|n| *n > 0));
            records.extend(std::iter::repeat_n(SMALL_RECORD, need.small_records));
        }
        let log = match self.reserve_log(&records) {
            Ok(r) => r,
            Err(e) => {
                self.ledger.settle(promise, 0);
                return Err(e);
            }
        };
        Ok(Plan {
            store: self,
            effects: Effects::new(),
            runs: SmallVec::new(),
            life: Life::Unknown,
            data: Vec::new(),
            log: Some(log),
            log_bytes: need.log_bytes,
            promise,
            taken: 0,
            named: 0,
            tails: SmallVec::new(),
            sealed: (0, 0, 0),
        })
    }

    /// Metadata lies in pages of several blocks: free blocks that lie alone are none for it, and without it no
    /// checkpoint ends.
    ///
    /// # Errors
    /// `Wait` for a checkpoint, which may need less than was estimated and counts anew, or for other plans; ENOSPC.
    fn zone_may_grow(&self, need: &Need, growth: i64) -> FsResult<()> {
        let l = &self.ledger;
        if !need.may_fail || growth == 0 {
            return Ok(());
        }
        let mine = i64::from(need.new_blocks) + i64::from(need.overwrite_blocks);
        let others = l.inflight.load(Relaxed);
        let left = self.alloc.whole() - growth - mine - l.patched.load(Relaxed) - ZONE_SLACK;
        if others <= left {
            return Ok(());
        }
        let dirty = l.keys.load(Relaxed) > 0 || l.frozen_bytes.load(Relaxed) > 0;
        Err(match (others > 0 && left >= 0, dirty) {
            (true, _) => FsError::Wait(Wait::Plans),
            (false, true) => FsError::Wait(Wait::Checkpoint),
            (false, false) => FsError::Errno(Errno::NOSPC),
        })
    }

    fn reserve_log(&self, records: &[usize]) -> FsResult<Reservation<'_>> {
        let journal = self.journal();
        journal.reserve_records(records).map_err(|full| match full.bytes > journal.reservable_bytes_max() {
            // No checkpoint makes room for what is longer than the log.
            true => FsError::Errno(Errno::TOOBIG),
            false => FsError::Wait(Wait::Checkpoint),
        })
    }

    /// Commits the plan's effects as one record and applies them: from here on every client sees them. Says where the
    /// record stands; durability is the journal's business (`commit_through`, `subscribe`, `wait`).
    ///
    /// # Errors
    /// `Miss`: nothing happened, fetch and commit the same plan again. Anything else: nothing happened, drop the plan.
    /// E2BIG for more effects than a record may have.
    pub fn commit(&self, plan: &mut Plan<'_>, head: RecordHead) -> FsResult<Appended> {
        if planted(Canary::MacroVisibleEarly) && plan.effects.len() > 1 {
            self.commit_alone(plan.effects.drain(..1).collect(), head)?;
        }
        effect::bounded(&plan.effects)?;
        let payload = effect::encode_over(scratch::list(), &plan.effects);
        let mut tally = Tally::default();
        let gate = self.gate.read();
        if self.closed.load(Relaxed) {
            return Err(FsError::Errno(Errno::ROFS));
        }
        let mut preparing = self.preparing();
        let prepared = plan.effects.iter().try_for_each(|e| preparing.one(e, &mut tally));
        if let Err(e) = prepared {
            self.ledger.book(&tally);
            return Err(e);
        }
        // What was prepared last stays locked: mostly it is all there is, and applied next.
        let walk = preparing.walk;
        let data = std::mem::take(&mut plan.data);
        let pins = data.clone();
        let appended = self.journal().append(head, &[&payload], data, plan.log.take());
        scratch::keep(payload);
        let appended = match appended {
            Ok(a) => a,
            Err(e) => {
                self.ledger.book(&tally);
                return Err(e.into());
            }
        };
        self.pin(&pins, appended.end);
        let effects = std::mem::take(&mut plan.effects);
        let applied = self.apply_along(walk, appended.lsn.0, effects, &mut tally);
        self.ledger.book(&tally);
        drop(gate);
        plan.runs.clear();
        let promise = std::mem::take(&mut plan.promise);
        self.ledger.settle(promise, plan.taken);
        if let Err(e) = applied {
            // Appended but not applied: memory and log disagree. Only a remount can tell the truth.
            self.medium.poison();
            return Err(e);
        }
        self.keep_tails(plan);
        Ok(appended)
    }

    /// The plan's records are there, and its caller still holds the files: the next append finds their last blocks.
    pub(super) fn keep_tails(&self, plan: &mut Plan<'_>) {
        for tail in plan.tails.drain(..) {
            let cut = self.overlay.shard(tail.ino).read().lower.base.cut;
            self.tails.put(tail, cut);
        }
    }

    /// Serves data that goes to the medium with its record from memory until it is there.
    pub(super) fn pin(&self, data: &[DataWrite], end: Lsn) {
        if !data.is_empty() {
            self.cache.unpin(self.journal().watermark());
            self.cache.pin(data, end);
        }
    }

    /// A planted bug: effects get a record of their own that belongs to nothing.
    #[cold]
    fn commit_alone(&self, effects: Effects, head: RecordHead) -> FsResult<()> {
        let mut tally = Tally::default();
        let _gate = self.gate.read();
        self.prepare(&effects, &mut tally)?;
        let appended = self.journal().append(head, &[&effect::encode(&effects)], Vec::new(), None)?;
        let applied = self.apply(appended.lsn.0, effects, &mut tally);
        self.ledger.book(&tally);
        applied
    }

    pub(super) fn prepare(&self, effects: &[Effect], tally: &mut Tally) -> FsResult<()> {
        let mut preparing = self.preparing();
        effects.iter().try_for_each(|e| preparing.one(e, tally))
    }

    /// Reads what applying effects needs, one after the other, as they will be applied.
    pub(super) fn preparing(&self) -> Preparing<'_> {
        Preparing { walk: Walk { store: self, held: None }, created: SmallVec::new(), written: InodeNo(0) }
    }

    /// Applies a record's effects to the active layers. Run time and replay.
    pub(crate) fn apply(&self, lsn: u64, effects: Effects, tally: &mut Tally) -> FsResult<()> {
        self.apply_along(Walk { store: self, held: None }, lsn, effects, tally)
    }

    fn apply_along(&self, walk: Walk<'_>, lsn: u64, effects: Effects, tally: &mut Tally) -> FsResult<()> {
        // Before a watch is looked for, in the one order of what is sequentially consistent: see `watches` of
        // weldfs-device.
        self.applying.fetch_add(1, SeqCst);
        if let Some(changes) = self.changes.get() {
            changes.change(&effects);
        }
        let applied = self.apply_all(walk, lsn, effects, tally);
        self.applied.fetch_add(1, Release);
        applied
    }

    fn apply_all(&self, mut walk: Walk<'_>, lsn: u64, mut effects: Effects, tally: &mut Tally) -> FsResult<()> {
        // Reclaim is told of what it may drain when the whole record is in: it holds no inode set, so its own record
        // would otherwise be applied between the effects of this one.
        let mut news: SmallVec<[(u64, u64, bool); 2]> = SmallVec::new();
        for (i, e) in effects.iter_mut().enumerate() {
            let stamp = lsn + i as u64;
            match e {
                Effect::Outcome(rec) => {
                    self.outcomes.record(stamp, rec, tally);
                    continue;
                }
                Effect::PutInode(rec) => {
                    self.ledger.next_ino.fetch_max(rec.ino.0 + 1, Relaxed);
                }
                Effect::Orphan { ino } => news.push((ino.0, 0, true)),
                Effect::Cut { ino, .. } => news.push((ino.0, stamp, true)),
                Effect::Adopt { ino } => news.push((ino.0, 0, false)),
                Effect::ReclaimDone { ino, cut } => news.push((ino.0, *cut, false)),
                _ => {}
            }
            if planted(Canary::OrphanForgotten) && matches!(e, Effect::Orphan { .. }) {
                continue;
            }
            let ino = e.ino();
            let shard = walk.shard(ino);
            if !shard.apply_content(stamp, e, tally)? {
                shard.apply(stamp, std::mem::replace(e, Effect::Adopt { ino }), tally)?;
            }
            if planted(Canary::BlockReusedEarly) {
                for (addr, count) in shard.active.dead.drain(..) {
                    self.alloc.give_back_first(Run { addr: BlockNo(addr), count: count as u32 });
                }
            }
        }
        drop(walk);
        for (ino, cut, pending) in news {
            if pending { self.reclaim.add(ino, cut) } else { self.reclaim.remove(ino, cut) }
        }
        Ok(())
    }

    /// Changes whenever a record has been applied, before its command gives its inodes back. Who reads something and
    /// then, holding the inodes that it is about, finds the generation as it was before, would read the same again.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.applied.load(Acquire)
    }

    /// The generation, if no record is being applied just now. What is read from here on is of one moment if
    /// [`Store::is_still`] says so afterwards: the readers' side of a sequence lock, whose writers are records.
    #[inline]
    pub fn quiescent(&self) -> Option<u64> {
        let generation = self.applied.load(Acquire);
        (self.applying.load(Acquire) == generation).then_some(generation)
    }

    /// Whether no record began to be applied since that generation. Everything is read under the lock of a shard, in
    /// which a record changes something, and which it lets go of, only after it has said that it begins: whoever saw
    /// anything of one sees here that it began.
    #[inline]
    pub fn is_still(&self, generation: u64) -> bool {
        fence(Acquire);
        self.applying.load(Relaxed) == generation
    }
}
