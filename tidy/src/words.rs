//! Documents and comments use the field's words: `tidy.toml` lists words of our own with what to say instead.

use crate::markdown::prose;
use crate::rules::{Rules, Word};
use crate::tree::Text;

/// The comment of a source line, if it has one.
fn comment(line: &str) -> Option<&str> {
    let start = line.trim_start();
    if start.starts_with("//") {
        return Some(start);
    }
    // A comment behind code; an odd number of quotes before it means that it lies in a string.
    let at = line.find(" // ")?;
    line[..at].matches('"').count().is_multiple_of(2).then(|| &line[at..])
}

/// Text with what stands in backticks, and targets of links, blanked out: names are not prose.
fn without_code(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let (mut code, mut target, mut before) = (false, false, ' ');
    for c in line.chars() {
        match c {
            '`' => code = !code,
            '(' if before == ']' => target = true,
            ')' => target = false,
            _ => {}
        }
        out.push(if code || target { ' ' } else { c });
        before = c;
    }
    out
}

/// Whether `phrase` stands in `line` as whole words. Both in lower case.
fn contains(line: &str, phrase: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(phrase).any(|(at, found)| {
        !line[..at].chars().next_back().is_some_and(part) && !line[at + found.len()..].chars().next().is_some_and(part)
    })
}

fn found<'r>(rules: &'r Rules, line: &str) -> Vec<(&'r str, &'r Word)> {
    let line = without_code(line).to_lowercase();
    let every = rules.word.iter().flat_map(|w| w.not.iter().map(move |not| (not.as_str(), w)));
    every.filter(|(not, _)| contains(&line, not)).collect()
}

/// Words that stand where they should not.
#[must_use]
pub fn complaints(rules: &Rules, documents: &[Text], sources: &[Text]) -> Vec<String> {
    let mut bad = Vec::new();
    let mut look = |name: &str, number: usize, line: &str| {
        for (not, word) in found(rules, line) {
            bad.push(format!("{name}:{number}: \"{not}\"; {} ({}): {}", word.say, word.why, line.trim()));
        }
    };
    for Text { name, text } in documents {
        for line in prose(text) {
            look(name, line.number, line.text);
        }
    }
    for Text { name, text } in sources {
        for (i, line) in text.lines().enumerate() {
            if let Some(comment) = comment(line) {
                look(name, i + 1, comment);
            }
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, text: &str) -> usize {
        let word = Word { not: vec!["nobody".into(), "the road".into()], say: "x".into(), why: "y".into() };
        let rules = Rules { word: vec![word], ..crate::rules::read() };
        let texts = [Text { name: name.into(), text: text.into() }];
        if name.ends_with(".md") {
            complaints(&rules, &texts, &[]).len()
        } else {
            complaints(&rules, &[], &texts).len()
        }
    }

    #[test]
    fn whole_words_in_prose_and_comments_are_found() {
        assert_eq!(count("a.md", "Nobody waits on the road."), 2);
        assert_eq!(count("a.md", "`nobody` and [x](docs/nobody.md) and nobodys\n```\nnobody\n```"), 0);
        assert_eq!(count("a.rs", "/// What nobody needs\nfn f() {} // nobody\n"), 2);
        let word = "nobody";
        assert_eq!(count("a.rs", &format!("fn {word}() {{ let s = \"http // {word}\"; }}")), 0);
    }
}
