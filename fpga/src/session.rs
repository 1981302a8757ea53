//! A session: a slot that computes for one tenant, until it is dropped.

use crate::error::CardError;
use crate::kernel::{Fault, Kernel, Step};
use crate::slot::{Piece, Progress, Sess, Shared, State};
use crate::status::Usage;
use crate::worker::{begin, check, finish_reset, guarded};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

/// What a whole packet came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ran {
    /// The kernel's output.
    pub output: Vec<u8>,
    /// What the packet used.
    pub usage: Usage,
}

/// A part of a packet's output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pulled {
    /// The bytes; none only at the end of a packet.
    pub bytes: Vec<u8>,
    /// The packet's output ends with them.
    pub eop: bool,
}

/// A slot that computes for one tenant. Dropping it resets the slot.
///
/// [`Session::push`] and [`Session::pull`] may be awaited at the same time, one of each; [`Session::run`] alone.
pub struct Session {
    shared: Arc<Shared>,
    slot: usize,
    /// Changes where a packet is given up.
    epoch: AtomicU64,
    /// Set where the slot was given to others.
    taken: Arc<OnceLock<Usage>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// Puts a waker where another of the same task may be.
pub(crate) fn keep(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(old) if old.will_wake(waker) => {}
        _ => *place = Some(waker.clone()),
    }
}

