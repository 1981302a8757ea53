//! Rules over the text and the syntax of each Rust source file.

use crate::{check, root, rules};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Every `.rs` file below `dir`, build output left out.
fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("folder is readable") {
        let path = entry.expect("entry is readable").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, into);
        } else if name.ends_with(".rs") {
            into.push(path);
        }
    }
}

fn all_files() -> Vec<(String, String)> {
    let (top, mut files) = (root(), Vec::new());
    rust_files(&top, &mut files);
    files.sort();
    let read = |p: &PathBuf| std::fs::read_to_string(p).expect("source is UTF-8");
    files.iter().map(|p| (p.strip_prefix(&top).expect("below root").display().to_string(), read(p))).collect()
}

#[test]
fn files_and_lines_are_short() {
    let (rules, mut bad) = (rules(), Vec::new());
    for (name, text) in all_files() {
        let lines = text.lines().count();
        if lines > rules.file_lines_max {
            bad.push(format!("{name}: {lines} lines, at most {}", rules.file_lines_max));
        }
        for (i, line) in text.lines().enumerate().filter(|(_, l)| l.chars().count() > rules.line_chars_max) {
            bad.push(format!(
                "{name}:{}: {} characters, at most {}",
                i + 1,
                line.chars().count(),
                rules.line_chars_max
            ));
        }
    }
    check("too long", bad);
}

/// Collects functions over the limit and whether the file uses `unsafe` at all.
struct Look {
    limit: usize,
    long: Vec<(String, usize)>,
    has_unsafe: bool,
}

impl Look {
    fn measure(&mut self, name: &syn::Ident, span: proc_macro2::Span) {
        let lines = span.end().line - span.start().line + 1;
        if lines > self.limit {
            self.long.push((name.to_string(), lines));
        }
    }
}

impl<'a> Visit<'a> for Look {
    fn visit_item_fn(&mut self, f: &'a syn::ItemFn) {
        self.measure(&f.sig.ident, f.block.span());
        self.has_unsafe |= f.sig.unsafety.is_some();
        syn::visit::visit_item_fn(self, f);
    }
    fn visit_impl_item_fn(&mut self, f: &'a syn::ImplItemFn) {
        self.measure(&f.sig.ident, f.block.span());
        self.has_unsafe |= f.sig.unsafety.is_some();
        syn::visit::visit_impl_item_fn(self, f);
    }
    fn visit_expr_unsafe(&mut self, e: &'a syn::ExprUnsafe) {
        self.has_unsafe = true;
        syn::visit::visit_expr_unsafe(self, e);
    }
    fn visit_item_impl(&mut self, i: &'a syn::ItemImpl) {
        self.has_unsafe |= i.unsafety.is_some();
        syn::visit::visit_item_impl(self, i);
    }
    fn visit_macro(&mut self, m: &'a syn::Macro) {
        // Macro bodies are tokens, not syntax: the word alone is enough to want the file on the list.
        self.has_unsafe |= mentions_unsafe(m.tokens.clone());
    }
}

fn mentions_unsafe(tokens: proc_macro2::TokenStream) -> bool {
    tokens.into_iter().any(|t| match t {
        proc_macro2::TokenTree::Ident(i) => i == "unsafe",
        proc_macro2::TokenTree::Group(g) => mentions_unsafe(g.stream()),
        _ => false,
    })
}

#[test]
fn functions_are_short_and_unsafe_stands_only_in_named_files() {
    let (rules, mut bad, mut seen) = (rules(), Vec::new(), BTreeSet::new());
    for (name, text) in all_files() {
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut look = Look { limit: rules.function_lines_max, long: Vec::new(), has_unsafe: false };
        look.visit_file(&file);
        for (function, lines) in look.long {
            bad.push(format!("{name}: fn {function}: {lines} lines, at most {}", rules.function_lines_max));
        }
        if look.has_unsafe {
            if !rules.unsafe_files.contains(&name) {
                bad.push(format!("{name}: `unsafe` in a file that tidy.toml does not name"));
            }
            seen.insert(name);
        }
    }
    bad.extend(
        rules.unsafe_files.iter().filter(|f| !seen.contains(*f)).map(|f| format!("{f}: named, but has no unsafe")),
    );
    check("functions and unsafe", bad);
}

/// Follows `mod name;` from a crate's root files to all files that the compiler can see.
fn reach(file: &Path, is_root: bool, seen: &mut BTreeSet<PathBuf>) {
    if !seen.insert(file.to_path_buf()) {
        return;
    }
    let text = std::fs::read_to_string(file).expect("source is readable");
    let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let dir = file.parent().expect("a file has a folder");
    let stem = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let base = if is_root || stem == "mod" { dir.to_path_buf() } else { dir.join(stem) };
    follow(&parsed.items, dir, &base, seen);
}

fn follow(items: &[syn::Item], dir: &Path, base: &Path, seen: &mut BTreeSet<PathBuf>) {
    for item in items {
        let syn::Item::Mod(m) = item else { continue };
        let name = m.ident.to_string();
        if let Some((_, inner)) = &m.content {
            follow(inner, dir, &base.join(&name), seen);
            continue;
        }
        let named = m.attrs.iter().find_map(|a| match &a.meta {
            syn::Meta::NameValue(nv) if nv.path.is_ident("path") => match &nv.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(s), .. }) => Some(dir.join(s.value())),
                _ => None,
            },
            _ => None,
        });
        let candidates = [named.unwrap_or_default(), base.join(format!("{name}.rs")), base.join(&name).join("mod.rs")];
        if let Some(found) = candidates.iter().find(|p| p.is_file()) {
            reach(found, false, seen);
        }
    }
}

#[test]
fn no_source_file_is_dead() {
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().exec().expect("cargo metadata runs");
    let mut seen = BTreeSet::new();
    for target in metadata.packages.iter().flat_map(|p| &p.targets) {
        reach(target.src_path.as_std_path(), true, &mut seen);
    }
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let seen: BTreeSet<_> = seen.iter().map(|p| p.canonicalize().expect("exists")).collect();
    let dead = files.iter().filter(|f| !seen.contains(&f.canonicalize().expect("exists")));
    check("no module names", dead.map(|f| f.display().to_string()).collect());
}

#[test]
fn every_library_opens_with_a_map() {
    let maps = all_files().into_iter().filter(|(name, _)| name.ends_with("src/lib.rs"));
    let short = maps.filter(|(_, text)| text.lines().take_while(|l| l.starts_with("//!")).count() < 5);
    check("lib.rs without a map of at least five lines", short.map(|(name, _)| name).collect());
}

#[test]
fn no_unfinished_marks() {
    let mut bad = Vec::new();
    let marks =
        [["to", "do!("].concat(), ["unimpl", "emented!("].concat(), ["FIX", "ME"].concat(), ["TO", "DO"].concat()];
    for (name, text) in all_files() {
        for (i, line) in text.lines().enumerate().filter(|(_, l)| marks.iter().any(|m| l.contains(m.as_str()))) {
            bad.push(format!("{name}:{}: {}", i + 1, line.trim()));
        }
    }
    check("unfinished", bad);
}
