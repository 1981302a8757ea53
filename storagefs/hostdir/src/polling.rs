//! Looking at the rings. One thread at a time has the lookout: it takes commands, runs those that will not take long
//! itself, and gives the others away (`long`). It spins as long as that pays, then sleeps in one call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::epoll;
use weldfs_ciscops::{Command, Cqe, Errno, Opcode, Outcome, Paths, RawCommand, Sqe, validate};
use weldfs_locks::Mutex;
use weldfs_waiting::crowd;

use super::core::Core;
use super::lookout::{Lookout, Message};
use super::session::QueueState;
use super::work::Work;
use weldfs_session::clock::now_ns;
use weldfs_session::counters::CoreCounters;
use weldfs_session::limits::{
    BATCH_PER_QUEUE, LIVENESS_POLL_MS, REAP_WAIT_NS_MAX, SPIN_ALONE_NS, SPIN_MIN, SPIN_NS_MIN,
};
use weldfs_session::pair::{Ends, Taken};

/// How often it is looked for rings that have been drained, where there is always something else to do, nanoseconds.
pub(super) const REAP_NS: u64 = 200_000;

impl Lookout {
    /// The next command; `None` at the end. `me` counts for the thread that looks.
    pub(super) fn next(&mut self, core: &Core, me: &CoreCounters) -> Option<Work> {
        let mut idle_polls = 0u32;
        loop {
            core.beat.looks();
            if self.announced {
                self.announced = !self.withdraw();
            }
            if core.inbox.has_mail() {
                self.read_mail(core);
            }
            if self.stop && (self.queues.is_empty() || core.is_poisoned()) {
                self.publish_all();
                return None;
            }
            // Also where there is always something to do: who has ended gives back what it had, and its user's next
            // process waits for that.
            if self.ending && now_ns().saturating_sub(self.reaped) > REAP_NS {
                self.reap(core);
            }
            if let Some(work) = self.take_turns(core) {
                if idle_polls > SPIN_MIN {
                    // Spinning paid: do it as long as it may take.
                    self.spin_ns = (self.spin_ns * 2).min(self.spin_ns_max);
                }
                return Some(work);
            }
            self.publish();
            if self.ending {
                self.reap(core);
            }
            idle_polls += 1;
            if idle_polls == 1 {
                self.last_work = now_ns();
            }
            if !idle_polls.is_multiple_of(SPIN_MIN) {
                std::hint::spin_loop();
                continue;
            }
            let idle_ns = now_ns().wrapping_sub(self.last_work);
            let crowded = idle_polls == SPIN_MIN && crowd().is_there();
            if crowded || idle_ns >= self.spin_ns {
                if !crowded {
                    self.spin_ns = (self.spin_ns / 2).max(SPIN_NS_MIN.min(self.spin_ns_max));
                }
                self.sleep(core, me);
                idle_polls = 0;
            } else if idle_ns >= SPIN_ALONE_NS {
                std::thread::yield_now();
                crowd().missed(now_ns().wrapping_sub(self.last_work).saturating_sub(idle_ns));
            }
        }
    }

    /// Something from the rings, or, for the only thread, something that was set aside: if there is both, one after the
    /// other.
    fn take_turns(&mut self, core: &Core) -> Option<Work> {
        if core.long.spares_a_thread() || !core.long.is_waiting() {
            return self.look(core);
        }
        self.aside = !self.aside;
        if self.aside {
            return core.long.next().or_else(|| self.look(core));
        }
        self.look(core).or_else(|| core.long.next())
    }

    fn read_mail(&mut self, core: &Core) {
        for message in core.inbox.collect() {
            match message {
                Message::Queue(new) => self.add_queue(new),
                Message::CloseSession(id) => {
                    for q in self.queues.iter().filter(|q| q.session.id == id) {
                        q.pair.ends().start_drain();
                        self.ending = true;
                    }
                }
                Message::Stop => self.stop = true,
            }
        }
    }

    /// Looks at rings in turn, for one command.
    fn look(&mut self, core: &Core) -> Option<Work> {
        let mut left = self.queues.len();
        while let Some(queue) = self.queues.next(&mut left, |queue| queue.is_worth_a_look()) {
            if let Some(work) = self.take(core, queue) {
                return Some(work);
            }
        }
        None
    }

    /// The next command of one ring that needs to be run; those that are over at once are answered.
    fn take(&mut self, core: &Core, queue: Arc<QueueState>) -> Option<Work> {
        // A thread that is at them may have been taken its processor: other rings do not wait for that one.
        let Some(mut ends) = queue.pair.try_ends() else {
            self.missed = true;
            return None;
        };
        for _ in 0..BATCH_PER_QUEUE {
            let raw = match ends.next(&queue.pair) {
                Ok(raw) => raw,
                Err(Taken::Fault) => {
                    drop(ends);
                    self.fault(core, &queue);
                    return None;
                }
                Err(_) => break,
            };
            match believe(&queue, &raw) {
                Ok(Some((cmd, paths))) => {
                    let taken = now_ns();
                    let seen = ends.start(&queue.pair, taken);
                    self.taken = self.taken.wrapping_add(1);
                    let mark = self.taken;
                    queue.pair.admit(0, mark, false);
                    drop(ends);
                    let progress = Mutex::default();
                    let (settles, away, begun) = (true, false, 0);
                    return Some(Work { queue, cmd, paths, seen, settles, away, mark, begun, progress });
                }
                Ok(None) => answer(&queue, &mut ends, &raw, Outcome::ok(0, 0)),
                Err(errno) => {
                    queue.counters.malformed.add(1);
                    answer(&queue, &mut ends, &raw, Outcome::failed(errno));
                }
            }
        }
        queue.counters.client_wakes.add(ends.publish());
        self.ending |= ends.is_draining();
        None
    }

