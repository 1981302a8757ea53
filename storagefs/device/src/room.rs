//! Waiting for room: a checkpoint, reclaim, or the end of what others have begun.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;

use weldfs_ciscops::Errno;
use weldfs_session::clock::now_ns;
use weldfs_store::error::{FsResult, Wait};

use super::opcx::{OpCx, durable};
use super::pace::FULL;
use crate::limits::{PLANS_LOOK_DOUBLINGS, PLANS_LOOK_NS, PLANS_WAIT_NS_MAX, ROOM_RETRIES_MAX};

/// How often, and for how long, one command has waited for room.
#[derive(Default)]
pub(super) struct Rooms {
    rounds: u32,
    /// Looks at whether others are over, and nanoseconds between them: its own, so that a process that stood still has
    /// not waited.
    looks: u32,
    waited_ns: u64,
}

impl Rooms {
    /// Waits until room may be there. Whoever waits holds neither inodes nor a plan: those who have room may need the
    /// inodes, and two could wait for each other's promises. None is first among those that wait.
    ///
    /// # Errors
    /// ENOSPC when the command has waited for long enough; EIO when the device is out of service; EINTR when its client
    /// is gone and it is not to be gone on with.
    pub async fn make(&mut self, cx: &OpCx<'_>, wait: Wait) -> FsResult<()> {
        if wait == Wait::Plans {
            // What is kept for files under a lease is for this now.
            cx.core.leases.recall();
        }
        if wait == Wait::Plans && self.waited_ns < PLANS_WAIT_NS_MAX {
            // A row of looks is one wait.
            cx.queue.counters.room_waits.add(u64::from(self.looks == 0));
            let ns = PLANS_LOOK_NS << self.looks.min(PLANS_LOOK_DOUBLINGS);
            self.looks += 1;
            self.waited_ns += ns;
            pause(cx, now_ns() + ns).await;
        } else {
            if self.rounds == ROOM_RETRIES_MAX {
                return Err(Errno::NOSPC.into());
            }
            self.rounds += 1;
            cx.queue.counters.room_waits.add(1);
            cx.core.maintenance.room(wait).await?;
        }
        cx.still()?;
        if cx.core.is_poisoned() || cx.core.store.medium().is_poisoned() { Err(Errno::IO.into()) } else { Ok(()) }
    }
}

/// Gives the core to others until then.
pub(super) async fn pause(cx: &OpCx<'_>, until: u64) {
    poll_fn(|_| {
        if now_ns() >= until {
            return Poll::Ready(());
        }
        cx.slot.pause.store(until, Ordering::Relaxed);
        Poll::Pending
    })
    .await;
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
