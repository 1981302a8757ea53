//! Asynchronous submission: commands that are not waited for on the spot, on a queue pair of their own.
//!
//! A submission never waits; it gives a [`Pending`], or EAGAIN when the ring or the pool is full
//! ([`AsyncQueue::patient`] and [`AsyncQueue::persist`] wait instead). Completions are noticed in whichever way suits
//! the program:
//! * by polling or blocking: [`Pending::try_take`], [`Pending::wait`], [`AsyncQueue::reap`];
//! * by futures: a `Pending` is one, for any executor. Every poll reaps; the first one that must wait starts a thread
//!   of the library that sleeps on the queue and wakes the tasks, unless there is an eventfd;
//! * by callbacks: [`Pending::on_done`], run by whoever reaps (the program, or [`AsyncQueue::start_reaper`]'s thread);
//! * by an eventfd for epoll: [`AsyncQueue::eventfd`].
//!
//! The device wakes its client by a futex, which neither an executor nor epoll can wait for; hence the thread, one per
//! queue, made when first needed. It sleeps on the futex while commands are in flight and something waits for
//! them, and rests on a condition variable otherwise.
//!
//! Pool memory belongs to a command from submission to completion. Dropping a future, a buffer or the queue meanwhile
//! frees nothing that the device may still use.

mod buf;
mod core;
mod ops;
mod pending;
mod programs;
mod shared;
mod thread;

pub use buf::{Input, Place, QueueBuf, Refused, Space};
pub use ops::{Changed, Checked, On};
pub use pending::Pending;
pub use programs::{Ran, Rooms, Sent};

use self::core::{HOLDS_MAX, Hearer, Hold, Order, Watch};
use crate::buf::gather;
use crate::client::Client;
use shared::Shared;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use weldfs_ciscops::limits::QUEUE_DEPTH_MIN;
use weldfs_ciscops::{Command, Cqe, Durability, Errno, Hints, Op, PoolRange};

/// A completion, whatever its status says.
#[derive(Debug)]
pub struct Completed {
    /// What the device answered.
    pub cqe: Cqe,
    /// The room that the command had, all of it; how much is filled the results say.
    pub room: QueueBuf,
}

impl Completed {
    /// The completion if it succeeded, else its errno; the room goes back to the pool then.
    pub fn ok(self) -> Result<Completed, Errno> {
        self.cqe.ok()?;
        Ok(self)
    }
}

/// A completion for whoever reaps.
#[derive(Debug)]
pub struct Reaped {
    /// What [`Pending::listed`] marked it with.
    pub user: u64,
    /// Its sequence, see [`Pending::sequence`].
    pub sequence: u64,
    /// EIO when the device died while the command was in it.
    pub result: Result<Completed, Errno>,
}

/// Who is called when a command is done. One serves any number of commands, so that none needs memory of its own.
pub trait OnDone: Send + Sync {
    /// `user` is what [`Pending::on_done`] was given. EIO when the device died while the command was in it. No lock is
    /// held: it may submit, and may drop the last handle of its queue.
    fn done(&self, user: u64, result: Result<Completed, Errno>);
}

impl<F: Fn(u64, Result<Completed, Errno>) + Send + Sync> OnDone for F {
    fn done(&self, user: u64, result: Result<Completed, Errno>) {
        self(user, result);
    }
}

/// What a handle asks for every command.
#[derive(Debug, Clone, Copy, Default)]
struct Manner {
    durability: Durability,
    after_durable: bool,
    detectable: bool,
    hints: Hints,
}

/// A queue pair for commands that are not waited for on the spot; see the module's first page. Cheap to clone (clones
/// share it), `Send` and `Sync`: a submission or a poll takes one short lock, and allocates nothing.
///
/// Commands on one inode run in the order they were submitted to this queue; others run in any order. In a forked child
/// every call gives EBADF. After the device died, what was in flight completes with EIO within a second, later calls
/// give ENODEV. Dropping the last handle (clone, [`Pending`] or [`QueueBuf`]) gives the queue pair back to its
/// client; with commands in flight that takes up to half a second.
#[derive(Clone)]
pub struct AsyncQueue {
    shared: Arc<Shared>,
    manner: Manner,
}

