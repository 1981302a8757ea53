//! What the maintenance thread is asked for, and how it waits for that: `maintainer` is the thread.
//!
//! It blocks in one call (a condition variable) and has a timeout only while something is unflushed or a placeholder is
//! held by nothing but a descriptor somewhere. An idle device arms nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weldfs_ciscops::Errno;
use weldfs_locks::{Condvar, Mutex};

use crate::limits::{FLUSH_DEADLINE_NS, LIVENESS_POLL_MS, RECLAIM_DELAY_NS};
use weldfs_session::clock::now_ns;
use weldfs_store::error::Wait;

const LIVENESS_POLL_NS: u64 = LIVENESS_POLL_MS * 1_000_000;

/// What the maintenance thread has been asked for. Thread-safe.
#[derive(Default)]
pub struct Maintenance {
    /// A look was asked for and has not begun; asked by every commit above the thresholds, so kept outside the lock.
    kicked: AtomicBool,
    /// Something volatile was committed since the last flush; checked by every commit, so kept outside the lock.
    unflushed: AtomicBool,
    wishes: Mutex<Wishes>,
    bell: Condvar,
}

#[derive(Default)]
struct Wishes {
    look: bool,
    stop: bool,
    checkpoint: bool,
    /// The device is at rest: what was freed of what the thread allocated is to be given back.
    rests: bool,
    /// When to look next whether placeholders are still held by a process.
    placeholders_at: Option<u64>,
    /// When what unlink and truncate left behind is drained.
    drain: bool,
    /// The same now, for a command that waits for space.
    space: bool,
    reclaim_at: Option<u64>,
    /// When the oldest unflushed effect must be flushed.
    flush_at: Option<u64>,
    /// Finished rounds of making room.
    rounds: u64,
    /// What ended the last of them early.
    failed: Option<Errno>,
    waiters: Vec<Waker>,
}

impl Maintenance {
    /// A volatile effect was committed: at most one atomic load when one is pending already.
    #[inline]
    pub fn note_volatile(&self) {
        // Ordered against the commit before it, as the thread orders forgetting against looking at the tail.
        fence(Ordering::SeqCst);
        if !self.unflushed.load(Ordering::Relaxed) && !self.unflushed.swap(true, Ordering::AcqRel) {
            let mut w = self.wishes.lock();
            w.flush_at = Some(now_ns() + FLUSH_DEADLINE_NS);
            self.bell.notify_one();
        }
    }

    /// Asks for a look at the thresholds (log half full, overlay over budget, reclaim due).
    pub fn kick(&self) {
        if !self.kicked.load(Ordering::Relaxed) && !self.kicked.swap(true, Ordering::AcqRel) {
            self.wishes.lock().look = true;
            self.bell.notify_one();
        }
    }

    /// The device is at rest.
    pub fn note_rest(&self) {
        self.wishes.lock().rests = true;
        self.bell.notify_one();
    }

    /// Something was left to reclaim: drained soon, together with what follows.
    pub fn note_reclaim(&self) {
        let mut w = self.wishes.lock();
        if w.reclaim_at.is_none() {
            w.reclaim_at = Some(now_ns() + RECLAIM_DELAY_NS);
            self.bell.notify_one();
        }
    }

    /// There is more to reclaim: at once, after whatever was asked for meanwhile.
    pub fn go_on(&self) {
        self.wishes.lock().reclaim_at = Some(now_ns());
    }

    /// Whether the thread is to end.
    pub fn ends(&self) -> bool {
        self.wishes.lock().stop
    }

    /// Placeholders hold descriptions: poll them.
    pub fn watch_placeholders(&self) {
        let mut w = self.wishes.lock();
        if w.placeholders_at.is_none() {
            w.placeholders_at = Some(now_ns() + LIVENESS_POLL_NS);
            self.bell.notify_one();
        }
    }

    /// Makes room (checkpoint, reclaim) and waits for the end of a round that began after this call. Fails if the
    /// round could not make any.
    pub fn room(&self, wait: Wait) -> Room<'_> {
        Room { maintenance: self, wait, until: None }
    }

    /// Waits until there is something to do.
    pub(super) fn wait_for_work(&self) -> Turn {
        let mut w = self.wishes.lock();
        loop {
            let now = now_ns();
            let flush = w.flush_at.is_some_and(|at| at <= now);
            let reclaim = w.reclaim_at.is_some_and(|at| at <= now);
            let liveness = w.placeholders_at.is_some_and(|at| at <= now);
            if w.stop || w.look || w.rests || w.checkpoint || w.drain || flush || reclaim || liveness {
                break;
            }
            // Each of them is a point in time: who rings the bell meanwhile puts none of the others off.
            match w.flush_at.into_iter().chain(w.reclaim_at).chain(w.placeholders_at).min() {
                None => self.bell.wait(&mut w),
                Some(at) => {
                    self.bell.wait_for(&mut w, Duration::from_nanos(at - now));
                }
            }
        }
        w.look = false;
        self.kicked.store(false, Ordering::Release);
        w.reclaim_at = None;
        let flush = w.flush_at.is_some_and(|at| at <= now_ns());
        if flush {
            w.flush_at = None;
            self.unflushed.store(false, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        let (checkpoint, drain) = (std::mem::take(&mut w.checkpoint), std::mem::take(&mut w.drain));
        let space = std::mem::take(&mut w.space);
        // Looked at now, whatever the turn is for. Who watches one from here on is asked about again.
        let placeholders = w.placeholders_at.take().is_some();
        let rests = std::mem::take(&mut w.rests);
        Turn { checkpoint, drain, space, flush, placeholders, rests, stop: w.stop }
    }

    /// A round is over, of those that are `counted`: what waits for one goes on.
    pub(super) fn finish_round(&self, counted: bool, made: Result<(), Errno>) {
        if !counted {
            return;
        }
        let mut w = self.wishes.lock();
        w.rounds += 1;
        w.failed = made.err();
        let waiters = std::mem::take(&mut w.waiters);
        drop(w);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// The thread is gone: nothing waits for room any more.
    pub(super) fn abandon(&self) {
        self.wishes.lock().stop = true;
        self.finish_round(true, Ok(()));
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.wishes.lock().stop = true;
        self.bell.notify_one();
    }
}

/// Future of [`Maintenance::room`].
pub struct Room<'a> {
    maintenance: &'a Maintenance,
    wait: Wait,
    until: Option<u64>,
}

impl Future for Room<'_> {
    type Output = Result<(), Errno>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let m = self.maintenance;
        let mut w = m.wishes.lock();
        // A round under way may have looked before our need arose; the wish makes another one follow it at once, and
        // whoever is still short of room after this one asks again.
        let until = match self.until {
            Some(until) => until,
            None => {
                match self.wait {
                    Wait::Drain => w.drain = true,
                    Wait::Reclaim => (w.checkpoint, w.space) = (true, true),
                    _ => w.checkpoint = true,
                }
                m.bell.notify_one();
                w.rounds + 1
            }
        };
        self.until = Some(until);
        if w.rounds >= until || w.stop {
            return Poll::Ready(w.failed.map_or(Ok(()), Err));
        }
        w.waiters.push(cx.waker().clone());
        Poll::Pending
    }
}

/// One turn's work.
pub(super) struct Turn {
    pub checkpoint: bool,
    pub drain: bool,
    pub space: bool,
    pub flush: bool,
    pub placeholders: bool,
    pub rests: bool,
    pub stop: bool,
}
