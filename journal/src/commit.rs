//! Group commit: who writes and flushes on block media, a thread of the log's own or a caller that waits, and the
//! waiters for the watermark.

use crate::canary::{Canary, planted};
use crate::crashpoint;
use crate::journal::{Shared, State};
use crate::limits::WRITE_OUT_BYTES;
use crate::log_buffer::LogBuffer;
use crate::put::barrier;
use crate::{JournalError, Lsn, MediumError};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::task::Waker;
use std::thread::JoinHandle;

/// The durable watermark and those who wait for it.
pub(crate) struct Notifier {
    watermark: AtomicU64,
    waiting: AtomicUsize,
    waiters: Mutex<Vec<(Lsn, Waker)>>,
    advanced: Condvar,
}

impl Notifier {
    pub(crate) fn new(watermark: Lsn) -> Notifier {
        Notifier {
            watermark: AtomicU64::new(watermark.0),
            waiting: AtomicUsize::new(0),
            waiters: Mutex::new(Vec::new()),
            advanced: Condvar::new(),
        }
    }

    #[inline]
    pub(crate) fn watermark(&self) -> Lsn {
        Lsn(self.watermark.load(Ordering::Acquire))
    }

    /// Moves the watermark up.
    pub(crate) fn raise(&self, to: Lsn) {
        self.watermark.fetch_max(to.0, Ordering::AcqRel);
    }

    /// Wakes whom the raised watermark reaches. The count is read after the fence and a waiter checks the watermark
    /// after its own, so one of the two sees the other.
    pub(crate) fn announce(&self, to: Lsn) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake(to);
        }
    }

    pub(crate) fn wake_all(&self) {
        self.wake(Lsn::MAX);
    }

    fn wake(&self, upto: Lsn) {
        let mut waiters = self.waiters.lock();
        let before = waiters.len();
        let mut reached = Vec::new();
        waiters.retain(|(end, waker)| {
            let keep = *end > upto;
            if !keep {
                reached.push(waker.clone());
            }
            keep
        });
        self.waiting.fetch_sub(before - waiters.len(), Ordering::SeqCst);
        self.advanced.notify_all();
        drop(waiters);
        reached.into_iter().for_each(Waker::wake);
    }

    /// Registers a waker unless the watermark is there already or `failed` holds; says which.
    pub(crate) fn subscribe(&self, end: Lsn, waker: Waker, failed: &dyn Fn() -> bool) -> bool {
        if self.watermark() >= end || failed() {
            return true;
        }
        let mut waiters = self.waiters.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.watermark() >= end || failed() {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return true;
        }
        waiters.push((end, waker));
        false
    }

    /// Blocks until the watermark reaches `end` or `failed` holds.
    pub(crate) fn wait(&self, end: Lsn, failed: &dyn Fn() -> bool) {
        if self.watermark() >= end {
            return;
        }
        let mut waiters = self.waiters.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while self.watermark() < end && !failed() {
            self.advanced.wait(&mut waiters);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts the commit thread of a block medium.
pub(crate) fn spawn(shared: Arc<Shared>) -> Result<JoinHandle<()>, JournalError> {
    let thread = std::thread::Builder::new().name("weldfs-commit".into()).spawn(move || run(&shared));
    thread.map_err(|e| {
        let os = e.raw_os_error().unwrap_or(0);
        JournalError::Medium(MediumError::Io { what: "commit thread", off: 0, len: 0, os })
    })
}

/// One batch: everything queued up to `end`, flushed when something waits for that.
pub(crate) struct Batch {
    queued: LogBuffer,
    end: Lsn,
    carried: Lsn,
    flush: bool,
}

impl Batch {
    /// Takes what is queued. One batch is written at a time (`State::busy`): a later one that is flushed sooner must
    /// not raise the watermark over an earlier one.
    pub(crate) fn of(state: &mut State, flush: bool) -> Batch {
        let spent = std::mem::take(&mut state.spent);
        let queued = state.queue.take(spent);
        if flush {
            state.unflushed_since = 0;
        }
        state.busy = true;
        Batch { queued, end: state.tail, carried: state.carried, flush }
    }
}

/// A thread that panics while it commits takes the log with it: nothing waits for a flush that never comes.
struct PoisonOnPanic<'a>(&'a Shared);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison();
        }
    }
}

fn run(shared: &Shared) {
    let _guard = PoisonOnPanic(shared);
    loop {
        let batch = {
            let mut state = shared.state.lock();
            loop {
                let flush = shared.is_wanted(&state);
                if state.stop {
                    return;
                }
                if shared.is_poisoned() {
                    // Whoever poisoned the medium need not know us: those who wait for a flush must hear it.
                    drop(state);
                    return shared.poison();
                }
                let due = flush && !state.attended || state.queue.bytes() >= WRITE_OUT_BYTES;
                if due && !state.busy {
                    break Batch::of(&mut state, flush);
                }
                shared.work.wait(&mut state);
            }
        };
        match commit(shared, batch) {
            Ok(Some(end)) => shared.notifier.announce(end),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// Writes a batch, and flushes it if it is to be: the watermark is up then, and the end of the batch is to be
/// announced. A failure poisons the medium.
pub(crate) fn commit(shared: &Shared, batch: Batch) -> Result<Option<Lsn>, MediumError> {
    let _guard = PoisonOnPanic(shared);
    if batch.flush && planted(Canary::AckBeforeWatermark) {
        shared.raise(batch.end, batch.carried);
        shared.notifier.announce(batch.end);
        // Time for the early acknowledgements to be made, or the bug would hardly ever show.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    if let Err(e) = write(shared, &batch) {
        tracing::error!("commit failed, the medium is poisoned: {e}");
        shared.poison();
        return Err(e);
    }
    Ok(finish(shared, batch))
}

/// The flush is issued after the batch's log and data writes completed.
fn write(shared: &Shared, batch: &Batch) -> Result<(), MediumError> {
    let (log, data) = batch.queued.counts();
    shared.counters.batches.fetch_add(1, Ordering::Relaxed);
    shared.counters.log_writes.fetch_add(log, Ordering::Relaxed);
    shared.counters.data_writes.fetch_add(data, Ordering::Relaxed);
    let mut writes = batch.queued.writes();
    let mut late = Vec::new();
    if planted(Canary::RecordBeforeData) {
        let area = shared.area.start..shared.area.start + shared.area.len;
        (writes, late) = writes.into_iter().partition(|w| area.contains(&w.off));
    }
    shared.medium.write_batch(&writes)?;
    if batch.flush {
        shared.counters.flushes.fetch_add(1, Ordering::Relaxed);
        crashpoint("before-flush");
        barrier(&*shared.medium)?;
        crashpoint("after-flush");
    }
    shared.medium.write_batch(&late)
}

/// After the batch was written, and flushed if it was to be.
fn finish(shared: &Shared, batch: Batch) -> Option<Lsn> {
    if batch.flush {
        shared.raise(batch.end, batch.carried);
    }
    let mut state = shared.state.lock();
    state.since_flush += batch.queued.bytes();
    state.spent = batch.queued;
    state.busy = false;
    if batch.flush {
        state.unflushed = state.unflushed.saturating_sub(std::mem::take(&mut state.since_flush));
        // No record followed at once: say in the log that everything so far is durable. One such record, unflushed.
        if state.tail == batch.end && state.owed {
            shared.append_watermark(&mut state);
        }
    }
    // Whoever wanted one meanwhile found this one under way.
    shared.tell_thread(&state);
    drop(state);
    // To be announced last, so that who was woken finds the deadline of that record armed.
    batch.flush.then_some(batch.end)
}
