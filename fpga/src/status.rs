//! What a card says of itself.

use crate::manifest::{Kind, ParamRange, Region};
use crate::package::Package;
use crate::slot::{Shared, Slot, Tenant};
use crate::xrt;
use serde::Serialize;
use std::sync::Arc;

/// What a slot, a session or a tenant has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Usage {
    /// Slot time, ns: `cycles` over the slot's clock. Modelled, not this machine's.
    pub slot_ns: u64,
    /// Clock cycles that the kernel took.
    pub cycles: u64,
    /// Bytes that the kernel took.
    pub bytes_in: u64,
    /// Bytes that it made.
    pub bytes_out: u64,
}

impl Usage {
    pub(crate) fn add(&mut self, other: &Usage) {
        self.slot_ns = self.slot_ns.saturating_add(other.slot_ns);
        self.cycles = self.cycles.saturating_add(other.cycles);
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

/// What a slot is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotState {
    /// No kernel is in it.
    Empty,
    /// A kernel is being loaded: reconfiguration, start of a process.
    Loading,
    /// A kernel is in it that no session uses.
    Idle,
    /// A session has it.
    Held,
    /// A built-in kernel has not returned for longer than the watchdog allows: the slot is out of service until it
    /// does.
    Stuck,
}

/// A slot.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SlotStatus {
    /// Its number; 0 is the locked pass-through.
    pub slot: usize,
    /// What it is at.
    pub state: SlotState,
    /// The kernel that is in it.
    pub kernel: Option<String>,
    /// That kernel's back-end.
    pub backend: Option<Kind>,
    /// Whose session has it.
    pub tenant: Option<u64>,
    /// Its size.
    pub region: Region,
    /// Sessions that it has had.
    pub sessions: u64,
    /// Modelled time that it computed, ns.
    pub busy_ns: u64,
    /// Clock cycles that took.
    pub cycles: u64,
    /// Bytes that its kernels took.
    pub bytes_in: u64,
    /// Bytes that they made.
    pub bytes_out: u64,
    /// Times that another kernel was loaded.
    pub reconfigurations: u64,
    /// Modelled time that took, ns.
    pub reconfigure_ns: u64,
    /// Times that a kernel was lost in it.
    pub faults: u64,
    /// Times that a session which rested made room for another.
    pub taken: u64,
}

/// A back-end that cannot be used for now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unusable {
    /// Which.
    pub backend: Kind,
    /// A sentence.
    pub why: String,
}

/// A kernel that the card knows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KernelStatus {
    /// Its name.
    pub name: String,
    /// Its id, 32 hexadecimal digits.
    pub id: String,
    /// Its version.
    pub version: String,
    /// One sentence.
    pub about: String,
    /// It may be executed.
    pub active: bool,
    /// It was there from the start, and cannot be unloaded.
    pub device_defined: bool,
    /// Its back-ends.
    pub backends: Vec<Kind>,
    /// The one that is used where none is asked for.
    pub backend: Kind,
    /// Those that cannot run now: their file is not there, a stage is not active, or they need a card which this
    /// machine does not have or cannot use.
    pub unusable: Vec<Unusable>,
    /// The kernels that it is a chain of; none where it is no chain.
    pub stages: Vec<String>,
    /// Slots that it is in.
    pub slots: Vec<usize>,
    /// Names of its debug ports.
    pub peek: Vec<String>,
    /// How many parameters it takes, and what they mean.
    pub parameters: ParamRange,
}

/// A kernel that was lost: it crashed, hung, or broke the rules of its FIFOs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Lost {
    /// Which.
    pub kernel: String,
    /// In which slot.
    pub slot: usize,
    /// Which session of its tenant's that was, counted from 1.
    pub session: u64,
    /// A sentence.
    pub why: String,
}

/// What a tenant has used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TenantStatus {
    /// Its number.
    pub tenant: u64,
    /// Sessions that it has had.
    pub sessions: u64,
    /// What they used.
    #[serde(flatten)]
    pub usage: Usage,
    /// The kernel that was lost last, for that tenant alone: what it says of itself may be made of the tenant's bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
}

/// A card.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CardStatus {
    /// Its slots, slot 0 first.
    pub slots: Vec<SlotStatus>,
    /// Its kernels, by name.
    pub kernels: Vec<KernelStatus>,
    /// Its tenants, by number.
    pub tenants: Vec<TenantStatus>,
    /// Sessions that wait for a slot.
    pub waiting: usize,
}

