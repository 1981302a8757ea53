//! Which of several threads commits next on a block medium: a caller that would only wait for the flush, or the log's
//! own; and callers that hand volatile records over to the host. One batch is written at a time; a flush that is wanted
//! while another one is under way is looked after when that one has ended.

use crate::commit::{Aim, Batch, commit};
use crate::journal::{Journal, Shared, State};
use crate::limits::WRITE_OUT_BYTES;
use crate::reservation::Reservation;
use crate::{JournalError, Lsn};
use std::sync::atomic::Ordering;
use weldfs_locks::MutexGuard;

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
            s.until_written(&mut state);
            // Another one may have begun meanwhile, and looks once more when it has ended.
            if state.busy || s.is_poisoned() || !s.is_wanted(&state) {
                return false;
            }
            Batch::of(&mut state, Aim::Flushed)
        };
        // A failure has poisoned the log, and everything that waits was told.
        if let Ok(Some(end)) = commit(s, batch) {
            s.led.fetch_max(end.0, Ordering::AcqRel);
        }
        true
    }

    /// The same room, for as long as the journal is borrowed here.
    pub fn keep<'j>(&'j self, room: Reservation<'_>) -> Reservation<'j> {
        room.of(&self.shared.reserved)
    }

    /// Gives everything below `end` to the host's kernel, if it is not there yet: it survives this process from then
    /// on, as it does on byte-addressable media from the beginning, but not the power. Blocks while what is queued is
    /// written.
    ///
    /// # Errors
    /// `Poisoned`, and those of the medium, which poison the log.
    pub fn hand_over(&self, end: Lsn) -> Result<(), JournalError> {
        let s = &self.shared;
        if s.byte_addressable || s.written.load(Ordering::Acquire) >= end.0 {
            return Ok(());
        }
        let batch = {
            let mut state = s.state.lock();
            s.until_written(&mut state);
            if s.is_poisoned() {
                return Err(JournalError::Poisoned);
            }
            if s.written.load(Ordering::Acquire) >= end.0 {
                return Ok(());
            }
            Batch::of(&mut state, Aim::HandedOver)
        };
        Ok(commit(s, batch).map(drop)?)
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

    /// Everything to the tail becomes durable, on a block medium without a commit thread.
    pub(crate) fn commit_queue(&self, end: Lsn) -> Result<(), JournalError> {
        let _flush = self.flush.lock();
        if self.notifier.watermark() >= end {
            return Ok(());
        }
        if self.is_poisoned() {
            return Err(JournalError::Poisoned);
        }
        let batch = {
            let mut state = self.state.lock();
            self.until_written(&mut state);
            Batch::of(&mut state, Aim::Flushed)
        };
        if let Some(end) = commit(self, batch)? {
            self.notifier.announce(end);
        }
        Ok(())
    }

    /// Waits until no batch is being written. The writer of one ends that, however it ends.
    pub(crate) fn until_written(&self, state: &mut MutexGuard<'_, State>) {
        while state.writing {
            state.waiting += 1;
            self.wrote.wait(state);
            state.waiting -= 1;
        }
    }

    /// Wakes the commit thread if there is something that it may begin.
    pub(crate) fn tell_thread(&self, state: &State) {
        let flush = self.is_wanted(state) && !state.attended;
        if !state.busy && !state.writing && (flush || state.queue.bytes() >= WRITE_OUT_BYTES) {
            self.work.notify_one();
        }
    }
}
