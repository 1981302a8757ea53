//! No public item of a library that nothing outside of it uses.
//!
//! The compiler warns of unused private items, and cannot know what is used of public ones. So what only its own crate
//! uses is not public here, and then the compiler's warning covers it. Names are compared, not meanings: an item whose
//! name is used anywhere for anything passes. Types that the signature of a public item shows are public with it.

use crate::layers::is_lib;
use crate::modules::{Crate, ModPath, Module, is_test, name_of};
use crate::rules::Rules;
use crate::tree::Text;
use cargo_metadata::Metadata;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;

/// The names that code uses.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Every name but where it is defined.
    any: BTreeSet<String>,
    /// Names behind a dot or a double colon: methods and associated items.
    member: BTreeSet<String>,
}

impl Uses {
    /// Adds the names of a piece of code.
    pub fn add(&mut self, tokens: TokenStream) {
        const DEFINES: [&str; 9] = ["fn", "struct", "enum", "union", "trait", "type", "mod", "const", "static"];
        let (mut defined, mut behind) = (false, false);
        for token in tokens {
            match &token {
                TokenTree::Ident(i) => {
                    let name = i.to_string();
                    if !defined {
                        self.any.insert(name.clone());
                        if behind {
                            self.member.insert(name.clone());
                        }
                    }
                    (defined, behind) = (DEFINES.contains(&name.as_str()), false);
                }
                TokenTree::Punct(p) => (defined, behind) = (false, matches!(p.as_char(), '.' | ':')),
                TokenTree::Group(g) => {
                    // What is listed in braces behind `use a::` is behind a double colon, too.
                    self.add(g.stream());
                    (defined, behind) = (false, false);
                }
                TokenTree::Literal(_) => (defined, behind) = (false, false),
            }
        }
    }

    /// Adds the names in the examples of a text: fenced blocks.
    fn examples(&mut self, lines: impl Iterator<Item = impl AsRef<str>>) {
        let mut inside = false;
        for line in lines {
            let line = line.as_ref().trim_start();
            if line.starts_with("```") {
                inside = !inside;
            } else if inside {
                // Examples are read by words: not each is Rust, and none matters enough to be lexed.
                for word in line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()) {
                    self.any.insert(word.to_owned());
                    self.member.insert(word.to_owned());
                }
            }
        }
    }
}

/// A public item: what it is called in complaints, where it stands, its name, and whether it is a type, a member, or
/// neither.
#[derive(Debug)]
struct Item {
    shown: String,
    place: String,
    name: String,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Kind {
    Type,
    Member,
    Other,
}

/// What the outside can reach of a library.
#[derive(Debug, Default)]
struct Surface {
    seen: BTreeSet<ModPath>,
    items: BTreeMap<ModPath, (Kind, String)>,
}

fn place(module: &Module, span: proc_macro2::Span) -> String {
    format!("{}:{}", crate::tree::shown(&module.file), span.start().line)
}

fn is_pub(vis: &syn::Visibility) -> bool {
    matches!(vis, syn::Visibility::Public(_))
}

fn vis_of(item: &syn::Item) -> Option<(&syn::Visibility, &[syn::Attribute], Kind)> {
    Some(match item {
        syn::Item::Const(i) => (&i.vis, &i.attrs, Kind::Other),
        syn::Item::Static(i) => (&i.vis, &i.attrs, Kind::Other),
        syn::Item::Fn(i) => (&i.vis, &i.attrs, Kind::Other),
        syn::Item::Enum(i) => (&i.vis, &i.attrs, Kind::Type),
        syn::Item::Struct(i) => (&i.vis, &i.attrs, Kind::Type),
        syn::Item::Trait(i) => (&i.vis, &i.attrs, Kind::Type),
        syn::Item::Type(i) => (&i.vis, &i.attrs, Kind::Type),
        syn::Item::Union(i) => (&i.vis, &i.attrs, Kind::Type),
        _ => return None,
    })
}

/// Whether the linker, and not Rust, finds it by its name.
fn is_exported(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| a.to_token_stream().to_string().contains("no_mangle"))
}

