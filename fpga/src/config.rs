//! What a card is made of.

use crate::bandwidth::WEIGHT_MAX;
use crate::clock::Clock;
use crate::error::CardError;
use crate::flit::FLIT_BYTES;
use crate::flow::Credits;
use crate::manifest::Region;
use crate::xrt::Place;
use std::path::PathBuf;
use std::time::Duration;

/// Slots that a card may have beside slot 0.
pub const SLOTS_MAX: usize = 64;

/// Bytes that a FIFO may have: all credits of a session together.
pub const FIFO_BYTES_MAX: u64 = 256 << 20;

/// How long loading a kernel into a slot takes. A partial bitstream is as large as the slot's region, whatever is in
/// it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reconfigure {
    /// For any region, ns.
    pub base_ns: u64,
    /// For each look-up table of the region, ns.
    pub per_lut_ns: u64,
}

impl Reconfigure {
    /// Takes no time.
    pub const NONE: Reconfigure = Reconfigure { base_ns: 0, per_lut_ns: 0 };

    /// For a slot of this size, ns.
    pub fn ns(&self, region: &Region) -> u64 {
        self.base_ns.saturating_add(self.per_lut_ns.saturating_mul(u64::from(region.lut)))
    }
}

/// What a card is made of.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// The sizes of slots 1 and up: 1 to 64 of them.
    pub slots: Vec<Region>,
    /// Memory of the card that each slot has, bytes: a kernel whose manifest asks for more does not fit.
    pub dram_bytes: u64,
    /// The slots' clock, Hz, 1 MHz to 2 GHz. A kernel that is built for less runs at its own.
    pub clock_hz: u64,
    /// How long loading a kernel takes.
    pub reconfigure: Reconfigure,
    /// R: requests that a kernel may have in flight or in its FIFO, 1 to 4096.
    pub credits: u32,
    /// C: bytes of a request, 64 to 16 MiB; times R, at most [`FIFO_BYTES_MAX`].
    pub credit_bytes: u32,
    /// What the drive gives all slots together, bytes/s; 0: as much as they take.
    pub drive_bytes_per_s: u64,
    /// Kernels take their modelled time: what comes of a packet or a stream is held back until then. Else that time is
    /// only counted.
    pub timed: bool,
    /// How long a kernel may be without progress: 1 ms at least.
    pub watchdog: Duration,
    /// Packets of at most so many bytes are computed by the caller's own thread where the kernel is built in and its
    /// slot is quiet: waking another thread costs more than they do. 0: never.
    pub inline_bytes: usize,
    /// The program and its arguments that a shared object is run by; empty: found as `docs/SLOTS.md` says.
    pub host: Vec<PathBuf>,
    /// The card of this machine that images (`[backend.xrt]`) run on, and how it is reached.
    pub place: Place,
    /// What time it is.
    pub clock: Clock,
}

/// A ninth of an XCVU9P each: three slots and the framework leave room for routing.
const SLOT: Region = Region { lut: 131_072, ff: 262_144, bram: 240, dsp: 760 };

impl Default for CardConfig {
    fn default() -> CardConfig {
        CardConfig {
            slots: vec![SLOT; 3],
            dram_bytes: 1 << 30,
            clock_hz: 250_000_000,
            reconfigure: Reconfigure { base_ns: 100_000_000, per_lut_ns: 1_500 },
            credits: 16,
            credit_bytes: 64 << 10,
            drive_bytes_per_s: 0,
            timed: false,
            watchdog: Duration::from_secs(10),
            inline_bytes: 16 << 10,
            host: Vec::new(),
            place: Place::default(),
            clock: Clock::machine(),
        }
    }
}

/// How fast a card is: what can change while it works.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    /// As [`CardConfig::clock_hz`]: from the next step of each kernel on.
    pub clock_hz: u64,
    /// As [`CardConfig::reconfigure`]: of kernels that are loaded from now on.
    pub reconfigure: Reconfigure,
    /// As [`CardConfig::drive_bytes_per_s`]: from the next request on.
    pub drive_bytes_per_s: u64,
    /// As [`CardConfig::timed`].
    pub timed: bool,
    /// As [`CardConfig::dram_bytes`]: of packages that are loaded from now on.
    pub dram_bytes: u64,
    /// As [`CardConfig::credits`]: of sessions that get their slot from now on.
    pub credits: u32,
    /// As [`CardConfig::credit_bytes`]: of the same.
    pub credit_bytes: u32,
}

