//! A short packet on the caller's thread: what a session would do for it, under two turns of the card's lock.

use crate::card::Card;
use crate::config::weight;
use crate::kernel::{Fault, Step};
use crate::manifest::Kind;
use crate::package::Factory;
use crate::session::whole;
use crate::slot::{Progress, Sess, Shared, Slot, State, named};
use crate::status::Usage;
use crate::worker::{begin, guarded};

/// What a packet came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AtOnce {
    /// The kernel's output; errors are those of [`crate::session::Session::run`].
    pub output: Result<Vec<u8>, Fault>,
    /// What the packet used, whatever came of it. None where the kernel did not take the parameters.
    pub usage: Option<Usage>,
    /// The slot that it was computed in.
    pub slot: usize,
}

/// A packet by itself, and what it asks for; as [`crate::config::Want`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The kernel: `NAME`, or `NAME:BACKEND`.
    pub kernel: &'a str,
    /// Its parameters.
    pub params: &'a [u32],
    /// Who pays.
    pub tenant: u64,
    /// As `Want::weight`.
    pub weight: u32,
    /// The bytes.
    pub input: &'a [u8],
    /// Bytes of output, at most.
    pub out_max: usize,
}

impl Card {
    /// Bytes of the longest packet that [`Card::at_once`] computes.
    pub fn at_once_max(&self) -> usize {
        self.shared().config.inline_bytes
    }

    /// Computes a packet on this thread, if that is possible: it is short
    /// ([`crate::config::CardConfig::inline_bytes`]), its kernel is built in and lies in an idle slot, and no time is
    /// modelled. None where it is not: nothing has happened then, and [`Card::open`] and
    /// [`crate::session::Session::run`] say what comes of it, or why nothing does. Everything is the same either way: a
    /// session of one packet, its charge, the watchdog, the kernel made anew.
    pub fn at_once(&self, packet: &Packet<'_>) -> Option<AtOnce> {
        self.shared().at_once(packet)
    }
}

impl Shared {
    fn at_once(&self, packet: &Packet<'_>) -> Option<AtOnce> {
        if packet.input.len() > self.config.inline_bytes {
            return None;
        }
        let (slot, epoch, make) = {
            let mut state = self.state.lock();
            // Where nothing watches, there are no threads yet, or they are not to be woken by this one.
            if state.stopping || !state.watching || state.pace.timed || state.pace.drive_bytes_per_s != 0 {
                return None;
            }
            let (slot, make) = ready(&state, packet)?;
            let weight = weight(packet.weight);
            self.greet(&mut state, packet.tenant, weight);
            let sess = Sess::new(packet.tenant, weight, Vec::new(), state.pace.flow());
            let epoch = self.seat(&mut state, slot, sess);
            if let Some(sess) = state.sess(slot, epoch) {
                (sess.reset, sess.progress) = (false, Progress::Open);
            }
            begin(self, &mut state, slot, epoch);
            (slot, epoch, make)
        };
        let (mut total, mut output, mut begun) = (Step::default(), Vec::new(), false);
        let result = guarded(|| {
            let mut engine = make();
            engine.reset(packet.params)?;
            begun = true;
            whole(engine.as_mut(), packet.input, &mut output, packet.out_max, &mut total)
        });
        let mut state = self.state.lock();
        total.done = true;
        let charged = self.charge(&mut state, slot, epoch, &total);
        let result = result.and_then(|()| charged.map(drop));
        let usage = state.sess(slot, epoch).map(|s| s.usage).unwrap_or_default();
        let output = match (self.return_engine(&mut state, slot, epoch, None), result) {
            (true, Ok(())) => Ok(output),
            (true, Err(fault)) => {
                self.lose(&mut state, slot, epoch, fault.clone());
                Err(fault)
            }
            // It was given up meanwhile: by the watchdog.
            (false, result) => {
                let said = state.sess(slot, epoch).and_then(|s| s.fault.clone());
                let gone = || Fault::Lost("the card is gone".into());
                Err(said.or(result.err()).unwrap_or_else(gone))
            }
        };
        self.close(&mut state, slot, epoch);
        Some(AtOnce { output, usage: begun.then_some(usage), slot })
    }
}

/// An idle slot that has the kernel, which is built in, active, and takes so many parameters.
fn ready(state: &State, packet: &Packet<'_>) -> Option<(usize, Factory)> {
    let (name, kind) = named(packet.kernel).ok()?;
    let program = state.programs.get(name).filter(|p| p.active)?;
    let range = &program.package.manifest().params;
    if kind.unwrap_or(program.prefer) != Kind::Model
        || !(range.min as usize..=range.max as usize).contains(&packet.params.len())
    {
        return None;
    }
    let makes = |s: &Slot| {
        let loaded = s.loaded.as_ref().filter(|_| s.quiet())?;
        let same = loaded.kind == Kind::Model && std::sync::Arc::ptr_eq(&loaded.package, &program.package);
        loaded.make.filter(|_| same)
    };
    state.slots.iter().enumerate().find_map(|(i, s)| Some((i, makes(s)?)))
}
