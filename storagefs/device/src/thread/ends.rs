//! The end of a command: counted, posted, published; and the end of queue pairs.

use super::*;

impl<'d, F, M> Loop<'_, 'd, F, M>
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    /// Counts a command's end and posts its completion, now or when the profile says.
    pub(super) fn complete(&mut self, notes: Notes, done: Done, now: u64) {
        let queue = &notes.queue;
        let mut at = now;
        if self.core.emulated.is_on() {
            let Notes { arrived, device_ns, media, .. } = notes;
            let took = Took { arrived, over: now.max(self.busy_until), device_ns, media };
            let (bytes_in, bytes_out) = done.link_bytes();
            at = self.core.emulated.link.lock().completion(took, bytes_in, bytes_out).max(now);
        }
        match notes.admitted {
            Some(bytes) => queue.done(bytes),
            None => self.core.board.drained(),
        }
        let mut ends = queue.pair.ends();
        let c = &queue.counters;
        done.count(c, notes.opcode, notes.fused);
        c.modelled_ns.add(at - now);
        if notes.first_run != 0 {
            let (queue_ns, service_ns) = (notes.first_run.saturating_sub(notes.seen), at - notes.first_run.min(at));
            c.queue_ns.add(queue_ns);
            c.service_ns.add(service_ns);
            c.uncontended.add(u64::from(notes.uncontended));
            queue.tenant.latency.record(self.index, queue_ns, service_ns);
        }
        let cqe = done.outcome.to_cqe(notes.sequence);
        if at > now {
            drop(ends);
            return self.delayed.add(at, Delayed { queue: notes.queue, cqe: cqe.to_words() });
        }
        ends.post(&cqe);
        if self.posted(ends, queue, now) {
            self.note_dirty(notes.queue, now);
        }
    }

    /// Posts a completion that was held back.
    pub(super) fn post(&mut self, queue: Arc<QueueState>, cqe: &Cqe) {
        let mut ends = queue.pair.ends();
        ends.post(cqe);
        let now = now_ns();
        if self.posted(ends, &queue, now) {
            self.note_dirty(queue, now);
        }
    }

    /// After a completion was posted: true when it is still to be published, with others that follow soon.
    pub(super) fn posted(&self, mut ends: MutexGuard<'_, Ends>, queue: &QueueState, now: u64) -> bool {
        self.note_depth(queue, &mut ends, now);
        if ends.is_drained() && queue.pair.home != self.index {
            self.core.board.ring(queue.pair.home);
        }
        let more = queue.pair.is_worth_a_look();
        if !more {
            queue.counters.client_wakes.add(ends.publish());
        }
        more
    }

    /// A posted completion waits for others to be published with, not for long.
    pub(super) fn note_dirty(&mut self, queue: Arc<QueueState>, now: u64) {
        if self.dirty.is_empty() {
            self.dirty_since = now;
        }
        if self.dirty.last().is_none_or(|last| !Arc::ptr_eq(last, &queue)) {
            self.dirty.push(queue);
        }
        if now.saturating_sub(self.dirty_since) > PUBLISH_NS {
            self.publish();
        }
    }

    pub(super) fn publish(&mut self) {
        for queue in self.dirty.drain(..) {
            let mut ends = queue.pair.ends();
            queue.counters.client_wakes.add(ends.publish());
        }
    }

    /// Drops the queues that have been drained.
    pub(super) fn reap(&mut self) {
        while let Some(i) = self.queues.iter().position(|q| q.pair.ends().is_drained()) {
            self.worked += 1;
            let queue = self.queues.swap_remove(i);
            let mut ends = queue.pair.ends();
            ends.close();
            queue.pair.leave();
            // What the client published after its session's end is no tenant's backlog.
            ends.depth.set(0, &queue.counters, &queue.tenant.backlog, now_ns);
            drop(ends);
            let session = queue.session.clone();
            if let Some(n) = self.watched.get_mut(&session.id) {
                *n -= 1;
                if *n == 0 {
                    self.watched.remove(&session.id);
                    let _ = epoll::delete(&self.epoll, &*session.doorbell);
                }
            }
            self.core.pair_gone(&queue);
        }
        self.ending = self.queues.iter().any(|q| q.pair.ends().is_draining());
    }
}
