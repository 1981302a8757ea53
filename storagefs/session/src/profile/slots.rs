//! The FPGA slots of a profile, as what the card is made of.

use serde::{Deserialize, Serialize};
use weldfs_fpga::config::{CardConfig, FIFO_BYTES_MAX, Pace, Reconfigure, SLOTS_MAX};
use weldfs_fpga::manifest::Region;

use super::Profile;

/// The longest that loading a kernel takes beside what its slot's size adds, nanoseconds.
pub const RECONFIGURE_NS_MAX: u64 = 60_000_000_000;
/// The longest for each look-up table, nanoseconds.
pub const RECONFIGURE_LUT_NS_MAX: u64 = 1_000_000;

/// The most memory of the card that a slot has, bytes: 1 TiB.
pub const DRAM_BYTES_MAX: u64 = 1 << 40;

/// The slots: how many, how large, how fast, and how their streams are let in. A flit is 64 bytes on every card.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slots {
    /// Slots for kernels, beside slot 0.
    pub count: u32,
    /// Whether their output is held back to modelled time.
    pub timed: Timed,
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
    /// The size of each slot, where they are not all the same; else empty.
    pub regions: Vec<SlotSize>,
    /// Memory of the card that each slot has, bytes.
    pub dram_bytes: u64,
    /// R: requests that a kernel may have in flight or in its FIFO.
    pub credits: u32,
    /// C: bytes of a request.
    pub credit_bytes: u32,
    /// Of loading a kernel, nanoseconds: for any slot.
    pub reconfigure_ns: u64,
    /// The same, for each look-up table of the slot.
    pub reconfigure_lut_ns: u64,
}

/// Whether what comes out of slots is held back to modelled time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timed {
    /// Where the profile models anything else.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never: kernels are as fast as this machine.
    Off,
}

impl Timed {
    const ALL: [(Timed, &str); 3] = [(Timed::Auto, "auto"), (Timed::On, "on"), (Timed::Off, "off")];

    /// As profiles and settings say it.
    pub fn name(self) -> &'static str {
        Timed::ALL.iter().find(|(timed, _)| *timed == self).map_or("auto", |(_, name)| name)
    }

    /// What `name` says.
    pub fn named(name: &str) -> Option<Timed> {
        Timed::ALL.iter().find(|(_, n)| *n == name).map(|(timed, _)| *timed)
    }
}

/// The size of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotSize {
    /// Look-up tables.
    pub luts: u32,
    /// Flip-flops.
    pub ffs: u32,
    /// Block RAMs.
    pub brams: u32,
    /// Multipliers.
    pub dsps: u32,
}

impl From<Region> for SlotSize {
    fn from(r: Region) -> SlotSize {
        SlotSize { luts: r.lut, ffs: r.ff, brams: r.bram, dsps: r.dsp }
    }
}

impl From<SlotSize> for Region {
    fn from(s: SlotSize) -> Region {
        Region { lut: s.luts, ff: s.ffs, bram: s.brams, dsp: s.dsps }
    }
}

impl Default for Slots {
    fn default() -> Slots {
        Slots::of(&CardConfig::default())
    }
}

impl Slots {
    /// Those of a card.
    pub(crate) fn of(card: &CardConfig) -> Slots {
        let first = card.slots.first().copied().unwrap_or_default();
        let alike = card.slots.iter().all(|region| *region == first);
        let SlotSize { luts, ffs, brams, dsps } = first.into();
        Slots {
            count: card.slots.len() as u32,
            timed: Timed::Auto,
            clock_mhz: (card.clock_hz / 1_000_000) as u32,
            luts,
            ffs,
            brams,
            dsps,
            regions: if alike { Vec::new() } else { card.slots.iter().map(|r| (*r).into()).collect() },
            dram_bytes: card.dram_bytes,
            credits: card.credits,
            credit_bytes: card.credit_bytes,
            reconfigure_ns: card.reconfigure.base_ns,
            reconfigure_lut_ns: card.reconfigure.per_lut_ns,
        }
    }

