//! What documents name is there: paths of the tree, and functions (tests, mostly) in them.
//!
//! A reference is a span of code that begins with a folder of the root: `ciscops/src/sqe.rs`, a folder, alternatives in
//! braces, or `path::function`. A span that begins with `::` means the file named last in the same paragraph or row.

use crate::markdown::prose;
use crate::tree::Text;
use std::collections::BTreeMap;
use std::path::Path;

/// Spans in backticks, in order.
fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((inner, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    inner.split(',').flat_map(|one| alternatives(&format!("{before}{}{after}", one.trim()))).collect()
}

/// Looks references up, and remembers the files it has read.
struct Lookup<'t> {
    top: &'t Path,
    read: BTreeMap<String, String>,
}

impl Lookup<'_> {
    /// Whether there is such a function, or one that begins so.
    fn has_function(&mut self, file: &str, function: &str) -> bool {
        let top = self.top;
        let text = self.read.entry(file.to_owned());
        let text = text.or_insert_with(|| std::fs::read_to_string(top.join(file)).unwrap_or_default());
        match function.split_once("...") {
            Some((beginning, _)) => text.contains(&format!("fn {beginning}")),
            None => text.contains(&format!("fn {function}(")) || text.contains(&format!("fn {function}<")),
        }
    }

    fn is_reference(&self, span: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:{},".contains(c);
        let Some((first, _)) = span.split_once('/') else { return false };
        // What a build leaves is not of the tree.
        let outside = ["", "..", "target"].contains(&first);
        !outside && span.chars().all(plain) && self.top.join(first).is_dir()
    }

    /// Complaints about one span; `last` is the file named before.
    fn span(&mut self, span: &str, last: &mut Option<String>) -> Vec<String> {
        if let Some(function) = span.strip_prefix("::") {
            let Some(file) = last.clone() else { return Vec::new() };
            return self.function(&file, function);
        }
        if !self.is_reference(span) {
            return Vec::new();
        }
        let (path, function) = span.split_once("::").map_or((span, None), |(p, f)| (p, Some(f)));
        let paths = alternatives(path.trim_end_matches([':', '.', ',']));
        let gone = paths.iter().filter(|p| !self.top.join(p).exists());
        let mut bad: Vec<String> = gone.map(|p| format!("{p} is not there")).collect();
        if bad.is_empty() {
            *last = paths.last().filter(|p| p.ends_with(".rs")).cloned();
            if let (Some(file), Some(function)) = (last.clone(), function) {
                bad.extend(self.function(&file, function));
            }
        }
        bad
    }

    fn function(&mut self, file: &str, path: &str) -> Vec<String> {
        let name = path.rsplit("::").next().unwrap_or(path).trim_end_matches("()");
        let known = self.has_function(file, name);
        if known { Vec::new() } else { vec![format!("{file} has no fn {name}")] }
    }
}

/// References that lead nowhere.
#[must_use]
pub fn complaints(top: &Path, documents: &[Text]) -> Vec<String> {
    let (mut lookup, mut bad) = (Lookup { top, read: BTreeMap::new() }, Vec::new());
    for Text { name, text } in documents {
        let mut last = None;
        for line in prose(text) {
            if line.text.trim().is_empty() || line.text.starts_with('|') {
                last = None;
            }
            for span in spans(line.text) {
                bad.extend(lookup.span(span, &mut last).into_iter().map(|b| format!("{name}:{}: {b}", line.number)));
            }
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_passes_and_what_is_not_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("a/src")).expect("made");
        std::fs::write(dir.path().join("a/src/x.rs"), "fn one() {}\nfn two_more<T>() {}").expect("written");
        let count = |text: &str| {
            let document = Text { name: "d.md".into(), text: text.into() };
            complaints(dir.path(), &[document]).len()
        };
        assert_eq!(count("`a/src/x.rs::one`, `::two_more`, `a/src/`, `a/src/{x}.rs`, `::two_...`, `b/none.rs`"), 0);
        assert_eq!(count("`a/src/y.rs`"), 1);
        assert_eq!(count("`a/src/{x,y}.rs`"), 1);
        assert_eq!(count("`a/src/x.rs::three`"), 1);
        assert_eq!(count("`a/src/x.rs::one`,\n  `::three`"), 1);
        assert_eq!(count("`a/src/x.rs::one`\n\n`::three`"), 0);
    }
}
