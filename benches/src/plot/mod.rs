//! Plots of experiments as SVG: bars beside each other, and curves of what part is at most so much.

mod svg;

use svg::{COLOURS, Svg};

/// A plot.
pub(crate) enum Chart {
    /// Groups of bars.
    Bars {
        /// Above it.
        title: String,
        /// What the bars measure.
        y: String,
        /// Names of the bars of each group.
        series: Vec<String>,
        /// The groups, from left to right.
        groups: Vec<Group>,
    },
    /// Lines over a logarithmic axis; y from 0 to 1.
    Lines {
        /// Above it.
        title: String,
        /// What lies along the axis.
        x: String,
        /// What part it is of.
        y: String,
        /// Names and points.
        lines: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// Lines over time, both axes from 0 on.
    Time {
        /// Above it.
        title: String,
        /// What lies along the axis.
        x: String,
        /// What is drawn.
        y: String,
        /// Names and points.
        lines: Vec<(String, Vec<(f64, f64)>)>,
    },
}

/// Bars beside each other.
pub struct Group {
    /// Below it.
    pub name: String,
    /// Smaller, below that.
    pub about: String,
    /// Its bars; no bar where it is not a number.
    pub values: Vec<f64>,
    /// Where each bar should end; no mark where it is not a number.
    pub due: Vec<f64>,
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
            Chart::Time { title, x, y, lines } => {
                let names: Vec<String> = lines.iter().map(|(name, _)| name.clone()).collect();
                frame(&mut svg, title, y, &names);
                over_time(&mut svg, x, lines);
            }
        }
        svg.finish()
    }
}

fn frame(svg: &mut Svg, title: &str, y: &str, legend: &[String]) {
    svg.text((LEFT, 24.0), "start", 16, "#111", title);
    svg.turned((18.0, (TOP + HEIGHT - BOTTOM) / 2.0), 12, "#444", y);
    let (mut x, mut y) = (LEFT, 40.0);
    for (at, name) in legend.iter().enumerate() {
        let wide = 34.0 + 6.9 * name.chars().count() as f64;
        if x + wide > WIDTH && x > LEFT {
            (x, y) = (LEFT, y + 15.0);
        }
        svg.rect((x, y), (12.0, 12.0), COLOURS[at % COLOURS.len()]);
        svg.text((x + 17.0, y + 10.5), "start", 12, "#222", name);
        x += wide;
    }
}

fn grid(svg: &mut Svg, part: f64, label: &str) {
    let y = y_of(part);
    svg.line((LEFT, y), (WIDTH - RIGHT, y), if part == 0.0 { "#444" } else { "#ddd" }, 1.0);
    svg.text((LEFT - 8.0, y + 4.0), "end", 12, "#444", label);
}

/// Narrower bars have no numbers above them.
const NUMBERED: f64 = 24.0;

/// A round number that goes about five times into what is shown.
fn step_of(most: f64) -> f64 {
    let power = 10f64.powf((most / 5.0).log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|d| d * power * 5.0 >= most * 0.9).unwrap_or(10.0);
    digit * power
}

/// Without digits that only rounding put there.
fn number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