impl Client {
    /// A queue pair for asynchronous use: at least `depth` commands in flight, at least `pool_bytes` bytes of buffers
    /// (both clipped to the device's limits). EMFILE when the device grants no more queue pairs, ENODEV.
    pub fn async_queue(&self, depth: u32, pool_bytes: u32) -> io::Result<AsyncQueue> {
        let session = self.session()?;
        let queue = session.lasting_queue(depth.max(QUEUE_DEPTH_MIN), pool_bytes)?;
        let shared = Arc::new(Shared::new(self.clone(), session, queue));
        let manner = Manner { durability: self.default_durability(), ..Manner::default() };
        Ok(AsyncQueue { shared, manner })
    }
}

impl AsyncQueue {
    /// The same queue where changes have this durability.
    pub fn durability(&self, durability: Durability) -> AsyncQueue {
        let manner = Manner { durability, ..self.manner };
        AsyncQueue { shared: self.shared.clone(), manner }
    }

    /// The same queue where commands complete only when everything they read is durable.
    pub fn after_durable(&self) -> AsyncQueue {
        let manner = Manner { after_durable: true, ..self.manner };
        AsyncQueue { shared: self.shared.clone(), manner }
    }

    /// The same queue where commands have these hints, which change no result.
    pub fn hints(&self, hints: Hints) -> AsyncQueue {
        let manner = Manner { hints, ..self.manner };
        AsyncQueue { shared: self.shared.clone(), manner }
    }

    /// The same queue where each command leaves its outcome, see [`Pending::id`] and [`Client::outcome`].
    pub fn detectable(&self) -> AsyncQueue {
        let manner = Manner { detectable: true, ..self.manner };
        AsyncQueue { shared: self.shared.clone(), manner }
    }

    /// The client it belongs to.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Commands that may be in flight or unanswered at a time.
    pub fn depth(&self) -> u32 {
        self.shared.depth
    }

    /// Bytes of its buffer pool.
    pub fn pool_bytes(&self) -> usize {
        self.shared.pool.len()
    }

    /// Commands submitted that have not been seen to complete.
    pub fn in_flight(&self) -> u32 {
        self.shared.with(|core, _| core.flying).unwrap_or(0)
    }

    /// A buffer of `len` bytes of its pool, holding anything. EAGAIN when there is no room now, ENOMEM when there never
    /// will be.
    pub fn buffer(&self, len: usize) -> Result<QueueBuf, Errno> {
        let range = self.shared.with(|core, _| core.alloc(len))??;
        Ok(QueueBuf::new(self.shared.clone(), range))
    }

    /// Makes submitted commands visible to the device, and wakes it if it sleeps. Every poll, wait and reap does that,
    /// too; so it is for callbacks, [`Pending::listed`] and dropped futures.
    pub fn flush(&self) -> Result<(), Errno> {
        self.shared.with(|core, _| core.queue.flush())
    }

    /// Flushes, and delivers at most `max` completions that are there: calls their callbacks, or `each` for the listed
    /// ones; wakes futures. With `wait` it blocks for the first of anything to complete (0 when nothing is in flight
    /// or the time is over). How many callbacks and listed completions it delivered. When it finds none, the eventfd
    /// stops being readable.
    pub fn reap(&self, max: usize, wait: Option<Duration>, mut each: impl FnMut(Reaped)) -> Result<usize, Errno> {
        self.shared.reap(max, wait, &mut each)
    }

    /// Starts the library's thread for this queue: it runs the callbacks and wakes futures while nothing else reaps.
    /// Listed completions stay for [`AsyncQueue::reap`]. EBUSY when there is an eventfd: then the program reaps.
    /// EAGAIN when there can be no more threads.
    pub fn start_reaper(&self) -> Result<(), Errno> {
        self.shared.watched_as(Watch::Reap)
    }

