//! A device thread: polls its queue pairs, runs commands in slots, posts completions, sleeps in one call.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::Future;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use rustix::event::epoll;
use weldfs_ciscops::{CqProducer, Cqe, Errno, Paths, QueueMemory, RawCommand, SqConsumer, Sqe, validate};
use weldfs_journal::canary::{Canary, planted};
use weldfs_scheduler::{Cost, Entry, Policy, TenantId, Token};

use super::clock::now_ns;
use super::core::{Core, Message, ThreadState};
use super::dataplane::{self, Done, OpCx};
use super::limits::{
    BATCH_PER_QUEUE, CQ_BATCH_MAX, REAP_WAIT_NS_MAX, SLOTS_PER_THREAD, SPIN_ALONE_NS, SPIN_MIN, SPIN_NS_MIN,
};
use super::profile::Model;
use super::session::QueueState;
use super::slots::{Mail, Slots};

/// A queue pair on its way to its device thread.
pub(super) struct NewQueue {
    pub state: Arc<QueueState>,
    pub memory: QueueMemory,
}

/// What the running op and its thread tell each other. One per thread, never shared.
#[derive(Default)]
pub(super) struct ThreadCx {
    /// Set by the thread: other commands are runnable, so a new one has to queue up behind them.
    pub busy: Cell<bool>,
    /// Set by an op that wants to be scheduled by the policy before it goes on.
    pub yielded: Cell<bool>,
    /// Set by an op once its tickets are placed: the queue's next command may follow.
    pub admitted: Cell<bool>,
    /// The op's primary inode, for the policy.
    pub primary: Cell<u64>,
    /// Set by an op that waits for a moment: it is run again then. 0: none.
    pub pause: Cell<u64>,
}

/// Device's ends of one queue pair.
struct Queue {
    state: Arc<QueueState>,
    sq: SqConsumer,
    cq: CqProducer,
    /// Slot of the command that has not placed its tickets yet: nothing may overtake it.
    admitting: Option<u32>,
    in_flight: u32,
    posted: u32,
    /// Set when the session ends: this many more commands are executed, without completions.
    drain: Option<u32>,
    bytes: u64,
}

/// What the thread knows of the command in a slot.
#[derive(Clone, Copy)]
struct InSlot {
    queue: u32,
    sequence: u64,
    arrived: u64,
    first_run: u64,
    process_ns: u64,
    primary: u64,
    tenant: TenantId,
    fused: bool,
}

/// A completion held back by the profile.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Delayed {
    due: Reverse<u64>,
    order: Reverse<u64>,
    queue: u32,
    cqe: [u64; 4],
}

struct Loop<'d, F, M> {
    core: &'d Core,
    me: &'d ThreadState,
    cx: &'d ThreadCx,
    slots: Slots<OpCx<'d>, Done, F, M>,
    meta: Vec<Option<InSlot>>,
    queues: Vec<Option<Queue>>,
    live: Vec<u32>,
    policy: Box<dyn Policy>,
    epoll: OwnedFd,
    watched: HashMap<u64, usize>,
    delayed: BinaryHeap<Delayed>,
    delayed_order: u64,
    /// Slots whose op waits for a moment, by that moment.
    paused: BinaryHeap<Reverse<(u64, u32)>>,
    model: Model,
    stop: bool,
    last_work: u64,
    spin_ns: u64,
    /// Some queue holds commands but its completion ring is full.
    unreaped: bool,
    /// Some queue is draining.
    ending: bool,
    reap_wait_ns: u64,
}

/// Body of a device thread.
pub(super) fn run(core: &Core, index: usize) -> std::io::Result<()> {
    let cx = ThreadCx::default();
    drive(core, index, &cx, dataplane::serve)
}

