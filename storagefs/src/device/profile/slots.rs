//! The FPGA slots of a profile, as what the card is made of.

use serde::{Deserialize, Serialize};
use weldfs_fpga::config::{CardConfig, Reconfigure, SLOTS_MAX};
use weldfs_fpga::manifest::Region;

/// The slots: how many, how large, how fast, and how their streams are let in. A flit is 64 bytes on every card.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slots {
    /// Slots for kernels, beside slot 0.
    pub count: u32,
    /// Their clock, MHz.
    pub clock_mhz: u32,
    /// Look-up tables of each slot.
    pub luts: u32,
    /// Flip-flops of each slot.
    pub ffs: u32,
    /// Block RAMs of each slot.
    pub brams: u32,
    /// Multipliers of each slot.
    pub dsps: u32,
    /// R: requests that a kernel may have in flight or in its FIFO.
    pub credits: u32,
    /// C: bytes of a request.
    pub credit_bytes: u32,
    /// Of loading a kernel, nanoseconds: for any slot.
    pub reconfigure_ns: u64,
    /// The same, for each look-up table of the slot.
    pub reconfigure_lut_ns: u64,
}

impl Default for Slots {
    fn default() -> Slots {
        let card = CardConfig::default();
        let region = card.slots[0];
        Slots {
            count: card.slots.len() as u32,
            clock_mhz: (card.clock_hz / 1_000_000) as u32,
            luts: region.lut,
            ffs: region.ff,
            brams: region.bram,
            dsps: region.dsp,
            credits: card.credits,
            credit_bytes: card.credit_bytes,
            reconfigure_ns: card.reconfigure.base_ns,
            reconfigure_lut_ns: card.reconfigure.per_lut_ns,
        }
    }
}

impl Slots {
    /// A card with these numbers, where they are not the default; else as it is.
    pub(in crate::device) fn on(&self, card: CardConfig) -> CardConfig {
        if *self == Slots::default() {
            return card;
        }
        let region = Region { lut: self.luts, ff: self.ffs, bram: self.brams, dsp: self.dsps };
        CardConfig {
            slots: vec![region; self.count as usize],
            clock_hz: u64::from(self.clock_mhz) * 1_000_000,
            reconfigure: Reconfigure { base_ns: self.reconfigure_ns, per_lut_ns: self.reconfigure_lut_ns },
            credits: self.credits,
            credit_bytes: self.credit_bytes,
            ..card
        }
    }

    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let rules = [
            ((1..=SLOTS_MAX as u32).contains(&self.count), "slots.count must be at least 1 and at most 64"),
            ((1..=2_000).contains(&self.clock_mhz), "slots.clock_mhz must be at least 1 and at most 2000"),
            (self.luts >= 1, "slots.luts must be at least 1"),
            ((1..=4096).contains(&self.credits), "slots.credits must be at least 1 and at most 4096"),
            (
                (64..=16 << 20).contains(&self.credit_bytes),
                "slots.credit_bytes must be at least 64 and at most 16777216 (16 MiB)",
            ),
            (
                self.reconfigure_ns <= 60_000_000_000 && self.reconfigure_lut_ns <= 1_000_000,
                "slots.reconfigure_ns must be at most 60000000000 (a minute), slots.reconfigure_lut_ns 1000000",
            ),
        ];
        rules.iter().find(|(good, _)| !good).map_or(Ok(()), |(_, why)| Err(*why))
    }
}
