//! The way of bytes through a kernel: a slot's session, what is on its way in, what was given last.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use weldfs_ciscops::limits::VIRT_AGAIN_MAX;
use weldfs_ciscops::{ChecksumState, Direction, Errno, VirtSpec};
use weldfs_fpga::config::{Want, WhenFull};
use weldfs_fpga::kernel::Fault;
use weldfs_fpga::lend::Rest;
use weldfs_fpga::session::{Pulled, Session};
use weldfs_fpga::status::Usage;
use weldfs_scheduler::Cost;

use super::super::lost;
use super::super::opcx::OpCx;
use weldfs_fs::SLICE_BYTES;
use weldfs_session::clock::now_ns;
use weldfs_session::tenants::{Resource, Tenant};

/// Bytes that are pushed at a time, and read of a real file under one ticket.
pub(super) const PIECE_BYTES: u64 = 4 * SLICE_BYTES;
/// While a command waits for a slot or a kernel, it looks so often whether its client is still there, nanoseconds.
const LOOK_NS: u64 = 50_000_000;
/// A stream that no one reads for so long gives its slot to who waits for one. It can begin anew.
const IDLE_READ: Duration = Duration::from_millis(100);
/// A stream that no one writes to for so long gives its slot to who waits for one. That is its end.
const IDLE_WRITE: Duration = Duration::from_secs(2);
/// A stream that is read has its slot for so long before another tenant of the same weight may have it.
const TURN: Duration = Duration::from_secs(1);
/// Output pulled at a time that was given before, bytes.
const SKIP_BYTES: u64 = 1 << 20;

/// Input on its way into the kernel.
type Pushing = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// What came of waiting for the kernel.
pub(super) enum Event {
    /// It has what was pushed: there is room for more.
    Taken,
    /// It made something, or is at the end.
    Made(Pulled),
}

/// A stream. Whoever changes it has the description's turn.
pub(super) struct Stream {
    kernel: String,
    params: Vec<u32>,
    when_full: WhenFull,
    /// It is written: it cannot begin anew.
    keeps: bool,
    session: Option<Arc<Session>>,
    /// The memory of its FIFOs.
    held: Option<Fifos>,
    pushing: Option<Pushing>,
    /// Why the last of it was not taken.
    refused: Option<Errno>,
    /// Slot time that has been charged.
    charged: Usage,
    /// Bytes given to the reader, or taken from the writer, since the stream began.
    position: u64,
    /// The last of those given.
    again: Vec<u8>,
    /// CRC-32C of all bytes given.
    sum: u32,
    /// Of a stream that was begun anew: bytes to come that were given before, and the CRC-32C of those that came.
    skip: u64,
    skip_sum: u32,
    /// Input that it had taken when its slot went to others, bytes.
    replayed: u64,
    /// The input has ended; all of the output has been pulled.
    pub ended: bool,
    pub drained: bool,
    /// Why it cannot be gone on with.
    pub failed: Option<Errno>,
    /// The next input: which part, and where in the real file.
    pub part: usize,
    pub at: u64,
    /// Of a stream that is written: bytes that have got to the real file, and those that have not.
    pub wrote: u64,
    pub made: Vec<u8>,
}

impl Stream {
    /// At the beginning, without a slot.
    pub fn new(spec: &VirtSpec, nonblock: bool) -> Stream {
        Stream {
            kernel: spec.kernel.clone(),
            params: spec.params.clone(),
            when_full: if nonblock { WhenFull::Busy } else { WhenFull::Wait },
            keeps: spec.direction != Direction::Read,
            session: None,
            held: None,
            pushing: None,
            refused: None,
            charged: Usage::default(),
            position: 0,
            again: Vec::new(),
            sum: 0,
            skip: 0,
            skip_sum: 0,
            replayed: 0,
            ended: false,
            drained: false,
            failed: None,
            part: 0,
            at: 0,
            wrote: 0,
            made: Vec::new(),
        }
    }

    /// Parameters for the next stream. EBUSY while one is under way.
    pub fn set_params(&mut self, params: Vec<u32>) -> Result<(), Errno> {
        if self.session.is_some() || self.position > 0 && !self.ended {
            return Err(Errno::BUSY);
        }
        self.params = params;
        Ok(())
    }

    /// Back to the beginning: the slot is given back.
    pub fn rewind(&mut self) {
        self.release_slot();
        (self.position, self.part, self.at) = (0, 0, 0);
        (self.ended, self.drained, self.failed) = (false, false, None);
        (self.sum, self.skip, self.skip_sum, self.replayed) = (0, 0, 0, 0);
        self.again.clear();
    }

    /// No command works on it for now: its slot may go to others.
    pub fn rest(&self, idle: Duration, turn: Option<Duration>) {
        if let Some(session) = &self.session {
            session.rest(Rest { idle, turn });
        }
    }

