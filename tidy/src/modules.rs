//! The modules of a crate: what each one contains, and which paths its code names.

use crate::tree::parse;
use proc_macro2::TokenTree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// A path from the crate's root: `["device", "board", "Board"]`.
pub type ModPath = Vec<String>;

/// A path that code names, from the crate's root, and the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The path.
    pub path: ModPath,
    /// Where it stands.
    pub line: usize,
}

/// One module.
#[derive(Default)]
pub struct Module {
    /// The file it stands in.
    pub file: PathBuf,
    /// Its syntax; that of modules inside of it is theirs.
    pub code: Vec<syn::Item>,
    /// Its modules.
    pub children: BTreeSet<String>,
    /// Names that `use` brings in, and what they stand for.
    pub uses: BTreeMap<String, ModPath>,
    /// What `use ...::*` brings in.
    pub globs: Vec<ModPath>,
    /// Items of its own, macros among them.
    pub items: BTreeSet<String>,
    /// The paths into this crate that its code names, without tests.
    pub named: Vec<Named>,
}

/// The modules of a crate, by their path.
#[derive(Default)]
pub struct Crate {
    /// Every module; the root has the empty path.
    pub modules: BTreeMap<ModPath, Module>,
    /// Every file, those of test modules among them.
    pub files: BTreeSet<PathBuf>,
}

/// Whether something is compiled for tests only.
#[must_use]
pub(crate) fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| match &a.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text: String = list.tokens.to_string().split_whitespace().collect();
            text == "test" || text.starts_with("all(test,")
        }
        _ => a.path().is_ident("test"),
    })
}

/// The same of an item; a module's is known where its file is found.
pub(crate) fn is_test_item(item: &syn::Item) -> bool {
    is_test(match item {
        syn::Item::Fn(i) => &i.attrs,
        syn::Item::Impl(i) => &i.attrs,
        syn::Item::Use(i) => &i.attrs,
        syn::Item::Const(i) => &i.attrs,
        syn::Item::Struct(i) => &i.attrs,
        syn::Item::Static(i) => &i.attrs,
        syn::Item::Trait(i) => &i.attrs,
        syn::Item::Macro(i) => &i.attrs,
        _ => return false,
    })
}

/// What `#[path = "..."]` says.
fn named_path(attrs: &[syn::Attribute]) -> Option<String> {
    attrs.iter().find_map(|a| match &a.meta {
        syn::Meta::NameValue(nv) if nv.path.is_ident("path") => match &nv.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(s), .. }) => Some(s.value()),
            _ => None,
        },
        _ => None,
    })
}

impl Crate {
    /// Reads a crate from its root file on.
    ///
    /// # Panics
    /// When a file cannot be read or is not Rust.
    #[must_use]
    pub fn read(root: &Path) -> Crate {
        let mut krate = Crate::default();
        krate.file(root, true, &[], false);
        krate
    }

    fn file(&mut self, file: &Path, is_root: bool, at: &[String], test: bool) {
        if !self.files.insert(file.to_path_buf()) {
            return;
        }
        let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = parse(&file.display().to_string(), &text);
        let dir = file.parent().expect("a file has a folder");
        let stem = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        let base = if is_root || stem == "mod" { dir.to_path_buf() } else { dir.join(stem) };
        let test = test || is_test(&parsed.attrs);
        self.items(&parsed.items, file, &base, at, test);
    }

    fn items(&mut self, items: &[syn::Item], file: &Path, base: &Path, at: &[String], test: bool) {
        if !test {
            let module = read_module(items, file, at);
            self.modules.insert(at.to_vec(), module);
        }
        for item in items {
            let syn::Item::Mod(m) = item else { continue };
            let (name, test) = (m.ident.to_string(), test || is_test(&m.attrs));
            let below: ModPath = at.iter().cloned().chain([name.clone()]).collect();
            if let Some((_, inner)) = &m.content {
                self.items(inner, file, &base.join(&name), &below, test);
                continue;
            }
            let dir = file.parent().expect("a file has a folder");
            let named = named_path(&m.attrs).map(|p| dir.join(p)).unwrap_or_default();
            let places = [named, base.join(format!("{name}.rs")), base.join(&name).join("mod.rs")];
            if let Some(found) = places.iter().find(|p| p.is_file()) {
                self.file(found, false, &below, test);
            }
        }
    }

