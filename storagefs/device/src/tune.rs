//! Settings that can change while the device runs.
//!
//! Each has a key, a value and a range, all text; [`Device::settings`] lists them, [`Device::tune`] changes one. Who
//! may do so is the control plane's business.

mod slots;

use serde::Serialize;
use weldfs_ciscops::Errno;

use super::Device;
use super::core::{Core, policy_weight};
use super::emulated::Refused;
use crate::limits::{QUANTUM_NS_MAX, QUANTUM_NS_MIN};
use weldfs_session::profile::{CHANNELS_MAX, Pcie, Profile, Quantity, SPEED_MIN, count, nanoseconds, per_second};
use weldfs_session::tenants::WEIGHT_MAX;

const POLICY: &str = "scheduler.policy";
const QUANTUM: &str = "scheduler.quantum_us";
const COST: &str = "scheduler.cost";
const ACCOUNTING: &str = "memory.accounting";

/// A setting as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Setting {
    /// Its name.
    pub key: String,
    /// Its value now.
    pub value: String,
    /// What it may be: `1..=10000`, or the words separated by `|`.
    pub range: String,
    /// What it does.
    pub what: &'static str,
}

/// Why a setting was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// Not `key=value`.
    #[error("'{0}' is not of the form key=value")]
    Form(String),
    /// No setting of this name.
    #[error("there is no setting '{0}'")]
    Unknown(String),
    /// A value that the setting cannot have.
    #[error("{key} cannot be '{value}': it is {range}")]
    Range {
        /// The setting.
        key: String,
        /// The value asked for.
        value: String,
        /// What it may be.
        range: String,
    },
    /// A slot that would change is in use.
    #[error("{key} cannot change now: {why}")]
    Busy {
        /// The setting.
        key: String,
        /// Which slot.
        why: String,
    },
}

fn known<T>(value: Option<T>) -> Result<T, Refused> {
    value.ok_or(Refused::Range)
}

/// EINVAL: the form; ENOENT: the key; ERANGE: the value; EBUSY: not now.
impl From<&TuneError> for Errno {
    fn from(e: &TuneError) -> Errno {
        match e {
            TuneError::Form(_) => Errno::INVAL,
            TuneError::Unknown(_) => Errno::NOENT,
            TuneError::Range { .. } => Errno::RANGE,
            TuneError::Busy { .. } => Errno::BUSY,
        }
    }
}

/// `tenant.NAME.weight`; names may hold dots.
fn weight_of(key: &str) -> Option<&str> {
    key.strip_prefix("tenant.")?.strip_suffix(".weight")
}

fn whole(value: &str, least: u64, most: u64) -> Option<u64> {
    let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    value.parse().ok().filter(|n| plain && (least..=most).contains(n))
}