impl Pace {
    /// A kernel that is built for `built_for` Hz runs with so many.
    pub(crate) fn hz(&self, built_for: u64) -> u64 {
        self.clock_hz.min(built_for).max(1)
    }

    /// Credits of a session that gets its slot now.
    pub(crate) fn flow(&self) -> Credits {
        Credits::new(self.credits.into(), self.credit_bytes.into(), FLIT_BYTES as u64)
    }

    pub(crate) fn check(&self) -> Result<(), CardError> {
        check(&[
            ((1_000_000..=2_000_000_000).contains(&self.clock_hz), "the slots' clock is 1 MHz to 2 GHz"),
            ((1..=4096).contains(&self.credits), "a kernel has 1 to 4096 credits"),
            ((FLIT_BYTES as u32..=16 << 20).contains(&self.credit_bytes), "a credit is for 64 bytes to 16 MiB"),
            (
                u64::from(self.credits) * u64::from(self.credit_bytes) <= FIFO_BYTES_MAX,
                "all credits together are for at most 256 MiB",
            ),
        ])
    }
}

impl CardConfig {
    /// How fast it is at first.
    pub fn pace(&self) -> Pace {
        let CardConfig { clock_hz, reconfigure, drive_bytes_per_s, timed, dram_bytes, credits, credit_bytes, .. } =
            *self;
        Pace { clock_hz, reconfigure, drive_bytes_per_s, timed, dram_bytes, credits, credit_bytes }
    }

    /// One that is so fast at first.
    pub fn at(self, pace: &Pace) -> CardConfig {
        let Pace { clock_hz, reconfigure, drive_bytes_per_s, timed, dram_bytes, credits, credit_bytes } = *pace;
        CardConfig { clock_hz, reconfigure, drive_bytes_per_s, timed, dram_bytes, credits, credit_bytes, ..self }
    }

    /// With this many slots of the default size.
    pub fn with_slots(count: usize) -> CardConfig {
        CardConfig { slots: vec![SLOT; count], ..CardConfig::default() }
    }

    pub(crate) fn check(&self) -> Result<(), CardError> {
        check_slots(&self.slots)?;
        check(&[(self.watchdog >= Duration::from_millis(1), "the watchdog waits at least 1 ms")])?;
        self.pace().check()
    }
}

/// The first rule that does not hold, as an error.
fn check(rules: &[(bool, &str)]) -> Result<(), CardError> {
    match rules.iter().find(|(good, _)| !good) {
        Some((_, why)) => Err(CardError::Config((*why).into())),
        None => Ok(()),
    }
}

/// Whether a card can have slots of these sizes.
pub(crate) fn check_slots(slots: &[Region]) -> Result<(), CardError> {
    check(&[
        ((1..=SLOTS_MAX).contains(&slots.len()), "a card has 1 to 64 slots"),
        (slots.iter().all(|s| s.lut > 0), "a slot has at least one look-up table"),
    ])
}

/// Whether to wait for a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// Until one is free.
    Wait,
    /// Not at all: EBUSY.
    Busy,
}

/// What a session is opened with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Want {
    /// The kernel: `NAME`, or `NAME:BACKEND` (`crc32c:rtl`).
    pub kernel: String,
    /// Its parameters.
    pub params: Vec<u32>,
    /// Who pays.
    pub tenant: u64,
    /// Its share of the drive's bandwidth and of the slots, 1 to 10,000; what is outside counts as the nearest.
    pub weight: u32,
    /// What to do where all slots are taken.
    pub when_full: WhenFull,
    /// It cannot begin anew, so its slot is not taken from it while it works. Such sessions leave one of the slots that
    /// are large enough for their kernel, if those are several, to sessions of other kinds.
    pub keeps: bool,
}

impl Want {
    pub(crate) fn weight(&self) -> u32 {
        weight(self.weight)
    }
}

/// A weight as it counts.
pub(crate) fn weight(asked: u32) -> u32 {
    asked.clamp(1, WEIGHT_MAX)
}
