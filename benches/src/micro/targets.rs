//! The aims for fused operations, and what a run says of them. Nothing here is a measurement: bounds only.

use super::cell::{Class, MicroOp, Phase};
use super::report::{MicroReport, PeerRow};
use crate::table::{Table, ratio};
use serde::Serialize;

/// An aim and its figure.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// What is compared.
    pub what: String,
    /// How many times faster it was; none where this run did not measure it.
    pub measured: Option<f64>,
    /// How many times faster it should be.
    pub aim: f64,
    /// "met", "missed" or "not measured".
    pub verdict: &'static str,
}

impl Target {
    pub(crate) fn new(what: impl Into<String>, measured: f64, aim: f64) -> Target {
        let verdict = match measured {
            m if !m.is_finite() => "not measured",
            m if m >= aim => "met",
            _ => "missed",
        };
        Target { what: what.into(), measured: measured.is_finite().then_some(measured), aim, verdict }
    }
}

use Class::{Durable, Volatile};
use MicroOp::{
    AppendChecksumWrite, OpenReadClose, OpenReadCloseBatched, OpenReadCloseCopied, OpenWriteClose, ReadModifyWrite,
};

/// Aim: operation, class, depth (0: the better one), system of ours, peer, factor, what it is called.
const AIMS: [(MicroOp, Class, u32, &str, &str, f64); 14] = [
    (AppendChecksumWrite, Volatile, 1, FUSED, "ext4", 1.5),
    (AppendChecksumWrite, Volatile, 32, FUSED, "ext4", 2.5),
    (AppendChecksumWrite, Volatile, 32, "weldfs-embedded", "ext4", 4.0),
    (AppendChecksumWrite, Durable, 1, FUSED, "ext4", 25.0),
    (OpenWriteClose, Volatile, 0, FUSED, "ext4", 4.5),
    (OpenWriteClose, Volatile, 0, FUSED, "tmpfs", 2.0),
    (OpenWriteClose, Durable, 0, FUSED, "ext4", 30.0),
    (OpenReadClose, Volatile, 1, FUSED, "ext4", 1.25),
    (OpenReadCloseCopied, Volatile, 1, FUSED, "ext4", 0.9),
    (OpenReadCloseBatched, Volatile, 0, FUSED, "ext4", 2.5),
    (ReadModifyWrite, Volatile, 32, FUSED, "ext4", 8.0),
    (ReadModifyWrite, Volatile, 32, FUSED, "tmpfs", 2.0),
    (ReadModifyWrite, Volatile, 1, FUSED, "ext4", 5.0),
    (ReadModifyWrite, Volatile, 1, FUSED, "tmpfs", 1.0),
];
const FUSED: &str = "weldfs-fused";
/// The best volatile row over volatile ext4, and the mean over all operations that write.
const BEST: f64 = 6.12;
const MEAN: f64 = 2.0;
/// No row below this without a line of explanation.
const FLOOR: f64 = 0.8;

/// The peer of that name, or the first one with that file system.
fn peer<'r>(report: &'r MicroReport, fs: &str) -> Option<&'r PeerRow> {
    let named = report.peers.iter().find(|p| p.name == fs);
    named.or_else(|| report.peers.iter().find(|p| p.fs == fs && !p.on_disk))
}

/// How many times faster than that peer, at 4 KiB and one thread, in a burst.
fn times(report: &MicroReport, op: MicroOp, class: Class, depth: u32, system: &str, fs: &str) -> f64 {
    let Some(peer) = peer(report, fs) else { return f64::NAN };
    let at = |depth| {
        let key = (op.name().to_owned(), 4096, depth, 1, Phase::Burst, class);
        report.times(&key, system, peer)
    };
    if depth > 0 { at(depth) } else { [1, 32].map(at).into_iter().fold(f64::NAN, f64::max) }
}

pub(super) fn evaluate(report: &MicroReport) -> Vec<Target> {
    let mut all: Vec<Target> = AIMS
        .iter()
        .map(|&(op, class, depth, system, fs, aim)| {
            let how = match depth {
                0 => "at its better depth".to_owned(),
                1 => "depth 1".to_owned(),
                depth => format!("pipelined {depth}"),
            };
            let by = if system == FUSED { "" } else { ", embedded" };
            let what = format!("{} 4 KiB, {how}{by}, over {} {fs}", op.name(), class.name());
            Target::new(what, times(report, op, class, depth, system, fs), aim)
        })
        .collect();
    let ext4 = peer(report, "ext4");
    let rows = rows_over(report, ext4);
    let best = rows.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let name = best.map_or_else(String::new, |(name, _)| format!(": {name}"));
    all.push(Target::new(
        format!("best volatile row over volatile ext4{name}"),
        best.map_or(f64::NAN, |(_, times)| *times),
        BEST,
    ));
    let mean = geometric_mean(rows.iter().filter(|(op, _)| is_write(op)).map(|(_, t)| *t));
    all.push(Target::new("geometric mean over all writing rows, volatile, over ext4", mean, MEAN));
    let worst = rows.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let name = worst.map_or_else(String::new, |(name, _)| format!(": {name}"));
    all.push(Target::new(
        format!("slowest volatile row over ext4 (below, each has a line){name}"),
        worst.map_or(f64::NAN, |(_, times)| *times),
        FLOOR,
    ));
    all
}

fn is_write(label: &str) -> bool {
    let name = label.split(' ').next().unwrap_or_default();
    MicroOp::by_name(name).is_some_and(|op| op.writes() && !op.is_variant())
}

/// Every volatile row of fused commands in a burst, with its factor over a peer.
fn rows_over(report: &MicroReport, peer: Option<&PeerRow>) -> Vec<(String, f64)> {
    let Some(peer) = peer else { return Vec::new() };
    let of = |key: (String, u32, u32, u32, Phase, Class)| {
        let times = report.times(&key, FUSED, peer);
        let (op, size, depth, threads, phase, class) = key;
        let label = format!("{op} {size} B, depth {depth}, {threads} thread(s)");
        (phase == Phase::Burst && class == Volatile && times.is_finite()).then_some((label, times))
    };
    report.keys().into_iter().filter_map(of).collect()
}

/// NaN of none.
pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0u32);
    for v in values.filter(|v| v.is_finite() && *v > 0.0) {
        (sum, n) = (sum + v.ln(), n + 1);
    }
    (sum / f64::from(n)).exp()
}

pub(crate) fn table(targets: &[Target]) -> Table {
    let mut table = Table::new(["what", "measured", "aim", "verdict"]);
    for t in targets {
        let measured = ratio(t.measured.unwrap_or(f64::NAN));
        table.line([t.what.clone(), measured, format!("at least {}", ratio(t.aim)), t.verdict.to_owned()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_from_figures() {
        assert_eq!(Target::new("x", 2.0, 1.5).verdict, "met");
        assert_eq!(Target::new("x", 1.49, 1.5).verdict, "missed");
        assert_eq!(
            (Target::new("x", f64::NAN, 1.5).verdict, Target::new("x", f64::NAN, 1.5).measured),
            ("not measured", None)
        );
        assert!((geometric_mean([2.0, 8.0].into_iter()) - 4.0).abs() < 1e-9);
        assert!(geometric_mean(std::iter::empty()).is_nan());
    }
}
