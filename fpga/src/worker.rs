//! The threads of a card: one a slot, which computes, and one that keeps time.

use crate::chain::{Chain, Stage};
use crate::error::CardError;
use crate::host::Launch;
use crate::kernel::{Fault, Kernel, Step};
use crate::manifest::Kind;
use crate::package::Package;
use crate::slot::{Link, Loaded, Locked, Progress, Sess, Shared, State};
use crate::xrt::{self, Remote};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Output that a kernel may make in one step, bytes.
const ROOM_BYTES: usize = 256 << 10;

/// What a slot's thread does next, without the card's lock.
enum Job {
    /// The slot is reconfigured.
    Load(Loaded, (u64, u64)),
    /// The kernel is made: a process is started.
    Make(Loaded),
    /// It begins anew.
    Reset(Box<dyn Kernel>, Vec<u32>),
    Compute(Box<dyn Kernel>, Work),
}

/// One step's worth.
struct Work {
    bytes: Arc<Vec<u8>>,
    from: usize,
    to: usize,
    eop: bool,
    room: usize,
    /// When the last of it came.
    last_at: u64,
}

/// Calls a kernel. One that panics is lost, and only that one.
pub(crate) fn guarded<T>(call: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = (panic.downcast_ref::<&str>().map(|s| s.to_string())).or(panic.downcast_ref::<String>().cloned());
        Err(Fault::Lost(format!("it panicked: {}", text.unwrap_or_default())))
    })
}

/// Whether a step keeps to the rules of [`Kernel::step`].
pub(crate) fn check(step: &Step, given: usize, eop: bool, room: usize) -> Result<(), Fault> {
    let broken = if step.taken > given {
        "it says that it took more than it was given"
    } else if step.made > room {
        "it made more than there was room for"
    } else if step.done && !(eop && step.taken == given) {
        "it ended a packet that has not ended"
    } else if step.taken == 0 && step.made == 0 && !step.done && (given > 0 || eop) && room > 0 {
        "it neither takes nor makes anything"
    } else {
        return Ok(());
    };
    Err(Fault::Lost(broken.into()))
}

/// Makes a stage of a chain.
fn stage(shared: &Shared, link: &Link, left: &Arc<AtomicBool>) -> Result<Stage, CardError> {
    let manifest = link.loaded.package.manifest();
    Ok(Stage {
        name: link.loaded.name.clone(),
        kernel: make(shared, &link.loaded, left)?,
        params: link.params.clone(),
        words: manifest.params.min as usize..=manifest.params.max as usize,
        ports: manifest.ports.peek.len() as u32,
    })
}

/// Makes a kernel: one that is built in, or a process for a shared object. `left` says that nothing waits for it.
fn make(shared: &Shared, loaded: &Loaded, left: &Arc<AtomicBool>) -> Result<Box<dyn Kernel>, CardError> {
    if !loaded.chain.is_empty() {
        let stages = loaded.chain.iter().map(|link| stage(shared, link, left)).collect::<Result<_, _>>()?;
        return Ok(Box::new(Chain::new(stages)));
    }
    match loaded.make {
        Some(make) => Ok(guarded(|| Ok(make()))?),
        None => {
            if loaded.kind == Kind::Xrt {
                let config = shared.on_card(&loaded.package)?;
                return Ok(Box::new(Remote::open(&xrt::Config { left: left.clone(), ..config })?));
            }
            let launch = shared.launch(&loaded.package, loaded.kind)?;
            Ok(Box::new(Launch { left: left.clone(), ..launch }.start()?))
        }
    }
}

impl Shared {
    /// How the process of a package's shared object is started.
    pub(crate) fn launch(&self, package: &Package, kind: Kind) -> Result<Launch, CardError> {
        let manifest = package.manifest();
        Ok(Launch {
            program: self.config.host.clone(),
            cycles_per_flit: manifest.cycles_per_flit,
            dram_bytes: manifest.ports.dram_bytes,
            watchdog: self.config.watchdog,
            given_up: self.given_up.clone(),
            ..Launch::of(&package.library(kind)?)
        })
    }

