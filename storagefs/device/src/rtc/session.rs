//! Commands that the session answers: close, advisory locks, and sync where a flush is a few instructions.

use weldfs_ciscops::{Command, Handle, Op};
use weldfs_journal::canary::{Canary, planted};
use weldfs_scheduler::Mode;

use super::super::core::Core;
use super::super::done::Done;
use super::super::opcx::answer;
use super::super::session::QueueState;
use super::super::session_ops::{close_held, lock_held};
use super::change::durable_now;
use weldfs_fs::HandleTable;
use weldfs_session::sets::members;

pub(super) fn run(core: &Core, queue: &QueueState, cmd: &Command) -> Option<Done> {
    // Those of virtual files have more to do, but for locks.
    if core.virtuals.any() && !matches!(cmd.op, Op::Lock { .. }) {
        return None;
    }
    match cmd.op {
        Op::Close { h } => close(core, queue, (h, cmd.is_posted())),
        Op::Lock { h, .. } => lock(core, queue, h, &cmd.op),
        Op::Fsync { h } | Op::Fdatasync { h } => sync(core, queue, Some(h)),
        _ => sync(core, queue, None),
    }
}

fn close(core: &Core, queue: &QueueState, (h, posted): (Handle, bool)) -> Option<Done> {
    let session = &*queue.session;
    let ino = session.handle(h).ok()?.ino;
    let held = core.sets.hold_free(&members([(ino.0, Mode::Exclusive)]))?;
    if !posted && core.leases.in_the_way(queue, ino.0) {
        return None;
    }
    Some(answer(close_held(core, session, (h, ino), posted, || drop(held))))
}

fn lock(core: &Core, queue: &QueueState, h: Handle, op: &Op) -> Option<Done> {
    let ino = queue.session.handle(h).ok()?.ino;
    let _held = core.sets.hold_free(&members([(ino.0, Mode::Exclusive)]))?;
    if core.leases.in_the_way(queue, ino.0) {
        return None;
    }
    Some(lock_held(core, queue, op))
}

fn sync(core: &Core, queue: &QueueState, h: Option<Handle>) -> Option<Done> {
    let session = &*queue.session;
    if !core.store.writes_directly() || core.store.medium().is_poisoned() {
        return None;
    }
    if let Some(h) = h.filter(|h| *h != Handle::ROOT) {
        // Commands of this ring on this inode that came before have committed where none is left.
        let ino = session.handle(h).ok()?.ino;
        if !core.sets.is_free(ino.0) || core.leases.in_the_way(queue, ino.0) {
            return None;
        }
    } else if core.leases.any_in_the_way(queue) {
        return None;
    }
    if planted(Canary::MergedAcrossSync) && queue.pair.has_entries() {
        return Some(answer(Ok((0, 0))));
    }
    let synced =
        durable_now(core, core.store.journal().owned_end()).and_then(|()| match h.filter(|h| *h != Handle::ROOT) {
            Some(h) => session.handles.with(h, |d| d.written()).unwrap_or(Ok(())),
            None => Ok(()),
        });
    Some(answer(synced.map(|()| (0, 0))))
}
