//! What the future of a command has at hand, and how it says what became of it.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use weldfs_ciscops::{Command, Errno, Handle, Outcome, Paths, Taken};
use weldfs_journal::{Appended, Lsn};
use weldfs_session::clock::now_ns;
use weldfs_store::scratch;

use super::board::SlotState;
use super::core::Core;
use super::departed;
use super::done::Done;
use super::open::Description;
use super::pace::FULL;
use super::session::{QueueState, SessionState};
use super::wishes::Asked;

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
    pub taken: TakenOnce,
}

/// The payload that a slot has summed up, once it has; its memory is used again.
#[derive(Default)]
pub(super) struct TakenOnce(OnceLock<Taken>);

impl TakenOnce {
    /// Puts it there; gives it back where something is.
    pub(super) fn set(&self, taken: Taken) -> Result<(), Taken> {
        self.0.set(taken)
    }

    /// What is there.
    pub(super) fn get(&self) -> Option<&Taken> {
        self.0.get()
    }
}

impl Drop for TakenOnce {
    fn drop(&mut self) {
        if let Some((bytes, _)) = self.0.take().and_then(Arc::into_inner) {
            scratch::keep(bytes);
        }
    }
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

    /// The same place for an element of this sequence.
    pub(super) fn element(&self, cmd: Command, paths: Paths, last: bool) -> OpCx<'_> {
        let place = if last { Place::Last } else { Place::Inside };
        OpCx {
            core: self.core,
            slot: self.slot,
            at: self.at,
            queue: self.queue.clone(),
            cmd,
            paths,
            place,
            position: self.position,
            taken: Default::default(),
        }
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

    /// Whether the slice has lasted for a quantum and another should have the core rather.
    #[inline]
    pub(super) fn due(&self) -> bool {
        let runq = &self.core.board.runq;
        let ran = self.core.scaled(now_ns().wrapping_sub(self.slot.begin.load(Ordering::Relaxed)));
        // With nothing runnable, too: commands may wait in rings that no core reads while this core is in here.
        let due = ran >= runq.quantum_ns() && (runq.is_empty() || runq.preempts(self.queue.tenant.id, ran));
        if due {
            self.slot.yielded.store(true, Ordering::Relaxed);
        }
        due
    }

    /// Whether its client is gone and it is not to be gone on with.
    #[inline]
    pub(super) fn is_cancelled(&self) -> bool {
        !departed::goes_on(self.core, self.session(), &self.cmd.op)
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

/// Something was committed: a checkpoint may be due.
pub(super) fn filled(core: &Core, appended: &Appended) {
    if core.store.needs_checkpoint() {
        core.maintenance.kick();
        core.pace.note(core.store.fill(FULL), appended.end.0 - appended.lsn.0);
    }
}
