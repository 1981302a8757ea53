//! Which of several threads commits next on a block medium: a caller that would only wait for the flush, or the log's
//! own. One batch is written at a time; whoever wants a flush meanwhile is looked after when that one has ended.

use crate::Lsn;
use crate::commit::{Batch, commit};
use crate::journal::{Journal, Shared, State};
use crate::limits::WRITE_OUT_BYTES;
use std::sync::atomic::Ordering;

impl Journal {
    /// Until the matching [`Journal::leave`], commits that are started do not wake the commit thread: the caller looks
    /// at what is wanted when it leaves. Does nothing without a commit thread.
    pub fn attend(&self) {
        if self.thread.is_some() {
            self.shared.state.lock().attended = true;
        }
    }

    /// Ends [`Journal::attend`]. If a flush is wanted and none is under way, the commit thread is woken for it, or,
    /// where the caller would only wait (`leads`), the caller writes and flushes itself, which saves two changes of
    /// threads. True when it has done so: those who wait for it are told by [`Journal::announce_led`], which the caller
    /// owes. Blocks as long as a flush takes.
    pub fn leave(&self, leads: bool) -> bool {
        if self.thread.is_none() {
            return false;
        }
        let s = &self.shared;
        let batch = {
            let mut state = s.state.lock();
            state.attended = false;
            let wanted = s.is_wanted(&state) && !s.is_poisoned();
            if !wanted || !leads || state.busy {
                s.tell_thread(&state);
                return false;
            }
            Batch::of(&mut state, true)
        };
        // A failure has poisoned the log, and everything that waits was told.
        if let Ok(Some(end)) = commit(s, batch) {
            s.led.fetch_max(end.0, Ordering::AcqRel);
        }
        true
    }

    /// Wakes those who waited for flushes that callers led. Cheap when there were none.
    #[inline]
    pub fn announce_led(&self) {
        let led = &self.shared.led;
        if led.load(Ordering::Relaxed) != 0 {
            let end = led.swap(0, Ordering::AcqRel);
            self.shared.notifier.announce(Lsn(end));
        }
    }
}

impl Shared {
    /// Whether a commit waits for a flush that has not ended.
    pub(crate) fn is_wanted(&self, state: &State) -> bool {
        state.want > self.notifier.watermark()
    }

    /// Wakes the commit thread if there is something that it may begin.
    pub(crate) fn tell_thread(&self, state: &State) {
        let flush = self.is_wanted(state) && !state.attended;
        if !state.busy && (flush || state.queue.bytes() >= WRITE_OUT_BYTES) {
            self.work.notify_one();
        }
    }
}
