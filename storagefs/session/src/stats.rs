//! What a device reports about itself.

use serde::{Deserialize, Serialize};
use weldfs_fpga::status::SlotStatus;

use crate::counters::{CoreTotals, Totals};
use crate::latency::LatencySnapshot;
use crate::profile::Profile;
use crate::tenants::TenantUsage;
use weldfs_store::LogEnd;

/// Everything a device counts, at one moment (counters of running queues are read without stopping them).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceStats {
    /// The device's clock: nanoseconds since about its start. Rates are differences over differences of this.
    pub time_ns: u64,
    /// What kind of device it is: figures are never shown without it.
    pub device: DeviceFacts,
    /// All commands since the start.
    pub total: Totals,
    /// Crossings of the boundary, all clients.
    pub crossings: Crossings,
    /// Flushes and records of the log.
    pub log: LogFacts,
    /// How the log had ended when the image was mounted; none on a directory of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounted: Option<LogEnd>,
    /// Memory for commands and caches.
    #[serde(default)]
    pub memory: MemoryStats,
    /// What is in use now.
    pub usage: Usage,
    /// Who runs next.
    pub scheduler: SchedulerStats,
    /// The FPGA slots; none on a directory of the host.
    #[serde(default)]
    pub slots: Vec<SlotStats>,
    /// The device's cores.
    pub cores: Vec<CoreStats>,
    /// The counters of `total` by tenant, and what else is known of each.
    pub tenants: Vec<TenantStats>,
    /// Inode queues that hold tickets or runnable commands, if they were asked for; at most 1024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode_queues: Option<Vec<InodeQueueStats>>,
    /// The same counters for the session that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionStats>,
}

/// Facts that belong beside every figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

impl DeviceFacts {
    /// What reports call the device: its label, or that it has none.
    pub fn title(&self) -> &str {
        if self.label.is_empty() { "unlabelled" } else { &self.label }
    }
}

/// How often something crossed between host and device.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
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
    /// Bytes that they wrote: merged blocks, pages of metadata, superblocks.
    #[serde(default)]
    pub checkpoint_bytes: u64,
}

/// What is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// The run queue and its policy, at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SchedulerStats {
    /// The policy in force.
    pub policy: String,
    /// What a command is charged: `measured` or `constant`.
    pub cost: String,
    /// Device time after which a running command gives way, nanoseconds.
    pub quantum_ns: u64,
    /// Runnable commands.
    pub runnable: u64,
    /// Virtual time at which a newcomer starts, nanoseconds; 0 under policies that keep none.
    pub min_vruntime_ns: u64,
}

/// One FPGA slot. The counters only grow; the rest is of this moment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotStats {
    /// Its number; 0 is the locked pass-through.
    pub slot: usize,
    /// `empty`, `loading`, `idle`, `held` or `stuck`.
    pub state: String,
    /// The kernel that is in it; left out of JSON where none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The tenant whose command has it; left out likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<u64>,
    /// Its size, look-up tables; left out likewise: the pass-through's slot has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub luts: Option<u32>,
    /// Sessions that it has had.
    pub sessions: u64,
    /// Slot time that its kernels computed, nanoseconds: cycles over the slot's clock.
    pub busy_ns: u64,
    /// Clock cycles that took.
    pub cycles: u64,
    /// Bytes that its kernels took.
    pub bytes_in: u64,
    /// Bytes that they made.
    pub bytes_out: u64,
    /// Times that another kernel was loaded.
    pub reconfigurations: u64,
    /// Times that a kernel was lost in it.
    pub faults: u64,
}

impl From<SlotStatus> for SlotStats {
    fn from(s: SlotStatus) -> SlotStats {
        SlotStats {
            slot: s.slot,
            state: format!("{:?}", s.state).to_lowercase(),
            kernel: s.kernel,
            tenant: s.tenant,
            luts: (s.slot != 0).then_some(s.region.lut),
            sessions: s.sessions,
            busy_ns: s.busy_ns,
            cycles: s.cycles,
            bytes_in: s.bytes_in,
            bytes_out: s.bytes_out,
            reconfigurations: s.reconfigurations,
            faults: s.faults,
        }
    }
}

