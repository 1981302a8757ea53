//! Counters as people read them: grouped, with units.

use crate::observe::{human_count, human_ns};
use crate::output::human_bytes;
use std::io::{self, Write};
use weldfs_device::{DeviceStats, TenantStats};
use weldfs_session::counters::CounterSpec;
use weldfs_session::latency::Snapshot;

/// Every counter has its place here, by name.
pub const GROUPS: &[(&str, &[&str])] = &[
    (
        "commands",
        &[
            "commands",
            "elements",
            "fused",
            "posted",
            "merged_writes",
            "merged_places",
            "merged_attributes",
            "prioritized",
            "lives",
            "leases",
            "watches",
            "errors",
            "malformed",
            "uncontended",
            "queued",
        ],
    ),
    (
        "crossings and copies",
        &[
            "doorbells",
            "client_wakes",
            "link_bytes_in",
            "link_bytes_out",
            "payload_bytes_in",
            "payload_bytes_out",
            "payload_copies",
            "metadata_copies",
            "data_bytes",
        ],
    ),
    (
        "waits",
        &["durable_waits", "set_retries", "room_waits", "pace_waits", "lease_waits", "memory_waits", "admission_waits"],
    ),
    ("slices", &["slices", "yields", "lent", "preemptions", "boosts", "migrations", "corrections", "corrected_ns"]),
    (
        "slots",
        &[
            "virtual_reads",
            "virtual_replays",
            "slot_packets",
            "slot_ns",
            "slot_bytes_in",
            "slot_bytes_out",
            "slot_fallbacks",
        ],
    ),
    (
        "time",
        &["used_ns", "device_ns", "process_ns", "queue_ns", "service_ns", "modelled_ns", "outstanding_ns", "depth_ns"],
    ),
];

fn value(name: &str, n: u64) -> String {
    if name.ends_with("_ns") {
        human_ns(n)
    } else if name.contains("bytes") {
        human_bytes(n)
    } else {
        n.to_string()
    }
}

/// A report over everything since the start, or over the interval.
pub fn report(out: &mut dyn Write, stats: &DeviceStats, interval_ns: Option<u64>) -> io::Result<()> {
    let (d, s) = (&stats.device, &stats.scheduler);
    match interval_ns {
        Some(ns) => writeln!(out, "{}: the last {}", d.title(), human_ns(ns))?,
        None => writeln!(out, "{}: since its start, {} ago", d.title(), human_ns(stats.time_ns))?,
    }
    let power = if d.power_safe { "power-safe" } else { "not power-safe" };
    writeln!(out, "  {}, {} by default, {power}, profile {}", d.medium, d.durability, d.profile.name)?;
    writeln!(
        out,
        "  {} cores, policy {}, cost {}, quantum {}, {} runnable",
        d.cores,
        s.policy,
        s.cost,
        human_ns(s.quantum_ns),
        s.runnable
    )?;
    let counters: Vec<(&CounterSpec, u64)> = stats.total.each().collect();
    for (group, names) in GROUPS {
        writeln!(out, "\n{group}")?;
        for name in *names {
            if let Some((spec, n)) = counters.iter().find(|(spec, _)| spec.name == *name) {
                writeln!(out, "  {name:<18}{:>10}  {}", value(name, *n), spec.help.trim())?;
            }
        }
    }
    let by_operation: Vec<String> = stats.total.commands_by_opcode.each().map(|(op, n)| format!("{op} {n}")).collect();
    if !by_operation.is_empty() {
        writeln!(out, "\noperations")?;
        by_operation.chunks(6).try_for_each(|line| writeln!(out, "  {}", line.join(", ")))?;
    }
    in_use(out, stats)?;
    slots(out, stats, interval_ns.unwrap_or(stats.time_ns))?;
    cores(out, stats, interval_ns.unwrap_or(stats.time_ns))?;
    tenants(out, &stats.tenants, interval_ns.unwrap_or(stats.time_ns))?;
    inode_queues(out, stats)
}

fn in_use(out: &mut dyn Write, stats: &DeviceStats) -> io::Result<()> {
    let (l, u, m) = (&stats.log, &stats.usage, &stats.memory);
    writeln!(out, "\nmemory")?;
    let [used, budget, cached, caches] = [m.used, m.budget, m.cached, m.caches].map(human_bytes);
    let accounting = if m.accounting { "accounted by tenant" } else { "first come, first served" };
    writeln!(
        out,
        "  {used} held by commands of {budget}, {cached} of up to {caches} by caches, {accounting}, {} waiting",
        m.waiting
    )?;
    writeln!(out, "\nlog")?;
    let used = human_bytes(l.used);
    writeln!(out, "  {} records, {}, {} flushes, {used} in use", l.records, human_bytes(l.bytes), l.flushes)?;
    writeln!(
        out,
        "  {} batches with {} writes of log and {} of data, {} of data, {} watermark records, {} checkpoints of {}",
        l.batches,
        l.log_writes,
        l.data_writes,
        human_bytes(l.data_bytes),
        l.watermark_records,
        l.checkpoints,
        human_bytes(l.checkpoint_bytes)
    )?;
    writeln!(out, "\nin use")?;
    writeln!(
        out,
        "  {} sessions, {} queue pairs with {}, {} handles, {} open files, {} placeholders, {} locks, {} inode queues",
        u.sessions,
        u.queues,
        human_bytes(u.pool_bytes),
        u.handles,
        u.open_files,
        u.placeholders,
        u.locks,
        u.inode_queues
    )
}

