//! Counters in the text exposition format of Prometheus, version 0.0.4.
//!
//! Rules of the format that matter here: the lines of one metric follow each other; `# HELP` and `# TYPE` come first,
//! once; a label's value has backslash, quote and line feed escaped, a help text backslash and line feed; histogram
//! buckets are cumulative and end with `+Inf`, whose value is `_count`. Naming: base units (seconds, bytes) as a
//! suffix, and `_total` after it on what only grows.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use weldfs_device::{CoreTotals, DeviceStats, SlotStats, TenantStats, Totals};
use weldfs_session::counters::CounterSpec;
use weldfs_session::latency::{LatencySnapshot, Snapshot};

/// Bounds of latency buckets: powers of two from 2^10 ns (1.024 us) to 2^34 ns (17 s), at which the device's own
/// buckets end too, so nothing is estimated.
const BUCKETS: std::ops::RangeInclusive<u32> = 10..=34;

/// The page being written.
struct Page(String);

impl Page {
    /// Begins a metric.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.trim().replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One of its values.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"{}\"", escaped(text));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A metric with one value and no label.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:09}").trim_end_matches('0').to_owned()
}

fn signed_seconds(ns: i64) -> String {
    format!("{}{}", if ns < 0 { "-" } else { "" }, seconds(ns.unsigned_abs()))
}

/// The metric's name of a counter: `queue_ns` becomes `PREFIX_queue_seconds_total`, `link_bytes_in`
/// `PREFIX_link_in_bytes_total`.
pub fn counter_name(prefix: &str, counter: &str) -> String {
    let base = if let Some(base) = counter.strip_suffix("_ns") {
        format!("{base}_seconds")
    } else if let Some((what, way)) = counter.split_once("_bytes_") {
        format!("{what}_{way}_bytes")
    } else {
        counter.to_owned()
    };
    format!("{prefix}_{base}_total")
}

fn counter_value(spec: &CounterSpec, n: u64) -> String {
    if spec.name.ends_with("_ns") { seconds(n) } else { n.to_string() }
}

/// What a counter is, in the unit that the page has it in.
fn counter_help(spec: &CounterSpec) -> Cow<'static, str> {
    if spec.name.ends_with("_ns") {
        spec.help.replace("Nanoseconds", "Seconds").replace("nanoseconds", "seconds").into()
    } else {
        spec.help.into()
    }
}

/// The whole page.
pub fn page(stats: &DeviceStats) -> String {
    let mut p = Page(String::new());
    device(&mut p, stats);
    cores(&mut p, stats);
    tenants(&mut p, &stats.tenants);
    latencies(&mut p, &stats.tenants);
    p.0
}

