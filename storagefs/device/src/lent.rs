//! What a program holds, and lends while it does not need it.
//!
//! A program may compute for seconds, and its set may hold names and files that belong to others. So it lends them: at
//! each boundary while it compresses, decompresses or enciphers, to whichever command waits, and always when it gives
//! way there; between its micro-ops once its quantum is over, to other tenants that wait. Before it touches a file or a
//! name again, and before it commits, it takes its set back, behind all that wait by then. If nothing of the set can
//! have changed meanwhile (no command held any of it alone, and the names still lead to the same inodes), it goes on;
//! else it starts over, which is as if it had arrived later; its state is kept, and if what it had read is found to be
//! the same, it goes on from there (`weldfs_ciscops::program`).
//!
//! So a command waits for one that computes for one piece of 64 KiB at most (16 KiB of a codec), and programs stay
//! atomic: what they read is as they read it when they commit. Commands of the program's own ring must not pass it by.
//! So the next one of the ring is taken only when a program that may lend is over ([`may_lend`]), and no ticket of it
//! waits behind one lent.

use std::sync::atomic::{AtomicBool, Ordering};

use weldfs_ciscops::{Errno, Kept, Kernel, Quiet};
use weldfs_fs::{Computing, Fetching, InodeSet, Slicer};
use weldfs_locks::Mutex;
use weldfs_session::sets::{ClosedGate, Tickets};
use weldfs_store::error::{FsError, FsResult};

use super::held::{head, resolve};
use super::opcx::OpCx;
use super::wishes::is_placed;
use crate::limits::LOST_MAX;

/// Whether a command may lend what it holds: a program that computes or moves much, or that computes in a slot.
pub(super) fn may_lend(cx: &OpCx<'_>) -> bool {
    cx.paths.program.as_ref().is_some_and(|program| program.is_long() || is_placed(&cx.cmd))
}

/// A program's set while it runs.
pub(super) struct Lending<'c, 'd> {
    cx: &'c OpCx<'d>,
    set: &'c InodeSet,
    /// Its names led elsewhere when it began, or may have: they are looked up by the program alone.
    learned: bool,
    tickets: Mutex<Option<Tickets<'d>>>,
    /// It keeps names from changing, all of them: it has been overtaken again and again.
    gate: Mutex<Option<ClosedGate<'d>>>,
    /// What had been applied to the store when it was lent.
    generation: Mutex<u64>,
    lost: AtomicBool,
}

impl<'c, 'd> Lending<'c, 'd> {
    /// Of a program that holds `tickets`, and perhaps names closed.
    pub fn new(
        cx: &'c OpCx<'d>,
        set: &'c InodeSet,
        learned: bool,
        tickets: Option<Tickets<'d>>,
        gate: Option<ClosedGate<'d>>,
    ) -> Self {
        let (tickets, gate, generation) = (Mutex::new(tickets), Mutex::new(gate), Mutex::new(0));
        Lending { cx, set, learned, tickets, gate, generation, lost: AtomicBool::new(false) }
    }

    /// The tickets, when the program has run.
    pub fn tickets(&self) -> Option<Tickets<'d>> {
        self.tickets.lock().take()
    }

    /// The names, when the program has run and still keeps them closed.
    pub fn gate(&self) -> Option<ClosedGate<'d>> {
        self.gate.lock().take()
    }

    /// Whether the program must start over because of what was done with what it lent.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether a command waits for what is held here: any, or one of another tenant.
    fn is_wanted(&self, tickets: &Tickets<'_>, by_others: bool) -> bool {
        let (board, mine) = (&self.cx.core.board, self.cx.queue.tenant.id);
        let mut wanted = false;
        tickets.kept_waiting(|waiter| wanted |= !by_others || board.slot(waiter.0).tenant() != mine);
        wanted
    }

    async fn hold_again(&self) -> FsResult<()> {
        // The lock is not held while it waits; nothing else takes the tickets away meanwhile.
        let Some(mut tickets) = self.tickets.lock().take() else { return Ok(()) };
        tickets.take_back();
        head(self.cx, &mut tickets).await;
        let overtaken = tickets.was_overtaken();
        *self.tickets.lock() = Some(tickets);
        // Whatever else there is to say comes later: what was staged over a set that has changed is never committed.
        let same = match () {
            () if overtaken => false,
            () if self.cx.core.store.generation() == *self.generation.lock() => true,
            () if self.learned => false,
            () => resolve(self.cx, self.set.insisted()).await?.entries() == self.set.entries(),
        };
        if same {
            return Ok(());
        }
        self.lost.store(true, Ordering::Relaxed);
        Err(FsError::SetChanged)
    }
}

/// What a command has seen of losing what it lent.
#[derive(Default)]
pub(super) struct Lost {
    times: u32,
    kept: Option<Kept>,
}

impl Lost {
    /// Its state, for the next try.
    pub fn kept(&mut self) -> Option<Kept> {
        self.kept.take()
    }

    /// Keeps its state: memory that the command has reserved, for its next try takes no other until it goes on with it.
    pub fn keep(&mut self, kept: Option<Kept>) {
        self.kept = kept;
    }

    /// It starts over. EAGAIN when it has done so often: others change what it reads faster than it computes.
    pub fn again(&mut self, cx: &OpCx<'_>) -> FsResult<()> {
        self.times += 1;
        cx.queue.counters.set_retries.add(1);
        if self.times > LOST_MAX { Err(Errno::AGAIN.into()) } else { Ok(()) }
    }
}

impl Slicer for Lending<'_, '_> {
    fn due(&self) -> bool {
        self.cx.due()
    }

    fn is_cancelled(&self) -> bool {
        self.cx.is_cancelled()
    }

    fn micro(&self, index: u16) {
        self.cx.micro(index);
    }

    fn lends(&self, how: Quiet, due: bool) -> bool {
        let mut held = self.tickets.lock();
        let Some(tickets) = held.as_mut() else { return false };
        let closed = self.gate.lock().is_some();
        let lends = match how {
            // Names belong to all: they are closed for one quantum at most.
            _ if due && closed => true,
            // Names that were learned are only known to stand while nothing at all is applied.
            Quiet::Computes => due && !self.learned || self.is_wanted(tickets, false),
            Quiet::Between => due && self.is_wanted(tickets, true),
        };
        if lends {
            *self.generation.lock() = self.cx.core.store.generation();
            tickets.lend();
            drop(self.gate.lock().take());
            self.cx.queue.counters.lent.add(1);
        }
        lends
    }

    fn kernel<'k>(&'k self, kernel: Kernel<'k>, input: Vec<u8>, out_max: usize) -> Computing<'k> {
        self.cx.kernel(kernel, input, out_max)
    }

    fn fell_back(&self) {
        self.cx.fell_back();
    }

    fn take_back(&self) -> Fetching<'_> {
        Box::pin(self.hold_again())
    }
}