impl SlotStats {
    /// What was counted after an earlier look; the rest is as it is now.
    pub fn since(&self, earlier: &SlotStats) -> SlotStats {
        SlotStats {
            sessions: self.sessions.saturating_sub(earlier.sessions),
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            cycles: self.cycles.saturating_sub(earlier.cycles),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            reconfigurations: self.reconfigurations.saturating_sub(earlier.reconfigurations),
            faults: self.faults.saturating_sub(earlier.faults),
            ..self.clone()
        }
    }
}

/// One device core.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CoreStats {
    /// Its number.
    pub core: u32,
    /// Its counters.
    #[serde(flatten)]
    pub totals: CoreTotals,
}

/// One tenant. The counters of `totals` only grow; the rest is of this moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TenantStats {
    /// The tenant's number.
    pub tenant: u32,
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// What it holds now.
    pub usage: TenantUsage,
    /// Virtual runtime, nanoseconds: device time charged over weight.
    pub vruntime_ns: u64,
    /// How far it is behind (positive) or ahead of its share, virtual nanoseconds.
    pub lag_ns: i64,
    /// How far its memory is over its share, 1024ths.
    pub pressure: u32,
    /// Runnable commands.
    pub runnable: u32,
    /// Inode queues that hold them.
    pub runnable_queues: u32,
    /// Time during which it had a command outstanding, in the ring or in the device, on any queue pair, nanoseconds.
    pub backlogged_ns: u64,
    /// Device-side latency of its commands.
    pub latency: LatencySnapshot,
    /// Its counters, sessions that ended included.
    #[serde(flatten)]
    pub totals: Totals,
}

/// One inode queue that holds tickets or runnable commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InodeQueueStats {
    /// Inode number.
    pub inode: u64,
    /// The tenant in whose name the policy knows it; none while nothing of it was ever queued.
    pub tenant: Option<u32>,
    /// Weight within its tenant, as the policy counts.
    pub weight: u32,
    /// Virtual runtime within its tenant, nanoseconds.
    pub vruntime_ns: u64,
    /// Runnable commands.
    pub runnable: u32,
    /// Tickets in it.
    pub tickets: u32,
    /// Tickets of them that wait for others.
    pub waiting: u32,
}

/// One session's counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionStats {
    /// Its number.
    pub id: u64,
    /// The client's own 128-bit id, hexadecimal.
    pub client_id: String,
    /// Its counters.
    #[serde(flatten)]
    pub totals: Totals,
}

impl LogFacts {
    /// What was counted after an earlier look; `used` stays.
    pub fn since(&self, earlier: &LogFacts) -> LogFacts {
        LogFacts {
            flushes: self.flushes.saturating_sub(earlier.flushes),
            records: self.records.saturating_sub(earlier.records),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            batches: self.batches.saturating_sub(earlier.batches),
            log_writes: self.log_writes.saturating_sub(earlier.log_writes),
            data_writes: self.data_writes.saturating_sub(earlier.data_writes),
            data_bytes: self.data_bytes.saturating_sub(earlier.data_bytes),
            watermark_records: self.watermark_records.saturating_sub(earlier.watermark_records),
            used: self.used,
            checkpoints: self.checkpoints.saturating_sub(earlier.checkpoints),
            checkpoint_bytes: self.checkpoint_bytes.saturating_sub(earlier.checkpoint_bytes),
        }
    }
}

impl DeviceStats {
    /// As JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
    }
}

/// How the memory is used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryStats {
    /// Bytes for what commands hold, and for caches.
    pub budget: u64,
    /// Bytes that commands hold.
    pub used: u64,
    /// Bytes that caches may use now.
    pub caches: u64,
    /// Bytes that caches hold, with what was written and is not on the medium yet; commands hold that, too.
    pub cached: u64,
    /// Commands that wait for memory.
    pub waiting: u64,
    /// Whether tenants are accounted for.
    pub accounting: bool,
}
