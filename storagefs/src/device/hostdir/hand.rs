//! A thread that serves: it looks at the rings when it is its turn, and runs one command at a time on its own stack.

use std::mem::MaybeUninit;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use rustix::fs::Mode;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use weldfs_ciscops::{Cqe, Errno, Outcome, Sqe};

use super::command::{self, Done};
use super::core::Core;
use super::lookout::Work;
use super::session::QueueState;
use super::sys;
use crate::cred::Cred;
use crate::device::clock::now_ns;
use crate::device::counters::CoreCounters;

/// Bytes in which payload that must be looked at goes through a thread's own memory.
pub(super) const PIECE: usize = 64 << 10;
/// Bytes of directory entries asked for in one call.
const ENTRIES: usize = 16 << 10;

/// A thread's own memory.
pub(super) struct Scratch {
    /// For payload and for values.
    pub piece: Box<[u8]>,
    /// For directory entries.
    pub entries: Box<[MaybeUninit<u8>]>,
}

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
        scratch: Scratch { piece: vec![0; PIECE].into_boxed_slice(), entries: Box::new_uninit_slice(ENTRIES) },
        acting: None,
    };
    // Clients have applied their umask already. Where a thread may not have one of its own, it is the process's.
    if let Err(e) = sys::own_umask() {
        tracing::debug!("the umask of the whole process is cleared: {e}");
    }
    rustix::process::umask(Mode::empty());
    let mut lookout = core.lookout.lock();
    while let Some(work) = lookout.next(core, hand.me) {
        if command::may_take_long(core, &work) && lookout.is_needed(&work) {
            lookout.publish();
            // Another thread looks from here on.
            drop(lookout);
            hand.serve(&work, false);
            lookout = core.lookout.lock();
        } else if hand.serve(&work, true) {
            lookout.note_dirty(&work.queue);
        }
    }
}

struct Hand<'c> {
    core: &'c Core,
    index: usize,
    me: &'c CoreCounters,
    waker: Waker,
    scratch: Scratch,
    /// Whose rights this thread has; none: the process's own.
    acting: Option<Cred>,
}

impl Hand<'_> {
    /// Runs a command and posts its completion; true when that is still to be published. `looking`: nobody else looks
    /// at rings meanwhile, so others that follow may be published together with it.
    fn serve(&mut self, work: &Work, looking: bool) -> bool {
        let begun = now_ns();
        let done = match self.act_as(&work.queue.session.cred) {
            Ok(()) => wait(&self.waker, command::run(self.core, work, &mut self.scratch)),
            Err(errno) => Done::from(Outcome::failed(errno)),
        };
        settle(self.core, &work.queue);
        let more = self.complete(work, done, begun);
        if more && !looking {
            let mut ends = work.queue.pair.ends();
            work.queue.counters.client_wakes.add(ends.publish());
        }
        more && looking
    }

    /// Takes on the rights of a session, where this process may: user, group and groups of this thread alone.
    fn act_as(&mut self, cred: &Cred) -> Result<(), Errno> {
        if !self.core.for_others || self.acting.as_ref() == Some(cred) {
            return Ok(());
        }
        // Something of it may have been done when a later part fails: then it is nobody's for sure.
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
    fn complete(&self, work: &Work, done: Done, begun: u64) -> bool {
        let (queue, now) = (&work.queue, now_ns());
        let (queue_ns, service_ns) = (begun.saturating_sub(work.seen), now.saturating_sub(begun));
        let mut ends = queue.pair.ends();
        let c = &queue.counters;
        c.opcode(work.cmd.op.opcode() as u16);
        c.commands.add(1);
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
        self.me.busy_ns.add(service_ns);
        ends.post(&done.outcome.to_cqe(work.cmd.seq));
        if ends.is_drained() {
            self.core.inbox.ring();
        }
        let more = queue.pair.is_worth_a_look();
        if !more {
            c.client_wakes.add(ends.publish());
        }
        more
    }
}

/// The command has its place among those of its inode, or is over: the next one of its ring may be taken.
pub(super) fn settle(core: &Core, queue: &QueueState) {
    if !queue.pair.is_admitting() {
        return;
    }
    queue.pair.settled();
    // Whoever sleeps skipped this ring because of the mark: its entries, too, are looked at after the mark is gone.
    fence(Ordering::SeqCst);
    if queue.pair.is_worth_a_look() {
        core.inbox.ring();
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
