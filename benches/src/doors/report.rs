//! Rows, aims and tables of `doors`.

use super::Op;
use crate::chosen::Failed;
use crate::report::{Machine, Ratio, print_aims};
use crate::table::Table;
use serde::Serialize;
use std::io::{self, Write};

/// A preloaded small read or write, over the same through the API.
const PRELOAD_CALL_MAX: f64 = 1.3;
/// tar and git under `weldfs run`, over the same on a directory of the host's disk.
const PRELOAD_PROGRAM_MAX: f64 = 1.0;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The operation.
    pub op: &'static str,
    /// The door, or the directory's name.
    pub system: String,
    /// Busy processes beside it.
    pub busy: u32,
    /// "us", "ms" or "MiB/s".
    pub unit: &'static str,
    /// The median of the rounds.
    pub value: f64,
    /// Rounds behind it.
    pub rounds: usize,
    /// Where the bytes live.
    pub medium: String,
    /// "volatile" or "durable".
    pub durability: &'static str,
    /// Whether what is durable here survives a power cut.
    pub power_safe: bool,
}

/// What a run was of, besides its rows.
#[derive(Clone, Debug, Serialize)]
pub(super) struct About {
    /// The load average at the end: the run's own, and what disturbed it.
    pub(super) load: f64,
    /// What tar and git worked on.
    pub(super) sets: Vec<String>,
    /// The doors, in the order of the table.
    #[serde(skip)]
    pub(super) names: Vec<String>,
}

/// The finished experiment.
#[derive(Clone, Debug, Serialize)]
pub struct DoorsReport {
    /// Which machine.
    pub machine: Machine,
    /// The emulated hardware.
    pub profile: &'static str,
    #[serde(flatten)]
    about: About,
    /// Whether it was ended early.
    pub interrupted: bool,
    /// The rows.
    pub rows: Vec<Row>,
    /// The aims.
    pub ratios: Vec<Ratio>,
    /// Doors and operations that cannot be measured here, and why.
    pub skipped: Vec<String>,
    /// Operations that failed at a door.
    pub failed: Vec<Failed>,
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

impl DoorsReport {
    pub(super) fn new(
        machine: Machine,
        about: About,
        interrupted: bool,
        rows: Vec<Row>,
        skipped: Vec<String>,
        failed: Vec<Failed>,
    ) -> DoorsReport {
        let ratios = aims(&rows);
        DoorsReport { machine, profile: "none", about, interrupted, rows, ratios, skipped, failed }
    }

    /// Prints the tables, for people or as Markdown.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print(&self, out: &mut dyn Write, markdown: bool) -> io::Result<()> {
        let m = &self.machine;
        writeln!(out, "{} ({} cores), kernel {}, {} build", m.cpu, m.cores, m.kernel, m.build)?;
        writeln!(out, "profile {}; load average at the end {:.1}", self.profile, self.about.load)?;
        for name in &self.about.names {
            if let Some(row) = self.rows.iter().find(|row| row.system == *name) {
                let safe = if row.power_safe { "power-safe" } else { "not power-safe" };
                writeln!(out, "{name}: {}, {}, {safe}", row.medium, row.durability)?;
            }
        }
        self.about.sets.iter().try_for_each(|set| writeln!(out, "{set}"))?;
        self.skipped.iter().try_for_each(|line| writeln!(out, "skipped: {line}"))?;
        self.failed.iter().try_for_each(|failed| write!(out, "{}", failed.line()))?;
        writeln!(out)?;
        let head = ["operation", "unit", "busy"].into_iter().map(str::to_owned);
        let mut table = Table::new(head.chain(self.about.names.iter().cloned()).collect::<Vec<_>>());
        for op in Op::ALL {
            let mut busy: Vec<u32> = self.rows.iter().filter(|r| r.op == op.name()).map(|r| r.busy).collect();
            busy.sort_unstable();
            busy.dedup();
            for busy in busy {
                let of = |name: &String| {
                    let mut rows = self.rows.iter();
                    rows.find(|r| (r.op, r.busy) == (op.name(), busy) && r.system == *name)
                };
                let cells = self.about.names.iter().map(|name| of(name).map_or("-".into(), |row| digits(row.value)));
                let first = [op.name().to_owned(), op.figure(1.0).0.to_owned(), busy.to_string()];
                table.line(first.into_iter().chain(cells).collect::<Vec<_>>());
            }
        }
        write!(out, "{}", table.render(markdown))?;
        print_aims(&self.ratios, out, markdown)
    }
}

