//! A thread's own memory, its turn at the processors, and what it does where a command takes long.

use std::mem::MaybeUninit;

use super::computing::{Breath, Turn};
use super::core::Core;
use super::cost;
use super::work::Work;

/// Bytes in which payload that must be looked at goes through a thread's own memory.
pub(super) const PIECE: usize = 64 << 10;
/// Bytes of directory entries asked for in one call.
const ENTRIES: usize = 16 << 10;

/// A thread's own memory.
pub(super) struct Scratch {
    /// For payload and for values.
    pub piece: Box<[u8]>,
    /// For directory entries.
    pub entries: Box<[MaybeUninit<u8>]>,
    /// Its turn at the processors. Whoever has one gives it up before it waits for names, for files or for a sync.
    pub turn: Option<Turn>,
    /// How often it has waited for others, and not for the host.
    pub waits: u32,
    /// What it has seen of the thread that looks at rings.
    breath: Breath,
    /// It runs on the processors of those that compute.
    pub apart: bool,
}

impl Default for Scratch {
    fn default() -> Scratch {
        let (piece, entries) = (vec![0; PIECE].into_boxed_slice(), Box::new_uninit_slice(ENTRIES));
        Scratch { piece, entries, turn: None, waits: 0, breath: Breath::default(), apart: false }
    }
}

impl Scratch {
    /// Of a thread that does not look at rings, where it takes long: lets the one that does have a processor.
    pub fn breathe(&mut self, core: &Core) {
        self.waits = self.waits.wrapping_add(u32::from(self.breath.take(&core.beat)));
    }

    /// Before it may have to wait.
    pub fn wait(&mut self) {
        self.turn = None;
        self.waits = self.waits.wrapping_add(1);
    }

    /// Before a command, or a slice of one, on a thread that does not look at rings: where it runs, and a turn. The
    /// thread that looks meanwhile, and clients, are to find a processor: of two halves where this one keeps its own
    /// for long, and otherwise any. Kept to its half, the one that looks would wait behind whatever else the host runs
    /// there, an attach or the end of a process.
    pub fn begin_long(&mut self, core: &Core, work: &Work, sleeps: bool) {
        if sleeps || !core.has_several() {
            return core.processors.roam(&mut self.apart);
        }
        // (One that has been cut has shown that it is none.)
        if work.begun == 0 && !cost::is_large(work) && work.queue.pace.is_brief() {
            core.processors.keep_out(&mut self.apart);
        } else {
            core.processors.compute(&mut self.apart);
        }
        self.begin_turn(core, work);
    }

    /// Before a command, or an element of one, that a thread runs which does not look at rings: a turn, if there should
    /// be one. Not for one call of the host, however long.
    pub fn begin_turn(&mut self, core: &Core, work: &Work) {
        let sleeps = work.queue.pace.sleeps() || cost::waits_for_the_host(core, work);
        let without = sleeps || cost::is_endless(work) || cost::takes_turns(work);
        match &self.turn {
            Some(_) => self.renew_turn(core, work),
            None if core.has_several() && work.away && !without => self.take_turn(core, work, false),
            None => {}
        }
    }

    /// Where it has had a turn that was long enough, and others wait for one: the next one of its kind.
    pub fn renew_turn(&mut self, core: &Core, work: &Work) {
        if let Some(turn) = self.turn.as_ref().filter(|turn| turn.is_due()) {
            let yields = turn.yields;
            self.take_turn(core, work, yields);
        }
    }

    /// Another turn at the processors. `yields`: others do not wait for what it does, or not for long: a piece of a
    /// checksum.
    pub fn take_turn(&mut self, core: &Core, work: &Work, yields: bool) {
        self.wait();
        let yields = work.away && yields && core.has_several();
        self.turn = Some(core.computing.turn(work.client().0, yields));
    }
}
