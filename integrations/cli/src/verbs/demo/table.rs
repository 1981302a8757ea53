//! The gains as a table: an operation in a class on a medium is a line, with the systems beside each other.

use super::measure;
use serde::Serialize;
use std::fmt::Write;
use weldfs_benches::micro::MicroReport;
use weldfs_benches::micro::cell::{Class, MicroOp};
use weldfs_benches::micro::report::Row;

/// One line.
#[derive(Debug, Clone, Serialize)]
pub struct Gain {
    /// The operation.
    pub op: &'static str,
    /// What the host does for it, call by call.
    pub steps: &'static str,
    /// Volatile or durable.
    pub durability: Class,
    /// Where WeldFS's bytes live.
    pub medium: String,
    /// Where the host's live.
    pub host_medium: Option<String>,
    /// What acknowledged bytes survive: "nothing yet", "the device's process" or "a power cut".
    pub survives: &'static str,
    /// Nanoseconds of one fused command.
    pub fused_ns: f64,
    /// Nanoseconds of its steps as single commands.
    pub unfused_ns: Option<f64>,
    /// Nanoseconds of the host's calls; none where the host has no equal of this class here.
    pub host_ns: Option<f64>,
    /// `host_ns` over `fused_ns`.
    pub times: Option<f64>,
}

fn is_disk(row: &Row) -> bool {
    row.medium.contains("disk")
}

/// The lines of a report, RAM before disk.
pub fn gains(report: &MicroReport) -> Vec<Gain> {
    let mut all = Vec::new();
    for op in measure::OPS {
        for disk in [false, true] {
            all.extend([Class::Volatile, Class::Durable].into_iter().filter_map(|class| gain(report, op, disk, class)));
        }
    }
    all
}

fn gain(report: &MicroReport, op: MicroOp, disk: bool, class: Class) -> Option<Gain> {
    let row = |kind: &str| {
        let mut rows = report.rows.iter().filter(|r| r.op == op.name() && r.durability == class && is_disk(r) == disk);
        rows.find(|r| r.system.starts_with(kind))
    };
    let (fused, host) = (row("weldfs-fused")?, row("posix:"));
    Some(Gain {
        op: op.name(),
        steps: op.about(),
        durability: class,
        medium: fused.medium.clone(),
        host_medium: host.map(|r| r.medium.clone()),
        survives: match (class, fused.power_safe) {
            (Class::Volatile, _) => "nothing yet",
            (Class::Durable, false) => "the device's process",
            (Class::Durable, true) => "a power cut",
        },
        fused_ns: fused.ns_per_op,
        unfused_ns: row("weldfs-unfused").map(|r| r.ns_per_op),
        host_ns: host.map(|r| r.ns_per_op),
        times: host.map(|r| r.ns_per_op / fused.ns_per_op),
    })
}

fn us(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2} us", ns / 1000.0))
}

/// As a table for people.
pub fn text(report: &MicroReport, gains: &[Gain]) -> String {
    let mut out = String::new();
    // A String takes everything.
    let _ = writeln!(
        out,
        "What one command instead of several gains, measured now ({} build, {} processors, {} KiB of payload):",
        report.build,
        std::thread::available_parallelism().map_or(1, usize::from),
        measure::SIZE >> 10
    );
    let mut op = "";
    for g in gains {
        if g.op != op {
            op = g.op;
            let _ = writeln!(out, "\n{op}: the host's calls are: {}", g.steps);
            let _ = writeln!(
                out,
                "  {:<9} {:<23} {:<21} {:>12} {:>13} {:>13}  {:<16}",
                "class", "our bytes live on", "and survive", "one command", "step by step", "host's calls", "on"
            );
        }
        let class = if g.durability == Class::Durable { "durable" } else { "volatile" };
        let times = g.times.map_or_else(String::new, |t| format!("{t:.1}x"));
        let _ = writeln!(
            out,
            "  {class:<9} {:<23} {:<21} {:>12} {:>13} {:>13}  {:<16} {times}",
            g.medium,
            g.survives,
            us(Some(g.fused_ns)),
            us(g.unfused_ns),
            us(g.host_ns),
            g.host_medium.as_deref().unwrap_or("(no equal here)"),
        );
    }
    out.push_str(
        "\nEmulated pmem is a mapped file in RAM: it survives the process, not the power; a tmpfs, its equal, keeps \
         nothing.\n",
    );
    out.push_str(&doubts(report));
    out
}

