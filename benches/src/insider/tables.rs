//! The tables of the report: one content for the terminal, for documents and for the page.

use super::chip::{self, Parts};
use super::forms::Form;
use super::paper::{Facts, OTHERS, SPEEDUPS};
use super::report::{AppReport, BuiltReport, InsiderReport, bytes};
use super::timeline::Plateau;
use crate::table::Table as Plain;

/// Which time a column has, if any: the two never share one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A name, a text.
    Text,
    /// A number that is neither.
    Count,
    /// Computed.
    Modelled,
    /// What passed on this machine.
    Wall,
}
use Kind::{Count, Modelled, Text, Wall};

/// A table.
pub(super) struct Table {
    /// What it shows.
    pub title: String,
    /// What must be known to read it.
    pub note: String,
    /// Its columns.
    pub columns: Vec<(Kind, String)>,
    /// Its rows; one whose first cell is empty belongs to the one above.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn new(title: impl Into<String>, note: impl Into<String>, columns: &[(Kind, &str)]) -> Table {
        let columns = columns.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect();
        Table { title: title.into(), note: note.into(), columns, rows: Vec::new() }
    }

    /// In columns, or as Markdown.
    pub(super) fn render(&self, markdown: bool) -> String {
        let mut plain = Plain::new(self.columns.iter().map(|(_, name)| name.clone()));
        self.rows.iter().for_each(|row| plain.line(row.clone()));
        plain.render(markdown)
    }
}

/// All of them, as documents and the terminal have them.
pub(super) fn all(report: &InsiderReport) -> Vec<Table> {
    let mut all = vec![speedups(report)];
    for at in 0..report.drives.len() {
        all.extend([parts(report, at), factors(report, at)]);
    }
    all.extend([link(report), built(report), wall(report), timeline(report), lines(report), resources(report)]);
    all
}

fn milli(seconds: f64) -> String {
    format!("{:.3}", seconds * 1e3)
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.3} %", part as f64 / whole.max(1) as f64 * 100.0)
}

fn named(app: &AppReport, first: bool) -> String {
    if first { app.app.to_owned() } else { String::new() }
}

/// Speed-ups on both drives.
pub(super) fn speedups(report: &InsiderReport) -> Table {
    let names: Vec<String> = report
        .drives
        .iter()
        .flat_map(|d| Form::ALL[1..].iter().map(|form| format!("{}: {}", d.name, form.name())))
        .collect();
    let mut columns = vec![(Text, "app")];
    columns.extend(names.iter().map(|name| (Modelled, name.as_str())));
    let least = |at: usize, of: fn(f64, f64) -> f64| {
        let inside = report.apps.iter().map(|app| app.forms[Form::ALL.len() - 1].speedup[at]);
        inside.reduce(of).unwrap_or_default()
    };
    let ranges: Vec<String> = report
        .drives
        .iter()
        .enumerate()
        .map(|(at, d)| format!("{:.1} to {:.1} on {}", least(at, f64::min), least(at, f64::max), d.name))
        .collect();
    let (low, high) = SPEEDUPS;
    let note = format!(
        "Times as fast as the host with POSIX on the same drive. In the drive: {}; the paper says {low} to {high} \
         (section 1), against a host of its own.",
        ranges.join(", ")
    );
    let mut table = Table::new("Modelled speed-up over the host with POSIX", note, &columns);
    for app in &report.apps {
        let mut row = vec![app.app.to_owned()];
        for at in 0..report.drives.len() {
            row.extend(app.forms[1..].iter().map(|f| format!("{:.2}", f.speedup[at])));
        }
        table.rows.push(row);
    }
    table
}

