//! What a device reports about itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weldfs_ciscops::attach::detail;
use weldfs_fpga::status::SlotStatus;
use weldfs_scheduler::{PolicyState, TenantState};

use super::clock::now_ns;
use super::core::{Core, ThreadState};
use super::counters::{CoreTotals, Totals};
use super::latency::LatencySnapshot;
use super::memory::MemoryStats;
use super::profile::Profile;
use super::session::SessionState;
use super::tenants::{Tenant, TenantUsage};
use super::trace::{Recording, TraceFacts};
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

/// Inode queues in one report, at most: those with the most tickets.
const INODE_QUEUES_MAX: usize = 1024;

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
    pub(crate) fn to_json(&self) -> String {
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
            policy: self.board.runq.policy().to_string(),
            profile: self.emulated.profile(),
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

    /// All tenants, by number.
    fn by_tenant(&self, now_ns: u64, policy: &PolicyState) -> Vec<TenantStats> {
        let known: HashMap<u32, &TenantState> = policy.tenants.iter().map(|t| (t.tenant.0, t)).collect();
        let mut tenants: Vec<TenantStats> = Vec::new();
        // Under one lock: a session that ends meanwhile is counted neither twice nor not at all.
        self.with_sessions(|live| {
            let mut totals: BTreeMap<u32, Totals> = BTreeMap::new();
            for s in live {
                totals.entry(s.tenant.id.0).or_default().add(&s.totals());
            }
            let stats = |t: Arc<Tenant>| {
                let mut sum = totals.remove(&(t.id.0)).unwrap_or_default();
                sum.add(&t.retired());
                let known = known.get(&t.id.0);
                TenantStats {
                    tenant: t.id.0,
                    name: t.name.clone(),
                    weight: t.weight(),
                    usage: TenantUsage { cache_bytes: self.store.cached_for(t.id.0), ..t.usage() },
                    vruntime_ns: known.map_or(0, |k| k.vruntime_ns),
                    lag_ns: known.map_or(0, |k| k.lag_ns),
                    pressure: known.map_or(0, |k| k.pressure),
                    runnable: known.map_or(0, |k| k.runnable),
                    runnable_queues: known.map_or(0, |k| k.queues),
                    backlogged_ns: t.backlog.total_ns(now_ns),
                    latency: t.latency.snapshot(),
                    totals: sum,
                }
            };
            tenants = self.tenants.list().into_iter().map(stats).collect();
        });
        tenants
    }

    fn scheduler(&self, policy: &PolicyState) -> SchedulerStats {
        let runq = &self.board.runq;
        SchedulerStats {
            policy: policy.policy.into(),
            cost: runq.cost().to_string(),
            quantum_ns: runq.quantum_ns(),
            runnable: runq.len() as u64,
            min_vruntime_ns: policy.min_vruntime_ns,
        }
    }

    /// The inode queues with most tickets or runnable commands.
    fn inode_queues(&self) -> Vec<InodeQueueStats> {
        let mut tickets = self.sets.tickets();
        let mut out: Vec<InodeQueueStats> = Vec::new();
        for q in self.board.runq.queues() {
            let (held, waiting) = tickets.remove(&q.inode).unwrap_or_default();
            if held > 0 || q.runnable > 0 {
                out.push(InodeQueueStats {
                    inode: q.inode,
                    tenant: Some(q.tenant.0),
                    weight: q.weight,
                    vruntime_ns: q.vruntime_ns,
                    runnable: q.runnable,
                    tickets: held,
                    waiting,
                });
            }
        }
        let unknown = tickets.into_iter().map(|(inode, (tickets, waiting))| InodeQueueStats {
            inode,
            tickets,
            waiting,
            ..InodeQueueStats::default()
        });
        out.extend(unknown);
        out.sort_unstable_by_key(|q| (Reverse(q.tickets), Reverse(q.runnable), q.inode));
        out.truncate(INODE_QUEUES_MAX);
        out
    }

    fn cores(&self) -> Vec<CoreStats> {
        let stats = |(core, t): (usize, &ThreadState)| CoreStats { core: core as u32, totals: t.counters.totals() };
        self.threads.iter().enumerate().map(stats).collect()
    }

    /// The facts of a recording, as JSON.
    pub(super) fn trace_facts(&self, recording: &Recording) -> String {
        let tenants = self.tenants.list().into_iter().map(|t| (t.id.0, t.name.clone())).collect();
        TraceFacts {
            start_ns: recording.start_ns,
            end_ns: recording.end_ns,
            device: self.facts(),
            cores: recording.cores.clone(),
            slots: recording.slots.clone(),
            kernels: recording.kernels.clone(),
            tenants,
        }
        .to_json()
    }

    /// Everything counted; `detail`: bits of `ciscops::attach::detail`.
    pub(super) fn stats(&self, session: Option<&Arc<SessionState>>, details: u32) -> DeviceStats {
        // Beside each other: what cores have worked is compared with the time.
        let (cores, time_ns) = (self.cores(), now_ns());
        let policy = self.board.runq.state();
        let tenants = self.by_tenant(time_ns, &policy);
        let mut total = Totals::default();
        tenants.iter().for_each(|t| total.add(&t.totals));
        let log = self.store.journal().stats();
        let store = self.store.stats();
        DeviceStats {
            time_ns,
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
                checkpoints: store.checkpoints,
                checkpoint_bytes: store.checkpoint_bytes,
            },
            mounted: self.store.log_end(),
            memory: self.memory.stats(),
            usage: self.usage(),
            scheduler: self.scheduler(&policy),
            slots: self.card.status().slots.into_iter().map(SlotStats::from).collect(),
            cores,
            tenants,
            inode_queues: (details & detail::INODE_QUEUES != 0).then(|| self.inode_queues()),
            session: session.map(|s| SessionStats {
                id: s.id,
                client_id: format!("{:032x}", u128::from_be_bytes(s.client_id)),
                totals: s.totals(),
            }),
        }
    }
}