fn on_or_off(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

const WEIGHTS: (u64, u64) = (1, WEIGHT_MAX as u64);
const QUANTA_US: (u64, u64) = (QUANTUM_NS_MIN.div_ceil(1000), QUANTUM_NS_MAX / 1000);

fn range((least, most): (u64, u64)) -> String {
    format!("{least}..={most}")
}

/// A number of the profile that can change: key, kind, what it does, and where it is.
type Hardware = (&'static str, fn() -> Quantity, &'static str, fn(&mut Profile) -> &mut u64);

/// Those of the link.
const LINK: [Hardware; 4] = [
    ("link.latency", nanoseconds, "modelled link, one way", |p| &mut p.link.latency_ns),
    ("link.bandwidth", per_second, "modelled link, each way", |p| &mut p.link.bandwidth_bytes_per_s),
    ("link.to_device", per_second, "modelled link, from the host only", |p| &mut p.link.to_device_bytes_per_s),
    ("link.to_host", per_second, "modelled link, to the host only", |p| &mut p.link.to_host_bytes_per_s),
];
const PCIE: (&str, &str) = ("link.pcie", "GENERATIONxLANES, e.g. 3x8, or nothing");
/// Those of the medium, where it is modelled.
const MEDIA: [Hardware; 3] = [
    ("media.latency", nanoseconds, "modelled medium, each access", |p| &mut p.media.latency_ns),
    ("media.bandwidth", per_second, "modelled medium, all channels", |p| &mut p.media.bandwidth_bytes_per_s),
    ("media.iops", count, "modelled medium, accesses per second", |p| &mut p.media.iops),
];
const CHANNELS: &str = "media.channels";
const SPEED: &str = "core.speed";

impl Core {
    /// The numbers of the profile that can change here: none where callers run the device.
    fn hardware(&self) -> impl Iterator<Item = &'static Hardware> {
        let (link, media) = (!self.emulated.is_fixed(), self.emulated.has_media());
        LINK.iter().filter(move |_| link).chain(MEDIA.iter().filter(move |_| media))
    }

    /// As [`Core::set`], of the emulated hardware.
    fn set_hardware(&self, key: &str, value: &str) -> Result<(), Refused> {
        let emulated = &self.emulated;
        if let Some((key, kind, _, place)) = self.hardware().find(|h| h.0 == key) {
            let n = known(kind().parse(value))?;
            return emulated.change(|p| {
                *place(p) = n;
                if *key == "link.bandwidth" {
                    p.link.pcie = Pcie::default();
                }
            });
        }
        match key {
            _ if key.starts_with(slots::PREFIX) => self.set_slots(key, value),
            _ if emulated.is_fixed() => Err(Refused::Unknown),
            _ if key == PCIE.0 => {
                let pcie = known(value.parse().ok())?;
                emulated.change(|p| (p.link.pcie, p.link.bandwidth_bytes_per_s) = (pcie, 0))
            }
            SPEED => {
                let speed = known(value.parse().ok())?;
                emulated.change(|p| p.core.speed = speed)
            }
            CHANNELS if emulated.has_media() => {
                let n = known(whole(value, 1, CHANNELS_MAX.into()))?;
                emulated.change(|p| p.media.channels = n as u32)
            }
            _ => Err(Refused::Unknown),
        }
    }

    fn hardware_settings(&self) -> Vec<Setting> {
        let mut profile = self.emulated.profile();
        let mut all: Vec<Setting> = self
            .hardware()
            .map(|(key, kind, what, place)| {
                let value = kind().show(*place(&mut profile));
                Setting { key: (*key).to_owned(), value, range: kind().says.to_owned(), what }
            })
            .collect();
        let mut add = |key: &str, value: String, range: String, what| {
            all.push(Setting { key: key.to_owned(), value, range, what });
        };
        if !self.emulated.is_fixed() {
            add(PCIE.0, profile.link.pcie.to_string(), PCIE.1.to_owned(), "modelled link's bandwidth, as PCIe");
            let speeds = format!("{SPEED_MIN}..=1");
            add(SPEED, profile.core.speed.to_string(), speeds, "modelled core, part of a host core's speed");
        }
        if self.emulated.has_media() {
            let range = range((1, CHANNELS_MAX.into()));
            add(CHANNELS, profile.media.channels.to_string(), range, "modelled medium, 4 KiB blocks interleaved");
        }
        all.extend(slots::settings(&profile.slots));
        all
    }

    /// Changes one setting.
    fn set(&self, key: &str, value: &str) -> Result<(), Refused> {
        let runq = &self.board.runq;
        let number = |(least, most)| whole(value, least, most);
        let done = match key {
            POLICY => value.parse().ok().map(|kind| runq.set_policy(kind)),
            QUANTUM => number(QUANTA_US).map(|us| runq.set_quantum(us * 1000)),
            COST => value.parse().ok().map(|model| runq.set_cost(model)),
            ACCOUNTING => on_or_off(value).map(|on| self.memory.set_accounting(on, &self.tenants.list())),
            _ if weight_of(key).is_none() => return self.set_hardware(key, value),
            _ => {
                let tenant = weight_of(key).and_then(|name| self.tenants.named(name)).ok_or(Refused::Unknown)?;
                number(WEIGHTS).map(|weight| {
                    tenant.set_weight(weight as u32);
                    runq.set_weight(tenant.id, || policy_weight(tenant.weight()));
                })
            }
        };
        known(done)
    }

    fn settings(&self) -> Vec<Setting> {
        let runq = &self.board.runq;
        let setting = |key: &str, value: String, range: &str, what| {
            let (key, range) = (key.to_owned(), range.to_owned());
            Setting { key, value, range, what }
        };
        let on = if self.memory.accounting() { "on" } else { "off" };
        let mut all = vec![
            setting(POLICY, runq.policy().to_string(), "fifo|rr|cfs|eevdf", "which command runs next"),
            setting(QUANTUM, (runq.quantum_ns() / 1000).to_string(), &range(QUANTA_US), "device time until others run"),
            setting(COST, runq.cost().to_string(), "measured|constant", "what a command is charged"),
            setting(ACCOUNTING, on.into(), "on|off", "device memory by tenant, or first come, first served"),
        ];
        all.extend(self.hardware_settings());
        all.extend(self.tenants.list().iter().map(|t| {
            let key = format!("tenant.{}.weight", t.name);
            setting(&key, t.weight().to_string(), &range(WEIGHTS), "share of the device while others want it too")
        }));
        all
    }
}

impl Device {
    /// Changes the setting that `text` names, `key=value`. In force from the next decision on; nothing is remembered
    /// over a restart.
    pub fn tune(&self, text: &str) -> Result<(), TuneError> {
        let (key, value) = text.split_once('=').ok_or_else(|| TuneError::Form(text.to_owned()))?;
        let (key, value) = (key.trim(), value.trim());
        self.core.set(key, value).map_err(|refused| match refused {
            Refused::Unknown => TuneError::Unknown(key.to_owned()),
            Refused::Range => {
                let range = self.settings().into_iter().find(|s| s.key == key).map_or_else(String::new, |s| s.range);
                TuneError::Range { key: key.to_owned(), value: value.to_owned(), range }
            }
            Refused::Busy(why) => TuneError::Busy { key: key.to_owned(), why },
        })?;
        tracing::info!("{key} is {value} now");
        Ok(())
    }

    /// All settings.
    pub fn settings(&self) -> Vec<Setting> {
        self.core.settings()
    }
}
