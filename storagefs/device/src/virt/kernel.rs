//! The way of bytes through a kernel: its slot is opened, input pushed, output waited for, slot time charged.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use weldfs_ciscops::Errno;
use weldfs_fpga::config::Want;
use weldfs_fpga::session::{Pulled, Session};
use weldfs_fpga::status::Usage;
use weldfs_scheduler::Cost;

use super::super::lost;
use super::super::opcx::OpCx;
use super::super::stream::{Fifos, Stream};
use weldfs_session::clock::now_ns;

/// While a command waits for a slot or a kernel, it looks so often whether its client is still there, nanoseconds.
const LOOK_NS: u64 = 50_000_000;

/// What came of waiting for the kernel.
pub(super) enum Event {
    /// It has what was pushed: there is room for more.
    Taken,
    /// It made something, or is at the end.
    Made(Pulled),
}

impl Stream {
    /// A command works on it again. False where its slot has gone to others.
    pub(super) fn resume(&mut self, cx: &OpCx<'_>) -> bool {
        let Some(session) = self.session.clone() else { return true };
        let ours = session.resume();
        if !ours {
            self.charge(cx, &session);
        }
        ours
    }

    /// As [`Stream::replay`], counted.
    pub(super) fn begin_again(&mut self, cx: &OpCx<'_>) {
        cx.queue.counters.virtual_replays.add(1);
        self.replay();
    }

    /// The kernel's slot, opened at the first use; the tenant holds its FIFOs as pool memory as long as it has it.
    ///
    /// # Errors
    /// Those of the card, ENOMEM, EINTR.
    pub(super) async fn session(&mut self, cx: &OpCx<'_>) -> Result<Arc<Session>, Errno> {
        if let Some(session) = &self.session {
            return Ok(session.clone());
        }
        let tenant = &cx.queue.tenant;
        let mut held = Fifos::take(tenant, cx.core.card.fifo_bytes())?;
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
    pub(super) async fn push(&mut self, cx: &OpCx<'_>, bytes: Vec<u8>, eop: bool) -> Result<(), Errno> {
        let session = self.session(cx).await?;
        self.ended = eop;
        self.refused = None;
        self.pushing = Some(Box::pin(async move { session.push(bytes, eop).await }));
        Ok(())
    }

    /// Waits until the kernel has taken what is on its way, or has made something: at most `max` bytes of it. One that
    /// has failed is an error once all that it made before has been given.
    pub(super) async fn next(&mut self, cx: &OpCx<'_>, max: usize) -> Result<Event, Errno> {
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