fn drive<'d, F, M>(core: &'d Core, index: usize, cx: &'d ThreadCx, make: M) -> std::io::Result<()>
where
    F: Future<Output = ()>,
    M: Fn(Rc<Mail<OpCx<'d>, Done>>) -> F,
{
    let me = &core.threads[index];
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // Edge-triggered and never read: every write is an edge, so no wake-up can be stolen or lost.
    epoll::add(&epoll, me.inbox.bell(), epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    let mut l = Loop {
        core,
        me,
        cx,
        slots: Slots::new(SLOTS_PER_THREAD, &me.inbox, make),
        meta: vec![None; SLOTS_PER_THREAD],
        queues: Vec::new(),
        live: Vec::new(),
        policy: core.config.policy.build(SLOTS_PER_THREAD),
        epoll,
        watched: HashMap::new(),
        delayed: BinaryHeap::new(),
        delayed_order: 0,
        paused: BinaryHeap::new(),
        model: Model::new(&core.config.profile),
        stop: false,
        last_work: now_ns(),
        spin_ns: core.config.spin_ns_max,
        unreaped: false,
        ending: false,
        reap_wait_ns: 0,
    };
    let mut idle_polls = 0u32;
    while !(l.stop && l.live.is_empty()) {
        if l.turn() {
            if idle_polls > SPIN_MIN {
                // Spinning paid: do it as long as it may take.
                l.spin_ns = (l.spin_ns * 2).min(core.config.spin_ns_max);
            }
            idle_polls = 0;
            continue;
        }
        idle_polls += 1;
        if idle_polls == 1 {
            l.last_work = now_ns();
        }
        if !idle_polls.is_multiple_of(SPIN_MIN) {
            std::hint::spin_loop();
            continue;
        }
        let idle_ns = now_ns().wrapping_sub(l.last_work);
        if idle_ns >= l.spin_ns {
            l.spin_ns = (l.spin_ns / 2).max(SPIN_NS_MIN.min(core.config.spin_ns_max));
            l.sleep();
            idle_polls = 0;
        } else if idle_ns >= SPIN_ALONE_NS {
            // Longer than a busy client takes between two commands: others may want the core more.
            std::thread::yield_now();
        }
    }
    Ok(())
}

impl<'d, F: Future<Output = ()>, M: Fn(Rc<Mail<OpCx<'d>, Done>>) -> F> Loop<'d, F, M> {
    /// Looks at everything once; false when there was nothing to do.
    fn turn(&mut self) -> bool {
        let mut worked = false;
        if self.me.inbox.has_mail() {
            self.read_mail();
            worked = true;
        }
        for at in 0..self.live.len() {
            // Serving may end queues, which shortens the list.
            let Some(&q) = self.live.get(at) else { break };
            worked |= self.serve(q);
        }
        if !self.paused.is_empty() {
            self.resume_due();
        }
        while let Some(entry) = self.policy.pick() {
            worked = true;
            self.run_slot(entry.token.0);
        }
        if !self.delayed.is_empty() {
            worked |= self.post_due();
        }
        if worked {
            self.publish_all();
            if self.ending {
                self.reap();
            }
        }
        worked
    }

    fn read_mail(&mut self) {
        let (policy, meta) = (&mut self.policy, &self.meta);
        let messages = self.me.inbox.collect(|slot| {
            // A late wake-up of an op that has ended finds nothing.
            if let Some(m) = meta[slot as usize] {
                policy.enqueue(Entry { tenant: m.tenant, inode: m.primary, token: Token(slot) });
            }
        });
        for message in messages {
            match message {
                Message::Queue(new) => self.add_queue(*new),
                Message::CloseSession(id) => self.close_session(id),
                Message::Stop => self.stop = true,
            }
        }
    }

    /// Lets the ops run again whose moment has come.
    fn resume_due(&mut self) {
        let now = now_ns();
        while let Some(Reverse((_, slot))) = self.paused.peek().copied().filter(|p| p.0.0 <= now) {
            self.paused.pop();
            // An op that was woken otherwise, and ended, left nobody here or somebody who looks and waits on.
            if let Some(m) = self.meta[slot as usize] {
                self.policy.enqueue(Entry { tenant: m.tenant, inode: m.primary, token: Token(slot) });
            }
        }
    }

    fn add_queue(&mut self, new: NewQueue) {
        let session = &new.state.session;
        let watchers = self.watched.entry(session.id).or_insert(0);
        *watchers += 1;
        if *watchers == 1 {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            if let Err(e) = epoll::add(&self.epoll, &*session.doorbell, epoll::EventData::new_u64(session.id), flags) {
                tracing::error!("cannot watch a doorbell: {e}");
            }
        }
        let closing = session.closing();
        let queue = Queue {
            bytes: new.memory.region().len() as u64,
            sq: SqConsumer::new(new.memory.clone()),
            cq: CqProducer::new(new.memory),
            state: new.state,
            admitting: None,
            in_flight: 0,
            posted: 0,
            drain: None,
        };
        let at = match self.queues.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                self.queues.push(None);
                self.queues.len() - 1
            }
        };
        self.queues[at] = Some(queue);
        self.live.push(at as u32);
        if closing {
            self.start_drain(at as u32);
        }
    }

    fn close_session(&mut self, id: u64) {
        for at in 0..self.queues.len() {
            if self.queues[at].as_ref().is_some_and(|q| q.state.session.id == id) {
                self.start_drain(at as u32);
            }
        }
    }

    /// What was published before the end is executed; what a lying index says is not believed.
    fn start_drain(&mut self, at: u32) {
        let Some(q) = self.queues[at as usize].as_mut() else { return };
        if q.drain.is_none() {
            q.drain = Some(q.sq.poll().unwrap_or(0));
        }
        self.ending = true;
    }

    /// Takes and starts up to a batch of commands from one queue.
    fn serve(&mut self, at: u32) -> bool {
        let Some(q) = self.queues[at as usize].as_mut() else { return false };
        if q.admitting.is_some() {
            return false;
        }
        let waiting = match (q.drain, q.sq.poll()) {
            (Some(left), Ok(n)) => left.min(n),
            (None, Ok(n)) => n,
            (_, Err(_)) => return self.fault(at),
        };
        let mut taken = 0;
        while taken < waiting.min(BATCH_PER_QUEUE) && self.slots.free() > 0 {
            let Some(q) = self.queues[at as usize].as_mut() else { break };
            if q.admitting.is_some() {
                break;
            }
            if q.drain.is_none() {
                match q.cq.reserve() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(_) => return self.fault(at),
                }
            }
            let Some(raw) = q.sq.take() else { break };
            if let Some(left) = &mut q.drain {
                *left -= 1;
            }
            taken += 1;
            self.start(at, &raw);
        }
        if let Some(q) = self.queues[at as usize].as_mut().filter(|_| taken > 0) {
            q.sq.release();
        }
        taken > 0
    }

    /// The client lied about an index: its session ends, without executing more of this queue.
    fn fault(&mut self, at: u32) -> bool {
        let Some(q) = self.queues[at as usize].as_mut() else { return false };
        if q.drain == Some(0) {
            return false;
        }
        q.drain = Some(0);
        self.ending = true;
        q.cq.close(Errno::PROTO);
        q.cq.wake();
        let id = q.state.session.id;
        // Once per session, so a liar cannot flood the log.
        tracing::warn!("session {id} ends: queue {} holds an impossible index", q.state.index);
        self.core.kill_session(id);
        true
    }

    fn start(&mut self, at: u32, raw: &RawCommand) {
        let Some(q) = self.queues[at as usize].as_mut() else { return };
        let now = now_ns();
        let state = &q.state;
        state.counters.opcode(raw.0.opcode);
        q.in_flight += 1;
        let mut meta = InSlot {
            queue: at,
            sequence: raw.0.sequence,
            arrived: now,
            first_run: now,
            process_ns: 0,
            primary: 0,
            tenant: state.session.tenant,
            fused: false,
        };
        let checked = if self.core.is_poisoned() { Err(Errno::IO) } else { validate(raw, &state.limits) };
        let cmd = match checked {
            Ok(cmd) => cmd,
            Err(errno) => return self.refuse(&meta, errno),
        };
        if planted(Canary::SqeReadTwice) && validate(&q.sq.again(), &state.limits).is_err() {
            // What was checked is not what would run: operands out of bounds, a panic at best.
            self.core.poison();
        }
        // The empty case of the queue: nothing to wait for, nothing to hold; counted like every other command.
        if let Some(done) = dataplane::immediate(&cmd).filter(|_| self.policy.is_empty()) {
            return self.complete(&meta, done);
        }
        meta.fused = cmd.op.opcode().spec().fused;
        let paths = match Paths::fetch(&cmd, &state.pool) {
            Ok(paths) => paths,
            Err(errno) => return self.refuse(&meta, errno),
        };
        let op = OpCx { core: self.core, thread: self.cx, queue: state.clone(), cmd, paths };
        let Some(slot) = self.slots.insert(op) else {
            return self.complete(&meta, dataplane::failed(Errno::NOMEM));
        };
        self.meta[slot as usize] = Some(meta);
        q.admitting = Some(slot);
        self.run_slot(slot);
    }

    fn refuse(&mut self, meta: &InSlot, errno: Errno) {
        if let Some(q) = &self.queues[meta.queue as usize] {
            q.state.counters.malformed.add(1);
        }
        self.complete(meta, dataplane::failed(errno));
    }

    /// Runs a slot's op until it waits or ends.
    fn run_slot(&mut self, slot: u32) {
        let Some(mut meta) = self.meta[slot as usize] else { return };
        self.cx.busy.set(!self.policy.is_empty());
        self.cx.yielded.set(false);
        self.cx.admitted.set(false);
        self.cx.primary.set(meta.primary);
        let begin = now_ns();
        let polled = catch_unwind(AssertUnwindSafe(|| self.slots.poll(slot)));
        let spent = now_ns().wrapping_sub(begin);
        if meta.process_ns == 0 {
            meta.first_run = begin;
        }
        meta.process_ns += spent.max(1);
        meta.primary = self.cx.primary.get();
        self.policy.account(meta.tenant, meta.primary, Cost { time_ns: spent, link_bytes: 0 });
        let outcome = match polled {
            Ok(Some(Poll::Ready(outcome))) => {
                self.slots.clear(slot);
                Some(outcome)
            }
            Ok(Some(Poll::Pending)) => None,
            Ok(None) => return,
            Err(_) => {
                self.core.poison();
                // What is left of the op gives back its tickets when dropped; that may panic once more.
                if catch_unwind(AssertUnwindSafe(|| self.slots.replace(slot))).is_err() {
                    tracing::error!("a slot is lost");
                }
                Some(dataplane::failed(Errno::IO))
            }
        };
        if let Some(q) = self.queues[meta.queue as usize].as_mut()
            && q.admitting == Some(slot)
            && (self.cx.admitted.get() || outcome.is_some())
        {
            q.admitting = None;
        }
        match outcome {
            None => {
                self.meta[slot as usize] = Some(meta);
                let pause = self.cx.pause.take();
                if pause != 0 {
                    self.paused.push(Reverse((pause, slot)));
                }
                if self.cx.yielded.get() {
                    self.policy.enqueue(Entry { tenant: meta.tenant, inode: meta.primary, token: Token(slot) });
                }
            }
            Some(outcome) => {
                self.meta[slot as usize] = None;
                self.complete(&meta, outcome);
            }
        }
    }

    /// Counts a command's end and posts its completion, now or when the profile says.
    fn complete(&mut self, meta: &InSlot, done: Done) {
        let Some(q) = self.queues[meta.queue as usize].as_mut() else { return };
        let c = &q.state.counters;
        let outcome = done.outcome;
        let (bytes_in, bytes_out) = (Sqe::SIZE as u64 + done.bytes_in, Cqe::SIZE as u64 + done.bytes_out);
        c.commands.add(1);
        c.errors.add(u64::from(outcome.status != 0));
        c.fused.add(u64::from(meta.fused));
        c.link_bytes_in.add(bytes_in);
        c.link_bytes_out.add(bytes_out);
        c.queue_ns.add(meta.first_run.saturating_sub(meta.arrived));
        c.process_ns.add(meta.process_ns);
        let cqe = outcome.to_cqe(meta.sequence);
        if self.core.modelled {
            let now = now_ns();
            let due = self.model.completion(meta.arrived, now, meta.process_ns, bytes_in, bytes_out);
            c.modelled_ns.add(due - now);
            self.delayed_order += 1;
            self.delayed.push(Delayed {
                due: Reverse(due),
                order: Reverse(self.delayed_order),
                queue: meta.queue,
                cqe: cqe.to_words(),
            });
            return;
        }
        self.post(meta.queue, &cqe);
    }

    fn post(&mut self, at: u32, cqe: &Cqe) {
        let Some(q) = self.queues[at as usize].as_mut() else { return };
        q.in_flight -= 1;
        // A command taken while draining has no slot reserved; its client is gone.
        if q.cq.reserved() > 0 {
            q.cq.post(cqe);
            q.posted += 1;
            if q.posted >= CQ_BATCH_MAX {
                publish(q);
            }
        }
    }

    fn post_due(&mut self) -> bool {
        let mut any = false;
        while self.delayed.peek().is_some_and(|d| d.due.0 <= now_ns()) {
            let Some(d) = self.delayed.pop() else { break };
            self.post(d.queue, &Cqe::from_words(d.cqe));
            any = true;
        }
        any
    }

    fn publish_all(&mut self) {
        for &at in &self.live {
            if let Some(q) = self.queues[at as usize].as_mut().filter(|q| q.posted > 0) {
                publish(q);
            }
        }
    }

    /// Drops the queues that have been drained.
    fn reap(&mut self) {
        let done = |q: &Option<Queue>| q.as_ref().is_some_and(|q| q.drain == Some(0) && q.in_flight == 0);
        while let Some(i) = self.live.iter().position(|&at| done(&self.queues[at as usize])) {
            let at = self.live.swap_remove(i);
            let Some(mut q) = self.queues[at as usize].take() else { continue };
            q.cq.close(Errno::NODEV);
            q.cq.wake();
            let session = q.state.session.clone();
            if let Some(n) = self.watched.get_mut(&session.id) {
                *n -= 1;
                if *n == 0 {
                    self.watched.remove(&session.id);
                    let _ = epoll::delete(&self.epoll, &*session.doorbell);
                }
            }
            self.me.queues.fetch_sub(1, Ordering::Relaxed);
            let (state, bytes) = (q.state.clone(), q.bytes);
            drop(q);
            session.queue_gone(&state, bytes);
        }
        self.ending = self.queues.iter().flatten().any(|q| q.drain.is_some());
    }

    /// The sleep protocol: announce on every ring and in the inbox, look once more, block.
    fn sleep(&mut self) {
        let mut work = false;
        self.unreaped = false;
        for &at in &self.live {
            if let Some(q) = self.queues[at as usize].as_mut() {
                q.sq.prepare_sleep();
            }
        }
        for &at in &self.live {
            if let Some(q) = self.queues[at as usize].as_mut().filter(|q| q.drain.is_none() && q.admitting.is_none()) {
                let waiting = q.sq.recheck().unwrap_or(true);
                let room = q.cq.free().unwrap_or(1) > 0;
                work |= waiting && room && self.slots.free() > 0;
                self.unreaped |= waiting && !room;
            }
        }
        if !work && self.me.inbox.prepare_sleep() {
            self.block();
            self.me.inbox.awake();
        }
        for &at in &self.live {
            if let Some(q) = self.queues[at as usize].as_mut() {
                q.sq.awake();
            }
        }
    }

    fn block(&mut self) {
        let journal = self.core.store.journal();
        journal.idle();
        if journal.next_deadline().is_some() {
            self.core.maintenance.note_volatile();
        }
        let due = self.delayed.peek().map(|d| d.due.0).into_iter().chain(self.paused.peek().map(|p| p.0.0)).min();
        let due = due.map(|at| at.saturating_sub(now_ns()));
        // A client that does not reap has no way to ring when it does: look again, less and less often.
        self.reap_wait_ns = if self.unreaped { (self.reap_wait_ns * 2).clamp(1 << 20, REAP_WAIT_NS_MAX) } else { 0 };
        let look = self.unreaped.then_some(self.reap_wait_ns);
        let timeout = due.into_iter().chain(look).min().map(|ns| rustix::event::Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        self.me.counters.sleeps.add(1);
        let n = epoll::wait(&self.epoll, &mut events, timeout.as_ref()).unwrap_or(0);
        self.me.counters.wakes.add(1);
        for e in &events[..n] {
            let id = e.data.u64();
            let mut rung = self.live.iter().filter_map(|&at| self.queues[at as usize].as_ref());
            if let Some(q) = rung.find(|q| id != 0 && q.state.session.id == id) {
                q.state.counters.doorbells.add(1);
            }
        }
    }
}

fn publish(q: &mut Queue) {
    q.posted = 0;
    // First the room, then the completion: who has seen a completion finds room for the next entry.
    q.sq.release();
    if q.cq.publish() {
        q.state.counters.client_wakes.add(1);
        q.cq.wake();
    }
}
