//! Settings of the FPGA slots: how fast they are, how many, and how large each is.

use weldfs_fpga::config::SLOTS_MAX;

use super::super::core::Core;
use super::super::emulated::Refused;
use super::{Setting, known, range, whole};
use weldfs_session::profile::{
    DRAM_BYTES_MAX, Profile, Quantity, SlotSize, Slots, Timed, long_nanoseconds, megahertz, memory_bytes,
    request_bytes, short_nanoseconds,
};

/// What their keys begin with.
pub(super) const PREFIX: &str = "slots.";
/// The size of one: its number follows.
const REGION: &str = "slots.region.";
const COUNT: &str = "slots.count";
const TIMED: &str = "slots.timed";
const CREDITS: &str = "slots.credits";
const CREDIT_BYTES: &str = "slots.credit_bytes";

/// A number that every slot has.
struct Number {
    key: &'static str,
    /// Plain where there is no unit.
    kind: Option<fn() -> Quantity>,
    range: (u64, u64),
    what: &'static str,
    get: fn(&Slots) -> u64,
    set: fn(&mut Slots, u64),
}

const NUMBERS: [Number; 6] = [
    Number {
        key: "slots.clock",
        kind: Some(megahertz),
        range: (1, 2_000),
        what: "clock of the slots: from the next step of each kernel on",
        get: |s| s.clock_mhz.into(),
        set: |s, n| s.clock_mhz = n as u32,
    },
    Number {
        key: "slots.dram_bytes",
        kind: Some(memory_bytes),
        range: (0, DRAM_BYTES_MAX),
        what: "memory of the card that each slot has: of packages that are loaded from now on",
        get: |s| s.dram_bytes,
        set: |s, n| s.dram_bytes = n,
    },
    Number {
        key: CREDITS,
        kind: None,
        range: (1, 4096),
        what: "R: requests in flight or in a FIFO, of sessions from now on",
        get: |s| s.credits.into(),
        set: |s, n| s.credits = n as u32,
    },
    Number {
        key: CREDIT_BYTES,
        kind: Some(request_bytes),
        range: (64, 16 << 20),
        what: "C: bytes of a request, of sessions from now on",
        get: |s| s.credit_bytes.into(),
        set: |s, n| s.credit_bytes = n as u32,
    },
    Number {
        key: "slots.reconfigure",
        kind: Some(long_nanoseconds),
        range: (0, u64::MAX),
        what: "loading a kernel into any slot, from the next one on",
        get: |s| s.reconfigure_ns,
        set: |s, n| s.reconfigure_ns = n,
    },
    Number {
        key: "slots.reconfigure_lut",
        kind: Some(short_nanoseconds),
        range: (0, u64::MAX),
        what: "the same, for each look-up table of the slot",
        get: |s| s.reconfigure_lut_ns,
        set: |s, n| s.reconfigure_lut_ns = n,
    },
];

impl Number {
    fn parse(&self, value: &str) -> Option<u64> {
        let (least, most) = self.range;
        match self.kind {
            Some(kind) => kind().parse(value).filter(|n| (least..=most).contains(n)),
            None => whole(value, least, most),
        }
    }

    fn setting(&self, slots: &Slots) -> Setting {
        let value = (self.get)(slots);
        let (value, range) = match self.kind {
            Some(kind) => (kind().show(value), kind().says.to_owned()),
            None => (value.to_string(), range(self.range)),
        };
        // Both together are bounded, too.
        let range = match self.key {
            CREDITS => format!("{range}, times {CREDIT_BYTES} at most 256M"),
            CREDIT_BYTES => format!("{range}; times {CREDITS} at most 256M"),
            _ => range,
        };
        Setting { key: self.key.to_owned(), value, range, what: self.what }
    }
}

/// `LUTS,FFS,BRAMS,DSPS`.
fn size(value: &str) -> Option<SlotSize> {
    let numbers: Option<Vec<u32>> =
        value.split(',').map(|n| whole(n.trim(), 0, u32::MAX.into()).map(|n| n as u32)).collect();
    match numbers?[..] {
        [luts, ffs, brams, dsps] if luts > 0 => Some(SlotSize { luts, ffs, brams, dsps }),
        _ => None,
    }
}

/// All of them.
pub(super) fn settings(slots: &Slots) -> Vec<Setting> {
    let setting = |key: String, value: String, range: &str, what| Setting { key, value, range: range.to_owned(), what };
    let counts = range((1, SLOTS_MAX as u64));
    let mut all = vec![
        setting(COUNT.into(), slots.count.to_string(), &counts, "slots, 1 and up: those that go have to be idle"),
        setting(TIMED.into(), slots.timed.name().into(), "auto|on|off", "hold slots to modelled time"),
    ];
    all.extend(NUMBERS.iter().map(|n| n.setting(slots)));
    all.extend(slots.sizes().iter().enumerate().map(|(at, s)| {
        let value = format!("{},{},{},{}", s.luts, s.ffs, s.brams, s.dsps);
        setting(format!("{REGION}{}", at + 1), value, "LUTS,FFS,BRAMS,DSPS", "size of the slot, which has to be idle")
    }));
    all
}

impl Core {
    /// Changes one of them.
    pub(super) fn set_slots(&self, key: &str, value: &str) -> Result<(), Refused> {
        let change = |change: &dyn Fn(&mut Slots)| self.emulated.change(|p: &mut Profile| change(&mut p.slots));
        if let Some(number) = NUMBERS.iter().find(|n| n.key == key) {
            let n = known(number.parse(value))?;
            return change(&|slots| (number.set)(slots, n));
        }
        match key {
            TIMED => {
                let timed = known(Timed::named(value))?;
                change(&|slots| slots.timed = timed)
            }
            COUNT => {
                let count = known(whole(value, 1, SLOTS_MAX as u64))? as u32;
                change(&|slots| {
                    if !slots.regions.is_empty() {
                        slots.regions.resize(count as usize, slots.size());
                    }
                    slots.count = count;
                })
            }
            _ => {
                let all = self.emulated.profile().slots.count;
                // `01` is the name of none.
                let number = key.strip_prefix(REGION).filter(|n| !n.starts_with('0'));
                let slot = number.and_then(|n| whole(n, 1, all.into())).ok_or(Refused::Unknown)?;
                let size = known(size(value))?;
                change(&|slots| {
                    slots.regions = slots.sizes();
                    // As many as there were a moment ago, unless another has changed that.
                    if let Some(region) = slots.regions.get_mut(slot as usize - 1) {
                        *region = size;
                    }
                })
            }
        }
    }
}
