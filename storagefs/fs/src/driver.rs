//! A device of one thread and no queues: takes a command, does what the device does with it, gives the outcome.
//! For tests, fsck's usability check and tools that run while nothing else uses the store.

use super::resolve::ROOT;
use super::straight::{self, Changed};
use super::strides::Strides;
use super::txn::OpCounters;
use super::{
    Computing, Cred, Fetching, FileRef, Finished, HandleTable, Hold, InodeSet, Insisted, OpenFile, SessionView, Slicer,
    Staged, StagedTable, StagedWrite, Txn, payload_bytes, plan_need, resolve_set,
};
use crate::keys::Keys;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use weldfs_ciscops::interp::{self, Outcome};
use weldfs_ciscops::program::CRC32C;
use weldfs_ciscops::{
    Access, At, ChecksumState, Command, Cqe, Durability, Errno, Handle, Kernel, Op, OpenFlags, Paths, Placement,
    PoolRange, RawCommand, SessionLimits, SharedRegion, Sink, Sqe, Taken, Target, TxnMode, validate,
};
use weldfs_fpga::card::Card;
use weldfs_fpga::config::{CardConfig, Reconfigure, Want, WhenFull};
use weldfs_functions::cipher::Key;
use weldfs_journal::{Lsn, RecordHead};
use weldfs_locks::Mutex;
use weldfs_store::effect::Effect;
use weldfs_store::error::{FsError, FsResult, Miss, Wait};
use weldfs_store::micro::Detect;
use weldfs_store::outcomes::{Identity, OutcomeRec};
use weldfs_store::{Need, Plan, Store};
use zerocopy::IntoBytes;

/// Times a command may find its inode set changed, or its resources short, before the driver gives up.
const TRIES_MAX: u32 = 64;

#[derive(Default)]
struct Slot {
    generation: u32,
    file: Option<OpenFile>,
    reserved: bool,
}

struct DirectSession {
    store: Arc<Store>,
    cred: Cred,
    prefix: Option<Vec<u8>>,
    slots: Mutex<Vec<Slot>>,
    txns: Mutex<StagedTable>,
    keys: Keys,
}

impl HandleTable for DirectSession {
    fn handle(&self, h: Handle) -> Result<OpenFile, Errno> {
        let slots = self.slots.lock();
        let slot = slots.get(h.index as usize).filter(|s| s.generation == h.generation);
        slot.and_then(|s| s.file).ok_or(Errno::BADF)
    }

    fn reserve_handle(&self) -> Result<Handle, Errno> {
        let mut slots = self.slots.lock();
        // Index 0 is the root's.
        let free = (1..slots.len()).find(|i| slots[*i].file.is_none() && !slots[*i].reserved);
        let index = free.unwrap_or(slots.len().max(1));
        let len = slots.len().max(index + 1);
        slots.resize_with(len, Slot::default);
        slots[index].reserved = true;
        slots[index].generation += 1;
        Ok(Handle { index: index as u32, generation: slots[index].generation })
    }

    fn release_handle(&self, h: Handle) {
        self.slots.lock()[h.index as usize].reserved = false;
    }
}

impl SessionView for DirectSession {
    fn cred(&self) -> &Cred {
        &self.cred
    }

    fn prefix(&self) -> Option<&[u8]> {
        self.prefix.as_deref()
    }

    fn staged(&self, txn: Handle) -> Result<Arc<Staged>, Errno> {
        self.txns.lock().committing(txn)
    }

    fn fetch(&self, miss: Miss) -> Fetching<'_> {
        Box::pin(std::future::ready(self.store.fetch(&miss)))
    }

    fn key(&self, name: u64) -> Result<Arc<Key>, Errno> {
        self.keys.get(name)
    }
}

/// Runs commands one at a time over a store. Not for use beside a device.
pub struct Direct {
    session: DirectSession,
    pool: SharedRegion,
    /// Wall time that the next command sees: seconds and nanoseconds.
    pub now: (i64, u32),
    counters: OpCounters,
    last_end: Option<Lsn>,
    /// What a program turned out to need beside its set.
    learned: InodeSet,
    /// What it would have changed though its set withheld it.
    insist: Insisted,
    /// The detectable command that runs and has not left its outcome.
    detect: Option<Identity>,
    slots: Slots,
}

/// What runs kernels for a driver: a card of its own, without the time that loading takes, once one is needed.
#[derive(Default)]
struct Slots(OnceLock<Arc<Card>>);