    /// Follows re-exports until the path says where something is defined.
    #[must_use]
    pub fn resolve(&self, path: &[String]) -> ModPath {
        let mut path = path.to_vec();
        for _ in 0..16 {
            let Some(next) = self.step(&path) else { break };
            path = next;
        }
        path
    }

    /// One re-export less, if there is one.
    fn step(&self, path: &[String]) -> Option<ModPath> {
        for i in 0..path.len() {
            let module = self.modules.get(&path[..i])?;
            let name = &path[i];
            if module.children.contains(name) {
                continue;
            }
            if module.items.contains(name) {
                return None;
            }
            let to = module.uses.get(name).cloned().or_else(|| {
                let has = |glob: &&ModPath| self.modules.get(&self.resolve(glob)).is_some_and(|m| m.has(name));
                module.globs.iter().find(has).map(|g| g.iter().cloned().chain([name.clone()]).collect())
            })?;
            return Some(to.into_iter().chain(path[i + 1..].iter().cloned()).collect());
        }
        None
    }
}

impl Module {
    fn has(&self, name: &str) -> bool {
        self.items.contains(name) || self.children.contains(name) || self.uses.contains_key(name)
    }
}

fn read_module(items: &[syn::Item], file: &Path, at: &[String]) -> Module {
    let mut module = Module { file: file.to_path_buf(), code: items.to_vec(), ..Module::default() };
    for item in items {
        match item {
            syn::Item::Mod(m) if !is_test(&m.attrs) => drop(module.children.insert(m.ident.to_string())),
            syn::Item::Macro(m) => module.items.extend(m.ident.as_ref().map(ToString::to_string)),
            other => module.items.extend(name_of(other)),
        }
    }
    let mut look = Paths { at, module: &mut module };
    for item in items {
        look.visit_item(item);
    }
    module
}

/// The name that an item defines.
#[must_use]
pub fn name_of(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(i) => &i.ident,
        syn::Item::Enum(i) => &i.ident,
        syn::Item::Fn(i) => &i.sig.ident,
        syn::Item::Static(i) => &i.ident,
        syn::Item::Struct(i) => &i.ident,
        syn::Item::Trait(i) => &i.ident,
        syn::Item::Type(i) => &i.ident,
        syn::Item::Union(i) => &i.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

struct Paths<'m> {
    at: &'m [String],
    module: &'m mut Module,
}

