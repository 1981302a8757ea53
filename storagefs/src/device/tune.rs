//! Settings that can change while the device runs.
//!
//! Each has a key, a value and a range, all text; [`Device::settings`] lists them, [`Device::tune`] changes one. Who
//! may do so is the control plane's business.

use serde::Serialize;
use weldfs_ciscops::Errno;

use super::Device;
use super::core::{Core, policy_weight};
use super::limits::{QUANTUM_NS_MAX, QUANTUM_NS_MIN};
use super::tenants::WEIGHT_MAX;

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
}

/// EINVAL: the form; ENOENT: the key; ERANGE: the value.
impl From<&TuneError> for Errno {
    fn from(e: &TuneError) -> Errno {
        match e {
            TuneError::Form(_) => Errno::INVAL,
            TuneError::Unknown(_) => Errno::NOENT,
            TuneError::Range { .. } => Errno::RANGE,
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

impl Core {
    /// Changes one setting. False: it cannot have this value; an error: there is no such setting.
    fn set(&self, key: &str, value: &str) -> Result<bool, ()> {
        let runq = &self.board.runq;
        let number = |(least, most)| whole(value, least, most);
        let done = match key {
            POLICY => value.parse().ok().map(|kind| runq.set_policy(kind)),
            QUANTUM => number(QUANTA_US).map(|us| runq.set_quantum(us * 1000)),
            COST => value.parse().ok().map(|model| runq.set_cost(model)),
            ACCOUNTING => on_or_off(value).map(|on| self.memory.set_accounting(on, &self.tenants.list())),
            _ => {
                let tenant = weight_of(key).and_then(|name| self.tenants.named(name)).ok_or(())?;
                number(WEIGHTS).map(|weight| {
                    tenant.set_weight(weight as u32);
                    runq.set_weight(tenant.id, || policy_weight(tenant.weight()));
                })
            }
        };
        Ok(done.is_some())
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
        let known = self.core.set(key, value).map_err(|()| TuneError::Unknown(key.to_owned()))?;
        if !known {
            let range = self.settings().into_iter().find(|s| s.key == key).map_or_else(String::new, |s| s.range);
            return Err(TuneError::Range { key: key.to_owned(), value: value.to_owned(), range });
        }
        tracing::info!("{key} is {value} now");
        Ok(())
    }

    /// All settings.
    pub fn settings(&self) -> Vec<Setting> {
        self.core.settings()
    }
}
