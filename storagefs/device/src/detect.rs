//! Detectable commands: the outcome beside the effects, alone where there are none, and the answer to who asks.
//!
//! A command is known by (client id of the attach, user, queue, sequence). Only commands with the flag come here.

use weldfs_ciscops::{Errno, Outcome, PoolRange};
use weldfs_fs::SessionView;
use weldfs_journal::{Lsn, RecordHead};
use weldfs_store::Need;
use weldfs_store::effect::Effect;
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::micro::Detect;
use weldfs_store::outcomes::{Identity, OutcomeRec};
use zerocopy::IntoBytes;

use super::done::Done;
use super::opcx::{OpCx, Place, durable, failed, filled, volatile};
use super::room::{Rooms, wait_for_turn};
use super::wishes::wants_durable;

/// Who runs the command, if that can be written down: the queue's number has sixteen bits.
fn identity(cx: &OpCx<'_>) -> Result<Identity, Errno> {
    let queue = u16::try_from(cx.queue.index).map_err(|_| Errno::OVERFLOW)?;
    let session = &cx.queue.session;
    Ok(Identity { client: session.client_id, uid: session.cred().uid, queue, sequence: cx.cmd.seq })
}

/// The effect that goes into the record of the command's own.
pub(super) fn effect(cx: &OpCx<'_>, outcome: &Outcome) -> Result<Effect, Errno> {
    Ok(Effect::Outcome(Box::new(OutcomeRec { id: identity(cx)?, outcome: *outcome })))
}

/// What a begin record says of it.
pub(super) fn of_begin(cx: &OpCx<'_>) -> Option<Detect> {
    if !cx.cmd.detectable {
        return None;
    }
    let id = identity(cx).ok()?;
    Some(Detect { client: id.client, queue: id.queue })
}

/// Whether the command may run at all: where no outcome can be kept, nothing is done.
pub(super) fn admissible(cx: &OpCx<'_>) -> Result<(), Errno> {
    if cx.core.store.is_read_only() {
        return Err(Errno::ROFS);
    }
    identity(cx).map(drop)
}

/// Leaves the outcome of a command that failed or changed nothing: a record of its own, as durable as the command.
/// If that cannot be, its errno is the command's answer, and the command counts as not started. For an element of a
/// sequence whoever runs the sequence waits.
pub(super) async fn leave(cx: &OpCx<'_>, done: &mut Done) {
    match leave_alone(cx, &done.outcome).await {
        Ok(pending) => done.pending = done.pending.max(pending),
        Err(e) => done.outcome = failed(Errno::from(&e)).outcome,
    }
}

/// Says what has to be durable before the command is over, where that is not waited for.
async fn leave_alone(cx: &OpCx<'_>, outcome: &Outcome) -> FsResult<Option<Lsn>> {
    let store = &cx.core.store;
    let mut rooms = Rooms::default();
    wait_for_turn(cx, Need::OUTCOME.log_bytes as u64).await?;
    let mut plan = loop {
        match store.begin(&Need::OUTCOME) {
            Err(FsError::Wait(wait)) => rooms.make(cx, wait).await?,
            other => break other?,
        }
    };
    plan.push(effect(cx, outcome)?);
    let appended = store.commit(&mut plan, RecordHead::op())?;
    filled(cx.core, &appended);
    if !wants_durable(cx.asked()) {
        volatile(cx.core, appended.end)?;
        return Ok(None);
    }
    if cx.place != Place::Alone {
        return Ok(Some(appended.end));
    }
    durable(cx, appended.end).await?;
    Ok(None)
}

/// What became of a command of this user's. Clients of other users are as good as unknown.
pub(super) async fn answer(
    cx: &OpCx<'_>,
    client: [u8; 16],
    queue: u16,
    sequence: u64,
    out: PoolRange,
) -> Result<(u64, u64), Errno> {
    cx.admitted_nowhere();
    let uid = cx.queue.session.cred().uid;
    let body = cx.core.store.outcome(&Identity { client, uid, queue, sequence });
    if cx.cmd.after_durable {
        durable(cx, cx.core.store.journal().owned_end()).await?;
    }
    cx.queue.pool.slice(out)?.copy_from(body.as_bytes());
    Ok((size_of_val(&body) as u64, 0))
}
