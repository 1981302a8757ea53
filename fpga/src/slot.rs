//! The state of a card: slots, sessions, programs, waiters. All of it is behind one lock, which is never held while a
//! kernel computes, is loaded or is reset.

use crate::bandwidth::Scheduler;
use crate::config::{CardConfig, Pace, Want, WhenFull};
use crate::error::CardError;
use crate::flit::{CYCLES_PER_FLIT_MAX, cycles_max};
use crate::flow::Credits;
use crate::kernel::{Fault, Kernel, Step};
use crate::manifest::{Kind, PackageError, Region, StageOf};
use crate::package::{Factory, Package};
use crate::record::{Recorder, Seen};
use crate::status::{Lost, Usage};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use weldfs_locks::{Condvar, Mutex, MutexGuard};

/// Virtual time is counted in nanoseconds over two to the power of this: a weight divides also a short packet's.
pub(crate) const VIRTUAL_BITS: u32 = 20;

/// What all threads of a card, and its sessions, share.
pub(crate) struct Shared {
    pub config: CardConfig,
    pub factories: BTreeMap<String, Factory>,
    pub state: Mutex<State>,
    /// One a slot: it has something to do.
    pub bells: Vec<Condvar>,
    /// The keeper of time has something to do.
    pub timer: Condvar,
    /// The card goes: nothing waits for a kernel's process.
    pub given_up: Arc<AtomicBool>,
}

pub(crate) type Locked<'a> = MutexGuard<'a, State>;

/// A kernel that the card knows.
pub(crate) struct Program {
    pub package: Arc<Package>,
    pub active: bool,
    pub device_defined: bool,
    pub prefer: Kind,
}

/// What is, or is to be, in a slot.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub name: String,
    pub kind: Kind,
    pub package: Arc<Package>,
    /// Cycles a second that it is built for.
    pub built_for: u64,
    /// Makes it, where it is built in.
    pub make: Option<Factory>,
    /// What it consists of, where it is a chain.
    pub chain: Arc<[Link]>,
}

/// A stage of a chain.
pub(crate) struct Link {
    pub loaded: Loaded,
    /// Parameters that the chain fixes.
    pub params: Option<Vec<u32>>,
}

impl Loaded {
    /// Whether something of it runs in this process: it cannot be killed, and is made anew for each session.
    pub fn built_in(&self) -> bool {
        self.make.is_some() || self.chain.iter().any(|l| l.loaded.make.is_some())
    }

    /// Whether it is that kernel, or has it as a stage.
    pub fn has(&self, kernel: &str) -> bool {
        self.name == kernel || self.chain.iter().any(|l| l.loaded.name == kernel)
    }

    /// Whether `other` would be the same: nothing has been loaded anew, and no other back-end is preferred.
    fn same(&self, other: &Loaded) -> bool {
        let stages = || self.chain.iter().zip(other.chain.iter());
        (&self.name, self.kind, self.chain.len()) == (&other.name, other.kind, other.chain.len())
            && Arc::ptr_eq(&self.package, &other.package)
            && stages().all(|(a, b)| a.loaded.same(&b.loaded))
    }
}

/// A part of a session's input, as it was pushed.
pub(crate) struct Piece {
    pub bytes: Arc<Vec<u8>>,
    /// How much the kernel has taken.
    pub taken: usize,
    /// How much is in the FIFO or was.
    pub arrived: usize,
    /// How much was asked of the drive.
    pub issued: usize,
    /// All of it, of which there may be nothing, was asked for; has arrived.
    pub end_issued: bool,
    pub end_arrived: bool,
    pub eop: bool,
}

/// How far a session is.
pub(crate) enum Progress {
    /// Its kernel is being loaded or reset.
    Opening,
    Open,
    /// It came to nothing.
    Failed(CardError),
}

/// A session that nothing works on: on which terms its slot may be given to others.
pub(crate) struct Resting {
    /// ns.
    pub since: u64,
    pub idle: u64,
    pub turn: Option<u64>,
}

