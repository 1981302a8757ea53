//! What a crate shows for the tests of others is named in tests only.
//!
//! Such a method, a *hook*, is public and `#[doc(hidden)]`. The compiler cannot keep code that is no test from calling
//! it. Names are compared, with how many arguments there are, and not types: a hook needs a name that it has alone.

use crate::modules::{Crate, Module, is_test, is_test_item};
use crate::rules::Rules;
use cargo_metadata::{Metadata, Package, Target};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::punctuated::Punctuated;
use syn::visit::Visit;

/// A hook: the type, the name, and arguments without the receiver.
type Hook = (String, String, usize);

fn is_hidden(attrs: &[syn::Attribute]) -> bool {
    let hides = |a: &syn::Attribute| a.parse_args::<syn::Ident>().is_ok_and(|word| word == "hidden");
    attrs.iter().any(|a| a.path().is_ident("doc") && hides(a))
}

/// The hooks of a library.
fn hooks(krate: &Crate) -> Vec<Hook> {
    let items = krate.modules.values().flat_map(|m| &m.code);
    let blocks = items.filter_map(|i| if let syn::Item::Impl(b) = i { Some(b) } else { None });
    let mut all = Vec::new();
    for block in blocks.filter(|b| b.trait_.is_none() && !is_test(&b.attrs)) {
        let syn::Type::Path(of) = &*block.self_ty else { continue };
        let Some(of) = of.path.segments.last() else { continue };
        for item in &block.items {
            if let syn::ImplItem::Fn(f) = item
                && matches!(f.vis, syn::Visibility::Public(_))
                && is_hidden(&f.attrs)
                && !is_test(&f.attrs)
            {
                let takes = f.sig.inputs.len() - usize::from(f.sig.receiver().is_some());
                all.push((of.ident.to_string(), f.sig.ident.to_string(), takes));
            }
        }
    }
    all
}

/// Looks for hooks in a module's code, its tests left out.
struct Look<'h> {
    hooks: &'h [Hook],
    /// Names and lines.
    found: Vec<(String, usize)>,
}

impl Look<'_> {
    fn called(&mut self, name: &syn::Ident, arguments: usize) {
        if self.hooks.iter().any(|(_, hook, takes)| name == hook && *takes == arguments) {
            self.found.push((name.to_string(), name.span().start().line));
        }
    }

    /// The last two names of a path.
    fn path(&mut self, of: &syn::Ident, name: &syn::Ident) {
        if self.hooks.iter().any(|(ty, hook, _)| of == ty && name == hook) {
            self.found.push((name.to_string(), name.span().start().line));
        }
    }

    /// What is in a macro is tokens, not syntax.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let punct = |i: usize, c: char| matches!(tokens.get(i), Some(TokenTree::Punct(p)) if p.as_char() == c);
        for (i, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(g) => self.tokens(g.stream()),
                TokenTree::Ident(name) => {
                    if i > 0
                        && punct(i - 1, '.')
                        && let Some(TokenTree::Group(g)) = tokens.get(i + 1)
                        && g.delimiter() == Delimiter::Parenthesis
                    {
                        self.called(name, arguments(g.stream()));
                    }
                    if punct(i + 1, ':')
                        && punct(i + 2, ':')
                        && let Some(TokenTree::Ident(next)) = tokens.get(i + 3)
                    {
                        self.path(name, next);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Arguments in the parentheses of a call; those of what is no call are none of a hook's.
fn arguments(tokens: TokenStream) -> usize {
    let list = syn::parse::Parser::parse2(Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated, tokens);
    list.map_or(usize::MAX, |l| l.len())
}

impl<'a> Visit<'a> for Look<'_> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        // A module is one of its own.
        if !matches!(item, syn::Item::Mod(_)) && !is_test_item(item) {
            syn::visit::visit_item(self, item);
        }
    }
    fn visit_impl_item_fn(&mut self, f: &'a syn::ImplItemFn) {
        if !is_test(&f.attrs) {
            syn::visit::visit_impl_item_fn(self, f);
        }
    }
    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        self.called(&call.method, call.args.len());
        syn::visit::visit_expr_method_call(self, call);
    }
    fn visit_path(&mut self, path: &'a syn::Path) {
        let mut last = path.segments.iter().rev();
        if let (Some(name), Some(of)) = (last.next(), last.next()) {
            self.path(&of.ident, &name.ident);
        }
        syn::visit::visit_path(self, path);
    }
    fn visit_macro(&mut self, m: &'a syn::Macro) {
        self.tokens(m.tokens.clone());
    }
}

fn named(module: &Module, hooks: &[Hook]) -> Vec<(String, usize)> {
    let mut look = Look { hooks, found: Vec::new() };
    module.code.iter().for_each(|item| look.visit_item(item));
    look.found
}

