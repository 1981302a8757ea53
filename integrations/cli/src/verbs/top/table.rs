//! An interval as lines of text: the columns that screen and plain output share.

use super::interval::{CoreRow, Interval, Sort, TenantRow};
use crate::observe::{human_count, human_ns};
use crate::output::human_bytes;
use std::io::{self, Write};
use weldfs_device::SlotStats;

/// One column of the tenants' table.
pub struct Column {
    /// Its head.
    pub title: &'static str,
    /// Characters it takes.
    pub width: usize,
    /// When there is no room, columns of high rank go first; rank 0 stays.
    rank: u8,
    /// What stands in it.
    pub cell: fn(&TenantRow) -> String,
}

const fn column(title: &'static str, width: usize, rank: u8, cell: fn(&TenantRow) -> String) -> Column {
    Column { title, width, rank, cell }
}

const COLUMNS: [Column; 13] = [
    column("TENANT", 12, 0, |t| t.name.clone()),
    column("WEIGHT", 6, 3, |t| t.weight.to_string()),
    column("SHARE", 6, 0, |t| format!("{:.1}%", t.share * 100.0)),
    column("OPS/S", 6, 0, |t| human_count(t.ops_per_s.round())),
    column("RUN", 4, 1, |t| t.runnable.to_string()),
    column("FLY", 4, 6, |t| t.in_flight.to_string()),
    column("DEPTH", 5, 7, |t| format!("{:.1}", t.depth)),
    column("MEM", 6, 2, |t| human_bytes(t.memory_bytes)),
    column("VRUN", 8, 4, |t| signed_ns(t.vruntime_ahead_ns)),
    column("QUEUE50", 7, 5, |t| human_ns(t.queue_p50_ns)),
    column("QUEUE99", 7, 0, |t| human_ns(t.queue_p99_ns)),
    column("SERV50", 7, 5, |t| human_ns(t.service_p50_ns)),
    column("SERV99", 7, 0, |t| human_ns(t.service_p99_ns)),
];

fn signed_ns(ns: i64) -> String {
    format!("{}{}", if ns < 0 { "-" } else { "+" }, human_ns(ns.unsigned_abs()))
}

/// The columns that fit into so many characters, with one space between them. Those without which the table says
/// nothing stay in any case.
pub fn columns(width: usize) -> Vec<&'static Column> {
    const ALL: &[Column] = &COLUMNS;
    let mut shown: Vec<&Column> = ALL.iter().collect();
    while shown.iter().map(|c| c.width + 1).sum::<usize>() > width.saturating_add(1) {
        let Some(least) = shown.iter().map(|c| c.rank).max().filter(|rank| *rank > 0) else { break };
        shown.retain(|c| c.rank != least);
    }
    shown
}

/// What a cell shows in its column: cut where it is too long.
pub fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['~']).collect()
}

/// The first line: what device this is.
pub fn device_line(i: &Interval) -> String {
    let (d, s) = (&i.device, &i.scheduler);
    let quantum = human_ns(s.quantum_ns);
    format!("{}  {}  policy {} ({}, {quantum})  profile {}", d.title(), d.medium, s.policy, s.cost, d.profile.name)
}

/// The second line: what all of it did.
pub fn total_line(i: &Interval) -> String {
    let (used, budget) = (human_bytes(i.memory.used), human_bytes(i.memory.budget));
    format!(
        "{} ops/s {} slices/s {} runnable  link {}/s in {}/s out  mem {used}/{budget}  {:.1}s",
        human_count(i.ops_per_s.round()),
        human_count(i.slices_per_s.round()),
        i.scheduler.runnable,
        human_bytes(i.link_in_bytes_per_s as u64),
        human_bytes(i.link_out_bytes_per_s as u64),
        i.seconds
    )
}

