//! A core of the device: polls its queue pairs, runs ops slice by slice, posts completions, sleeps in one call.
//!
//! One turn: mail, commands from the rings, one slice of whatever the run queue says is next, completions that are due.
//! A command that is found alone, with nothing runnable, runs at once: the run queue is not touched, and nothing is
//! charged, because nothing waited.
//!
//! * this file: the cores' start and end, their turns and their mail;
//! * `answers`: commands that are over where they are taken; `intake`: from the rings into slots;
//! * `slices`: what runs, and who is charged; `ends`: completions; `rest`: sleep.

mod answers;
mod ends;
mod intake;
mod rest;
mod seated;
mod slices;

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::task::Poll;

use rustix::event::epoll;
use weldfs_ciscops::limits::ATOMIC_WRITE_MAX;
use weldfs_ciscops::sqe::flags;
use weldfs_ciscops::trace::{Slice, slice_end, slice_flag};
use weldfs_ciscops::{Command, Cqe, Errno, Handle, Opcode, Paths, Priority, RawCommand, Sqe, validate};
use weldfs_journal::canary::{Canary, planted};
use weldfs_locks::MutexGuard;
use weldfs_scheduler::{Cost, TenantId};
use weldfs_waiting::{Crowd, Spinning, crowd};

use super::core::{Core, ThreadState};
use super::departed;
use super::done::Done;
use super::due::{Delayed, Due};
use super::mail::Mail;
use super::message::Message;
use super::model::{Took, collect, collected};
use super::near::near;
use super::opcx::{self, OpCx};
use super::rtc;
use super::runq::CostModel;
use super::serve;
use super::session::QueueState;
use super::slice::{Measured, Meter};
use super::slots::Slots;
use crate::limits::{
    BATCH_PER_QUEUE, GATED_NAP_NS, GATED_SPIN_NS, PUBLISH_BYTES, PUBLISH_NS, REAP_WAIT_NS_MAX, SLOTS_AT_HAND,
    SPIN_ALONE_NS, SPIN_MIN, SPIN_NS_MIN, SWEEP_LOOKS_MAX, SWEEP_MAX, SWEEP_VAIN_MAX, VAIN_LOOK_NS,
};
use weldfs_session::clock::now_ns;
use weldfs_session::counters::{QueueCounters, SliceExtra, count_slice};
use weldfs_session::pair::{Ends, Fresh, Taken};
use weldfs_session::processors::keep_to_part;

/// What the cores note about the command in a slot.
pub(super) struct Notes {
    queue: Arc<QueueState>,
    sequence: u64,
    opcode: u16,
    /// When its entry was seen in the ring, and when it was taken from there.
    seen: u64,
    arrived: u64,
    /// Start of the first slice; 0 before it.
    first_run: u64,
    /// Time on the emulated core.
    device_ns: u64,
    /// When the emulated medium has done what it asked for; 0: nothing.
    media: u64,
    fused: bool,
    /// Among the commands of its tenant.
    priority: Priority,
    /// Its first slice was past the run queue.
    uncontended: bool,
    /// Bytes for which the tenant has it in its account; `None` when it is not in there: its session was ending.
    admitted: Option<u64>,
    /// It did not decode: there is nothing to run, only this to answer, when it is its tenant's turn.
    refused: Option<Errno>,
}

/// One slice.
struct Ran {
    begin: u64,
    spent: Measured,
    /// From the run queue.
    picked: bool,
    /// In whose place, if in another tenant's.
    lender: Option<TenantId>,
    /// The one before was on another core.
    migrated: bool,
    /// The command is over.
    over: bool,
}

type OpSlots<'d, F, M> = Slots<OpCx<'d>, Done, F, M, Notes>;

