//! The part of an asynchronous queue that its handles share: the lock around its core, how a thread waits for a
//! completion, and the thread that watches while nothing else does.
//!
//! The device wakes one sleeper per queue pair, so one thread at a time sleeps on the ring's futex (without the lock);
//! others that wait follow it on a condition variable, and one of them takes its place when it leaves.

use super::core::{Core, Due, Wakes, Watch};
use super::thread::{Park, spawn_quiet};
use super::{Completed, QueueBuf, Reaped};
use crate::client::{Client, Session};
use crate::fork;
use crate::queue::Queue;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use weldfs_ciscops::limits::CLIENT_SLEEP_MS_MAX;
use weldfs_ciscops::ring::{QueueMemory, RingMemory, Sleep, Word};
use weldfs_ciscops::{Command, Errno, Op, SharedRegion};
use weldfs_locks::{Condvar, Mutex, MutexGuard};

/// Longest sleep before the device's health is looked at.
pub(super) const NAP: Duration = Duration::from_millis(CLIENT_SLEEP_MS_MAX);

pub(super) struct Shared {
    /// Always there; taken out by `drop` alone.
    core: Mutex<Option<Core>>,
    landed: Condvar,
    memory: QueueMemory,
    pub(super) pool: SharedRegion,
    pub(super) client: Client,
    pub(super) session: Arc<Session>,
    pub(super) index: u32,
    /// Different for every queue of this process.
    pub(super) number: u64,
    pub(super) depth: u32,
    generation: u32,
    park: OnceLock<Arc<Park>>,
    event: OnceLock<OwnedFd>,
}

/// A core under its lock.
pub(super) struct Locked<'s>(MutexGuard<'s, Option<Core>>);

impl std::ops::Deref for Locked<'_> {
    type Target = Core;
    fn deref(&self) -> &Core {
        self.0.as_ref().expect("the core is there until the queue is dropped")
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        self.0.as_mut().expect("the core is there until the queue is dropped")
    }
}

/// What a thread that waits does next.
enum Step {
    Again,
    Follow,
    Sleep(u32),
}

/// What the watching thread does next.
pub(super) enum Next {
    /// Look again.
    Again,
    /// Rest until it is asked.
    Rest,
    /// Sleep on the futex while the tail holds this value.
    Sleep(u32),
}

impl Shared {
    pub(super) fn new(client: Client, session: Arc<Session>, mut queue: Queue) -> Shared {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // A thread that waits looks at the completion ring.
        queue.keep_to_the_ring();
        Shared {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            landed: Condvar::new(),
            memory: queue.completions().memory().clone(),
            pool: queue.pool().clone(),
            client,
            session,
            index: queue.index(),
            depth: queue.depth(),
            generation: fork::generation(),
            park: OnceLock::new(),
            event: OnceLock::new(),
            core: Mutex::new(Some(Core::new(queue))),
        }
    }

    /// Whether this process made it; a forked child may not touch it.
    pub(super) fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// EBADF in a forked child.
    pub(super) fn check(&self) -> Result<(), Errno> {
        if self.is_ours() { Ok(()) } else { Err(Errno::BADF) }
    }