    /// A client that lied about its ring is served no more.
    fn fault(&mut self, core: &Core, queue: &QueueState) {
        self.ending = true;
        let (session, index) = (queue.session.id, queue.index);
        if queue.session.tenant.log.permits() {
            tracing::warn!("session {session} ends: queue {index} holds an impossible index");
        }
        core.kill_session(session);
    }

    /// Drops the queues that have been drained.
    fn reap(&mut self, core: &Core) {
        let mut missed = false;
        let mut drained = |q: &Arc<QueueState>| match q.pair.try_ends() {
            Some(mut ends) => ends.is_drained(),
            None => {
                missed = true;
                false
            }
        };
        while let Some(queue) = self.queues.take_out(&mut drained) {
            queue.pair.ends().close();
            let session = queue.session.clone();
            if let Some(n) = self.watched.get_mut(&session.id) {
                *n -= 1;
                if *n == 0 {
                    self.watched.remove(&session.id);
                    let _ = epoll::delete(&self.epoll, &*session.doorbell);
                }
            }
            core.queue_gone(&queue);
        }
        self.missed |= missed;
        self.ending = self.queues.iter().any(|q| q.pair.try_ends().is_none_or(|ends| ends.is_draining()));
        self.reaped = now_ns();
    }

    /// Announces on every ring and in the inbox that nothing looks, looks once more, blocks.
    fn sleep(&mut self, core: &Core, me: &CoreCounters) {
        let mut work = !self.dirty.is_empty() || std::mem::take(&mut self.missed);
        self.unreaped = false;
        for q in self.queues.iter() {
            match q.pair.try_ends() {
                Some(mut ends) => ends.prepare_sleep(false),
                None => work = true,
            }
        }
        for q in self.queues.iter() {
            let Some(mut ends) = q.pair.try_ends() else {
                work = true;
                continue;
            };
            // Whoever has its command rings.
            if q.pair.is_admitting() || q.cut.load(Ordering::Acquire) > 0 {
                continue;
            }
            if ends.is_draining() {
                work |= ends.drains_on();
                continue;
            }
            let (waiting, room) = ends.recheck();
            work |= waiting && room;
            self.unreaped |= waiting && !room;
        }
        if !work && core.inbox.prepare_sleep() {
            self.block(core, me);
            core.inbox.awake();
        }
        self.announced = !self.withdraw();
    }

    fn block(&mut self, core: &Core, me: &CoreCounters) {
        // A client that does not reap has no way to ring when it does: look again, less and less often.
        self.reap_wait_ns = if self.unreaped { (self.reap_wait_ns * 2).clamp(1 << 20, REAP_WAIT_NS_MAX) } else { 0 };
        let look = self.unreaped.then_some(self.reap_wait_ns);
        let liveness = Duration::from_millis(LIVENESS_POLL_MS).as_nanos() as u64;
        let watch = core.watch.load(Ordering::Acquire).then_some(liveness);
        let timeout = look.into_iter().chain(watch).min().map(|ns| rustix::event::Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        me.sleeps.add(1);
        core.processors.rest();
        core.beat.sleeps();
        let n = epoll::wait(&self.epoll, &mut events, timeout.as_ref()).unwrap_or(0);
        me.wakes.add(1);
        for e in &events[..n] {
            let id = e.data.u64();
            if let Some(q) = self.queues.iter().find(|q| id != 0 && q.session.id == id) {
                q.counters.doorbells.add(1);
            }
        }
        if watch.is_some() && now_ns().saturating_sub(self.swept) >= liveness {
            self.swept = now_ns();
            core.watch.store(false, Ordering::Release);
            if core.files.sweep() > 0 {
                core.watch.store(true, Ordering::Release);
            }
        }
    }
}

/// The command, if it is a valid one; `None` for one that is over at once.
fn believe(queue: &QueueState, raw: &RawCommand) -> Result<Option<(Command, Paths)>, Errno> {
    let cmd = validate(raw, &queue.limits)?;
    if cmd.op.opcode() == Opcode::Nop {
        return Ok(None);
    }
    let paths = Paths::fetch(&cmd, &queue.pool)?;
    Ok(Some((cmd, paths)))
}

fn answer(queue: &QueueState, ends: &mut Ends, raw: &RawCommand, outcome: Outcome) {
    let c = &queue.counters;
    c.opcode(raw.0.opcode);
    c.commands.add(1);
    c.errors.add(u64::from(outcome.status != 0));
    c.link_bytes_in.add(Sqe::SIZE as u64);
    c.link_bytes_out.add(Cqe::SIZE as u64);
    ends.answer(&outcome.to_cqe(raw.0.sequence));
}
