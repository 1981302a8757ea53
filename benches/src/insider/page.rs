//! The report as one HTML page: plots as SVG inside it, no other resource.

use super::forms::Form;
use super::paper::OTHERS;
use super::report::{AppReport, InsiderReport, bytes};
use super::timeline::WITHIN;
use crate::plot::{Chart, Group};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 Helvetica,Arial,sans-serif;color:#1a1a1a;max-width:860px;margin:2em auto;\
padding:0 1em}h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;width:100%;\
font-size:13px}th,td{padding:.3em .5em;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}\
th:first-child,td:first-child,td.l,th.l{text-align:left}thead th{border-bottom:2px solid #888}svg{max-width:100%;\
height:auto}.wide{overflow-x:auto}.m{background:#eef5fb}.w{background:#fdf3e1}code{background:#f2f2f2;padding:0 .3em}\
tr.first td{border-top:2px solid #bbb}.note{color:#444;font-size:13px}";

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

    /// Cells are texts; the class of a column goes to all of its cells.
    fn table(&mut self, heads: &[(&str, &str)], rows: &[(bool, Vec<String>)]) {
        self.0.push_str("<div class=\"wide\"><table><thead><tr>");
        for (class, head) in heads {
            self.add(format_args!("<th class=\"{class}\">{}</th>", escaped(head)));
        }
        self.0.push_str("</tr></thead><tbody>\n");
        for (first, cells) in rows {
            self.0.push_str(if *first { "<tr class=\"first\">" } else { "<tr>" });
            for ((class, _), cell) in heads.iter().zip(cells) {
                self.add(format_args!("<td class=\"{class}\">{}</td>", escaped(cell)));
            }
            self.0.push_str("</tr>\n");
        }
        self.0.push_str("</tbody></table></div>\n");
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
    for at in 0..report.drives.len() {
        drive(&mut page, report, at);
    }
    link(&mut page, report);
    wall(&mut page, report);
    timeline(&mut page, report);
    lines(&mut page, report);
    resources(&mut page, report);
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
        "<p><span class=\"m\">&nbsp;Modelled&nbsp;</span> times are computed: counted bytes over the bandwidths of the \
         modelled drive, counted cycles over the clock, and the host's own work as measured on one core here, divided \
         by {} cores in every form. Parts overlap as the form lets them. \
         <span class=\"w\">&nbsp;Wall&nbsp;</span> times passed on this machine, where the drive is memory and a \
         kernel is a Rust model on a processor: they say nothing about a drive. The two never share a column.</p>",
        report.host_cores
    ));
    page.paragraph(
        "Applications and drive are those of INSIDER (USENIX ATC 2019); the model is EISC's (ICCAD 2019). The paper's \
         figures 9 and 10 print no numbers; what its tables print stands beside ours.",
    );
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
        "{}: medium {media:.1} GB/s, link {link:.1} GB/s, slots {:.0} MHz",
        d.name,
        d.clock_hz / 1e6
    ));
    page.chart(&Chart::Bars {
        title: format!("Modelled speed-up over the host with POSIX, {}", d.name),
        y: "times as fast".into(),
        series: Form::ALL.iter().map(|f| f.name().to_owned()).collect(),
        groups: groups(report, |app| app.forms.iter().map(|f| f.speedup[at]).collect()),
    });
    let (mut rows, mut factors) = (Vec::new(), Vec::new());
    for app in &report.apps {
        for (n, form) in app.forms.iter().enumerate() {
            let (t, milli) = (&form.modelled[at], |s: f64| format!("{:.3}", s * 1e3));
            let said = match (n, app.paper) {
                (1, Some(p)) => p.bottlenecks[at],
                (3, Some(p)) => p.bottlenecks[2 + at],
                _ => "",
            };
            let name = if n == 0 { app.app.to_owned() } else { String::new() };
            let p = &t.parts;
            let mut cells = vec![name, form.form.name().to_owned(), milli(t.seconds)];
            cells.push(format!("{:.2}", form.speedup[at]));
            cells.extend([p.drive, p.kernel, p.link, p.stack, p.host].map(milli));
            cells.extend([t.bottleneck.clone(), said.to_owned()]);
            rows.push((n == 0, cells));
        }
        let (b, i) = (&app.breakdown[at], &app.intensity[at]);
        let mut cells = vec![app.app.to_owned()];
        cells.extend([b.stack, b.pipelining, b.offloading, b.reduction].map(|f| format!("{f:.2}")));
        cells.extend([format!("{:.1}", i.gamma), format!("{:.2}", i.delta)]);
        cells.extend([i.helps, i.wants_more_drive].map(|yes| if yes { "yes" } else { "no" }.to_owned()));
        factors.push((false, cells));
    }
    let mut heads = vec![("l", "app"), ("l", "form"), ("m", "modelled ms"), ("m", "speed-up"), ("m", "drive ms")];
    heads.extend([("m", "kernel ms"), ("m", "link ms"), ("m", "stack ms"), ("m", "host ms")]);
    heads.extend([("l", "bottleneck"), ("l", "in the paper")]);
    page.table(&heads, &rows);
    page.paragraph(
        "The paper's bottlenecks (its table 5) are of its own kernels and of a host whose work its authors wrote: \
         \"Comp.\" is the host's computation, \"PCIe\" the link.",
    );
    page.chart(&Chart::Bars {
        title: format!("Factors of the speed-up in the drive, modelled, {}", d.name),
        y: "factor".into(),
        series: ["I/O stack", "pipelining", "offloading", "data reduction"].map(str::to_owned).to_vec(),
        groups: groups(report, |app| {
            let b = &app.breakdown[at];
            vec![b.stack, b.pipelining, b.offloading, b.reduction]
        }),
    });
    let mut heads = vec![("l", "app"), ("m", "I/O stack"), ("m", "pipelining"), ("m", "offloading")];
    heads.extend([("m", "data reduction"), ("m", "gamma"), ("m", "delta")]);
    heads.extend([("l", "offloading helps"), ("l", "a faster medium would, too")]);
    page.table(&heads, &factors);
    page.paragraph(
        "Gamma: bytes of the medium per byte over the link. Delta: cycles of the kernel per 64 bytes of the medium. \
         The last two columns are EISC's equations 1 and 2.",
    );
}