    /// How the helper of a package's image is started.
    fn on_card(&self, package: &Package) -> Result<xrt::Config, CardError> {
        Ok(xrt::Config {
            program: self.config.host.clone(),
            watchdog: self.config.watchdog,
            given_up: self.given_up.clone(),
            ..xrt::Config::of(package, &self.config.place)?
        })
    }
}

/// A slot's thread.
pub(crate) fn run(shared: &Shared, slot: usize) {
    let mut scratch = vec![0; ROOM_BYTES];
    let mut state = shared.state.lock();
    while !state.stopping {
        let Some(job) = next(&mut state, slot) else {
            shared.config.clock.wait(&shared.bells[slot], &shared.state, &mut state, None);
            continue;
        };
        let epoch = state.slots[slot].epoch;
        match job {
            Job::Load(loaded, until) => load(shared, &mut state, slot, &loaded, until),
            Job::Make(loaded) => {
                state.slots[slot].compute(u64::MAX, epoch);
                let left = state.slots[slot].left.clone();
                let made = Locked::unlocked(&mut state, &shared.state, || make(shared, &loaded, &left));
                match made {
                    Ok(engine) => drop(put_back(shared, &mut state, slot, epoch, Some(engine))),
                    Err(error) => {
                        put_back(shared, &mut state, slot, epoch, None);
                        if let Some(sess) = state.sess(slot, epoch) {
                            sess.progress = Progress::Failed(error);
                        }
                        shared.lose(&mut state, slot, epoch, Fault::Lost("it could not be started".into()));
                    }
                }
            }
            Job::Reset(mut engine, params) => {
                begin(shared, &mut state, slot, epoch);
                let reset = Locked::unlocked(&mut state, &shared.state, || guarded(|| engine.reset(&params)));
                finish_reset(shared, &mut state, slot, epoch, engine, reset);
            }
            Job::Compute(mut engine, work) => {
                begin(shared, &mut state, slot, epoch);
                let begun = state.slots[slot].computing.map_or(0, |(since, _)| since);
                let out = &mut scratch[..work.room];
                let mut step = Locked::unlocked(&mut state, &shared.state, || {
                    let input = &work.bytes[work.from..work.to];
                    let step = guarded(|| engine.step(input, work.eop, out))?;
                    check(&step, input.len(), work.eop, out.len()).map(|()| step)
                });
                if let Ok(good) = &step {
                    let charged = shared.charge(&mut state, slot, epoch, good);
                    let ns = charged.as_ref().map_or(0, |ns| *ns);
                    shared.note_step(&mut state, slot, epoch, begun, good, ns);
                    match charged {
                        Ok(slot_ns) => hold(shared, &mut state, slot, epoch, slot_ns, work.last_at),
                        Err(fault) => step = Err(fault),
                    }
                }
                finish(shared, &mut state, slot, epoch, engine, &work, step, &scratch);
            }
        }
    }
}

/// What there is to do in a slot.
fn next(state: &mut State, slot: usize) -> Option<Job> {
    let s = state.slots.get_mut(slot)?;
    if s.computing.is_some() || s.stuck {
        return None;
    }
    let loaded = s.loaded.as_ref()?;
    if let Some(until) = s.reconfiguring {
        return Some(Job::Load(loaded.clone(), until));
    }
    let sess = s.session.as_mut().filter(|s| s.fault.is_none())?;
    if s.engine.is_none() {
        return Some(Job::Make(loaded.clone()));
    }
    if sess.reset {
        return s.engine.take().map(|e| Job::Reset(e, sess.params.clone()));
    }
    let waiting = sess.out.len() - sess.out_at;
    let room = (sess.out_limit + usize::from(sess.whole)).saturating_sub(waiting).min(ROOM_BYTES);
    if room == 0 {
        return None;
    }
    let work = match sess.input.front() {
        Some(p) if p.arrived > p.taken || (p.end_arrived && p.eop) => {
            let eop = p.end_arrived && p.eop;
            Work { bytes: p.bytes.clone(), from: p.taken, to: p.arrived, eop, room, last_at: sess.last_at }
        }
        _ if sess.undrained => Work { bytes: Arc::default(), from: 0, to: 0, eop: false, room, last_at: 0 },
        _ => return None,
    };
    s.engine.take().map(|e| Job::Compute(e, work))
}

