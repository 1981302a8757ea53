//! Commands of one ring, one after the other, that change one file and become one record (`weldfs_fs::straight`): one
//! plan, one commit, and on media that are written to directly one flush for all of them.

use smallvec::SmallVec;
use weldfs_ciscops::{Command, Paths};

use super::super::core::Core;
use super::super::done::{Done, count};
use super::super::session::QueueState;
use super::change::{at_leisure, conclude, durably};
use super::may_complete;
use weldfs_fs::straight::{self, Joined};
use weldfs_fs::{HandleTable, OpCounters};

/// What commands came to that are one record.
pub(crate) struct Together {
    pub first: Done,
    /// Those that became part of its record, in order.
    pub others: SmallVec<[(Command, Done); 4]>,
    pub joined: Joined,
}

/// Runs a command with as many of those that `next` gives as become one record with it; `None`, and nothing has
/// happened, where it would have to wait or is none of those that are in one record with others. All of them are about
/// the handle of the first, and as durable as that.
pub(crate) fn run(
    core: &Core,
    queue: &QueueState,
    first: &Command,
    next: &mut dyn FnMut() -> Option<Command>,
) -> Option<Together> {
    let (store, session) = (&*core.store, &*queue.session);
    if !may_complete(core, queue, first) || at_leisure(core) {
        return None;
    }
    let (h, _) = straight::concerned(&first.op)?;
    let file = session.handle(h).ok()?;
    // A flush of a disk is waited for.
    if (!store.writes_directly() && durably(core, first, file.flags)) || store.journal().must_wait().is_some() {
        return None;
    }
    let held = core.sets.hold_free_one(file.ino.0)?;
    let merged = straight::plan_merged(store, session, &queue.pool, (first, next), file, core.clock.wall())?;
    let (others, joined) = (merged.others, merged.joined);
    let done = conclude(core, queue, (first, &Paths::default()), file.flags, merged.changed, held)?;
    // What they moved is counted with the first.
    let rest = others.into_iter().map(|(cmd, outcome)| {
        let outcome = if done.outcome.is_ok() { outcome } else { done.outcome };
        (cmd, count(&cmd, &Paths::default(), outcome, &OpCounters::default()))
    });
    Some(Together { first: done, others: rest.collect(), joined })
}