/// What makes the figures worth less than they look.
fn doubts(report: &MicroReport) -> String {
    let mut out = String::new();
    let (rounds, restless) = report.rows.iter().fold((0, 0), |(all, bad), r| (all + r.rounds, bad + r.restless));
    if restless > 0 {
        let _ =
            writeln!(out, "{restless} of {rounds} samples began while the machine had other work: read them as rough.");
    }
    if report.build != "release" {
        out.push_str("This is not a release build: WeldFS's figures are several times too slow.\n");
    }
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        out.push_str("There is one processor: device and client take turns on it, which no figure here survives.\n");
    }
    for failed in &report.failed {
        let _ = writeln!(out, "FAILED: {}: {}: {}", failed.system, failed.cell, failed.error);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_benches::micro::cell::Phase;
    use weldfs_benches::report::Machine;

    fn row(system: &str, medium: &str, durability: Class, ns: f64) -> Row {
        Row {
            bench: "micro".into(),
            system: system.into(),
            op: MicroOp::AppendChecksumWrite.name().into(),
            size: measure::SIZE,
            depth: 1,
            threads: 1,
            phase: Phase::Burst,
            medium: medium.into(),
            durability,
            power_safe: medium.contains("disk"),
            ns_per_op: ns,
            ops_per_s: 1e9 / ns,
            p50_ns: ns,
            p99_ns: ns,
            crossings: 1.0,
            payload_copies: 1.0,
            metadata_copies: 0.0,
            syscalls: 0.0,
            link_bytes: 4096.0,
            flushes: 1.0,
            ops: 1000,
            rounds: 3,
            restless: usize::from(ns > 90_000.0),
            checkpoints: 0,
            log_lengths: 0.0,
        }
    }

    fn report(rows: Vec<Row>) -> MicroReport {
        let (machine, build, profile) = (Machine::here(), "release", "default (no modelled delay)".to_owned());
        let (peers, skipped, failed, sequences, targets) = (vec![], vec![], vec![], vec![], vec![]);
        MicroReport {
            machine,
            build,
            profile,
            quick: false,
            peers,
            skipped,
            interrupted: false,
            failed,
            rows,
            sequences,
            targets,
        }
    }

    #[test]
    fn equals_stand_beside_each_other_and_a_tmpfs_has_no_durable_side() {
        let report = report(vec![
            row("weldfs-fused", "emulated pmem", Class::Volatile, 2000.0),
            row("weldfs-unfused", "emulated pmem", Class::Volatile, 4000.0),
            row("posix:ram", "tmpfs", Class::Volatile, 3000.0),
            row("posix:disk", "ext4 on a disk", Class::Durable, 200_000.0),
            row("weldfs-fused", "emulated pmem", Class::Durable, 2500.0),
            row("weldfs-fused", "block image on a disk", Class::Durable, 100_000.0),
        ]);
        let gains = gains(&report);
        let shown: Vec<_> =
            gains.iter().map(|g| (g.medium.as_str(), g.host_medium.as_deref(), g.survives, g.times)).collect();
        assert_eq!(
            shown,
            [
                ("emulated pmem", Some("tmpfs"), "nothing yet", Some(1.5)),
                ("emulated pmem", None, "the device's process", None),
                ("block image on a disk", Some("ext4 on a disk"), "a power cut", Some(2.0)),
            ]
        );
        assert_eq!((gains[0].unfused_ns, gains[1].host_ns), (Some(4000.0), None));
        let text = text(&report, &gains);
        for part in ["2.00 us", "4.00 us", "1.5x", "(no equal here)", "2 of 18 samples began", "a power cut"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_build_without_optimisation_is_said_to_be_one() {
        let mut report = report(vec![row("weldfs-fused", "emulated pmem", Class::Volatile, 2000.0)]);
        assert!(!text(&report, &gains(&report)).contains("not a release build"));
        report.build = "debug";
        assert!(text(&report, &gains(&report)).contains("not a release build"));
    }
}