/// A thread is about to compute for a slot.
pub(crate) fn begin(shared: &Shared, state: &mut State, slot: usize, epoch: u64) {
    state.slots[slot].compute(shared.config.clock.now(), epoch);
}

/// Where time is modelled: the slot's thread waits until the modelled kernel has computed what this one has. It begins
/// when it is free and there is something to compute, and is not through before the last of its input has come.
fn hold<'s>(shared: &'s Shared, state: &mut Locked<'s>, slot: usize, epoch: u64, slot_ns: u64, last_at: u64) {
    if !state.pace.timed || state.slots[slot].stuck {
        return;
    }
    let Some(sess) = state.sess(slot, epoch) else { return };
    sess.free_at = sess.free_at.max(sess.fed_at).saturating_add(slot_ns).max(last_at);
    let until = sess.free_at;
    // That is no hang.
    state.slots[slot].computing = Some((u64::MAX, epoch));
    while shared.config.clock.now() < until && !state.stopping && state.sess(slot, epoch).is_some() {
        shared.config.clock.wait(&shared.bells[slot], &shared.state, state, Some(until));
    }
}

/// The slot is reconfigured: modelled time passes.
fn load<'s>(shared: &'s Shared, state: &mut Locked<'s>, slot: usize, loaded: &Loaded, (until, takes): (u64, u64)) {
    while shared.config.clock.now() < until && !state.stopping {
        shared.config.clock.wait(&shared.bells[slot], &shared.state, state, Some(until));
    }
    let s = &mut state.slots[slot];
    s.reconfiguring = None;
    s.counts.reconfigurations += 1;
    s.counts.reconfigure_ns += takes;
    shared.note_load(state, slot, &loaded.name, (until.saturating_sub(takes), takes));
    let gone = state.programs.get(&loaded.name).is_none_or(|p| !p.active);
    if gone && state.slots[slot].session.is_none() {
        state.slots[slot].loaded = None;
    }
    // Its session may have gone meanwhile.
    shared.serve_waiters(state);
}

/// A thread has computed: the kernel is the slot's again, unless its session has ended.
fn put_back(shared: &Shared, state: &mut State, slot: usize, epoch: u64, engine: Option<Box<dyn Kernel>>) -> bool {
    let s = &mut state.slots[slot];
    let ours = s.epoch == epoch && s.session.is_some();
    let builtin = s.loaded.as_ref().is_some_and(Loaded::built_in);
    s.computing = None;
    if s.stuck {
        // Out of service until now; what the kernel knows is not trusted.
        s.stuck = false;
        shared.serve_waiters(state);
        shared.bells[slot].notify_one();
        return false;
    }
    if ours || !builtin {
        s.engine = engine;
    }
    if !ours {
        shared.serve_waiters(state);
        shared.bells[slot].notify_one();
    }
    ours
}

impl Shared {
    /// As a slot's thread does, for one that has computed in its place.
    pub(crate) fn return_engine(
        &self,
        state: &mut State,
        slot: usize,
        epoch: u64,
        engine: Option<Box<dyn Kernel>>,
    ) -> bool {
        put_back(self, state, slot, epoch, engine)
    }
}

/// A kernel was asked for something beside its packets.
pub(crate) fn give_back(shared: &Shared, state: &mut State, slot: usize, epoch: u64, engine: Option<Box<dyn Kernel>>) {
    if put_back(shared, state, slot, epoch, engine) {
        // What came for the session meanwhile.
        shared.bells[slot].notify_one();
    }
}

/// A kernel was reset for its session.
pub(crate) fn finish_reset(
    shared: &Shared,
    state: &mut State,
    slot: usize,
    epoch: u64,
    engine: Box<dyn Kernel>,
    reset: Result<(), Fault>,
) {
    let lost = matches!(reset, Err(Fault::Lost(_)));
    let watchdog = u64::try_from(shared.config.watchdog.as_nanos()).unwrap_or(u64::MAX);
    let since = state.slots[slot].computing.map_or(u64::MAX, |(since, _)| since);
    let hung = shared.config.clock.now().saturating_sub(since) >= watchdog;
    let process = state.slots[slot].loaded.as_ref().is_some_and(|l| !l.built_in());
    if !put_back(shared, state, slot, epoch, (!lost).then_some(engine)) {
        return;
    }
    // A process that ended while it was idle, and not one that the watchdog has just ended, is no fault of the
    // session that comes next: it gets a new one, once.
    let opening = |s: &&mut Sess| matches!(s.progress, Progress::Opening) && !s.renewed;
    if let Some(sess) = state.sess(slot, epoch).filter(|s| lost && process && !hung && opening(s)) {
        sess.renewed = true;
        return;
    }
    match reset {
        Ok(()) => {
            if let Some(sess) = state.sess(slot, epoch) {
                (sess.reset, sess.progress) = (false, Progress::Open);
                sess.wake();
            }
        }
        Err(fault) => shared.lose(state, slot, epoch, fault),
    }
}

