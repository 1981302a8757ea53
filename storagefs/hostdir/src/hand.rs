//! A thread that serves: it looks at the rings when it is its turn, and runs one command at a time on its own stack.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use rustix::fs::Mode;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use weldfs_ciscops::{Cqe, Errno, Outcome, Sqe};
use weldfs_waiting::Slice;

use super::core::Core;
use super::cost;
use super::long::Job;
use super::scratch::Scratch;
use super::sequence;
use super::session::QueueState;
use super::sys;
use super::work::{Done, Work};
use weldfs_session::clock::now_ns;
use weldfs_session::counters::CoreCounters;
use weldfs_store::cred::Cred;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Serves until the end.
pub(super) fn run(core: &Core, index: usize) {
    sys::no_signals();
    let mut hand = Hand {
        core,
        index,
        me: &core.workers[index],
        waker: Waker::from(Arc::new(Unpark(std::thread::current()))),
        scratch: Scratch::default(),
        acting: None,
        computed: false,
    };
    // Clients have applied their umask already. Where a thread may not have one of its own, it is the process's.
    if let Err(e) = sys::own_umask() {
        tracing::debug!("the umask of the whole process is cleared: {e}");
    }
    rustix::process::umask(Mode::empty());
    while let Some(job) = core.long.job() {
        match job {
            Job::Look => hand.look(),
            Job::Run(work) => {
                hand.serve_long(work);
                hand.give_back();
            }
        }
    }
}

/// What became of a command.
#[allow(clippy::large_enum_variant)] // lives for one call; a box would be an allocation for each slice
enum Served {
    /// It is over.
    Over,
    /// It is over; its completion is still to be published.
    Unpublished(Arc<QueueState>),
    /// There is more of it.
    Cut(Work),
}

struct Hand<'c> {
    core: &'c Core,
    index: usize,
    me: &'c CoreCounters,
    waker: Waker,
    scratch: Scratch,
    /// Whose rights this thread has; none: the process's own.
    acting: Option<Cred>,
    /// It has run a program that computes since it last gave memory back.
    computed: bool,
}

