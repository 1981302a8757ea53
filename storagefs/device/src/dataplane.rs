//! One command from its tickets to its outcome.
//!
//! The order is the protocol's: resolve names, reserve room, place tickets, wait to head all of them, run the micro-ops
//! over a transaction, commit, give the set back, and only then wait for durability. Every wait is an `.await`; on
//! byte-addressable media an uncontended command passes through in one poll.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use weldfs_ciscops::command::Modify;
use weldfs_ciscops::{At, Command, Errno, Handle, InodeNo, Op, OpenFlags, Outcome, Paths, interp};
use weldfs_journal::{Appended, Lsn, RecordHead};
use weldfs_scheduler::{Mode, Seq, Token};

use super::batch;
use super::board::SlotState;
use super::checksum;
use super::core::Core;
use super::detect;
pub(super) use super::done::{Copied, Done};
use super::held::{head, let_go, let_pass};
use super::leases::{Before, kept, note_failure};
use super::lent::{Lending, Lost, may_lend};
use super::mail::Mail;
use super::memory::held_by;
use super::pace::FULL;
use super::placed;
use super::room::{Rooms, pause};
use super::session::{QueueState, SessionState};
use super::session_ops;
use super::staged;
use super::tries::Tries;
use super::virt;
use super::wishes::{Asked, changes_names, leaves_garbage, wants_durable};
use crate::open::{Description, OpenInode};
use weldfs_fs::strides::Strides;
use weldfs_fs::{Finished, HandleTable, Hold, InodeSet, Insisted, OpCounters, OpenedInfo, Slicer, Txn};
use weldfs_session::clock::now_ns;
use weldfs_session::sets::{ClosedGate, Members, Tickets, members};
use weldfs_store::error::{FsError, FsResult, Wait};
use weldfs_store::{MicroTxn, Plan};

/// What an op future is made of.
pub(super) struct OpCx<'d> {
    pub core: &'d Core,
    /// What it and the core that runs it tell each other, and the slot's number.
    pub slot: &'d SlotState,
    pub at: u32,
    pub queue: Arc<QueueState>,
    pub cmd: Command,
    pub paths: Paths,
    pub place: Place,
    /// Its place among the commands of its ring that got a slot.
    pub position: u64,
    /// The payload, where a slot has summed it up.
    pub taken: placed::TakenOnce,
}

/// Where in its ring a command stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// By itself.
    Alone,
    /// An element of a sequence, with others to come: what follows in the ring does not follow yet.
    Inside,
    /// The last element of one.
    Last,
}

/// A command that failed before it did anything.
pub(super) fn failed(errno: Errno) -> Done {
    Outcome::failed(errno).into()
}

/// Commands that touch nothing but the completion ring.
#[inline]
pub(super) fn immediate(cmd: &Command) -> Option<Done> {
    match cmd.op {
        Op::Nop => Some(Outcome::ok(0, 0).into()),
        _ => None,
    }
}

/// The future of a slot: serves one command after the other.
pub(super) async fn serve(mut mail: Mail<OpCx<'_>, Done>) {
    loop {
        let cx = mail.next().await;
        let done = run(&cx).await;
        drop(cx);
        mail.answer(done);
    }
}

/// The way of every command that is not immediate.
async fn run(cx: &OpCx<'_>) -> Done {
    match cx.cmd.op {
        Op::Batch { .. } => Box::pin(batch::run(cx)).await,
        Op::ReadDirPlus { .. } => Box::pin(batch::read_dir_plus(cx)).await,
        _ => {
            let reading = cx.core.watches.begin_read(cx.core, &cx.queue, &cx.cmd);
            let mut done = perform(cx).await;
            cx.core.watches.end_read(&cx.queue, reading, Some(&mut done.outcome));
            done
        }
    }
}