/// What is aimed at with nothing beside it: calls of a preloaded program cost little more than the API's, and programs
/// are not slower than on a disk's file system.
fn aims(rows: &[Row]) -> Vec<Ratio> {
    let find = |op: Op, system: &str| rows.iter().find(|r| (r.op, r.busy) == (op.name(), 0) && r.system == system);
    let mut ratios = Vec::new();
    for op in [Op::Read, Op::Write] {
        if let (Some(a), Some(b)) = (find(op, "preload"), find(op, "api-served")) {
            let what = format!("{}, preload to api-served", op.name());
            ratios.push(Ratio::at_most(&what, a.value, b.value, PRELOAD_CALL_MAX));
        }
    }
    for op in [Op::Tar, Op::Git] {
        let Some(preload) = find(op, "preload") else { continue };
        for peer in rows.iter().filter(|r| (r.op, r.busy) == (op.name(), 0) && r.medium.ends_with("on a disk")) {
            if super::DOORS.contains(&peer.system.as_str()) {
                continue;
            }
            let what = format!("{}, preload to {}", op.name(), peer.system);
            ratios.push(Ratio::at_most(&what, preload.value, peer.value, PRELOAD_PROGRAM_MAX));
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(op: Op, system: &str, busy: u32, value: f64, medium: &str) -> Row {
        let (system, medium) = (system.to_owned(), medium.to_owned());
        let (unit, rounds, durability) = (op.figure(1.0).0, 3, "volatile");
        Row { op: op.name(), system, busy, unit, value, rounds, medium, durability, power_safe: false }
    }

    fn report(rows: Vec<Row>) -> DoorsReport {
        let names = ["api-served", "preload", "disk", "ram"].map(str::to_owned).to_vec();
        let about = About { load: 0.5, sets: vec!["tar_x: 5 files".into()], names };
        let machine = Machine { cpu: "c".into(), cores: 2, kernel: "k".into(), build: "debug" };
        DoorsReport::new(machine, about, false, rows, vec!["mount: cannot be used here: no".into()], Vec::new())
    }

    #[test]
    fn aims_compare_preload_with_the_api_and_with_what_lies_on_a_disk() {
        let report = report(vec![
            row(Op::Read, "api-served", 0, 2.0, "emulated pmem"),
            row(Op::Read, "preload", 0, 2.7, "emulated pmem"),
            row(Op::Read, "preload", 2, 9.0, "emulated pmem"),
            row(Op::Tar, "preload", 0, 100.0, "emulated pmem"),
            row(Op::Tar, "disk", 0, 120.0, "ext4 on a disk"),
            row(Op::Tar, "ram", 0, 10.0, "tmpfs"),
        ]);
        let holds: Vec<_> = report.ratios.iter().map(|r| (r.what.as_str(), r.holds)).collect();
        assert_eq!(holds, [("read_4k, preload to api-served", false), ("tar_x, preload to disk", true)]);
        let mut text = Vec::new();
        report.print(&mut text, true).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("| read_4k | us | 2 | - | 9.00 | - | - |"), "{text}");
        assert!(text.contains("skipped: mount: cannot be used here: no"), "{text}");
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([1.234, 12.34, 123.4].map(digits), ["1.23", "12.3", "123"]);
    }
}