fn link(page: &mut Page, report: &InsiderReport) {
    page.heading("Bytes over the link, counted");
    let row = |app: &AppReport| {
        let (host, inside) = (app.forms[0].link_bytes, app.forms[Form::ALL.len() - 1].link_bytes);
        let part = format!("{:.3} %", inside as f64 / host.max(1) as f64 * 100.0);
        (false, vec![app.app.to_owned(), bytes(host), bytes(inside), part, app.data.to_owned()])
    };
    let rows: Vec<_> = report.apps.iter().map(row).collect();
    page.table(&[("l", "app"), ("", "host"), ("", "in drive"), ("", "part"), ("l", "data")], &rows);
}

fn wall(page: &mut Page, report: &InsiderReport) {
    page.heading("Wall time on this machine");
    page.paragraph("One core of the host; moving, host and kernel overlap where the form pipelines.");
    let mut rows = Vec::new();
    for app in &report.apps {
        for (n, form) in app.forms.iter().enumerate() {
            let (w, name) = (&form.wall, if n == 0 { app.app } else { "" });
            let mut cells = vec![name.to_owned(), form.form.name().to_owned()];
            cells.extend([w.total_ms, w.moving_ms, w.host_ms, w.kernel_ms].map(|ms| format!("{ms:.3}")));
            rows.push((n == 0, cells));
        }
    }
    let mut heads = vec![("l", "app"), ("l", "form"), ("w", "wall ms"), ("w", "moving ms")];
    heads.extend([("w", "host's work ms"), ("w", "kernel's model ms")]);
    page.table(&heads, &rows);
}