impl Slicer for Slots {
    fn due(&self) -> bool {
        false
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn micro(&self, _index: u16) {}

    fn kernel<'k>(&'k self, kernel: Kernel<'k>, input: Vec<u8>, out_max: usize) -> Computing<'k> {
        Box::pin(async move {
            let make = || {
                let config =
                    CardConfig { reconfigure: Reconfigure::NONE, inline_bytes: 1 << 20, ..CardConfig::default() };
                crate::card::make(config).map_err(|_| Errno::IO)
            };
            let card = match self.0.get() {
                Some(card) => card,
                None => {
                    let made = make()?;
                    self.0.get_or_init(|| made)
                }
            };
            let want = Want {
                kernel: String::from_utf8_lossy(kernel.name).into_owned(),
                params: kernel.params.to_vec(),
                tenant: 0,
                weight: 1,
                when_full: WhenFull::Wait,
                keeps: false,
            };
            let session = card.open(want).await.map_err(|e| e.errno())?;
            session.run(input, out_max).await.map(|ran| ran.output).map_err(|e| e.errno())
        })
    }
}

impl Direct {
    /// Over a mounted store, as the superuser, with a pool of `pool_bytes`.
    pub fn new(store: Arc<Store>, pool_bytes: usize) -> Direct {
        let (slots, txns, keys) = Default::default();
        let session = DirectSession { store, cred: Cred::root(), prefix: None, slots, txns, keys };
        let pool = SharedRegion::heap(pool_bytes);
        Direct {
            session,
            pool,
            now: (0, 0),
            counters: OpCounters::default(),
            last_end: None,
            learned: InodeSet::new(),
            insist: Insisted::new(),
            detect: None,
            slots: Slots::default(),
        }
    }

    /// The session whose commands it runs.
    #[cfg(test)]
    pub(super) fn view(&self) -> &dyn SessionView {
        &self.session
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.session.store
    }

    /// The pool that commands' ranges point into.
    pub fn pool(&self) -> &SharedRegion {
        &self.pool
    }

    /// Acts as another user from now on; open handles stay.
    pub fn set_cred(&mut self, cred: Cred) {
        self.session.cred = cred;
    }

    /// What absolute symbolic links are relative to.
    pub fn set_prefix(&mut self, prefix: Option<Vec<u8>>) {
        self.session.prefix = prefix;
    }

    /// Costs of all commands so far.
    pub fn counters(&self) -> OpCounters {
        self.counters
    }

    /// End of the last record committed.
    pub fn last_end(&self) -> Option<Lsn> {
        self.last_end
    }

    /// Puts bytes in the pool at `off`.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn put(&self, off: u32, bytes: &[u8]) -> PoolRange {
        let range = PoolRange::new(off, bytes.len() as u32);
        self.pool.slice(range).expect("the bytes fit the pool").copy_from(bytes);
        range
    }

    /// Takes bytes out of the pool.
    ///
    /// # Panics
    /// When the range is outside.
    pub fn take(&self, range: PoolRange) -> Vec<u8> {
        self.pool.slice(range).expect("the range lies in the pool").to_vec()
    }

    /// Closes every handle.
    pub fn close_all(&mut self) {
        for slot in self.session.slots.lock().iter_mut() {
            if let Some(f) = slot.file.take() {
                self.session.store.close_ref(f.ino);
            }
        }
    }

    /// Runs one command as the device would, up to and including its commit. Durability is the caller's business.
    pub fn run(&mut self, op: Op) -> Outcome {
        self.run_with(op, TxnMode::Default, false)
    }

    /// The same in a transaction mode; a durable command's effects are on the medium when this returns.
    pub fn run_with(&mut self, op: Op, mode: TxnMode, durable: bool) -> Outcome {
        let durability = if durable { Durability::Durable } else { Durability::Volatile };
        self.run_command(&Command::new(0, op).with_mode(mode).with_durability(durability))
    }

    /// A detectable command of the superuser's: `id` says whose, and which.
    pub fn run_detectable(&mut self, id: &Identity, op: Op, mode: TxnMode, durable: bool) -> Outcome {
        let (store, before) = (self.session.store.clone(), self.last_end);
        let cmd = Command::new(id.sequence, op).with_mode(mode).detectable();
        self.detect = Some(Identity { uid: self.session.cred.uid, ..*id });
        let mut outcome = self.execute(&cmd);
        if let Some(id) = self.detect.take() {
            outcome = self.leave(&store, OutcomeRec { id, outcome }).err().map_or(outcome, Outcome::failed);
        }
        let end = self.last_end.filter(|end| durable && Some(*end) != before);
        match end.map(|end| store.journal().wait(end)) {
            Some(Err(e)) => Outcome::failed(FsError::from(e).into()),
            _ => outcome,
        }
    }