struct Loop<'s, 'd, F, M> {
    core: &'d Core,
    me: &'d ThreadState,
    index: usize,
    slots: &'s OpSlots<'d, F, M>,
    /// Queue pairs whose home this core is, and the one to look at next.
    queues: Vec<Arc<QueueState>>,
    next: usize,
    /// The last look at them found commands of several tenants: whichever is served makes another wait.
    crowded: bool,
    /// All queue pairs of the device, as of a version of the list.
    all: (u64, Vec<Arc<QueueState>>),
    next_other: usize,
    /// Pairs with completions that are posted and not published.
    dirty: Vec<Arc<QueueState>>,
    /// When the first of them was posted.
    dirty_since: u64,
    /// Nanoseconds that commands took which were over where they were taken, since the last look at all rings.
    spells_ns: Cell<u64>,
    /// Session, pair and sequence of a command that was called past its ring and given up.
    given_up: Cell<Option<(u64, u32, u64)>>,
    /// The pair that the last slice was for, while others wait.
    again: Option<Arc<QueueState>>,
    /// The command that was found alone.
    direct: Option<u32>,
    /// Free slots at hand.
    at_hand: Vec<u32>,
    epoll: Arc<OwnedFd>,
    watched: HashMap<u64, usize>,
    delayed: Due<Delayed>,
    /// Slots whose op waits for a moment.
    paused: Due<u32>,
    meter: Meter,
    /// Until then the emulated core is busy with what the host's has done already.
    busy_until: u64,
    stop: bool,
    /// The device is out of service.
    abandoned: bool,
    last_work: u64,
    /// Looks for work without having any, and the board knows.
    looking: bool,
    spin_ns: u64,
    /// Counted among those that spin.
    spinning: Option<Spinning<'static>>,
    /// Queue pairs that had a command since the last sleep, by their number modulo 64.
    served: u64,
    /// Some queue holds commands but its completion ring is full.
    unreaped: bool,
    /// Some queue is draining.
    ending: bool,
    reap_wait_ns: u64,
    /// Slices run and sessions ended here, and how many they were when it gave back what it had freed.
    worked: u64,
    gave_back: u64,
    /// The sleep announced is a nap; and how much was done when one was announced last.
    naps: bool,
    napped: u64,
    quiet: rest::Quiet,
    /// It has announced that it sleeps, and callers do its turns.
    asleep: bool,
    /// A caller has rung for its own thread since.
    rung: bool,
    /// When it wakes by itself, if it does.
    wakes_at: Option<u64>,
}

/// Runs all cores of a device: this thread is the first of them. `ready` is told whether all of them could start.
pub(super) fn run(core: &Core, ready: &mpsc::Sender<std::io::Result<()>>) {
    drive(core, ready, serve::serve);
}

fn drive<'d, F, M>(core: &'d Core, ready: &mpsc::Sender<std::io::Result<()>>, make: M)
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    let slots = Slots::new(&core.board, make);
    std::thread::scope(|scope| {
        let mut started = Ok(());
        for index in 1..core.threads.len() {
            let slots = &slots;
            let named = std::thread::Builder::new().name(format!("weld-dev-{index}"));
            if let Err(e) = named.spawn_scoped(scope, move || guarded(core, index, slots)) {
                started = Err(e);
                break;
            }
        }
        let failed = started.is_err();
        // Whoever started the device may have gone; then it ends soon, too.
        let _ = ready.send(started);
        if failed {
            core.broadcast(|| Message::Stop);
        }
        guarded(core, 0, &slots);
    });
    // The futures of an abandoned device are dropped in the middle of their work.
    if core.is_abandoned() && catch_unwind(AssertUnwindSafe(|| drop(slots))).is_err() {
        tracing::error!("not everything that commands held was given back");
    }
}

/// Runs the one core of a device on the calling thread, which has it do a turn whenever it likes. At the end all
/// sessions end, as when a device is shut down.
pub(super) fn here<R>(core: &Core, body: impl FnOnce(&mut dyn FnMut() -> bool) -> R) -> std::io::Result<R> {
    let slots = Slots::new(&core.board, serve::serve);
    let mut here = Loop::new(core, 0, &slots)?;
    let done = body(&mut || here.turn());
    core.refuse_and_close();
    core.broadcast(|| Message::Stop);
    here.run();
    Ok(done)
}

/// A core that panics outside an operation, or cannot run, takes the device with it.
fn guarded<'d, F, M>(core: &'d Core, index: usize, slots: &OpSlots<'d, F, M>)
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    match catch_unwind(AssertUnwindSafe(|| {
        // All clients wait for it: whatever else runs where it is woken, of the server or of a client, does not come
        // first.
        let _short = weldfs_waiting::Slice::short();
        // It counts the processors that the process may use, not those of this core.
        crowd();
        keep_to_part(index, core.threads.len());
        Loop::new(core, index, slots).map(|mut l| if core.is_inline() { seated::run(l) } else { l.run() })
    })) {
        Ok(Ok(())) => {}
        Ok(Err(e)) => {
            tracing::error!("core {index} cannot run: {e}");
            core.abandon();
        }
        Err(_) => core.abandon(),
    }
}