fn gone() -> Fault {
    Fault::Lost("the card is gone".into())
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, slot: usize, epoch: u64) -> Session {
        let mut state = shared.state.lock();
        let taken = state.sess(slot, epoch).map(|s| s.taken.get_or_insert_default().clone()).unwrap_or_default();
        drop(state);
        Session { shared, slot, epoch: AtomicU64::new(epoch), taken }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn taken(&self) -> &OnceLock<Usage> {
        &self.taken
    }

    /// The slot that it has.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// What it has used so far.
    pub fn usage(&self) -> Usage {
        let now = self.with(|_, s| Ok(s.usage)).ok();
        now.or_else(|| self.taken.get().copied()).unwrap_or_default()
    }

    /// Bytes that its input FIFO holds; as many of its output may wait. 0 where it has no slot any longer.
    pub fn fifo_bytes(&self) -> usize {
        self.with(|_, s| Ok(s.fifo_bytes())).unwrap_or_default()
    }

    /// A value of the kernel's debug port; None where there is no such port, or the kernel computes.
    pub fn peek(&self, port: u32) -> Option<u32> {
        let mut state = self.shared.state.lock();
        self.shared.peek(&mut state, self.slot, Some(self.epoch()), port).ok().flatten()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn with<T>(&self, call: impl FnOnce(&Shared, &mut Sess) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut state = self.shared.state.lock();
        if state.stopping {
            return Err(gone());
        }
        let epoch = self.epoch();
        call(&self.shared, state.sess(self.slot, epoch).ok_or_else(gone)?)
    }

    /// A whole packet through the kernel. After a fault of an earlier packet the kernel begins anew. Dropping the
    /// future gives the packet up, and the kernel begins anew.
    ///
    /// # Errors
    /// [`Fault::Params`] and [`Fault::Data`] as the kernel says; [`Fault::TooLong`] where there are more than `out_max`
    /// bytes of output; [`Fault::Lost`] where the kernel broke a rule, crashed, or was too slow for the watchdog.
    pub async fn run(&self, input: Vec<u8>, out_max: usize) -> Result<Ran, Fault> {
        let before = self.start_packet(out_max)?;
        if let Some((result, until)) = self.run_here(&input, out_max) {
            let output = result?;
            self.hold_back(until).await;
            return Ok(Ran { output, usage: since(&self.usage(), &before) });
        }
        let mut giving_up = GiveUp(Some(self));
        self.queue(input, true)?;
        let result = poll_fn(|cx| {
            let taken = self.with(|_, sess| {
                if let Some(fault) = sess.fault.clone() {
                    return Err(fault);
                }
                if sess.ends.pop_front().is_some() {
                    return Ok(Some(std::mem::take(&mut sess.out)));
                }
                keep(&mut sess.puller, cx.waker());
                Ok(None)
            });
            match taken {
                Ok(None) => Poll::Pending,
                Ok(Some(output)) => Poll::Ready(Ok(output)),
                Err(fault) => Poll::Ready(Err(fault)),
            }
        })
        .await;
        giving_up.0 = None;
        let output = result?;
        Ok(Ran { output, usage: since(&self.usage(), &before) })
    }

    /// Begins a packet that runs as a whole.
    fn start_packet(&self, out_max: usize) -> Result<Usage, Fault> {
        let mut state = self.shared.state.lock();
        self.recover(&mut state)?;
        let sess = state.sess(self.slot, self.epoch()).ok_or_else(gone)?;
        if sess.mid_packet || sess.open_packets > 0 || sess.out.len() > sess.out_at {
            return Err(Fault::Params("a packet is still being streamed".into()));
        }
        sess.clear();
        (sess.out_limit, sess.whole) = (out_max, true);
        Ok(sess.usage)
    }

    /// After a fault the kernel begins anew.
    fn recover(&self, state: &mut State) -> Result<(), Fault> {
        if state.stopping {
            return Err(gone());
        }
        let stuck = state.slots[self.slot].stuck;
        let sess = state.sess(self.slot, self.epoch()).ok_or_else(gone)?;
        if let Some(fault) = &sess.fault {
            if stuck {
                return Err(fault.clone());
            }
            let (weight, credits) = (sess.weight, sess.credits.clone());
            sess.clear();
            (sess.fault, sess.reset) = (None, true);
            state.scheduler.open(self.slot, weight, &credits);
            self.shared.bells[self.slot].notify_one();
        }
        Ok(())
    }

    /// Waits for a time of the card's clock.
    async fn hold_back(&self, until: u64) {
        let clock = &self.shared.config.clock;
        if until == 0 || clock.reaches(until) {
            return;
        }
        poll_fn(|cx| {
            let mut state = self.shared.state.lock();
            if clock.now() >= until || state.stopping {
                return Poll::Ready(());
            }
            state.held.retain(|held| held.1 != self.epoch());
            state.held.push((until, self.epoch(), cx.waker().clone()));
            self.shared.timer.notify_one();
            Poll::Pending
        })
        .await;
    }

    /// Computes a small packet on the caller's thread, if that is possible: its output, and when it is due (0: now).
    fn run_here(&self, input: &[u8], out_max: usize) -> Option<(Result<Vec<u8>, Fault>, u64)> {
        let (shared, slot, epoch) = (&*self.shared, self.slot, self.epoch());
        if input.len() > shared.config.inline_bytes {
            return None;
        }
        let (mut engine, began) = {
            let mut state = shared.state.lock();
            if state.pace.drive_bytes_per_s != 0 {
                return None;
            }
            let s = &mut state.slots[slot];
            let ready = s.session.as_ref().is_some_and(|s| !s.reset && s.fault.is_none());
            let builtin = s.loaded.as_ref().is_some_and(|l| l.make.is_some());
            if !ready || !builtin || s.computing.is_some() {
                return None;
            }
            let engine = s.engine.take()?;
            begin(shared, &mut state, slot, epoch);
            let began = state.slots[slot].computing.map_or(0, |(since, _)| since);
            (engine, began)
        };
        let mut total = Step::default();
        let mut out = Vec::new();
        let result = guarded(|| whole(engine.as_mut(), input, &mut out, out_max, &mut total));
        let mut state = shared.state.lock();
        total.done = true;
        let charged = shared.charge(&mut state, slot, epoch, &total);
        let mut until = 0;
        if let Ok(slot_ns) = charged
            && state.pace.timed
            && let Some(sess) = state.sess(slot, epoch)
        {
            sess.free_at = sess.free_at.max(began).saturating_add(slot_ns);
            until = sess.free_at;
        }
        let result = result.and_then(|()| charged.map(drop));
        let lost = result.is_err();
        let ours = shared.return_engine(&mut state, slot, epoch, (!lost).then_some(engine));
        if !ours {
            let fault = state.sess(slot, epoch).and_then(|s| s.fault.clone());
            return Some((Err(fault.unwrap_or_else(gone)), 0));
        }
        if let Err(fault) = &result {
            shared.lose(&mut state, slot, epoch, fault.clone());
        }
        Some((result.map(|()| out), until))
    }

    /// Queues input; whoever calls has seen to it that there is room.
    fn queue(&self, bytes: Vec<u8>, eop: bool) -> Result<(), Fault> {
        let mut state = self.shared.state.lock();
        if bytes.is_empty() && !eop {
            return Ok(());
        }
        let sess = state.sess(self.slot, self.epoch()).ok_or_else(gone)?;
        let requests = (bytes.len() as u64).div_ceil(sess.credits.request_bytes()).max(1);
        sess.queued += bytes.len();
        if !sess.mid_packet {
            sess.open_packets += 1;
        }
        sess.mid_packet = !eop;
        sess.input.push_back(Piece::new(bytes, eop));
        self.shared.pump_due(&mut state);
        state.scheduler.want(self.slot, requests);
        self.shared.pump(&mut state);
        self.shared.note_credits(&mut state, self.slot);
        Ok(())
    }

    /// Pushes the next bytes of a packet, which `eop` ends with them. Waits while the session has as many bytes queued
    /// as its input FIFO holds.
    ///
    /// # Errors
    /// As [`Session::run`]. After one, the stream is given up: [`Session::send_params`] begins anew.
    pub async fn push(&self, bytes: Vec<u8>, eop: bool) -> Result<(), Fault> {
        poll_fn(|cx| {
            let room = self.with(|_, sess| {
                if let Some(fault) = sess.fault.clone() {
                    return Err(fault);
                }
                let room = sess.queued < sess.fifo_bytes();
                if !room {
                    keep(&mut sess.pusher, cx.waker());
                } else if sess.whole {
                    (sess.whole, sess.out_limit) = (false, sess.fifo_bytes());
                }
                Ok(room)
            });
            match room {
                Ok(true) => Poll::Ready(Ok(())),
                Ok(false) => Poll::Pending,
                Err(fault) => Poll::Ready(Err(fault)),
            }
        })
        .await?;
        self.queue(bytes, eop)
    }

    /// At most `max` bytes of output (0 counts as 1), at most to the end of a packet. Waits until there are some, or a
    /// packet ends.
    ///
    /// # Errors
    /// As [`Session::push`], once all that the kernel made before has been pulled.
    pub async fn pull(&self, max: usize) -> Result<Pulled, Fault> {
        poll_fn(|cx| match self.pull_now(max, cx.waker()) {
            Ok(None) => Poll::Pending,
            Ok(Some(pulled)) => Poll::Ready(Ok(pulled)),
            Err(fault) => Poll::Ready(Err(fault)),
        })
        .await
    }

    fn pull_now(&self, max: usize, waker: &Waker) -> Result<Option<Pulled>, Fault> {
        let slot = self.slot;
        self.with(|shared, sess| {
            if let Some(fault) = sess.fault.clone().filter(|_| !sess.has_output()) {
                return Err(fault);
            }
            let end = sess.ends.front().copied();
            let to = end.unwrap_or(sess.out.len()).min(sess.out_at.saturating_add(max.max(1)));
            let eop = end == Some(to);
            if to == sess.out_at && !eop {
                keep(&mut sess.puller, waker);
                return Ok(None);
            }
            let full = sess.is_full();
            let bytes = if sess.out_at == 0 && to == sess.out.len() {
                std::mem::take(&mut sess.out)
            } else {
                sess.out[sess.out_at..to].to_vec()
            };
            sess.out_at = if sess.out.is_empty() { 0 } else { to };
            if eop {
                sess.ends.pop_front();
            }
            shift(sess, to);
            if full {
                sess.goes_on(shared.config.clock.now());
            }
            shared.bells[slot].notify_one();
            Ok(Some(Pulled { bytes, eop }))
        })
    }

    /// Other parameters from the next packet on; the kernel begins anew, what is queued is given up.
    ///
    /// # Errors
    /// [`Fault::Params`] as the kernel says, [`Fault::Lost`] where it fails.
    pub async fn send_params(&self, params: Vec<u32>) -> Result<(), Fault> {
        self.give_up(Some(params));
        poll_fn(|cx| {
            let done = self.with(|_, sess| {
                if let Some(fault) = sess.fault.clone() {
                    return Err(fault);
                }
                if sess.reset {
                    keep(&mut sess.opener, cx.waker());
                }
                Ok(!sess.reset)
            });
            match done {
                Ok(false) => Poll::Pending,
                Ok(true) => Poll::Ready(Ok(())),
                Err(fault) => Poll::Ready(Err(fault)),
            }
        })
        .await
    }

    /// Gives up what is queued and computed. The kernel begins anew.
    fn give_up(&self, params: Option<Vec<u32>>) {
        let mut state = self.shared.state.lock();
        let (old, epoch) = (self.epoch(), state.next());
        let stuck = state.slots[self.slot].stuck;
        let Some(sess) = state.sess(self.slot, old) else { return };
        if stuck && sess.fault.is_some() {
            // Nothing begins anew before the kernel returns.
            return;
        }
        sess.clear();
        (sess.reset, sess.fault) = (true, None);
        if let Some(params) = params {
            sess.params = params;
        }
        let (weight, credits) = (sess.weight, sess.credits.clone());
        state.slots[self.slot].leave();
        state.slots[self.slot].epoch = epoch;
        self.epoch.store(epoch, Ordering::Release);
        state.scheduler.close(self.slot);
        state.scheduler.open(self.slot, weight, &credits);
        self.shared.pump(&mut state);
        self.shared.bells[self.slot].notify_one();
    }
}

/// Drops output that has been pulled, now and then.
fn shift(sess: &mut Sess, to: usize) {
    if sess.out.is_empty() {
        sess.ends.iter_mut().for_each(|e| *e -= to);
    } else if sess.out_at == sess.out.len() || sess.out_at >= 1 << 20 {
        let gone = sess.out_at;
        sess.out.drain(..gone);
        sess.ends.iter_mut().for_each(|e| *e -= gone);
        sess.out_at = 0;
    }
}

fn since(now: &Usage, before: &Usage) -> Usage {
    Usage {
        slot_ns: now.slot_ns - before.slot_ns,
        cycles: now.cycles - before.cycles,
        bytes_in: now.bytes_in - before.bytes_in,
        bytes_out: now.bytes_out - before.bytes_out,
    }
}

/// A whole packet on this thread.
pub(crate) fn whole(
    engine: &mut dyn Kernel,
    input: &[u8],
    out: &mut Vec<u8>,
    out_max: usize,
    total: &mut Step,
) -> Result<(), Fault> {
    let first = input.len().saturating_add(256);
    loop {
        let made = total.made;
        let room = first.min((out_max - made).saturating_add(1));
        out.resize(made + room, 0);
        let left = &input[total.taken..];
        let step = engine.step(left, true, &mut out[made..])?;
        check(&step, left.len(), true, room)?;
        total.taken += step.taken;
        total.made += step.made;
        total.cycles = total.cycles.saturating_add(step.cycles);
        if total.made > out_max {
            return Err(Fault::TooLong(out_max));
        }
        if step.done {
            out.truncate(total.made);
            return Ok(());
        }
    }
}

/// A packet whose future is dropped is given up.
struct GiveUp<'a>(Option<&'a Session>);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.give_up(None);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let epoch = self.epoch();
        self.shared.close(&mut state, self.slot, epoch);
    }
}

