//! `weldfs stats`: everything a running device counts, for people, as JSON, or for Prometheus.

mod people;
mod prometheus;

use crate::device::running;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::observe::{parse_seconds, sleep_while_read, stats};
use crate::output;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weldfs::Client;
use weldfs_ciscops::attach::detail;
use weldfs_device::{DeviceStats, Totals};

/// Arguments of `weldfs stats`.
#[derive(clap::Args, Debug)]
#[command(after_help = "docs/OBSERVABILITY.md has every counter with its unit and meaning.")]
pub struct Args {
    /// The device's socket, or the image or directory that it serves
    #[arg(value_name = "SOCKET|IMAGE|DIR")]
    device: PathBuf,
    /// One JSON object (with --watch: one per line)
    #[arg(long)]
    json: bool,
    /// The text format of Prometheus
    #[arg(long, conflicts_with_all = ["json", "watch", "inodes"])]
    prometheus: bool,
    /// Only this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Again and again, what was counted in each so many seconds, until Ctrl-C
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    watch: Option<Duration>,
    /// The inode queues that hold tickets, too
    #[arg(long)]
    inodes: bool,
    /// With --json: histograms with their buckets
    #[arg(long, requires = "json")]
    buckets: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Outcome {
    let client = running(&args.device)?;
    let first = look(args, &client)?;
    if args.watch.is_none() {
        return show(args, &first, None).map(|()| 0);
    }
    watch(args, &client, first)
}

/// The device's counters, of one tenant only if so asked.
fn look(args: &Args, client: &Client) -> Result<DeviceStats, Failure> {
    let details = if args.inodes { detail::INODE_QUEUES } else { 0 };
    let mut now = stats(client, &args.device, details)?;
    if let Some(name) = &args.tenant {
        one_tenant(&mut now, name, &args.device)?;
    }
    Ok(now)
}

fn one_tenant(stats: &mut DeviceStats, name: &str, device: &Path) -> Result<(), Failure> {
    let at = stats.tenants.iter().position(|t| t.name == name);
    let at = at.ok_or_else(|| Failure::new(format!("{}: no tenant is called {name}", device.display())))?;
    let tenant = stats.tenants.swap_remove(at);
    stats.total = tenant.totals.clone();
    stats.tenants = vec![tenant];
    Ok(())
}

fn watch(args: &Args, client: &Client, mut before: DeviceStats) -> Outcome {
    let interval = args.watch.unwrap_or_default();
    let interrupt = Interrupt::catch()?;
    loop {
        // From the last look on, so that a late one is not followed by a short interval.
        if !sleep_while_read(Instant::now() + interval, interrupt.flag()) {
            return Ok(0);
        }
        let now = look(args, client)?;
        show(args, &since(&now, &before), Some(now.time_ns.saturating_sub(before.time_ns)))?;
        before = now;
    }
}

/// What was counted after an earlier look; what is in use stays as it is now.
fn since(now: &DeviceStats, before: &DeviceStats) -> DeviceStats {
    let mut d = now.clone();
    d.total = now.total.since(&before.total);
    for core in &mut d.cores {
        if let Some(b) = before.cores.iter().find(|b| b.core == core.core) {
            core.totals = core.totals.since(&b.totals);
        }
    }
    for slot in &mut d.slots {
        if let Some(b) = before.slots.iter().find(|b| b.slot == slot.slot) {
            *slot = slot.since(b);
        }
    }
    for tenant in &mut d.tenants {
        if let Some(b) = before.tenants.iter().find(|b| b.tenant == tenant.tenant) {
            tenant.totals = tenant.totals.since(&b.totals);
            tenant.latency = tenant.latency.since(&b.latency);
            tenant.backlogged_ns = tenant.backlogged_ns.saturating_sub(b.backlogged_ns);
        }
    }
    if let (Some(session), Some(b)) = (&mut d.session, &before.session) {
        session.totals = session.totals.since(&b.totals);
    }
    d.crossings = crossings(&d.total, &d);
    d.log = d.log.since(&before.log);
    d
}

fn crossings(total: &Totals, stats: &DeviceStats) -> weldfs_device::Crossings {
    weldfs_device::Crossings {
        commands: total.commands,
        doorbells: total.doorbells,
        client_wakes: total.client_wakes,
        device_sleeps: stats.cores.iter().map(|c| c.totals.sleeps).sum(),
    }
}

/// Prints one report; `interval_ns`: what it spans, when it is not everything since the start.
fn show(args: &Args, stats: &DeviceStats, interval_ns: Option<u64>) -> Result<(), Failure> {
    if args.prometheus {
        return output::facts(|out| out.write_all(prometheus::page(stats).as_bytes()));
    }
    if !args.json {
        return output::facts(|out| people::report(out, stats, interval_ns));
    }
    let mut value = serde_json::to_value(stats).map_err(|e| Failure::new(e.to_string()))?;
    if let Some(ns) = interval_ns {
        value["interval_ns"] = ns.into();
    }
    if !args.buckets {
        drop_buckets(&mut value);
    }
    match interval_ns {
        None => output::json(&value),
        Some(_) => output::facts(|out| {
            serde_json::to_writer(&mut *out, &value)?;
            out.write_all(b"\n")
        }),
    }
}

/// Histograms keep their percentiles; hundreds of pairs of numbers go.
fn drop_buckets(stats: &mut serde_json::Value) {
    for tenant in stats["tenants"].as_array_mut().into_iter().flatten() {
        for histogram in tenant["latency"].as_object_mut().into_iter().flat_map(|l| l.values_mut()) {
            if let Some(histogram) = histogram.as_object_mut() {
                histogram.remove("buckets");
            }
        }
    }
}

#[cfg(test)]
mod tests;