    /// EBADF in a forked child, where the lock may be frozen and the memory is not mapped.
    fn lock(&self) -> Result<Locked<'_>, Errno> {
        self.check()?;
        Ok(Locked(self.core.lock()))
    }

    /// Runs `f` under the lock; then wakes whom it said to, and asks the watching thread where it is needed.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Core, &mut Wakes) -> R) -> Result<R, Errno> {
        let mut wakes = Wakes::new();
        let mut core = self.lock()?;
        let before = core.counts();
        let done = f(&mut core, &mut wakes);
        self.leave(core, wakes, before);
        Ok(done)
    }

    fn leave(&self, core: Locked<'_>, wakes: Wakes, before: (u64, u64)) {
        if core.followers > 0 && core.counts() != before {
            self.landed.notify_all();
        }
        // A thread that waits for room may be the one that sleeps; if it is only about to, it naps for nothing.
        if core.blocked > 0 && core.sleeper && core.freed != before.1 {
            self.memory.rouse();
        }
        let ask = !core.sleeper && core.wants_watch();
        drop(core);
        for waker in wakes {
            waker.wake();
        }
        if ask && let Some(park) = self.park.get() {
            park.ask();
        }
    }

    /// Waits until `f`, asked under the lock after everything that completed has landed, has an answer. ETIMEDOUT when
    /// the deadline passes first. While nothing is in flight nothing wakes it: `f` must then have an answer.
    pub(super) fn block_until<R>(
        &self,
        deadline: Option<Instant>,
        mut f: impl FnMut(&mut Core, &mut Wakes) -> Option<R>,
    ) -> Result<R, Errno> {
        let (mut spun, mut slept) = (false, None);
        loop {
            let mut wakes = Wakes::new();
            let mut core = self.lock()?;
            let before = core.counts();
            core.queue.flush();
            let more = core.land(&mut wakes);
            if let Some(answer) = f(&mut core, &mut wakes) {
                if let Some(start) = slept {
                    core.queue.spin().slept(Instant::elapsed(&start));
                }
                self.step_down(&core);
                self.leave(core, wakes, before);
                return Ok(answer);
            }
            if more || !wakes.is_empty() {
                self.leave(core, wakes, before);
                continue;
            }
            let left = deadline.map_or(NAP, |end| end.saturating_duration_since(Instant::now()).min(NAP));
            if left.is_zero() {
                self.step_down(&core);
                self.leave(core, wakes, before);
                return Err(Errno::TIMEDOUT);
            }
            if !std::mem::replace(&mut spun, true) {
                self.spin(core, left);
                slept = Some(Instant::now());
                continue;
            }
            self.pause(core, left);
        }
    }

    /// Blocks until there may be room. Errors as [`Core::has_room`].
    pub(super) fn block_for_room(&self) -> Result<(), Errno> {
        self.with(|core, _| core.blocked += 1)?;
        let room = self.block_until(None, |core, _| core.has_room());
        self.with(|core, _| core.blocked -= 1)?;
        room?
    }

    /// Spins without the lock until something completes.
    fn spin(&self, mut core: Locked<'_>, most: Duration) {
        let (mut spin, taken) = (*core.queue.spin(), core.queue.completions().taken());
        drop(core);
        let end = Instant::now() + most;
        spin.run(|| self.memory.load(Word::CqTail, Ordering::Acquire) != taken || Instant::now() >= end);
    }

    /// Sleeps until something may have completed: on the futex, or behind the thread that does.
    fn pause(&self, mut core: Locked<'_>, most: Duration) {
        // With nothing in flight, the ring has nothing to say: only another thread can.
        let step = match core.sleeper || core.flying == 0 {
            true => Step::Follow,
            false => match core.queue.completions().prepare_sleep() {
                Sleep::Ready => Step::Again,
                Sleep::On(tail) => Step::Sleep(tail),
            },
        };
        match step {
            Step::Again => {}
            Step::Follow => {
                core.followers += 1;
                self.landed.wait_for(&mut core.0, most);
                core.followers -= 1;
            }
            Step::Sleep(tail) => {
                core.sleeper = true;
                drop(core);
                self.memory.sleep_on(tail, most);
                self.woke(&mut Locked(self.core.lock()));
            }
        }
    }

    fn woke(&self, core: &mut Locked<'_>) {
        core.sleeper = false;
        core.queue.completions().awake();
    }

    /// A thread that waited is done: another one takes over.
    fn step_down(&self, core: &Core) {
        if core.followers > 0 && !core.sleeper {
            self.landed.notify_all();
        }
    }

    /// Delivers at most `max` completions that are there; waits for the first up to `wait`. How many it delivered.
    pub(super) fn reap(
        self: &Arc<Self>,
        max: usize,
        wait: Option<Duration>,
        each: &mut dyn FnMut(Reaped),
    ) -> Result<usize, Errno> {
        let mut count = self.deliver(max, each)?;
        let Some(wait) = wait else { return Ok(count) };
        if count == 0 && max > 0 {
            let mut start = None;
            let more = self.block_until(Instant::now().checked_add(wait), |core, _| {
                let landings = *start.get_or_insert(core.landings);
                (core.has_due() || core.flying == 0 || core.landings != landings).then_some(())
            });
            match more {
                Ok(()) | Err(Errno::TIMEDOUT) => count = self.deliver(max, each)?,
                Err(e) => return Err(e),
            }
        }
        Ok(count)
    }

    fn deliver(self: &Arc<Self>, max: usize, each: &mut dyn FnMut(Reaped)) -> Result<usize, Errno> {
        let mut count = 0;
        while count < max {
            let (due, more) = self.with(|core, wakes| {
                core.queue.flush();
                let more = core.land(wakes);
                let due = core.due();
                if due.is_some() {
                    core.made_room(wakes);
                } else if !more && count == 0 {
                    self.calm(core);
                }
                (due, more)
            })?;
            match due {
                Some(due) => {
                    count += 1;
                    self.hand_out(due, each);
                }
                None if more => {}
                None => break,
            }
        }
        Ok(count)
    }

    fn hand_out(self: &Arc<Self>, due: Due, each: &mut dyn FnMut(Reaped)) {
        match due {
            Due::Call(target, user, result) => target.done(user, self.complete(result)),
            Due::List(sequence, user, result) => each(Reaped { user, sequence, result: self.complete(result) }),
        }
    }

    pub(super) fn complete(
        self: &Arc<Self>,
        result: Result<(weldfs_ciscops::Cqe, weldfs_ciscops::PoolRange), Errno>,
    ) -> Result<Completed, Errno> {
        super::core::completed(result, |range| QueueBuf::new(self.clone(), range))
    }

    /// Nothing waits: the eventfd is no longer readable, and the watching thread goes back to its watch.
    fn calm(&self, core: &mut Core) {
        if std::mem::take(&mut core.signalled)
            && let Some(event) = self.event.get()
        {
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
    }

    /// Makes the eventfd readable.
    fn signal(&self, core: &mut Core) {
        if let Some(event) = self.event.get()
            && !std::mem::replace(&mut core.signalled, true)
        {
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// The eventfd, made at the first call together with the thread that makes it readable.
    pub(super) fn eventfd(self: &Arc<Self>) -> io::Result<BorrowedFd<'_>> {
        self.check()?;
        if self.event.get().is_none() {
            let fresh = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // A thread that was faster keeps its own.
            let _ = self.event.set(fresh);
        }
        self.watched_as(Watch::Signal)?;
        Ok(self.event.get().ok_or(Errno::BADF)?.as_fd())
    }

    /// Has the thread watch from now on. An eventfd stays what completions are signalled by: EBUSY.
    pub(super) fn watched_as(self: &Arc<Self>, watch: Watch) -> Result<(), Errno> {
        self.check()?;
        if self.park.get().is_none() {
            let park = Arc::new(Park::default());
            let (weak, memory, theirs) = (Arc::downgrade(self), self.memory.clone(), park.clone());
            // First the thread: a park without one would be asked for ever, and nothing would come.
            spawn_quiet("weldfs-reaper", move || attend(&weak, &theirs, &memory))?;
            if let Err(second) = self.park.set(park) {
                // Another was faster; this one's thread has not been asked for anything, and leaves.
                second.stop(|| {});
            }
        }
        self.with(|core, _| match core.watch {
            Watch::Signal if watch == Watch::Reap => Err(Errno::BUSY),
            _ => {
                core.watch = watch;
                Ok(())
            }
        })?
    }

    /// One look of the watching thread.
    fn watch(self: &Arc<Self>, slept: bool) -> Next {
        let mut wakes = Wakes::new();
        let Ok(mut core) = self.lock() else { return Next::Rest };
        if slept {
            self.woke(&mut core);
        }
        let before = core.counts();
        if core.watch == Watch::Signal {
            let waits = core.queue.has_completions() || core.has_due() || core.queue.look_after(slept);
            if waits {
                self.signal(&mut core);
            }
            // Whoever blocks meanwhile sees to the ring itself.
            self.step_down(&core);
        } else {
            let more = core.land(&mut wakes);
            let due = core.due_call();
            if due.is_some() {
                core.made_room(&mut wakes);
            }
            if more || due.is_some() || !wakes.is_empty() {
                self.leave(core, wakes, before);
                if let Some(due) = due {
                    // A callback that panics has said so on stderr; the others are still to be called.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.hand_out(due, &mut |_| {})));
                }
                return Next::Again;
            }
            self.step_down(&core);
        }
        if core.sleeper || !core.wants_watch() {
            return Next::Rest;
        }
        match core.queue.completions().prepare_sleep() {
            Sleep::Ready => Next::Again,
            Sleep::On(tail) => {
                core.sleeper = true;
                Next::Sleep(tail)
            }
        }
    }
}

/// The watching thread: rests while nothing is in flight, else sleeps until the device completes something.
fn attend(shared: &Weak<Shared>, park: &Park, memory: &QueueMemory) {
    while park.rest() {
        let mut slept = false;
        loop {
            let slept_before = std::mem::take(&mut slept);
            // The queue is not held beyond this statement: if its last handle goes meanwhile, it is this thread that
            // ends it, and that waits for a watcher that says it is asleep.
            let Some(next) = shared.upgrade().map(|queue| queue.watch(slept_before)) else { return };
            match next {
                Next::Again => {}
                Next::Rest => break,
                Next::Sleep(tail) => {
                    slept = true;
                    if !park.asleep(true) {
                        return;
                    }
                    memory.sleep_on(tail, NAP);
                    park.asleep(false);
                }
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_ours() {
            // The parent's: neither its lock nor its memory is for us. A thread that was not copied may have been
            // inside the core, and its wakers are of executors that are not here; the session is the parent's to end.
            std::mem::forget(self.core.get_mut().take());
            std::mem::forget(self.session.clone());
            std::mem::forget(self.pool.clone());
            std::mem::forget(self.memory.clone());
            return;
        }
        if let Some(park) = self.park.get() {
            park.stop(|| self.memory.rouse());
        }
        let Some(mut core) = self.core.get_mut().take() else { return };
        // Commands in flight whose futures were dropped: their queue pair is of use again once they are done.
        let (mut wakes, end) = (Wakes::new(), Instant::now() + NAP);
        core.queue.flush();
        while core.land(&mut wakes) || (core.flying > 0 && Instant::now() < end && core.queue.nap(end)) {}
        let strays = core.strays();
        if let Some(mut queue) = core.into_queue() {
            for h in strays {
                // A dead device has closed it already.
                let _ = queue.execute(&Command::new(0, Op::Close { h }));
            }
            self.session.check_in(queue);
        }
    }
}
