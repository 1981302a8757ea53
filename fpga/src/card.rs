//! The card: slots, the kernels that may run in them, and the sessions that use them.
//!
//! The life cycle is that of NVM Express Computational Programs (TP4091; NVM Express Computational Programs Command Set
//! Specification): a program is loaded, activated, executed, deactivated and unloaded, each by a call of its own, which
//! the caller authorises. Programs of the card's catalogue are "device-defined": there from the start, active, and not
//! to be unloaded.

use crate::bandwidth::Scheduler;
use crate::config::{CardConfig, Pace, SLOTS_MAX, Want, check_slots};
use crate::error::CardError;
use crate::kernel::{Fault, Model, Stream};
use crate::manifest::{KernelId, Kind, Manifest, PackageError, Region};
use crate::package::{Catalogue, Package};
use crate::session::{Session, keep, opened};
use crate::slot::{Counts, Locked, Program, Shared, Slot, State, named};
use crate::status::CardStatus;
use crate::worker;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use weldfs_locks::{Condvar, Mutex};

/// Requests that the drive works on at once.
const DEPTH: usize = 2;
/// The kernel that slot 0 holds for ever.
const PASS_THROUGH: &str = "pass-through";

/// An FPGA card in the drive. Calls may be made from any thread; none of them waits for a kernel, but for
/// [`Card::load`], which tries a package's shared objects out.
pub struct Card {
    shared: Arc<Shared>,
    /// None before a session is opened.
    threads: Mutex<Option<Vec<JoinHandle<()>>>>,
}

/// Slot 0's: every byte as it came.
#[derive(Default)]
struct PassThrough;

impl Stream for PassThrough {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        if params.is_empty() { Ok(()) } else { Err(Fault::Params("pass-through takes none".into())) }
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        out.extend_from_slice(input);
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<(), Fault> {
        Ok(())
    }
}

impl Card {
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// A card with the kernels of a catalogue, all of them active.
    ///
    /// # Errors
    /// [`CardError::Config`], and [`CardError::Package`] where a built-in kernel that a manifest names does not exist.
    pub fn new(config: CardConfig, mut catalogue: Catalogue) -> Result<Arc<Card>, CardError> {
        config.check()?;
        if !catalogue.packages().any(|p| p.manifest().name == PASS_THROUGH) {
            let manifest = Manifest::parse(include_str!("../packages/pass-through/kernel.toml"))?;
            catalogue.add_builtin(manifest, || Box::new(Model::new(PassThrough, 1.0)))?;
        }
        let mut programs = BTreeMap::new();
        for package in catalogue.packages() {
            let manifest = package.manifest();
            if let Some(builtin) = manifest.backend.model.as_ref().and_then(|m| m.builtin.as_ref()) {
                let missing = || PackageError::NoBackend { name: manifest.name.clone(), kind: builtin.clone() };
                catalogue.factory(builtin).ok_or_else(missing)?;
            }
            programs.insert(manifest.name.clone(), program(package.clone(), true)?);
        }
        let whole = Region { lut: u32::MAX, ff: u32::MAX, bram: u32::MAX, dsp: u32::MAX };
        let mut slots: Vec<Slot> = vec![empty(whole, true)];
        slots.extend(config.slots.iter().map(|region| empty(*region, false)));
        let (count, pace) = (slots.len(), config.pace());
        let scheduler = Scheduler::new(count, depth(&pace));
        let mut state = State { slots, programs, scheduler, ..State::nothing(pace) };
        // Of all slots that it may ever have.
        let bells = (0..=SLOTS_MAX).map(|_| Condvar::new()).collect();
        let factories = catalogue.factories();
        let (timer, given_up) = Default::default();
        let shared = Shared { config, factories, state: Mutex::new(State::nothing(pace)), bells, timer, given_up };
        for package in catalogue.packages() {
            shared.check_chain(&state, package)?;
        }
        state.slots[0].loaded = Some(shared.loaded(&state, PASS_THROUGH, None)?);
        *shared.state.lock() = state;
        let shared = Arc::new(shared);
        Ok(Arc::new(Card { shared, threads: Mutex::new(None) }))
    }