/// Runs one command that is no sequence: by itself, or an element of one.
pub(super) async fn perform(cx: &OpCx<'_>) -> Done {
    let core = cx.core;
    if let Some(description) = virt::concerned(cx) {
        return Box::pin(virt::run(cx, description)).await;
    }
    let modelled = core.emulated.is_on();
    // On an emulated device payload crosses its memory both ways; else it is staged on its way to a block medium only.
    let bytes = held_by(&cx.cmd, &cx.paths, modelled || !core.store.writes_directly(), modelled);
    // A posted one is small, and those that hold memory may be waiting for it.
    let bytes = if cx.cmd.is_posted() { 0 } else { bytes };
    let _held = match core.memory.reserve(&cx.queue.tenant, cx.at, bytes, &cx.queue.counters.memory_waits).await {
        Ok(held) => held,
        Err(errno) => return failed(errno),
    };
    let mut done = match cx.cmd.op {
        Op::Nop => Outcome::ok(0, 0).into(),
        Op::Syncfs => answer(session_ops::sync(cx, None).await),
        Op::Fsync { h } | Op::Fdatasync { h } => answer(session_ops::sync(cx, Some(h)).await),
        Op::Close { h } => answer(session_ops::close(cx, h).await),
        Op::SetFlags { h, flags } => answer(session_ops::set_flags(cx, h, flags).await),
        Op::Lock { .. } => session_ops::lock(cx).await,
        Op::SetKey { kind, bytes } => answer(session_ops::set_key(cx, kind, bytes)),
        Op::DropKey { key } => answer(session_ops::drop_key(cx, key)),
        Op::VirtParams { h, .. } => answer(cx.description(h).and(Err(Errno::INVAL))),
        Op::ChecksumRange { .. } => answer(Box::pin(checksum::run(cx)).await),
        Op::Outcome { client, queue, sequence, out } => answer(detect::answer(cx, client, queue, sequence, out).await),
        Op::TxnBegin | Op::TxnWrite { .. } | Op::TxnAbort { .. } => staged::run(cx),
        Op::TxnCommit { txn } => Box::pin(staged::commit(cx, txn)).await,
        _ => file_system(cx).await,
    };
    note_failure(&cx.queue, &cx.cmd, &done.outcome);
    cx.queue.counters.posted.add(u64::from(cx.cmd.is_posted()));
    done.bytes_in += (cx.paths.a.len() + cx.paths.b.len()) as u64;
    if let Op::Outcome { out, .. } = cx.cmd.op {
        // What it answers beside the numbers is one block.
        done.copied.metadata += u64::from(done.outcome.is_ok() && !out.is_empty());
    }
    done
}

pub(super) fn answer(result: Result<(u64, u64), Errno>) -> Done {
    match result {
        Ok((a, b)) => Outcome::ok(a, b).into(),
        Err(e) => failed(e),
    }
}

impl OpCx<'_> {
    pub(super) fn session(&self) -> &SessionState {
        &self.queue.session
    }

    pub(super) fn asked(&self) -> Asked<'_> {
        Asked { core: self.core, session: &self.queue.session, cmd: &self.cmd, paths: &self.paths }
    }

    /// Says that the command has its place in all its queues: the next one of this ring may follow.
    pub(super) fn admitted(&self, primary: u64) {
        self.slot.primary.store(primary, Ordering::Relaxed);
        self.admitted_nowhere();
    }

    /// The same of a command that needs no place in any queue.
    pub(super) fn admitted_nowhere(&self) {
        // Nothing of its ring follows a posted one before that is over.
        if self.place != Place::Inside && !self.cmd.is_posted() {
            self.core.admitted(&self.queue, self.at);
        }
    }

    /// Gives way to others if the slice has lasted for a quantum and another should have the core rather.
    pub(super) async fn boundary(&self) {
        if self.due() {
            weldfs_fs::give_way().await;
        }
    }

    /// EINTR when its client is gone and it is not to be gone on with.
    pub(super) fn still(&self) -> Result<(), Errno> {
        if self.is_cancelled() { Err(Errno::INTR) } else { Ok(()) }
    }

    pub(super) fn description(&self, h: Handle) -> Result<Arc<Description>, Errno> {
        self.session().handles.get(h)
    }
}