    /// The size of those that `regions` says nothing of.
    pub fn size(&self) -> SlotSize {
        SlotSize { luts: self.luts, ffs: self.ffs, brams: self.brams, dsps: self.dsps }
    }

    /// The sizes of all of them.
    pub fn sizes(&self) -> Vec<SlotSize> {
        let mut sizes = self.regions.clone();
        sizes.resize(self.count as usize, self.size());
        sizes
    }

    /// What a device with this card comes to: each key that has its default is as the card says.
    pub fn on(&self, card: &CardConfig) -> Slots {
        fn or<T: PartialEq + Clone>(mine: &T, usual: &T, cards: T) -> T {
            if mine == usual { cards } else { mine.clone() }
        }
        let (usual, cards) = (Slots::default(), Slots::of(card));
        let sized = self.count != usual.count || self.size() != usual.size() || !self.regions.is_empty();
        let sizes = if sized { self } else { &cards };
        Slots {
            timed: self.timed,
            clock_mhz: or(&self.clock_mhz, &usual.clock_mhz, cards.clock_mhz),
            dram_bytes: or(&self.dram_bytes, &usual.dram_bytes, cards.dram_bytes),
            credits: or(&self.credits, &usual.credits, cards.credits),
            credit_bytes: or(&self.credit_bytes, &usual.credit_bytes, cards.credit_bytes),
            reconfigure_ns: or(&self.reconfigure_ns, &usual.reconfigure_ns, cards.reconfigure_ns),
            reconfigure_lut_ns: or(&self.reconfigure_lut_ns, &usual.reconfigure_lut_ns, cards.reconfigure_lut_ns),
            ..sizes.clone()
        }
    }

    /// Whether time in slots is modelled differently: all but their number and sizes, which say what fits.
    fn times_as(&self, other: &Slots) -> bool {
        let times = |s: &Slots| (s.clock_mhz, s.credits, s.credit_bytes, s.reconfigure_ns, s.reconfigure_lut_ns);
        times(self) == times(other)
    }

    /// How fast a card of this pace is with these slots.
    pub fn pace(&self, timed: bool, old: Pace) -> Pace {
        // One that is no whole number of MHz stays as it is.
        let clock_hz = match u64::from(self.clock_mhz) {
            same if same == old.clock_hz / 1_000_000 => old.clock_hz,
            other => other * 1_000_000,
        };
        Pace {
            clock_hz,
            reconfigure: Reconfigure { base_ns: self.reconfigure_ns, per_lut_ns: self.reconfigure_lut_ns },
            dram_bytes: self.dram_bytes,
            credits: self.credits,
            credit_bytes: self.credit_bytes,
            timed,
            ..old
        }
    }

    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let rules = [
            ((1..=SLOTS_MAX as u32).contains(&self.count), "slots.count must be at least 1 and at most 64"),
            ((1..=2_000).contains(&self.clock_mhz), "slots.clock_mhz must be at least 1 and at most 2000"),
            (self.luts >= 1, "slots.luts must be at least 1"),
            (
                self.regions.is_empty() || self.regions.len() == self.count as usize,
                "slots.regions must say the size of as many slots as slots.count says (3, where it says none)",
            ),
            (self.regions.iter().all(|r| r.luts >= 1), "luts must be at least 1 in each of slots.regions"),
            (self.dram_bytes <= DRAM_BYTES_MAX, "slots.dram_bytes must be at most 1099511627776 (1 TiB)"),
            ((1..=4096).contains(&self.credits), "slots.credits must be at least 1 and at most 4096"),
            (
                (64..=16 << 20).contains(&self.credit_bytes),
                "slots.credit_bytes must be at least 64 and at most 16777216 (16 MiB)",
            ),
            (
                u64::from(self.credits) * u64::from(self.credit_bytes) <= FIFO_BYTES_MAX,
                "slots.credits times slots.credit_bytes must be at most 268435456 (256 MiB)",
            ),
            (
                self.reconfigure_ns <= RECONFIGURE_NS_MAX && self.reconfigure_lut_ns <= RECONFIGURE_LUT_NS_MAX,
                "slots.reconfigure_ns must be at most 60000000000 (a minute), slots.reconfigure_lut_ns 1000000",
            ),
        ];
        rules.iter().find(|(good, _)| !good).map_or(Ok(()), |(_, why)| Err(*why))
    }
}