/// The session that has a slot.
pub(crate) struct Sess {
    pub tenant: u64,
    pub weight: u32,
    pub params: Vec<u32>,
    /// The kernel begins anew before anything else.
    pub reset: bool,
    /// The slot's process had ended while it was idle, and was started anew for this session.
    pub renewed: bool,
    /// Its slot is not taken from it while it works.
    pub keeps: bool,
    /// Those that it began with.
    pub credits: Credits,
    /// When it had its slot, with its kernel in it, ns.
    pub since: u64,
    pub progress: Progress,
    pub input: VecDeque<Piece>,
    pub queued: usize,
    pub out: Vec<u8>,
    pub out_at: usize,
    /// Bytes of output that may wait.
    pub out_limit: usize,
    /// More output than `out_limit` is a fault, not a reason to wait.
    pub whole: bool,
    /// Ends of packets in `out`.
    pub ends: VecDeque<usize>,
    /// The kernel may still have output of what it took.
    pub undrained: bool,
    /// Packets that have begun and have not been made whole.
    pub open_packets: usize,
    /// A piece without an end was the last one.
    pub mid_packet: bool,
    pub fault: Option<Fault>,
    pub usage: Usage,
    /// What the packet that is computed has used so far.
    pub packet: Step,
    /// Cycles over the clock that are no whole nanosecond yet, times a second.
    pub fraction: u64,
    /// When there was something to compute again, where there had been nothing; when the last input came. Kept where
    /// time is modelled.
    pub fed_at: u64,
    pub last_at: u64,
    /// When the modelled kernel has computed what this machine has.
    pub free_at: u64,
    pub rest: Option<Resting>,
    /// Set where its slot is given to others: what it had used. None while nothing could learn of it.
    pub taken: Option<Arc<OnceLock<Usage>>>,
    /// What a recording says of it.
    pub seen: Seen,
    pub opener: Option<Waker>,
    pub pusher: Option<Waker>,
    pub puller: Option<Waker>,
}

impl Piece {
    pub fn new(bytes: Vec<u8>, eop: bool) -> Piece {
        let bytes = Arc::new(bytes);
        Piece { bytes, taken: 0, arrived: 0, issued: 0, end_issued: false, end_arrived: false, eop }
    }
}

impl Sess {
    pub fn new(tenant: u64, weight: u32, params: Vec<u32>, credits: Credits) -> Sess {
        Sess {
            tenant,
            weight,
            params,
            reset: true,
            renewed: false,
            keeps: false,
            out_limit: credits.all_bytes() as usize,
            credits,
            since: 0,
            progress: Progress::Opening,
            input: VecDeque::new(),
            queued: 0,
            out: Vec::new(),
            out_at: 0,
            whole: false,
            ends: VecDeque::new(),
            undrained: false,
            open_packets: 0,
            mid_packet: false,
            fault: None,
            usage: Usage::default(),
            packet: Step::default(),
            fraction: 0,
            fed_at: 0,
            last_at: 0,
            free_at: 0,
            rest: None,
            taken: None,
            seen: Seen::default(),
            opener: None,
            pusher: None,
            puller: None,
        }
    }

    /// The kernel has had its output fetched, or has input again: it goes on now.
    pub fn goes_on(&mut self, now: u64) {
        self.fed_at = self.fed_at.max(now);
    }

    /// Bytes of the input FIFO; as many of output may wait.
    pub fn fifo_bytes(&self) -> usize {
        self.credits.all_bytes() as usize
    }

    /// Whether the kernel has to wait for its output to be fetched.
    pub fn is_full(&self) -> bool {
        self.out.len() - self.out_at >= self.out_limit + usize::from(self.whole)
    }