    /// As [`Stream::rest`], of one that is read.
    pub fn rest_from_reading(&self) {
        // What it had to do again is done again, and as much on top: so that taking turns does not keep it from its
        // end.
        let worth = self.skip == 0 && self.charged.bytes_in >= 2 * self.replayed;
        self.rest(IDLE_READ, worth.then_some(TURN));
    }

    /// As [`Stream::rest`], of one that is written.
    pub fn rest_from_writing(&self) {
        self.rest(IDLE_WRITE, None);
    }

    /// A command works on it again. False where its slot has gone to others.
    pub fn resume(&mut self, cx: &OpCx<'_>) -> bool {
        let Some(session) = self.session.clone() else { return true };
        let ours = session.resume();
        if !ours {
            self.charge(cx, &session);
        }
        ours
    }

    /// Begins anew, to go on where it was: what was given before is made again, and passed over.
    pub fn begin_again(&mut self, cx: &OpCx<'_>) {
        cx.queue.counters.virtual_replays.add(1);
        self.replayed = self.charged.bytes_in;
        self.release();
        (self.part, self.at) = (0, 0);
        (self.skip, self.skip_sum) = (self.position, 0);
    }

    /// At most so many bytes are of use now.
    pub fn wants(&self, room: usize) -> usize {
        if self.skip > 0 { self.skip.min(SKIP_BYTES) as usize } else { room }
    }

    /// What of the kernel's output the reader has not got yet.
    ///
    /// # Errors
    /// ESTALE: what was given before is not what the kernel makes now.
    pub fn fresh<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Errno> {
        if self.skip == 0 {
            return Ok(bytes);
        }
        let (old, new) = bytes.split_at(self.skip.min(bytes.len() as u64) as usize);
        self.skip_sum = append(self.skip_sum, old);
        self.skip -= old.len() as u64;
        let short = self.skip > 0 && self.drained;
        let other = self.skip == 0 && self.skip_sum != self.sum;
        if short || other { Err(Errno::STALE) } else { Ok(new) }
    }

    /// The slot is given back, and a later packet begins anew.
    pub fn release(&mut self) {
        self.release_slot();
        (self.ended, self.drained) = (false, false);
    }

    /// The slot is given back; what was given last can be read again.
    pub fn release_slot(&mut self) {
        (self.session, self.held, self.pushing, self.refused) = (None, None, None, None);
    }

    /// Whether a packet has begun.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Bytes given or taken so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether reading can go on at this offset.
    pub fn can_give(&self, at: u64) -> bool {
        at == 0 || at <= self.position && self.position - at <= self.again.len() as u64
    }

    /// Bytes that were given before, from this offset on.
    pub fn given(&self, at: u64) -> &[u8] {
        let back = self.position.checked_sub(at).filter(|n| *n <= self.again.len() as u64);
        back.map_or(&[], |n| &self.again[self.again.len() - n as usize..])
    }

    /// The reader has got these.
    pub fn give(&mut self, bytes: &[u8]) {
        self.position += bytes.len() as u64;
        self.sum = append(self.sum, bytes);
        let keep = &bytes[bytes.len().saturating_sub(VIRT_AGAIN_MAX)..];
        let old = (self.again.len() + keep.len()).saturating_sub(VIRT_AGAIN_MAX);
        self.again.drain(..old);
        self.again.extend_from_slice(keep);
    }

    /// The writer has handed over so many.
    pub fn took(&mut self, bytes: u64) {
        self.position += bytes;
    }

    /// The kernel's slot, opened at the first use; the tenant holds its FIFOs as pool memory as long as it has it.
    ///
    /// # Errors
    /// Those of the card, ENOMEM, EINTR.
    pub async fn session(&mut self, cx: &OpCx<'_>) -> Result<Arc<Session>, Errno> {
        if let Some(session) = &self.session {
            return Ok(session.clone());
        }
        let tenant = &cx.queue.tenant;
        let mut held = Fifos::take(cx)?;
        let want = Want {
            kernel: self.kernel.clone(),
            params: self.params.clone(),
            tenant: tenant.id.0.into(),
            weight: tenant.weight(),
            when_full: self.when_full,
            keeps: self.keeps,
        };
        let opened = while_there(cx, cx.core.card.open(want)).await?;
        let session = opened.inspect_err(|e| lost::note_opening(tenant, &self.kernel, e)).map_err(|e| e.errno())?;
        let session = Arc::new(session);
        held.fit(session.fifo_bytes())?;
        cx.queue.counters.slot_packets.add(1);
        (self.charged, self.held) = (Usage::default(), Some(held));
        Ok(self.session.insert(session).clone())
    }

