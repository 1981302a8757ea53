//! `unsafe` stands only in the files that `tidy.toml` names, and a file that is named has some.

use crate::rules::Rules;
use crate::tree::{Text, parse};
use std::collections::BTreeSet;
use syn::visit::Visit;

#[derive(Default)]
struct Look {
    found: bool,
}

impl<'a> Visit<'a> for Look {
    fn visit_signature(&mut self, s: &'a syn::Signature) {
        self.found |= s.unsafety.is_some();
        syn::visit::visit_signature(self, s);
    }
    fn visit_expr_unsafe(&mut self, _: &'a syn::ExprUnsafe) {
        self.found = true;
    }
    fn visit_item_impl(&mut self, i: &'a syn::ItemImpl) {
        self.found |= i.unsafety.is_some();
        syn::visit::visit_item_impl(self, i);
    }
    fn visit_macro(&mut self, m: &'a syn::Macro) {
        // Macro bodies are tokens, not syntax: the word alone is enough to want the file on the list.
        self.found |= mentions(m.tokens.clone());
    }
}

fn mentions(tokens: proc_macro2::TokenStream) -> bool {
    tokens.into_iter().any(|t| match t {
        proc_macro2::TokenTree::Ident(i) => i == "unsafe",
        proc_macro2::TokenTree::Group(g) => mentions(g.stream()),
        _ => false,
    })
}

fn has_unsafe(file: &syn::File) -> bool {
    let mut look = Look::default();
    look.visit_file(file);
    look.found
}

/// Files with `unsafe` that are not named, and the other way round.
#[must_use]
pub fn complaints(rules: &Rules, sources: &[Text]) -> Vec<String> {
    let with = sources.iter().filter(|t| has_unsafe(&parse(&t.name, &t.text))).map(|t| t.name.as_str());
    let with: BTreeSet<&str> = with.collect();
    let named: BTreeSet<&str> = rules.unsafe_files.iter().map(String::as_str).collect();
    let stray = with.difference(&named).map(|f| format!("{f}: `unsafe` in a file that tidy.toml does not name"));
    stray.chain(named.difference(&with).map(|f| format!("{f}: named, but has no unsafe"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_unsafe_is_seen() {
        for text in [
            "fn f() { unsafe { g() } }",
            "unsafe fn f() {}",
            "unsafe impl Send for S {}",
            "trait T { unsafe fn f(); }",
            "impl S { unsafe fn f() {} }",
            "fn f() { m!(unsafe { 1 }) }",
        ] {
            assert!(has_unsafe(&parse("a.rs", text)), "{text}");
        }
        assert!(!has_unsafe(&parse("a.rs", "/// unsafe\nfn f() { let s = \"unsafe\"; }")));
    }
}
