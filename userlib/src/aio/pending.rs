//! A command in flight, as a future and as something to block on.

use super::core::{Hearer, Watch};
use super::shared::Shared;
use super::{Completed, OnDone};
use crate::outcome::CommandId;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use weldfs_ciscops::{Cqe, Errno, PoolRange};

type Raw = Result<(Cqe, PoolRange), Errno>;

/// A command in flight. It is a future for any executor, and can be waited for on the spot, or handed over to a
/// callback or to [`AsyncQueue::reap`](super::AsyncQueue::reap). `Send` and `Sync`.
///
/// Dropping it leaves the command to run: its effects come to pass, its buffers stay the command's until it completes
/// and then go back to the pool, and a file that it opened is closed again.
///
/// Errors, besides the operation's own: EIO (the device died while the command was in it; its outcome is unknown),
/// EBADF (in a forked child), EINVAL (a second answer asked of it).
#[must_use = "dropping it forgets the command's result"]
pub struct Pending<T> {
    shared: Arc<Shared>,
    sequence: u64,
    finish: fn(Completed) -> Result<T, Errno>,
    answered: bool,
    gives: PhantomData<fn() -> T>,
}

impl<T> Unpin for Pending<T> {}

impl<T> Pending<T> {
    pub(super) fn new(shared: Arc<Shared>, sequence: u64, finish: fn(Completed) -> Result<T, Errno>) -> Pending<T> {
        Pending { shared, sequence, finish, answered: false, gives: PhantomData }
    }

    /// The sequence number its completion carries: its ticket within the queue.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// What names a detectable command for ever, for [`crate::Client::outcome`].
    pub fn id(&self) -> CommandId {
        let queue = self.shared.index as u16;
        CommandId { client: self.shared.client.id(), queue, sequence: self.sequence }
    }

    /// Blocks until it is done: spins for a bounded, adaptive time, then sleeps. The calling thread reaps the queue
    /// meanwhile, and so wakes the futures of others.
    pub fn wait(mut self) -> Result<T, Errno> {
        self.wait_until(None)
    }

    /// The same, for at most `timeout`: then ETIMEDOUT, and the command is still pending.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<T, Errno> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    fn wait_until(&mut self, deadline: Option<Instant>) -> Result<T, Errno> {
        if self.answered {
            return Err(Errno::INVAL);
        }
        let sequence = self.sequence;
        let raw =
            self.shared.block_until(deadline, |core, wakes| core.take(sequence).inspect(|_| core.made_room(wakes)));
        match raw {
            Ok(raw) => self.answer(raw),
            Err(Errno::TIMEDOUT) => Err(Errno::TIMEDOUT),
            Err(e) => {
                self.answered = true;
                Err(e)
            }
        }
    }

    /// Its result if it is done; the queue is flushed and reaped, nothing is waited for.
    pub fn try_take(&mut self) -> Option<Result<T, Errno>> {
        match self.look(None) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Has `target` called with `user` and the completion, by whoever reaps: [`AsyncQueue::reap`], or the queue's own
    /// thread after [`AsyncQueue::start_reaper`]. Flush the queue to be sure that the device sees the command.
    ///
    /// [`AsyncQueue::reap`]: super::AsyncQueue::reap
    /// [`AsyncQueue::start_reaper`]: super::AsyncQueue::start_reaper
    pub fn on_done(mut self, target: Arc<dyn OnDone>, user: u64) {
        self.hand_over(Hearer::Call(target, user));
    }

    /// Leaves the completion to [`AsyncQueue::reap`](super::AsyncQueue::reap), marked with `user`. Flush the queue to
    /// be sure that the device sees the command.
    pub fn listed(mut self, user: u64) {
        self.hand_over(Hearer::List(user));
    }

    fn hand_over(&mut self, hearer: Hearer) {
        if !std::mem::replace(&mut self.answered, true) {
            let sequence = self.sequence;
            // In a forked child nothing waits for it.
            let _ = self.shared.with(|core, wakes| core.hand_to(sequence, hearer, wakes));
        }
    }

    fn answer(&mut self, raw: Raw) -> Result<T, Errno> {
        self.answered = true;
        (self.finish)(self.shared.complete(raw)?)
    }

    fn look(&mut self, waker: Option<&Context<'_>>) -> Poll<Result<T, Errno>> {
        if self.answered {
            return Poll::Ready(Err(Errno::INVAL));
        }
        let sequence = self.sequence;
        let looked = loop {
            let looked = self.shared.with(|core, wakes| {
                core.queue.flush();
                let more = core.land(wakes);
                if let Some(raw) = core.take(sequence) {
                    core.made_room(wakes);
                    return (Some(raw), false, core.watch);
                }
                if let (Some(cx), false) = (waker, more) {
                    core.await_with(sequence, cx.waker());
                }
                (None, more, core.watch)
            });
            match looked {
                Ok((None, true, _)) => {}
                other => break other.map(|(raw, _, watch)| (raw, watch)),
            }
        };
        let started = match looked {
            Ok((Some(raw), _)) => return Poll::Ready(self.answer(raw)),
            // Nothing polls for ever: this task must be woken.
            Ok((None, Watch::Nobody)) if waker.is_some() => self.shared.watched_as(Watch::Reap),
            Ok(_) => return Poll::Pending,
            Err(e) => Err(e),
        };
        match started {
            Ok(()) | Err(Errno::BUSY) => Poll::Pending,
            Err(e) => {
                self.hand_over(Hearer::Nobody);
                Poll::Ready(Err(e))
            }
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Errno>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().look(Some(cx))
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.hand_over(Hearer::Nobody);
    }
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pending({})", self.sequence)
    }
}

/// Waits until a queue that refused a submission may have room again; see
/// [`AsyncQueue::patient`](super::AsyncQueue::patient).
#[must_use = "a future does nothing unless it is polled"]
pub(super) struct Room(pub(super) Arc<Shared>);

impl Future for Room {
    type Output = Result<(), Errno>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = &self.get_mut().0;
        let looked = shared.with(|core, wakes| {
            core.queue.flush();
            let more = core.land(wakes);
            (!more && core.await_room(cx.waker()), core.watch)
        });
        match looked {
            Ok((false, _)) => Poll::Ready(Ok(())),
            Ok((true, Watch::Nobody)) => match shared.watched_as(Watch::Reap) {
                Ok(()) | Err(Errno::BUSY) => Poll::Pending,
                Err(e) => Poll::Ready(Err(e)),
            },
            Ok((true, _)) => Poll::Pending,
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}