fn bars(svg: &mut Svg, series: &[String], groups: &[Group]) {
    let all = groups.iter().flat_map(|g| g.values.iter().chain(&g.due)).copied();
    let most = all.filter(|v| v.is_finite()).fold(1.0, f64::max);
    let step = step_of(most);
    let top = (most * 1.12 / step).ceil() * step;
    let lines = (top / step).round() as u32;
    (0..=lines).for_each(|i| grid(svg, f64::from(i) / f64::from(lines), &number(f64::from(i) * step)));
    let wide = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let bar = (wide * 0.78 / series.len().max(1) as f64).min(56.0);
    for (at, g) in groups.iter().enumerate() {
        let middle = LEFT + (at as f64 + 0.5) * wide;
        let first = middle - bar * g.values.len() as f64 / 2.0;
        for (i, (value, due)) in g.values.iter().zip(&g.due).enumerate() {
            let (x, y) = (first + i as f64 * bar, y_of(value / top));
            let mark = if due.is_finite() { y_of(due / top) } else { y };
            if value.is_finite() {
                svg.rect((x + bar * 0.04, y), (bar * 0.92, HEIGHT - BOTTOM - y), COLOURS[i % COLOURS.len()]);
                if bar >= NUMBERED {
                    svg.text((x + bar / 2.0, y.min(mark) - 5.0), "middle", 11, "#222", &format!("{value:.1}"));
                }
            }
            if due.is_finite() {
                svg.line((x, mark), (x + bar, mark), "#111", 2.0);
            }
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

fn over_time(svg: &mut Svg, x_name: &str, lines: &[(String, Vec<(f64, f64)>)]) {
    let most = |of: fn(&(f64, f64)) -> f64| lines.iter().flat_map(|(_, p)| p.iter().map(of)).fold(1e-9, f64::max);
    let (wide, high) = (most(|p| p.0), most(|p| p.1));
    let step = step_of(high);
    let top = (high * 1.05 / step).ceil() * step;
    let rows = (top / step).round() as u32;
    (0..=rows).for_each(|i| grid(svg, f64::from(i) / f64::from(rows), &number(f64::from(i) * step)));
    let x_of = |v: f64| LEFT + v / wide * (WIDTH - LEFT - RIGHT);
    let step = step_of(wide);
    for i in 0..=(wide / step) as u32 {
        let v = f64::from(i) * step;
        svg.line((x_of(v), TOP), (x_of(v), HEIGHT - BOTTOM), "#eee", 1.0);
        svg.text((x_of(v), HEIGHT - BOTTOM + 18.0), "middle", 12, "#444", &number(v));
    }
    svg.text(((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0), "middle", 12, "#444", x_name);
    for (at, (_, points)) in lines.iter().enumerate() {
        let path: Vec<_> = points.iter().map(|(x, y)| (x_of(*x), y_of(y / top))).collect();
        // Each narrower than the one below it: where values are the same, all of the lines are seen.
        svg.path(&path, COLOURS[at % COLOURS.len()], 2.0 + 1.5 * (lines.len() - 1 - at) as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        assert_eq!([100.0, 50.0, 7.3, 1.0, 0.4].map(step_of), [20.0, 10.0, 2.0, 0.2, 0.1]);
        assert_eq!(number(0.1 + 0.2), "0.3");
    }

    #[test]
    fn a_line_over_another_one_leaves_it_visible() {
        let line = |name: &str| (name.to_owned(), vec![(0.0, 1.0), (1.0, 1.0)]);
        let lines = vec![line("a"), line("b"), line("c")];
        let svg = Chart::Time { title: "t".into(), x: "x".into(), y: "y".into(), lines }.svg();
        let widths: Vec<&str> = svg.lines().filter(|l| l.starts_with("<polyline")).collect();
        assert!(
            widths.iter().zip(["5", "3.5", "2"]).all(|(l, w)| l.contains(&format!("stroke-width=\"{w}\""))),
            "{svg}"
        );
    }

    #[test]
    fn what_is_missing_has_no_bar_and_no_mark() {
        let group = |values: [f64; 2]| Group {
            name: "4K".into(),
            about: String::new(),
            values: values.into(),
            due: vec![1.5, f64::NAN],
        };
        let series = vec!["a".into(), "b".into()];
        let of = |values| {
            Chart::Bars { title: "t".into(), y: "y".into(), series: series.clone(), groups: vec![group(values)] }.svg()
        };
        let count = |svg: &str| svg.matches("<rect").count();
        assert_eq!(count(&of([1.0, 2.0])), count(&of([1.0, f64::NAN])) + 1);
        assert!(!of([1.0, f64::NAN]).contains("NaN"));
    }
}