fn timeline(page: &mut Page, report: &InsiderReport) {
    let t = &report.timeline;
    page.heading("Three kernels at once");
    page.paragraph(&format!(
        "As in the paper's figure 11, in simulated time, through the bandwidth scheduler of the slots: a drive of {} \
         GB/s, and kernels that can take 12, 6.4 and 8 GB/s. The scheduler is not told these speeds; it sees credits.",
        t.drive / 1e9
    ));
    let line = |at: usize| -> Vec<(f64, f64)> { t.points.iter().map(|(s, all)| (*s, all[at] / 1e9)).collect() };
    page.chart(&Chart::Time {
        title: "Bandwidth of three kernels that run at once, simulated".into(),
        x: "seconds".into(),
        y: "GB/s".into(),
        lines: t.loads.iter().enumerate().map(|(at, l)| (l.name.to_owned(), line(at))).collect(),
    });
    let gb = |v: f64| if v > 0.0 { format!("{:.2}", v / 1e9) } else { String::new() };
    let row = |p: &super::timeline::Plateau| {
        let mut cells = vec![format!("{:.1} to {:.1} s", p.from, p.to)];
        cells.extend(p.got.iter().zip(&p.ideal).flat_map(|(got, ideal)| [gb(*got), gb(*ideal)]));
        cells.push(format!("{:.2} %", p.off * 100.0));
        (false, cells)
    };
    let rows: Vec<_> = t.plateaus.iter().map(row).collect();
    let names: Vec<_> = t.loads.iter().flat_map(|l| [l.name.to_owned(), "max-min".to_owned()]).collect();
    let mut heads = vec![("l", "plateau")];
    heads.extend(names.iter().map(|n| ("", n.as_str())));
    heads.push(("", "off by"));
    page.table(&heads, &rows);
    let holds = if t.holds() { "is" } else { "is NOT" };
    page.paragraph(&format!("Every plateau {holds} within {} % of its max-min fair shares.", WITHIN * 100.0));
}

fn lines(page: &mut Page, report: &InsiderReport) {
    page.heading("Lines of code");
    page.paragraph(
        "Without empty lines, comments and tests, counted in the source this program was built from: the application's \
         own functions (loops that read and write are shared), and the kernel in Rust. The paper's (table 3) are C++.",
    );
    let row = |app: &AppReport| {
        let (l, of) = (app.lines, |n: Option<u32>| n.map_or(String::new(), |n| n.to_string()));
        let mut cells = vec![app.app.to_owned(), l.host.to_string(), l.rest.to_string(), l.kernel.to_string()];
        cells.extend([app.paper.map(|p| p.host_lines), app.paper.map(|p| p.drive_lines)].map(of));
        (false, cells)
    };
    let rows: Vec<_> = report.apps.iter().map(row).collect();
    let heads = ["all on the host", "the rest on the host", "kernel", "paper: host", "paper: drive"];
    let heads: Vec<_> = [("l", "app")].into_iter().chain(heads.map(|h| ("", h))).collect();
    page.table(&heads, &rows);
}

fn resources(page: &mut Page, report: &InsiderReport) {
    page.heading("FPGA resources in the paper");
    page.paragraph("The paper's table 6, as printed there; nothing of it was measured here.");
    let row = |name: &str, all: [f64; 4]| {
        let mut cells = vec![name.to_owned()];
        cells.extend(all.map(|n| n.to_string()));
        (false, cells)
    };
    let apps = report.apps.iter().filter_map(|app| app.paper);
    let mut rows: Vec<_> = apps.map(|p| row(p.name, p.resources)).collect();
    rows.extend(OTHERS.iter().map(|(name, all)| row(name, *all)));
    page.table(&[("l", ""), ("", "LUT"), ("", "FF"), ("", "BRAM"), ("", "DSP")], &rows);
}