    /// Loads a package: the card knows it, and it is not active yet. Each of its shared objects that exists is tried
    /// out in a process of its own, and the call waits for that. What it asks of the card's memory must be there.
    ///
    /// The folder of a built-in kernel, with the manifest that the card has of it, adds its other back-ends, of which
    /// one at least must be there: the kernel stays what it was, and [`Card::prefer`] chooses.
    ///
    /// # Errors
    /// [`CardError::Package`]: another has the name or id, no back-end can be used, or a shared object is not one.
    /// [`CardError::Memory`].
    pub fn load(&self, package: Package) -> Result<KernelId, CardError> {
        let new = self.examine(package)?;
        let (name, id) = (new.package.manifest().name.clone(), new.package.manifest().id);
        let mut state = self.shared.state.lock();
        // It was tried out without the lock.
        if unless_taken(&state, &new.package)? {
            state.programs.entry(name).and_modify(|old| old.package = new.package);
        } else {
            state.programs.insert(name, new);
        }
        Ok(id)
    }

    /// Whether a package can be loaded: does all of it but that.
    ///
    /// # Errors
    /// Those of [`Card::load`].
    pub fn could_load(&self, package: Package) -> Result<(), CardError> {
        self.examine(package).map(drop)
    }

    fn examine(&self, package: Package) -> Result<Program, CardError> {
        let manifest = package.manifest();
        let (name, asks) = (manifest.name.clone(), manifest.ports.dram_bytes);
        let (adds, has) = {
            let state = self.shared.state.lock();
            (unless_taken(&state, &package)?, state.pace.dram_bytes)
        };
        if asks > has {
            return Err(CardError::Memory { kernel: name, asks, has });
        }
        let mut new = program(package, false)?;
        new.prefer = self.try_out(&new.package, adds)?;
        Ok(new)
    }

