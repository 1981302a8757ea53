//! Plots of the experiments: bars by policy and tenant, and cumulated latencies.

use super::report::PolicyRun;
use super::svg::{COLOURS, Svg};
use weldfs_storagefs::device::latency::Snapshot;

/// A plot.
pub(super) enum Chart {
    /// Groups of bars.
    Bars {
        title: String,
        /// What the bars measure.
        y: String,
        /// Names of the bars of each group.
        series: Vec<String>,
        groups: Vec<Group>,
    },
    /// Lines over a logarithmic axis; y from 0 to 1.
    Lines { title: String, x: String, y: String, lines: Vec<(String, Vec<(f64, f64)>)> },
}

/// Bars beside each other.
pub(super) struct Group {
    /// Below, and smaller below that.
    name: String,
    about: String,
    values: Vec<f64>,
    /// Where each bar should end.
    due: Vec<f64>,
}

/// Each tenant's part of the device time by setup, with Jain's index; a mark where its share is.
pub(super) fn shares(title: &str, rows: &[PolicyRun]) -> Chart {
    let several = rows.iter().any(|r| r.experiment != rows[0].experiment);
    let group = |r: &PolicyRun| {
        let all: f64 = r.run.tenants.iter().map(|t| f64::from(t.weight)).sum();
        let variant = r.experiment.split_once(", ").map_or("", |(_, v)| v);
        Group {
            name: if several { format!("{}, {variant}", r.policy) } else { r.policy.to_string() },
            about: format!("Jain {:.3}", r.run.jain()),
            values: (0..r.run.tenants.len()).map(|at| r.run.share(at) * 100.0).collect(),
            due: r.run.tenants.iter().map(|t| f64::from(t.weight) / all * 100.0).collect(),
        }
    };
    let series = rows.first().map_or(Vec::new(), |r| r.run.tenants.iter().map(|t| t.name.clone()).collect());
    Chart::Bars {
        title: title.to_owned(),
        y: "% of the device time".into(),
        series,
        groups: rows.iter().map(group).collect(),
    }
}

/// The same where tenants of the setups differ in weight only, and so in name.
pub(super) fn by_weight(title: &str, rows: &[PolicyRun]) -> Chart {
    let mut chart = shares(title, rows);
    if let Chart::Bars { series, .. } = &mut chart {
        // "name-weight" -> "name".
        series.iter_mut().for_each(|s| s.truncate(s.rfind('-').unwrap_or(s.len())));
    }
    chart
}

/// What part of the values is at most so much, in microseconds.
pub(super) fn cumulated(latency: &Snapshot) -> Vec<(f64, f64)> {
    let (all, mut seen) = (latency.count().max(1) as f64, 0);
    let points = latency.filled().map(|(ns, n)| {
        seen += n;
        (ns as f64 / 1e3, seen as f64 / all)
    });
    points.collect()
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 52.0;

fn y_of(part: f64) -> f64 {
    HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)
}

impl Chart {
    /// As an SVG document.
    pub fn svg(&self) -> String {
        let mut svg = Svg::new(WIDTH, HEIGHT);
        match self {
            Chart::Bars { title, y, series, groups } => {
                frame(&mut svg, title, y, series);
                bars(&mut svg, series, groups);
            }
            Chart::Lines { title, x, y, lines } => {
                let names: Vec<String> = lines.iter().map(|(name, _)| name.clone()).collect();
                frame(&mut svg, title, y, &names);
                curves(&mut svg, x, lines);
            }
        }
        svg.finish()
    }
}

fn frame(svg: &mut Svg, title: &str, y: &str, legend: &[String]) {
    svg.text((LEFT, 24.0), "start", 16, "#111", title);
    svg.turned((18.0, (TOP + HEIGHT - BOTTOM) / 2.0), 12, "#444", y);
    let mut x = LEFT;
    for (at, name) in legend.iter().enumerate() {
        svg.rect((x, 40.0), (12.0, 12.0), COLOURS[at % COLOURS.len()]);
        svg.text((x + 17.0, 50.5), "start", 12, "#222", name);
        x += 34.0 + 6.9 * name.chars().count() as f64;
    }
}

