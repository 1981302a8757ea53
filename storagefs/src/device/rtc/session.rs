//! Commands that the session answers: close, and sync where a flush is a few instructions.

use weldfs_ciscops::{Command, Handle, Op};
use weldfs_scheduler::Mode;

use super::super::core::Core;
use super::super::dataplane::{Done, answer};
use super::super::session::{QueueState, SessionState};
use super::super::session_ops::close_held;
use super::super::sets::members;
use super::change::durable_now;
use crate::fs::HandleTable;

pub(super) fn run(core: &Core, queue: &QueueState, cmd: &Command) -> Option<Done> {
    // Those of virtual files have more to do.
    if core.virtuals.any() {
        return None;
    }
    let session = &*queue.session;
    match cmd.op {
        Op::Close { h } => close(core, session, h),
        Op::Fsync { h } | Op::Fdatasync { h } => sync(core, session, Some(h)),
        _ => sync(core, session, None),
    }
}

fn close(core: &Core, session: &SessionState, h: Handle) -> Option<Done> {
    let ino = session.handle(h).ok()?.ino;
    let held = core.sets.hold_free(&members([(ino.0, Mode::Exclusive)]))?;
    Some(answer(close_held(core, session, h, ino, || drop(held))))
}

fn sync(core: &Core, session: &SessionState, h: Option<Handle>) -> Option<Done> {
    if !core.store.writes_directly() || core.store.medium().is_poisoned() {
        return None;
    }
    if let Some(h) = h.filter(|h| *h != Handle::ROOT) {
        // Commands of this ring on this inode that came before have committed where none is left.
        let ino = session.handle(h).ok()?.ino;
        if !core.sets.is_free(ino.0) {
            return None;
        }
    }
    Some(answer(durable_now(core, core.store.journal().tail()).map(|()| (0, 0))))
}