fn device(p: &mut Page, stats: &DeviceStats) {
    let d = &stats.device;
    let power_safe = d.power_safe.to_string();
    p.metric("weldfs_device_info", "gauge", "What kind of device it is: always 1.");
    let labels = [
        ("label", d.label.as_str()),
        ("medium", &d.medium),
        ("durability", &d.durability),
        ("power_safe", &power_safe),
        ("policy", &stats.scheduler.policy),
        ("cost", &stats.scheduler.cost),
        ("profile", &d.profile.name),
    ];
    p.sample("weldfs_device_info", &labels, 1);
    let gauge = "gauge";
    p.single(
        "weldfs_clock_seconds",
        gauge,
        "The device's clock: about the time since its start.",
        seconds(stats.time_ns),
    );
    p.single("weldfs_cores", gauge, "Device cores.", d.cores);
    let s = &stats.scheduler;
    p.single("weldfs_quantum_seconds", gauge, "Device time after which a command gives way.", seconds(s.quantum_ns));
    p.single("weldfs_runnable", gauge, "Runnable commands.", s.runnable);
    let vruntime = seconds(s.min_vruntime_ns);
    p.single("weldfs_min_vruntime_seconds", gauge, "Virtual time at which a newcomer starts.", vruntime);
    let u = &stats.usage;
    let usage: [(&str, &str, u64); 8] = [
        ("weldfs_sessions", "Sessions.", u.sessions as u64),
        ("weldfs_queue_pairs", "Queue pairs.", u.queues as u64),
        ("weldfs_pool_bytes", "Shared memory of queue pairs.", u.pool_bytes),
        ("weldfs_handles", "Handles.", u.handles as u64),
        ("weldfs_open_files", "Open file descriptions.", u.open_files as u64),
        ("weldfs_placeholders", "Placeholders that stand for one.", u.placeholders as u64),
        ("weldfs_locks", "Advisory locks.", u.locks as u64),
        ("weldfs_inode_queues", "Inode queues that hold tickets.", u.inode_queues as u64),
    ];
    for (name, help, value) in usage {
        p.single(name, gauge, help, value);
    }
    let m = &stats.memory;
    let memory: [(&str, &str, u64); 6] = [
        ("weldfs_memory_budget_bytes", "Device memory for what commands hold, and for caches.", m.budget),
        ("weldfs_memory_used_bytes", "Device memory that commands hold.", m.used),
        ("weldfs_memory_cache_bytes", "Device memory that caches may use now.", m.caches),
        ("weldfs_memory_cached_bytes", "Device memory that caches hold.", m.cached),
        ("weldfs_memory_waiting", "Commands that wait for memory.", m.waiting),
        ("weldfs_memory_accounting", "Whether tenants are accounted for, 0 or 1.", m.accounting.into()),
    ];
    for (name, help, value) in memory {
        p.single(name, gauge, help, value);
    }
    slots(p, stats);
    let l = &stats.log;
    p.single("weldfs_log_used_bytes", gauge, "Log in use since the last checkpoint's cut.", l.used);
    let log: [(&str, &str, u64); 10] = [
        ("weldfs_log_flushes_total", "Flushes or fences issued for commits.", l.flushes),
        ("weldfs_log_records_total", "Records appended.", l.records),
        ("weldfs_log_bytes_total", "Bytes appended.", l.bytes),
        ("weldfs_log_batches_total", "Batches written to a block medium.", l.batches),
        ("weldfs_log_writes_total", "Writes of log in them.", l.log_writes),
        ("weldfs_log_data_writes_total", "Writes of data in them.", l.data_writes),
        ("weldfs_log_data_bytes_total", "Data bytes written with records.", l.data_bytes),
        ("weldfs_log_watermark_records_total", "Records that only say how far flushes went.", l.watermark_records),
        ("weldfs_checkpoints_total", "Checkpoints completed.", l.checkpoints),
        ("weldfs_checkpoint_bytes_total", "Blocks, pages and superblocks that they wrote.", l.checkpoint_bytes),
    ];
    for (name, help, value) in log {
        p.single(name, "counter", help, value);
    }
}

fn cores(p: &mut Page, stats: &DeviceStats) {
    let cores: Vec<(String, Vec<u64>)> =
        stats.cores.iter().map(|c| (c.core.to_string(), c.totals.each().map(|(_, n)| n).collect())).collect();
    for (at, spec) in CoreTotals::SPECS.iter().enumerate() {
        let name = counter_name("weldfs_core", spec.name);
        p.metric(&name, "counter", &counter_help(spec));
        for (core, values) in &cores {
            p.sample(&name, &[("core", core)], counter_value(spec, values[at]));
        }
    }
}

fn tenants(p: &mut Page, tenants: &[TenantStats]) {
    let values: Vec<Vec<u64>> = tenants.iter().map(|t| t.totals.each().map(|(_, n)| n).collect()).collect();
    for (at, spec) in Totals::SPECS.iter().enumerate() {
        let name = counter_name("weldfs", spec.name);
        p.metric(&name, "counter", &counter_help(spec));
        for (t, values) in tenants.iter().zip(&values) {
            p.sample(&name, &[("tenant", &t.name)], counter_value(spec, values[at]));
        }
    }
    let name = "weldfs_operations_total";
    p.metric(name, "counter", "Commands taken, by operation.");
    for t in tenants {
        for (operation, n) in t.totals.commands_by_opcode.each() {
            p.sample(name, &[("tenant", &t.name), ("operation", operation)], n);
        }
    }
    let name = "weldfs_backlogged_seconds_total";
    p.metric(name, "counter", "Time during which the tenant had a command outstanding on any queue pair.");
    for t in tenants {
        p.sample(name, &[("tenant", &t.name)], seconds(t.backlogged_ns));
    }
    for (name, help, value) in TENANT_GAUGES {
        p.metric(name, "gauge", help);
        for t in tenants {
            p.sample(name, &[("tenant", &t.name)], value(t));
        }
    }
}

type Gauge = (&'static str, &'static str, fn(&TenantStats) -> String);