impl Hand<'_> {
    /// Looks at the rings and runs what is short, until it is to run a command that sleeps, or for good.
    fn look(&mut self) {
        let core = self.core;
        let mut lookout = core.lookout.lock();
        let looking = core.processors.look(&mut self.scratch.apart);
        let mut short = None;
        while let Some(work) = lookout.next(core, self.me) {
            let several = core.has_several();
            if short.is_some() != several {
                // Whatever else runs where it is woken, of the server or of a client, is not to be waited for. (Off
                // with the old one first: each gives back what it found.)
                drop(short.take());
                short = several.then(Slice::short);
            }
            let sleeps = cost::waits_for_the_host(core, &work);
            let long = sleeps || cost::may_take_long(&work);
            let elsewhere = sleeps || cost::is_endless(&work) || lookout.is_needed(&work);
            if !(long && core.long.spares_a_thread() && elsewhere) {
                if long {
                    lookout.publish();
                }
                match self.serve(work, true) {
                    Served::Over => {}
                    Served::Unpublished(queue) => lookout.note_dirty(&queue),
                    Served::Cut(work) if core.long.spares_a_thread() => core.long.give(work),
                    Served::Cut(work) => core.long.set_aside(work),
                }
                self.give_back();
            } else if !sleeps {
                lookout.publish();
                core.long.give(work);
            } else if let Some(work) = core.long.begin(work, || lookout.publish()) {
                drop((short.take(), looking, lookout));
                self.serve_long(work);
                return self.give_back();
            }
        }
        core.long.end();
    }

    /// Runs commands that take long, one slice after the other, as long as any of them wait for a thread.
    fn serve_long(&mut self, work: Work) {
        let mut next = Some(work);
        while let Some(work) = next.filter(|_| !self.core.is_poisoned()) {
            let client = work.client();
            let sleeps = cost::waits_for_the_host(self.core, &work);
            self.scratch.begin_long(self.core, &work, sleeps);
            let _long = (!sleeps && self.scratch.turn.is_none()).then(Slice::long);
            next = match self.serve(work, false) {
                Served::Cut(work) => self.core.long.again(work),
                Served::Over | Served::Unpublished(_) => self.core.long.over(client),
            };
        }
    }

    /// Runs a command, or a slice of one, and posts its completion. `looking`: no other looks at rings meanwhile, so
    /// others that follow may be published together with it.
    fn serve(&mut self, mut work: Work, looking: bool) -> Served {
        self.computed |= work.paths.program.as_ref().is_some_and(|program| program.computes().is_some());
        let now = now_ns();
        let fresh = work.begun == 0;
        if fresh {
            work.begun = now;
        }
        let (queue, waits) = (work.queue.clone(), self.scratch.waits);
        let before = (work.away || queue.pace.is_suspect()).then(sys::Usage::now);
        let done = match self.act_as(&work.queue.session.cred) {
            Ok(()) => wait(&self.waker, sequence::run(self.core, &work, &mut self.scratch)),
            Err(errno) => Some(Done::from(Outcome::failed(errno))),
        };
        self.scratch.turn = None;
        let took = now_ns().saturating_sub(now);
        self.me.busy_ns.add(took);
        let close = before.map(|before| {
            let (after, waits) = (sys::Usage::now(), self.scratch.waits.wrapping_sub(waits));
            (after.cpu_ns.saturating_sub(before.cpu_ns), after.sleeps - before.sleeps > u64::from(waits))
        });
        // How long the host takes to make something durable says nothing of the next one.
        if !done.as_ref().is_some_and(|done| done.synced) {
            if work.away
                && let Some((_, slept)) = close
            {
                queue.pace.note_sleep(slept);
            }
            let close = close.map(|(cpu_ns, slept)| if slept { took } else { cpu_ns });
            match &done {
                _ if !fresh || cost::is_large(&work) => {}
                Some(_) => queue.pace.note(took, close),
                // It turned out to be a long one, which the next one probably is, too.
                None => queue.pace.note(u64::MAX, Some(u64::MAX)),
            }
        }
        let Some(done) = done else {
            if fresh {
                queue.cut.fetch_add(1, Ordering::AcqRel);
            }
            return Served::Cut(work);
        };
        self.core.settle_mark(&queue, work.mark);
        if !fresh {
            queue.cut.fetch_sub(1, Ordering::AcqRel);
        }
        let more = self.complete(&work, done);
        if !fresh {
            // As in `Core::settle_mark`: whoever sleeps skipped this ring.
            fence(Ordering::SeqCst);
            if queue.is_worth_a_look() {
                self.core.inbox.ring();
            }
        }
        match (more, looking) {
            (true, true) => Served::Unpublished(queue),
            (true, false) => {
                queue.publish();
                Served::Over
            }
            (false, _) => Served::Over,
        }
    }

    /// Gives memory back that a thread's allocator keeps after what was large.
    fn give_back(&mut self) {
        if std::mem::take(&mut self.computed)
            && let Some(at_rest) = self.core.config.at_rest
        {
            at_rest();
        }
    }

    /// Takes on the rights of a session, where this process may: user, group and groups of this thread alone.
    fn act_as(&mut self, cred: &Cred) -> Result<(), Errno> {
        if !self.core.for_others || self.acting.as_ref() == Some(cred) {
            return Ok(());
        }
        // Something of it may have been done when a later part fails: then nothing is known for sure.
        self.acting = None;
        let id = |raw: u32| if raw == u32::MAX { Err(Errno::PERM) } else { Ok(raw) };
        let (uid, gid) = (Uid::from_raw(id(cred.uid)?), Gid::from_raw(id(cred.gid)?));
        let groups: Vec<Gid> = cred.groups.iter().filter(|g| **g != u32::MAX).map(|g| Gid::from_raw(*g)).collect();
        set_thread_res_uid(None, Uid::ROOT, None)?;
        set_thread_groups(&groups)?;
        set_thread_res_gid(None, gid, None)?;
        if uid != Uid::ROOT {
            set_thread_res_uid(None, uid, None)?;
        }
        self.acting = Some(cred.clone());
        Ok(())
    }

    /// Counts a command's end and posts its completion; true when that is still to be published.
    fn complete(&self, work: &Work, done: Done) -> bool {
        let (queue, now) = (&work.queue, now_ns());
        let (queue_ns, service_ns) = (work.begun.saturating_sub(work.seen), now.saturating_sub(work.begun));
        let mut ends = queue.pair.ends();
        let c = &queue.counters;
        c.opcode(work.cmd.op.opcode() as u16);
        c.commands.add(1);
        c.hinted(work.cmd.hints);
        c.errors.add(u64::from(done.outcome.status != 0));
        c.fused.add(u64::from(work.cmd.op.opcode().spec().fused));
        c.payload_copies.add(done.copies);
        c.payload_bytes_in.add(done.bytes_in);
        c.payload_bytes_out.add(done.bytes_out);
        c.metadata_copies.add(done.metadata);
        c.link_bytes_in.add(Sqe::SIZE as u64 + done.bytes_in + (work.paths.a.len() + work.paths.b.len()) as u64);
        c.link_bytes_out.add(Cqe::SIZE as u64 + done.bytes_out);
        c.queue_ns.add(queue_ns);
        c.service_ns.add(service_ns);
        c.process_ns.add(service_ns);
        c.durable_waits.add(u64::from(done.synced));
        queue.session.tenant.latency.record(self.index, queue_ns, service_ns);
        ends.post(&done.outcome.to_cqe(work.cmd.seq));
        if ends.is_draining() {
            // It may be over, or the next one may be taken.
            self.core.inbox.ring();
        }
        let more = queue.is_worth_a_look();
        let asleep = !more && ends.publish_asleep();
        queue.wake(ends, asleep);
        more
    }
}

/// Runs a future to its end on this thread, asleep while it waits.
fn wait<F: Future>(waker: &Waker, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
