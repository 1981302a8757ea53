//! The client: one attachment to a device, usable from every thread, surviving fork by attaching anew.

use crate::buf::PoolBuf;
use crate::channel::{self, Channel};
use crate::connector::{AttachOptions, Claimed, Connector, Placeholder, SessionInfo, Transport};
use crate::fork::PerProcess;
use crate::queue::Queue;
use crate::raw::Raw;
use crate::socket::SocketConnector;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weldfs_ciscops::attach::{Reply, Request};
use weldfs_ciscops::limits::{ATOMIC_WRITE_MAX, POOL_BYTES_MIN};
use weldfs_ciscops::{Durability, Errno, Handle};
use weldfs_locks::Mutex;

/// How a client attaches and how large its queue pairs are.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// What it states about itself.
    pub attach: AttachOptions,
    /// Commands in flight per queue pair; a power of two.
    pub depth: u32,
    /// Bytes of buffer pool of a thread's first queue pair. A call that needs more moves its thread to a queue pair
    /// of 4 MiB (or more), once.
    pub pool_bytes: u32,
    /// Permission bits cleared in the modes that [`Client`] and [`crate::Dir`] calls give new files; the raw layer
    /// applies none. `None` takes the process's umask as it is when the client is made.
    pub umask: Option<u32>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions { attach: AttachOptions::default(), depth: 64, pool_bytes: 256 << 10, umask: None }
    }
}

/// Bytes of pool of a queue pair for large operands: a full payload both ways, with paths.
const LARGE_POOL_BYTES: u32 = 4 << 20;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An attachment to a device. Cheap to clone (clones share it), `Send` and `Sync`; each thread gets a queue pair of
/// its own on first use. The session ends when the last clone, [`crate::File`] and [`crate::Dir`] are gone.
///
/// In a forked child the first call attaches anew, with the child's credentials; files opened before the fork belong
/// to the parent and give EBADF there. After the device died every call gives ENODEV until [`Client::reconnect`].
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    durability: Durability,
}

struct Inner {
    id: u64,
    connector: Arc<dyn Connector>,
    options: ClientOptions,
    umask: u32,
    sessions: PerProcess<Mutex<Option<Arc<Session>>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        channel::forget(self.id);
        if let Some(slot) = self.sessions.peek()
            && let Some(session) = slot.lock().take()
        {
            session.end();
        }
    }
}

impl Client {
    /// Attaches to the device that listens at `socket` (say `disk.img.sock`), as a member of the tenant whose token the
    /// environment holds, if it holds one ([`crate::TOKEN_VARIABLE`]), if the device is of whom it may be
    /// ([`SocketConnector::from_env`]). Errors as [`Connector::attach`].
    pub fn connect(socket: impl AsRef<Path>) -> io::Result<Client> {
        let options = ClientOptions { attach: AttachOptions::from_env()?, ..ClientOptions::default() };
        Client::with_options(Arc::new(SocketConnector::from_env(socket.as_ref())?), options)
    }

    /// Attaches through any connector, such as kernel-shim's embedded device.
    pub fn with(connector: Arc<dyn Connector>) -> io::Result<Client> {
        Client::with_options(connector, ClientOptions::default())
    }

    /// The same with options.
    pub fn with_options(connector: Arc<dyn Connector>, mut options: ClientOptions) -> io::Result<Client> {
        if options.attach.client_id == [0; 16] {
            getrandom::fill(&mut options.attach.client_id)
                .map_err(|e| io::Error::from_raw_os_error(e.raw_os_error().unwrap_or(Errno::IO.0)))?;
        }
        let umask = options.umask.unwrap_or_else(process_umask);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let inner = Inner { id, connector, options, umask, sessions: PerProcess::new() };
        let client = Client { inner: Arc::new(inner), durability: Durability::Default };
        client.session()?;
        Ok(client)
    }

    /// The same client where every changing call has this durability unless the call says otherwise.
    pub fn durability(&self, durability: Durability) -> Client {
        Client { inner: self.inner.clone(), durability }
    }

    /// Its 128-bit id: the one in [`AttachOptions`], or drawn at random. It stays the same over
    /// [`Client::reconnect`] and in forked children, and names the commands of [`Client::outcome`].
    pub fn id(&self) -> [u8; 16] {
        self.inner.options.attach.client_id
    }

    /// What the device said at attach.
    pub fn info(&self) -> io::Result<SessionInfo> {
        Ok(self.session()?.transport.info().clone())
    }

