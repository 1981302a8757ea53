//! The tenants file: strict TOML, read once when the device starts.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weldfs_ciscops::limits::ATOMIC_WRITE_MAX;

use crate::limits::{POOL_BYTES_SESSION_MAX, SESSIONS_MAX, SLOTS_PER_THREAD, TENANTS_MAX};
use crate::profile::said;

/// Weight of a tenant that none is given.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Largest weight; the smallest is 1.
pub const WEIGHT_MAX: u32 = 10_000;
/// Who comes when there are more uids than the table holds.
pub(super) const OTHERS: &str = "uid:others";
/// Bytes of a tenant's name.
const NAME_MAX: usize = 64;
/// Commands in flight of one tenant: the width of a counter.
const IN_FLIGHT_MAX: u32 = 32_768;

/// Bounds of what one tenant holds at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantLimits {
    /// Commands taken from its rings and not completed, 1..=32768.
    pub in_flight: u32,
    /// Payload bytes of those commands, at least 1 MiB. One command is let through whatever its size.
    pub bytes_in_flight: u64,
    /// Handles of all its sessions.
    pub handles: u32,
    /// Queue pairs of all its sessions, at least 1.
    pub queue_pairs: u32,
    /// Bytes of shared memory of all its queue pairs.
    pub pool_bytes: u64,
    /// Sessions, at least 1.
    pub sessions: u32,
}

impl Default for TenantLimits {
    fn default() -> Self {
        TenantLimits {
            in_flight: 16 * SLOTS_PER_THREAD as u32,
            bytes_in_flight: 256 << 20,
            handles: 262_144,
            queue_pairs: 2048,
            pool_bytes: POOL_BYTES_SESSION_MAX,
            sessions: SESSIONS_MAX as u32 / 2,
        }
    }
}

/// A tenant's part of the device's memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantMemory {
    /// Bytes that are its own whatever others do.
    pub guarantee_bytes: u64,
    /// Bytes that its operations may hold at most; 0: what the device has.
    pub cap_bytes: u64,
}

/// One tenant that the configuration names.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Unique: letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// Share of the device when all are busy, relative to others; 1..=10000, 100 is usual.
    #[serde(default = "usual")]
    pub weight: u32,
    /// Users whose processes belong to it.
    #[serde(default)]
    pub uids: Vec<u32>,
    /// Groups whose members' processes belong to it.
    #[serde(default)]
    pub gids: Vec<u32>,
    /// Control groups (v2 paths such as `/system.slice/db.service`) whose processes, and those below, belong to it.
    #[serde(default)]
    pub cgroups: Vec<String>,
    /// Whether the device mints a token for it.
    #[serde(default)]
    pub token: bool,
    /// Bounds.
    #[serde(default)]
    pub limits: TenantLimits,
    /// Memory.
    #[serde(default)]
    pub memory: TenantMemory,
}

fn usual() -> u32 {
    WEIGHT_DEFAULT
}

/// What tenants get that exist because a uid does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantDefaults {
    /// Weight, 1..=10000.
    pub weight: u32,
    /// Bounds of each.
    pub limits: TenantLimits,
    /// Memory of each.
    pub memory: TenantMemory,
}

impl Default for TenantDefaults {
    fn default() -> Self {
        TenantDefaults { weight: WEIGHT_DEFAULT, limits: TenantLimits::default(), memory: TenantMemory::default() }
    }
}

impl TenantDefaults {
    pub(super) fn tenant(&self) -> TenantConfig {
        TenantConfig {
            name: String::new(),
            weight: self.weight,
            uids: Vec::new(),
            gids: Vec::new(),
            cgroups: Vec::new(),
            token: false,
            limits: self.limits,
            memory: self.memory,
        }
    }
}

/// All of a device's tenants. Strict TOML: an unknown key is an error.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantsConfig {
    /// For whoever no rule names.
    pub default: TenantDefaults,
    /// The named ones, `[[tenant]]`.
    pub tenant: Vec<TenantConfig>,
}

/// A tenants file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TenantsError {
    /// The file could not be read.
    #[error("tenants {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Not the TOML of tenants.
    #[error("{0}")]
    Syntax(String),
    /// A value that cannot be.
    #[error("{whose}: {what}")]
    Value {
        /// The tenant's name, or `default`.
        whose: String,
        /// What is wrong with it.
        what: String,
    },
    /// Wrong in a file.
    #[error("tenants {path}: {source}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong in it.
        source: Box<TenantsError>,
    },
}