/// Waits until everything below `end` is durable. EIO when the medium is poisoned.
pub(super) async fn durable(cx: &OpCx<'_>, end: Lsn) -> Result<(), Errno> {
    let journal = cx.core.store.journal();
    if journal.watermark() >= end {
        return Ok(());
    }
    journal.commit_through(end).map_err(|_| Errno::IO)?;
    if journal.watermark() >= end {
        return Ok(());
    }
    cx.queue.counters.durable_waits.add(1);
    poll_fn(|task| {
        if journal.watermark() >= end {
            return Poll::Ready(Ok(()));
        }
        if cx.core.store.medium().is_poisoned() {
            return Poll::Ready(Err(Errno::IO));
        }
        if journal.subscribe(end, task.waker().clone()) { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
    .and_then(|()| if journal.watermark() >= end { Ok(()) } else { Err(Errno::IO) })
}

/// After a volatile change whose record ends at `end`: it is flushed in time, and survives the process where that is
/// asked for.
pub(super) fn volatile(core: &Core, end: Lsn) -> Result<(), Errno> {
    core.maintenance.note_volatile();
    match core.config.hand_over {
        Some(true) => core.store.journal().hand_over(end).map_err(|_| Errno::IO),
        _ => Ok(()),
    }
}

/// Where one attempt at a command ended.
enum Attempt {
    Done(Done),
    /// Names lead to other inodes now; or it lacked one, or may change some that its set withheld.
    SetChanged(Option<(InodeNo, Hold)>, Insisted),
    /// What a program had lent was changed by others.
    Lost,
    /// Room comes only after this.
    Room(Wait),
}

/// Every command that runs over a transaction.
pub(super) async fn file_system(cx: &OpCx<'_>) -> Done {
    if cx.cmd.detectable
        && let Err(e) = detect::admissible(cx)
    {
        return failed(e);
    }
    if placed::is_placed(&cx.cmd)
        && !placed::begin_at_once(cx)
        && let Some(mut done) = Box::pin(placed::begin(cx)).await
    {
        if cx.cmd.detectable {
            Box::pin(detect::leave(cx, &mut done)).await;
        }
        return done;
    }
    let mut done = match with_set(cx).await {
        Ok(done) => done,
        Err(e) => {
            cx.core.store.damage().note_error(&e, "command", Some(&cx.paths.a));
            failed(Errno::from(&e))
        }
    };
    if cx.cmd.detectable && !done.recorded {
        Box::pin(detect::leave(cx, &mut done)).await;
    }
    done
}

/// Resolve, reserve, place, run; again with a new set or after a checkpoint as often as the bounds allow.
async fn with_set(cx: &OpCx<'_>) -> FsResult<Done> {
    let core = cx.core;
    let seq = core.sets.arrive();
    let mut closed: Option<ClosedGate<'_>> = None;
    let mut tickets: Option<Tickets<'_>> = None;
    let (mut tries, mut rooms) = (Tries::default(), Rooms::default());
    let mut fresh = true;
    let mut lost = Lost::default();
    let (mut stands, mut before) = (None, Before::of(seq));
    loop {
        // Never with tickets in hand: whoever closed the gate may be waiting for them.
        if closed.is_none() && tickets.is_none() && changes_names(cx.asked()) {
            core.sets.names().pass().await;
        }
        let mut set = resolve(cx, &tries.insist).await?;
        tries.complete(&mut set)?;
        let mut plan = None;
        match reserve(cx, &set, &mut plan, std::mem::take(&mut fresh)).await {
            Ok(()) => {}
            Err(FsError::Wait(wait)) => {
                let_go(cx, &mut tickets, &mut stands);
                if wait == Wait::Plans && closed.take().is_some() {
                    // Others may take long, and names belong to all.
                    tries.opened();
                }
                rooms.make(cx, wait).await?;
                continue;
            }
            Err(e) => return Err(e),
        };
        place(cx, seq, &set, &mut tickets);
        let Some(held) = tickets.as_mut() else { return Err(Errno::IO.into()) };
        head(cx, held).await;
        cx.still()?;
        let (behind, first) = (cx.queue.aside.is_behind(cx.position), before.of_command(cx, held.members()));
        if behind || first.is_some() {
            drop(plan.take());
            let_go(cx, &mut tickets, &mut stands);
            if closed.take().is_some() {
                // One of those before may have to pass.
                tries.opened();
            }
            let_pass(cx, behind, first).await;
            cx.still()?;
            continue;
        }
        stands = None;
        let keeps_closed = closed.is_some();
        let learned = tries.has_learned();
        let lending = may_lend(cx).then(|| Lending::new(cx, &set, learned, tickets.take(), closed.take()));
        let attempted = attempt(cx, &set, &mut plan, &mut tickets, lending.as_ref(), &mut lost).await?;
        closed = closed.or_else(|| lending.as_ref().and_then(Lending::gate));
        if keeps_closed && closed.is_none() {
            tries.lent();
        }
        match attempted {
            Attempt::Done(done) => return Ok(done),
            Attempt::Lost => {
                tickets = None;
                lost.again(cx)?;
            }
            Attempt::SetChanged(lacked, exceeded) => {
                tries.changed(cx, lacked, exceeded);
                cx.queue.counters.set_retries.add(1);
                if tries.closes() && closed.is_none() {
                    let_go(cx, &mut tickets, &mut stands);
                    closed = Some(core.sets.names().close().await);
                }
            }
            Attempt::Room(wait) => {
                let_go(cx, &mut tickets, &mut stands);
                rooms.make(cx, wait).await?;
            }
        }
    }
}

pub(super) async fn resolve(cx: &OpCx<'_>, insist: &[InodeNo]) -> FsResult<InodeSet> {
    let mut strides = Strides::default();
    loop {
        match weldfs_fs::resolve_set(&cx.core.store, &cx.cmd, &cx.paths, cx.session(), insist, &mut strides) {
            Err(FsError::Miss(m)) => cx.core.io.fetch(m, cx.queue.tenant.id).await?,
            Err(FsError::Turn) => {
                cx.boundary().await;
                cx.still()?;
            }
            other => return other,
        }
    }
}

/// Reserves what the command may use at most; reads reserve nothing. A `fresh` command, which holds nothing yet, is
/// the one that back-pressure and the cap of unflushed bytes hold back.
async fn reserve<'s>(cx: &OpCx<'s>, set: &InodeSet, plan: &mut Option<Plan<'s>>, fresh: bool) -> FsResult<()> {
    let need = loop {
        match weldfs_fs::plan_need(&cx.core.store, &cx.cmd, &cx.paths, cx.session(), set) {
            Err(FsError::Miss(m)) => cx.core.io.fetch(m, cx.queue.tenant.id).await?,
            other => break other?,
        }
    };
    if let Some(need) = need {
        if fresh {
            wait_for_turn(cx, need.log_bytes as u64).await?;
        }
        let begun = match cx.core.store.begin(&need) {
            Err(FsError::Errno(Errno::NOSPC) | FsError::Wait(Wait::Plans)) if cx.cmd.is_posted() => {
                cx.core.leases.room(cx, &need).map_err(|e| match e {
                    // What a checkpoint makes free is its own before it fails.
                    FsError::Errno(Errno::NOSPC) => FsError::Wait(Wait::Checkpoint),
                    other => other,
                })?
            }
            Err(FsError::Errno(Errno::NOSPC)) => {
                // Files without a name may hang on processes that are gone, and room may be kept for files under a
                // lease: let go of them, and look again.
                cx.core.files.sweep();
                cx.core.leases.recall();
                cx.core.store.begin(&need)?
            }
            other => other?,
        };
        *plan = Some(begun.with_life(cx.cmd.hints.life));
    }
    Ok(())
}

/// Holds a changing command back while the log or the overlay fill faster than they are emptied, or too much is
/// unflushed: so that no writer outruns the medium for ever.
pub(super) async fn wait_for_turn(cx: &OpCx<'_>, log_bytes: u64) -> FsResult<()> {
    let core = cx.core;
    if let Some(at) = core.pace.start_at(cx.session().id, log_bytes, || core.store.fill(FULL), now_ns) {
        cx.queue.counters.pace_waits.add(1);
        pause(cx, at).await;
    }
    if let Some(lsn) = core.store.journal().must_wait() {
        durable(cx, lsn).await?;
    }
    Ok(())
}

/// Something was committed: a checkpoint may be due.
pub(super) fn filled(core: &Core, appended: &Appended) {
    if core.store.needs_checkpoint() {
        core.maintenance.kick();
        core.pace.note(core.store.fill(FULL), appended.end.0 - appended.lsn.0);
    }
}

/// Places the tickets, or exchanges those held for those of a changed set; the arrival number stays.
fn place<'d>(cx: &OpCx<'d>, seq: Seq, set: &InodeSet, tickets: &mut Option<Tickets<'d>>) {
    let primary = set.entries().first().map_or(0, |(ino, _)| ino.0);
    let wanted = wanted(&cx.cmd.op, cx.session(), set);
    match tickets {
        Some(held) => held.replace(wanted),
        None => *tickets = Some(cx.core.sets.place(seq, Token(cx.at), wanted)),
    }
    match may_lend(cx) {
        false => cx.admitted(primary),
        // What follows in its ring follows when it has committed.
        true => cx.slot.primary.store(primary, Ordering::Relaxed),
    }
}

/// The set as tickets. Whoever moves a description's offset holds its inode alone, so that offsets move one by one.
pub(super) fn wanted(op: &Op, session: &SessionState, set: &InodeSet) -> Members {
    let mut out = members(
        set.entries()
            .iter()
            .map(|(ino, hold)| (ino.0, if *hold == Hold::Exclusive { Mode::Exclusive } else { Mode::Shared })),
    );
    if let Op::Read { h, at: At::Current, .. } | Op::Seek { h, .. } = *op
        && let Ok(file) = session.handle(h)
    {
        let own = std::iter::once((file.ino.0, Mode::Exclusive));
        out = members(out.into_iter().chain(own));
    }
    out
}

/// Runs the command over a transaction under its set, commits, gives the set back, waits for durability.
/// A program's tickets are with `lending` until it has run.
async fn attempt<'d>(
    cx: &OpCx<'d>,
    set: &InodeSet,
    plan: &mut Option<Plan<'d>>,
    tickets: &mut Option<Tickets<'d>>,
    lending: Option<&Lending<'_, 'd>>,
    lost: &mut Lost,
) -> FsResult<Attempt> {
    let core = cx.core;
    let payload = weldfs_fs::payload_bytes(&cx.cmd, &cx.paths);
    let begin = |reserved, again| {
        let mut txn = Txn::new(&core.store, cx.session(), set, reserved, payload, core.clock.wall());
        txn.about(&cx.paths.a);
        txn.with_taken(cx.taken.get());
        txn.in_steps(&cx.cmd, &cx.paths, detect::of_begin(cx), again);
        txn.in_slices(lending.map_or(cx as &dyn Slicer, |lending| lending));
        txn
    };
    let mut txn = begin(plan.take(), false);
    txn.with_kept(lost.kept());
    let mut outcome = interp::run(&cx.cmd, &cx.paths, &cx.queue.pool, &mut txn).await;
    if let Some(cleared) = txn.start_over(&outcome) {
        txn = begin(cleared, true);
        outcome = Box::pin(interp::run(&cx.cmd, &cx.paths, &cx.queue.pool, &mut txn)).await;
    }
    let finished = txn.finish(&outcome).await;
    if let Some(lending) = lending {
        *tickets = lending.tickets();
    }
    let mut finished = match finished {
        Ok(f) => f,
        Err(FsError::SetChanged) if txn.is_stale() || lending.is_some_and(Lending::is_lost) => {
            lost.keep(txn.take_kept());
            return Ok(Attempt::Lost);
        }
        Err(FsError::SetChanged) => return Ok(Attempt::SetChanged(txn.lacked(), txn.exceeded())),
        Err(FsError::Wait(wait)) => return Ok(Attempt::Room(wait)),
        Err(e) => return Err(e),
    };
    let mut must_sync = cx.cmd.after_durable.then(|| core.store.journal().owned_end());
    let recorded = cx.cmd.detectable && finished.plan.is_some();
    let mut opening = None;
    let concluded = conclude(cx, &mut finished, &outcome, &mut must_sync, &mut opening).await;
    let begun = finished.micro.as_deref().is_some_and(MicroTxn::has_begun);
    let recorded = recorded && (concluded.is_ok() || begun);
    if let Err(e) = concluded {
        if let Some(o) = finished.opened {
            cx.session().release_handle(o.handle);
        }
        if let FsError::Wait(wait) = e {
            return Ok(Attempt::Room(wait));
        }
        // A transaction that was cut says itself how far it came, and that is as durable as was asked for.
        let cut = finished.micro.as_deref().and_then(MicroTxn::cut);
        must_sync = cut.filter(|_| wants_durable(cx.asked())).map(|_| core.store.journal().owned_end()).or(must_sync);
        core.note_reclaim();
        outcome = cut.unwrap_or(Outcome::failed(Errno::from(&e)));
    }
    if outcome.is_ok() {
        outcome.result2 |= kept(core, &cx.queue, (&cx.cmd, &cx.paths.a), &mut finished);
    }
    *tickets = None;
    if lending.is_some() {
        cx.admitted_nowhere();
    }
    // What it was promised and has not taken is for others, who need not wait until this is durable.
    finished.plan = None;
    core.board.unboost(cx.at);
    if let Some(opening) = opening {
        outcome = Box::pin(open_virtual(cx, opening, outcome)).await;
    }
    // A MicroTx that failed may have left something, and its durability was asked for, too.
    let stands = outcome.micro_done > 0;
    let must_sync = must_sync.filter(|_| outcome.is_ok() || stands);
    let pending = must_sync.filter(|_| cx.place != Place::Alone);
    if pending.is_none()
        && let Some(end) = must_sync
        && let Err(e) = durable(cx, end).await
    {
        outcome = Outcome::failed(e);
    }
    Ok(Attempt::Done(Done { recorded, pending, ..count(&cx.cmd, &cx.paths, outcome, &finished.counters) }))
}

