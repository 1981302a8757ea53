//! Short files, lines and functions; a map in front of every library; no mark of unfinished work.

use crate::rules::Rules;
use crate::tree::{Text, parse};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Files with too many lines, and lines with too many characters.
#[must_use]
pub fn files_and_lines(rules: &Rules, sources: &[Text]) -> Vec<String> {
    let mut bad = Vec::new();
    for Text { name, text } in sources {
        let lines = text.lines().count();
        if lines > rules.file_lines_max {
            bad.push(format!("{name}: {lines} lines, at most {}", rules.file_lines_max));
        }
        for (i, line) in text.lines().enumerate() {
            let chars = line.chars().count();
            if chars > rules.line_chars_max {
                bad.push(format!("{name}:{}: {chars} characters, at most {}", i + 1, rules.line_chars_max));
            }
        }
    }
    bad
}

struct Functions {
    limit: usize,
    long: Vec<(String, usize)>,
}

impl Functions {
    fn measure(&mut self, name: &syn::Ident, span: proc_macro2::Span) {
        let lines = span.end().line - span.start().line + 1;
        if lines > self.limit {
            self.long.push((name.to_string(), lines));
        }
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, f: &'a syn::ItemFn) {
        self.measure(&f.sig.ident, f.block.span());
        syn::visit::visit_item_fn(self, f);
    }
    fn visit_impl_item_fn(&mut self, f: &'a syn::ImplItemFn) {
        self.measure(&f.sig.ident, f.block.span());
        syn::visit::visit_impl_item_fn(self, f);
    }
}

/// Functions with too many lines.
#[must_use]
pub fn functions(rules: &Rules, sources: &[Text]) -> Vec<String> {
    let mut bad = Vec::new();
    for Text { name, text } in sources {
        let mut look = Functions { limit: rules.function_lines_max, long: Vec::new() };
        look.visit_file(&parse(name, text));
        let say = |(function, lines)| format!("{name}: fn {function}: {lines} lines, at most {}", look.limit);
        bad.extend(look.long.into_iter().map(say));
    }
    bad
}

/// Libraries that do not open with a map of at least five lines.
#[must_use]
pub fn maps(sources: &[Text]) -> Vec<String> {
    let maps = sources.iter().filter(|t| t.name.ends_with("src/lib.rs"));
    let short = maps.filter(|t| t.text.lines().take_while(|l| l.starts_with("//!")).count() < 5);
    short.map(|t| t.name.clone()).collect()
}

/// Lines that a merge left in place of a decision.
#[must_use]
pub fn conflicts(texts: &[Text]) -> Vec<String> {
    let marks = ["<", ">"].map(|m| m.repeat(7));
    let mut bad = Vec::new();
    for Text { name, text } in texts {
        for (i, _) in text.lines().enumerate().filter(|(_, l)| marks.iter().any(|m| l.starts_with(m.as_str()))) {
            bad.push(format!("{name}:{}: the mark of a conflict", i + 1));
        }
    }
    bad
}

/// Marks of unfinished work.
#[must_use]
pub fn unfinished(sources: &[Text]) -> Vec<String> {
    let marks =
        [["to", "do!("].concat(), ["unimpl", "emented!("].concat(), ["FIX", "ME"].concat(), ["TO", "DO"].concat()];
    let mut bad = Vec::new();
    for Text { name, text } in sources {
        for (i, line) in text.lines().enumerate().filter(|(_, l)| marks.iter().any(|m| l.contains(m.as_str()))) {
            bad.push(format!("{name}:{}: {}", i + 1, line.trim()));
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Vec<Text> {
        vec![Text { name: "a/src/lib.rs".into(), text: text.into() }]
    }

    fn rules() -> Rules {
        Rules { file_lines_max: 4, function_lines_max: 3, line_chars_max: 30, ..crate::rules::read() }
    }

    #[test]
    fn what_is_too_long_is_named_and_what_just_fits_is_not() {
        assert!(files_and_lines(&rules(), &source("a\nb\nc\nd\n")).is_empty());
        assert_eq!(files_and_lines(&rules(), &source("a\nb\nc\nd\ne\n")).len(), 1);
        assert!(files_and_lines(&rules(), &source(&"ä".repeat(30))).is_empty());
        assert_eq!(files_and_lines(&rules(), &source(&"ä".repeat(31))).len(), 1);
        assert!(functions(&rules(), &source("fn f() {\n\n}")).is_empty());
        assert_eq!(functions(&rules(), &source("impl S { fn f() {\n\n\n} }")).len(), 1);
    }

    #[test]
    fn a_library_without_a_map_and_an_unfinished_line_are_found() {
        assert_eq!(maps(&source("//! A\n//! b\n//! c\n//! d\n")).len(), 1);
        assert!(maps(&source("//! A\n//! b\n//! c\n//! d\n//! e\n")).is_empty());
        assert_eq!(conflicts(&source(&["a\n", &"<".repeat(7), " HEAD\n"].concat())).len(), 1);
        assert!(conflicts(&source("a << b\n")).is_empty());
        assert_eq!(unfinished(&source(&["fn f() { to", "do!() }"].concat())).len(), 1);
    }
}