    /// Everything that awaits something of this session looks again.
    pub fn wake(&mut self) {
        for waker in [self.opener.take(), self.pusher.take(), self.puller.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    /// Forgets input and output.
    pub fn clear(&mut self) {
        self.clear_input();
        self.out.clear();
        self.ends.clear();
        self.out_at = 0;
    }

    /// Forgets input. What was made of it before can still be fetched.
    pub fn clear_input(&mut self) {
        self.input.clear();
        (self.queued, self.open_packets) = (0, 0);
        (self.undrained, self.mid_packet) = (false, false);
        self.packet = Step::default();
    }

    /// Whether there is output, or an end, to fetch.
    pub fn has_output(&self) -> bool {
        self.out.len() > self.out_at || !self.ends.is_empty()
    }

    /// Adds a step to what its packet has used: the cycles that count of it, and whether it says more than it may.
    fn count(&mut self, step: &Step) -> (u64, bool) {
        let Step { taken, made, cycles, .. } = self.packet;
        let (taken, made) = (taken + step.taken, made + step.made);
        let most = cycles_max(taken as u64, made as u64);
        let count = step.cycles.min(most - cycles);
        let packet = Step { taken, made, cycles: cycles + count, done: false };
        self.packet = if step.done { Step::default() } else { packet };
        (count, count < step.cycles)
    }
}

/// What a slot has done.
#[derive(Default)]
pub(crate) struct Counts {
    pub sessions: u64,
    pub usage: Usage,
    pub reconfigurations: u64,
    pub reconfigure_ns: u64,
    pub faults: u64,
    pub taken: u64,
}

pub(crate) struct Slot {
    pub region: Region,
    /// Never given another kernel.
    pub locked: bool,
    /// The card has fewer slots now: it has been one.
    pub absent: bool,
    pub loaded: Option<Loaded>,
    /// Another kernel was put in: until when that takes, and how long.
    pub reconfiguring: Option<(u64, u64)>,
    /// None while a thread computes with it, and where it has not been made yet.
    pub engine: Option<Box<dyn Kernel>>,
    /// Whose sessions the kernel in it has served: no other tenant's are served by the same process.
    pub served: Option<u64>,
    /// Which session it is that has the slot: counts up.
    pub epoch: u64,
    pub session: Option<Sess>,
    /// A thread computes: since when, and for which session.
    pub computing: Option<(u64, u64)>,
    /// Set while a thread computes for a session that has ended, or for a packet that was given up: a process that does
    /// not answer soon is killed.
    pub left: Arc<AtomicBool>,
    pub stuck: bool,
    /// When a session last had it: counts up.
    pub used: u64,
    pub counts: Counts,
}

impl Slot {
    /// A thread begins to compute, since then.
    pub fn compute(&mut self, since: u64, epoch: u64) {
        self.left.store(false, Ordering::Release);
        self.computing = Some((since, epoch));
    }

    /// What is computed is of no use any longer.
    pub fn leave(&self) {
        if self.computing.is_some() {
            self.left.store(true, Ordering::Release);
        }
    }

    /// Whether a session can have it.
    pub fn quiet(&self) -> bool {
        let idle = self.session.is_none() && self.computing.is_none() && self.reconfiguring.is_none();
        idle && !self.stuck && !self.absent
    }

    /// Whether it can be given a kernel of this size.
    pub fn fits(&self, region: &Region) -> bool {
        !self.locked && !self.absent && self.region.holds(region)
    }
}

/// A session that waits for a slot.
pub(crate) struct Waiter {
    pub ticket: u64,
    pub want: Want,
    /// Since when, ns.
    pub since: u64,
    /// The slot and the epoch, or why not.
    pub answer: Option<Result<(usize, u64), CardError>>,
    pub waker: Option<Waker>,
}

/// What a tenant has used.
#[derive(Clone, Default)]
pub(crate) struct Tenant {
    pub sessions: u64,
    pub lost: Option<Lost>,
    pub usage: Usage,
    /// Slot time over weight, in parts of a nanosecond: who has the least comes first.
    pub virtual_time: u128,
    pub weight: u32,
}

/// A request that the drive works on.
pub(crate) struct Flight {
    pub due: u64,
    pub bytes: usize,
    pub slot: usize,
    pub epoch: u64,
}

pub(crate) struct State {
    pub slots: Vec<Slot>,
    pub programs: BTreeMap<String, Program>,
    pub waiters: Vec<Waiter>,
    /// Packets that were computed before they are due: when that is, of which session they are, and who waits.
    pub held: Vec<(u64, u64, Waker)>,
    pub tenants: BTreeMap<u64, Tenant>,
    pub scheduler: Scheduler,
    pub flights: VecDeque<Flight>,
    /// When the drive has given all that was asked of it, and the part of a nanosecond beside, times its rate.
    pub drive_free: u64,
    pub drive_rest: u64,
    pub pace: Pace,
    pub stopping: bool,
    /// The keeper of time looks at the slots.
    pub watching: bool,
    pub counter: u64,
    pub recorder: Option<Box<Recorder>>,
}

impl State {
    /// Before a card has any.
    pub fn nothing(pace: Pace) -> State {
        State {
            slots: Vec::new(),
            programs: BTreeMap::new(),
            waiters: Vec::new(),
            held: Vec::new(),
            tenants: BTreeMap::new(),
            scheduler: Scheduler::new(0, 1),
            flights: VecDeque::new(),
            drive_free: 0,
            drive_rest: 0,
            pace,
            stopping: false,
            watching: false,
            counter: 0,
            recorder: None,
        }
    }

    pub fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// The session of a slot, if it is still that one.
    pub(crate) fn sess(&mut self, slot: usize, epoch: u64) -> Option<&mut Sess> {
        let slot = &mut self.slots[slot];
        if slot.epoch == epoch { slot.session.as_mut() } else { None }
    }
}

/// The parts of `NAME` or `NAME:BACKEND`.
pub(crate) fn named(kernel: &str) -> Result<(&str, Option<Kind>), CardError> {
    let Some((name, kind)) = kernel.split_once(':') else { return Ok((kernel, None)) };
    Ok((name, Some(Kind::find(kind).ok_or_else(|| CardError::NoKernel(kernel.into()))?)))
}

impl Shared {
    /// What is to be in a slot for a kernel of that name and that back-end, or the one it prefers.
    pub fn loaded(&self, state: &State, name: &str, kind: Option<Kind>) -> Result<Loaded, CardError> {
        let program = state.programs.get(name).ok_or_else(|| CardError::NoKernel(name.into()))?;
        if !program.active {
            return Err(CardError::Inactive(name.into()));
        }
        let manifest = program.package.manifest();
        let kind = kind.unwrap_or(program.prefer);
        if !manifest.backend.has(kind) {
            return Err(CardError::NoKernel(format!("{name}:{}", kind.name())));
        }
        let builtin = manifest.backend.model.as_ref().and_then(|m| m.builtin.as_ref());
        let make = match (kind, builtin) {
            (Kind::Model, Some(builtin)) => {
                Some(*self.factories.get(builtin).ok_or_else(|| CardError::NoKernel(builtin.clone()))?)
            }
            _ => None,
        };
        let built_for = u64::from(manifest.clock_mhz) * 1_000_000;
        let stages = if kind == Kind::Model { manifest.backend.chain() } else { &[] };
        let chain = stages.iter().map(|stage| self.link(state, name, stage)).collect::<Result<_, _>>()?;
        Ok(Loaded { name: name.into(), kind, package: program.package.clone(), built_for, make, chain })
    }

    /// A stage of chain `chain`, as the card has it now.
    pub fn link(&self, state: &State, chain: &str, stage: &StageOf) -> Result<Link, CardError> {
        let none = || CardError::NoStage(stage.kernel.clone());
        let (name, kind) = named(&stage.kernel).map_err(|_| none())?;
        if name == chain {
            return Err(PackageError::Chain { name: chain.into(), why: "it is a stage of itself".into() }.into());
        }
        let of = state.programs.get(name).ok_or_else(none)?;
        if !of.package.manifest().backend.chain().is_empty() {
            return Err(PackageError::Chain { name: chain.into(), why: format!("its stage {name} is a chain") }.into());
        }
        let loaded = self.loaded(state, name, kind).map_err(|e| match e {
            CardError::NoKernel(_) => none(),
            other => other,
        })?;
        Ok(Link { loaded, params: stage.params.clone() })
    }

    /// Whether a package's chain, if it is one, can be run: its stages are known, no chains themselves, and fit into
    /// its region and its memory together.
    pub fn check_chain(&self, state: &State, package: &Package) -> Result<(), CardError> {
        let manifest = package.manifest();
        let (mut sum, mut dram) = (Region::default(), 0u64);
        for stage in manifest.backend.chain() {
            let link = self.link(state, &manifest.name, stage)?;
            let stage = link.loaded.package.manifest();
            sum.add(&stage.region);
            dram = dram.saturating_add(stage.ports.dram_bytes);
        }
        match manifest.region.holds(&sum) && manifest.ports.dram_bytes >= dram {
            true => Ok(()),
            false => {
                let Region { lut, ff, bram, dsp } = sum;
                let why = format!("its stages take {lut} LUT, {ff} FF, {bram} BRAM, {dsp} DSP, {dram} bytes of memory");
                Err(PackageError::Chain { name: manifest.name.clone(), why }.into())
            }
        }
    }

    /// What a session asks for, if the card has it and it takes as many parameters.
    pub fn find(&self, state: &State, want: &Want) -> Result<Loaded, CardError> {
        let (name, kind) = named(&want.kernel)?;
        let loaded = self.loaded(state, name, kind)?;
        let (count, range) = (want.params.len(), &loaded.package.manifest().params);
        if !(range.min as usize..=range.max as usize).contains(&count) {
            let said = format!("{name} takes {} to {} words, not {count}", range.min, range.max);
            return Err(CardError::Fault(Fault::Params(said)));
        }
        Ok(loaded)
    }

    /// Gives a session a slot, if one is to be had now: its number and the session's epoch.
    pub fn place(&self, state: &mut State, want: &Want, loaded: &Loaded) -> Result<Option<(usize, u64)>, CardError> {
        let same = |l: &Loaded| l.same(loaded);
        let region = loaded.package.manifest().region;
        let barred = self.barred(state, want, &region);
        let fits = |s: &Slot| s.fits(&region);
        let slots = &state.slots;
        let has = |s: &Slot| s.loaded.as_ref().is_some_and(same);
        if !slots.iter().any(|s| fits(s) || has(s)) {
            return Err(CardError::TooLarge(loaded.name.clone()));
        }
        let quiet = || slots.iter().enumerate().filter(|(_, s)| s.quiet() && (s.locked || !barred));
        let chosen = quiet().find(|(_, s)| has(s));
        let chosen = chosen.or_else(|| quiet().find(|(_, s)| s.loaded.is_none() && fits(s)));
        let chosen = chosen.or_else(|| quiet().filter(|(_, s)| fits(s)).min_by_key(|(_, s)| s.used));
        let Some((index, _)) = chosen else { return Ok(None) };
        let (pace, mut since) = (state.pace, self.config.clock.now());
        let credits = pace.flow();
        let slot = &mut state.slots[index];
        if !slot.loaded.as_ref().is_some_and(same) {
            let takes = pace.reconfigure.ns(&slot.region);
            let until = since.saturating_add(takes);
            since = until;
            (slot.loaded, slot.engine, slot.reconfiguring) = (Some(loaded.clone()), None, Some((until, takes)));
        }
        state.scheduler.open(index, want.weight(), &credits);
        let sess = Sess::new(want.tenant, want.weight(), want.params.clone(), credits);
        let epoch = self.seat(state, index, Sess { keeps: want.keeps, since, ..sess });
        let slot = &state.slots[index];
        if slot.reconfiguring.is_some()
            || slot.loaded.as_ref().is_some_and(|l| l.make.is_none())
            || self.config.inline_bytes == 0
        {
            self.bells[index].notify_one();
        }
        if !state.watching {
            state.watching = true;
            self.timer.notify_one();
        }
        Ok(Some((index, epoch)))
    }

    /// A slot has a session from now on: the session's epoch.
    pub fn seat(&self, state: &mut State, index: usize, sess: Sess) -> u64 {
        let (epoch, tenant, weight) = (state.next(), sess.tenant, sess.weight);
        let recorded = state.recorder.is_some().then(|| self.config.clock.now());
        let slot = &mut state.slots[index];
        if slot.served.replace(tenant).is_some_and(|served| served != tenant) {
            // What its process kept of another tenant, whatever its reset does, ends with it.
            slot.engine = None;
        }
        (slot.epoch, slot.used) = (epoch, epoch);
        slot.counts.sessions += 1;
        slot.session = Some(Sess { seen: Seen::from(recorded), ..sess });
        if let Some(tenant) = state.tenants.get_mut(&tenant) {
            (tenant.sessions, tenant.weight) = (tenant.sessions + 1, weight);
        }
        epoch
    }

    /// A tenant asks for a slot. One that neither had nor wanted any for a while has saved nothing up.
    pub fn greet(&self, state: &mut State, asks: u64, weight: u32) {
        let held = state.slots.iter().filter_map(|s| s.session.as_ref()).map(|s| s.tenant);
        let waiting = state.waiters.iter().filter(|w| w.answer.is_none()).map(|w| w.want.tenant);
        let (mut here, mut least) = (false, None);
        for tenant in held.chain(waiting) {
            here |= tenant == asks;
            let used = state.tenants.get(&tenant).map(|t| t.virtual_time);
            least = least.into_iter().chain(used).min();
        }
        let tenant = state.tenants.entry(asks).or_default();
        tenant.weight = weight;
        if !here {
            tenant.virtual_time = tenant.virtual_time.max(least.unwrap_or(0));
        }
    }

    /// A slot may have become free: those that wait get it, the tenant that had the least for its weight first.
    pub fn serve_waiters(&self, state: &mut State) {
        for ticket in state.turns() {
            let Some(at) = state.waiters.iter().position(|w| w.ticket == ticket) else { continue };
            let want = state.waiters[at].want.clone();
            let placed = self.find(state, &want).and_then(|loaded| self.place(state, &want, &loaded));
            let Some(answer) = placed.transpose() else { continue };
            if let (Ok((slot, epoch)), true) = (&answer, state.recorder.is_some()) {
                let waited = self.config.clock.now().saturating_sub(state.waiters[at].since);
                state.sess(*slot, *epoch).into_iter().for_each(|s| s.seen.waited = waited);
            }
            let waiter = &mut state.waiters[at];
            waiter.answer = Some(answer);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    /// Gives a session a slot, or has it wait: a slot and an epoch, or a ticket.
    pub fn ask(&self, state: &mut State, want: &Want) -> Result<Result<(usize, u64), u64>, CardError> {
        let loaded = self.find(state, want)?;
        self.greet(state, want.tenant, want.weight());
        if let Some(place) = self.place(state, want, &loaded)? {
            return Ok(Ok(place));
        }
        if want.when_full == WhenFull::Busy {
            self.take_one(state, want, &loaded, 0);
            let why = if want.keeps { "all slots that streams which are written can have" } else { "all slots" };
            let busy = || CardError::Busy(format!("{why} are taken"));
            return Ok(Ok(self.place(state, want, &loaded)?.ok_or_else(busy)?));
        }
        let (ticket, since) = (state.next(), self.config.clock.now());
        state.waiters.push(Waiter { ticket, want: want.clone(), since, answer: None, waker: None });
        self.take_back(state);
        self.timer.notify_one();
        Ok(Err(ticket))
    }

    /// The session of a slot ends: the slot is reset, and goes to the next.
    pub fn close(&self, state: &mut State, slot: usize, epoch: u64) {
        let s = &mut state.slots[slot];
        if s.epoch != epoch || s.session.is_none() {
            return;
        }
        if state.recorder.is_some() {
            self.note_session(state, slot);
        }
        self.charge_held(state, slot);
        let s = &mut state.slots[slot];
        s.session = None;
        s.leave();
        if s.computing.is_some() {
            // Its thread may hold back what came of the last step. One that sleeps has nothing to do.
            self.bells[slot].notify_one();
        }
        // Nothing of a session is left for the next: a built-in kernel is made anew, a process is reset, and ends
        // before another tenant's session.
        if s.loaded.as_ref().is_some_and(Loaded::built_in) {
            s.engine = None;
        }
        state.scheduler.close(slot);
        self.pump(state);
        self.serve_waiters(state);
    }

    /// A kernel failed: its session is told. Of one that is lost nothing is kept; another begins anew.
    pub fn lose(&self, state: &mut State, slot: usize, epoch: u64, fault: Fault) {
        if let Fault::Lost(why) = &fault {
            let s = &mut state.slots[slot];
            (s.counts.faults, s.engine) = (s.counts.faults + 1, None);
            let kernel = s.loaded.as_ref().map_or_else(String::new, |l| l.name.clone());
            let tenant = s.session.as_ref().filter(|_| s.epoch == epoch).map(|s| s.tenant);
            if let Some(tenant) = tenant.and_then(|t| state.tenants.get_mut(&t)) {
                tenant.lost = Some(Lost { kernel, slot, session: tenant.sessions, why: why.clone() });
            }
        }
        if let Some(sess) = state.sess(slot, epoch) {
            sess.seen.failed = true;
            if matches!(sess.progress, Progress::Opening) {
                sess.progress = Progress::Failed(CardError::Fault(fault.clone()));
            }
            // A stream gets what was made before; a packet that is computed as a whole has come to nothing.
            if sess.whole {
                sess.clear()
            } else {
                sess.clear_input()
            }
            sess.fault = Some(fault);
            sess.wake();
            state.scheduler.close(slot);
        }
        self.pump(state);
    }

    /// Adds to what a session, its slot and its tenant have used: the slot time of it, ns.
    ///
    /// # Errors
    /// [`Fault::Lost`] of a kernel that says that it took more cycles than one may. Those that one may are charged.
    pub fn charge(&self, state: &mut State, slot: usize, epoch: u64, step: &Step) -> Result<u64, Fault> {
        let pace = state.pace;
        let s = &mut state.slots[slot];
        let hz = pace.hz(s.loaded.as_ref().map_or(u64::MAX, |l| l.built_for));
        let Some(sess) = s.session.as_mut().filter(|_| s.epoch == epoch && !s.stuck) else { return Ok(0) };
        let (cycles, too_many) = sess.count(step);
        // With what was left of the last one, so that rounding does not add up.
        let takes = u128::from(cycles) * 1_000_000_000 + u128::from(sess.fraction);
        sess.fraction = (takes % u128::from(hz)) as u64;
        let slot_ns = u64::try_from(takes / u128::from(hz)).unwrap_or(u64::MAX);
        let used = Usage { slot_ns, cycles, bytes_in: step.taken as u64, bytes_out: step.made as u64 };
        sess.usage.add(&used);
        s.counts.usage.add(&used);
        let tenant = state.tenants.entry(sess.tenant).or_default();
        tenant.usage.add(&used);
        tenant.virtual_time += (u128::from(slot_ns) << VIRTUAL_BITS) / u128::from(tenant.weight.max(1));
        match too_many {
            false => Ok(slot_ns),
            true => Err(Fault::Lost(format!("it says that it took over {CYCLES_PER_FLIT_MAX} cycles for each flit"))),
        }
    }
}