/// Commits what the transaction planned, and makes valid what it opened and moved.
/// A virtual file is left in `opening`.
async fn conclude(
    cx: &OpCx<'_>,
    f: &mut Finished<'_>,
    outcome: &Outcome,
    must_sync: &mut Option<Lsn>,
    opening: &mut Option<(OpenedInfo, Arc<Description>)>,
) -> FsResult<()> {
    let core = cx.core;
    let description = described(core, cx.session(), f)?;
    if let Some(plan) = f.plan.as_mut() {
        // A transaction of several records has its outcome in the last one.
        if cx.cmd.detectable && f.micro.is_none() {
            plan.push(detect::effect(cx, outcome)?);
        }
        let appended = loop {
            let committed = match &mut f.micro {
                Some(txn) => core.store.commit_micro(plan, txn),
                None => core.store.commit(plan, RecordHead::op()),
            };
            match committed {
                Err(FsError::Miss(m)) => {
                    if let Err(e) = core.io.fetch(m, cx.queue.tenant.id).await {
                        if let Some(txn) = &mut f.micro {
                            core.store.abort_micro(plan, txn, &e);
                        }
                        return Err(e);
                    }
                }
                other => break other?,
            }
        };
        // A log that does not take it any more says so to one that waits for it.
        if wants_durable(cx.asked()) || volatile(core, appended.end).is_err() {
            *must_sync = Some(appended.end);
        }
        filled(core, &appended);
        if leaves_garbage(cx.asked()) {
            core.note_reclaim();
        }
    }
    match description {
        Some((o, description)) if o.is_virtual => *opening = Some((o, description)),
        Some((o, description)) => installed(core, cx.session(), &o, description),
        None => {}
    }
    if let Some((h, offset)) = f.cursor {
        // The handle was closed meanwhile: then nothing can ask for the offset either.
        let _ = cx.session().handles.with(h, |d| d.set_offset(offset));
    }
    Ok(())
}

