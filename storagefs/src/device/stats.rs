//! What a device reports about itself.

use std::sync::Arc;

use serde::Serialize;

use super::core::Core;
use super::counters::Totals;
use super::profile::Profile;
use super::session::SessionState;

/// Everything a device counts, at one moment (counters of running queues are read without stopping them).
#[derive(Clone, Debug, Serialize)]
pub struct DeviceStats {
    /// What kind of device it is: figures are never shown without it.
    pub device: DeviceFacts,
    /// All commands since the start.
    pub total: Totals,
    /// Crossings of the boundary, all clients.
    pub crossings: Crossings,
    /// Flushes and records of the log.
    pub log: LogFacts,
    /// What is in use now.
    pub usage: Usage,
    /// The same counters by tenant.
    pub tenants: Vec<TenantStats>,
    /// The same counters for the session that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionStats>,
}

/// Facts that belong beside every figure.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceFacts {
    /// File system label.
    pub label: String,
    /// `ram`, `pmem` or `block`.
    pub medium: String,
    /// What an operation gets by default: `volatile` or `durable`.
    pub durability: String,
    /// Whether what is durable survives loss of power.
    pub power_safe: bool,
    /// Device threads.
    pub cores: usize,
    /// Scheduling policy.
    pub policy: String,
    /// Emulated hardware.
    pub profile: Profile,
}

/// How often something crossed between host and device.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Crossings {
    /// Commands taken.
    pub commands: u64,
    /// Doorbells rung by clients.
    pub doorbells: u64,
    /// Clients woken.
    pub client_wakes: u64,
    /// Times a device thread went to sleep.
    pub device_sleeps: u64,
}

/// The log's counters.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LogFacts {
    /// Flushes (block) or fences (pmem) issued for commits.
    pub flushes: u64,
    /// Records appended.
    pub records: u64,
    /// Bytes appended.
    pub bytes: u64,
    /// Batches written (block): log and data submitted together.
    pub batches: u64,
    /// Writes of log in them.
    pub log_writes: u64,
    /// Writes of data in them.
    pub data_writes: u64,
    /// Data bytes written with records.
    pub data_bytes: u64,
    /// Records that only say how far flushes went.
    pub watermark_records: u64,
    /// Bytes in use since the last checkpoint's cut.
    pub used: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
}

/// What is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Sessions.
    pub sessions: usize,
    /// Queue pairs.
    pub queues: usize,
    /// Bytes of their shared memory.
    pub pool_bytes: u64,
    /// Handles.
    pub handles: usize,
    /// Open file descriptions.
    pub open_files: usize,
    /// Placeholders that stand for one.
    pub placeholders: usize,
    /// Advisory locks.
    pub locks: usize,
    /// Inode queues with a ticket.
    pub inode_queues: usize,
}

/// One tenant's counters.
#[derive(Clone, Debug, Serialize)]
pub struct TenantStats {
    /// The tenant (the uid).
    pub tenant: u64,
    /// Its counters, sessions that ended included.
    #[serde(flatten)]
    pub totals: Totals,
}

/// One session's counters.
#[derive(Clone, Debug, Serialize)]
pub struct SessionStats {
    /// Its number.
    pub id: u64,
    /// The client's own 128-bit id, hexadecimal.
    pub client_id: String,
    /// Its counters.
    #[serde(flatten)]
    pub totals: Totals,
}

impl DeviceStats {
    /// As JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
    }
}

impl Core {
    pub(super) fn facts(&self) -> DeviceFacts {
        let info = self.store.medium().info();
        DeviceFacts {
            label: self.config.label.clone(),
            medium: format!("{:?}", info.kind).to_lowercase(),
            durability: if self.durable_default { "durable" } else { "volatile" }.into(),
            power_safe: info.power_safe,
            cores: self.threads.len(),
            policy: self.config.policy.to_string(),
            profile: self.config.profile.clone(),
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let sessions = self.live_sessions();
        let (queues, pool_bytes) = self.pools();
        Usage {
            sessions: sessions.len(),
            queues,
            pool_bytes,
            handles: sessions.iter().map(|s| s.handles.len()).sum(),
            open_files: self.files.open(),
            placeholders: self.files.bound(),
            locks: self.files.locks.len(),
            inode_queues: self.sets.queues(),
        }
    }

    pub(super) fn stats(&self, session: Option<&Arc<SessionState>>) -> DeviceStats {
        let mut tenants = self.retired();
        for s in self.live_sessions() {
            tenants.entry(s.tenant.0).or_default().add(&s.totals());
        }
        let mut total = Totals::default();
        tenants.values().for_each(|t| total.add(t));
        let log = self.store.journal().stats();
        DeviceStats {
            device: self.facts(),
            crossings: Crossings {
                commands: total.commands,
                doorbells: total.doorbells,
                client_wakes: total.client_wakes,
                device_sleeps: self.threads.iter().map(|t| t.counters.sleeps.get()).sum(),
            },
            total,
            log: LogFacts {
                flushes: log.flushes,
                records: log.records,
                bytes: log.log_bytes,
                batches: log.batches,
                log_writes: log.log_writes,
                data_writes: log.data_writes,
                data_bytes: log.data_bytes,
                watermark_records: log.watermark_records,
                used: self.store.journal().used(),
                checkpoints: self.store.stats().checkpoints,
            },
            usage: self.usage(),
            tenants: tenants.into_iter().map(|(tenant, totals)| TenantStats { tenant, totals }).collect(),
            session: session.map(|s| SessionStats {
                id: s.id,
                client_id: format!("{:032x}", u128::from_be_bytes(s.client_id)),
                totals: s.totals(),
            }),
        }
    }
}
