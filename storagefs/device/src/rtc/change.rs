//! A command over a transaction: resolve, reserve, hold, run, commit, as `dataplane::with_set` does, without a wait
//! anywhere. On media that a processor writes to directly; elsewhere a change waits for the medium, sooner or later,
//! but for bytes of one file that go into the record.

pub use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use weldfs_ciscops::{Command, Durability, Errno, Op, OpenFlags, Outcome, Paths, interp};
use weldfs_journal::{Lsn, RecordHead};

use super::super::core::Core;
use super::super::done::{Done, count};
use super::super::grants::kept;
use super::super::held::wanted;
use super::super::opcx::{filled, volatile};
use super::super::opening::{described, installed};
use super::super::session::QueueState;
use super::super::wishes::{Asked, changes_names, leaves_garbage, wants_durable};
use weldfs_fs::straight::{self, Changed};
use weldfs_fs::strides::Strides;
use weldfs_fs::{Finished, HandleTable, InodeSet, SLICE_BYTES, Slicer, Txn, payload_bytes, plan_need, resolve_set};

/// So often a command may be asked whether it gives way before it is given up: at the ends of its micro-ops (those of a
/// program do not count), and after strides of long work.
const TURNS_MAX: u32 = 12;

/// Gives a command up that takes longer than a short one does.
struct Brief {
    turns: AtomicU32,
    most: u32,
}

impl Brief {
    fn of(paths: &Paths) -> Brief {
        let micros = paths.program.as_ref().map_or(0, |p| p.micros().len());
        Brief { turns: AtomicU32::new(0), most: TURNS_MAX + micros as u32 }
    }
}

impl Slicer for Brief {
    fn due(&self) -> bool {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns + 1, Ordering::Relaxed);
        turns >= self.most
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn micro(&self, _index: u16) {}
}

/// What a future comes to that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Whether changes are not over at once here: a virtual file may be made of what changes, or they are held back.
pub(super) fn at_leisure(core: &Core) -> bool {
    core.virtuals.any() || core.pace.is_pressed()
}

/// Runs a command; `None` where it would have to wait.
pub(super) fn run(core: &Core, queue: &QueueState, cmd: &Command, paths: &Paths) -> Option<Done> {
    let (store, session) = (&*core.store, &*queue.session);
    if at_leisure(core) {
        return None;
    }
    if let Some(done) = content(core, queue, cmd) {
        return Some(done);
    }
    if !store.writes_directly() {
        return None;
    }
    let payload = payload_bytes(cmd, paths);
    if payload > SLICE_BYTES {
        return None;
    }
    let asked = Asked { core, session, cmd, paths };
    if changes_names(asked) && !core.sets.names().is_open() {
        return None;
    }
    let set = resolve_set(store, cmd, paths, session, &[], &mut Strides::default()).ok()?;
    if let Some(done) = create(asked, queue, &set) {
        return Some(done);
    }
    let need = plan_need(store, cmd, paths, session, &set).ok()?;
    if need.is_some() && store.journal().must_wait().is_some() {
        return None;
    }
    let plan = need.map(|need| store.begin(&need)).transpose().ok()?.map(|plan| plan.with_life(cmd.hints.life));
    let members = wanted(&cmd.op, session, &set);
    let held = core.sets.hold_free(&members)?;
    if core.leases.hold_up(queue, cmd, &members) {
        return None;
    }
    let brief = Brief::of(paths);
    let mut txn = Txn::new(store, session, &set, plan, payload, core.clock.wall());
    txn.about(&paths.a);
    txn.in_steps(cmd, paths, None, false);
    txn.in_slices(&brief);
    let outcome = at_once(interp::run(cmd, paths, &queue.pool, &mut txn))?;
    if txn.start_over(&outcome).is_some() {
        return None;
    }
    let mut finished = at_once(txn.finish(&outcome))?.ok()?;
    // A virtual file has more to open, and several records are committed one by one.
    if finished.micro.is_some() || finished.opened.is_some_and(|o| o.is_virtual) {
        return given_up(queue, &finished);
    }
    let mut done = match commit(asked, &mut finished) {
        Some(sync) => {
            drop(held);
            finished.plan = None;
            let last = sync.map_or(Ok(()), |end| durable_now(core, end));
            let mut outcome = outcome;
            outcome.result2 |= kept(core, queue, (cmd, &paths.a), &mut finished);
            let outcome = last.map_or_else(Outcome::failed, |()| outcome);
            count(cmd, paths, outcome, &finished.counters)
        }
        None => return given_up(queue, &finished),
    };
    done.bytes_in += (paths.a.len() + paths.b.len()) as u64;
    Some(done)
}