    /// The first back-end of a package that can be used; where it `adds` to a built-in kernel, of those that are added.
    /// A file that was not built yet is passed over, as long as there is another; one that is wrong is an error.
    fn try_out(&self, package: &Package, adds: bool) -> Result<Kind, CardError> {
        let manifest = package.manifest();
        let (mut first, mut missing) = (None, None);
        let is_there = |kind: &Kind| adds && *kind == Kind::Model && manifest.backend.library(*kind).is_none();
        for kind in manifest.backend.kinds().filter(|kind| !is_there(kind)) {
            let builtin = manifest.backend.model.as_ref().and_then(|m| m.builtin.as_ref());
            if let (Kind::Model, Some(builtin)) = (kind, builtin) {
                let unknown = || PackageError::NoBackend { name: manifest.name.clone(), kind: builtin.clone() };
                self.shared.factories.get(builtin).ok_or_else(unknown)?;
                first = first.or(Some(kind));
                continue;
            }
            if kind == Kind::Model && !manifest.backend.chain().is_empty() {
                self.shared.check_chain(&self.shared.state.lock(), package)?;
                first = first.or(Some(kind));
                continue;
            }
            // An image is not tried out: the card may be at work with another.
            let tried = match kind {
                Kind::Xrt => package.image().map(drop).map_err(CardError::from),
                _ => self.shared.launch(package, kind).and_then(|launch| launch.start()).map(drop),
            };
            match tried {
                Ok(()) => first = first.or(Some(kind)),
                Err(error @ CardError::Package(PackageError::File { .. } | PackageError::NoBackend { .. })) => {
                    missing = missing.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        let kind = if adds { "that the device has not" } else { "that can be used" };
        let none = || PackageError::NoBackend { name: manifest.name.clone(), kind: kind.into() };
        first.ok_or_else(|| missing.unwrap_or_else(|| none().into()))
    }

    /// A loaded kernel may be executed from now on.
    ///
    /// # Errors
    /// [`CardError::NoKernel`]; [`CardError::TooLarge`] where no slot is large enough.
    pub fn activate(&self, kernel: &str) -> Result<(), CardError> {
        let mut state = self.shared.state.lock();
        let State { slots, programs, .. } = &mut *state;
        let program = programs.get_mut(kernel).ok_or_else(|| CardError::NoKernel(kernel.into()))?;
        let region = program.package.manifest().region;
        if kernel != PASS_THROUGH && !slots.iter().any(|s| s.fits(&region)) {
            return Err(CardError::TooLarge(kernel.into()));
        }
        program.active = true;
        Ok(())
    }

    /// It may not be executed any longer, and leaves its slots. Sessions that wait for it fail.
    ///
    /// # Errors
    /// [`CardError::NoKernel`]; [`CardError::Busy`] where a session uses it; [`CardError::DeviceDefined`] for the
    /// pass-through.
    pub fn deactivate(&self, kernel: &str) -> Result<(), CardError> {
        let mut state = self.shared.state.lock();
        if !state.programs.contains_key(kernel) {
            return Err(CardError::NoKernel(kernel.into()));
        }
        if kernel == PASS_THROUGH {
            return Err(CardError::DeviceDefined(kernel.into()));
        }
        let has = |s: &Slot| s.loaded.as_ref().is_some_and(|l| l.has(kernel));
        if state.slots.iter().any(|s| has(s) && (s.session.is_some() || s.computing.is_some())) {
            return Err(CardError::Busy(format!("a session uses kernel {kernel}")));
        }
        for slot in state.slots.iter_mut().filter(|s| has(s) && s.quiet()) {
            (slot.loaded, slot.engine) = (None, None);
        }
        if let Some(program) = state.programs.get_mut(kernel) {
            program.active = false;
        }
        self.shared.serve_waiters(&mut state);
        Ok(())
    }

    /// The card forgets a kernel that is not active.
    ///
    /// # Errors
    /// [`CardError::NoKernel`]; [`CardError::Busy`] where it is active; [`CardError::DeviceDefined`].
    pub fn unload(&self, kernel: &str) -> Result<(), CardError> {
        let mut state = self.shared.state.lock();
        let program = state.programs.get(kernel).ok_or_else(|| CardError::NoKernel(kernel.into()))?;
        if program.device_defined {
            return Err(CardError::DeviceDefined(kernel.into()));
        }
        if program.active {
            return Err(CardError::Busy(format!("kernel {kernel} is active")));
        }
        state.programs.remove(kernel);
        Ok(())
    }

    /// Which back-end of a kernel is used where none is asked for.
    ///
    /// # Errors
    /// [`CardError::NoKernel`]; [`CardError::Package`] where it has no such back-end, or its file is not there.
    pub fn prefer(&self, kernel: &str, kind: Kind) -> Result<(), CardError> {
        let unknown = || CardError::NoKernel(kernel.into());
        let package = self.shared.state.lock().programs.get(kernel).ok_or_else(unknown)?.package.clone();
        if !package.manifest().backend.has(kind) {
            return Err(PackageError::NoBackend { name: kernel.into(), kind: kind.name().into() }.into());
        }
        package.has_file(kind)?;
        self.shared.state.lock().programs.get_mut(kernel).ok_or_else(unknown)?.prefer = kind;
        Ok(())
    }

    /// Whether a kernel can be executed: `NAME` or `NAME:BACKEND`.
    ///
    /// # Errors
    /// [`CardError::NoKernel`], [`CardError::Inactive`], [`CardError::NoCard`]; [`CardError::Package`] where the
    /// library of that back-end is not there.
    pub fn check(&self, kernel: &str) -> Result<(), CardError> {
        let state = self.shared.state.lock();
        let (name, kind) = named(kernel)?;
        self.shared.loaded(&state, name, kind)?;
        let needs = self.shared.needs(&state, kernel);
        drop(state);
        self.shared.there(&needs)
    }

    /// Opens a session: a slot that computes for one tenant. A slot that has the kernel and is idle is used first, then
    /// one that is empty, then the one whose kernel was not used for longest, which is reconfigured.
    ///
    /// # Errors
    /// [`CardError`], all of them. Dropping the future gives the place in the queue, or the slot, back.
    pub fn open(&self, want: Want) -> Opening {
        let at = self.start().map_or_else(At::Failed, |()| At::Asking);
        Opening { shared: self.shared.clone(), want, at }
    }

    /// Has its threads run, once there is something to do: a device that computes in no slot has none of them.
    fn start(&self) -> Result<(), CardError> {
        let mut threads = self.threads.lock();
        if threads.is_none() {
            let slots = self.shared.state.lock().slots.len();
            *threads = Some(start(&self.shared, slots)?);
        }
        Ok(())
    }

    /// What the card is at.
    pub fn status(&self) -> CardStatus {
        self.shared.status()
    }

    /// A value of the debug port of the kernel in a slot. None where there is none, and for a built-in kernel without a
    /// session, which has no state.
    ///
    /// # Errors
    /// [`CardError::Busy`]: the kernel computes right now, or the slot is being reconfigured.
    pub fn peek(&self, slot: usize, port: u32) -> Result<Option<u32>, CardError> {
        let mut state = self.shared.state.lock();
        if slot >= state.slots.len() {
            return Ok(None);
        }
        self.shared.peek(&mut state, slot, None, port)
    }

    /// How fast it is.
    pub fn pace(&self) -> Pace {
        self.shared.state.lock().pace
    }

    /// Makes it faster or slower, while it works.
    ///
    /// # Errors
    /// [`CardError::Config`]: the clock is out of range.
    pub fn set_pace(&self, pace: Pace) -> Result<(), CardError> {
        pace.check()?;
        let mut state = self.shared.state.lock();
        state.scheduler.set_depth(depth(&pace));
        if pace.timed && !state.pace.timed {
            // What was computed before took no time, and has saved none up.
            let now = self.shared.config.clock.now();
            state.slots.iter_mut().filter_map(|s| s.session.as_mut()).for_each(|s| s.goes_on(now));
        }
        state.pace = pace;
        self.shared.pump(&mut state);
        Ok(())
    }

    /// Gives it other slots, 1 and up, while it works: their number and sizes. A slot whose size changes, or that is no
    /// longer there, loses its kernel; the others go on. A kernel that fits none of them any longer stays active, and
    /// opening it is [`CardError::TooLarge`].
    ///
    /// # Errors
    /// [`CardError::Config`]: there are 1 to 64, of at least one look-up table; [`CardError::Busy`]: one that would
    /// change is in use. Nothing has changed then.
    pub fn set_slots(&self, regions: &[Region]) -> Result<(), CardError> {
        check_slots(regions)?;
        let mut threads = self.threads.lock();
        let mut state = self.shared.state.lock();
        let after = |at: usize| at.checked_sub(1).and_then(|at| regions.get(at));
        for (at, slot) in state.slots.iter().enumerate().skip(1) {
            let changes = !slot.absent && after(at) != Some(&slot.region);
            if changes && !slot.quiet() {
                let verb = if after(at).is_some() { "cannot get another size" } else { "cannot be taken away" };
                return Err(CardError::Busy(format!("slot {at} is in use: it {verb}")));
            }
        }
        let had = state.slots.len();
        if let Some(threads) = threads.as_mut() {
            // Before anything has changed.
            for slot in threads.len() - 1..=regions.len() {
                threads.push(slot_thread(&self.shared, slot)?);
            }
        }
        state.slots.extend(regions.iter().skip(had - 1).map(|region| empty(*region, false)));
        let lanes = state.slots.len();
        state.scheduler.widen(lanes);
        for (at, slot) in state.slots.iter_mut().enumerate().skip(1) {
            let region = after(at).copied();
            if slot.absent || region != Some(slot.region) {
                (slot.loaded, slot.engine, slot.served) = (None, None, None);
            }
            (slot.absent, slot.region) = (region.is_none(), region.unwrap_or(slot.region));
        }
        self.shared.serve_waiters(&mut state);
        Ok(())
    }

    /// Bytes that the input FIFO of a session holds which gets its slot now; as many of its output may wait.
    pub fn fifo_bytes(&self) -> usize {
        self.pace().flow().all_bytes() as usize
    }

    /// The sizes of slots 1 and up.
    pub fn slots(&self) -> Vec<Region> {
        let state = self.shared.state.lock();
        state.slots.iter().skip(1).filter(|s| !s.absent).map(|s| s.region).collect()
    }

    /// A manual clock has been moved: those that wait for a time look at it.
    pub fn tick(&self) {
        let _state = self.shared.state.lock();
        self.shared.bells.iter().for_each(|b| {
            b.notify_all();
        });
        self.shared.timer.notify_all();
    }
}

/// Requests that the drive holds at once.
fn depth(pace: &Pace) -> usize {
    if pace.drive_bytes_per_s == 0 { usize::MAX } else { DEPTH }
}

type Work = Box<dyn FnOnce(&Shared) + Send>;

fn spawn(shared: &Arc<Shared>, name: String, work: Work) -> Result<JoinHandle<()>, CardError> {
    let shared = shared.clone();
    let started = std::thread::Builder::new().name(name).spawn(move || work(&shared));
    started.map_err(|e| CardError::Config(format!("no thread for a slot: {e}")))
}

/// The thread of a slot, which may be there before the slot is.
fn slot_thread(shared: &Arc<Shared>, slot: usize) -> Result<JoinHandle<()>, CardError> {
    spawn(shared, format!("weldfs-slot{slot}"), Box::new(move |shared| worker::run(shared, slot)))
}

fn start(shared: &Arc<Shared>, count: usize) -> Result<Vec<JoinHandle<()>>, CardError> {
    let mut threads = vec![spawn(shared, "weldfs-card".into(), Box::new(worker::keep_time))];
    threads.extend((0..count).map(|slot| slot_thread(shared, slot)));
    let failed = threads.iter().find_map(|t| t.as_ref().err().cloned());
    let running = threads.into_iter().flatten().collect();
    match failed {
        None => Ok(running),
        Some(error) => {
            stop(shared);
            Err(error)
        }
    }
}

fn stop(shared: &Shared) {
    shared.given_up.store(true, Ordering::Release);
    let mut state = shared.state.lock();
    state.stopping = true;
    shared.bells.iter().chain([&shared.timer]).for_each(|b| {
        b.notify_all();
    });
    for session in state.slots.iter_mut().filter_map(|s| s.session.as_mut()) {
        session.wake();
    }
    state.held.drain(..).for_each(|(.., waker)| waker.wake());
    for waiter in &mut state.waiters {
        if let Some(waker) = waiter.waker.take() {
            waker.wake();
        }
    }
}

/// The card's threads end. One whose kernel does not return is left behind.
impl Drop for Card {
    fn drop(&mut self) {
        stop(&self.shared);
        for (i, thread) in self.threads.get_mut().take().into_iter().flatten().enumerate() {
            let slot = i.checked_sub(1);
            let stuck = slot.is_some_and(|s| self.shared.state.lock().slots.get(s).is_some_and(|s| s.stuck));
            if !stuck && thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn program(package: Package, device_defined: bool) -> Result<Program, CardError> {
    let manifest = package.manifest();
    let none = || PackageError::NoBackend { name: manifest.name.clone(), kind: "that can be used".into() };
    let prefer = manifest.backend.kinds().next().ok_or_else(none)?;
    Ok(Program { package: Arc::new(package), active: device_defined, device_defined, prefer })
}

/// Whether a package adds to the built-in kernel of its name; else its name and id are free.
///
/// # Errors
/// [`PackageError::Taken`].
fn unless_taken(state: &State, package: &Package) -> Result<bool, PackageError> {
    let manifest = package.manifest();
    let (name, id) = (&manifest.name, manifest.id);
    let old = state.programs.iter().find(|(n, p)| *n == name || p.package.manifest().id == id);
    let Some((taken, old)) = old else { return Ok(false) };
    if package.adds_to(&old.package) {
        return Ok(true);
    }
    let why = if taken == name && old.package.folder().is_some() && old.package.folder() == package.folder() {
        format!("kernel {taken} is loaded from this folder already, and runs what its files are now")
    } else if taken != name {
        format!("kernel {taken} has the same id")
    } else if old.device_defined && old.package.folder().is_none() {
        format!("kernel {name} comes with the device, and this is another one: its kernel.toml is not the device's")
    } else {
        format!("the device has a kernel with the name {name} already")
    };
    Err(PackageError::Taken(why))
}

fn empty(region: Region, locked: bool) -> Slot {
    Slot {
        region,
        locked,
        absent: false,
        loaded: None,
        reconfiguring: None,
        engine: None,
        served: None,
        epoch: 0,
        session: None,
        computing: None,
        left: Arc::default(),
        stuck: false,
        used: 0,
        counts: Counts::default(),
    }
}

impl Shared {
    /// Peeks at the kernel in a slot.
    pub(crate) fn peek<'s>(
        &'s self,
        state: &mut Locked<'s>,
        slot: usize,
        epoch: Option<u64>,
        port: u32,
    ) -> Result<Option<u32>, CardError> {
        let s = &mut state.slots[slot];
        if epoch.is_some_and(|e| e != s.epoch) {
            return Ok(None);
        }
        if s.computing.is_some() || s.reconfiguring.is_some() || s.engine.as_ref().is_some_and(|e| e.is_busy()) {
            return Err(CardError::Busy(format!("the kernel in slot {slot} computes")));
        }
        let Some(mut engine) = s.engine.take() else { return Ok(None) };
        let epoch = s.epoch;
        worker::begin(self, state, slot, epoch);
        let peeked = Locked::unlocked(state, &self.state, || worker::guarded(|| Ok((engine.peek(port), engine))));
        let (value, engine) = peeked.map_or((None, None), |(value, engine)| (value, Some(engine)));
        worker::give_back(self, state, slot, epoch, engine);
        Ok(value)
    }
}

enum At {
    /// There are no threads for it.
    Failed(CardError),
    Asking,
    Waiting(u64),
    Placed(usize, u64),
    Done,
}

/// What [`Card::open`] gives: resolves to the session.
#[must_use = "futures do nothing unless they are polled"]
pub struct Opening {
    shared: Arc<Shared>,
    want: Want,
    at: At,
}

impl Future for Opening {
    type Output = Result<Session, CardError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.at {
                At::Failed(ref error) => return Poll::Ready(Err(error.clone())),
                At::Asking => {
                    let mut state = self.shared.state.lock();
                    let needs = self.shared.needs(&state, &self.want.kernel);
                    if !needs.is_empty() {
                        // No slot is reconfigured for what cannot run. The lock is not held while files are looked at.
                        drop(state);
                        if let Err(error) = self.shared.there(&needs) {
                            return Poll::Ready(Err(error));
                        }
                        state = self.shared.state.lock();
                    }
                    let asked = self.shared.ask(&mut state, &self.want);
                    drop(state);
                    self.at = match asked {
                        Ok(Ok((slot, epoch))) => At::Placed(slot, epoch),
                        Ok(Err(ticket)) => At::Waiting(ticket),
                        Err(error) => return Poll::Ready(Err(error)),
                    };
                }
                At::Waiting(ticket) => {
                    let mut state = self.shared.state.lock();
                    let stopping = state.stopping;
                    let Some(at) = state.waiters.iter().position(|w| w.ticket == ticket) else {
                        return Poll::Ready(Err(CardError::Busy("it waits no longer".into())));
                    };
                    if let Some(answer) = state.waiters[at].answer.clone() {
                        state.waiters.remove(at);
                        drop(state);
                        match answer {
                            Ok((slot, epoch)) => self.at = At::Placed(slot, epoch),
                            Err(error) => {
                                self.at = At::Done;
                                return Poll::Ready(Err(error));
                            }
                        }
                    } else if stopping {
                        return Poll::Ready(Err(CardError::Fault(Fault::Lost("the card is gone".into()))));
                    } else {
                        keep(&mut state.waiters[at].waker, cx.waker());
                        return Poll::Pending;
                    }
                }
                At::Placed(slot, epoch) => {
                    let Poll::Ready(result) = opened(&self.shared, slot, epoch, cx.waker()) else {
                        return Poll::Pending;
                    };
                    self.at = At::Done;
                    // Dropped at once where it did not open: that frees the slot.
                    let session = Session::new(self.shared.clone(), slot, epoch);
                    return Poll::Ready(result.map(|()| session));
                }
                At::Done => return Poll::Ready(Err(CardError::Busy("it has been opened".into()))),
            }
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        match self.at {
            At::Waiting(ticket) => {
                let at = state.waiters.iter().position(|w| w.ticket == ticket);
                if let Some(Ok((slot, epoch))) = at.and_then(|at| state.waiters.remove(at).answer) {
                    self.shared.close(&mut state, slot, epoch);
                }
            }
            At::Placed(slot, epoch) => self.shared.close(&mut state, slot, epoch),
            At::Failed(_) | At::Asking | At::Done => {}
        }
    }
}
