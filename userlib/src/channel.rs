//! Which queue pair does this call use? Each thread keeps one per client in thread-local storage, so the hot path
//! takes no lock and allocates nothing. When the thread ends (or outgrows its pool) the queue pair goes back to the
//! session, for the next thread.

use crate::client::Session;
use crate::fork;
use crate::queue::Queue;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use weldfs_ciscops::{Errno, PoolRange, SharedBytes, SharedRegion};

/// Queue pairs a thread keeps at most, one per client it talks to.
const CACHED_MAX: usize = 16;

/// A thread's use of one queue pair.
pub(crate) struct Channel {
    lane: Lane,
    session: Arc<Session>,
    pool: SharedRegion,
    generation: u32,
}

#[allow(clippy::large_enum_variant)] // nearly every channel is the large variant
enum Lane {
    /// This thread's own.
    Own(RefCell<Option<Queue>>),
    /// The session's last one, taken in turns: the device grants no more.
    Shared,
}

impl Channel {
    pub(crate) fn own(session: Arc<Session>, queue: Queue) -> Channel {
        let pool = queue.pool().clone();
        Channel { lane: Lane::Own(RefCell::new(Some(queue))), session, pool, generation: fork::generation() }
    }

    pub(crate) fn shared(session: Arc<Session>, pool: SharedRegion) -> Channel {
        Channel { lane: Lane::Shared, session, pool, generation: fork::generation() }
    }

    /// EBADF when it is a parent's channel in a forked child, or not of the session that `epoch` names (0 = any).
    pub(crate) fn check(&self, epoch: u64) -> Result<(), Errno> {
        let ours = self.generation == fork::generation() && (epoch == 0 || epoch == self.session.epoch());
        if ours { Ok(()) } else { Err(Errno::BADF) }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Whether a call that needs so much pool may use it now.
    #[inline]
    pub(crate) fn is_free(&self, pool_need: usize) -> bool {
        self.pool.len() >= pool_need && !self.is_busy() && !self.session.is_over()
    }

    /// Whether a call of this very thread is inside it (a signal handler then sees true).
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        matches!(&self.lane, Lane::Own(queue) if queue.try_borrow_mut().is_err())
    }

    /// Runs `f` on the queue pair. EBUSY when this very call was interrupted by a signal handler that wants it, too.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> Result<R, Errno> {
        match &self.lane {
            Lane::Own(queue) => {
                let mut queue = queue.try_borrow_mut().map_err(|_| Errno::BUSY)?;
                queue.as_mut().map(f).ok_or(Errno::BADF)
            }
            Lane::Shared => self.session.with_shared(f),
        }
    }

    /// Pool bytes of a buffer of this channel; EBADF in a forked child, where they are not mapped.
    pub(crate) fn bytes(&self, range: PoolRange) -> Result<SharedBytes<'_>, Errno> {
        self.check(0)?;
        self.pool.slice(range)
    }

    /// The bytes of a pool buffer as a slice. `range` must belong to the buffer through which the caller holds them.
    pub(crate) fn view(&self, range: PoolRange) -> &[u8] {
        match self.bytes(range) {
            // SAFETY: in bounds and mapped as long as `self`. The device, which the client trusts as it trusts its
            // kernel, writes only to ranges named by a command in flight; a command that names this buffer borrows
            // it mutably until its completion, so nothing writes while this shared borrow lives.
            Ok(bytes) => unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) },
            Err(_) => &[],
        }
    }

    /// As `view`; the caller holds the buffer exclusively.
    #[allow(clippy::mut_from_ref)] // exclusive use of the range is the caller's: PoolBuf owns it and passes &mut self
    pub(crate) fn view_mut(&self, range: PoolRange) -> &mut [u8] {
        match self.bytes(range) {
            // SAFETY: as in `view`; ranges of different buffers never overlap, and this buffer is borrowed mutably.
            Ok(bytes) => unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr(), bytes.len()) },
            Err(_) => &mut [],
        }
    }

    /// Gives a buffer's memory back. In a signal handler that interrupted this queue pair it leaks instead.
    pub(crate) fn free(&self, range: PoolRange) {
        if self.check(0).is_ok() {
            let _ = self.with(|queue| queue.free(range));
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The parent's memory is not mapped here, and its addresses may already belong to something else.
            std::mem::forget(self.pool.clone());
        }
        if let Lane::Own(queue) = &mut self.lane
            && let Some(mut queue) = queue.get_mut().take()
        {
            // It is given to another thread: nothing of this one is under way. Of a dead device it is not given.
            let _ = queue.settle();
            self.session.check_in(queue);
        }
    }
}

struct Cached {
    client: u64,
    generation: u32,
    channel: Rc<Channel>,
}

thread_local! {
    static CACHE: RefCell<Vec<Cached>> = const { RefCell::new(Vec::new()) };
}

/// This thread's channel for `client`, if it has one from this process.
#[inline]
pub(crate) fn cached(client: u64) -> Option<Rc<Channel>> {
    CACHE
        .try_with(|cache| {
            let cache = cache.try_borrow().ok()?;
            let entry = cache.iter().find(|entry| entry.client == client)?;
            (entry.generation == fork::generation()).then(|| entry.channel.clone())
        })
        .ok()
        .flatten()
}

/// Makes `channel` this thread's channel for `client`, in place of an older one. Best effort: late in a thread's life
/// or inside a signal handler there is no cache, and the channel is used for one call.
pub(crate) fn keep(client: u64, channel: Rc<Channel>) {
    let fresh = Cached { client, generation: fork::generation(), channel };
    let replaced = CACHE.try_with(move |cache| {
        let Ok(mut cache) = cache.try_borrow_mut() else { return vec![fresh] };
        let (mut gone, kept): (Vec<Cached>, Vec<Cached>) =
            cache.drain(..).partition(|entry| entry.client == client || entry.stale());
        *cache = kept;
        if cache.len() >= CACHED_MAX {
            gone.push(cache.remove(0));
        }
        cache.push(fresh);
        gone
    });
    // Dropped here, outside the cache's borrow: giving a queue pair back may take the session's lock.
    drop(replaced);
}

/// Forgets this thread's channel for `client`.
pub(crate) fn forget(client: u64) {
    let gone = CACHE.try_with(|cache| {
        let mut cache = cache.try_borrow_mut().ok()?;
        let at = cache.iter().position(|entry| entry.client == client)?;
        Some(cache.remove(at))
    });
    drop(gone);
}

impl Cached {
    fn stale(&self) -> bool {
        self.generation != fork::generation() || self.channel.session.is_over()
    }
}
