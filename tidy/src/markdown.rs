//! Lines of Markdown are as short as lines of code, where they can be wrapped: not in tables, blocks of code and what
//! holds no space.

use crate::rules::Rules;
use crate::tree::Text;

/// A line of prose: outside of blocks of code.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// Counted from 1.
    pub number: usize,
    /// Without its end.
    pub text: &'a str,
}

/// The lines outside of fenced blocks.
#[must_use]
pub(crate) fn prose(text: &str) -> Vec<Line<'_>> {
    let (mut lines, mut fence) = (Vec::new(), None);
    for (i, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|m| start.starts_with(m));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (None, None) => lines.push(Line { number: i + 1, text: line }),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
    }
    lines
}

/// Whether a line that is too long could be wrapped before character `max`.
fn wraps(line: &str, max: usize) -> bool {
    let start = line.trim_start();
    if start.starts_with('|') || (start.starts_with('[') && start.contains("]: ")) {
        return false;
    }
    let marker = start.find(|c: char| !"*-+>#.0123456789 ".contains(c)).unwrap_or(0);
    let words = line.chars().count() - start.chars().count() + start[..marker].chars().count();
    line.char_indices().enumerate().any(|(n, (_, c))| n > words && n <= max && c == ' ')
}

/// Lines of Markdown that are too long and could be wrapped.
#[must_use]
pub fn complaints(rules: &Rules, documents: &[Text]) -> Vec<String> {
    let mut bad = Vec::new();
    for Text { name, text } in documents {
        for line in prose(text) {
            let chars = line.text.chars().count();
            if chars > rules.line_chars_max && wraps(line.text, rules.line_chars_max) {
                bad.push(format!("{name}:{}: {chars} characters, at most {}", line.number, rules.line_chars_max));
            }
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let rules = Rules { line_chars_max: 10, ..crate::rules::read() };
        complaints(&rules, &[Text { name: "a.md".into(), text: text.into() }]).len()
    }

    #[test]
    fn only_what_can_be_wrapped_must_be() {
        assert_eq!(found("one two six"), 1);
        assert_eq!(found("one two te"), 0);
        assert_eq!(found("* one two six"), 1);
        assert_eq!(found("# one two six"), 1);
        assert_eq!(found("| a | table of cells |"), 0);
        assert_eq!(found("https://example.org/long"), 0);
        assert_eq!(found("  * https://example.org/long"), 0);
        assert_eq!(found("see https://example.org/long"), 1);
        assert_eq!(found("[a]: https://example.org/long"), 0);
        assert_eq!(found("```sh\none two three four\n```\nfour five six"), 1);
    }
}