/// A command that changes one file, whose handle it has, and needs no transaction for that.
fn content(core: &Core, queue: &QueueState, cmd: &Command) -> Option<Done> {
    let (store, session) = (&*core.store, &*queue.session);
    let (h, _) = straight::concerned(&cmd.op)?;
    if !straight::waits_for_nothing(store, &cmd.op) {
        return None;
    }
    let file = session.handle(h).ok()?;
    // A flush of a disk is waited for.
    if (!store.writes_directly() && durably(core, cmd, file.flags)) || store.journal().must_wait().is_some() {
        return None;
    }
    let held = core.sets.hold_free_one(file.ino.0)?;
    if !cmd.is_posted() && core.leases.in_the_way(queue, file.ino.0) {
        return None;
    }
    let changed = straight::plan(store, session, &queue.pool, cmd, file, core.clock.wall())?;
    conclude(core, queue, (cmd, &Paths::default()), file.flags, changed, held)
}

/// The same of one that creates its file.
fn create(asked: Asked<'_>, queue: &QueueState, set: &InodeSet) -> Option<Done> {
    let Asked { core, session, cmd, paths } = asked;
    let Op::OpenWriteClose { flags, .. } = cmd.op else { return None };
    if set.file().is_some() || core.store.journal().must_wait().is_some() {
        return None;
    }
    let members = wanted(&cmd.op, session, set);
    let held = core.sets.hold_free(&members)?;
    if core.leases.hold_up(queue, cmd, &members) {
        return None;
    }
    let now = core.clock.wall();
    let changed = straight::plan_create(&core.store, session, &queue.pool, (cmd, &paths.a), set, now)?;
    let mut done = conclude(core, queue, (cmd, paths), flags, changed, held)?;
    if leaves_garbage(asked) {
        core.note_reclaim();
    }
    done.bytes_in += paths.a.len() as u64;
    Some(done)
}

/// Whether a change is durable before its answer.
pub(super) fn durably(core: &Core, cmd: &Command, flags: OpenFlags) -> bool {
    match cmd.durability {
        Durability::Durable => true,
        Durability::Volatile => false,
        Durability::Default => core.durable_default || flags.intersects(OpenFlags::SYNC | OpenFlags::DSYNC),
    }
}

/// Commits a change, gives back what was held for it, and makes it durable if that is asked for. `flags`: of the
/// handle, or what the file was opened with.
pub(super) fn conclude(
    core: &Core,
    queue: &QueueState,
    (cmd, paths): (&Command, &Paths),
    flags: OpenFlags,
    mut changed: Changed<'_>,
    held: impl Sized,
) -> Option<Done> {
    let appended = core.store.commit(&mut changed.plan, RecordHead::op()).ok()?;
    filled(core, &appended);
    if let Some((h, offset)) = changed.cursor {
        // The handle was closed meanwhile: then nothing can ask for the offset either.
        let _ = queue.session.handles.with(h, |d| d.set_offset(offset));
    }
    drop(held);
    let Changed { plan, outcome, counters, .. } = changed;
    drop(plan);
    let sync = durably(core, cmd, flags) || volatile(core, appended.end).is_err();
    let last = if sync { durable_now(core, appended.end) } else { Ok(()) };
    let outcome = last.map_or_else(Outcome::failed, |()| outcome);
    Some(count(cmd, paths, outcome, &counters))
}

/// Nothing of it is left.
fn given_up(queue: &QueueState, finished: &Finished<'_>) -> Option<Done> {
    if let Some(o) = finished.opened {
        queue.session.release_handle(o.handle);
    }
    None
}

/// Commits what the transaction planned, and makes valid what it opened and moved. What is to be durable before the
/// answer; `None`: nothing was committed.
fn commit(asked: Asked<'_>, f: &mut Finished<'_>) -> Option<Option<Lsn>> {
    let Asked { core, session, .. } = asked;
    let description = described(core, session, f).ok()?;
    let mut sync = None;
    if let Some(plan) = f.plan.as_mut() {
        let appended = core.store.commit(plan, RecordHead::op()).ok()?;
        if wants_durable(asked) || volatile(core, appended.end).is_err() {
            sync = Some(appended.end);
        }
        filled(core, &appended);
        if leaves_garbage(asked) {
            core.note_reclaim();
        }
    }
    if let Some((o, description)) = description {
        installed(core, session, &o, description);
    }
    if let Some((h, offset)) = f.cursor {
        // The handle was closed meanwhile: then nothing can ask for the offset either.
        let _ = session.handles.with(h, |d| d.set_offset(offset));
    }
    Some(sync)
}

/// Makes everything below `end` durable, on media where that is a few instructions. EIO when the medium is poisoned.
pub(super) fn durable_now(core: &Core, end: Lsn) -> Result<(), Errno> {
    let journal = core.store.journal();
    if journal.watermark() >= end {
        return Ok(());
    }
    // The maintenance thread may be at it: it is over in a moment.
    journal.wait(end).map_err(|_| Errno::IO)
}