/// Modelled times and what they are made of, on one drive.
pub(super) fn parts(report: &InsiderReport, at: usize) -> Table {
    let mut columns = vec![(Text, "app"), (Text, "form"), (Modelled, "modelled ms"), (Modelled, "speed-up")];
    columns.extend(["drive ms", "kernel ms", "link ms", "stack ms", "host ms"].map(|name| (Modelled, name)));
    columns.extend([(Text, "bottleneck"), (Text, "in the paper")]);
    let note = "The paper's bottlenecks (its table 5) are of its own kernels and of a host whose work its authors \
                wrote: \"Comp.\" is the host's computation, \"PCIe\" the link.";
    let mut table = Table::new(format!("Modelled times on {}", report.drives[at].name), note, &columns);
    for app in &report.apps {
        for (n, form) in app.forms.iter().enumerate() {
            let said = match (form.form, app.paper) {
                (Form::Bypass, Some(p)) => p.bottlenecks[at],
                (Form::InDrive, Some(p)) => p.bottlenecks[2 + at],
                _ => "",
            };
            let (t, p) = (&form.modelled[at], &form.modelled[at].parts);
            let mut row = vec![named(app, n == 0), form.form.name().to_owned(), milli(t.seconds)];
            row.push(format!("{:.2}", form.speedup[at]));
            row.extend([p.drive, p.kernel, p.link, p.stack, p.host].map(milli));
            row.extend([t.bottleneck.clone(), said.to_owned()]);
            table.rows.push(row);
        }
    }
    table
}

/// What makes the speed-up, on one drive, and EISC's numbers.
pub(super) fn factors(report: &InsiderReport, at: usize) -> Table {
    let mut columns = vec![(Text, "app")];
    columns.extend(["I/O stack", "pipelining", "offloading", "data reduction"].map(|name| (Modelled, name)));
    columns.extend([(Count, "gamma"), (Count, "delta"), (Text, "offloading helps"), (Text, "a faster medium helps")]);
    let note = "Gamma: bytes of the medium per byte over the link. Delta: cycles of the kernel per 64 bytes of the \
                medium. The last two columns are EISC's equations 1 and 2.";
    let title = format!("Factors of the speed-up in the drive, modelled, {}", report.drives[at].name);
    let mut table = Table::new(title, note, &columns);
    for app in &report.apps {
        let (b, i) = (&app.breakdown[at], &app.intensity[at]);
        let mut row = vec![app.app.to_owned()];
        row.extend([b.stack, b.pipelining, b.offloading, b.reduction].map(|f| format!("{f:.2}")));
        row.extend([format!("{:.1}", i.gamma), format!("{:.2}", i.delta)]);
        row.extend([i.helps, i.wants_more_drive].map(|yes| if yes { "yes" } else { "no" }.to_owned()));
        table.rows.push(row);
    }
    table
}

/// Bytes over the link.
pub(super) fn link(report: &InsiderReport) -> Table {
    let columns = [
        (Text, "app"),
        (Count, "medium"),
        (Count, "host, bypass"),
        (Count, "in the drive"),
        (Count, "of the bypass's"),
        (Count, "commands, bypass"),
        (Count, "commands, in the drive"),
        (Text, "answer of every form"),
    ];
    let note = "Counted by the device, both ways: entries, completions, names, parameters, payload. Medium: what the \
                kernel took (bitmap: made).";
    let mut table = Table::new("Bytes over the link", note, &columns);
    for app in &report.apps {
        let of = |form: Form| &app.forms[Form::ALL.iter().position(|f| *f == form).unwrap_or(0)];
        let (host, inside) = (of(Form::Bypass), of(Form::InDrive));
        let (a, b) = (host.link_bytes, inside.link_bytes);
        let mut row = vec![app.app.to_owned(), bytes(inside.drive_bytes), bytes(a), bytes(b), percent(b, a)];
        row.extend([host.counted.commands, inside.counted.commands].map(|n| n.to_string()));
        row.push(app.answer.clone());
        table.rows.push(row);
    }
    table
}