impl Surface {
    fn module(&mut self, krate: &Crate, at: &[String]) {
        let Some(module) = krate.modules.get(at) else { return };
        if !self.seen.insert(at.to_vec()) {
            return;
        }
        for item in &module.code {
            match item {
                syn::Item::Mod(m) if is_pub(&m.vis) => {
                    self.module(krate, &[at, &[m.ident.to_string()]].concat());
                }
                syn::Item::Use(u) if is_pub(&u.vis) => self.import(krate, at, &u.tree),
                item => {
                    let Some((vis, attrs, kind)) = vis_of(item) else { continue };
                    if let Some(name) = name_of(item).filter(|_| is_pub(vis) && !is_exported(attrs) && !is_test(attrs))
                    {
                        let place = place(module, vis.span());
                        self.items.insert([at, &[name]].concat(), (kind, place));
                    }
                }
            }
        }
    }

    /// What a `pub use` in `at` shows.
    fn import(&mut self, krate: &Crate, at: &[String], tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(p) => self.import(krate, at, &p.tree),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.import(krate, at, t)),
            syn::UseTree::Glob(_) => {
                let globs = krate.modules.get(at).map(|m| m.globs.clone()).unwrap_or_default();
                globs.iter().for_each(|g| self.module(krate, &krate.resolve(g)));
            }
            syn::UseTree::Name(n) => self.shown(krate, at, &n.ident),
            syn::UseTree::Rename(r) => self.shown(krate, at, &r.rename),
        }
    }

    fn shown(&mut self, krate: &Crate, at: &[String], name: &syn::Ident) {
        let path = krate.resolve(&[at, &[name.to_string()]].concat());
        if krate.modules.contains_key(&path) {
            return self.module(krate, &path);
        }
        let Some((name, inside)) = path.split_last() else { return };
        let Some(module) = krate.modules.get(inside) else { return };
        let item = module.code.iter().find(|i| name_of(i).as_ref() == Some(name));
        if let Some((vis, attrs, kind)) = item.and_then(vis_of)
            && !is_exported(attrs)
        {
            self.items.insert(path.clone(), (kind, place(module, vis.span())));
        }
    }
}

/// The items that the outside can reach, methods among them, and the names that their signatures show.
fn public(krate: &Crate) -> (Vec<Item>, BTreeSet<String>) {
    let mut surface = Surface::default();
    surface.module(krate, &[]);
    let mut shown = Uses::default();
    let types: BTreeSet<&str> = surface
        .items
        .iter()
        .filter(|(_, (k, _))| *k == Kind::Type)
        .filter_map(|(p, _)| p.last().map(String::as_str))
        .collect();
    let as_item = |(path, (kind, place)): (&ModPath, &(Kind, String))| Item {
        shown: path.join("::"),
        place: place.clone(),
        name: path.last().cloned().unwrap_or_default(),
        kind: *kind,
    };
    let mut items: Vec<Item> = surface.items.iter().map(as_item).collect();
    for (at, module) in &krate.modules {
        for item in &module.code {
            match item {
                syn::Item::Impl(i) => members(at, module, i, &types, &mut items, &mut shown),
                item => {
                    let path = name_of(item).map(|n| [at.as_slice(), &[n]].concat());
                    if path.is_some_and(|p| surface.items.contains_key(&p)) {
                        signature(item, &mut shown);
                    }
                }
            }
        }
    }
    (items, shown.any)
}

