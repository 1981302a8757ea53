//! Holding inodes: a command heads its queues, in the order of its ring, and behind what others had published before.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use smallvec::SmallVec;
use weldfs_ciscops::{At, InodeNo, Op};
use weldfs_fs::strides::Strides;
use weldfs_fs::{HandleTable, Hold, InodeSet};
use weldfs_journal::canary::{Canary, planted};
use weldfs_scheduler::{Mode, Seq, Token};
use weldfs_session::clock::now_ns;
use weldfs_session::pair;
use weldfs_session::sets::{Members, Tickets, members};
use weldfs_store::error::{FsError, FsResult};

use super::aside::Standing;
use super::leases::is_other;
use super::opcx::OpCx;
use super::session::{QueueState, SessionState};

/// Nanoseconds between looks of a command that waits for a ring, beside those for which it is told.
const LOOK_NS: u64 = 50_000_000;

impl OpCx<'_> {
    /// Holds one inode for a session-level command.
    pub(super) async fn hold(&self, ino: InodeNo, mode: Mode) -> Tickets<'_> {
        let (sets, aside) = (&self.core.sets, &self.queue.aside);
        let seq = sets.arrive();
        let mut before = Before::of(seq);
        let mut stands = None;
        loop {
            let mut tickets = sets.place(seq, Token(self.at), members([(ino.0, mode)]));
            self.admitted(ino.0);
            head(self, &mut tickets).await;
            let behind = aside.is_behind(self.position);
            let first = before.next(self, [ino.0]);
            if !behind && first.is_none() {
                return tickets;
            }
            stands.get_or_insert_with(|| aside.step(self.position));
            drop(tickets);
            let_pass(self, behind, first).await;
        }
    }
}

/// Waits until the command heads all its queues. Meanwhile those that it waits for are picked as it would be.
pub(super) async fn head(cx: &OpCx<'_>, tickets: &mut Tickets<'_>) {
    let mut boosts = cx.core.board.boosts(cx.queue.tenant.id);
    poll_fn(|task| {
        let polled = Pin::new(&mut tickets.start()).poll(task);
        if polled.is_pending() {
            boosts.clear();
            tickets.blockers(|holder| boosts.add(holder.0));
        }
        polled
    })
    .await;
}

/// Gives tickets up, to wait without any: those behind it in its ring, which may have been let in, do not pass.
pub(super) fn let_go<'c>(cx: &'c OpCx<'_>, tickets: &mut Option<Tickets<'_>>, stands: &mut Option<Standing<'c>>) {
    if tickets.is_some() {
        stands.get_or_insert_with(|| cx.queue.aside.step(cx.position));
        *tickets = None;
    }
}

/// Waits, without any, until those of its ring that stand aside have passed, and what another ring published.
pub(super) async fn let_pass(cx: &OpCx<'_>, behind: bool, first: Option<Mark>) {
    if let Some(mark) = first {
        mark.passed(cx).await;
    }
    if behind {
        cx.queue.aside.turn(cx.position).await;
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

/// Rings whose commands, as far as they were published when it was looked, are let go first: each once.
pub(super) struct Before {
    seq: Seq,
    rings: SmallVec<[Arc<QueueState>; 1]>,
}

/// How far a ring was published.
pub(super) struct Mark {
    ring: Arc<QueueState>,
    at: pair::Mark,
}

impl Before {
    /// Of a command that arrived so.
    pub fn of(seq: Seq) -> Before {
        Before { seq, rings: SmallVec::new() }
    }

    /// A ring that is in the way of a command that holds these inodes. A posted command waits for none: two rings could
    /// wait for each other so.
    pub fn next(&mut self, cx: &OpCx<'_>, inodes: impl IntoIterator<Item = u64>) -> Option<Mark> {
        let leases = &cx.core.leases;
        if !leases.any() || cx.cmd.is_posted() {
            return None;
        }
        inodes.into_iter().find_map(|ino| self.one_of(cx, leases.before(self.seq, Some(ino))))
    }

    /// The same by what the command is.
    pub fn of_command(&mut self, cx: &OpCx<'_>, members: &[(u64, Mode)]) -> Option<Mark> {
        match cx.cmd.op {
            Op::Statfs { .. } => self.next_of_all(cx),
            _ => self.next(cx, members.iter().map(|(ino, _)| *ino)),
        }
    }

    /// A ring that is in the way of a command that concerns all files.
    pub fn next_of_all(&mut self, cx: &OpCx<'_>) -> Option<Mark> {
        let leases = &cx.core.leases;
        if leases.any() { self.one_of(cx, leases.before(self.seq, None)) } else { None }
    }

    fn one_of(&mut self, cx: &OpCx<'_>, rings: SmallVec<[Arc<QueueState>; 2]>) -> Option<Mark> {
        let waits = |ring: &Arc<QueueState>| is_other(ring, &cx.queue) && ring.pair.is_pending();
        rings.into_iter().filter(|ring| waits(ring) && !planted(Canary::LeaseUnbroken)).find_map(|ring| {
            if self.rings.iter().any(|known| Arc::ptr_eq(known, &ring)) {
                return None;
            }
            self.rings.push(ring.clone());
            ring.pair.mark().map(|at| Mark { ring, at })
        })
    }
}

impl Mark {
    /// Waits until what was published is over, or the client is gone that waits. Call it without tickets or a plan.
    pub async fn passed(self, cx: &OpCx<'_>) {
        cx.queue.counters.lease_waits.add(1);
        poll_fn(|task| {
            let pair = &self.ring.pair;
            if pair.is_past(self.at) || cx.still().is_err() {
                return Poll::Ready(());
            }
            pair.watch(task.waker());
            if pair.is_past(self.at) {
                return Poll::Ready(());
            }
            // A client may take back what it had published, and nothing tells; or the one that waits may be gone.
            cx.slot.pause.store(now_ns() + LOOK_NS, Ordering::Relaxed);
            Poll::Pending
        })
        .await;
    }
}