/// How far opening is: whether the session can be used.
pub(crate) fn opened(shared: &Shared, slot: usize, epoch: u64, waker: &Waker) -> Poll<Result<(), CardError>> {
    let mut state = shared.state.lock();
    if state.stopping {
        return Poll::Ready(Err(CardError::Fault(gone())));
    }
    reset_here(shared, &mut state, slot, epoch);
    let Some(sess) = state.sess(slot, epoch) else { return Poll::Ready(Err(CardError::Fault(gone()))) };
    match &sess.progress {
        Progress::Open => Poll::Ready(Ok(())),
        Progress::Failed(error) => Poll::Ready(Err(error.clone())),
        Progress::Opening => {
            keep(&mut sess.opener, waker);
            Poll::Pending
        }
    }
}

/// Resets a kernel that is built in on the caller's thread, which is quicker than to wake the slot's.
fn reset_here<'s>(shared: &'s Shared, state: &mut crate::slot::Locked<'s>, slot: usize, epoch: u64) {
    let s = &mut state.slots[slot];
    let ready = s.reconfiguring.is_none() && s.computing.is_none() && !s.stuck && shared.config.inline_bytes > 0;
    let (Some(make), true) = (s.loaded.as_ref().and_then(|l| l.make), ready) else { return };
    let engine = s.engine.take();
    let Some(params) = state.sess(slot, epoch).filter(|s| s.reset && s.fault.is_none()).map(|s| s.params.clone())
    else {
        state.slots[slot].engine = engine;
        return;
    };
    begin(shared, state, slot, epoch);
    let made = crate::slot::Locked::unlocked(state, &shared.state, || {
        guarded(|| {
            let mut engine = engine.unwrap_or_else(make);
            let reset = engine.reset(&params);
            Ok((engine, reset))
        })
    });
    match made {
        Ok((engine, reset)) => finish_reset(shared, state, slot, epoch, engine, reset),
        Err(fault) => {
            shared.return_engine(state, slot, epoch, None);
            shared.lose(state, slot, epoch, fault);
        }
    }
}