    /// The outcome of what failed or changed nothing: a record of its own.
    fn leave(&mut self, store: &Store, rec: OutcomeRec) -> Result<(), Errno> {
        let mut plan = loop {
            match store.begin(&Need::OUTCOME) {
                Err(FsError::Wait(w)) => self.wait(w)?,
                other => break other?,
            }
        };
        plan.push(Effect::Outcome(Box::new(rec)));
        self.last_end = Some(store.commit(&mut plan, RecordHead::op())?.end);
        Ok(())
    }

    /// Runs a command with all that it says of itself but its sequence; its effects are on the medium when this
    /// returns, if it is durable.
    pub fn run_command(&mut self, cmd: &Command) -> Outcome {
        let before = self.last_end;
        let outcome = self.execute(cmd);
        let end = self.last_end.filter(|end| cmd.durability == Durability::Durable && Some(*end) != before);
        match end.map(|end| self.session.store.journal().wait(end)) {
            Some(Err(e)) => Outcome::failed(FsError::from(e).into()),
            _ => outcome,
        }
    }

    fn execute(&mut self, cmd: &Command) -> Outcome {
        let limits = SessionLimits { pool_bytes: self.pool.len() as u32 };
        if cmd.commits_in_steps() && validate(&RawCommand(cmd.encode()), &limits).is_err() {
            // No device would run it: a begin record that held it could not be read back.
            return self.execute(&cmd.with_mode(TxnMode::Macro));
        }
        if let Op::Batch { items, results } = cmd.op {
            return self.batch(cmd, items, results);
        }
        match self.session_op(&cmd.op) {
            Some(Ok((a, b))) => return Outcome::ok(a, b),
            Some(Err(e)) => return Outcome::failed(e),
            None => {}
        }
        if let Op::TxnCommit { txn } = cmd.op {
            if let Err(e) = self.session.txns.lock().close(txn) {
                return Outcome::failed(e);
            }
            let outcome = self.transact(cmd);
            let _ = self.session.txns.lock().end(txn);
            return outcome;
        }
        self.transact(cmd)
    }

    /// Every command that runs over a transaction.
    fn transact(&mut self, cmd: &Command) -> Outcome {
        let paths = match Paths::fetch(cmd, &self.pool) {
            Ok(p) => p,
            Err(e) => return Outcome::failed(e),
        };
        let mut tries = 0;
        (self.learned, self.insist) = (InodeSet::new(), Insisted::new());
        loop {
            match self.attempt(cmd, &paths) {
                Ok(outcome) => return outcome,
                Err(FsError::Wait(w)) if tries < TRIES_MAX => {
                    if let Err(e) = self.wait(w) {
                        return Outcome::failed(e.into());
                    }
                }
                Err(FsError::SetChanged) if tries < TRIES_MAX => {}
                Err(e) => {
                    self.session.store.damage().note_error(&e, "command", Some(&paths.a));
                    return Outcome::failed(e.into());
                }
            }
            tries += 1;
        }
    }

    /// Runs the entries of a batch one after the other, each as a command of its own.
    fn batch(&mut self, batch: &Command, items: PoolRange, results: PoolRange) -> Outcome {
        let limits = SessionLimits { pool_bytes: self.pool.len() as u32 };
        let (entry, result) = (Sqe::SIZE as u32, Cqe::SIZE as u32);
        let (count, mut failed) = (items.len / entry, 0);
        for i in 0..count {
            let mut sqe = Sqe::default();
            sqe.as_mut_bytes().copy_from_slice(&self.take(PoolRange::new(items.off + i * entry, entry)));
            let outcome = match validate(&RawCommand(sqe), &limits) {
                Ok(Command { op: Op::Batch { .. }, .. }) => Outcome::failed(Errno::INVAL),
                Ok(cmd) => {
                    let mode = if cmd.mode == TxnMode::Default { batch.mode } else { cmd.mode };
                    self.execute(&cmd.with_mode(mode).with_hints(cmd.hints.within(batch.hints)))
                }
                Err(e) => Outcome::failed(e),
            };
            failed += u64::from(!outcome.is_ok());
            let range = self.pool.slice(PoolRange::new(results.off + i * result, result));
            range
                .expect("the results were found to lie in the pool")
                .copy_from(outcome.to_cqe(sqe.sequence).as_bytes());
        }
        Outcome::ok(count.into(), failed)
    }

    fn wait(&self, w: Wait) -> FsResult<()> {
        let store = &self.session.store;
        match w {
            Wait::Checkpoint => store.checkpoint().map(drop),
            Wait::Drain => store.reclaim_all(),
            Wait::Reclaim => {
                store.reclaim_all()?;
                store.checkpoint().map(drop)
            }
            // Nothing else runs.
            Wait::Plans => Err(Errno::NOSPC.into()),
        }
    }