/// A kernel has made a step.
fn finish(
    shared: &Shared,
    state: &mut State,
    slot: usize,
    epoch: u64,
    engine: Box<dyn Kernel>,
    work: &Work,
    step: Result<Step, Fault>,
    made: &[u8],
) {
    let lost = matches!(step, Err(Fault::Lost(_)));
    if !put_back(shared, state, slot, epoch, (!lost).then_some(engine)) {
        return;
    }
    let step = match step {
        Ok(step) => step,
        Err(fault) => return shared.lose(state, slot, epoch, fault),
    };
    let Some(sess) = state.sess(slot, epoch) else { return };
    sess.out.extend_from_slice(&made[..step.made]);
    if sess.whole && sess.out.len() > sess.out_limit {
        let limit = sess.out_limit;
        return shared.lose(state, slot, epoch, Fault::TooLong(limit));
    }
    sess.undrained = !step.done && (step.taken > 0 || step.made > 0);
    if let Some(piece) = sess.input.front_mut().filter(|_| work.to > work.from || work.eop) {
        piece.taken += step.taken;
        sess.queued -= step.taken;
        if piece.taken == piece.bytes.len() && (!piece.eop || step.done) {
            sess.input.pop_front();
        }
    }
    if step.done {
        sess.ends.push_back(sess.out.len());
        sess.open_packets = sess.open_packets.saturating_sub(1);
    }
    if !sess.whole || step.done {
        sess.wake();
    }
    shared.pump_due(state);
    state.scheduler.consume(slot, step.taken as u64);
    shared.pump(state);
    shared.note_credits(state, slot);
}

/// The thread that keeps time: what the drive gives arrives when it is due, and kernels make progress.
pub(crate) fn keep_time(shared: &Shared) {
    let watchdog = u64::try_from(shared.config.watchdog.as_nanos()).unwrap_or(u64::MAX);
    let mut state = shared.state.lock();
    let mut seen = 0;
    while !state.stopping {
        shared.pump_due(&mut state);
        let now = shared.config.clock.now();
        for slot in 0..state.slots.len() {
            let Some((since, _)) = state.slots[slot].computing else { continue };
            if since != u64::MAX && !state.slots[slot].stuck && now.saturating_sub(since) >= watchdog {
                state.slots[slot].stuck = state.slots[slot].loaded.as_ref().is_some_and(Loaded::built_in);
                if state.slots[slot].stuck {
                    let said = format!("no progress for {:?}", shared.config.watchdog);
                    // Whoever has the slot now: the packet may have been given up since.
                    let epoch = state.slots[slot].epoch;
                    shared.lose(&mut state, slot, epoch, Fault::Lost(said));
                }
            }
        }
        state.held.retain(|(due, _, waker)| {
            if *due <= now {
                waker.wake_by_ref();
            }
            *due > now
        });
        shared.take_back(&mut state);
        shared.end_overlong(&mut state);
        // As long as there are sessions from time to time: to be woken for each costs more than a short one does.
        let busy = state.slots.iter().any(|s| s.session.is_some() || s.computing.is_some());
        state.watching = busy || state.counter != seen;
        seen = state.counter;
        let look = state.watching.then(|| now.saturating_add(watchdog / 4));
        let due = state.flights.front().map(|f| f.due);
        let due = due.into_iter().chain(state.held.iter().map(|(due, ..)| *due));
        let until = look.into_iter().chain(due).chain(shared.next_idle(&state, now)).min();
        shared.config.clock.wait(&shared.timer, &shared.state, &mut state, until);
    }
}