/// Kernels that are RTL or HLS, in the slot.
pub(super) fn built(report: &InsiderReport) -> Table {
    let mut columns = vec![(Text, "app"), (Text, "back-end"), (Count, "medium"), (Count, "cycles")];
    columns.push((Count, "cycles per 64 B"));
    let names: Vec<_> =
        report.drives.iter().map(|d| (format!("GB/s, {}", d.name), format!("{} speed-up", d.name))).collect();
    columns.extend(names.iter().flat_map(|(rate, speedup)| [(Modelled, rate.as_str()), (Modelled, speedup.as_str())]));
    columns.extend([(Text, "bottleneck"), (Count, "link, of the bypass's"), (Wall, "wall ms"), (Wall, "Mcycle/s")]);
    let mut note =
        "The same virtual file with the kernel as Verilated RTL, whose cycles are counted one by one, or as \
                    HLS C++, which counts none: there the manifest's cycles per flit count. Over less data; the rate \
                    is that of the whole form. Answers are the host's."
            .to_owned();
    for skipped in &report.skipped {
        note += &format!(" Skipped: {} as {}: {}.", skipped.app, skipped.backend.to_uppercase(), skipped.why);
    }
    let mut table = Table::new("In the drive, the kernel as RTL or HLS C++", note, &columns);
    let of = |app: &AppReport, b: &BuiltReport| {
        let flits = b.run.drive_bytes as f64 / 64.0;
        let mut row = vec![app.app.to_owned(), b.backend.to_uppercase(), bytes(b.run.drive_bytes)];
        row.extend([b.run.cycles.to_string(), format!("{:.3}", b.run.cycles as f64 / flits)]);
        for at in 0..report.drives.len() {
            let rate = b.run.drive_bytes as f64 / b.run.modelled[at].seconds / 1e9;
            row.extend([format!("{rate:.2}"), format!("{:.2}", b.run.speedup[at])]);
        }
        let bottlenecks: Vec<_> = b.run.modelled.iter().map(|m| m.bottleneck.as_str()).collect();
        row.extend([bottlenecks.join(" / "), percent(b.run.link_bytes, b.host_link_bytes)]);
        row.push(format!("{:.1}", b.run.wall.total_ms));
        row.push(format!("{:.2}", b.run.cycles as f64 / b.run.wall.moving_ms.max(1e-9) / 1e3));
        row
    };
    table.rows = report.apps.iter().filter_map(|app| app.built.as_ref().map(|b| of(app, b))).collect();
    table
}

/// Times that passed here.
pub(super) fn wall(report: &InsiderReport) -> Table {
    let columns = [(Text, "app"), (Text, "form"), (Wall, "wall ms"), (Wall, "moving ms"), (Wall, "host's work ms")];
    let note = "On this machine, where the drive is memory and a kernel a Rust model on a processor. Moving: inside \
                calls that move data, which in the drive is also the kernel's time.";
    let mut table = Table::new("Wall time on this machine", note, &columns);
    for app in &report.apps {
        for (n, form) in app.forms.iter().enumerate() {
            let w = &form.wall;
            let mut row = vec![named(app, n == 0), form.form.name().to_owned()];
            row.extend([w.total_ms, w.moving_ms, w.host_ms].map(|ms| format!("{ms:.1}")));
            table.rows.push(row);
        }
    }
    table
}