impl<'s, 'd, F, M> Loop<'s, 'd, F, M>
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    fn new(core: &'d Core, index: usize, slots: &'s OpSlots<'d, F, M>) -> std::io::Result<Self> {
        let me = &core.threads[index];
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered and never read: every write is an edge, so no wake-up can be stolen or lost.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, me.inbox.bell(), epoll::EventData::new_u64(0), flags)?;
        let now = now_ns();
        Ok(Loop {
            core,
            me,
            index,
            slots,
            queues: Vec::new(),
            next: 0,
            crowded: false,
            all: (0, Vec::new()),
            next_other: 0,
            dirty: Vec::new(),
            dirty_since: 0,
            spells_ns: Cell::new(0),
            given_up: Cell::new(None),
            again: None,
            direct: None,
            at_hand: Vec::with_capacity(SLOTS_AT_HAND),
            epoll: Arc::new(epoll),
            watched: HashMap::new(),
            delayed: Due::default(),
            paused: Due::default(),
            meter: Meter::new(now, core.emulated.stretch()),
            busy_until: 0,
            stop: false,
            abandoned: false,
            last_work: now,
            looking: false,
            spin_ns: core.config.spin_ns_max,
            spinning: None,
            served: 0,
            unreaped: false,
            ending: false,
            reap_wait_ns: 0,
            worked: 1,
            gave_back: 0,
            naps: false,
            napped: 0,
            quiet: rest::Quiet::new(now),
            asleep: false,
            rung: false,
            wakes_at: None,
        })
    }

    fn run(&mut self) {
        let mut idle_polls = 0u32;
        while !(self.abandoned || self.stop && self.queues.is_empty()) {
            if self.turn() {
                self.look_out(false);
                if idle_polls > SPIN_MIN {
                    // Spinning paid: do it as long as it may take.
                    self.spin_ns = (self.spin_ns * 2).min(self.core.config.spin_ns_max);
                }
                idle_polls = 0;
                continue;
            }
            idle_polls += 1;
            if idle_polls == 1 {
                self.look_out(true);
                self.last_work = now_ns();
            }
            if !idle_polls.is_multiple_of(SPIN_MIN) {
                std::hint::spin_loop();
                continue;
            }
            let idle_ns = now_ns().wrapping_sub(self.last_work);
            let crowded = idle_polls == SPIN_MIN && self.is_crowded();
            if crowded || idle_ns >= self.spin_ns {
                if !crowded {
                    self.spin_ns = (self.spin_ns / 2).max(SPIN_NS_MIN.min(self.core.config.spin_ns_max));
                }
                self.look_out(false);
                self.sleep();
                self.served = 0;
                idle_polls = 0;
            } else if idle_ns >= SPIN_ALONE_NS {
                // Longer than a busy client takes between two commands: others may want the core more.
                let before = now_ns();
                self.rest(std::thread::yield_now);
                crowd().missed(now_ns().wrapping_sub(before));
            }
        }
        self.look_out(false);
    }

    /// Says on the board whether this core looks for work without having any.
    fn look_out(&mut self, yes: bool) {
        if std::mem::replace(&mut self.looking, yes) != yes {
            self.core.board.spin(yes);
            self.spinning = yes.then(|| crowd().spin());
        }
    }

    /// Whether others than this device and its clients want the host's processors: then it does not spin.
    fn is_crowded(&self) -> bool {
        let crowd: &Crowd = crowd();
        crowd.expect(self.served.count_ones().max(1));
        crowd.is_there()
    }

    /// Looks at everything once; false when there was nothing to do.
    fn turn(&mut self) -> bool {
        let mut worked = false;
        if self.me.inbox.has_mail() {
            self.read_mail();
            worked = true;
        }
        while let Some(slot) = self.paused.next(now_ns) {
            self.core.board.wake(slot);
        }
        worked |= self.look_again() | self.sweep();
        if self.is_gated() {
            worked |= self.nap();
        } else {
            worked |= self.dispatch();
        }
        while let Some(d) = self.delayed.next(now_ns) {
            self.post(d.queue, &Cqe::from_words(d.cqe));
            worked = true;
        }
        if !self.dirty.is_empty() && now_ns().saturating_sub(self.dirty_since) > PUBLISH_NS {
            self.publish();
        }
        if !worked {
            self.publish();
            worked = self.core.board.is_shared() && self.sweep_others();
        }
        // Also where nothing was done: a client may have taken back what was waited for.
        if self.ending {
            self.reap();
        }
        worked
    }

    fn read_mail(&mut self) {
        let messages = self.me.inbox.collect();
        // After that: a note that comes now is mail again.
        if self.all.0 != self.core.queues_version() {
            self.all = (0, Vec::new());
        }
        for message in messages {
            match message {
                Message::GiveBack => {
                    // One that has work to do does so by itself when it has rested.
                    if self.gave_back == self.worked {
                        self.give_back();
                    }
                    continue;
                }
                Message::Queue(new) => self.add_queue(new),
                Message::CloseSession(id) => {
                    for q in self.queues.iter().filter(|q| q.session.id == id) {
                        q.pair.ends().start_drain();
                        self.ending = true;
                    }
                }
                Message::Stop => self.stop = true,
                Message::Abandon => self.abandoned = true,
                #[cfg(test)]
                Message::Panic => panic!("as asked for"),
            }
            self.worked += 1;
        }
    }

    fn add_queue(&mut self, new: Arc<QueueState>) {
        let session = &new.session;
        let watchers = self.watched.entry(session.id).or_insert(0);
        *watchers += 1;
        if *watchers == 1 {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            if let Err(e) = epoll::add(&self.epoll, &*session.doorbell, epoll::EventData::new_u64(session.id), flags) {
                tracing::error!("cannot watch a doorbell: {e}");
            }
        }
        if session.closing() {
            new.pair.ends().start_drain();
            self.ending = true;
        }
        self.queues.push(new);
    }
}

#[cfg(test)]
mod tests;