    /// What the session answers without a transaction.
    fn session_op(&mut self, op: &Op) -> Option<Result<(u64, u64), Errno>> {
        let done = match *op {
            Op::Nop | Op::Syncfs => Ok(()),
            Op::Fsync { h } | Op::Fdatasync { h } => self.session.handle(h).map(drop),
            Op::Close { h } => self.close(h),
            Op::SetFlags { h, flags } => self.set_flags(h, flags),
            Op::Lock { .. } => Err(Errno::NOSYS),
            Op::TxnAbort { txn } => self.session.txns.lock().abort(txn).map(drop),
            Op::TxnBegin => return Some(self.session.txns.lock().begin().map(|txn| (txn.to_wire(), 0))),
            Op::TxnWrite { txn, h, at, src } => return Some(self.collect(txn, h, at, src)),
            Op::SetKey { kind, bytes } => {
                return Some(self.session.keys.set(kind, bytes, &self.pool).map(|key| (key, 0)));
            }
            Op::DropKey { key } => self.session.keys.forget(key),
            Op::ChecksumRange { h, kind: _, offset, len } => return Some(self.checksum(h, offset, len)),
            _ => return None,
        };
        Some(done.map(|()| (0, 0)))
    }

    /// Takes a write into a transaction.
    fn collect(&self, txn: Handle, h: Handle, at: At, src: PoolRange) -> Result<(u64, u64), Errno> {
        let open = self.session.handle(h)?;
        if !open.flags.access().contains(Access::WRITE) {
            return Err(Errno::BADF);
        }
        let at = if open.flags.contains(OpenFlags::APPEND) { At::End } else { at };
        let file = FileRef { ino: open.ino, access: open.flags.access() };
        let write = StagedWrite { file, at, bytes: self.take(src).into(), keep: None };
        let writes = self.session.txns.lock().write(txn, write, false, 0)?;
        Ok((src.len.into(), writes))
    }

    fn checksum(&self, h: Handle, offset: u64, len: u64) -> Result<(u64, u64), Errno> {
        let ino = if h == Handle::ROOT { ROOT } else { self.session.handle(h)?.ino };
        let mut set = InodeSet::new();
        set.add(ino, Hold::Shared);
        let mut txn = Txn::new(&self.session.store, &self.session, &set, None, 0, self.now);
        let mut sum = ChecksumState::new();
        complete(async {
            let file = txn.file(h, Access::READ).await?;
            let n = txn.read(file, offset, len, Sink::Discard, Some(&mut sum)).await?;
            Ok((n, sum.value().into()))
        })
    }

    fn close(&mut self, h: Handle) -> Result<(), Errno> {
        let file = self.session.handle(h)?;
        self.session.slots.lock()[h.index as usize].file = None;
        self.session.store.close_ref(file.ino);
        Ok(())
    }

    fn set_flags(&mut self, h: Handle, flags: OpenFlags) -> Result<(), Errno> {
        self.session.handle(h)?;
        if let Some(f) = &mut self.session.slots.lock()[h.index as usize].file {
            f.flags = (f.flags - OpenFlags::SETTABLE) | (flags & OpenFlags::SETTABLE);
        }
        Ok(())
    }