    /// The device's counters as one JSON object.
    pub fn stats_json(&self) -> io::Result<String> {
        self.stats_json_with(0)
    }

    /// The same with details: bits of [`weldfs_ciscops::attach::detail`].
    pub fn stats_json_with(&self, detail: u32) -> io::Result<String> {
        Ok(self.session()?.transport.stats_json(detail)?)
    }

    /// Starts recording what runs on the device's cores, at most `limit` slices, and in its FPGA slots, half as many
    /// spans. One recording at a time; it ends with [`Client::trace_stop`] or with this client's session. Errors: EPERM
    /// (only root and who runs the device may), EBUSY, EINVAL.
    pub fn trace_start(&self, limit: u32) -> io::Result<()> {
        self.session()?.transport.trace(Some(limit))?;
        Ok(())
    }

    /// Ends the recording and returns it, for [`weldfs_ciscops::trace::decode`]. EINVAL when this client started none.
    pub fn trace_stop(&self) -> io::Result<Vec<u8>> {
        Ok(self.session()?.transport.trace(None)?)
    }

    pub(crate) fn control(&self, request: &Request) -> Result<Reply, Errno> {
        self.session()?.transport.control(request)
    }

    /// The raw layer over this client.
    pub fn raw(&self) -> Raw<'_> {
        Raw::new(self, 0, self.durability)
    }

    /// A zero-copy buffer of `len` bytes for calls made by this thread. ENOMEM when the device grants no pool that
    /// large.
    pub fn buffer(&self, len: usize) -> io::Result<PoolBuf> {
        let wanted = u32::try_from(len).map_err(|_| Errno::NOMEM)?;
        let take = |need: usize| -> Result<PoolBuf, Errno> {
            let channel = self.channel(need)?;
            let range = channel.with(|queue| queue.alloc(wanted))??;
            Ok(PoolBuf::new(channel, range))
        };
        match take(0) {
            Err(Errno::NOMEM) => Ok(take(len.saturating_mul(2))?),
            done => Ok(done?),
        }
    }

    /// A queue pair of the caller's own, outside of the per-thread ones: for pipelining. EMFILE when the device
    /// grants no more. Dropped, it is kept for the next call of this kind: the device takes queue pairs back only with
    /// their session.
    pub fn queue(&self, depth: u32, pool_bytes: u32) -> io::Result<Queue> {
        Session::queue(&self.session()?, depth, pool_bytes)
    }

    /// Ends the session and attaches again (to a device that was restarted, for example). Files opened before give
    /// EBADF afterwards.
    pub fn reconnect(&self) -> io::Result<()> {
        let over = self.slot().lock().take();
        if let Some(session) = over {
            session.end();
        }
        channel::forget(self.inner.id);
        Ok(self.session().map(drop)?)
    }

    /// In a forked child: lets go of what belongs to the parent and attaches at once, instead of at the next call.
    /// Elsewhere it does nothing.
    pub fn reset_after_fork(&self) -> io::Result<()> {
        Ok(self.session().map(drop)?)
    }

    /// In a forked child that may never use the client: lets go of the parent's descriptors, so that the device notices
    /// the parent's end. Attaches to nothing. Elsewhere it does nothing.
    pub fn let_go_after_fork(&self) {
        self.slot();
    }

    pub(crate) fn umask(&self) -> u32 {
        self.inner.umask
    }

    /// Permission bits of a new file: `mode` less this client's umask, for calls of the raw layer.
    pub fn masked(&self, mode: u32) -> u32 {
        mode & 0o7777 & !self.inner.umask
    }

    pub(crate) fn default_durability(&self) -> Durability {
        self.durability
    }

    /// Bytes of the largest payload of one command.
    pub(crate) fn payload_max(&self) -> usize {
        ATOMIC_WRITE_MAX as usize
    }

    /// The number of the session that handles opened now belong to.
    pub(crate) fn epoch(&self) -> Result<u64, Errno> {
        match channel::cached(self.inner.id) {
            Some(channel) if !channel.session().is_over() => Ok(channel.session().epoch()),
            _ => self.session().map(|session| session.epoch()),
        }
    }

    pub(crate) fn share(&self, open: &[Handle]) -> Result<Vec<Placeholder>, Errno> {
        self.session()?.transport.share(open)
    }

    pub(crate) fn claim(&self, fd: BorrowedFd<'_>, anew: bool) -> Result<Claimed, Errno> {
        self.session()?.transport.claim(fd, anew)
    }

    /// Runs `f` on this thread's queue pair, which holds at least `pool_need` bytes of pool.
    #[inline]
    pub(crate) fn with_queue<R>(
        &self,
        epoch: u64,
        pool_need: usize,
        f: impl FnOnce(&mut Queue) -> R,
    ) -> Result<R, Errno> {
        let channel = self.channel(pool_need)?;
        channel.check(epoch)?;
        channel.with(f)
    }

    #[inline]
    fn channel(&self, pool_need: usize) -> Result<Rc<Channel>, Errno> {
        if let Some(channel) = channel::cached(self.inner.id)
            && channel.is_free(pool_need)
        {
            return Ok(channel);
        }
        self.fresh_channel(pool_need)
    }

    #[cold]
    fn fresh_channel(&self, pool_need: usize) -> Result<Rc<Channel>, Errno> {
        // A thread whose own channel is busy is a signal handler inside a call: it gets one for itself, not kept.
        let interrupted = channel::cached(self.inner.id).is_some_and(|channel| channel.is_busy());
        let session = self.session()?;
        if interrupted && session.transport.is_inside() {
            // What it interrupted may hold the very locks that a queue pair takes to be made.
            return Err(Errno::BUSY);
        }
        let pool_bytes = match pool_need {
            0 => self.inner.options.pool_bytes as usize,
            need => need.max(LARGE_POOL_BYTES as usize).next_power_of_two(),
        };
        let pool_bytes = u32::try_from(pool_bytes).map_err(|_| Errno::NOMEM)?;
        let channel = Rc::new(Session::channel(&session, self.inner.options.depth, pool_bytes, pool_need)?);
        if !interrupted {
            channel::keep(self.inner.id, channel.clone());
        }
        Ok(channel)
    }

    fn slot(&self) -> &Mutex<Option<Arc<Session>>> {
        self.inner.sessions.get(|parent| {
            // In a child: the parent's lock may be frozen, so it is only tried.
            if let Some(mut slot) = parent.and_then(|slot| slot.try_lock())
                && let Some(session) = slot.take()
            {
                session.transport.abandon();
                std::mem::forget(session);
            }
            Mutex::new(None)
        })
    }

    pub(crate) fn session(&self) -> Result<Arc<Session>, Errno> {
        let mut slot = self.slot().lock();
        if let Some(session) = &*slot {
            return Ok(session.clone());
        }
        let transport = self.inner.connector.attach(&self.inner.options.attach).map_err(errno_of)?;
        let session = Arc::new(Session::new(Arc::from(transport)));
        *slot = Some(session.clone());
        Ok(session)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.inner.id)
    }
}

