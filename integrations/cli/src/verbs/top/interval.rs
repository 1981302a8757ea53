//! What happened between two looks at a device: rates, shares, percentiles. Pure.

use serde::Serialize;
use std::collections::HashMap;
use weldfs_device::{DeviceFacts, DeviceStats, InodeQueueStats, MemoryStats, SchedulerStats, SlotStats, TenantStats};

/// One interval. Fractions are of 1; what is not "per second" is of the interval's end.
#[derive(Clone, Debug, Serialize)]
pub struct Interval {
    /// Its length.
    pub seconds: f64,
    /// What kind of device it is.
    pub device: DeviceFacts,
    /// Policy, quantum, runnable commands.
    pub scheduler: SchedulerStats,
    /// Memory for commands and caches.
    pub memory: MemoryStats,
    /// The FPGA slots: what was counted in the interval.
    pub slots: Vec<SlotStats>,
    /// Commands completed per second.
    pub ops_per_s: f64,
    /// Slices per second.
    pub slices_per_s: f64,
    /// Bytes over the link from host to device, per second.
    pub link_in_bytes_per_s: f64,
    /// Bytes over the link from device to host, per second.
    pub link_out_bytes_per_s: f64,
    /// Tenants, by number.
    pub tenants: Vec<TenantRow>,
    /// Device cores, by number.
    pub cores: Vec<CoreRow>,
    /// Inode queues, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode_queues: Option<Vec<InodeQueueStats>>,
}

/// One tenant in an interval.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TenantRow {
    /// Number.
    pub tenant: u32,
    /// Name.
    pub name: String,
    /// Weight.
    pub weight: u32,
    /// Its part of the device time used in the interval.
    pub share: f64,
    /// Commands completed per second.
    pub ops_per_s: f64,
    /// Virtual runtime beyond the virtual time at which a newcomer would start, nanoseconds; below 0: it comes earlier.
    pub vruntime_ahead_ns: i64,
    /// Virtual runtime, nanoseconds.
    pub vruntime_ns: u64,
    /// How far it is behind its share, virtual nanoseconds.
    pub lag_ns: i64,
    /// Runnable commands.
    pub runnable: u32,
    /// Commands taken and not completed.
    pub in_flight: u32,
    /// Device memory it holds, bytes.
    pub memory_bytes: u64,
    /// Fraction of the interval in which it had a command outstanding.
    pub backlogged: f64,
    /// Mean number of commands outstanding.
    pub depth: f64,
    /// Median time from ring to first slice, nanoseconds.
    pub queue_p50_ns: u64,
    /// Its 99th percentile.
    pub queue_p99_ns: u64,
    /// Median time from first slice to completion, nanoseconds.
    pub service_p50_ns: u64,
    /// Its 99th percentile.
    pub service_p99_ns: u64,
}

/// One device core in an interval.
#[derive(Clone, Debug, Serialize)]
pub struct CoreRow {
    /// Number.
    pub core: u32,
    /// Fraction of the interval in which it was in slices, or busy with them as the emulated core.
    pub busy: f64,
    /// Slices per second.
    pub slices_per_s: f64,
    /// Slices per second of commands whose slice before was on another core.
    pub migrations_per_s: f64,
    /// The tenant of its last slice.
    pub last_tenant: Option<String>,
}

