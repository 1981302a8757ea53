//! Group commit: who writes and flushes on block media, a thread of the log's own or a caller that waits, and the
//! waiters for the watermark.
//!
//! Writes go past the host's page cache. Records of volatile changes that are to survive the process are handed to it
//! instead (`hand_over`), and so are those that follow until the next flush: the two ways never meet in a page.

use crate::canary::{Canary, planted};
use crate::crashpoint;
use crate::journal::{Shared, State};
use crate::limits::WRITE_OUT_BYTES;
use crate::log_buffer::LogBuffer;
use crate::put::barrier;
use crate::tail_page::TailPage;
use crate::{IoWrite, JournalError, Lsn, MediumError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::task::Waker;
use std::thread::JoinHandle;
use weldfs_locks::{Condvar, Mutex};

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

/// Where a batch goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// To the medium, because much is queued.
    Written,
    /// To the medium, and is flushed: something waits for that.
    Flushed,
    /// To the host's kernel.
    HandedOver,
}

/// One batch: everything queued up to `end`.
pub(crate) struct Batch {
    queued: LogBuffer,
    page: TailPage,
    end: Lsn,
    carried: Lsn,
    aim: Aim,
    /// Its records are handed over, whatever it aims at: those before them were.
    hands_over: bool,
    /// Bytes that its flush makes durable.
    covered: u64,
}

impl Batch {
    /// Takes what is queued. One batch is written at a time (`State::writing`), so that records reach the medium in
    /// their order, and one is written and flushed at a time (`State::busy`): a later one that is flushed sooner must
    /// not raise the watermark over an earlier one. The caller has seen that it may begin.
    pub(crate) fn of(state: &mut State, aim: Aim) -> Batch {
        debug_assert!(!state.writing && (aim == Aim::HandedOver || !state.busy));
        let spent = std::mem::take(&mut state.spent);
        let queued = state.queue.take(spent);
        if aim == Aim::Flushed {
            state.unflushed_since = 0;
        }
        state.writing = true;
        state.busy |= aim != Aim::HandedOver;
        state.handed_over |= aim == Aim::HandedOver;
        Batch {
            queued,
            page: std::mem::take(&mut state.page),
            end: state.tail,
            carried: state.carried,
            aim,
            hands_over: state.handed_over,
            covered: 0,
        }
    }

    fn flushes(&self) -> bool {
        self.aim == Aim::Flushed
    }
}

/// A thread that panics while it commits takes the log with it: nothing waits for a flush that never comes.
struct PoisonOnPanic<'a>(&'a Shared);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            fail(self.0);
        }
    }
}

/// The end of a log: nothing waits for a batch that is never written.
fn fail(shared: &Shared) {
    shared.poison();
    shared.state.lock().writing = false;
    shared.wrote.notify_all();
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
                if due && !state.busy && !state.writing {
                    break Batch::of(&mut state, if flush { Aim::Flushed } else { Aim::Written });
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
pub(crate) fn commit(shared: &Shared, mut batch: Batch) -> Result<Option<Lsn>, MediumError> {
    let _guard = PoisonOnPanic(shared);
    if batch.flushes() && planted(Canary::AckBeforeWatermark) {
        shared.raise(batch.end, batch.carried);
        shared.notifier.announce(batch.end);
        // Time for the early acknowledgements to be made, or the bug would hardly ever show.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    if let Err(e) = write_and_flush(shared, &mut batch) {
        tracing::error!("commit failed, the medium is poisoned: {e}");
        fail(shared);
        return Err(e);
    }
    Ok(finish(shared, batch))
}

/// The flush is issued after the batch's log and data writes completed.
fn write_and_flush(shared: &Shared, batch: &mut Batch) -> Result<(), MediumError> {
    let late = write(shared, batch)?;
    written(shared, batch);
    if batch.flushes() {
        shared.counters.flushes.fetch_add(1, Ordering::Relaxed);
        crashpoint("before-flush");
        barrier(&*shared.medium)?;
        crashpoint("after-flush");
    }
    if late { shared.medium.write_batch(&batch.queued.data().collect::<Vec<_>>()) } else { Ok(()) }
}

/// Writes data, then log. True if the data is still to be written (a planted bug).
fn write(shared: &Shared, batch: &mut Batch) -> Result<bool, MediumError> {
    let Batch { queued, page, hands_over, .. } = batch;
    let (log, data) = queued.counts();
    shared.counters.batches.fetch_add(1, Ordering::Relaxed);
    shared.counters.log_writes.fetch_add(log, Ordering::Relaxed);
    shared.counters.data_writes.fetch_add(data, Ordering::Relaxed);
    let late = planted(Canary::RecordBeforeData);
    let direct = queued.log().filter(|_| !*hands_over);
    let writes: Vec<IoWrite<'_>> = queued.data().filter(|_| !late).chain(direct).collect();
    if !writes.is_empty() {
        shared.medium.write_batch(&writes)?;
    }
    for records in queued.log() {
        match hands_over {
            true => page.hand_over(&*shared.medium, records.off, records.buf)?,
            false => page.follow(records.off, records.buf),
        }
    }
    Ok(late)
}

/// After the writes of a batch: the next one may be written, while this one is flushed.
fn written(shared: &Shared, batch: &mut Batch) {
    let mut state = shared.state.lock();
    state.page = std::mem::take(&mut batch.page);
    state.since_flush += batch.queued.bytes();
    if batch.flushes() {
        // What is handed over from here on is for the next flush.
        state.handed_over = false;
        batch.covered = std::mem::take(&mut state.since_flush);
    }
    shared.written.store(batch.end.0, Ordering::Release);
    state.writing = false;
    if state.waiting > 0 {
        shared.wrote.notify_all();
    }
}

/// After the batch was written, and flushed if it was to be.
fn finish(shared: &Shared, batch: Batch) -> Option<Lsn> {
    let flushed = batch.flushes();
    if flushed {
        shared.raise(batch.end, batch.carried);
    }
    let mut state = shared.state.lock();
    state.spent = batch.queued;
    if batch.aim != Aim::HandedOver {
        state.busy = false;
    }
    if flushed {
        state.unflushed = state.unflushed.saturating_sub(batch.covered);
        // No record followed at once: say in the log that everything so far is durable. One such record, unflushed.
        if state.tail == batch.end && state.owed {
            shared.append_watermark(&mut state);
        }
    }
    // Whoever wanted one meanwhile found this one under way.
    shared.tell_thread(&state);
    drop(state);
    // To be announced last, so that who was woken finds the deadline of that record armed.
    flushed.then_some(batch.end)
}