    /// A descriptor that is readable from when something completed until a [`AsyncQueue::reap`] found nothing, for
    /// epoll and its like: reap until nothing is left, then wait for it again (level- or edge-triggered). It may also
    /// be readable for nothing. From the first call on the library's thread only signals, and the program reaps: also
    /// for its futures. It is the queue's; do not close it. Errors: EMFILE, EAGAIN (no more threads).
    pub fn eventfd(&self) -> io::Result<BorrowedFd<'_>> {
        self.shared.eventfd()
    }

    /// Submits by `attempt`, and blocks for room while that gives EAGAIN. Room is made when a command completes, when
    /// its answer is taken, and when a buffer is dropped; whoever holds all of these waits for itself. EAGAIN all the
    /// same when no command is left that could make room: the pool is then in the hands of buffers.
    pub fn persist<T>(&self, mut attempt: impl FnMut(&AsyncQueue) -> Result<T, Errno>) -> Result<T, Errno> {
        loop {
            match attempt(self) {
                Err(Errno::AGAIN) => self.shared.block_for_room()?,
                done => return done,
            }
        }
    }

    /// Submits by `attempt`, and waits as a future for room while that gives EAGAIN. Errors as
    /// [`AsyncQueue::persist`].
    pub async fn patient<T>(&self, mut attempt: impl FnMut(&AsyncQueue) -> Result<T, Errno>) -> Result<T, Errno> {
        loop {
            match attempt(self) {
                Err(Errno::AGAIN) => {
                    self.shared.with(|core, _| core.has_room())?.unwrap_or(Ok(()))?;
                    pending::Room(self.shared.clone()).await?;
                }
                done => return done,
            }
        }
    }

    /// Blocks until nothing is in flight. Completions stay for whom they belong to. EIO when the device died with
    /// commands in it.
    pub fn drain(&self) -> Result<(), Errno> {
        self.shared
            .block_until(None, |core, _| (core.flying == 0).then_some(core.queue.is_dead()))
            .and_then(|dead| if dead { Err(Errno::IO) } else { Ok(()) })
    }

    /// EBADF in a forked child; takes no lock. For what keeps state of its own beside the queue.
    pub fn check(&self) -> Result<(), Errno> {
        self.shared.check()
    }

    /// Submits any operation: `build` makes it from where its inputs and its room lie in the pool. The completion comes
    /// back whatever its status says. Nothing is waited for: EAGAIN when the ring or the pool is full.
    ///
    /// # Safety
    /// The operation names no pool memory but the ranges that `build` is given and parts of them: the device writes to
    /// what a command names as room, and all other memory of the pool belongs to other commands or to buffers that
    /// the caller may be looking at.
    pub unsafe fn command<const I: usize>(
        &self,
        inputs: [Input<'_>; I],
        space: impl Into<Space>,
        build: impl FnOnce([PoolRange; I], PoolRange) -> Op,
    ) -> Result<Pending<Completed>, Refused> {
        self.start(inputs, space.into(), false, build, Ok)
    }

    /// The same with the answer in the operation's own terms. `opens`: its first result is a handle, to be closed if
    /// nothing takes the answer.
    fn start<T, const I: usize>(
        &self,
        inputs: [Input<'_>; I],
        space: Space,
        opens: bool,
        build: impl FnOnce([PoolRange; I], PoolRange) -> Op,
        finish: fn(Completed) -> Result<T, Errno>,
    ) -> Result<Pending<T>, Refused> {
        const { assert!(I < HOLDS_MAX) };
        let (mut given, mut lent) = (None, None);
        let wanted = match space {
            Space::Fresh(len) => len,
            Space::Buf(buf) => {
                given = Some(buf);
                0
            }
            Space::Place(place) => {
                lent = Some(place);
                0
            }
        };
        match self.send(&inputs, (wanted, lent), &mut given, opens, build) {
            Ok(sequence) => Ok(Pending::new(self.shared.clone(), sequence, finish)),
            Err(errno) => Err(Refused { errno, buf: given }),
        }
    }

    fn send<const I: usize>(
        &self,
        inputs: &[Input<'_>; I],
        (wanted, lent): (usize, Option<Place>),
        given: &mut Option<QueueBuf>,
        opens: bool,
        build: impl FnOnce([PoolRange; I], PoolRange) -> Op,
    ) -> Result<u64, Errno> {
        if self.shared.session.is_over() {
            return Err(Errno::NODEV);
        }
        let lent = lent.map(|place| self.place_range(place)).transpose()?;
        let room = match given {
            Some(buf) if !Arc::ptr_eq(buf.shared(), &self.shared) => return Err(Errno::INVAL),
            Some(buf) => Some(buf.whole()),
            None => None,
        };
        let sequence = self.shared.with(|core, _| {
            if room.is_some_and(|room| core.is_lent(room)) {
                return Err(Errno::BUSY);
            }
            let (mut holds, mut ranges) = ([Hold::None; HOLDS_MAX], [PoolRange::EMPTY; I]);
            let mut out = room.unwrap_or_default();
            let staged = (|| {
                for (i, input) in inputs.iter().enumerate() {
                    (holds[i], ranges[i]) = self.stage(core, input)?;
                }
                if room.is_none() {
                    out = core.alloc(wanted)?;
                }
                if let Some(range) = lent {
                    holds[I] = Hold::Lent(range);
                }
                let Manner { durability, after_durable, detectable, hints } = self.manner;
                let op = build(ranges, lent.unwrap_or(out));
                let mode = Default::default();
                let command = Command { durability, mode, after_durable, detectable, hints, ..Command::new(0, op) };
                core.submit(&command, Order { holds, out, opens }, Hearer::Future(None))
            })();
            staged.inspect_err(|_| {
                for hold in holds {
                    if let Hold::Owned(range) = hold {
                        core.queue.free(range);
                    }
                }
                if room.is_none() {
                    core.queue.free(out);
                }
            })
        })??;
        if let Some(buf) = given.take() {
            buf.surrender();
        }
        Ok(sequence)
    }

    fn stage(&self, core: &mut self::core::Core, input: &Input<'_>) -> Result<(Hold, PoolRange), Errno> {
        if let Input::Buf(buf, part) = input {
            if !Arc::ptr_eq(buf.shared(), &self.shared) {
                return Err(Errno::INVAL);
            }
            let range = buf.part(part)?;
            return Ok((Hold::Lent(range), range));
        }
        if let Input::Place(place) = input {
            let range = self.place_range(*place)?;
            return Ok((Hold::Lent(range), range));
        }
        let range = core.alloc(input.len())?;
        let bytes = self.shared.pool.slice(range)?;
        match input {
            Input::Bytes(from) => bytes.copy_from(from),
            Input::Gather(parts) => gather(parts, bytes),
            Input::Buf(..) | Input::Place(_) => {}
        }
        Ok((Hold::Owned(range), range))
    }

    fn place_range(&self, place: Place) -> Result<PoolRange, Errno> {
        if place.queue == self.shared.number { Ok(place.range) } else { Err(Errno::INVAL) }
    }

    /// The part of this queue's pool that lies at an address; `None` when it is not all in the pool. For callers that
    /// keep a buffer's address, as C does: they may name it as input or as room, and drop the buffer as ever.
    ///
    /// # Safety
    /// The bytes belong to a [`QueueBuf`] of the caller. While a command that names them as room is in flight, nothing
    /// uses the slices of [`QueueBuf::bytes`] and [`QueueBuf::bytes_mut`] that hold them; while one names them as
    /// input, nothing writes to them.
    pub unsafe fn place(&self, at: *const u8, len: usize) -> Option<Place> {
        self.check().ok()?;
        let pool = self.shared.pool.slice(PoolRange::EMPTY).ok()?.as_ptr() as usize;
        let off = (at as usize).checked_sub(pool)?;
        let inside = off.checked_add(len)? <= self.shared.pool.len();
        let range = PoolRange::new(u32::try_from(off).ok()?, u32::try_from(len).ok()?);
        inside.then_some(Place { queue: self.shared.number, range })
    }
}

impl std::fmt::Debug for AsyncQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AsyncQueue {{ index: {}, depth: {} }}", self.shared.index, self.shared.depth)
    }
}