impl Interval {
    /// Between an earlier and a later look.
    pub fn between(before: &DeviceStats, now: &DeviceStats) -> Interval {
        let ns = now.time_ns.saturating_sub(before.time_ns).max(1);
        let seconds = ns as f64 / 1e9;
        let per_s = |n: u64| n as f64 / seconds;
        let total = now.total.since(&before.total);
        let names: HashMap<u32, &str> = now.tenants.iter().map(|t| (t.tenant, t.name.as_str())).collect();
        let earlier: HashMap<u32, &TenantStats> = before.tenants.iter().map(|t| (t.tenant, t)).collect();
        let nobody = TenantStats::default();
        let floor = now.scheduler.min_vruntime_ns;
        let tenants = now.tenants.iter().map(|t| {
            let then = earlier.get(&t.tenant).copied().unwrap_or(&nobody);
            tenant(t, then, ns, total.used_ns, floor)
        });
        let cores = now.cores.iter().map(|c| {
            let totals = match before.cores.iter().find(|b| b.core == c.core) {
                Some(b) => c.totals.since(&b.totals),
                None => c.totals.clone(),
            };
            let last = c.totals.last_tenant;
            CoreRow {
                core: c.core,
                busy: fraction(totals.busy_ns + totals.stretched_ns, ns).min(1.0),
                slices_per_s: per_s(totals.slices),
                migrations_per_s: per_s(totals.migrations),
                last_tenant: last.map(|id| names.get(&id).map_or_else(|| id.to_string(), |n| (*n).to_owned())),
            }
        });
        let slots = now.slots.iter().map(|s| match before.slots.iter().find(|b| b.slot == s.slot) {
            Some(b) => s.since(b),
            None => s.clone(),
        });
        Interval {
            seconds,
            device: now.device.clone(),
            scheduler: now.scheduler.clone(),
            memory: now.memory,
            slots: slots.collect(),
            ops_per_s: per_s(total.commands),
            slices_per_s: per_s(total.slices),
            link_in_bytes_per_s: per_s(total.link_bytes_in),
            link_out_bytes_per_s: per_s(total.link_bytes_out),
            tenants: tenants.collect(),
            cores: cores.collect(),
            inode_queues: now.inode_queues.clone(),
        }
    }
}

fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn tenant(now: &TenantStats, then: &TenantStats, ns: u64, all_used_ns: u64, floor: u64) -> TenantRow {
    let totals = now.totals.since(&then.totals);
    let latency = now.latency.since(&then.latency);
    TenantRow {
        tenant: now.tenant,
        name: now.name.clone(),
        weight: now.weight,
        share: fraction(totals.used_ns, all_used_ns),
        ops_per_s: totals.commands as f64 * 1e9 / ns as f64,
        vruntime_ahead_ns: now.vruntime_ns.wrapping_sub(floor) as i64,
        vruntime_ns: now.vruntime_ns,
        lag_ns: now.lag_ns,
        runnable: now.runnable,
        in_flight: now.usage.in_flight,
        memory_bytes: now.usage.memory_bytes,
        backlogged: fraction(now.backlogged_ns.saturating_sub(then.backlogged_ns), ns).min(1.0),
        depth: fraction(totals.depth_ns, ns),
        queue_p50_ns: latency.queue.percentile(0.5),
        queue_p99_ns: latency.queue.percentile(0.99),
        service_p50_ns: latency.service.percentile(0.5),
        service_p99_ns: latency.service.percentile(0.99),
    }
}

/// By what tenants are listed.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sort {
    /// Share of the device time
    #[default]
    Share,
    /// Commands per second
    Ops,
    /// 99th percentile of the time in queues
    Queue,
    /// 99th percentile of the time in service
    Service,
    /// Device memory
    Memory,
    /// Name
    Name,
}

impl Sort {
    /// The one after it, round.
    pub fn next(self) -> Sort {
        match self {
            Sort::Share => Sort::Ops,
            Sort::Ops => Sort::Queue,
            Sort::Queue => Sort::Service,
            Sort::Service => Sort::Memory,
            Sort::Memory => Sort::Name,
            Sort::Name => Sort::Share,
        }
    }

    /// Puts tenants into its order: largest first; equal ones, and all by `Name`, by name.
    pub fn apply(self, tenants: &mut [TenantRow]) {
        tenants.sort_by(|a, b| {
            let larger = match self {
                Sort::Share => b.share.total_cmp(&a.share),
                Sort::Ops => b.ops_per_s.total_cmp(&a.ops_per_s),
                Sort::Queue => b.queue_p99_ns.cmp(&a.queue_p99_ns),
                Sort::Service => b.service_p99_ns.cmp(&a.service_p99_ns),
                Sort::Memory => b.memory_bytes.cmp(&a.memory_bytes),
                Sort::Name => std::cmp::Ordering::Equal,
            };
            larger.then_with(|| a.name.cmp(&b.name))
        });
    }
}