/// There is more to open of a virtual file; none of it under this one's tickets.
async fn open_virtual(cx: &OpCx<'_>, (o, description): (OpenedInfo, Arc<Description>), outcome: Outcome) -> Outcome {
    match virt::open(cx, &description).await {
        Ok(()) => {
            installed(cx.core, cx.session(), &o, description);
            outcome
        }
        Err(e) => {
            cx.session().release_handle(o.handle);
            Outcome::failed(e)
        }
    }
}

/// The description of what a command opened. Before the commit, so that a nameless file is held open from its first
/// moment.
pub(super) fn described(
    core: &Core,
    session: &SessionState,
    f: &Finished<'_>,
) -> FsResult<Option<(OpenedInfo, Arc<Description>)>> {
    let Some(o) = f.opened else { return Ok(None) };
    if o.placeholder != 0 && !session.handles.has_placeholder(o.placeholder) {
        return Err(Errno::INVAL.into());
    }
    let held = OpenInode::new(&core.store, o.ino);
    Ok(Some((o, core.files.describe(o.ino, kept_flags(o.flags), held)?)))
}

/// From now on a handle, and a placeholder, stand for the description.
pub(super) fn installed(core: &Core, session: &SessionState, o: &OpenedInfo, description: Arc<Description>) {
    if let Some(p) = session.handles.take_placeholder(o.placeholder) {
        core.files.bind(p, &description);
    }
    session.handles.fill(o.handle, description);
}

