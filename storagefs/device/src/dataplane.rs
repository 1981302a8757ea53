//! One command from its tickets to its outcome.
//!
//! The order is the protocol's: resolve names, reserve room, place tickets, wait to head all of them, run the micro-ops
//! over a transaction, commit, give the set back, and only then wait for durability. Every wait is an `.await`; on
//! byte-addressable media an uncontended command passes through in one poll.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weldfs_ciscops::{Errno, InodeNo, Outcome, interp};
use weldfs_fs::{Finished, HandleTable, Hold, InodeSet, Insisted, OpenedInfo, Slicer, Txn};
use weldfs_journal::{Lsn, RecordHead};
use weldfs_scheduler::{Seq, Token};
use weldfs_session::sets::{ClosedGate, Tickets};
use weldfs_store::error::{FsError, FsResult, Wait};
use weldfs_store::{MicroTxn, Plan};

use super::done::{Done, count};
use super::grants::kept;
use super::held::{Before, head, let_go, let_pass, resolve, wanted};
use super::lent::{Lending, Lost, may_lend};
use super::opcx::{OpCx, Place, durable, failed, filled, volatile};
use super::open::Description;
use super::opening::{self, described, installed};
use super::room::{Rooms, wait_for_turn};
use super::tries::Tries;
use super::wishes::{changes_names, is_placed, leaves_garbage, wants_durable};
use super::{detect, placed};

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
    if is_placed(&cx.cmd)
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
                cx.core.leases.room(&cx.core.store, &cx.queue, &cx.cmd.op, &need).map_err(|e| match e {
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
    match opening::open_virtual(cx, &description).await {
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