const TENANT_GAUGES: [Gauge; 13] = [
    ("weldfs_tenant_weight", "Weight: device time is shared in proportion to it.", |t| t.weight.to_string()),
    ("weldfs_tenant_vruntime_seconds", "Virtual runtime: device time charged over weight.", |t| seconds(t.vruntime_ns)),
    ("weldfs_tenant_lag_seconds", "How far behind its share the tenant is, in virtual time.", |t| {
        signed_seconds(t.lag_ns)
    }),
    ("weldfs_tenant_memory_pressure", "How far its memory is over its share, as a fraction.", |t| {
        (f64::from(t.pressure) / 1024.0).to_string()
    }),
    ("weldfs_tenant_runnable", "Runnable commands.", |t| t.runnable.to_string()),
    ("weldfs_tenant_runnable_inode_queues", "Inode queues that hold them.", |t| t.runnable_queues.to_string()),
    ("weldfs_tenant_in_flight", "Commands taken from rings and not completed.", |t| t.usage.in_flight.to_string()),
    ("weldfs_tenant_in_flight_bytes", "Their payload bytes.", |t| t.usage.bytes_in_flight.to_string()),
    ("weldfs_tenant_handles", "Handles.", |t| t.usage.handles.to_string()),
    ("weldfs_tenant_queue_pairs", "Queue pairs.", |t| t.usage.queue_pairs.to_string()),
    ("weldfs_tenant_pool_bytes", "Shared memory of its queue pairs.", |t| t.usage.pool_bytes.to_string()),
    ("weldfs_tenant_memory_bytes", "Device memory that its commands hold.", |t| t.usage.memory_bytes.to_string()),
    ("weldfs_tenant_sessions", "Sessions.", |t| t.usage.sessions.to_string()),
];

/// The FPGA slots; what is in one, and whose, are labels of `weldfs_slot_info`.
fn slots(p: &mut Page, stats: &DeviceStats) {
    type Get = fn(&SlotStats) -> String;
    let of_slot: [(&str, &str, Get); 6] = [
        ("weldfs_slot_busy_seconds_total", "Slot time that kernels computed.", |s| seconds(s.busy_ns)),
        ("weldfs_slot_taken_bytes_total", "Bytes that kernels in the slot took.", |s| s.bytes_in.to_string()),
        ("weldfs_slot_made_bytes_total", "Bytes that kernels in the slot made.", |s| s.bytes_out.to_string()),
        ("weldfs_slot_sessions_total", "Sessions that the slot has had.", |s| s.sessions.to_string()),
        ("weldfs_slot_reconfigurations_total", "Times that another kernel was loaded.", |s| {
            s.reconfigurations.to_string()
        }),
        ("weldfs_slot_faults_total", "Times that a kernel was lost in the slot.", |s| s.faults.to_string()),
    ];
    if stats.slots.is_empty() {
        return;
    }
    p.metric("weldfs_slot_info", "gauge", "What is in the slot: always 1.");
    for s in &stats.slots {
        let labels = [
            ("slot", s.slot.to_string()),
            ("state", s.state.clone()),
            ("kernel", s.kernel.clone().unwrap_or_default()),
            ("tenant", s.tenant.map(|n| tenant_name(stats, n)).unwrap_or_default()),
            ("luts", s.luts.map(|n| n.to_string()).unwrap_or_default()),
        ];
        let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
        p.sample("weldfs_slot_info", &labels, 1);
    }
    for (name, help, get) in of_slot {
        p.metric(name, "counter", help);
        for s in &stats.slots {
            p.sample(name, &[("slot", &s.slot.to_string())], get(s));
        }
    }
}

/// What a tenant is called; one that has gone, by its number.
fn tenant_name(stats: &DeviceStats, number: u64) -> String {
    let tenant = stats.tenants.iter().find(|t| u64::from(t.tenant) == number);
    tenant.map_or_else(|| number.to_string(), |t| t.name.clone())
}

fn latencies(p: &mut Page, tenants: &[TenantStats]) {
    type Pick = fn(&LatencySnapshot) -> &Snapshot;
    let kinds: [(&str, &str, Pick); 3] = [
        ("weldfs_queue_latency_seconds", "Entry seen in the ring to the command's first slice.", |l| &l.queue),
        ("weldfs_service_latency_seconds", "First slice to completion.", |l| &l.service),
        ("weldfs_latency_seconds", "Entry seen in the ring to completion.", |l| &l.total),
    ];
    for (name, help, pick) in kinds {
        p.metric(name, "histogram", help);
        for t in tenants {
            let (h, tenant) = (pick(&t.latency), ("tenant", t.name.as_str()));
            let (bucket, count) = (format!("{name}_bucket"), h.count());
            for power in BUCKETS {
                p.sample(&bucket, &[tenant, ("le", &seconds(1 << power))], h.at_most(1 << power));
            }
            p.sample(&bucket, &[tenant, ("le", "+Inf")], count);
            p.sample(&format!("{name}_sum"), &[tenant], seconds(h.sum_ns()));
            p.sample(&format!("{name}_count"), &[tenant], count);
        }
    }
}