fn slots(out: &mut dyn Write, stats: &DeviceStats, span_ns: u64) -> io::Result<()> {
    if stats.slots.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nslot    LUTs  state    kernel          busy  sessions      in     out  loaded  faults")?;
    for s in &stats.slots {
        writeln!(
            out,
            "{:>4}  {:>6}  {:<7}  {:<14}  {:>3.0}%  {:>8}  {:>6}  {:>6}  {:>6}  {:>6}",
            s.slot,
            s.luts.map_or_else(|| "-".to_owned(), |luts| human_count(luts.into())),
            s.state,
            s.kernel.as_deref().unwrap_or("-"),
            percent(s.busy_ns, span_ns),
            human_count(s.sessions as f64),
            human_bytes(s.bytes_in),
            human_bytes(s.bytes_out),
            s.reconfigurations,
            s.faults
        )?;
    }
    Ok(())
}

fn cores(out: &mut dyn Write, stats: &DeviceStats, span_ns: u64) -> io::Result<()> {
    writeln!(out, "\ncore   busy  slices    time  device time  uncontended  preempted  migrated  corrected  sleeps")?;
    for c in &stats.cores {
        let t = &c.totals;
        writeln!(
            out,
            "{:>4}  {:>4.0}%  {:>6}  {:>6}  {:>11}  {:>11}  {:>9}  {:>8}  {:>9}  {:>6}",
            c.core,
            percent(t.busy_ns + t.stretched_ns, span_ns),
            human_count(t.slices as f64),
            human_ns(t.busy_ns),
            human_ns(t.device_ns),
            human_count(t.uncontended as f64),
            human_count(t.preemptions as f64),
            human_count(t.migrations as f64),
            human_ns(t.corrected_ns),
            human_count(t.sleeps as f64),
        )?;
    }
    Ok(())
}

/// A part of a whole in percent; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn tenants(out: &mut dyn Write, tenants: &[TenantStats], span_ns: u64) -> io::Result<()> {
    let names = tenants.iter().map(|t| t.name.chars().count()).max().unwrap_or(0).max(6);
    let sum: u64 = tenants.iter().map(|t| t.totals.used_ns).sum();
    let width = names;
    writeln!(
        out,
        "\n{:<width$}  weight  commands  errors  share  vruntime  runnable  in flight  backlogged  depth  \
         queue p50/p99  service p50/p99",
        "tenant"
    )?;
    for t in tenants {
        let both = |h: &Snapshot| format!("{}/{}", human_ns(h.percentile(0.5)), human_ns(h.percentile(0.99)));
        writeln!(
            out,
            "{:<width$}  {:>6}  {:>8}  {:>6}  {:>4.0}%  {:>8}  {:>8}  {:>9}  {:>9.0}%  {:>5.1}  {:>13}  {:>15}",
            t.name,
            t.weight,
            human_count(t.totals.commands as f64),
            human_count(t.totals.errors as f64),
            percent(t.totals.used_ns, sum),
            human_ns(t.vruntime_ns),
            t.runnable,
            t.usage.in_flight,
            percent(t.backlogged_ns, span_ns),
            percent(t.totals.depth_ns, span_ns) / 100.0,
            both(&t.latency.queue),
            both(&t.latency.service),
        )?;
    }
    Ok(())
}

fn inode_queues(out: &mut dyn Write, stats: &DeviceStats) -> io::Result<()> {
    let Some(queues) = &stats.inode_queues else { return Ok(()) };
    writeln!(out, "\n       inode  tenant  tickets  waiting  runnable  weight  vruntime")?;
    queues.iter().try_for_each(|q| {
        let tenant = q.tenant.map_or_else(|| "-".to_owned(), |t| t.to_string());
        let vruntime = human_ns(q.vruntime_ns);
        let (tickets, waiting, runnable, weight) = (q.tickets, q.waiting, q.runnable, q.weight);
        writeln!(
            out,
            "{:>12}  {tenant:>6}  {tickets:>7}  {waiting:>7}  {runnable:>8}  {weight:>6}  {vruntime:>8}",
            q.inode
        )
    })
}