/// Public methods and constants of a type that is public.
fn members(
    at: &[String],
    module: &Module,
    block: &syn::ItemImpl,
    types: &BTreeSet<&str>,
    items: &mut Vec<Item>,
    shown: &mut Uses,
) {
    let syn::Type::Path(of) = &*block.self_ty else { return };
    let Some(of) = of.path.segments.last().map(|s| s.ident.to_string()) else { return };
    if !types.contains(of.as_str()) || is_test(&block.attrs) {
        return;
    }
    if block.trait_.is_some() {
        for item in &block.items {
            match item {
                syn::ImplItem::Fn(f) => shown.add(f.sig.to_token_stream()),
                syn::ImplItem::Type(t) => shown.add(t.ty.to_token_stream()),
                _ => {}
            }
        }
        return;
    }
    for item in &block.items {
        let (vis, attrs, name, sig) = match item {
            syn::ImplItem::Fn(f) => (&f.vis, &f.attrs, &f.sig.ident, f.sig.to_token_stream()),
            syn::ImplItem::Const(c) => (&c.vis, &c.attrs, &c.ident, c.ty.to_token_stream()),
            _ => continue,
        };
        if is_pub(vis) && !is_exported(attrs) && !is_test(attrs) {
            shown.add(sig);
            let path = [at, &[of.clone(), name.to_string()]].concat();
            let place = place(module, vis.span());
            items.push(Item { shown: path.join("::"), place, name: name.to_string(), kind: Kind::Member });
        }
    }
}

/// What an item shows of other types: everything but the bodies of functions and private fields.
fn signature(item: &syn::Item, shown: &mut Uses) {
    match item {
        syn::Item::Fn(f) => shown.add(f.sig.to_token_stream()),
        syn::Item::Const(c) => shown.add(c.ty.to_token_stream()),
        syn::Item::Static(s) => shown.add(s.ty.to_token_stream()),
        syn::Item::Struct(s) => {
            shown.add(s.generics.to_token_stream());
            s.fields.iter().filter(|f| is_pub(&f.vis)).for_each(|f| shown.add(f.ty.to_token_stream()));
        }
        syn::Item::Enum(e) => e.variants.iter().flat_map(|v| &v.fields).for_each(|f| shown.add(f.ty.to_token_stream())),
        other => shown.add(other.to_token_stream()),
    }
}

/// The public items of a library that these names do not contain, and where they stand.
fn unused(krate: &Crate, outside: &Uses) -> Vec<(String, String)> {
    let (items, shown) = public(krate);
    let used = |item: &Item| match item.kind {
        Kind::Member => outside.member.contains(&item.name),
        Kind::Type => outside.any.contains(&item.name) || shown.contains(&item.name),
        Kind::Other => outside.any.contains(&item.name),
    };
    items.iter().filter(|i| !used(i)).map(|i| (i.shown.clone(), i.place.clone())).collect()
}

/// Public items that nothing outside of their library uses, and allowances that nothing needs.
///
/// # Panics
/// When a source is not Rust.
#[must_use]
pub fn complaints(rules: &Rules, metadata: &Metadata, sources: &[Text], documents: &[Text]) -> Vec<String> {
    let top = crate::tree::root();
    let (mut bad, mut libraries) = (Vec::new(), Vec::new());
    for package in metadata.workspace_packages() {
        if let Some(lib) = package.targets.iter().find(|t| is_lib(t)) {
            libraries.push((package.name.to_string(), Crate::read(lib.src_path.as_std_path())));
        }
    }
    let mut names: Vec<(&str, Uses)> = Vec::new();
    for Text { name, text } in sources {
        let mut uses = Uses::default();
        uses.add(text.parse().unwrap_or_else(|e| panic!("{name}: {e}")));
        names.push((name, uses));
    }
    let mut examples = Uses::default();
    documents.iter().for_each(|d| examples.examples(d.text.lines()));
    let comments = sources.iter().flat_map(|s| s.text.lines()).filter_map(|l| l.trim_start().strip_prefix("//"));
    examples.examples(comments.map(|l| l.trim_start_matches(['/', '!'])));
    for (package, krate) in &libraries {
        let own = krate.files.iter().map(|f| f.canonicalize().expect("a file that was read"));
        let own: BTreeSet<String> =
            own.filter_map(|f| f.strip_prefix(&top).ok().map(|f| f.display().to_string())).collect();
        let mut outside = Uses { any: examples.any.clone(), member: examples.member.clone() };
        for (_, uses) in names.iter().filter(|(name, _)| !own.contains(*name)) {
            outside.any.extend(uses.any.iter().cloned());
            outside.member.extend(uses.member.iter().cloned());
        }
        let dead = unused(krate, &outside);
        bad.extend(against(rules, package, &dead));
    }
    bad
}

