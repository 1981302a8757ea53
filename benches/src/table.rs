//! Tables for people and for documents: one content, two ways to write it down.

use std::fmt::Write;

/// A table: its head and its lines. Cells that hold a number or a ratio are set to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    lines: Vec<Vec<String>>,
}

fn is_number(cell: &str) -> bool {
    cell.chars().all(|c| c.is_ascii_digit() || ".-x% ".contains(c))
}

impl Table {
    /// With these columns.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Table {
        Table { head: head.into_iter().map(Into::into).collect(), lines: Vec::new() }
    }

    /// Adds a line; missing cells stay empty.
    pub fn line<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut line: Vec<String> = cells.into_iter().map(Into::into).collect();
        line.resize(self.head.len(), String::new());
        self.lines.push(line);
    }

    /// Whether it has no line.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn right(&self, column: usize) -> bool {
        self.lines.iter().all(|l| is_number(&l[column]))
    }

    /// In columns, or as Markdown.
    pub(crate) fn render(&self, markdown: bool) -> String {
        if markdown { self.markdown() } else { self.plain() }
    }

    fn markdown(&self) -> String {
        let mut text = String::new();
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        text.push_str(&row(&self.head));
        let rules: Vec<_> = (0..self.head.len()).map(|c| if self.right(c) { "---:" } else { "---" }.into()).collect();
        text.push_str(&row(&rules));
        self.lines.iter().for_each(|l| text.push_str(&row(l)));
        text
    }

    fn plain(&self) -> String {
        let width = |c: usize| {
            let cells = self.lines.iter().map(|l| &l[c]).chain([&self.head[c]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let right: Vec<bool> = (0..self.head.len()).map(|c| self.right(c)).collect();
        let mut text = String::new();
        for line in [&self.head].into_iter().chain(&self.lines) {
            let mut out = String::new();
            for (c, cell) in line.iter().enumerate() {
                let width = widths[c];
                // Writing to a string does not fail.
                let _ = if right[c] { write!(out, "{cell:>width$}  ") } else { write!(out, "{cell:<width$}  ") };
            }
            text.push_str(out.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A ratio with two digits behind the point; `-` for none.
pub fn ratio(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}x") } else { "-".into() }
}

/// A number without fraction; `-` for none.
pub fn whole(value: f64) -> String {
    if value.is_finite() { format!("{value:.0}") } else { "-".into() }
}

/// A count per operation: whole where it is, else with three digits; `-` for none.
pub fn per_op(value: f64) -> String {
    match value {
        v if !v.is_finite() => "-".into(),
        v if (v - v.round()).abs() < 5e-4 => format!("{v:.0}"),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_hold_the_same_cells() {
        let mut table = Table::new(["op", "ns"]);
        table.line(["append", "3100"]);
        table.line(["read"]);
        assert_eq!(table.render(true), "| op | ns |\n| --- | ---: |\n| append | 3100 |\n| read |  |\n");
        assert_eq!(table.render(false), "op        ns\nappend  3100\nread\n");
        assert_eq!(
            (ratio(f64::NAN), ratio(2.345), per_op(1.0), per_op(0.25)),
            ("-".into(), "2.35x".into(), "1".into(), "0.250".into())
        );
    }
}