    /// Begins to push input; `eop` says that there is no more. Only when nothing is on its way.
    pub async fn push(&mut self, cx: &OpCx<'_>, bytes: Vec<u8>, eop: bool) -> Result<(), Errno> {
        let session = self.session(cx).await?;
        self.ended = eop;
        self.refused = None;
        self.pushing = Some(Box::pin(async move { session.push(bytes, eop).await }));
        Ok(())
    }

    /// Whether input is on its way: no more can be pushed.
    pub fn is_pushing(&self) -> bool {
        self.pushing.is_some()
    }

    /// Why the kernel took nothing of what was pushed last, if that is so.
    pub fn refused(&self) -> Result<(), Errno> {
        self.refused.map_or(Ok(()), Err)
    }

    /// Waits until the kernel has taken what is on its way, or has made something: at most `max` bytes of it. One that
    /// has failed is an error once all that it made before has been given.
    pub async fn next(&mut self, cx: &OpCx<'_>, max: usize) -> Result<Event, Errno> {
        let session = self.session(cx).await?;
        let mut pull = pin!(session.pull(max));
        let made = poll_fn(|task| {
            if let Some(push) = &mut self.pushing
                && let Poll::Ready(taken) = push.as_mut().poll(task)
            {
                self.pushing = None;
                match taken {
                    Ok(()) => return Poll::Ready(Ok(Event::Taken)),
                    Err(fault) => self.refused = Some(fault.errno()),
                }
            }
            pull.as_mut().poll(task).map_ok(Event::Made)
        });
        let event = while_there(cx, made).await;
        self.charge(cx, &session);
        let event = event?.map_err(|fault| {
            lost::note(&cx.queue.tenant, &self.kernel, Some(session.slot()), &fault);
            fault.errno()
        })?;
        if let Event::Made(Pulled { eop: true, .. }) = event {
            self.drained = true;
        }
        Ok(event)
    }

    /// Charges the tenant for slot time that has been used since the last look, as time of a core is.
    fn charge(&mut self, cx: &OpCx<'_>, session: &Session) {
        let (now, before, counters) = (session.usage(), self.charged, &cx.queue.counters);
        let slot_ns = now.slot_ns.saturating_sub(before.slot_ns);
        counters.slot_ns.add(slot_ns);
        counters.slot_bytes_in.add(now.bytes_in.saturating_sub(before.bytes_in));
        counters.slot_bytes_out.add(now.bytes_out.saturating_sub(before.bytes_out));
        if slot_ns > 0 {
            let inode = cx.slot.primary.load(Ordering::Relaxed);
            let cost = Cost { time_ns: slot_ns, lender: None, weight: cx.cmd.hints.priority.weight() };
            cx.core.board.runq.account(cx.queue.tenant.id, inode, cost);
        }
        self.charged = now;
    }
}

/// CRC-32C of what `sum` is of, and `bytes` behind it.
fn append(sum: u32, bytes: &[u8]) -> u32 {
    let mut state = ChecksumState::resume(sum, 0);
    state.update(bytes);
    state.value()
}

/// Memory of a kernel's two FIFOs, of a piece on its way, and of what can be read again. It is not waited for: whoever
/// would wait for it may have a slot that those wait for who have the memory.
struct Fifos {
    tenant: Arc<Tenant>,
    bytes: u64,
}

impl Fifos {
    fn take(cx: &OpCx<'_>) -> Result<Fifos, Errno> {
        let mut none = Fifos { tenant: cx.queue.tenant.clone(), bytes: 0 };
        none.fit(cx.core.card.fifo_bytes())?;
        Ok(none)
    }

    /// Those of FIFOs of so many bytes: what a session has may be more or less than what was to be expected, where
    /// credits have changed meanwhile.
    fn fit(&mut self, fifo: usize) -> Result<(), Errno> {
        let bytes = 2 * fifo as u64 + PIECE_BYTES + VIRT_AGAIN_MAX as u64;
        if bytes > self.bytes && !self.tenant.take(Resource::PoolBytes, bytes - self.bytes) {
            return Err(Errno::NOMEM);
        }
        self.tenant.give(Resource::PoolBytes, self.bytes.saturating_sub(bytes));
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Fifos {
    fn drop(&mut self) {
        self.tenant.give(Resource::PoolBytes, self.bytes);
    }
}

/// Awaits what may take as long as others like, as long as the client is there. EINTR.
async fn while_there<T>(cx: &OpCx<'_>, what: impl Future<Output = T>) -> Result<T, Errno> {
    let mut what = pin!(what);
    poll_fn(|task| {
        if let Poll::Ready(done) = what.as_mut().poll(task) {
            return Poll::Ready(Ok(done));
        }
        if cx.queue.session.closing() {
            return Poll::Ready(Err(Errno::INTR));
        }
        cx.slot.pause.store(now_ns() + LOOK_NS, Ordering::Relaxed);
        Poll::Pending
    })
    .await
}
