//! The report as one HTML page: plots as SVG inside it, no other resource; light or dark as the reader's machine is.

use super::forms::Form;
use super::report::{AppReport, InsiderReport, bytes};
use super::tables::{self, Kind, Table};
use super::timeline::WITHIN;
use crate::plot::{Chart, Group};
use std::fmt::Write;

/// The plots have the colours of a light page; on a dark one those that are not data are replaced.
const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1a1a1a;--soft:#555;--rule:#ddd;--head:#888;--code:#f2f2f2;\
--modelled:#eaf3fb;--wall:#fdf3e1}\
body{font:15px/1.5 Helvetica,Arial,sans-serif;background:var(--paper);color:var(--ink);max-width:980px;\
margin:2em auto;padding:0 1em}\
h1{font-size:1.6em;line-height:1.25}h2{font-size:1.2em;margin-top:2.2em;line-height:1.3}\
table{border-collapse:collapse;font-size:13px;margin:.5em 0}\
th,td{padding:.3em .5em;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}\
th{vertical-align:bottom;white-space:normal;min-width:3.2em;line-height:1.25}\
th.l,td.l{text-align:left}thead th{border-bottom:2px solid var(--head)}tr.first td{border-top:2px solid var(--rule)}\
.wide{overflow-x:auto}svg{display:block;min-width:640px;width:100%;height:auto}\
.m{background:var(--modelled)}.w{background:var(--wall)}.key{padding:.1em .4em}\
.narrow{display:none}@media (max-width:700px){.narrow{display:block}}\
code{background:var(--code);padding:0 .3em;overflow-wrap:anywhere}.note{color:var(--soft);font-size:13px}\
@media (prefers-color-scheme:dark){\
:root{--paper:#15181c;--ink:#e4e6e8;--soft:#a9aeb4;--rule:#363b41;--head:#7a8087;--code:#262b31;\
--modelled:#1b2b3a;--wall:#372c18}\
svg rect[fill=\"#fff\"]{fill:#15181c}svg text{fill:#d5d8db}svg line[stroke=\"#ddd\"],svg line[stroke=\"#eee\"]\
{stroke:#363b41}svg line[stroke=\"#444\"]{stroke:#a9aeb4}svg [fill=\"#0072b2\"]{fill:#3d9be0}\
svg [stroke=\"#0072b2\"]{stroke:#3d9be0}}";

struct Page(String);

impl Page {
    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(text);
        self.0.push('\n');
    }

    fn heading(&mut self, text: &str) {
        self.add(format_args!("<h2>{}</h2>", escaped(text)));
    }

    fn paragraph(&mut self, text: &str) {
        self.add(format_args!("<p>{}</p>", escaped(text)));
    }

    fn chart(&mut self, chart: &Chart) {
        self.add(format_args!("<div class=\"wide\">{}</div>", chart.svg()));
    }

    fn table(&mut self, table: &Table) {
        self.0.push_str("<div class=\"wide\"><table><thead><tr>");
        for (kind, name) in &table.columns {
            self.add(format_args!("<th class=\"{}\">{}</th>", class(*kind), escaped(name)));
        }
        self.0.push_str("</tr></thead><tbody>\n");
        let grouped = table.rows.iter().any(|row| row.first().is_some_and(String::is_empty));
        for row in &table.rows {
            let first = grouped && row.first().is_some_and(|cell| !cell.is_empty());
            self.0.push_str(if first { "<tr class=\"first\">" } else { "<tr>" });
            for ((kind, _), cell) in table.columns.iter().zip(row) {
                self.add(format_args!("<td class=\"{}\">{}</td>", class(*kind), escaped(cell)));
            }
            self.0.push_str("</tr>\n");
        }
        self.0.push_str("</tbody></table></div>\n");
        self.add(format_args!("<p class=\"note\">{}</p>", escaped(&table.note)));
    }

    /// A table under a heading of its own.
    fn section(&mut self, table: &Table) {
        self.heading(&table.title);
        self.table(table);
    }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "l",
        Kind::Count => "c",
        Kind::Modelled => "m",
        Kind::Wall => "w",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The page.
pub(super) fn html(report: &InsiderReport) -> String {
    let mut page = Page(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>weldfs bench insider</title><style>{STYLE}</style></head><body>\n"
    ));
    head(&mut page, report);
    page.section(&tables::speedups(report));
    for at in 0..report.drives.len() {
        drive(&mut page, report, at);
    }
    page.section(&tables::link(report));
    link_chart(&mut page, report);
    page.section(&tables::built(report));
    page.section(&tables::wall(report));
    timeline(&mut page, report);
    page.section(&tables::lines(report));
    page.section(&tables::resources(report));
    page.0.push_str("</body></html>\n");
    page.0
}

fn head(page: &mut Page, report: &InsiderReport) {
    let m = &report.machine;
    page.add(format_args!("<h1>Seven applications, on the host and in the drive</h1>"));
    page.add(format_args!("<p><code>{}</code></p>", escaped(&report.command)));
    page.paragraph(&format!(
        "{} ({} cores), kernel {}, {} build. Scale {}: {} of data an application, medians of {} rounds. All forms \
         of an application gave the same answer.",
        m.cpu,
        m.cores,
        m.kernel,
        m.build,
        report.scale,
        bytes(report.bytes),
        report.rounds
    ));
    page.add(format_args!(
        "<p><span class=\"m key\">Modelled</span> times are computed: bytes that the device counted over the \
         bandwidths of the modelled drive, cycles that its slots counted over their clock, and the host's own work as \
         measured on one core here, divided by {} cores in every form. Parts overlap as the form lets them. \
         <span class=\"w key\">Wall</span> times passed on this machine, where the drive is memory and a kernel is a \
         program on a processor: they say nothing about a drive. The two never share a column.</p>",
        report.host_cores
    ));
    page.paragraph(
        "In the drive: a virtual file of a device is read (bitmap: written) to its end, with the kernel in a slot. \
         Applications and drive are those of INSIDER (USENIX ATC 2019); the model is EISC's (ICCAD 2019). The paper's \
         figures 9 and 10 print no numbers; what its text and tables print stands beside ours.",
    );
    page.add(format_args!("<p class=\"note narrow\">Plots and wide tables can be moved sideways.</p>"));
}

fn groups(report: &InsiderReport, values: impl Fn(&AppReport) -> Vec<f64>) -> Vec<Group> {
    let group = |app: &AppReport| {
        let values = values(app);
        Group { name: app.app.to_owned(), about: String::new(), due: vec![f64::NAN; values.len()], values }
    };
    report.apps.iter().map(group).collect()
}

fn drive(page: &mut Page, report: &InsiderReport, at: usize) {
    let d = &report.drives[at];
    let (media, link) = (d.media_bytes_per_s / 1e9, d.link_bytes_per_s / 1e9);
    page.heading(&format!(
        "{}: medium {media:.1} GB/s, link {link:.1} GB/s each way, slots {:.0} MHz",
        d.name,
        d.clock_hz / 1e6
    ));
    page.chart(&Chart::Bars {
        title: format!("Modelled speed-up over the host with POSIX, {}", d.name),
        y: "times as fast as POSIX".into(),
        series: Form::ALL.iter().map(|f| f.name().to_owned()).collect(),
        groups: groups(report, |app| app.forms.iter().map(|f| f.speedup[at]).collect()),
    });
    page.table(&tables::parts(report, at));
    page.chart(&Chart::Bars {
        title: format!("Factors of the speed-up in the drive, modelled, {}", d.name),
        y: "factor (they multiply)".into(),
        series: ["I/O stack", "pipelining", "offloading", "data reduction"].map(str::to_owned).to_vec(),
        groups: groups(report, |app| {
            let b = &app.breakdown[at];
            vec![b.stack, b.pipelining, b.offloading, b.reduction]
        }),
    });
    page.table(&tables::factors(report, at));
}

fn link_chart(page: &mut Page, report: &InsiderReport) {
    let part = |app: &AppReport| {
        let (host, inside) = (app.forms[1].link_bytes, app.forms[Form::ALL.len() - 1].link_bytes);
        vec![inside as f64 / host.max(1) as f64 * 100.0]
    };
    page.chart(&Chart::Bars {
        title: "Bytes over the link: those of the form in the drive, of the bypass's".into(),
        y: "% of the bypass's".into(),
        series: vec!["in drive".into()],
        groups: groups(report, part),
    });
}

fn timeline(page: &mut Page, report: &InsiderReport) {
    let (t, table) = (&report.timeline, tables::timeline(report));
    page.heading(&table.title);
    let line = |at: usize| -> Vec<(f64, f64)> { t.points.iter().map(|(s, all)| (*s, all[at] / 1e9)).collect() };
    page.chart(&Chart::Time {
        title: "Bandwidth of three kernels that run at once, simulated".into(),
        x: "time, s".into(),
        y: "GB/s".into(),
        lines: t.loads.iter().enumerate().map(|(at, l)| (l.name.to_owned(), line(at))).collect(),
    });
    page.table(&table);
    let holds = if t.holds() { "is" } else { "is NOT" };
    page.paragraph(&format!("Every plateau {holds} within {} % of its max-min fair shares.", WITHIN * 100.0));
}