/// The slots' line: busy, and what is in each; empty where none was used in the interval, is loaded, or is stuck.
pub fn slots_line(i: &Interval) -> String {
    let odd = |s: &SlotStats| matches!(s.state.as_str(), "loading" | "stuck");
    let used = i.slots.iter().filter(|s| s.busy_ns > 0 || s.sessions > 0 || odd(s));
    let slot = |s: &SlotStats| {
        let (kernel, busy) = (s.kernel.as_deref().unwrap_or("-"), s.busy_ns as f64 / 1e7 / i.seconds);
        let state = if odd(s) { format!(" {}", s.state) } else { String::new() };
        format!("  {} {kernel}{state} {busy:.0}% {}/s", s.slot, human_bytes((s.bytes_in as f64 / i.seconds) as u64))
    };
    let used: String = used.map(slot).collect();
    if used.is_empty() { used } else { format!("slots{used}") }
}

/// A core's line, with a bar of so many characters.
pub fn core_line(c: &CoreRow, bar: usize) -> String {
    let full = (c.busy * bar as f64).round() as usize;
    format!(
        "core {:>2} [{}{}] {:>3.0}%  {:>6} slices/s  {:>6} moved/s  last {}",
        c.core,
        "|".repeat(full),
        " ".repeat(bar.saturating_sub(full)),
        c.busy * 100.0,
        human_count(c.slices_per_s.round()),
        human_count(c.migrations_per_s.round()),
        c.last_tenant.as_deref().unwrap_or("-")
    )
}

/// Heads of the inode queues' table.
pub const INODE_HEADS: [&str; 6] = ["INODE", "TENANT", "TICKETS", "WAITING", "RUN", "VRUN"];

/// Rows of the inode queues' table.
pub fn inode_rows(i: &Interval) -> Vec<[String; 6]> {
    let name = |id: u32| i.tenants.iter().find(|t| t.tenant == id).map_or_else(|| id.to_string(), |t| t.name.clone());
    let row = |q: &weldfs_device::InodeQueueStats| {
        [
            q.inode.to_string(),
            q.tenant.map_or_else(|| "-".to_owned(), name),
            q.tickets.to_string(),
            q.waiting.to_string(),
            q.runnable.to_string(),
            human_ns(q.vruntime_ns),
        ]
    };
    i.inode_queues.iter().flatten().map(row).collect()
}

/// The whole interval as plain text.
pub fn plain(out: &mut dyn Write, i: &Interval, sort: Sort) -> io::Result<()> {
    writeln!(out, "{}\n{}", device_line(i), total_line(i))?;
    i.cores.iter().try_for_each(|c| writeln!(out, "{}", core_line(c, 20)))?;
    let slots = slots_line(i);
    if !slots.is_empty() {
        writeln!(out, "{slots}")?;
    }
    let mut tenants = i.tenants.clone();
    sort.apply(&mut tenants);
    let shown = columns(usize::MAX);
    let names = tenants.iter().map(|t| t.name.chars().count()).max().unwrap_or(0);
    let mut line = |cells: Vec<String>| {
        let mut cells = cells.into_iter().zip(&shown);
        if let Some((first, c)) = cells.next() {
            write!(out, "{first:<width$}", width = names.max(c.width))?;
        }
        cells.try_for_each(|(cell, c)| write!(out, " {cell:>width$}", width = c.width))?;
        writeln!(out)
    };
    line(shown.iter().map(|c| c.title.to_owned()).collect())?;
    tenants.iter().try_for_each(|t| line(shown.iter().map(|c| (c.cell)(t)).collect()))?;
    if i.inode_queues.is_some() {
        let mut line = |[inode, tenant, tickets, waiting, run, vrun]: [&str; 6]| {
            writeln!(out, "{inode:>12} {tenant:<12} {tickets:>7} {waiting:>7} {run:>5} {vrun:>8}")
        };
        line(INODE_HEADS)?;
        inode_rows(i).iter().try_for_each(|row| line(row.each_ref().map(String::as_str)))?;
    }
    Ok(())
}