/// Three kernels at once.
pub(super) fn timeline(report: &InsiderReport) -> Table {
    let t = &report.timeline;
    let columns = [
        (Text, "plateau"),
        (Text, "kernels"),
        (Modelled, "got, GB/s"),
        (Modelled, "max-min, GB/s"),
        (Modelled, "off by"),
    ];
    let names: Vec<_> = t.loads.iter().map(|l| format!("{} {:.1}", l.name, l.rate / 1e9)).collect();
    let note = format!(
        "As in the paper's figure 11, in simulated time, through the bandwidth scheduler of the slots: a drive of {} \
         GB/s, and kernels that can take so many GB/s: {}. The scheduler is not told these speeds; it sees credits.",
        t.drive / 1e9,
        names.join(", ")
    );
    let mut table = Table::new("Three kernels at once", note, &columns);
    let row = |p: &Plateau| {
        let running = || p.ideal.iter().enumerate().filter(|(_, ideal)| **ideal > 0.0).map(|(lane, _)| lane);
        let all = |of: &dyn Fn(usize) -> String| running().map(of).collect::<Vec<_>>();
        vec![
            format!("{:.1} to {:.1} s", p.from, p.to),
            all(&|lane| t.loads[lane].name.to_owned()).join(", "),
            all(&|lane| format!("{:.2}", p.got[lane] / 1e9)).join(" / "),
            all(&|lane| format!("{:.2}", p.ideal[lane] / 1e9)).join(" / "),
            format!("{:.2} %", p.off * 100.0),
        ]
    };
    table.rows = t.plateaus.iter().map(row).collect();
    table
}

/// Lines of code.
pub(super) fn lines(report: &InsiderReport) -> Table {
    let columns = [
        (Text, "app"),
        (Count, "all on the host"),
        (Count, "rest on the host"),
        (Count, "kernel, Rust"),
        (Count, "kernel, RTL"),
        (Count, "kernel, HLS"),
        (Count, "paper: host"),
        (Count, "paper: drive"),
    ];
    let note = "Without empty lines, comments and tests, counted in the source that this program was built from: the \
                application's own functions (loops that read and write are shared), and the kernel's own file (FIFOs, \
                ports and packing are shared). The paper's (table 3) are C++.";
    let mut table = Table::new("Lines of code", note, &columns);
    for app in &report.apps {
        let l = app.lines;
        let of = |kind: &str| if app.built_kind == kind { l.built.to_string() } else { "-".to_owned() };
        let mut row = vec![app.app.to_owned(), l.host.to_string(), l.rest.to_string(), l.kernel.to_string()];
        row.extend(["rtl", "hls"].map(of));
        let said = |of: fn(&Facts) -> u32| app.paper.map_or(String::new(), |p| of(p).to_string());
        row.extend([said(|p| p.host_lines), said(|p| p.drive_lines)]);
        table.rows.push(row);
    }
    table
}

/// What kernels take of a chip.
pub(super) fn resources(report: &InsiderReport) -> Table {
    let columns = [
        (Text, "kernel"),
        (Count, "xcup LUT"),
        (Count, "xcup FF"),
        (Count, "xc7 LUT"),
        (Count, "xc7 FF"),
        (Count, "paper: LUT"),
        (Count, "paper: FF"),
        (Count, "paper: BRAM"),
        (Count, "paper: DSP"),
    ];
    let note = "Ours: the limits of fpga/rtl/budget.toml, a tenth above what Yosys counted after synth_xilinx when \
                they were written; they have no BRAM and no DSP. No place and route has been done, no timing is \
                proven, and nothing here turns HLS C++ into RTL. The paper's: its table 6, of C++ that \
                went through Vivado for \
                the XCVU9P (xcup).";
    let mut table = Table::new("FPGA resources", note, &columns);
    let ours = |parts: Option<Parts>| parts.map_or(["-".into(), "-".into()], |p| [p.lut, p.ff].map(|n| n.to_string()));
    let theirs = |all: [f64; 4]| all.map(|n| n.to_string());
    for app in &report.apps {
        let mut row = vec![app.app.to_owned()];
        let budget = chip::of(app.kernel);
        row.extend(ours(budget.as_ref().and_then(|b| b.xcup)));
        row.extend(ours(budget.as_ref().and_then(|b| b.xc7)));
        row.extend(app.paper.map_or(Default::default(), |p| theirs(p.resources)));
        table.rows.push(row);
    }
    for (name, all) in OTHERS {
        let mut row = vec![name.to_owned()];
        row.extend(["-"; 4].map(str::to_owned));
        row.extend(theirs(all));
        table.rows.push(row);
    }
    table
}