fn kept_flags(flags: OpenFlags) -> OpenFlags {
    flags.difference(OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC | OpenFlags::NOFOLLOW)
}

/// What a command moved, with its outcome.
pub(super) fn count(cmd: &Command, paths: &Paths, outcome: Outcome, spent: &OpCounters) -> Done {
    let names = u64::from(!paths.a.is_empty()) + u64::from(!paths.b.is_empty());
    let operands = modify_bytes(&cmd.op);
    let body = if let Op::Program { body } = cmd.op { u64::from(body.len) } else { 0 };
    let copied = Copied {
        payload: u64::from(spent.payload_copies) + u64::from(operands > 0),
        payload_in: spent.bytes_in + operands,
        payload_out: spent.bytes_out,
        metadata: u64::from(spent.meta_copies) + names + u64::from(body > 0),
        data: u64::from(spent.blocks_written) * weldfs_store::limits::BLOCK as u64,
    };
    let replies = match cmd.op {
        Op::Stat { .. } | Op::StatPath { .. } | Op::Statfs { .. } | Op::ReadDir { .. } | Op::Readlink { .. } => {
            outcome.result
        }
        _ => 0,
    };
    let (bytes_in, bytes_out) = (spent.bytes_in + operands + body, spent.bytes_out + replies);
    Done { outcome, bytes_in, bytes_out, recorded: false, copied, pending: None }
}

/// Payload that a read_modify_write takes from the pool into its field.
fn modify_bytes(op: &Op) -> u64 {
    match op {
        Op::ReadModifyWrite { modify: Modify::Patch(r) | Modify::Xor(r), .. } => u64::from(r.len),
        Op::ReadModifyWrite { modify: Modify::CompareSwap { expect, new }, .. } => u64::from(expect.len + new.len),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of_future<A, F>(_: impl Fn(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_slots_of_a_thread_fit_into_two_megabytes() {
        let bytes = bytes_of_future(|mail: Mail<OpCx<'static>, Done>| serve(mail));
        assert!(bytes * crate::limits::SLOTS_PER_THREAD <= 2 << 20, "{bytes} bytes each");
    }
}