impl CardStatus {
    /// As a tenant may see it: what its own kernels were lost of, and not what others' were.
    pub fn seen_by(mut self, tenant: u64) -> CardStatus {
        self.tenants.iter_mut().filter(|t| t.tenant != tenant).for_each(|t| t.lost = None);
        self
    }
}

fn slot_status(index: usize, slot: &Slot) -> SlotStatus {
    let state = if slot.stuck {
        SlotState::Stuck
    } else if slot.reconfiguring.is_some() {
        SlotState::Loading
    } else if slot.session.is_some() || slot.computing.is_some() {
        SlotState::Held
    } else if slot.loaded.is_some() {
        SlotState::Idle
    } else {
        SlotState::Empty
    };
    let counts = &slot.counts;
    SlotStatus {
        slot: index,
        state,
        kernel: slot.loaded.as_ref().map(|l| l.name.clone()),
        backend: slot.loaded.as_ref().map(|l| l.kind),
        tenant: slot.session.as_ref().map(|s| s.tenant),
        region: slot.region,
        sessions: counts.sessions,
        busy_ns: counts.usage.slot_ns,
        cycles: counts.usage.cycles,
        bytes_in: counts.usage.bytes_in,
        bytes_out: counts.usage.bytes_out,
        reconfigurations: counts.reconfigurations,
        reconfigure_ns: counts.reconfigure_ns,
        faults: counts.faults,
        taken: counts.taken,
    }
}

impl Shared {
    pub(crate) fn status(&self) -> CardStatus {
        let state = self.state.lock();
        let in_slots = |name: &str| {
            let has = |s: &Slot| s.loaded.as_ref().is_some_and(|l| l.name == name);
            state.slots.iter().enumerate().filter(|(_, s)| has(s)).map(|(i, _)| i).collect()
        };
        let kernels = state.programs.iter().map(|(name, program)| {
            let manifest = program.package.manifest();
            KernelStatus {
                name: name.clone(),
                id: manifest.id.to_string(),
                version: manifest.version.clone(),
                about: manifest.about.clone(),
                active: program.active,
                device_defined: program.device_defined,
                backends: manifest.backend.kinds().collect(),
                backend: program.prefer,
                unusable: Vec::new(),
                stages: manifest.backend.chain().iter().map(|s| s.kernel.clone()).collect(),
                slots: in_slots(name),
                peek: manifest.ports.peek.clone(),
                parameters: manifest.params.clone(),
            }
        });
        let tenant = |(id, t): (&u64, &Tenant)| {
            let Tenant { sessions, usage, lost, .. } = t;
            TenantStatus { tenant: *id, sessions: *sessions, usage: *usage, lost: lost.clone() }
        };
        // What each back-end needs: or why it cannot run, whatever is there.
        let mut needs = Vec::new();
        for (name, program) in &state.programs {
            let manifest = program.package.manifest();
            for kind in manifest.backend.kinds() {
                let stages = if kind == Kind::Model { manifest.backend.chain() } else { &[] };
                let links = stages.iter().try_for_each(|stage| self.link(&state, name, stage).map(drop));
                let asked = format!("{name}:{}", kind.name());
                needs.push((name.clone(), kind, links.map(|()| self.needs(&state, &asked))));
            }
        }
        let mut status = CardStatus {
            slots: state.slots.iter().enumerate().filter(|(_, s)| !s.absent).map(|(i, s)| slot_status(i, s)).collect(),
            kernels: kernels.collect(),
            tenants: state.tenants.iter().map(tenant).collect(),
            waiting: state.waiters.iter().filter(|w| w.answer.is_none()).count(),
        };
        // Files are not looked at under the lock.
        drop(state);
        for (name, backend, needs) in needs {
            let files = |(package, kind): &(Arc<Package>, Kind)| match kind {
                Kind::Xrt => xrt::Config::of(package, &self.config.place).map(drop),
                kind => Ok(package.has_file(*kind)?),
            };
            let Err(why) = needs.and_then(|all| all.iter().try_for_each(files)) else { continue };
            let unusable = Unusable { backend, why: why.to_string() };
            status.kernels.iter_mut().filter(|k| k.name == name).for_each(|k| k.unusable.push(unusable.clone()));
        }
        status
    }
}