/// Whether a target is a program or library and no test or bench.
fn is_product(target: &&Target) -> bool {
    !target.is_test() && !target.is_bench() && !target.is_custom_build()
}

/// Where the code of a package names a hook outside of its tests.
fn places(package: &Package, hooks: &[Hook]) -> BTreeSet<String> {
    let crates = package.targets.iter().filter(is_product).map(|t| Crate::read(t.src_path.as_std_path()));
    let modules = crates.flat_map(|krate| krate.modules.into_values());
    let place = |m: Module| {
        let file = crate::tree::shown(&m.file);
        named(&m, hooks).into_iter().map(move |(name, line)| format!("{file}:{line}: {name}"))
    };
    modules.flat_map(place).collect()
}

/// Calls of hooks that stand in no test, and crates of `tidy.toml` that have none.
///
/// # Panics
/// When a source is not Rust.
#[must_use]
pub fn complaints(rules: &Rules, metadata: &Metadata) -> Vec<String> {
    let packages = metadata.workspace_packages();
    let mut bad = Vec::new();
    for rule in &rules.hooks {
        let lib = packages.iter().find(|p| p.name.as_str() == rule.package);
        let lib = lib.and_then(|p| p.targets.iter().find(|t| crate::layers::is_lib(t)));
        let hooks = lib.map_or_else(Vec::new, |t| hooks(&Crate::read(t.src_path.as_std_path())));
        if hooks.is_empty() {
            bad.push(format!("{}: tidy.toml says that it has hooks for tests, and it has none", rule.package));
        }
        for package in &packages {
            let name = package.name.as_str();
            if name != rule.package && !package.dependencies.iter().any(|d| d.name == rule.package) {
                continue;
            }
            let places = places(package, &hooks);
            bad.extend(places.iter().map(|p| format!("{p} is for tests, and this is none: {}", rule.why)));
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hooks of a library of one file, and which of them another library of a file and a module names.
    fn found(hooked: &str, lib: &str, module: &str) -> (Vec<Hook>, Vec<(String, usize)>) {
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("written");
            dir.path().join(name)
        };
        let all = hooks(&Crate::read(&file("hooked.rs", hooked)));
        file("a.rs", module);
        let krate = Crate::read(&file("lib.rs", lib));
        let names = krate.modules.values().flat_map(|m| named(m, &all)).collect();
        (all, names)
    }

    const HOOKED: &str = r"
        pub struct S;
        impl S {
            /// For tests.
            #[doc(hidden)]
            pub fn hook(&self) {}
            #[doc(hidden)]
            pub fn with(&self, n: u64) {}
            pub fn open(&self) {}
            #[doc(hidden)]
            fn own(&self) {}
        }
        #[cfg(test)]
        mod tests {
            impl super::S {
                #[doc(hidden)]
                pub fn not_there(&self) {}
            }
        }";

    #[test]
    fn what_is_public_and_hidden_is_a_hook() {
        let hook = |name: &str, takes| ("S".to_owned(), name.to_owned(), takes);
        assert_eq!(found(HOOKED, "", "").0, [hook("hook", 0), hook("with", 1)]);
    }

    #[test]
    fn every_call_outside_of_tests_is_found() {
        for (code, name) in [
            ("fn f(s: &S) { s.hook() }", "hook"),
            ("fn f(s: &S) { s.a().b.hook().c() }", "hook"),
            ("fn f(s: &S) { S::hook(s) }", "hook"),
            ("fn f(s: &[S]) { s.iter().for_each(store::S::hook) }", "hook"),
            ("impl T { fn f(&self) { if x { self.s.with(1) } } }", "with"),
            ("fn f(s: &S) { assert_eq!(s.with(max(1, 2)), 3) }", "with"),
            ("fn f(s: &S) { info!(\"{}\", S::with(s, 1)) }", "with"),
        ] {
            assert_eq!(found(HOOKED, code, "").1, [(name.to_owned(), 1)], "{code}");
            assert_eq!(found(HOOKED, "mod a;", code).1, [(name.to_owned(), 1)], "{code}");
        }
    }

    #[test]
    fn calls_in_tests_and_of_others_pass() {
        for code in [
            "fn f(s: &S) { s.open(); s.hook(1); s.with(); s.hook; T::hook(s) }",
            "fn f(s: &S) { assert!(s.with(1, 2) && s.hook) }",
            "#[cfg(test)]\nmod tests { fn f(s: &S) { s.hook() } }",
            "#[test]\nfn f() { s.hook() }",
            "#[cfg(test)]\nconst F: fn(&S) = S::hook;",
            "impl T { #[cfg(test)] fn f(&self) { self.s.hook() } }",
        ] {
            assert_eq!(found(HOOKED, code, "").1, [], "{code}");
        }
        assert_eq!(found(HOOKED, "#[cfg(test)]\nmod a;", "fn f(s: &S) { s.hook() }").1, []);
    }
}