/// What is left of `dead` when `tidy.toml` has been asked, and what `tidy.toml` says in vain.
fn against(rules: &Rules, package: &str, dead: &[(String, String)]) -> Vec<String> {
    let mine: Vec<_> = rules.public.iter().filter(|p| p.package == package).collect();
    let allowed = |item: &str| mine.iter().any(|p| p.items.iter().any(|i| i == "*" || i == item));
    let mut bad: Vec<String> = dead
        .iter()
        .filter(|(item, _)| !allowed(item))
        .map(|(item, place)| {
            format!("{package}: {item} is public, and nothing outside of the library uses it ({place})")
        })
        .collect();
    for item in mine.iter().flat_map(|p| &p.items) {
        if item != "*" && !dead.iter().any(|(d, _)| d == item) {
            bad.push(format!("{package}: tidy.toml allows {item} to be unused, and that is not needed"));
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The public items of a library of one file and one module that `outside` does not use.
    fn dead(lib: &str, module: &str, outside: &str) -> Vec<String> {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("lib.rs"), lib).expect("written");
        std::fs::write(dir.path().join("a.rs"), module).expect("written");
        let mut uses = Uses::default();
        uses.add(outside.parse().expect("tokens"));
        unused(&Crate::read(&dir.path().join("lib.rs")), &uses).into_iter().map(|(item, _)| item).collect()
    }

    #[test]
    fn what_is_reachable_and_unused_is_found() {
        let module = "pub fn f() {}\npub struct S;\nimpl S { pub fn m(&self) {} pub(crate) fn n(&self) {} }";
        assert_eq!(dead("pub mod a;", module, ""), ["a::S", "a::f", "a::S::m"]);
        assert_eq!(dead("pub mod a;", module, "use x::a::{f, S}; fn g(s: S) { s.m() }"), [""; 0]);
        assert_eq!(dead("mod a;", module, ""), [""; 0]);
        assert_eq!(dead("mod a;\npub use a::S;", module, ""), ["a::S", "a::S::m"]);
    }

    #[test]
    fn a_definition_of_the_same_name_or_a_field_is_no_use() {
        let module = "pub struct S;\nimpl S { pub fn m(&self) {} }";
        assert_eq!(dead("pub mod a;", module, "struct S { m: u32 }"), ["a::S", "a::S::m"]);
    }

    #[test]
    fn types_that_a_signature_shows_are_public_with_it() {
        let module = "pub struct S;\npub enum E { A(S) }\npub fn f() -> E { todo() }";
        assert_eq!(dead("pub mod a;", module, "a::f();"), [""; 0]);
        assert_eq!(dead("pub mod a;", "pub struct S;\n#[cfg(test)]\npub fn t() {}", "fn s() {}"), ["a::S"]);
    }

    #[test]
    fn an_allowance_covers_an_item_and_must_be_needed() {
        let allow = |item: &str| {
            let public = crate::rules::Public { package: "p".into(), items: vec![item.into()], why: "x".into() };
            Rules { public: vec![public], ..crate::rules::read() }
        };
        let dead = [("a::S".to_owned(), "a.rs:1".to_owned())];
        assert!(against(&allow("a::S"), "p", &dead).is_empty());
        assert!(against(&allow("*"), "p", &dead).is_empty());
        assert_eq!(against(&allow("a::T"), "p", &dead).len(), 2);
        assert_eq!(against(&allow("a::S"), "p", &[]).len(), 1);
    }
}
