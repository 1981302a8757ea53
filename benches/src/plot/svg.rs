//! A small writer of SVG.

use std::fmt::Write;

/// Colours that stay apart for colour-blind eyes (Okabe and Ito, 2008).
pub(super) const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7f7f"];

/// A document being written; coordinates in pixels from the upper left corner.
pub(super) struct Svg(String);

type Point = (f64, f64);

impl Svg {
    /// Empty and white.
    pub fn new(width: f64, height: f64) -> Svg {
        let mut svg = Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"Helvetica, Arial, sans-serif\">\n"
        ));
        svg.rect((0.0, 0.0), (width, height), "#fff");
        svg
    }

    fn add(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(line);
        self.0.push('\n');
    }

    pub fn rect(&mut self, at: Point, size: Point, fill: &str) {
        let ((x, y), (w, h)) = (at, size);
        self.add(format_args!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{fill}\"/>"));
    }

    pub fn line(&mut self, from: Point, to: Point, colour: &str, width: f64) {
        let ((a, b), (c, d)) = (from, to);
        self.add(format_args!(
            "<line x1=\"{a:.1}\" y1=\"{b:.1}\" x2=\"{c:.1}\" y2=\"{d:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"/>"
        ));
    }

    pub fn path(&mut self, points: &[Point], colour: &str, width: f64) {
        let points: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
        let points = points.trim_end();
        self.add(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"{width}\" stroke-linejoin=\"round\"/>"
        ));
    }

    /// `anchor`: start, middle or end.
    pub fn text(&mut self, at: Point, anchor: &str, size: u32, colour: &str, text: &str) {
        let ((x, y), text) = (at, escaped(text));
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
             fill=\"{colour}\">{text}</text>"
        ));
    }

    /// Text that is read from below.
    pub fn turned(&mut self, at: Point, size: u32, colour: &str, text: &str) {
        let ((x, y), text) = (at, escaped(text));
        self.add(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\" font-size=\"{size}\" \
             fill=\"{colour}\">{text}</text>"
        ));
    }

    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_markup_would_be_stays_text() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((1.0, 2.0), "start", 12, "#000", "a < b & c");
        let svg = svg.finish();
        assert!(svg.contains(">a &lt; b &amp; c</text>") && svg.ends_with("</svg>\n"));
    }
}