    fn begin<'s>(
        &self,
        store: &'s Store,
        cmd: &Command,
        paths: &Paths,
        set: &super::InodeSet,
    ) -> FsResult<Option<Plan<'s>>> {
        let need = store.blocking(|| plan_need(store, cmd, paths, &self.session, set))?;
        need.map(|n| store.begin(&n).map(|plan| plan.with_life(cmd.hints.life))).transpose()
    }

    /// The payload of an append that is placed in a slot, summed up there.
    fn summed(&self, cmd: &Command) -> Result<Option<Taken>, Errno> {
        let (Op::AppendChecksumWrite { src, .. }, Placement::Slot { or_core }) = (cmd.op, cmd.placement) else {
            return Ok(None);
        };
        let bytes = self.pool.slice(src)?.to_vec();
        let kernel = Kernel { name: CRC32C, params: &[], or_core };
        let crc = complete(self.slots.kernel(kernel, bytes.clone(), 4))?.try_into().map_err(|_| Errno::IO)?;
        let sum = ChecksumState::resume(u32::from_le_bytes(crc), bytes.len() as u64);
        Ok(Some(Arc::new((bytes, sum))))
    }

    /// A command that needs no transaction, as the device runs it.
    fn straight(&mut self, store: &Store, cmd: &Command, paths: &Paths, set: &InodeSet) -> Option<Outcome> {
        let placed = matches!(cmd.placement, Placement::Slot { .. });
        let waits = !store.writes_directly() && !straight::waits_for_nothing(store, &cmd.op);
        if waits || placed || self.detect.is_some() {
            return None;
        }
        let Changed { mut plan, outcome, counters, cursor } = match straight::concerned(&cmd.op) {
            Some((h, _)) => {
                let file = self.session.handle(h).ok()?;
                straight::plan(store, &self.session, &self.pool, cmd, file, self.now)?
            }
            None => straight::plan_create(store, &self.session, &self.pool, (cmd, &paths.a), set, self.now)?,
        };
        let appended = store.commit(&mut plan, RecordHead::op()).ok()?;
        self.moved(cursor);
        self.counters += counters;
        self.last_end = Some(appended.end);
        Some(outcome)
    }

    /// Sets a description's new offset.
    fn moved(&self, cursor: Option<(Handle, u64)>) {
        if let Some((h, offset)) = cursor
            // (The root has a handle and no slot.)
            && let Some(Slot { file: Some(f), .. }) = self.session.slots.lock().get_mut(h.index as usize)
        {
            f.offset = offset;
        }
    }

    fn attempt(&mut self, cmd: &Command, paths: &Paths) -> FsResult<Outcome> {
        let store = self.session.store.clone();
        let mut strides = Strides::default();
        let mut set = store.blocking(|| resolve_set(&store, cmd, paths, &self.session, &self.insist, &mut strides))?;
        set.join(&self.learned);
        if let Some(outcome) = self.straight(&store, cmd, paths, &set) {
            return Ok(outcome);
        }
        let taken = self.summed(cmd)?;
        let (mut plan, refused) = match self.begin(&store, cmd, paths, &set) {
            // A command that would fail anyway must say why itself: it runs without a plan first.
            Err(FsError::Errno(e)) => (None, Some(e)),
            other => (other?, None),
        };
        let detect = self.detect.map(|id| Detect { client: id.client, queue: id.queue });
        let mut again = false;
        let (mut txn, outcome) = loop {
            let mut txn = Txn::new(&store, &self.session, &set, plan, payload_bytes(cmd, paths), self.now);
            txn.about(&paths.a);
            txn.with_taken(taken.as_ref());
            txn.in_slices(&self.slots);
            txn.in_steps(cmd, paths, detect, again);
            let outcome = complete(interp::run(cmd, paths, &self.pool, &mut txn));
            match txn.start_over(&outcome) {
                Some(cleared) => (plan, again) = (cleared, true),
                None => break (txn, outcome),
            }
        };
        let finished = complete(txn.finish(&outcome));
        if matches!(finished, Err(FsError::SetChanged)) {
            self.insist.extend(txn.exceeded());
            if let (Some(lacked), Some(_)) = (txn.lacked(), &paths.program) {
                self.learned.learn(lacked, &store, self.session.cred());
                self.learned.bounded()?;
            }
        }
        let Finished { plan, opened, micro, cursor, counters } = match (finished, refused) {
            (Err(FsError::SetChanged), Some(e)) => return Ok(Outcome::failed(e)),
            (f, _) => f?,
        };
        let last_end = match plan {
            Some(mut plan) => {
                if let Some(id) = self.detect.filter(|_| micro.is_none()) {
                    plan.push(Effect::Outcome(Box::new(OutcomeRec { id, outcome })));
                }
                let appended = match micro {
                    Some(mut txn) => store
                        .blocking(|| store.commit_micro(&mut plan, &mut txn))
                        .inspect_err(|e| store.abort_micro(&mut plan, &mut txn, e))?,
                    None => store.blocking(|| store.commit(&mut plan, RecordHead::op()))?,
                };
                Some(appended.end)
            }
            None => None,
        };
        if let Some(o) = opened {
            store.open_ref(o.ino);
            let mut slots = self.session.slots.lock();
            let slot = &mut slots[o.handle.index as usize];
            slot.reserved = false;
            slot.file = Some(OpenFile { ino: o.ino, flags: o.flags, offset: 0 });
        }
        self.moved(cursor);
        self.counters += counters;
        self.detect = self.detect.filter(|_| last_end.is_none());
        self.last_end = last_end.or(self.last_end);
        Ok(outcome)
    }
}

/// Drives a future whose waits all block inside.
pub(crate) fn complete<T>(f: impl Future<Output = T>) -> T {
    let mut f = pin!(f);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(v) = f.as_mut().poll(&mut cx) {
            return v;
        }
    }
}

const _: () = assert!(ROOT.0 == 1, "the root's handle and number are fixed");