fn errno_of(error: io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(Errno::IO.0))
}

/// The process's umask, read without changing it even for a moment.
fn process_umask() -> u32 {
    const CUSTOMARY: u32 = 0o022;
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return CUSTOMARY };
    let field = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    field.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(CUSTOMARY)
}

/// One attached session of this process and the queue pairs it owns.
pub(crate) struct Session {
    epoch: u64,
    transport: Arc<dyn Transport>,
    idle: Mutex<Vec<Queue>>,
    /// Those that programs asked for by themselves and dropped. Never a thread's own: it may still hold the pool.
    dropped: Mutex<Vec<Queue>>,
    shared: Mutex<Option<Queue>>,
    made: AtomicU64,
    over: AtomicBool,
}

impl Session {
    fn new(transport: Arc<dyn Transport>) -> Session {
        static EPOCHS: AtomicU64 = AtomicU64::new(1);
        Session {
            epoch: EPOCHS.fetch_add(1, Ordering::Relaxed),
            transport,
            idle: Mutex::new(Vec::new()),
            dropped: Mutex::new(Vec::new()),
            shared: Mutex::new(None),
            made: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.transport.detach();
    }

    /// A queue pair for one thread: an idle one, a new one, or (the device's limit reached) a turn at the shared one.
    fn channel(session: &Arc<Session>, depth: u32, pool_bytes: u32, pool_need: usize) -> Result<Channel, Errno> {
        let idle = {
            let mut idle = session.idle.lock();
            idle.iter().position(|queue| queue.pool().len() >= pool_need).map(|at| idle.swap_remove(at))
        };
        if let Some(queue) = idle {
            return Ok(Channel::own(session.clone(), queue));
        }
        let limits = session.transport.info().limits;
        let pool_bytes = pool_bytes.min(limits.pool_bytes_max);
        if pool_need > pool_bytes as usize {
            return Err(Errno::NOMEM);
        }
        let own_max = u64::from(limits.queues_max).saturating_sub(1);
        if session.claim(own_max) {
            match session.make_claimed(depth.min(limits.queue_depth_max), pool_bytes).map_err(errno_of) {
                Ok(queue) => return Ok(Channel::own(session.clone(), queue)),
                Err(Errno::MFILE | Errno::NOMEM) => {}
                Err(e) => return Err(e),
            }
        }
        let mut shared = session.shared.lock();
        if shared.is_none() {
            let large = LARGE_POOL_BYTES.min(limits.pool_bytes_max);
            *shared = Some(session.make(depth.min(limits.queue_depth_max), large).map_err(errno_of)?);
        }
        let pool = shared.as_ref().map(|queue| queue.pool().clone()).ok_or(Errno::NOMEM)?;
        Ok(Channel::shared(session.clone(), pool))
    }

    /// Counts a queue pair that is about to be asked for, unless there are `max`: threads that ask at the same moment
    /// never ask for more than that together.
    fn claim(&self, max: u64) -> bool {
        let one_more = |made| (made < max).then_some(made + 1);
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Makes what was claimed, or gives the claim back.
    fn make_claimed(&self, depth: u32, pool_bytes: u32) -> io::Result<Queue> {
        let parts = self.transport.new_queue(depth, pool_bytes).inspect_err(|_| {
            self.made.fetch_sub(1, Ordering::Relaxed);
        })?;
        Ok(Queue::new(parts, self.transport.clone())?)
    }

    /// Makes one beside the limit: the shared one, and those that a program asks for by itself.
    fn make(&self, depth: u32, pool_bytes: u32) -> io::Result<Queue> {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.make_claimed(depth, pool_bytes)
    }

    /// One that a program asks for by itself: of those it dropped one of this size, or a new one, or, where the device
    /// grants no more, the smallest of the larger ones that it dropped.
    fn queue(session: &Arc<Session>, depth: u32, pool_bytes: u32) -> io::Result<Queue> {
        let kept = |exact: bool| {
            let fits = |len: usize| len == pool_bytes as usize || !exact && len > pool_bytes as usize;
            let mut dropped = session.dropped.lock();
            dropped.retain(|queue| !queue.is_dead());
            let good = |q: &mut Queue| q.depth() == depth && fits(q.pool().len()) && q.is_at_rest();
            let mut fitting =
                dropped.iter_mut().enumerate().filter_map(|(at, q)| good(q).then(|| (q.pool().len(), at)));
            let best = if exact { fitting.next() } else { fitting.min() };
            best.map(|(_, at)| dropped.swap_remove(at))
        };
        let queue = match kept(true) {
            Some(queue) => queue,
            None => session.make(depth, pool_bytes).or_else(|e| match e.raw_os_error().map(Errno) {
                Some(Errno::MFILE | Errno::NOMEM) => kept(false).ok_or(e),
                _ => Err(e),
            })?,
        };
        Ok(Queue::of(session, queue))
    }

    /// Keeps a queue pair that a program dropped.
    pub(crate) fn keep(&self, queue: Queue) {
        if !queue.is_dead() && !self.is_over() {
            self.dropped.lock().push(queue);
        }
    }

    /// One to be kept for long, by whoever gives it back: an idle one that is large enough, or a new one.
    pub(crate) fn lasting_queue(&self, depth: u32, pool_bytes: u32) -> io::Result<Queue> {
        let limits = self.transport.info().limits;
        let depth = depth.checked_next_power_of_two().map_or(limits.queue_depth_max, |d| d.min(limits.queue_depth_max));
        let pool_bytes = pool_bytes.clamp(1, limits.pool_bytes_max).next_multiple_of(POOL_BYTES_MIN);
        let fits = |queue: &Queue| queue.depth() == depth && queue.pool().len() >= pool_bytes as usize;
        let idle = {
            let mut idle = self.idle.lock();
            idle.iter().position(fits).map(|at| idle.swap_remove(at))
        };
        match idle {
            Some(queue) => Ok(queue),
            None => self.make(depth, pool_bytes),
        }
    }

    pub(crate) fn with_shared<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> Result<R, Errno> {
        self.shared.lock().as_mut().map(f).ok_or(Errno::NOMEM)
    }

    /// Takes a queue pair back from a thread that no longer needs it.
    pub(crate) fn check_in(&self, queue: Queue) {
        if queue.is_ours() && !queue.is_dead() && !self.is_over() && queue.in_flight() == 0 {
            self.idle.lock().push(queue);
        }
    }
}