fn grid(svg: &mut Svg, part: f64, label: &str) {
    let y = y_of(part);
    svg.line((LEFT, y), (WIDTH - RIGHT, y), if part == 0.0 { "#444" } else { "#ddd" }, 1.0);
    svg.text((LEFT - 8.0, y + 4.0), "end", 12, "#444", label);
}

fn bars(svg: &mut Svg, series: &[String], groups: &[Group]) {
    let most = groups.iter().flat_map(|g| g.values.iter().chain(&g.due)).copied().fold(1.0, f64::max);
    let step = if most > 60.0 { 20.0 } else { 10.0 };
    let top = (most * 1.12 / step).ceil() * step;
    (0..=(top / step) as u32).for_each(|i| grid(svg, f64::from(i) * step / top, &format!("{}", f64::from(i) * step)));
    let wide = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let bar = (wide * 0.78 / series.len().max(1) as f64).min(56.0);
    for (at, g) in groups.iter().enumerate() {
        let middle = LEFT + (at as f64 + 0.5) * wide;
        let first = middle - bar * g.values.len() as f64 / 2.0;
        for (i, (value, due)) in g.values.iter().zip(&g.due).enumerate() {
            let (x, y) = (first + i as f64 * bar, y_of(value / top));
            svg.rect((x + 1.0, y), (bar - 2.0, HEIGHT - BOTTOM - y), COLOURS[i % COLOURS.len()]);
            svg.text((x + bar / 2.0, y.min(y_of(due / top)) - 5.0), "middle", 11, "#222", &format!("{value:.1}"));
            svg.line((x, y_of(due / top)), (x + bar, y_of(due / top)), "#111", 2.0);
        }
        svg.text((middle, HEIGHT - BOTTOM + 19.0), "middle", 13, "#111", &g.name);
        svg.text((middle, HEIGHT - BOTTOM + 37.0), "middle", 11, "#555", &g.about);
    }
}

fn curves(svg: &mut Svg, x_name: &str, lines: &[(String, Vec<(f64, f64)>)]) {
    [(0.0, "0"), (0.25, "25 %"), (0.5, "50 %"), (0.75, "75 %"), (0.99, "99 %")]
        .iter()
        .for_each(|(part, label)| grid(svg, *part, label));
    let all = || lines.iter().flat_map(|(_, points)| points.iter().map(|(x, _)| *x));
    let low = all().fold(f64::INFINITY, f64::min).max(1e-3).log10();
    let high = all().fold(0.0, f64::max).max(1e-2).log10();
    let (low, high) = ((low * 2.0).floor() / 2.0, (high * 2.0).ceil() / 2.0);
    let x_of = |v: f64| LEFT + (v.log10() - low) / (high - low).max(0.5) * (WIDTH - LEFT - RIGHT);
    for power in (low.floor() as i32)..=(high.ceil() as i32) {
        for digit in [1.0, 2.0, 5.0] {
            let v = digit * 10f64.powi(power);
            if (low..=high).contains(&v.log10()) {
                svg.line((x_of(v), TOP), (x_of(v), HEIGHT - BOTTOM), "#eee", 1.0);
                svg.text((x_of(v), HEIGHT - BOTTOM + 18.0), "middle", 12, "#444", &format!("{v}"));
            }
        }
    }
    svg.text(((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0), "middle", 12, "#444", x_name);
    for (at, (_, points)) in lines.iter().enumerate() {
        let mut path = Vec::with_capacity(points.len() * 2);
        let mut before = 0.0;
        for (x, part) in points {
            path.push((x_of(*x), y_of(before)));
            path.push((x_of(*x), y_of(*part)));
            before = *part;
        }
        svg.path(&path, COLOURS[at % COLOURS.len()], 2.0);
    }
}