impl TenantsConfig {
    /// Parses and checks.
    pub fn parse(text: &str) -> Result<TenantsConfig, TenantsError> {
        let config: TenantsConfig = toml::from_str(text).map_err(|e| TenantsError::Syntax(said(text, &e)))?;
        config.check()?;
        Ok(config)
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Result<TenantsConfig, TenantsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TenantsError::Read { path: path.display().to_string(), source })?;
        TenantsConfig::parse(&text)
            .map_err(|e| TenantsError::File { path: path.display().to_string(), source: Box::new(e) })
    }

    fn check(&self) -> Result<(), TenantsError> {
        let of = |whose: &str| {
            let whose = whose.to_owned();
            move |what: String| TenantsError::Value { whose, what }
        };
        check_numbers(self.default.weight, &self.default.limits, &self.default.memory).map_err(of("default"))?;
        let (mut names, mut uids, mut gids, mut cgroups) =
            (HashSet::new(), HashSet::new(), HashSet::new(), HashSet::new());
        for t in &self.tenant {
            let bad = |what: &str| of(&t.name)(what.to_owned());
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            if t.name.is_empty() || t.name.len() > NAME_MAX || !t.name.chars().all(plain) {
                return Err(bad("a name has 1 to 64 letters, digits, '_', '-' and '.'"));
            }
            if !names.insert(&t.name) {
                return Err(bad("named twice"));
            }
            check_numbers(t.weight, &t.limits, &t.memory).map_err(of(&t.name))?;
            if !t.token && t.uids.is_empty() && t.gids.is_empty() && t.cgroups.is_empty() {
                return Err(bad("nobody can belong to it: no uids, gids, cgroups, and no token"));
            }
            if let Some(uid) = t.uids.iter().find(|uid| !uids.insert(**uid)) {
                return Err(bad(&format!("uid {uid} belongs to a tenant already")));
            }
            if let Some(gid) = t.gids.iter().find(|gid| !gids.insert(**gid)) {
                return Err(bad(&format!("gid {gid} belongs to a tenant already")));
            }
            for path in &t.cgroups {
                if !path.starts_with('/') || (path.len() > 1 && path.ends_with('/')) || path.contains("//") {
                    return Err(bad(&format!("cgroup {path:?} is not a path such as /system.slice/db.service")));
                }
                if !cgroups.insert(path) {
                    return Err(bad(&format!("cgroup {path} belongs to a tenant already")));
                }
            }
        }
        if self.tenant.len() + 2 > TENANTS_MAX {
            return Err(of("all")(format!("more than {} tenants", TENANTS_MAX - 2)));
        }
        Ok(())
    }

    /// The tenant that a rule names for a peer: by the innermost cgroup listed, else by uid, else by the first of its
    /// groups that is listed.
    pub(super) fn rule(&self, cgroup: Option<&str>, uid: u32, groups: impl IntoIterator<Item = u32>) -> Option<usize> {
        let all = || self.tenant.iter().enumerate();
        let by_cgroup = cgroup.and_then(|path| {
            let rules = all().flat_map(|(at, t)| t.cgroups.iter().map(move |rule| (rule, at)));
            rules.filter(|(rule, _)| within(path, rule)).max_by_key(|(rule, _)| rule.len()).map(|(_, at)| at)
        });
        let by_uid = || all().find(|(_, t)| t.uids.contains(&uid)).map(|(at, _)| at);
        let by_gid = || groups.into_iter().find_map(|gid| all().find(|(_, t)| t.gids.contains(&gid)).map(|(at, _)| at));
        by_cgroup.or_else(by_uid).or_else(by_gid)
    }
}

/// Whether a cgroup's path is `rule` or below it.
fn within(path: &str, rule: &str) -> bool {
    rule == "/" || path.strip_prefix(rule).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check_numbers(weight: u32, limits: &TenantLimits, memory: &TenantMemory) -> Result<(), String> {
    let payload = u64::from(ATOMIC_WRITE_MAX);
    if !(1..=WEIGHT_MAX).contains(&weight) {
        return Err(format!("weight {weight} is not in 1..={WEIGHT_MAX}"));
    }
    if !(1..=IN_FLIGHT_MAX).contains(&limits.in_flight) {
        return Err(format!("limits.in_flight {} is not in 1..={IN_FLIGHT_MAX}", limits.in_flight));
    }
    if limits.bytes_in_flight < payload {
        return Err(format!("limits.bytes_in_flight {} is less than one payload, {payload}", limits.bytes_in_flight));
    }
    if limits.queue_pairs == 0 || limits.sessions == 0 {
        return Err("limits.queue_pairs and limits.sessions are at least 1".into());
    }
    if memory.cap_bytes != 0 && memory.cap_bytes < payload.max(memory.guarantee_bytes) {
        let least = payload.max(memory.guarantee_bytes);
        return Err(format!("memory.cap_bytes {} is less than {least}", memory.cap_bytes));
    }
    Ok(())
}