impl Paths<'_> {
    /// A path as code says it, from the crate's root; none if it leads elsewhere.
    fn absolute(&self, segments: &[String]) -> Option<ModPath> {
        let (mut base, mut rest) = (self.at.to_vec(), segments);
        match segments.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &segments[1..]),
            "self" => rest = &segments[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            first if self.module.children.contains(first) => {}
            _ => return None,
        }
        Some(base.into_iter().chain(rest.iter().cloned()).collect())
    }

    fn name(&mut self, segments: &[String], line: usize) -> Option<ModPath> {
        let path = self.absolute(segments)?;
        self.module.named.push(Named { path: path.clone(), line });
        Some(path)
    }

    fn import(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        let (name, alias) = match tree {
            syn::UseTree::Path(p) => {
                before.push(p.ident.to_string());
                self.import(&p.tree, before);
                before.pop();
                return;
            }
            syn::UseTree::Group(g) => return g.items.iter().for_each(|t| self.import(t, before)),
            syn::UseTree::Glob(g) => {
                let path = self.name(before, g.span().start().line);
                return self.module.globs.extend(path);
            }
            syn::UseTree::Name(n) => (n.ident.to_string(), n.ident.to_string()),
            syn::UseTree::Rename(r) => (r.ident.to_string(), r.rename.to_string()),
        };
        let own = name == "self";
        let alias = if own { before.last().cloned().unwrap_or_default() } else { alias };
        let path: Vec<String> = before.iter().cloned().chain((!own).then_some(name)).collect();
        if let Some(path) = self.name(&path, tree.span().start().line) {
            self.module.uses.insert(alias, path);
        }
    }

    /// Paths in the tokens of a macro.
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let colon = |i: usize| matches!(tokens.get(i), Some(TokenTree::Punct(p)) if p.as_char() == ':');
        let mut i = 0;
        while i < tokens.len() {
            match &tokens[i] {
                TokenTree::Group(g) => self.tokens(g.stream()),
                TokenTree::Ident(first) if first == "crate" || first == "super" => {
                    let mut path = vec![first.to_string()];
                    while colon(i + 1) && colon(i + 2) {
                        let Some(TokenTree::Ident(next)) = tokens.get(i + 3) else { break };
                        path.push(next.to_string());
                        i += 3;
                    }
                    self.name(&path, first.span().start().line);
                }
                _ => {}
            }
            i += 1;
        }
    }
}

impl<'a> Visit<'a> for Paths<'_> {
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
    fn visit_item_use(&mut self, u: &'a syn::ItemUse) {
        self.import(&u.tree, &mut Vec::new());
    }
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {} // `pub(in ...)` uses nothing
    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 {
            self.name(&segments, path.span().start().line);
        }
        syn::visit::visit_path(self, path);
    }
    fn visit_macro(&mut self, m: &'a syn::Macro) {
        self.visit_path(&m.path);
        self.tokens(m.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files, in a folder of its own.
    fn krate(files: &[(&str, &str)]) -> Crate {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        Crate::read(&dir.path().join("lib.rs"))
    }

    fn strings(path: &str) -> ModPath {
        path.split("::").filter(|s| !s.is_empty()).map(ToOwned::to_owned).collect()
    }

    #[test]
    fn every_way_to_name_a_module_is_seen() {
        let krate = krate(&[
            ("lib.rs", "mod a;\nmod b { pub fn f() {} }"),
            (
                "a.rs",
                "mod c;\nuse crate::b::{self, f as g};\nfn x(y: super::b::T) -> self::c::U { c::v() }\n\
                 macro_rules! m { () => { $crate::b::w() } }\n#[cfg(test)]\nmod tests { use crate::b::z; }",
            ),
            ("a/c.rs", "fn x() { format!(\"{}\", super::super::b::k()) }\n#[test]\nfn t() { crate::b::no() }"),
        ]);
        let named =
            |at: &str| -> Vec<String> { krate.modules[&strings(at)].named.iter().map(|n| n.path.join("::")).collect() };
        assert_eq!(named("a"), ["b", "b::f", "b::T", "a::c::U", "a::c::v", "b::w"]);
        assert_eq!(named("a::c"), ["b::k"]);
        assert_eq!(krate.files.len(), 3);
        assert!(!krate.modules.contains_key(&strings("a::tests")));
    }

    #[test]
    fn re_exports_are_followed_to_where_something_is_defined() {
        let krate = krate(&[
            ("lib.rs", "mod a;\nmod b;\npub use a::Short;\npub use b::*;"),
            ("a.rs", "mod deep;\npub use deep::Long as Short;"),
            ("a/deep.rs", "pub struct Long;"),
            ("b.rs", "pub struct Globbed;"),
        ]);
        assert_eq!(krate.resolve(&strings("Short")), strings("a::deep::Long"));
        assert_eq!(krate.resolve(&strings("Globbed")), strings("b::Globbed"));
        assert_eq!(krate.resolve(&strings("Missing")), strings("Missing"));
    }
}
