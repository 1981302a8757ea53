//! Waiting for room: a checkpoint, reclaim, or the end of what others have begun.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;

use weldfs_ciscops::Errno;

use super::clock::now_ns;
use super::dataplane::OpCx;
use super::limits::{PLANS_LOOK_NS, PLANS_WAIT_NS_MAX, ROOM_RETRIES_MAX};
use crate::error::{FsResult, Wait};

/// How often, and since when, one command has waited for room.
#[derive(Default)]
pub(super) struct Rooms {
    rounds: u32,
    /// When it first waited for nothing but other plans; then it has until [`PLANS_WAIT_NS_MAX`] later.
    since: Option<u64>,
}

impl Rooms {
    /// Waits until room may be there. Whoever waits holds neither inodes nor a plan: those who have room may need the
    /// inodes, and two could wait for each other's promises.
    ///
    /// # Errors
    /// ENOSPC when the command has waited for long enough; EIO when the device is out of service.
    pub async fn make(&mut self, cx: &OpCx<'_>, wait: Wait) -> FsResult<()> {
        // A row of looks at others' plans is one wait.
        if wait != Wait::Plans || self.since.is_none() {
            cx.queue.counters.room_waits.add(1);
        }
        if wait == Wait::Plans {
            let now = now_ns();
            if now.saturating_sub(*self.since.get_or_insert(now)) > PLANS_WAIT_NS_MAX {
                return Err(Errno::NOSPC.into());
            }
            pause(cx, now + PLANS_LOOK_NS).await;
        } else {
            if self.rounds == ROOM_RETRIES_MAX {
                return Err(Errno::NOSPC.into());
            }
            self.rounds += 1;
            cx.core.maintenance.room(wait).await?;
        }
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