impl Profile {
    /// Whether slots are held to modelled time; `card` is what a profile that says nothing of slots leaves as it is.
    pub fn times_slots(&self, card: &CardConfig) -> bool {
        match self.slots.timed {
            Timed::On => true,
            Timed::Off => false,
            Timed::Auto => card.timed || !self.is_free() || !self.slots.times_as(&Slots::of(card)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(slots: &str) -> Result<Profile, String> {
        Profile::parse(&format!("[slots]\n{slots}")).map_err(|e| e.to_string())
    }

    #[test]
    fn slots_are_held_to_modelled_time_where_anything_is_modelled_or_as_the_key_says() {
        let card = CardConfig::default();
        let timed = |text: &str| Profile::parse(text).unwrap().times_slots(&card);
        for (text, expected) in [
            ("", false),
            ("name = \"x\"\nmemory_bytes = 1048576\n[core]\ncount = 2", false),
            ("[slots]\ncount = 2\nluts = 5", false),
            ("[slots]\nclock_mhz = 100", true),
            ("[slots]\nreconfigure_ns = 0", true),
            ("[link]\nlatency_ns = 1", true),
            ("[core]\nspeed = 0.5", true),
            ("[media]\niops = 1000", true),
            ("[slots]\ntimed = \"on\"", true),
            ("[link]\nlatency_ns = 1\n[slots]\ntimed = \"off\"", false),
        ] {
            assert_eq!(timed(text), expected, "{text}");
        }
        // What a program gives its device without a profile is no profile.
        let own = CardConfig { clock_hz: 7_000_000, ..CardConfig::with_slots(9) };
        let mut profile = Profile::default();
        profile.slots = profile.slots.on(&own);
        assert_eq!((profile.slots.count, profile.slots.clock_mhz, profile.times_slots(&own)), (9, 7, false));
    }

    #[test]
    fn credits_together_are_bounded() {
        assert!(parsed("credits = 4096\ncredit_bytes = 65536").is_ok() && parsed("credit_bytes = 16777216").is_ok());
        for both in ["credits = 4096\ncredit_bytes = 16777216", "credits = 17\ncredit_bytes = 16777216"] {
            assert!(parsed(both).is_err_and(|e| e.contains("at most 268435456 (256 MiB)")), "{both}");
        }
    }

    #[test]
    fn the_size_of_each_slot_can_be_said_and_has_to_be_said_of_all() {
        let regions =
            "regions = [{ luts = 5, ffs = 0, brams = 1, dsps = 2 }, { luts = 9, ffs = 1, brams = 0, dsps = 0 }]";
        let slots = parsed(&format!("count = 2\n{regions}")).unwrap().slots;
        let sizes: Vec<u32> = slots.on(&CardConfig::with_slots(7)).sizes().iter().map(|s| s.luts).collect();
        assert_eq!(sizes, [5, 9]);
        assert!(parsed(regions).is_err_and(|e| e.contains("as many slots as slots.count")));
        assert!(parsed(&format!("count = 3\n{regions}")).is_err());
        assert!(parsed(&format!("count = 2\n{}", regions.replace("= 9", "= 0"))).is_err_and(|e| e.contains("luts")));
        assert!(parsed(&format!("count = 2\n{}", regions.replace(", dsps = 2", ""))).is_err());
        assert!(parsed(&format!("count = 2\n{}", regions.replace("dsps = 2", "dsp = 2"))).is_err());
    }
}
